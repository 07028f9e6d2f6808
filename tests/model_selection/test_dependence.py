"""Rows in groups: splits separate groups of every kind, so that recognising a member of a group is not a gain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, StratifiedKFold, TimeSeriesSplit
from sklearn.neighbors import KNeighborsClassifier

from closecall.linear.splits import make_splits, strangers
from closecall.linear.training import Training, row_hashes
from closecall.model_selection import ExactThresholdClassifier, GuardedClassifierCV
from closecall.model_selection.folds import fold_pairs
from closecall.paired import Units
from closecall.panel import blocks_of, disjoint

USER, ITEM = np.divmod(np.arange(360), 18)
BOTH = np.column_stack([USER, ITEM])


def noise(seed: int, kind: np.ndarray) -> tuple[Any, Any]:
    """Return columns and labels that both depend on the member, but are unrelated for new members."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20, 4))[kind] + 0.3 * rng.normal(size=(360, 4))
    z = rng.normal(size=20)[kind] + 0.3 * rng.normal(size=360)
    return X, (z > np.median(z)).astype(int)


def left(cv: Any, groups: Any, kind: np.ndarray) -> int:
    """Return in how many of eight runs the nearest neighbour, which recognises members, replaces the baseline."""
    found = 0
    for seed in range(8):
        model = GuardedClassifierCV(LogisticRegression(), KNeighborsClassifier(1), cv=cv, refit=False)
        X, y = noise(seed, kind)
        found += model.fit(X, y, groups=groups).best_name_ != "baseline"
    return found


@pytest.mark.parametrize("cv", [None, 4, GroupKFold(4), StratifiedKFold(4), TimeSeriesSplit(4)])
@pytest.mark.parametrize("columns", [1, 2])
def test_no_group_is_on_both_sides_and_every_row_is_tested_once(cv: Any, columns: int) -> None:
    X, y = noise(0, ITEM)
    groups = BOTH[:, 2 - columns :]  # items, or users and items
    pairs = fold_pairs(cv, X, y, groups if columns > 1 else groups.ravel())
    for train, test in pairs:
        for column in groups.T:
            assert not set(column[train]) & set(column[test])
        assert len(train) > 30
        assert not isinstance(cv, TimeSeriesSplit) or train.max() < test.min()
    tested = np.sort(np.concatenate([test for _, test in pairs]))
    np.testing.assert_array_equal(tested, np.arange(72 if isinstance(cv, TimeSeriesSplit) else 0, 360))
    if isinstance(cv, GroupKFold):
        training = Training(X, y, np.ones(360), np.arange(2), row_hashes(X), np.arange(360))
        search = make_splits(cv, training, X, y, groups)
        assert len(search) == len(pairs)
        for (train, test), known, asked in zip(pairs, search.train, search.test, strict=True):
            np.testing.assert_array_equal(np.sort(train), np.flatnonzero(known[search.group]))
            np.testing.assert_array_equal(np.sort(test), np.flatnonzero(asked[search.group]))


def test_groups_within_groups_and_a_constant_column_change_nothing() -> None:
    X, y = noise(1, ITEM)
    alone = fold_pairs(None, X, y, USER)
    for second in (np.arange(360) // 6, np.zeros(360), USER):  # visits of a user, one group, the same groups
        found = fold_pairs(None, X, y, np.column_stack([USER, second]))
        for (train, test), (known, asked) in zip(alone, found, strict=True):
            np.testing.assert_array_equal(train, known)
            np.testing.assert_array_equal(test, asked)


@pytest.mark.parametrize(("cv", "groups", "less"), [
    (None, BOTH, USER), (GroupKFold(5), BOTH, USER), (TimeSeriesSplit(5), ITEM, None)
])  # fmt: skip
def test_recognising_a_member_is_a_gain_only_if_groups_do_not_separate_members(cv: Any, groups: Any, less: Any) -> None:
    assert left(cv, groups, ITEM) <= 1
    assert left(cv, less, ITEM) >= 3  # for the same items, or for the future of the same members
    assert groups is not BOTH or left(cv, BOTH, USER) <= 1


def test_a_real_gain_for_new_users_and_items_is_found() -> None:
    X, _ = noise(2, ITEM)
    X = X + np.random.default_rng(2).normal(size=X.shape)
    for cv, groups in ((None, BOTH), (GroupKFold(5), BOTH), (TimeSeriesSplit(5), ITEM)):
        model = GuardedClassifierCV(LogisticRegression(), KNeighborsClassifier(9), cv=cv, refit=False)
        found = model.fit(X[:, :2], (X[:, 0] * X[:, 1] > 0).astype(int), groups=groups)
        assert found.best_name_ != "baseline"


def test_a_threshold_for_every_season_is_no_threshold() -> None:
    moved = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        y = (rng.uniform(size=400) < 0.5 + 0.35 * np.sin(2 * np.pi * np.arange(400) / 133)).astype(int)
        model = ExactThresholdClassifier(LogisticRegression(), cv=TimeSeriesSplit(5), n_bootstrap=0)
        moved += bool(model.fit(rng.normal(size=(400, 2)), y).guard_report_["taken"])
    assert moved <= 2


def test_test_sets_that_share_a_group_do_not_choose_for_each_other() -> None:
    tests = [test for _, test in fold_pairs(None, *noise(3, ITEM), BOTH)]
    found = disjoint(tests, Units(USER, "groups", other=ITEM))
    assert found.sum(axis=1).tolist() == [8] * 15  # four parts of the users and two of the items
    apart = disjoint(tests, Units(np.arange(360)))
    np.testing.assert_array_equal(apart, ~np.eye(15, dtype=bool))


def test_blocks_of_time_are_in_order_though_the_splits_divide_members() -> None:
    pairs = fold_pairs(TimeSeriesSplit(5), *noise(4, ITEM), ITEM)
    block = blocks_of([test for _, test in pairs], Units(np.arange(360), "blocks of time", time=True, other=ITEM))
    assert (block[:60] == -1).all()
    assert (np.diff(block) >= 0).all()


def test_what_cannot_be_kept_apart_is_refused() -> None:
    X, y = noise(5, ITEM)
    with pytest.raises(ValueError, match="cv splits by time, but groups has two columns; pass one column"):
        GuardedClassifierCV(LogisticRegression(), KNeighborsClassifier(), cv=TimeSeriesSplit(5)).fit(X, y, groups=BOTH)
    half = np.arange(180), np.arange(180, 360)
    y = (ITEM == 3).astype(int)
    with pytest.raises(ValueError, match="the groups of its test rows are left out"):
        fold_pairs([half], X, y, BOTH)
    assert len(strangers([half], y, USER)) == 1

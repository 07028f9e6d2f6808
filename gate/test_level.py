"""Guards on noise: rows that depend on each other, weights in another unit, many challengers, folds that overlap.

Rules that learn nothing have a true gain of exactly 0. Every rule that is chosen is therefore a mistake, and a mean
gain other than 0 is a bias. A correct guard exceeds each limit with a probability of 0.001.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GroupKFold,
    RepeatedStratifiedKFold,
    StratifiedShuffleSplit,
    TimeSeriesSplit,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from closecall import CloseKClassifierCV
from closecall.model_selection import ExactThresholdClassifier, GuardedClassifierCV
from closecall.model_selection.contest import FoldContest, Folding
from closecall.paired import apart

RUNS = 100
#: If the guard chose six in a hundred, it would choose more than this with a probability of 0.001.
LIMIT = int(stats.binom.isf(1e-3, RUNS, 0.06))


class Rule(ClassifierMixin, BaseEstimator):
    """Predict the sign of a column, whatever the training data."""

    def __init__(self, column: int = 0) -> None:
        self.column = column

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Rule:
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self

    def predict(self, X: Any) -> Any:
        return self.classes_[(X[:, self.column] > 0).astype(int)]


def rules(count: int, **params: Any) -> GuardedClassifierCV:
    members = {f"rule {place}": Rule(place) for place in range(1, count + 1)}
    return GuardedClassifierCV(Rule(), members, refit=False, **params)


def plain(rng: np.random.Generator, columns: int, rows: int = 200) -> tuple[Any, Any]:
    return rng.normal(size=(rows, columns)), rng.permutation(np.arange(rows) % 2)


def grouped(rng: np.random.Generator, columns: int) -> tuple[Any, Any, Any]:
    member = np.repeat(np.arange(20), 20)
    X = rng.normal(size=(20, columns))[member] + 0.3 * rng.normal(size=(400, columns))
    return X, (rng.normal(size=20)[member] + 0.3 * rng.normal(size=400) > 0).astype(int), member


def series(rng: np.random.Generator, columns: int) -> tuple[Any, Any]:
    steps = rng.normal(size=(500, columns + 1))
    for row in range(1, 500):
        steps[row] = 0.9 * steps[row - 1] + np.sqrt(0.19) * steps[row]
    return steps[100:, 1:], (steps[100:, 0] > 0).astype(int)


def level(fit: Callable[[np.random.Generator], Any], runs: int = RUNS) -> tuple[int, np.ndarray, np.ndarray]:
    """Return how many challengers were chosen, and the reported gains and standard errors."""
    reports = [fit(np.random.default_rng([seed, 31])).guard_report_ for seed in range(runs)]
    steps = [(report.get("comparisons") or [report.get("comparison") or report])[-1] for report in reports]
    gains, errors = (np.array([step[name] for step in steps]) for name in ("gain", "standard_error"))
    return sum(bool(step["taken"]) for step in steps), gains, errors


def unbiased(gains: np.ndarray) -> bool:
    return bool(abs(gains.mean()) < 3.3 * gains.std(ddof=1) / np.sqrt(len(gains)))


def crossed(rng: np.random.Generator, columns: int) -> tuple[Any, Any, Any]:
    """Return rows of twenty users and twenty items; rows of the same user or item are similar."""
    user, item = np.divmod(np.arange(400), 20)
    both = rng.normal(size=(20, columns + 1))[user] + rng.normal(size=(20, columns + 1))[item]
    both += 0.5 * rng.normal(size=both.shape)
    return both[:, 1:], (both[:, 0] > 0).astype(int), np.column_stack([user, item])


def copied(rng: np.random.Generator, columns: int) -> tuple[Any, Any]:
    """Return four copies of each of sixty rows."""
    X, y = plain(rng, columns, 60)
    rows = rng.permutation(np.repeat(np.arange(60), 4))
    return X[rows], y[rows]


def shocked(rng: np.random.Generator, columns: int, members: int, own: float) -> tuple[Any, Any, Any]:
    """Return sixty times of some members; rows near in time are similar, or share a shock if ``own`` is not 0."""
    steps = rng.normal(size=(160, 1 if own else members, columns + 1))
    for time in range(1, 160):
        steps[time] = 0.9 * steps[time - 1] + np.sqrt(0.19) * steps[time]
    rows = (steps[100:] + own * rng.normal(size=(60, members, columns + 1))).reshape(60 * members, -1)
    y = (rows[:, 0] > 0).astype(int)
    y[:members] = np.arange(members) % 2  # the first fold has both classes
    return rows[:, 1:], y, np.tile(np.arange(members), 60)


OVERLAP = RepeatedStratifiedKFold(n_splits=5, n_repeats=5, random_state=0), StratifiedShuffleSplit(20, random_state=0)
SINGLE = [(np.arange(100), np.arange(100, 300))]
#: How rows are drawn, the numbers of challengers, and how rows are divided or scored.
CASES: dict[str, tuple[Callable[..., Any], tuple[int, ...], dict[str, Any]]] = {
    "any number of challengers": (plain, (1, 20, 100), {}),
    "groups": (grouped, (1, 20), {}),
    "time": (series, (1, 20), {"cv": TimeSeriesSplit(5)}),
    "members near in time": (lambda *drawn: shocked(*drawn, 5, 0.0)[:2], (20,), {"cv": TimeSeriesSplit(5)}),
    "members beside time": (partial(shocked, members=8, own=0.8), (20,), {"cv": TimeSeriesSplit(5)}),
    "groups that cross": (crossed, (1, 20), {}),
    "copies": (copied, (1,), {}),
    "folds that overlap": (plain, (20,), {"cv": OVERLAP[0]}),
    "shuffled folds": (plain, (20,), {"cv": OVERLAP[1]}),
    "a single split": (partial(plain, rows=300), (20,), {"cv": SINGLE}),
    "another score": (plain, (1, 20), {"scoring": "balanced_accuracy"}),
}


@pytest.mark.parametrize(("name", "count"), [(name, count) for name, case in CASES.items() for count in case[1]])
def test_noise_is_chosen_no_more_often_than_the_guard_allows(name: str, count: int) -> None:
    draw, _, params = CASES[name]

    def fit(rng: np.random.Generator) -> Any:
        X, y, *member = draw(rng, count + 1)
        return rules(count, **params).fit(X, y, **({"groups": member[0]} if member else {}))

    taken, gains, errors = level(fit)
    assert taken <= LIMIT
    assert unbiased(gains)
    if name == "groups":
        assert 0.7 < np.sqrt((errors**2).mean()) / gains.std() < 1.5  # it was 0.2


def test_thresholds_and_close_k_are_judged_over_groups() -> None:
    threshold = ExactThresholdClassifier(LogisticRegression(), n_bootstrap=0)
    close = CloseKClassifierCV(alphas=(0.01, 1.0, 100.0), cv=GroupKFold(5), refit=False, guard=2.0, max_iter=60)
    for model, runs in ((threshold, 60), (close, 40)):

        def fit(rng: np.random.Generator, model: Any = model) -> Any:
            X, y, member = grouped(rng, 4)
            return clone(model).fit(X, y, groups=member)

        assert level(fit, runs)[0] <= stats.binom.isf(1e-3, runs, 0.06)


def test_folds_of_few_groups_have_both_classes() -> None:
    """With four groups of each class, five folds would train on a majority of the class that they do not test."""

    def fit(rng: np.random.Generator) -> Any:
        member = np.repeat(np.arange(8), 10)
        X = rng.normal(size=(8, 3))[member] + 0.5 * rng.normal(size=(80, 3))
        model = GuardedClassifierCV(LogisticRegression(C=1e-4), GaussianNB(), refit=False)
        return model.fit(X, rng.permutation(np.arange(8) % 2)[member], groups=member)

    taken, gains, _ = level(fit)
    assert taken <= LIMIT
    assert unbiased(gains)


def test_copies_are_never_on_both_sides() -> None:
    near = {"near": KNeighborsClassifier(1)}  # it recognises every copy
    learnt = level(lambda rng: GuardedClassifierCV(GaussianNB(), near, refit=False).fit(*copied(rng, 3)), 30)
    assert learnt[0] <= stats.binom.isf(1e-3, 30, 0.08)


@pytest.mark.parametrize("weight", [20.0, 0.05])
def test_constant_weights_are_no_weights(weight: float) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(150, 4)), rng.integers(0, 2, 150)
    constant = {"sample_weight": np.full(150, weight)}
    for model in (rules(3), ExactThresholdClassifier(GaussianNB(), n_bootstrap=0)):
        first, second = (dict(model.fit(X, y, **params).guard_report_) for params in ({}, constant))
        for name in ("gain", "standard_error", "needed"):
            one, two = (report.get("comparison", report)[name] for report in (first, second))
            assert one == pytest.approx(two, rel=1e-9), (model, name)
    # With weights the solver takes other steps, and alpha must grow with the sum of the losses.
    found = [
        CloseKClassifierCV(alphas=(0.1 * scale, 10.0 * scale), ks=(0.3,), max_iter=60, refit=False).fit(X, y, **params)
        for scale, params in ((1.0, {}), (weight, constant))
    ]
    one, two = (model.guard_report_["comparisons"][-1]["standard_error"] for model in found)
    assert one == pytest.approx(two, rel=0.4)  # it was 4.5 times as large, or as small


def test_a_score_of_a_fold_is_not_chosen_by_folds_that_share_a_row() -> None:
    tests = [np.array([0, 1]), np.array([2, 3]), np.array([1, 2]), np.array([3, 0])]  # two divisions of four rows
    pairs = [(np.setdiff1d(np.arange(4), test), test) for test in tests]
    # The first challenger is good where fold 0 has rows.
    scores = np.array([[0.5] * 4, [0.9, 0.1, 0.9, 0.9], [0.5] * 4])
    seen = {(member, fold): (float(scores[member, fold]), np.ones(2, dtype=bool)) for member, fold in np.ndindex(3, 4)}
    contest = FoldContest([Folding(pairs, seen), Folding(pairs[:1], {})], 3, np.ones(4), apart(4))
    assert contest.chosen == [[2, 1, 1, 1], [0]]  # a fresh fold shares rows with every fold that could choose


def guards(X: Any, y: Any, cv: Any, groups: Any = None) -> list[Any]:
    """Return the comparisons of every guard."""
    search = CloseKClassifierCV(alphas=(1.0,), cv=cv, guard=0.1, refit=False, max_iter=60).fit(X, y, groups=groups)
    contest = rules(1, cv=cv).fit(X, y, groups=groups)
    found = [*search.guard_report_["comparisons"], contest.guard_report_["comparison"]]
    if groups is not None:
        found.append(ExactThresholdClassifier(GaussianNB(), n_bootstrap=0).fit(X, y, groups=groups).guard_report_)
    return found


def test_the_units_are_those_of_the_division() -> None:
    rng = np.random.default_rng(3)
    X, y, both = rng.normal(size=(200, 3)), np.tile([0, 1], 100), np.column_stack(np.divmod(np.arange(200), 20))
    # A search leaves out outlier rows, at most a tenth, and a fifth of the users only choose.
    for cv, groups, unit, least, most in (
        (None, None, "distinct rows", 180, 200),
        (TimeSeriesSplit(5), None, "blocks of time", 5, 6),
        (GroupKFold(5), both, "groups", 8, 10),
    ):
        for found in guards(X, y, cv, groups):
            assert found["unit"] == unit
            assert least <= found["units"] <= most
    with pytest.raises(ValueError, match="3 columns"):
        rules(1).fit(X, y, groups=np.column_stack([both, both[:, 1]]))


def test_few_groups_are_refused_with_a_reason() -> None:
    rng = np.random.default_rng(2)
    y = np.tile([0, 1], 100)
    X = np.column_stack([rng.normal(size=200), y - 0.5])  # the challenger is always right
    for count, taken in ((5, False), (8, True)):
        contest = rules(1, cv=GroupKFold(4)).fit(X, y, groups=np.arange(200) // 2 % count)
        assert (contest.best_name_ != "baseline") == taken
        assert contest.guard_report_["comparison"]["units"] == count
        assert ("too few for a standard error: baseline is kept" in contest.guard_report_["reason"]) == (not taken)
    for found in guards(np.c_[X, X**2], y, GroupKFold(4), np.arange(200) // 2 % 5):
        assert found["unit"] == "groups"
        assert not found["taken"]

"""The meta-estimators with zero weights, groups that searches split by, several jobs, and one-vs-one scores."""

from typing import Any

import joblib
import numpy as np
import pytest
import sklearn
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import GridSearchCV, GroupKFold, StratifiedGroupKFold, StratifiedKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from closecall import CloseKClassifierCV
from closecall.model_selection import ExactThresholdClassifier, GuardedClassifierCV
from closecall.model_selection.offsets import best_offsets, predicted


def noisy(samples: int = 150, classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(samples, 6, n_informative=4, n_classes=classes, flip_y=0.2, random_state=seed)


def test_a_class_without_weight_does_not_count_in_balanced_accuracy() -> None:
    X, y = noisy(120, 3)
    mass = np.where(y == 2, 0.0, 1.0)
    costs = (1 - np.eye(3)) * np.append(mass.sum() / 2 / np.bincount(y, mass)[:2], 0.0)[:, None]
    balanced, priced = (
        ExactThresholdClassifier(LogisticRegression(), objective=objective, guard=0, n_bootstrap=10, random_state=0)
        .fit(X, y, sample_weight=mass)
        for objective in ("balanced_accuracy", costs)
    )  # fmt: skip
    assert balanced.guard_report_["gain"] == pytest.approx(priced.guard_report_["gain"])
    np.testing.assert_allclose(balanced.threshold_, priced.threshold_)
    assert np.isfinite(balanced.threshold_interval_).all()


def test_a_fold_without_weight_has_nothing_to_say() -> None:
    X, y = noisy(60)
    folds = list(StratifiedKFold(3).split(X, y))
    mass = np.ones(60)
    mass[folds[1][1]] = 0
    members = LogisticRegression(), [("bayes", GaussianNB())]
    found = GuardedClassifierCV(*members, cv=folds).fit(X, y, sample_weight=mass)
    kept = GuardedClassifierCV(*members, cv=[folds[0], folds[2]]).fit(X, y, sample_weight=mass)
    np.testing.assert_array_equal(found.cv_results_["mean_test_score"], kept.cv_results_["mean_test_score"])
    assert found.guard_report_ == kept.guard_report_
    with pytest.raises(ValueError, match="positive weight"):
        GuardedClassifierCV(*members, cv=folds[1:2]).fit(X, y, sample_weight=mass)


def test_whole_weights_are_copies_for_the_whole_referee() -> None:
    """The folds are given, so that copies are on the same side as the original."""
    X, y = noisy(90)
    mass = np.random.default_rng(2).integers(1, 4, 90)
    copies = np.repeat(np.arange(90), mass)
    folds = list(StratifiedKFold(3).split(X, y))
    repeated = [tuple(np.flatnonzero(np.isin(copies, part)) for part in fold) for fold in folds]
    for kind in (
        lambda cv: GuardedClassifierCV(LogisticRegression(tol=1e-10), [("bayes", GaussianNB())], cv=cv),
        lambda cv: ExactThresholdClassifier(GaussianNB(), cv=cv, n_bootstrap=0),
    ):
        weighed = kind(folds).fit(X, y, sample_weight=mass)
        copied = kind(repeated).fit(X[copies], y[copies])
        first, second = (report.get("comparison") or report for report in (weighed.guard_report_, copied.guard_report_))
        for name in ("gain", "standard_error"):
            assert first[name] == pytest.approx(second[name], abs=1e-9)
        np.testing.assert_array_equal(weighed.predict(X), copied.predict(X))


@pytest.mark.parametrize("wrapped", [False, True])
def test_searches_that_divide_by_groups_receive_them(wrapped: bool) -> None:
    X, y = noisy(120)
    groups = np.arange(120) // 4
    seen: list[Any] = []

    class Folds(GroupKFold):
        def split(self, X: Any, y: Any = None, groups: Any = None) -> Any:
            seen.append(np.asarray(groups))
            return super().split(X, y, groups)

    search: Any = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-2]}, cv=Folds(2))
    plain = GridSearchCV(GaussianNB(), {"var_smoothing": [1e-9, 1e-2]}, cv=2)  # does not use the groups
    close: Any = CloseKClassifierCV(cv=Folds(2), ks=(0.5,), alphas=(0.1, 10.0))
    if wrapped:
        search, close = make_pipeline(StandardScaler(), search), make_pipeline(StandardScaler(), close)
    contest = GuardedClassifierCV(LogisticRegression(), {"search": search, "close": close, "plain": plain}, cv=3)
    contest.fit(X, y, groups=groups)
    assert len(seen) >= 3
    for train, _ in StratifiedGroupKFold(3, shuffle=True, random_state=0).split(X, y, groups):
        assert any(np.array_equal(groups[train], given) for given in seen)
    ExactThresholdClassifier(search, cv=2, n_bootstrap=0).fit(X, y, groups=groups)


def test_weights_and_groups_are_routed() -> None:
    X, y = noisy(120)
    groups, mass = np.arange(120) // 4, np.random.default_rng(1).uniform(0.5, 2, 120)
    with sklearn.config_context(enable_metadata_routing=True):
        plain = LogisticRegression().set_fit_request(sample_weight=False)
        heavy = GaussianNB().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        search = GridSearchCV(heavy, {"var_smoothing": [1e-9, 1e-2]}, cv=GroupKFold(2))
        contest = GuardedClassifierCV(plain, {"heavy": heavy, "search": search}, cv=GroupKFold(3), guard=0)
        contest.set_fit_request(groups=True, sample_weight=True).fit(X, y, groups=groups, sample_weight=mass)
    for fold, (a, b) in enumerate(GroupKFold(3).split(X, y, groups)):
        models = LogisticRegression().fit(X[a], y[a]), GaussianNB().fit(X[a], y[a], mass[a])
        expected = [model.score(X[b], y[b], mass[b]) for model in models]
        np.testing.assert_allclose(contest.cv_results_[f"split{fold}_test_score"][:2], expected)


def test_jobs_find_what_one_finds() -> None:
    X, y = noisy(150, 3)
    for kind in (
        lambda jobs: GuardedClassifierCV(LogisticRegression(), {"near": KNeighborsClassifier()}, n_jobs=jobs),
        lambda jobs: ExactThresholdClassifier(GaussianNB(), n_bootstrap=5, random_state=0, n_jobs=jobs),
    ):
        one = kind(None).fit(X, y)
        with joblib.parallel_backend("threading"):
            two = kind(2).fit(X, y)
        assert one.guard_report_ == two.guard_report_
        np.testing.assert_array_equal(one.predict(X), two.predict(X))


@pytest.mark.parametrize("objective", ["accuracy", "balanced_accuracy", [[0, 1], [4, 0]], [[-2, 1], [3, -1]]])
@pytest.mark.parametrize("member", [LogisticRegression(), GaussianNB()], ids=repr)
def test_the_whole_classifier_by_brute_force(member: Any, objective: Any) -> None:
    """Compute the scores by scikit-learn, try every cut, and measure the gain of the cuts chosen on the other folds."""
    X, y = make_classification(80, 5, weights=[0.7], flip_y=0.2, random_state=1)
    mass = np.random.default_rng(0).choice([0.5, 1.0, 2.0], 80)
    model = ExactThresholdClassifier(member, objective=objective, guard=0, n_bootstrap=0)
    model.fit(X, y, sample_weight=mass)
    costs = (1 - np.eye(2) if isinstance(objective, str) else np.array(objective, dtype=float))[y]
    if objective == "balanced_accuracy":  # the mean of the recalls: an example counts by its class's share
        costs *= (mass.sum() / 2 / np.bincount(y, mass)[y])[:, None]
    name = "decision_function" if hasattr(member, "decision_function") else "predict_proba"
    tables = []
    for seed in (0, 1):
        folds = list(StratifiedKFold(5, shuffle=True, random_state=seed).split(X, y))
        scores = cross_val_predict(member, X, y, cv=folds, method=name, params={"sample_weight": mass})
        tables.append(scores if scores.ndim == 1 else scores[:, 1])
    saved = np.full((2, 80), np.nan)
    for _, test in folds:
        others = np.setdiff1d(np.arange(80), test)
        pooled = np.concatenate([scores[others] for scores in tables])
        _, place = best_cut(pooled, np.tile(costs[others], (2, 1)), np.tile(mass[others], 2))
        said, usual = (
            [(scores[test] > at).astype(int) for scores in tables] for at in (place, model.default_threshold_)
        )
        saved[:, test] = [costs[test, one] - costs[test, two] for one, two in zip(usual, said, strict=True)]
    everything = np.concatenate(tables), np.tile(costs, (2, 1)), np.tile(mass, 2)
    least, _ = best_cut(*everything)
    cut = (everything[0] > model.optimum_).astype(int)
    assert float(everything[2] @ everything[1][np.arange(160), cut]) == pytest.approx(least)
    places, curve = model.curve_
    assert len(places) == len(np.unique(everything[0])) + 1  # the first threshold is below all scores
    assert curve.min() == pytest.approx(least / everything[2].sum())
    assert curve[np.searchsorted(places, model.optimum_, side="right") - 1] == pytest.approx(curve.min())
    asked = np.flatnonzero(np.isfinite(saved[0]))
    gain = np.average(saved[:, asked].mean(axis=0), weights=mass[asked])
    assert model.guard_report_["gain"] == pytest.approx(gain)
    left = mass[asked].sum() - mass[asked]
    moves = mass[asked] * (saved[:, asked] - gain) / left  # changes of the mean if a row is left out (jackknife)
    error = np.sqrt((len(asked) - 1) / len(asked) * (moves**2).mean(axis=0).sum())  # that of one division
    assert model.guard_report_["standard_error"] == pytest.approx(error)
    np.testing.assert_array_equal(
        model.predict(X), (tables_of(member, X, y, mass, name) > model.threshold_).astype(int)
    )


def tables_of(member: Any, X: Any, y: Any, mass: Any, name: str) -> np.ndarray:
    scores = getattr(sklearn.base.clone(member).fit(X, y, mass), name)(X)
    return scores if scores.ndim == 1 else scores[:, 1]


def best_cut(scores: np.ndarray, costs: np.ndarray, weights: np.ndarray) -> tuple[float, float]:
    """Return the lowest cost of all cuts, and the middle of the widest gap with this cost."""
    ranked = np.unique(scores)
    places = [ranked[0] - 1, *(ranked[:-1] + ranked[1:]) / 2, ranked[-1] + 1]
    totals = np.array([weights @ np.where(scores > place, costs[:, 1], costs[:, 0]) for place in places])
    widths = np.array([0, *np.diff(ranked), 0])
    return float(totals.min()), places[int(np.where(totals <= totals.min() + 1e-9, widths, -1).argmax())]


def test_the_offset_is_the_best_of_all_cuts() -> None:
    random = np.random.default_rng(0)
    for _ in range(100):
        samples = int(random.integers(2, 30))
        scores = random.normal(size=samples).round(int(random.integers(0, 3)))
        costs = random.choice([0.0, 1.0, 5.0, -1.0], size=(2, 2))[random.integers(0, 2, samples)]
        weights = random.choice([0.5, 1.0, 3.0], size=samples)
        chosen = predicted(scores[:, None], best_offsets(scores[:, None], costs, weights))
        found = float(weights @ costs[np.arange(samples), chosen])
        assert found == pytest.approx(best_cut(scores, costs, weights)[0], abs=1e-9)


def test_gains_in_costs_below_zero_do_not_move_what_is_best_already() -> None:
    scores, y = np.diag([2.0, 1.0, 1.0])[[0, 1, 2] * 5], np.array([0, 1, 2] * 5)
    np.testing.assert_array_equal(best_offsets(scores, -np.eye(3)[y], np.ones(15)), np.zeros(3))


@pytest.mark.parametrize("classes", [3, 4])
def test_scores_of_pairs_of_classes_are_refused(classes: int) -> None:
    X, y = noisy(160, classes)
    with pytest.raises(ValueError, match="decision_function_shape='ovr'"):
        ExactThresholdClassifier(SVC(decision_function_shape="ovo"), n_bootstrap=0).fit(X, y)
    model = ExactThresholdClassifier(SVC(), n_bootstrap=0).fit(X, y)
    assert balanced_accuracy_score(y, model.predict(X)) > 0.5
    ExactThresholdClassifier(RidgeClassifier(), n_bootstrap=0).fit(X, y)

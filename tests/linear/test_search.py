"""The cross-validated classifiers: which settings run, which ones pass the guard, and what is reported."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold, cross_val_score

from closecall import AggregateLossClassifier, AggregateLossClassifierCV, CloseKClassifierCV
from closecall.linear.splits import heat_rows, make_splits, outlying
from closecall.linear.training import Training, row_hashes
from closecall.paired import GUARD
from tests.linear.test_answers import plain


def turned() -> tuple[np.ndarray, np.ndarray]:
    """Mislabelled rows turn the average; close-k is clearly better."""
    X = np.concatenate([np.linspace(-2, 0, 100), np.linspace(0, 2, 100), np.linspace(-4, -3, 25)])[:, None]
    return X, np.repeat([0, 1, 1], [100, 100, 25])


def test_the_guard_takes_a_real_gain_and_says_so() -> None:
    X, y = turned()
    model = CloseKClassifierCV().fit(X, y)
    assert model.aggregate_ == "close_decay"
    assert model.score(X, y) > AggregateLossClassifier().fit(X, y).score(X, y) + 0.15
    last = model.guard_report_["comparisons"][-1]
    assert last["taken"]
    student = stats.t.isf(stats.norm.sf(GUARD), last["degrees_of_freedom"])
    chance = np.interp(GUARD, (0.5, 1.0, 1.5, 2.0, 2.5), last["chance"])  # what a chosen gain reaches by chance
    assert (model.guard, model.guard_report_["guard"]) == (None, GUARD)
    assert last["gain"] > last["needed"] == pytest.approx(max(student, chance) * last["standard_error"])
    assert "close_decay" in model.guard_report_["reason"]
    assert "is chosen" in model.guard_report_["reason"]
    assert CloseKClassifierCV(guard=1000).fit(X, y).best_params_["aggregate"] == "average"


def test_challengers_are_trained_and_evaluated_without_outliers() -> None:
    """Outliers have the label of the other side; logistic regression classifies them correctly at others' expense."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 8)), np.arange(300) % 2
    X[:, :3] += 1.2 * y[:, None]
    outliers = rng.random((15, 8)) < 0.5
    X, y = np.concatenate([X, np.where(outliers, 9.0, -9.0)]), np.append(y, outliers[:, :3].sum(axis=1) < 2)
    assert np.flatnonzero(outlying(X, np.ones(len(y)))).tolist() == [*range(300, 315)]
    model, base = CloseKClassifierCV().fit(X, y), CloseKClassifierCV(guard=1000).fit(X, y)
    assert model.guard_report_["comparisons"][-1]["units"] == model.n_training_mass_ == 300
    assert model.best_params_["without_outliers"]
    assert not base.best_params_["without_outliers"]
    assert model.score(X[:300], y[:300]) > base.score(X[:300], y[:300]) + 0.02
    names = ("loss", "aggregate", "k", "alpha", "exact_intercept")
    hand = AggregateLossClassifier(multiclass="top_two", **{name: model.best_params_[name] for name in names})
    np.testing.assert_allclose(model.coef_, hand.fit(X[:300], y[:300]).coef_, rtol=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_count_above_the_rows_without_outliers_is_all_of_them() -> None:
    left_out = 0
    for seed in range(6):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(100, 4)), np.arange(100) % 2
        X[:, :3] += 0.8 * y[:, None]
        outliers = rng.random((12, 4)) < 0.5
        X, y = np.concatenate([X, np.where(outliers, 9.0, -9.0)]), np.append(y, outliers[:, :3].sum(axis=1) < 2)
        model = AggregateLossClassifierCV(
            aggregate="top", loss="squared_hinge", ks=(108,), alphas=(0.1, 1.0), guard=0.001, max_iter=40
        ).fit(X, y)
        left_out += model.best_params_["without_outliers"] and model.k_ == model.n_training_mass_ < 108
    assert left_out > 0


@pytest.mark.parametrize(("weight", "heaviest"), [(1.0, 1.0), (1e-30, 1e-30), (1.0, 1e12)])
def test_a_class_of_outliers_is_kept(weight: float, heaviest: float) -> None:
    """If one row is very heavy, all others are outliers, and the fold that tests this row trains only on outliers."""
    X, y, weights = np.random.default_rng(0).normal(size=(200, 3)), np.arange(200) < 12, np.full(200, weight)
    X[y, 0] += 20
    weights[-1] = heaviest
    assert outlying(X, weights)[y].all()
    model = CloseKClassifierCV(refit=False).fit(X, y, sample_weight=weights)
    assert not model.cv_results_["param_without_outliers"].any()
    assert model.guard_report_["comparisons"][-1]["units"] == 200


@pytest.mark.parametrize("seed", range(5))
def test_which_rows_are_outliers_depends_on_no_representation(seed: int) -> None:
    rng = np.random.default_rng(seed)
    X = rng.integers(-3, 4, (60, 5)) * (rng.random((60, 5)) < 0.5) * [1.0, 1e-3, 1e200, 0.0, 1e-320]
    X[:3] *= 10
    weight = rng.integers(1, 4, 60)
    found, order = outlying(X, weight), rng.permutation(60)
    copies = np.repeat(np.arange(60), weight)
    scaled = X * [-7.0, 1e5, 1e-150, 1.0, 1e300] + [5.0, 0.0, 1e40, -2.0, 0.0]
    assert 0 < weight[found].sum() / weight.sum() < 0.25
    assert np.array_equal(outlying(sparse.csr_array(X), 0.1 * weight), found)
    assert np.array_equal(outlying(X[order], weight[order]), found[order])
    assert np.array_equal(outlying(X[copies], np.ones(len(copies))), found[copies])
    assert np.array_equal(outlying(scaled, weight), found)


def test_the_guard_is_rarely_fooled_by_noise() -> None:
    """With random labels, any gain is luck, and `average` should be kept."""
    kept = 0
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X, y = rng.normal(size=(80, 3)), np.arange(80) % 2
        model = CloseKClassifierCV(alphas=(0.1, 1.0, 10.0), max_iter=60, refit=False).fit(X, y)
        kept += model.best_params_["aggregate"] == "average"
    assert kept >= 9


def test_free_choice_is_the_best_mean_of_the_whole_grid() -> None:
    X, y = plain()
    model = CloseKClassifierCV(guard=0, alphas=(0.1, 1.0, 10.0), ks=(0.1, 0.5), max_iter=60).fit(X, y)
    results = model.cv_results_
    assert (results["n_folds"] == 5).all()
    assert len(results["params"]) == 3 * (2 + 2)
    assert model.best_score_ == pytest.approx(results["mean_test_score"].max(), abs=1e-12)
    assert model.guard_report_["comparisons"] == []


def test_average_scores_are_those_of_logistic_regression() -> None:
    X, y = plain()
    model = CloseKClassifierCV(alphas=(0.01, 1.0, 100.0), cv=5).fit(X, y)
    results = model.cv_results_
    for alpha in (0.01, 1.0, 100.0):
        ours = results["mean_test_score"][
            (results["param_alpha"] == alpha) & (results["param_aggregate"] == "average")
            & ~results["param_exact_intercept"] & ~results["param_without_outliers"]
        ]  # fmt: skip
        theirs = cross_val_score(LogisticRegression(C=1 / alpha), X, y, cv=StratifiedKFold(5)).mean()
        assert ours.item() == pytest.approx(theirs, abs=0.011)  # float32 may move an example or two


def test_the_baseline_is_logistic_regression_whatever_the_loss() -> None:
    """With a guard that nothing passes, a search among hinge losses returns scikit-learn's model."""
    X, y = plain()
    model = AggregateLossClassifierCV(loss="hinge", guard=1000, alphas=(0.1, 10.0), ks=(0.3,), max_iter=60).fit(X, y)
    theirs = LogisticRegression(C=1 / model.alpha_, tol=1e-8).fit(X, y)
    assert (model.loss_, model.aggregate_, model.guard_report_["baseline"]) == (
        "logistic", "average", "logistic regression")  # fmt: skip
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=2e-3)
    raced = {(p["loss"], p["aggregate"]) for p in model.cv_results_["params"]}
    assert raced == {("logistic", "average"), ("hinge", "average"), ("hinge", "close_decay")}


def test_a_validation_split_has_no_fresh_folds() -> None:
    model = CloseKClassifierCV(cv=[(np.arange(150), np.arange(150, 200))], alphas=(1.0,), max_iter=60).fit(*plain())
    assert model.guard_report_["fresh_folds"] == 0


def test_threads_do_not_change_the_choice() -> None:
    X, y = turned()
    one, two = (CloseKClassifierCV(n_jobs=jobs, max_iter=60).fit(X, y) for jobs in (1, 2))
    assert one.best_params_ == two.best_params_


def test_a_heat_on_a_part_of_the_rows() -> None:
    rng = np.random.default_rng(0)
    X, codes = rng.normal(size=(1000, 2)), (np.arange(1000) % 10 == 0).astype(int)
    training = Training(X, codes, np.ones(1000), np.arange(2), row_hashes(X), np.arange(1000))
    split = make_splits(None, training, X, codes, None)
    rows, share = heat_rows(training, split, limit=100)
    trained = rows[split.train[0][split.group[rows]]]
    assert share == pytest.approx(100 / 800)
    assert len(trained) == 100
    assert codes[trained].mean() == pytest.approx(0.1)
    assert set(np.flatnonzero(split.test[0][split.group])) <= set(rows)


def test_large_data_takes_the_heat_on_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = turned()
    mixed = np.random.default_rng(0).permutation(len(y))  # folds are drawn in the order of the rows
    X, y = X[mixed], y[mixed]
    monkeypatch.setattr("closecall.linear.race.heat_rows", lambda *args: heat_rows(*args, limit=60))
    monkeypatch.setattr("closecall.linear.splits.HEAT_TESTS", 60)
    assert CloseKClassifierCV(ks=(0.4,)).fit(X, y).aggregate_ == "close_decay"
    counts = CloseKClassifierCV(ks=(5, 50)).fit(X, y)  # k as counts, reduced for the part
    close = counts.cv_results_["param_aggregate"] == "close_decay"
    ran = sorted(counts.cv_results_["n_folds"][close])[-3:]
    assert ran in ([0, 1, 5], [0, 5, 5])  # two finalists on one fold, and on all where they are as good
    assert counts.guard_report_["comparisons"][-1]["challenger"]["k"] in (5, 50)
    assert counts.guard_report_["fresh_folds"] == 0  # the heat used one fold; the others are as good as fresh ones


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"alphas": ()}, "alphas is empty"),
        ({"alphas": (1.0, np.inf)}, "alphas contains inf"),
        ({"ks": (1000,)}, "k=1000 exceeds the"),
        ({"guard": -1}, "guard=-1 must be None or a number of standard errors >= 0"),
        ({"cv": 50}, "cv=50 must be"),
        ({"cv": 1}, "cv=1 must be"),
        ({"cv": []}, "no split|at least one"),
        ({"cv": [(np.arange(2), np.arange(2, 20))]}, "no training rows of class"),
        ({"loss": "cubic"}, "unknown loss"),
        ({"loss": ()}, "loss is empty"),
        ({"scoring": lambda model, X, y: np.nan}, "finite scores"),
        ({"cv": [([0, 1, 2, 50], [3, 500])]}, "beyond the 60 rows"),
        ({"scoring": "neg_log_loss"}, "set calibration="),
        ({"n_jobs": 0}, "n_jobs=0"),
    ],
)
def test_bad_requests_say_what_to_do(params: dict[str, Any], words: str) -> None:
    X, y = plain(60)
    with pytest.raises(ValueError, match=words):
        CloseKClassifierCV(**params).fit(X, np.sort(y))
    with pytest.raises(ValueError, match="has 1 example"):
        CloseKClassifierCV().fit(X, np.arange(60) == 0)

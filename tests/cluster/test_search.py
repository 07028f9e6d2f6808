"""The search over partitions: no leaks between folds, the same guard as with plain sums, and the in-memory result."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra dask")

from sklearn.linear_model import LogisticRegression

from closecall import CloseKClassifier, CloseKClassifierCV
from closecall._names import spread_out
from closecall.cluster import DaskCloseKClassifierCV
from closecall.cluster.fit import deal, judged, total_mass
from closecall.cluster.passes import Block, Frame, Passes, fold_of, make_block
from closecall.cluster.solve import Request, answer
from closecall.linear.training import row_hashes
from closecall.solvers.cuts import LossWindow
from tests.cluster import partitions


def table(seed: int, samples: int, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 2))
    score = X @ [1.0, -0.7] + 0.2
    y = (score + 0.3 * rng.logistic(size=samples) > 0).astype(int)
    wrong = rng.random(samples) < noise
    X[wrong] *= 6
    y[wrong] = X[wrong] @ [1.0, 0.4] < 0
    return X, y, rng.integers(1, 3, samples).astype(float)


def test_a_small_table_gets_the_answer_of_the_search_in_memory() -> None:
    X, y, mass = table(0, 300)
    names = np.where(y > 0, "yes", "no").astype(object)
    settings: dict[str, Any] = {"alphas": [0.1, 1.0, 10.0], "ks": [0.1, 0.4], "calibration": "sigmoid"}
    model = DaskCloseKClassifierCV(**settings, random_state=0).fit_source(partitions(X, names, mass, shuffled=False))
    same = CloseKClassifierCV(**settings, random_state=0).fit(X, names, mass)
    for name in ("coef_", "guard_report_", "alpha_", "k_", "aggregate_", "best_score_"):
        assert np.array_equal(getattr(model, name), getattr(same, name))
    assert np.array_equal(model.predict_proba(X), same.predict_proba(X))
    assert np.array_equal(model.to_local().predict(X), same.predict(X))


def test_a_fold_is_never_looked_at() -> None:
    X, y, mass = table(1, 500)
    frame = Frame(np.zeros(2), np.ones(2), True, np.array([0, 1]))
    request = Request(1, "logistic", None, "tangents", (np.array([0.5, -0.2, 0.1]), LossWindow(), 0.01))
    group = fold_of(row_hashes(X), 3)
    assert (np.bincount(group, minlength=3) > 100).all()
    assert (np.bincount(group[spread_out(row_hashes(X)) < 0.5], minlength=3) > 50).all()  # independent of samples
    for fold in range(3):
        found, without = answer(frame, [replace(request, fold=(fold, 3)), request], make_block(X, y, mass))
        kept = group != fold
        expected = answer(frame, [request], make_block(X[kept], y[kept], mass[kept]))[0]
        assert found.held == expected.held == mass[kept].sum()
        assert found.value == pytest.approx(expected.value, rel=1e-12)
        assert np.allclose(found.across, expected.across, rtol=1e-10)
        assert without.held == mass.sum()


def test_a_fold_counts_neither_in_the_survey_nor_in_the_sample_of_the_others() -> None:
    X, y, mass = table(9, 900)
    frame = Frame(np.zeros(2), np.ones(2), True, np.array([0, 1]), np.array([1.0, 3.0]))
    passes, group = Passes(partitions(X, y, mass)), fold_of(row_hashes(X), 3)
    survey, dealt = passes.survey(), deal(passes, frame, {0: 1.0, 1: 1.0}, 3)
    for fold in range(3):
        left, sample = dealt.outside(survey, frame, fold)
        kept = group != fold
        assert (left.rows, left.total, len(sample)) == (kept.sum(), mass[kept].sum(), kept.sum())
        assert left.labels == {label: ((y[kept] == label).sum(), mass[kept & (y == label)].sum()) for label in (0, 1)}
        assert total_mass(left, frame) == (mass * np.where(y > 0, 3.0, 1.0))[kept].sum()


@pytest.mark.parametrize("classes", [2, 3])
def test_who_is_right_is_counted_on_rows_that_did_not_choose(classes: int) -> None:
    rng = np.random.default_rng(3)
    X, mass = rng.normal(size=(2000, 2)), rng.random(2000)
    y = rng.integers(0, classes, 2000)
    frame = Frame(X.mean(axis=0), X.std(axis=0), True, np.arange(classes))
    models = [rng.normal(size=(2, 1 if classes == 2 else classes, 3)) for _ in range(2)]
    shares = {0: 0.1, 1: 0.4} if classes == 2 else {0: 0.2, 1: 0.2, 2: 0.5}
    found, squares = judged(frame, models, 4, shares, Block(X, y, mass))
    hashes, Z = row_hashes(X), np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.ones(2000)])
    expected = np.zeros((2, classes, 4))
    for fold in range(2):
        for row in np.flatnonzero(fold_of(hashes, 4) == fold):
            if spread_out(hashes[row : row + 1])[0] < shares[int(y[row])]:
                continue
            right = [
                int((model @ Z[row])[0] > 0 if classes == 2 else np.argmax(model @ Z[row])) == y[row]
                for model in models[fold]
            ]
            least = min(shares.values())
            each = mass[row] * (1 - least) / (1 - shares[int(y[row])])
            expected[:, y[row], 2 * (not right[0]) + (not right[1])] += each, each**2
    assert np.allclose([found, squares], expected, rtol=1e-12)


def test_the_guard_is_what_fits_without_each_fold_say() -> None:
    """Compare with scikit-learn's logistic regression, the in-memory close-k and NumPy sums."""
    X, y, mass = table(4, 105_000)
    model = DaskCloseKClassifierCV(alphas=[10.0, 100.0], ks=[0.3], max_gathered=0, tol=1e-4, max_iter=300)
    model.fit_source(partitions(X, y, mass))
    (outcome,) = model.guard_report_["comparisons"]
    hashes = row_hashes(X)
    group, numbers = fold_of(hashes, 5), spread_out(hashes)
    gains, weights, over = [], [], []
    for fold in range(2):
        kept, tested = group != fold, (group == fold) & (numbers >= 0.5)  # at most half of the rows are in the sample
        plain = LogisticRegression(C=1 / outcome["reference"]["alpha"], solver="newton-cholesky", tol=1e-10)
        plain.fit(X[kept], y[kept], mass[kept])
        close = CloseKClassifier(k=0.3, alpha=outcome["challenger"]["alpha"]).fit(X[kept], y[kept], mass[kept])
        right = [each.predict(X[tested]) == y[tested] for each in (close, plain)]
        gains.append(right[0].astype(float) - right[1])
        weights.append(mass[tested])
        over.append(np.stack([right[0], y[tested] == y.max()]))
    gain, weight = np.concatenate(gains), np.concatenate(weights)
    mean = float(weight @ gain / weight.sum())
    assert model.guard_report_["judged"] == pytest.approx(weight.sum())
    assert outcome["gain"] == pytest.approx(
        mean, abs=1e-3
    )  # fits that start from two samples agree up to their tolerance
    spread = np.sqrt(weight**2 @ (gain - mean) ** 2) / weight.sum()
    assert outcome["standard_error"] == pytest.approx(spread, rel=3e-2)
    assert outcome["taken"] == (mean > 2.5 * spread)
    close, first = np.concatenate(over, axis=1)
    recalls = [np.average(close[first == label], weights=weight[first == label]) for label in (False, True)]
    assert outcome["over_guessing"] == pytest.approx(np.mean(recalls) - 0.5, abs=1e-3)
    assert model.aggregate_ == "close_decay"
    same = CloseKClassifier(k=0.3, alpha=model.alpha_).fit(X, y, mass)
    assert model.coef_ == pytest.approx(same.coef_, rel=1e-2)
    assert model.score(X, y) == pytest.approx(same.score(X, y), abs=1e-3)


def test_clean_data_keep_logistic_regression_whatever_the_partitions() -> None:
    X, y, mass = table(5, 6000, noise=0.0)
    found = [
        DaskCloseKClassifierCV(alphas=[1.0, 10.0], ks=[0.2], max_gathered=0, calibration="sigmoid", max_iter=30)
        .fit_source(partitions(X, y, mass, seed, parts))
        for seed, parts in ((0, 3), (1, 6))
    ]  # fmt: skip
    first, second = found
    assert first.aggregate_ == second.aggregate_ == "average"
    assert first.guard_report_["comparisons"][0]["gain"] == second.guard_report_["comparisons"][0]["gain"]
    peer = LogisticRegression(C=1 / first.alpha_, solver="newton-cholesky", tol=1e-12).fit(X, y, mass)
    for model in found:
        assert model.coef_ == pytest.approx(peer.coef_, rel=1e-4)
        assert abs(model.predict_proba(X) - peer.predict_proba(X)).max() < 0.05  # calibrated on half of the rows


def test_what_only_one_place_can_do_is_refused() -> None:
    X, y, mass = table(6, 200)
    for given, words in (({"scoring": "f1"}, "scoring='f1'"), ({"cv": [([0], [1])]}, "cv="), ({"cv": 1}, "at least 2")):
        with pytest.raises(ValueError, match=words):
            DaskCloseKClassifierCV(max_gathered=0, **given).fit_source(partitions(X, y, mass))
    with pytest.raises(ValueError, match="multiclass='ovr'"):
        DaskCloseKClassifierCV(max_gathered=0).fit_source(partitions(X, np.arange(200) % 3, mass))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_several_classes_race_one_against_the_rest() -> None:
    X, y, mass = table(7, 4000)
    y = y + (X[:, 0] > 1)
    model = DaskCloseKClassifierCV(alphas=[1.0], ks=[0.3], max_gathered=0, multiclass="ovr", max_iter=30, tol=0.9)
    model.fit_source(partitions(X, y, mass))
    assert model.coef_.shape == (3, 2)
    assert model.score(X, y, mass) == pytest.approx(model.best_score_, abs=0.03)

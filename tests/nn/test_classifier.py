"""ResidualMLPClassifier and ResidualMLPClassifierCV as scikit-learn classifiers."""

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_moons
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from closecall.network import train_grid  # noqa: E402
from closecall.nn import ResidualMLPClassifier, ResidualMLPClassifierCV  # noqa: E402
from closecall.objective import Problem  # noqa: E402


def test_it_learns_moons_and_three_classes() -> None:
    X, y = make_moons(300, noise=0.15, random_state=0)
    labels = np.array(["no", "yes"])[y]
    model = make_pipeline(StandardScaler(), ResidualMLPClassifier(hidden=8, alpha=1e-3, random_state=0))
    assert model.fit(X[:200], labels[:200]).score(X[200:], labels[200:]) > 0.93
    X, y = make_blobs(300, centers=[[0, 3], [3, -2], [-3, -2]], random_state=0)
    model = ResidualMLPClassifier(loss="hinge", aggregate="atk", k=0.5, random_state=0).fit(X[:200], y[:200] + 5)
    assert model.decision_function(X).shape == (300, 3)
    assert model.score(X[200:], y[200:] + 5) > 0.93


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_seed_decides_everything(early_stopping: bool) -> None:
    X, y = make_moons(150, noise=0.2, random_state=0)
    settings: dict[str, Any] = {"max_iter": 40, "early_stopping": early_stopping, "patience": 5}
    one, two, three = (
        ResidualMLPClassifier(random_state=seed, **settings).fit(X, y).decision_function(X) for seed in (0, 0, 1)
    )
    assert np.array_equal(one, two)
    assert not np.allclose(one, three)


def test_early_stopping_stops() -> None:
    X, y = make_moons(300, noise=0.3, random_state=0)
    model = ResidualMLPClassifier(
        aggregate="average", k=None, hidden=8, max_iter=1000, early_stopping=True, patience=20, random_state=0
    ).fit(X, y)
    assert 20 < model.n_iter_ < 1000
    assert model.score(X, y) > 0.8


def test_the_grid_by_cross_validation() -> None:
    X, y = make_moons(120, noise=0.2, random_state=0)
    folds = StratifiedKFold(3, shuffle=True, random_state=0)
    told: list[Any] = []
    settings: dict[str, Any] = {"max_iter": 60, "random_state": 0}
    model = ResidualMLPClassifierCV(
        aggregates=("close_decay", "maximal"), alphas=[0.01, 1.0], cv=folds, callback=told.append, **settings
    ).fit(X, y)
    # 2 averages, close_decay with k = 10 and two alphas (80 examples a fold), maximal with two alphas.
    assert model.cv_results_["fold_scores"].shape == (3, 6)
    assert model.guard_report_["average"].aggregate == "average"
    assert model.score(X, y) > 0.8
    assert told
    alone = ResidualMLPClassifier(**model.best_params_, **settings).fit(X, y)
    np.testing.assert_array_equal(alone.decision_function(X), model.decision_function(X))


def test_the_guard_keeps_average_unless_the_gain_is_real() -> None:
    X, y = make_moons(120, noise=0.25, random_state=1)
    settings: dict[str, Any] = {"alphas": [0.1], "cv": 3, "max_iter": 60, "random_state": 0}
    guarded = ResidualMLPClassifierCV(guard=1e9, **settings).fit(X, y)
    assert guarded.best_params_ == {"aggregate": "average", "k": None, "alpha": 0.1, "m": None}
    free = ResidualMLPClassifierCV(guard=0, **settings).fit(X, y)
    chosen = max(free.cv_results_["mean_test_score"])
    row = [tuple(each) for each in free.cv_results_["params"]].index(tuple(free.best_params_.values()))
    assert free.cv_results_["mean_test_score"][row] == chosen


def test_every_aggregate_has_the_same_number_of_starts() -> None:
    X, y = make_moons(90, noise=0.3, random_state=2)
    settings: dict[str, Any] = {"alphas": [0.1, 1.0], "ks": [10, 30], "cv": 3, "guard": 0, "max_iter": 40}
    one, three = (ResidualMLPClassifierCV(n_starts=n, random_state=4, **settings).fit(X, y) for n in (1, 3))
    names = [each[0] for each in three.cv_results_["params"]]
    assert (names.count("average"), names.count("close_decay")) == (2 * 3, 4 * 3)
    # The first start of each setting is the only start of the other search; the others differ from it.
    by_start = three.cv_results_["fold_scores"].reshape(3, -1, 3)
    np.testing.assert_array_equal(by_start[:, :, 0], one.cv_results_["fold_scores"])
    assert three.cv_results_["start"].reshape(-1, 3).tolist() == [[0, 1, 2]] * 6
    assert not np.array_equal(by_start[:, :, 1], by_start[:, :, 0])
    # The final network starts from the same draw as the winner of the folds.
    best = int(np.argmax(three.cv_results_["mean_test_score"]))
    draws = np.random.RandomState(4).randint(2**31 - 1, size=3)
    winner = Problem("logistic", *three.cv_results_["params"][best])
    alone = train_grid(X, 2 * y - 1, [winner], max_iter=40, seed=int(draws[three.cv_results_["start"][best]]))
    np.testing.assert_array_equal(alone.scores(X)[0], three.decision_function(X))
    for wrong in (0, 1.5, None):
        with pytest.raises(ValueError, match="n_starts"):
            ResidualMLPClassifierCV(n_starts=wrong, **settings).fit(X, y)  # type: ignore[arg-type]


def test_m_is_searched() -> None:
    X, y = make_moons(120, noise=0.1, random_state=0)
    y[:12] = 1 - y[:12]  # wrong labels, which trimming leaves out
    settings: dict[str, Any] = {"alphas": [0.01], "ks": [60], "cv": 3, "guard": 0, "max_iter": 60, "random_state": 0}
    model = ResidualMLPClassifierCV(aggregates=("trimmed", "ranked_range"), ms=(0.02, 0.15), **settings).fit(X, y)
    tried = {tuple(each) for each in model.cv_results_["params"]}
    assert {each[3] for each in tried if each[0] != "average"} == {0.02, 0.15}
    assert model.m_ == (model.best_params_["m"] or 0) * 120
    scores = dict(zip(map(tuple, model.cv_results_["params"]), model.cv_results_["fold_scores"].T, strict=True))
    few, many = (scores["trimmed", None, 0.01, m] for m in (0.02, 0.15))
    assert not np.array_equal(few, many)  # if m were ignored, both would equal the average
    with pytest.raises(ValueError, match="leaves no examples"):
        ResidualMLPClassifierCV(aggregates=("ranked_range",), ms=(0.9,), **settings).fit(X, y)


def test_bad_input_is_explained() -> None:
    X, y = make_moons(40, random_state=0)
    for settings, message in (
        ({"loss": "square"}, "choose one of"),
        ({"aggregate": "median"}, "choose one of"),
        ({"k": 41}, "k=41 exceeds"),
        ({"alpha": -1.0}, "alpha=-1"),
        ({"device": "abacus"}, "device='abacus' is not available"),
    ):
        with pytest.raises(ValueError, match=message):
            ResidualMLPClassifier(**settings).fit(X, y)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="only one class"):
        ResidualMLPClassifier().fit(X, y, sample_weight=y)

"""A fit has a certificate or warns, and the advice of the warning works."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.datasets import load_breast_cancer, make_blobs, make_classification
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from closecall import AGGREGATES, AggregateLossClassifier, AggregateLossClassifierCV, CloseKClassifier
from closecall.linear import search


def plain(samples: int = 150) -> tuple[np.ndarray, np.ndarray]:
    return make_classification(samples, n_features=6, flip_y=0.2, random_state=2)


def fit(model: Any, X: np.ndarray, y: np.ndarray) -> tuple[Any, list[str]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y)
    return model, [str(item.message) for item in caught if issubclass(item.category, ConvergenceWarning)]


@pytest.mark.parametrize("classes", ["two", "ovr", "top_two", "softmax"])
@pytest.mark.parametrize("aggregate", sorted(AGGREGATES))
def test_a_fit_is_converged_or_warns(aggregate: str, classes: str) -> None:
    X, y = plain() if classes == "two" else make_blobs(90, centers=3, cluster_std=4.0, random_state=1)
    takes = AGGREGATES[aggregate].takes
    k, m = 0.4 if "k" in takes else None, 0.1 if "m" in takes else None
    form = "ovr" if classes == "two" else classes
    for steps in (6, 300):
        model, told = fit(AggregateLossClassifier(aggregate=aggregate, k=k, m=m, max_iter=steps, multiclass=form), X, y)
        assert model.converged_ == bool((model.gap_ <= model.tol).all())
        assert len(told) == (not model.converged_)
        if told:
            assert f"gap of {model.gap_.max():.1e}, above tol=0.0001" in told[0]
            assert f"max_iter (now {steps})" in told[0] or f"max_iter={steps}" in told[0]
    if AGGREGATES[aggregate].convex:
        assert model.converged_


@pytest.mark.parametrize("multiclass", ["ovr", "softmax"])
def test_masses_and_alpha_may_have_any_scale(multiclass: str) -> None:
    """If masses and alpha are multiplied by ten thousand, the problem is the same and must not be harder to solve."""
    X, y = make_blobs(60, centers=3, n_features=8, cluster_std=6.0, random_state=0)
    light = AggregateLossClassifier(aggregate="atk", k=0.3, multiclass=multiclass, max_iter=100).fit(X, y)
    heavy = AggregateLossClassifier(aggregate="atk", k=0.3, multiclass=multiclass, max_iter=100, alpha=1e4)
    heavy.fit(X, y, sample_weight=np.full(60, 1e4))
    assert light.converged_
    assert heavy.converged_
    assert np.allclose(heavy.coef_, light.coef_, rtol=0.05, atol=0.01)


def test_a_larger_tol_accepts() -> None:
    X, y = plain()
    model, told = fit(CloseKClassifier(max_iter=6), sparse.csr_matrix(X), y)
    assert "loosen tol" in told[0]
    assert "Increase max_iter (now 6)" in told[0]
    assert not fit(CloseKClassifier(max_iter=6, tol=float(model.gap_.max())), sparse.csr_matrix(X), y)[1]


def test_nothing_is_certified_without_a_penalty() -> None:
    X, y = plain()
    assert "choose alpha > 0" in fit(AggregateLossClassifier(alpha=0.0), X, y)[1][0]


@pytest.mark.parametrize("guard", [0, 1000])
def test_the_choice_of_a_search_holds_its_certificate_or_warns(guard: float, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = plain()
    settings: dict[str, Any] = {"alphas": (0.1,), "ks": (0.3,), "max_iter": 12, "guard": guard}
    monkeypatch.setattr(search, "EXTRA", 0)
    for aggregate in ("close", "top", "atk"):
        model, told = fit(AggregateLossClassifierCV(aggregate=aggregate, **settings), X, y)
        assert model.converged_ == bool((model.gap_ <= model.tol).all())
        assert len(told) == (not model.converged_)
        if guard:
            assert model.converged_


def test_where_zero_is_optimal_it_is_found_and_certified() -> None:
    """The sum of the largest losses is smallest where all losses are equal: objective k log 2, at w = 0."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(100, 4)), np.arange(100) % 2
    model, told = fit(AggregateLossClassifier(aggregate="atk", k=10), X, y)
    assert not told
    assert np.abs(model.coef_).max() < 1e-3


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"aggregate": "trimmed"}, "'trimmed' needs m.*'average'"),
        ({"aggregate": "ranked_range", "k": 0.5}, "'ranked_range' needs m.*'atk'"),
        ({"tol": None}, "tol=None must be a finite number"),
        ({"tol": float("inf")}, "tol=inf must be a finite number"),
        ({"random_state": "a"}, "'a' cannot be used to seed"),
    ],
)
def test_what_would_be_ignored_or_misread_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AggregateLossClassifier(**settings).fit(*plain())
    if "aggregate" not in settings:
        with pytest.raises(ValueError, match=message):
            AggregateLossClassifierCV(**settings).fit(*plain())


def test_the_end_of_algorithm_1_is_moved_to_a_certified_point() -> None:
    """Without this move, the 300 steps end with a gap of 6e-3 here, and the fit warns."""
    X, y = load_breast_cancer(return_X_y=True)
    model = CloseKClassifier(k=0.2, alpha=1.0, solver="algorithm1").fit(StandardScaler().fit_transform(X), y)
    assert model.converged_
    assert model.gap_.max() <= model.tol

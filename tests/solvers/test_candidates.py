"""Certified candidates: the same selection as a full pass, at the price of the close calls."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from closecall.objective import Problem
from closecall.solvers import candidates, solve
from closecall.solvers.candidates import REGIONS, Scout, make_scout
from closecall.solvers.design import make_design
from closecall.solvers.kernels import closeness, make_mass, pull_close

N = 4000


def data(dtype: type = np.float64) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 6)).astype(dtype)
    return X, np.where(X @ rng.normal(size=6) + rng.normal(size=N) > 0.2, 1.0, -1.0)


MASSES = {
    "ones": np.ones(N),
    "fold": (np.arange(N) % 5 > 0).astype(float),
    "fractional": np.random.default_rng(1).random(N) + 0.5,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind", MASSES)
@pytest.mark.parametrize("loss", REGIONS)
def test_every_gradient_is_the_full_pass(loss: str, kind: str, dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """Along a wandering path of steps of all sizes, by candidates or not, the gradient is that of all examples."""
    monkeypatch.setattr(candidates, "FROM_SAMPLES", 100)
    X, y = data()
    design = make_design(X, y, MASSES[kind][None], fit_intercept=True, penalize=False, dtype=dtype)
    mass, k = make_mass(MASSES[kind], dtype), 20.0
    scout = make_scout(design, loss, mass, k, {})
    assert scout is not None
    rng = np.random.default_rng(2)
    c = rng.normal(size=design.rank)
    calls = 0
    for size in np.repeat([0.1, 1e-3, 1e-4, 3e-2, 1e-5, 1e-3], 25):
        c = c + size * rng.normal(size=design.rank)
        expected = pull_close(design, loss, design.negative_margins(c[None]), np.array([k]), np.zeros(1), mass)[0]
        found = scout.gradient(c, k)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4 if dtype == np.float32 else 1e-9)
        calls += 1
    assert scout.full_passes < 0.7 * calls


@given(st.floats(1.0 + 1e-6, 1.999), st.floats(-6, 6))
def test_the_logistic_region_is_the_keys_inverse(edge: float, margin: float) -> None:
    low, high = REGIONS["logistic"](edge)
    key = float(closeness("logistic")[0](np.array([[-margin]]))[0][0, 0])
    if abs(key - edge) > 1e-9 * edge:
        assert (low <= margin <= high) == (key <= edge)


@given(st.floats(1e-6, 0.999), st.floats(-3, 3))
def test_the_hinge_region_is_the_keys_inverse(edge: float, margin: float) -> None:
    low, high = REGIONS["hinge"](edge)
    key = float(closeness("hinge")[0](np.array([[-margin]]))[0][0, 0])
    if abs(key - edge) > 1e-9:
        assert (low <= margin <= high) == (key <= edge)


@pytest.mark.parametrize("settings", [{}, {"sample_weight": MASSES["fractional"]}, {"folds": MASSES["fold"]}])
@pytest.mark.parametrize("loss", REGIONS)
def test_a_whole_run_is_the_same(loss: str, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without candidates, double precision: the same objective to six digits, and far fewer full passes."""
    X, y = data()
    problems = [Problem(loss, name, k=8, alpha=alpha) for name in ("close", "close_decay") for alpha in (0.1, 10.0)]
    full = solve(X, y, problems, max_iter=300, tol=0, **settings)
    scouts: list[Scout] = []
    monkeypatch.setattr(candidates, "FROM_SAMPLES", 100)
    begin = Scout.__init__
    monkeypatch.setattr(Scout, "__init__", lambda self, *given: scouts.append(self) or begin(self, *given))
    found = solve(X, y, problems, max_iter=300, tol=0, **settings)
    np.testing.assert_allclose(found.objective, full.objective, rtol=1e-6)
    np.testing.assert_allclose(found.errors, full.errors, atol=1e-9)
    assert len(scouts) == 4
    assert sum(scout.full_passes for scout in scouts) < 0.5 * (2 * 300 + 2 * 101)


def test_no_scout_where_none_pays() -> None:
    X, y = data()
    design = make_design(X, y, np.ones((1, N)), fit_intercept=True, penalize=False, dtype=np.float64)
    mass = make_mass(np.ones(N), np.float64)
    assert make_scout(design, "logistic", mass, 10.0, {}) is None  # few examples
    assert make_scout(design, "focal", mass, 10.0, {}) is None  # a loss without regions

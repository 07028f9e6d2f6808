"""`average` reaches the proven optimum for every alpha, and its objective never increases on the way."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import linprog
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from closecall.losses import get_loss
from closecall.objective import Problem
from closecall.solvers import solve
from closecall.solvers.convex import quasi_newton, second_order
from closecall.solvers.design import least_squares_start, make_design
from closecall.solvers.kernels import make_mass
from closecall.solvers.newton import Found, Limits
from reproduction.protocol import load_dataset
from tests.solvers import judge_of

ALPHAS = 10.0 ** np.arange(-5, 6)
WITHIN = 1.0001


def hinge_bound(X: np.ndarray, y: np.ndarray, coef: np.ndarray, alpha: float) -> float:
    """A lower bound of sum(hinge) + alpha / 2 * ||w||^2: the value of a dual feasible point.

    The dual is max sum(a) - ||sum a y x||^2 / (2 alpha) over 0 <= a <= 1 with sum(a y) = 0 for a free intercept. At the
    optimum sum(a y x) = alpha w, so HiGHS looks for the largest sum(a) with that equation at the given w; the result is
    then made feasible exactly and evaluated plainly, so that no tolerance of HiGHS enters the bound.
    """
    signed, target = y[:, None] * np.column_stack([X, np.ones(len(X))]), alpha * np.append(coef, 0.0)
    dual = linprog(-np.ones(len(y)), A_eq=signed.T, b_eq=target, bounds=(0, 1), method="highs").x
    if dual is None:
        return -np.inf
    a = np.clip(dual, 0, 1)
    sides = a[y > 0].sum(), a[y < 0].sum()  # reduce the heavier class until the equation of the intercept holds
    a = a * np.where(y > 0, min(sides) / sides[0], min(sides) / sides[1])
    pull = X.T @ (a * y)
    return float(a.sum() - pull @ pull / (2 * alpha))


def check_optimum(X: np.ndarray, y: np.ndarray) -> None:
    problems = [Problem(loss, alpha=float(alpha)) for loss in ("logistic", "hinge") for alpha in ALPHAS]
    found = solve(X, y, problems)
    assert found.converged.all()
    for row, item in enumerate(problems):
        logistic = item.loss == "logistic"
        bound = judge_of(X, y, item).best(False) if logistic else hinge_bound(X, y, found.coef[row], item.alpha)
        assert bound > 0
        assert found.objective[row] <= WITHIN * bound, item


def load(name: str, place: Path | None = None) -> tuple[np.ndarray, np.ndarray]:
    data = load_dataset(name, place, download=False)
    return StandardScaler().fit_transform(data.X), data.signs()


def test_average_is_optimal_on_monk3() -> None:
    check_optimum(*load("monk3"))


@pytest.mark.shared_data
@pytest.mark.parametrize("name", ["phoneme", "spambase"])
def test_average_is_optimal(name: str, shared_data: Path) -> None:
    check_optimum(*load(name, shared_data))


def crowd(seed: int, n: int = 120, d: int = 5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-2, 3, d)
    y = np.where(X @ rng.normal(size=d) + np.abs(X).mean() * rng.normal(size=n) > 0, 1.0, -1.0)
    return X, y, rng.random(n) + 0.1


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("way", [second_order, quasi_newton])
def test_the_convex_phase_never_goes_uphill(way: Callable[..., Found], dtype: type, loss: str) -> None:
    """More passes never end at a higher objective (up to rounding), and both methods reach the same optimum."""
    X, y, mass = crowd(0)
    design = make_design(X, y, mass[None], fit_intercept=True, penalize=False, dtype=dtype)
    alpha = np.array([1e-3, 1.0, 100.0])
    start = np.repeat(least_squares_start(design, range(len(design.masses))), 3, axis=0)

    def objective(passes: int, way: Callable[..., Found] = way) -> np.ndarray:
        limits = Limits(passes, 1e-4, 64)
        with np.errstate(over="ignore", under="ignore"):  # as solve does: an exponential may overflow to infinity
            C = way(design, loss, [make_mass(mass, dtype)] * 3, alpha, start, limits)[0]
        margins = -(C @ design.signed.T.astype(float))
        return get_loss(loss).value(margins) @ mass + alpha / 2 * (design.penalized * C**2).sum(axis=1)

    values = np.array([objective(passes) for passes in [*range(1, 25), 40, 100, 2000]])
    assert (np.diff(values, axis=0) <= 1e-5 * values[:-1]).all()
    other = objective(5000, quasi_newton if way is second_order else second_order)
    np.testing.assert_allclose(values[-1], other, rtol=1e-4)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("alphas", [ALPHAS[3:8], ALPHAS])
def test_folds_that_step_together_end_where_each_would_alone(seed: int, alphas: np.ndarray) -> None:
    """Weighted folds of one small set, with and without a pilot; scikit-learn only gets the rows of a fold."""
    X, y, mass = crowd(seed, n=90 + 10 * seed)
    folds = np.random.default_rng(seed).integers(0, 4, len(y)) != np.arange(4)[:, None]
    problems = [Problem(alpha=float(alpha)) for alpha in alphas for _ in folds]
    fold_of = np.tile(np.arange(4), len(alphas))
    found = solve(X, y, problems, sample_weight=mass, folds=folds, fold_of=fold_of, tol=1e-4)
    for row, (problem, inside) in enumerate(zip(problems, folds[fold_of], strict=True)):
        best = judge_of(X[inside], y[inside], problem, mass[inside]).best(False)
        assert found.objective[row] <= 1.0001 * best
    assert found.converged.all()


@pytest.mark.parametrize("kind", ["none", "free", "penalized"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "modified_huber"])
def test_a_tight_tolerance_is_reached(loss: str, kind: str) -> None:
    X, y, mass = crowd(1)
    X, how = (
        StandardScaler().fit_transform(X),
        {"fit_intercept": kind != "none", "penalize_intercept": kind == "penalized"},
    )
    for alpha in (0.01, 0.3, 100.0):
        item = Problem(loss, alpha=alpha)
        found = solve(X, y, [item], sample_weight=mass, tol=1e-7, max_iter=5000, **how).objective[0]
        assert found == pytest.approx(judge_of(X, y, item, mass, kind).best(everyone=True), rel=1e-9)


@pytest.mark.parametrize(("alpha", "steps"), [(1.0, 150), (100.0, 60)])
def test_columns_that_go_together_do_not_slow_the_average(alpha: float, steps: int) -> None:
    """Word counts are positive: a diagonal that bounds their Gram matrix is much too large for most directions."""
    rng = np.random.default_rng(3)
    words = np.minimum(rng.pareto(0.7, size=(1500, 100)) * 20, 2999).astype(int)
    X = sparse.csr_matrix((np.full(words.size, 0.1), (np.repeat(np.arange(1500), 100), words.ravel())), (1500, 3000))
    X.sum_duplicates()
    y = np.where(X @ rng.normal(size=3000) + 0.2 * rng.normal(size=1500) > 0, 1.0, -1.0)
    found = solve(X, y, [Problem(alpha=alpha)], max_iter=1000, tol=1e-4)
    peer = LogisticRegression(C=1 / alpha, tol=1e-8, max_iter=2000).fit(X, y)
    best = np.logaddexp(0, -y * peer.decision_function(X)).sum() + alpha / 2 * (peer.coef_**2).sum()
    assert found.objective[0] <= WITHIN * best
    assert found.converged.all()
    assert found.n_iter[0] <= steps

"""The slow and simple reference solver, which solves one problem at a time and defines the correct results.

The code follows the definitions and computes in float64. The aggregate's weights are computed by sorting
(:mod:`closecall.aggregates`), and k follows Algorithm 1 (:mod:`closecall.schedules`). The convex average is minimised
by SciPy's L-BFGS-B, and every other problem by the majorising steps of :mod:`closecall.solvers.steps`. Nothing is
shared, batched, rotated or approximated.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from .._names import Array
from ..losses import Loss
from ..objective import Problem, aggregate_value, check_data, values_and_gradients
from ..schedules import first_final_step, last_convex_step
from .steps import WINDOW, close_window, is_steep, share_of_gram, step_curvature, within_reach


@dataclass(frozen=True)
class Solution:
    """The solution of one problem; ``objective`` uses the final k, and ``errors`` is the misclassified mass."""

    coef: Array
    intercept: float
    objective: float
    errors: float
    n_iter: int
    converged: bool


def solve_one(
    X: Any,
    y: Any,
    problem: Problem,
    *,
    max_iter: int = 1000,
    tol: float = 1e-3,
    init: str = "least_squares",
    fit_intercept: bool = True,
    penalize_intercept: bool = False,
    sample_weight: Any = None,
) -> Solution:
    """Solve one problem; the other arguments are the same as for :func:`closecall.solvers.solve`.

    Examples
    --------
    >>> X = np.array([[-2.0], [-1.0], [-0.5], [0.5], [1.0], [2.0]])
    >>> y = np.array([-1, -1, 1, 1, 1, 1])
    >>> solve_one(X, y, Problem("logistic", "close", k=2, alpha=0.1)).errors
    0.0
    """
    X, y, mass = check_data(X, y, sample_weight)
    X = np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=np.float64)
    # The intercept is the coefficient of a column of ones; the penalty of a free intercept is 0.
    Z = np.column_stack([X, np.ones(len(X))]) if fit_intercept else X
    penalty = np.full(Z.shape[1], problem.alpha)
    if fit_intercept and not penalize_intercept:
        penalty[-1] = 0.0
    w = np.zeros(Z.shape[1])
    if init == "least_squares":
        root = np.sqrt(mass)
        w = np.linalg.lstsq(root[:, None] * Z, root * y, rcond=None)[0]
    loss, aggregate, k_at, m = problem.resolve(float(mass.sum()), max_iter)
    whole = aggregate.is_average(k_at(max_iter), m, float(mass.sum()))
    first = 1
    if loss.convex and whole:
        w, used, converged = _convex(Z, y, mass, loss, penalty, w), max_iter, True
    else:
        if loss.convex and aggregate.decays and last_convex_step(max_iter):
            w, first = _convex(Z, y, mass, loss, penalty, w), last_convex_step(max_iter) + 1
        w, used, converged = _descend(Z, y, mass, problem, penalty, w, first, max_iter, tol)
    coef, intercept = (w[:-1], float(w[-1])) if fit_intercept else (w, 0.0)
    margins = y * (Z @ w)
    objective = aggregate_value(problem, margins, mass=mass) + 0.5 * float(penalty @ w**2)
    return Solution(coef, intercept, objective, float(mass[margins <= 0].sum()), used, converged)


def _convex(Z: Array, y: Array, mass: Array, loss: Loss, penalty: Array, w: Array) -> Array:
    """Return the minimum of the average-loss problem; kinks are rounded over smaller and smaller widths."""
    widths = [1.0, 0.1, 0.01, 1e-3, 1e-4] if not np.isfinite(loss.curvature) else [0.0]
    for width in widths:

        def value_and_gradient(w: Array, width: float = width) -> tuple[float, Array]:
            margins = y * (Z @ w)
            if width:  # Huber's rounding of the hinge's kink
                part = np.clip(1 - margins, 0, width)
                values, slopes = part * (1 - margins - part / 2) / width, -part / width
            else:
                values, slopes = loss.value(margins), loss.slope(margins)
            return float(mass @ values) + 0.5 * float(penalty @ w**2), Z.T @ (mass * slopes * y) + penalty * w

        options = {"maxiter": 5000, "maxfun": 20000, "ftol": 1e-14}
        w = minimize(value_and_gradient, w, jac=True, method="L-BFGS-B", options=options).x
    return w


def _descend(
    Z: Array, y: Array, mass: Array, problem: Problem, penalty: Array, w: Array, first: int, steps: int, tol: float
) -> tuple[Array, int, bool]:
    total = float(mass.sum())
    loss, aggregate, k_at, m = problem.resolve(total, steps)
    gram = (Z.T * mass) @ Z
    rank = int(np.linalg.matrix_rank(np.sqrt(mass)[:, None] * Z))
    eta, window, path, mark = 1.0, 0, 0.0, w.copy()

    def length(move: Array) -> float:
        return float(np.sqrt(max(move @ gram @ move, 0.0)))

    for step in range(first, steps + 1):
        k = k_at(step)
        kappa = float(share_of_gram(np.asarray(aggregate.carried(k, m)), rank, total))
        majoriser = step_curvature(loss.name) * kappa * gram + np.diag(penalty)
        gradient = (
            values_and_gradients([problem], w[None], np.zeros(1), Z, y, mass=mass, k=[k])[1][0]
            - problem.alpha * w
            + penalty * w
        )
        # The minimum norm, in case alpha is 0 and all examples are zero in some direction.
        move = -eta * np.linalg.lstsq(majoriser, gradient, rcond=1e-13)[0]
        if is_steep(loss.name):
            move = move * within_reach(length(move), length(w), total)
        w = w + move
        path, window = path + length(move), window + 1
        if aggregate.decays and step < first_final_step(steps):
            path, window, mark = 0.0, 0, w.copy()
        if window == WINDOW:
            back_and_forth, settled = close_window(length(w - mark), path, length(w), total, tol)
            if back_and_forth:
                eta *= 0.5
            if settled:
                return w, step, True
            path, window, mark = 0.0, 0, w.copy()
    return w, steps, False

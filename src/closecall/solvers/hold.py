"""Held weights: an aggregate's weights are held, their average is minimised, and they are weighed anew.

Where that comes to rest a point is optimal for the weights that it has itself, which is the certificate. For `trimmed`
no round goes uphill (its value is the least over all weights). It serves aggregates that select in their own way too.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..objective import Problem
from .certificate import NOTHING, counts
from .path import Tasks, follow
from .rows import DenseRows, lower_bound

#: Rounds at most: of 200 problems of `trimmed` none needed more, and others that have not come to rest do not.
ROUNDS = 30


def averages(rows: DenseRows, loss: str, masses: Array, alpha: float, start: Array | None = None) -> Array:
    """Coordinates (kinds, size) of the averages under masses (kinds, samples); of the logistic loss if not convex."""
    kinds, name = np.arange(len(masses)), loss if get_loss(loss).convex else "logistic"
    starts = np.zeros((len(masses), len(rows.across))) if start is None else np.tile(start, (len(masses), 1))
    tasks = Tasks(name, masses, kinds, kinds, np.full(len(masses), alpha), np.full((len(masses), 1), np.inf), starts)
    return follow(rows, tasks).coordinates[:, 0]


def hold(rows: DenseRows, problem: Problem, mass: Array, c: Array, tol: float) -> tuple[Array, float, int]:
    """Where held weights come to rest, or the best of some rounds; its gap, and how many there were."""
    best = c, np.inf
    number = 0
    for number in range(1, ROUNDS + 1):  # noqa: B007
        weights, gap = weigh(rows, problem, mass, c)
        if gap < best[1]:
            best = c, gap
        if gap <= tol or problem.alpha == 0 or not get_loss(problem.loss).convex:
            break
        following = averages(rows, problem.loss, weights[None], problem.alpha, c)[0]
        if np.allclose(following, c, rtol=1e-9, atol=1e-12):
            break
        c = following
    return *best, number


def weigh(rows: DenseRows, problem: Problem, mass: Array, c: Array) -> tuple[Array, float]:
    """The aggregate's own weights at coordinates, and the gap of the objective with these held."""
    loss, aggregate, penalty = get_loss(problem.loss), get_aggregate(problem.aggregate), problem.alpha * rows.penalized
    margins = -(c[:, None] * rows.across).sum(axis=0)[: len(mass)]
    losses = loss.value(margins)
    k, m = (np.asarray(count) for count in counts(problem, float(mass.sum())))
    weights = aggregate.weigh(losses[None], mass, loss.threshold, k, m)[0]
    pulls = -loss.slope(margins)
    bound = lower_bound(weights * (losses + pulls * margins), weights * pulls, rows.across[:, : len(mass)], penalty)
    value = float(weights @ losses + 0.5 * (penalty * c**2).sum())
    above = float(aggregate.above(weights[None], mass)[0])  # the same in the objective and in the bound
    gap = (value - bound) / max(value + above, NOTHING * loss.threshold * float(weights.sum()))
    return weights, float(np.clip(gap, 0.0, 1.0)) if np.isfinite(gap) else 1.0


def descend_smooth(rows: DenseRows, problem: Problem, mass: Array, start: Array) -> Array:
    """Where L-BFGS ends from a start, never higher, for an objective with a gradient everywhere."""
    loss, aggregate, penalty = get_loss(problem.loss), get_aggregate(problem.aggregate), problem.alpha * rows.penalized
    k, m = (np.asarray(count) for count in counts(problem, float(mass.sum())))
    across = rows.across[:, : len(mass)]

    def objective(c: Array) -> tuple[float, Array]:
        margins = -(c @ across)
        losses = loss.value(margins)
        weights = aggregate.weigh(losses[None], mass, loss.threshold, k, m)[0]
        value = float(weights @ losses) + float(aggregate.above(weights[None], mass)[0])
        return value + 0.5 * float(penalty @ c**2), -(across @ (weights * loss.slope(margins))) + penalty * c

    limits = {"maxiter": 1000, "maxfun": 1000, "ftol": 1e-14, "gtol": 1e-9 * float(mass.sum())}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=limits)
    return found.x if np.isfinite(found.fun) and found.fun <= objective(start)[0] else start

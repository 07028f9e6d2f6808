"""Minimise aggregates that do not select by a cut, with weights that are fixed and updated in turn.

The weighted average is minimised, and then the weights are updated. A fixed point is optimal for its own weights, which
certifies it. An objective that is differentiable everywhere, such as a tilted loss or a smoothed superquantile, is
first minimised directly.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import minimize

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..objective import Problem
from .certificate import NOTHING, counts
from .narrow import gap_of
from .stages import Walk

SHARP = 1e-12  # the width over which kinks are rounded when weights are judged


def hold(rows: Any, problem: Problem, penalty: Array, c: Array, tol: float) -> tuple[Array, float]:
    """Return the best coordinates of at most 30 rounds that start from c, and their gap."""
    mass, walk = rows.mass, Walk(rows, penalty)
    if get_aggregate(problem.aggregate).excess is not None and not get_loss(problem.loss).kinks:
        c = descend_smooth(rows, problem, penalty, c)
    best = c, np.inf
    for _ in range(30):
        weights, gap = weigh(rows, problem, penalty, c)
        best = (c, gap) if gap < best[1] else best
        if gap <= tol or problem.alpha == 0 or not get_loss(problem.loss).convex:
            break
        rows.mass = weights
        following = walk.settle(c, np.inf).c
        rows.mass = mass
        if np.allclose(following, c, rtol=1e-9, atol=1e-12):
            break
        c = following
    return best


def weigh(rows: Any, problem: Problem, penalty: Array, c: Array) -> tuple[Array, float]:
    """Return the aggregate's own weights (samples,) at given coordinates, and the gap for these fixed weights."""
    aggregate, losses = get_aggregate(problem.aggregate), rows.plain_losses(c)
    k, m = (np.asarray(count) for count in counts(problem, float(rows.mass.sum())))
    weights = aggregate.weigh(losses[None], rows.mass, rows.threshold, k, m)[0]
    above = float(aggregate.above(weights[None], rows.mass)[0])  # the same in the objective and in the bound
    value = float(weights @ losses + 0.5 * (penalty * c**2).sum())
    bound = rows.tangents(rows.see(c, SHARP), weights, penalty)
    scale = max(value + above, NOTHING * rows.threshold * float(weights.sum()))
    return weights, gap_of(value, bound, scale)


def descend_smooth(rows: Any, problem: Problem, penalty: Array, start: Array) -> Array:
    """Return the result of L-BFGS from a start, or the start itself if that is better."""
    aggregate = get_aggregate(problem.aggregate)
    k, m = (np.asarray(count) for count in counts(problem, float(rows.mass.sum())))

    def objective(c: Array) -> tuple[float, Array]:
        view, losses = rows.see(c, SHARP), rows.plain_losses(c)
        weights = aggregate.weigh(losses[None], rows.mass, rows.threshold, k, m)[0]
        value = float(weights @ losses) + float(aggregate.above(weights[None], rows.mass)[0])
        return value + 0.5 * float(penalty @ c**2), rows.pull(view, weights) + penalty * c

    limits = {"maxiter": 1000, "maxfun": 1000, "ftol": 1e-14, "gtol": 1e-9 * float(rows.mass.sum())}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=limits)
    return found.x if np.isfinite(found.fun) and found.fun <= objective(start)[0] else start

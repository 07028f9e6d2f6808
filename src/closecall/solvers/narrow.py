"""Certificates for the ends of paths and of other runs; see :mod:`closecall.solvers.certificate`.

If an aggregate selects examples with a cut, the weights of the certificate come from a ramp around the cut, which is so
narrow that its selection becomes exact if losses change by at most ``tol`` times the objective per unit of selected
mass. If the problem is convex, the weights are a point of its dual, which gives a lower bound on the minimum.

For other aggregates, minimising the weighted average alternates with updating the weights. A fixed point is certified
because it is optimal for its own weights. An objective that is differentiable everywhere, such as a tilted loss or a
smoothed superquantile, is first minimised directly.
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
from .cuts import ALL, CLOSE, LossCut, edge_at, left_out
from .stages import KINK, NEAR, RAMP, Spot, Walk

NARROWING = 0.2  # the approximate factor between the widths of successive ramps
SHARP = 1e-12  # the width over which kinks are rounded when weights are judged


def narrow(walk: Walk, spot: Spot, cut: LossCut, tol: float) -> tuple[Spot, float]:
    """Narrow the ramps of a :class:`Spot` until their shares certify it, if possible; return the result and its gap."""
    ramp, gap = RAMP, np.inf
    if not (np.isfinite(spot.cut) or cut.kind == ALL):
        return spot, np.inf
    unit = spot.cut if cut.kind == CLOSE else walk.rows.threshold
    if unit == 0:  # all selected examples lie on the boundary itself, and no ramp is narrower
        return spot, np.inf
    # A ramp with a width of at most twice the tolerance gives a certificate. The cut may still grow, so the last ramp
    # is narrower.
    mean = judge_spot(walk, spot, cut, RAMP)[0]
    last = 0.3 * 2 * max(tol, 1e-12) * mean / unit
    # If the problem is convex, the k-th largest loss at its minimum is at most the objective here, divided by k.
    walk.highest = mean if cut.convex else np.inf
    for _ in range(3):  # the objective may fall until the last ramp is too wide
        if last < 1e-12:
            break
        levels = max(1, int(np.ceil(np.log(last / ramp) / np.log(NARROWING))))
        ramps = ramp * (min(last, ramp) / ramp) ** (np.arange(1, levels + 1) / levels)
        near = 0.1 * tol if cut.convex else 1e-7  # a convex bound holds whatever the mass is
        spot, reached = walk.sharpen(spot, cut, ramps, np.append(np.full(levels - 1, NEAR), near))
        if not reached or (not cut.convex and not np.isclose(reached, ramps[-1])):
            return spot, np.inf
        mean, gap = judge_spot(walk, spot, cut, reached)
        unit = spot.cut if cut.kind == CLOSE else unit
        if gap <= tol and (cut.convex or reached * unit <= 2 * tol * mean):
            return spot, gap
        if not np.isclose(reached, ramps[-1]):
            break
        ramp, last = reached, min(NARROWING * reached, 0.3 * 2 * tol * mean / unit)
    return spot, gap if cut.convex else np.inf


def gap_of(value: float, bound: float, scale: float) -> float:
    """Return the difference between a value and its lower bound relative to a scale, or 1 if it is undefined."""
    gap = (value - bound) / scale if scale > 0 else np.nan
    return float(np.clip(gap, 0.0, 1.0)) if np.isfinite(gap) else 1.0


def judge_spot(walk: Walk, spot: Spot, cut: LossCut, ramp: float) -> tuple[float, float]:
    """Return the objective per unit of the mass inside, with the fixed weights of a ramp, and the gap.

    If the problem is convex, its own objective is used. Weights that sum to at most k are then a point of its dual.
    """
    walk.kind, walk.ramp = cut.kind, ramp
    threshold, penalty = walk.rows.threshold, 0.5 * float((walk.penalty * spot.c**2).sum())
    window = walk.window(spot.cut)
    width = min(KINK, window.width if cut.kind != ALL else ramp * threshold)
    most = cut.k if cut.convex else np.inf
    losses, held, bound = walk.rows.bound(spot.c, window, width, most, walk.penalty)
    if held <= 0:
        return threshold, 1.0
    value = (walk.rows.largest(spot.c, cut.k) if cut.convex else losses) + penalty
    return value / held, gap_of(value, bound, max(value, NOTHING * threshold * held))


def spot_at(walk: Walk, c: Array, cut: LossCut, mass: Array) -> Spot:
    """Set the walk's masses to ``mass`` without the largest losses at coordinates c, and return a new :class:`Spot`."""
    losses = walk.rows.plain_losses(c)
    walk.rows.mass = left_out(losses, mass, cut.m)
    return Spot(c, edge_at(cut, losses, walk.rows.mass, walk.rows.threshold))


def finish(walk: Walk, c: Array, cut: LossCut, tol: float) -> tuple[Array, float]:
    """Alternate between leaving out the largest losses and narrowing ramps until the same losses are left out again.

    Return the coordinates and their gap, which is infinite if there is no certificate.
    """
    mass, steps, gap = walk.rows.mass, walk.steps, np.inf
    spot = spot_at(walk, c, cut, mass)
    for _ in range(30):  # leaving out and solving in turn never goes uphill, and few rounds are needed
        rest, walk.steps = walk.rows.mass, steps
        spot, gap = narrow(walk, spot, cut, tol)
        if not cut.m:
            break
        spot = spot_at(walk, spot.c, cut, mass)
        if np.allclose(walk.rows.mass, rest, atol=1e-9):
            break
    else:
        gap = np.inf
    walk.rows.mass = mass
    return spot.c, gap


def hold(rows: Any, problem: Problem, penalty: Array, c: Array, tol: float) -> tuple[Array, float]:
    """Starting from c, return the best coordinates found in at most 30 rounds, and their gap."""
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


def weighed(rows: Any, problem: Problem, c: Array) -> tuple[Array, float, float]:
    """Return the aggregate's own weights (samples,) at c, the sum of weighted losses, and the excess over it."""
    aggregate, losses = get_aggregate(problem.aggregate), rows.plain_losses(c)
    k, m = (np.asarray(count) for count in counts(problem, float(rows.mass.sum())))
    weights = aggregate.weigh(losses[None], rows.mass, rows.threshold, k, m)[0]
    return weights, float(weights @ losses), float(aggregate.above(weights[None], rows.mass)[0])


def weigh(rows: Any, problem: Problem, penalty: Array, c: Array) -> tuple[Array, float]:
    """Return the aggregate's own weights (samples,) at given coordinates, and the gap for these fixed weights."""
    weights, value, above = weighed(rows, problem, c)  # the excess is the same in the objective and in the bound
    value += 0.5 * float((penalty * c**2).sum())
    bound = rows.tangents(rows.see(c, SHARP), weights, penalty)
    return weights, gap_of(value, bound, max(value + above, NOTHING * rows.threshold * float(weights.sum())))


def descend_smooth(rows: Any, problem: Problem, penalty: Array, start: Array) -> Array:
    """Return the result of L-BFGS from a start, or the start itself if that is better."""

    def objective(c: Array) -> tuple[float, Array]:
        weights, value, above = weighed(rows, problem, c)
        gradient = rows.pull(rows.see(c, SHARP), weights) + penalty * c
        return value + above + 0.5 * float(penalty @ c**2), gradient

    limits = {"maxiter": 1000, "maxfun": 1000, "ftol": 1e-14, "gtol": 1e-9 * float(rows.mass.sum())}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=limits)
    return found.x if np.isfinite(found.fun) and found.fun <= objective(start)[0] else start

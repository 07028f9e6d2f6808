"""Certificates: bounds on how far an objective is above its minimum.

A convex loss lies above each of its tangents, ``l(m) >= l(q) + l'(q) * (m - q)``. With weights s >= 0, the objective is
therefore at least ``sum s * (l(q) - l'(q) * q) - ||v||^2 / (2 alpha)`` with ``v = sum s * l'(q) * y * x``, whatever the
parameters, provided that ``sum s * l'(q) * y`` is zero if the intercept is free. This is the value of the Fenchel dual
at one point. Losses are not negative, so the weights of the heavier class may be reduced until this sum is zero. The
points of tangency q can be chosen freely: the margins of the solution or, if these give too weak a bound, the margins
at the best intercept. At a kink, any slope between the slopes on its two sides may be used.

The **gap** is the objective minus this bound, relative to the objective. For a convex aggregate, whose weights are a
subgradient, it bounds how far the objective is above its minimum. For other aggregates, it bounds how far the objective
could decrease with the weights held fixed. If the value of an aggregate exceeds its weighted losses, the excess is
added to both the objective and the bound. If the loss is not convex, the gap is only an estimate. All sums are computed
in float64 on the original X, so the bound is valid up to rounding errors.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import Loss, get_loss
from ..objective import Problem
from .design import row_blocks
from .kernels import Mass, make_mass, weigh

#: Objectives below this share of the objective at w = 0 are rounding errors, so their gaps are relative to this share.
NOTHING = 1e-9

Tangents = tuple[Array, Array]  # points of tangency and slopes, (problems, samples)


@dataclass(frozen=True)
class Judged:
    """The data with labels -1 and +1, and the kind of intercept: "none", "free" or "penalized"."""

    X: Any
    y: Array
    intercept: str

    def scores(self, coef: Array, intercept: Array) -> Array:
        """Return scores (problems, samples) in float64 without making a float64 copy of X."""
        X = self.X
        if not isinstance(X, np.ndarray) or X.dtype == np.float64:
            return np.asarray(X @ coef.T).T + intercept[:, None]
        scores = np.empty((len(coef), len(X)))
        for rows in row_blocks(X.shape, 1 << 20):
            scores[:, rows] = coef @ X[rows].astype(np.float64).T
        return scores + intercept[:, None]

    def sums(self, pull: Array) -> Array:
        """Return ``pull @ X`` (problems, features) in float64."""
        X = self.X
        if not isinstance(X, np.ndarray) or X.dtype == np.float64:
            return np.asarray((X.T @ pull.T).T)
        none = np.zeros((len(pull), X.shape[1]))
        return sum((pull[:, rows] @ X[rows].astype(np.float64) for rows in row_blocks(X.shape, 1 << 20)), none)


def judge(
    setting: Judged, masses: Array, problems: list[Problem], fold_of: Array, coef: Array, intercept: Array, *,
    tol: float, bounds: Array | None = None, proven: Array | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Return the objective, the misclassified mass and the gap of each problem (problems,).

    The masses have shape (folds, samples), coef has shape (problems, features), and all other arrays have shape
    (problems,). Gaps above ``tol`` are refined. ``bounds`` contains known lower bounds on the minima, and ``proven``
    contains known gaps, or infinity where none is known.
    """
    found = np.empty((3, len(problems)))
    bounds = np.zeros(len(problems)) if bounds is None else bounds
    proven = np.full(len(problems), np.inf) if proven is None else proven
    kinds = [make_mass(mass, np.float64) for mass in masses]
    groups: dict[Any, list[int]] = {}  # problems that differ only in alpha are handled together
    for row, problem in enumerate(problems):
        groups.setdefault((fold_of[row], problem.loss, problem.aggregate, problem.k, problem.m), []).append(row)
    alphas = np.array([problem.alpha for problem in problems])
    size = max(1, (1 << 21) // len(setting.y))  # 16 MB of margins at a time
    for (fold, *_), members in groups.items():
        for begin in range(0, len(members), size):
            rows = np.array(members[begin : begin + size])
            own = (each[rows] for each in (coef, intercept, alphas, bounds, proven))
            found[:, rows] = _judge_alike(setting, kinds[fold], problems[rows[0]], tol, *own)
    return found[0], found[1], found[2]


def _judge_alike(
    setting: Judged, mass: Mass, problem: Problem, tol: float, coef: Array, intercept: Array, alpha: Array,
    lower: Array, proven: Array,
) -> tuple[Array, Array, Array]:  # fmt: skip
    loss = get_loss(problem.loss)
    margins = setting.scores(coef, intercept) * setting.y
    losses = loss.value(margins)
    weights = weights_at(problem, losses, loss.threshold, mass)
    objective = np.where(weights > 0, weights * losses, 0).sum(axis=1)
    inner = (coef**2).sum(axis=1) + (intercept**2 if setting.intercept == "penalized" else 0)
    above = get_aggregate(problem.aggregate).above(weights, mass.values)
    objective = objective + 0.5 * alpha * inner
    scale = np.maximum(objective + above, NOTHING * loss.threshold * weights.sum(axis=1))
    lower = np.maximum(lower, 0.0)
    for tangents in (_at_margins, _at_best_intercept, _at_kinks):
        left = np.flatnonzero((objective - lower > tol * scale) & (proven > tol))
        if left.size:
            seen, some = setting, weights[left].any(axis=0)
            used: Any = slice(None)
            if some.mean() <= 0.5:  # otherwise a copy of the examples with weight costs more than it saves
                used = np.flatnonzero(some)
                seen = replace(setting, X=setting.X[used], y=setting.y[used])
            heavy = weights[left][:, used]
            found = tangents(seen, loss, heavy, margins[left][:, used], tol)
            if found is not None:
                lower[left] = np.fmax(lower[left], lower_bounds(seen, loss, heavy, *found, alpha[left]))
    gap = np.fmin(np.clip((objective - lower) / scale, 0.0, 1.0), proven)
    return objective + above, (margins <= 0) @ mass.values, gap


def weights_at(problem: Problem, losses: Array, threshold: float, mass: Mass) -> Array:
    """Return the aggregate's weights for losses (rows, samples), given their threshold."""
    k, m = (np.full(len(losses), count) for count in counts(problem, mass.total))
    return weigh(problem.aggregate, losses, threshold, k, m, mass).astype(np.float64, copy=False)


def counts(problem: Problem, total: float) -> tuple[float, float]:
    """Return the k and m of a problem as masses."""
    k, m = get_aggregate(problem.aggregate).counts(problem.k, problem.m, total)
    k, m = (float(np.rint(c)) if abs(c - np.rint(c)) < 1e-9 * c else c for c in (k, m))  # 0.07 * 100 is 7
    return k, m


def lower_bounds(setting: Judged, loss: Loss, weights: Array, points: Array, slopes: Array, alpha: Array) -> Array:
    """Return lower bounds (problems,), at least 0, from tangents with ``slopes`` at ``points`` (problems, samples).

    A bound is ``sum heights - ||sum pull * y * x||^2 / (2 alpha)``. The heights and pulls are the values of the
    tangents at margin 0 and their negated slopes, multiplied by the weights and balanced for a free intercept.
    """
    heights, used = loss.value(points) - slopes * points, weights > 0
    if not used.all():  # losses without weight may be infinite
        slopes, heights = np.where(used, slopes, 0.0), np.where(used, heights, 0.0)
    signed, heights = -weights * slopes * setting.y, heights * weights
    if setting.intercept == "free":
        scale = balance(signed)
        signed, heights = signed * scale, heights * scale
    square = (setting.sums(signed) ** 2).sum(axis=1)
    if setting.intercept == "penalized":
        square = square + signed.sum(axis=1) ** 2
    bound = heights.sum(axis=1) - np.where(square > 0, square / (2 * alpha), 0.0)
    return np.where(bound > 0, bound, 0.0)  # losses are not negative; the bound may also be NaN


def balance(signed: Array) -> Array:
    """Return factors in [0, 1] that reduce the positive or the negative numbers in each row so that they sum to zero.

    If the sum were not zero, a free intercept could lower the bound without limit.
    """
    ahead = np.maximum(signed, 0).sum(axis=1)
    behind = ahead - signed.sum(axis=1)
    least = np.minimum(ahead, behind)
    up, down = (np.where(side > 0, least / np.where(side > 0, side, 1), 1.0)[:, None] for side in (ahead, behind))
    return np.where(signed > 0, up, down)


def _at_margins(setting: Judged, loss: Loss, weights: Array, margins: Array, tol: float) -> Tangents:
    return margins, loss.slope(margins)


def _at_best_intercept(setting: Judged, loss: Loss, weights: Array, margins: Array, tol: float) -> Tangents | None:
    """Return the margins at the best intercept, found by secant steps on the derivative."""
    if setting.intercept != "free" or not np.isfinite(loss.curvature):
        return None

    def derivative(shift: Array) -> Array:
        points = margins + shift[:, None] * setting.y
        return (np.where(weights > 0, weights * loss.slope(points), 0) * setting.y).sum(axis=1)

    before = np.zeros(len(margins))
    low = derivative(before)
    after = -low / (loss.curvature * np.maximum(weights.sum(axis=1), 1e-300))
    for _ in range(8):
        high = derivative(after)
        bend = high - low
        step = np.where(bend != 0, -high * (after - before) / np.where(bend != 0, bend, 1), 0.0)
        better = np.abs(high) <= np.abs(low)
        before, low = np.where(better, after, before), np.where(better, high, low)
        after = after + step
    points = margins + before[:, None] * setting.y
    return points, loss.slope(points)


def _at_kinks(setting: Judged, loss: Loss, weights: Array, margins: Array, tol: float) -> Tangents | None:
    """Move points less than one width below a kink to the kink itself, with slopes between those on its two sides."""
    if not loss.kinks:
        return None
    slopes, points = loss.slope(margins), margins.copy()
    width = np.clip(tol, 1e-5, 1.0)
    for kink in loss.kinks:
        share = np.clip((kink - margins) / width, 0, 1)
        sides = loss.slope(np.array([kink - 1e-9, kink + 1e-9]))
        inside = (share > 0) & (share < 1)
        slopes = np.where(inside, share * sides[0] + (1 - share) * sides[1], slopes)
        points = np.where(inside, kink, points)
    return points, slopes


def hinge_bounds(rows: Any, mass: Array, penalty: Array, dual: Array) -> Array:
    """Return lower bounds (problems,) for average-hinge problems from dual points (problems, samples).

    A bound is ``sum a - sum_j (sum a * rows_j)^2 / (2 penalty_j)`` for any 0 <= a <= mass, given signed rows and
    penalties (problems, coordinates). Only the last coordinate is balanced, so the bound is 0 if alpha = 0.
    """
    dual = np.clip(dual, 0, mass)
    last = rows[:, -1] if isinstance(rows, np.ndarray) else rows[:, [-1]].toarray()[:, 0]
    dual = np.where(penalty[:, -1:] == 0, dual * balance(dual * last), dual)
    across = Judged(rows, last, "none").sums(dual) ** 2
    across[:, -1] *= penalty[:, -1] > 0
    bound = dual.sum(axis=1) - (across / (2 * np.where(penalty > 0, penalty, 1e-300))).sum(axis=1)
    return np.where(bound > 0, bound, 0.0)

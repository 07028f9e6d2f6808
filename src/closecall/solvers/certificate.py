"""Certificates: how good a solution is, and how far its objective can still be above the minimum.

A convex loss lies above each of its tangents, ``l(m) >= l(q) + l'(q) * (m - q)``. With weights s >= 0 the objective is
therefore at least ``sum s * (l(q) - l'(q) * q) - ||v||^2 / (2 alpha)`` with ``v = sum s * l'(q) * y * x``, whatever the
parameters, if a free intercept's sum ``sum s * l'(q) * y`` is zero: the value of a point of the dual (Fenchel). Losses
are not negative, so weights may be scaled down: the heavier side is, until that sum is zero. The tangent points q are
free. They are the solution's own margins or, if that is not enough, the margins at the best intercept; at a kink, a
slope between its two.

The **gap** is the objective minus this bound, relative to the objective. For a convex aggregate (the weights are then a
subgradient, and their sum with any losses is at most its value) it bounds how far the objective is above its minimum.
For the others it bounds how far the objective could fall with the weights held fixed: a solution is stationary if it is
optimal for the examples that it selects itself. The excess of an aggregate over its weighted losses is the same in the
objective and in the bound. If the loss is not convex, the gap is a measure, not a bound. Everything here is computed in
float64 on X itself, so the bound holds up to the rounding of its sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import Loss, get_loss
from ..objective import Problem
from .kernels import Mass, make_mass, weigh

#: Objectives below this share of that of w = 0 are measured against it: nothing is left of them but rounding.
NOTHING = 1e-9
_BLOCK = 1 << 21  # margins alive at once
_FEW = 0.5  # up to this share of the examples, only those with weight are evaluated


@dataclass(frozen=True)
class Judged:
    """What all problems of a call share: the data and how the intercept counts ("none", "free" or "penalized")."""

    X: Any
    y: Array
    intercept: str

    def scores(self, coef: Array, intercept: Array) -> Array:
        """Scores (problems, samples) in float64, without a float64 copy of X."""
        X = self.X
        if not isinstance(X, np.ndarray) or X.dtype == np.float64:
            return np.asarray(X @ coef.T).T + intercept[:, None]
        scores = np.empty((len(coef), len(X)))
        for rows in self._row_blocks():
            scores[:, rows] = coef @ X[rows].astype(np.float64).T
        return scores + intercept[:, None]

    def sums(self, pull: Array) -> Array:
        """``pull @ X`` (problems, features) in float64."""
        if not isinstance(self.X, np.ndarray) or self.X.dtype == np.float64:
            return np.asarray((self.X.T @ pull.T).T)
        none = np.zeros((len(pull), self.X.shape[1]))  # no example may carry weight
        return sum((pull[:, rows] @ self.X[rows].astype(np.float64) for rows in self._row_blocks()), none)

    def _row_blocks(self) -> Iterator[slice]:
        size = max(1, (1 << 20) // max(1, self.X.shape[1]))
        return (slice(begin, begin + size) for begin in range(0, len(self.y), size))


def judge(
    setting: Judged, masses: Array, problems: list[Problem], fold_of: Array, coef: Array, intercept: Array, *,
    tol: float, bounds: Array | None = None, proven: Array | None = None,
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Objective, 0-1 error and gap of every problem; problems that differ only in alpha are handled together.

    Parameters
    ----------
    setting : Judged
    masses : array (folds, samples)
    problems : list of Problem
    fold_of : array (problems,)
    coef : array (problems, features)
    intercept : array (problems,)
    tol : float
        A larger gap is refined.
    bounds : array (problems,), optional
        Lower bounds on the minima that the solver already knows.
    proven : array (problems,), optional
        Gaps already known; infinite for the others.

    Returns
    -------
    objective, errors, gap : arrays (problems,)
    """
    objective, errors, gap = (np.empty(len(problems)) for _ in range(3))
    bounds = np.zeros(len(problems)) if bounds is None else bounds
    proven = np.full(len(problems), np.inf) if proven is None else proven
    kinds = [make_mass(mass, np.float64) for mass in masses]
    groups: dict[Any, list[int]] = {}
    for row, problem in enumerate(problems):
        groups.setdefault((fold_of[row], problem.loss, problem.aggregate, problem.k, problem.m), []).append(row)
    alphas = np.array([problem.alpha for problem in problems])
    size = max(1, _BLOCK // len(setting.y))
    for (fold, *_), members in groups.items():
        for begin in range(0, len(members), size):
            rows = np.array(members[begin : begin + size])
            known = bounds[rows], proven[rows]
            found = _judge_alike(
                setting, kinds[fold], problems[rows[0]], coef[rows], intercept[rows], alphas[rows], tol, known
            )
            objective[rows], errors[rows], gap[rows] = found
    return objective, errors, gap


def _judge_alike(
    setting: Judged, mass: Mass, problem: Problem, coef: Array, intercept: Array, alpha: Array, tol: float,
    known: tuple[Array, Array],
) -> tuple[Array, Array, Array]:  # fmt: skip
    """Problems that differ only in alpha; ``known`` has bounds and gaps."""
    loss = get_loss(problem.loss)
    margins = setting.scores(coef, intercept) * setting.y
    losses = loss.value(margins)
    weights = weights_at(problem, losses, loss.threshold, mass)
    objective = np.where(weights > 0, weights * losses, 0).sum(axis=1)
    inner = (coef**2).sum(axis=1) + (intercept**2 if setting.intercept == "penalized" else 0)
    above = get_aggregate(problem.aggregate).above(weights, mass.values)
    objective = objective + 0.5 * alpha * inner
    errors = (margins <= 0) @ mass.values
    scale = np.maximum(objective + above, NOTHING * loss.threshold * weights.sum(axis=1))
    lower, proven = np.maximum(known[0], 0.0), known[1]
    for look in (_at_margins, _at_best_intercept, _at_kinks):
        left = np.flatnonzero((objective - lower > tol * scale) & (proven > tol))
        if left.size:
            seen, used = _weighed(setting, weights[left])
            heavy, points, values = (part[left][:, used] for part in (weights, margins, losses))
            lower[left] = np.fmax(lower[left], look(seen, loss, heavy, points, values, alpha[left], tol))
    gap = np.fmin(np.clip((objective - lower) / scale, 0.0, 1.0), proven)
    return objective + above, errors, gap


def _weighed(setting: Judged, weights: Array) -> tuple[Judged, Array | slice]:
    """The examples with positive weights (problems, samples) if these are few, otherwise all; and their data."""
    used = np.flatnonzero(weights.any(axis=0))
    if len(used) > _FEW * weights.shape[1]:
        return setting, slice(None)
    return replace(setting, X=setting.X[used], y=setting.y[used]), used


def weights_at(problem: Problem, losses: Array, threshold: float, mass: Mass) -> Array:
    """The aggregate's weights of losses (rows, samples) with their threshold."""
    k, m = counts(problem, mass.total)
    rows = len(losses)
    found = weigh(problem.aggregate, losses, threshold, np.full(rows, k), np.full(rows, m), mass)
    return found.astype(np.float64, copy=False)


def counts(problem: Problem, total: float) -> tuple[float, float]:
    """k and m of a problem as masses."""
    k, m = get_aggregate(problem.aggregate).counts(problem.k, problem.m, total)
    k, m = (float(np.rint(c)) if abs(c - np.rint(c)) < 1e-9 * c else c for c in (k, m))  # 0.07 * 100 is 7
    return k, m


def _at_margins(
    setting: Judged, loss: Loss, weights: Array, margins: Array, losses: Array, alpha: Array, tol: float
) -> Array:
    """Bounds by the tangents at the solution's own margins."""
    return _lower_bounds(setting, loss, weights, margins, losses, alpha)


def _lower_bounds(setting: Judged, loss: Loss, weights: Array, points: Array, values: Array, alpha: Array) -> Array:
    """Bounds by the tangents at ``points`` (problems, samples), where the losses are ``values``."""
    slopes = loss.slope(points)
    heights = values - slopes * points
    used = weights > 0
    if not used.all():  # what is left out may be infinite
        slopes, heights = np.where(used, slopes, 0.0), np.where(used, heights, 0.0)
    return dual_values(setting, heights * weights, -weights * slopes, alpha)


def dual_values(setting: Judged, heights: Array, pull: Array, alpha: Array) -> Array:
    """``sum heights - ||sum pull * y * x||^2 / (2 alpha)`` after the repair that a free intercept needs; at least 0.

    Parameters
    ----------
    setting : Judged
    heights : array (problems, samples)
        The value of each example's tangent at margin 0, times its weight.
    pull : array (problems, samples)
        Minus its slope, times its weight.
    alpha : array (problems,)

    Examples
    --------
    One example on each side, hinge: a slope of one half each is the optimum of alpha = 1.

    >>> setting = Judged(np.array([[-1.0], [1.0]]), np.array([-1.0, 1.0]), "free")
    >>> dual_values(setting, np.full((1, 2), 0.5), np.full((1, 2), 0.5), np.ones(1)).tolist()
    [0.5]
    """
    signed = pull * setting.y
    if setting.intercept == "free":
        ahead = np.maximum(signed, 0).sum(axis=1)
        behind = ahead - signed.sum(axis=1)
        least = np.minimum(ahead, behind)
        ratio = [np.where(side > 0, least / np.where(side > 0, side, 1), 1.0)[:, None] for side in (ahead, behind)]
        scale = np.where(signed > 0, ratio[0], ratio[1])
        signed, heights = signed * scale, heights * scale
    across = setting.sums(signed)
    square = (across**2).sum(axis=1)
    if setting.intercept == "penalized":
        square = square + signed.sum(axis=1) ** 2
    bound = heights.sum(axis=1) - np.where(square > 0, square / (2 * alpha), 0.0)
    return np.where(bound > 0, bound, 0.0)  # losses are not negative; also where the bound is no number


def _at_best_intercept(
    setting: Judged, loss: Loss, weights: Array, margins: Array, losses: Array, alpha: Array, tol: float
) -> Array:
    """Bounds by the tangents at the margins that the best intercept would give: secant steps on its derivative."""
    if setting.intercept != "free" or not np.isfinite(loss.curvature):
        return np.zeros(len(margins))

    def derivative(shift: Array) -> Array:
        points = margins + shift[:, None] * setting.y
        return (np.where(weights > 0, weights * loss.slope(points), 0) * setting.y).sum(axis=1)

    before, after = np.zeros(len(margins)), np.zeros(len(margins))
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
    return _lower_bounds(setting, loss, weights, points, loss.value(points), alpha)


def _at_kinks(
    setting: Judged, loss: Loss, weights: Array, margins: Array, losses: Array, alpha: Array, tol: float
) -> Array:
    """Bounds with a slope between a kink's two where a margin lies within a width below it, as in the rounded loss."""
    if not loss.kinks:
        return np.zeros(len(margins))
    slopes, points = loss.slope(margins), margins.copy()
    width = np.clip(tol, 1e-5, 1.0)
    for kink in loss.kinks:
        share = np.clip((kink - margins) / width, 0, 1)
        sides = loss.slope(np.array([kink - 1e-9, kink + 1e-9]))
        inside = (share > 0) & (share < 1)
        slopes = np.where(inside, share * sides[0] + (1 - share) * sides[1], slopes)
        points = np.where(inside, kink, points)
    used = weights > 0
    slopes = np.where(used, slopes, 0.0)
    heights = np.where(used, loss.value(points) - slopes * points, 0.0) * weights
    return dual_values(setting, heights, -weights * slopes, alpha)

"""Finishing: problems that ended without their certificate go on until they hold it, or until the cap.

Convex averages go on with a hundredth of the tolerance. Selections settle: see :mod:`closecall.solvers.settle`; with
the shares found there, the certificate of :mod:`closecall.solvers.certificate` is evaluated once more. Shares of the
largest losses (`atk`, `maximal`) are points of the aggregate's own dual, so that the bound is the minimum's own; a
convex aggregate without a known dual keeps the certificate of its own weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..objective import Problem
from .certificate import NOTHING, counts
from .convex import Roots, minimize
from .design import Design
from .kernels import Mass, pull_largest, pull_of
from .newton import LARGEST_DESIGN, LARGEST_RANK
from .prepared import Prepared
from .settle import Landscape, settle

#: Steps of settling in all, for each step of the cap: each looks at the data about ten times.
SETTLING_SHARE = 0.1


@dataclass(frozen=True)
class Finished:
    """One problem's coordinates, the steps that were added, the gap with its shares and a lower bound (0: none)."""

    coordinates: Array
    steps: int
    gap: float
    bound: float


def finish_all(
    prepared: Prepared, problems: list[Problem], fold_of: Array, left: Array, coef: Array, intercept: Array,
    used: Array, bounds: Array, *, steps: int, tol: float,
) -> Array:  # fmt: skip
    """Go on with the problems ``left``, whose parameters change in place; returns the gaps that shares prove."""
    design, proven = prepared.design, np.full(len(problems), np.inf)
    starts = design.to_coordinates(coef[left], intercept[left])
    for row, start in zip(left, starts, strict=True):
        found = finish(design, prepared.masses, problems[row], int(fold_of[row]), start, steps=steps, tol=tol)
        if found is not None:
            parts = design.to_parameters(found.coordinates[None])
            coef[row], intercept[row] = parts[0][0], parts[1][0]
            proven[row], bounds[row] = found.gap, max(bounds[row], found.bound)
            used[row] += found.steps
    return proven


def finish(
    design: Design, masses: list[Mass], problem: Problem, fold: int, start: Array, *, steps: int, tol: float,
) -> Finished | None:  # fmt: skip
    """Go on with one problem from ``start`` (coordinates,); None if nothing can be done for it."""
    loss, aggregate, mass = get_loss(problem.loss), get_aggregate(problem.aggregate), masses[fold]
    k, m = counts(problem, mass.total)
    if loss.convex and aggregate.is_average(k, m, mass.total):
        roots = Roots([problem.loss], np.array([fold]), np.array([problem.alpha]))
        found = minimize(design, roots, masses, start[None], passes=steps, tol=tol / 100, block_rows=1)
        return Finished(found[0][0], int(found[1][0]), np.inf, float(found[3][0]))
    small = design.rank <= LARGEST_RANK and design.samples * design.rank <= LARGEST_DESIGN
    provable = not aggregate.convex or pull_of(problem.aggregate) is pull_largest
    if not isinstance(design.signed, np.ndarray) or not small or problem.alpha == 0 or not provable:
        return None
    return _settle(design, mass, problem, k, m, start, steps, tol)


def _settle(
    design: Design, mass: Mass, problem: Problem, k: float, m: float, start: Array, steps: int, tol: float
) -> Finished:  # fmt: skip
    loss, aggregate = get_loss(problem.loss), get_aggregate(problem.aggregate)
    inside = mass.values > 0
    rows, held = design.signed[inside].astype(np.float64), mass.values[inside].astype(np.float64)
    penalty = problem.alpha * design.penalized

    def weigh(losses: Array) -> Array:
        return aggregate.weigh(losses[None], held, loss.threshold, np.asarray(k), np.asarray(m))[0]

    land = Landscape(rows, held, penalty, weigh, loss.value, loss.slope, not aggregate.close, loss.kinks)

    def gap(c: Array, weights: Array, pulls: Array) -> float:
        return shared_gap(land, c, weights, pulls, convex=aggregate.convex)

    c, weights, pulls, used = settle(
        land, start, steps=max(1, int(SETTLING_SHARE * steps)), tol=tol,
        certified=lambda *spot: gap(*spot) <= tol, anywhere=aggregate.convex,
    )  # fmt: skip
    return Finished(c, used, gap(c, weights, pulls), 0.0)


def shared_gap(land: Landscape, c: Array, weights: Array, pulls: Array, *, convex: bool) -> float:
    """The certificate at c for given weights and pulls (samples,), as a share of the objective.

    Examples
    --------
    >>> from closecall.losses import get_loss
    >>> hinge, ones = get_loss("hinge"), np.ones(2)
    >>> rows = np.array([[-1.0, 1.0], [-1.0, -1.0]])
    >>> land = Landscape(rows, ones, np.array([1.0, 0.0]), np.ones_like, hinge.value, hinge.slope, True, hinge.kinks)
    >>> shared_gap(land, np.array([1.0, 0.0]), ones, ones / 2, convex=True)
    0.0
    """
    margins = -(land.rows @ c)
    losses, points = land.value(margins), margins.copy()
    shared = np.abs(pulls + land.slope(margins)) > 1e-12  # a slope between those of a kink has its tangent there
    if shared.any() and land.kinks:
        kinks = np.array(land.kinks)
        points[shared] = kinks[np.abs(margins[shared, None] - kinks).argmin(axis=1)]
    heights, pull = weights * (land.value(points) + pulls * points), weights * pulls
    last = land.rows[:, -1]
    if land.penalty[-1] == 0:  # a free intercept: its pulls have to sum to zero
        sides = pull * last
        ahead, behind = np.maximum(sides, 0).sum(), np.maximum(-sides, 0).sum()
        least = min(ahead, behind)
        factors = np.where(sides > 0, least / max(ahead, 1e-300), np.where(sides < 0, least / max(behind, 1e-300), 1.0))
        heights, pull = heights * factors, pull * factors
    across = land.rows.T @ pull
    bound = heights.sum() - (across**2 / 2)[land.penalty > 0] @ (1 / land.penalty[land.penalty > 0])
    chosen = land.weigh(losses) if convex else weights
    value = float(chosen @ losses + 0.5 * land.penalty @ c**2)
    scale = max(value, NOTHING * float(land.value(np.zeros(1))[0] * chosen.sum()))
    gap = (value - max(float(bound), 0.0)) / scale
    return float(np.clip(gap, 0.0, 1.0)) if np.isfinite(gap) else 1.0

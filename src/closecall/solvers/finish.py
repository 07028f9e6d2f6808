"""Finishing: problems that ended without their certificate go on until they hold it, or until their steps are used up.

Convex averages go on with a hundredth of the tolerance. Selections settle: see :mod:`closecall.solvers.settle`; with
the shares found there the certificate of :mod:`closecall.solvers.certificate` is evaluated in the design's coordinates.
Shares of the largest losses (`atk`, `maximal`) are points of the aggregate's own dual, so that the bound is the
minimum's own; for the others they are the weights that are held. What has not settled stays where its steps ended;
smooth objectives, those of tilted losses and smoothed superquantiles, go down to their minimum before that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize as lbfgs

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import Loss, get_loss
from ..objective import Problem, aggregate_value
from .certificate import NOTHING, counts
from .convex import Roots, minimize
from .design import Design
from .kernels import Mass, pull_close, pull_largest, pull_of, pull_top
from .newton import LARGEST_RANK
from .prepared import Prepared
from .sample import LAST_SHARE
from .settle import Settling
from .soft import Choice, SoftSpot

#: Settling steps for each step of a run: one looks at the data about four times as long.
SETTLING_SHARE = 0.25
_CALLS = 2e5  # what the calls of a step cost, in products
#: Entries of a design up to which selections settle.
LARGEST_SETTLED = 1 << 24


def settle_all(
    prepared: Prepared, problems: list[Problem], fold_of: Array, coef: Array, intercept: Array, used: Array, *,
    steps: int, tol: float,
) -> Array:  # fmt: skip
    """Settle all that is not an average, in place; returns the gaps of what settled, infinity for the rest.

    What does not settle from where its steps ended begins again at the convex average (or at zero, if the problem is
    convex) where that is lower. Not so `close`, whose value is low too where far examples are wrong.
    """
    design, proven = prepared.design, np.full(len(problems), np.inf)
    ends = design.to_coordinates(coef, intercept)
    for row, problem in enumerate(problems):
        fold = int(fold_of[row])
        if problem.alpha == 0 or is_average(problem, prepared.masses[fold]):
            continue
        settle = _settler(prepared, problem, fold, steps, tol - design.rounding)
        spot, taken = settle(ends[row])
        if spot is None and is_smooth(problem) and isinstance(design.signed, np.ndarray):
            ends[row], more = descend_smooth(Margins(design, design.masses[fold], problem), ends[row], steps)
            coef[row], intercept[row] = (part[0] for part in design.to_parameters(ends[row][None]))
            taken, (spot, last) = taken + more, settle(ends[row])
            taken += last
        if spot is None and not get_aggregate(problem.aggregate).close:
            lower = lowest(prepared, problem, fold, ends[row], steps=steps, tol=tol)
            if lower is not ends[row]:
                coef[row], intercept[row] = (part[0] for part in design.to_parameters(lower[None]))
                spot, more = settle(lower)
                taken += more
        used[row] += taken
        if spot is not None:
            coef[row], intercept[row] = (part[0] for part in design.to_parameters(spot.c[None]))
            proven[row] = spot.gap + design.rounding
    return proven


def _settler(
    prepared: Prepared, problem: Problem, fold: int, steps: int, tol: float
) -> Callable[[Array], tuple[SoftSpot | None, int]]:
    """What settles a problem from coordinates: a certified spot or None, and the steps it took."""
    design = prepared.design
    small = design.rank <= LARGEST_RANK and design.samples * design.rank <= LARGEST_SETTLED
    if not isinstance(design.signed, np.ndarray) or not small or tol <= 0:
        return lambda start: (None, 0)
    surface = Margins(design, design.masses[fold], problem)
    shape = len(surface.rows), surface.rows.shape[1]
    carried = float(get_aggregate(problem.aggregate).carried(*counts(problem, surface.choice.total)))
    allowed = allowance(steps, *shape, carried / surface.choice.total * len(surface.rows))
    if prepared.sample is not None:  # a run that began on a sample costs less
        allowed = max(1, int(allowed * (prepared.sample.shares.max() + LAST_SHARE)))

    def settle(start: Array) -> tuple[SoftSpot | None, int]:
        settling = Settling(surface, start, allowed, tol)
        return settling.run(), settling.used

    return settle


def is_smooth(problem: Problem) -> bool:
    """Whether the objective has a gradient everywhere: its value is smoothed over the losses, which have no kinks."""
    return get_aggregate(problem.aggregate).excess is not None and not get_loss(problem.loss).kinks


def descend_smooth(surface: Margins, start: Array, steps: int) -> tuple[Array, int]:
    """Where L-BFGS ends from a start, never higher, and the evaluations it took: held weights crawl to such minima."""
    aggregate, mass, rows = get_aggregate(surface.problem.aggregate), surface.choice.mass, surface.rows
    k, m = (np.asarray(count) for count in counts(surface.problem, surface.choice.total))

    def objective(c: Array) -> tuple[float, Array]:
        margins = -(rows @ c)
        losses = surface.loss.value(margins)
        weights = aggregate.weigh(losses[None], mass, surface.loss.threshold, k, m)[0]
        value = float(weights @ losses) + float(aggregate.above(weights[None], mass)[0])
        pull = -(weights * surface.loss.slope(margins)) @ rows
        return value + 0.5 * float(surface.penalty @ c**2), pull + surface.penalty * c

    limits = {"maxiter": steps, "maxfun": steps, "ftol": 1e-14, "gtol": 1e-9 * surface.choice.total}
    found = lbfgs(objective, start, jac=True, method="L-BFGS-B", options=limits)
    lower = np.isfinite(found.fun) and found.fun <= objective(start)[0]
    return (found.x if lower else start), int(found.nfev)


def lowest(prepared: Prepared, problem: Problem, fold: int, end: Array, *, steps: int, tol: float) -> Array:
    """The coordinates of lowest objective: ``end`` itself, the convex average with the problem's alpha, or zero."""
    design, mass = prepared.design, prepared.design.masses[fold]
    convex = get_loss(problem.loss).convex
    loss = problem.loss if convex else "logistic"
    roots = Roots([loss], np.array([fold]), np.array([problem.alpha]))
    average = minimize(design, roots, prepared.masses, end[None], passes=steps, tol=tol, block_rows=1)[0][0]
    places = [end, average, *([np.zeros_like(end)] if convex and get_aggregate(problem.aggregate).convex else [])]
    margins, inside = -design.negative_margins(np.array(places)).astype(np.float64), mass > 0
    values = [
        aggregate_value(problem, own[inside], mass=mass[inside]) + 0.5 * problem.alpha * float(design.penalized @ c**2)
        for own, c in zip(margins, places, strict=True)
    ]
    return places[int(np.nanargmin([values[0], *((1 + tol) * value for value in values[1:])]))]


def allowance(steps: int, samples: int, size: int, taken: float) -> int:
    """Settling steps that cost about what a run of ``steps`` steps costs; at most a share of them, at least one.

    ``taken`` is how many of the examples carry weight, whatever their masses.

    Examples
    --------
    >>> allowance(300, 500, 10, 50.0), allowance(300, 1800, 620, 180.0)
    (75, 1)
    """
    step, newton = samples * size, samples * (6 * size + 100) + taken * size**2 + size**3
    return max(1, int(steps * min(SETTLING_SHARE, (step + _CALLS) / (newton + _CALLS))))


def is_average(problem: Problem, mass: Mass) -> bool:
    """Whether the problem is solved as a convex average."""
    aggregate = get_aggregate(problem.aggregate)
    return get_loss(problem.loss).convex and aggregate.is_average(*counts(problem, mass.total), mass.total)


def finish_averages(
    prepared: Prepared, problems: list[Problem], fold_of: Array, left: Array, coef: Array, intercept: Array,
    used: Array, bounds: Array, *, steps: int, tol: float,
) -> bool:  # fmt: skip
    """Go on with the averages among ``left`` at a hundredth of the tolerance, in place; whether there were any."""
    design = prepared.design
    left = np.array([row for row in left if is_average(problems[row], prepared.masses[fold_of[row]])], dtype=int)
    starts = design.to_coordinates(coef[left], intercept[left])
    for row, start in zip(left.tolist(), starts, strict=True):
        problem, fold = problems[row], int(fold_of[row])
        roots = Roots([problem.loss], np.array([fold]), np.array([problem.alpha]))
        found = minimize(design, roots, prepared.masses, start[None], passes=steps, tol=tol / 100, block_rows=1)
        parts = design.to_parameters(found[0])
        coef[row], intercept[row], bounds[row] = parts[0][0], parts[1][0], max(bounds[row], found[3][0])
        used[row] += found[1][0]
    return bool(left.size)


def make_choice(problem: Problem, mass: Array, threshold: float) -> Choice:
    """How the problem's aggregate selects among rows of positive mass; one of its own way is asked for its weights."""
    aggregate = get_aggregate(problem.aggregate)
    k, m = counts(problem, float(mass.sum()))
    pull, convex = pull_of(problem.aggregate), get_loss(problem.loss).convex
    if aggregate.is_average(k, m, float(mass.sum())):
        return Choice(mass, lambda keys: (0.0, k), None, convex)
    convex = convex and aggregate.convex
    if pull is pull_close:
        return Choice(mass, lambda keys: (0.0, k), threshold, False)
    if pull is pull_largest:
        return Choice(mass, lambda keys: (m, k), None, convex)
    if pull is pull_top:
        # One place has two ramps, one over the other: a path that ends is rarely followed by one that does not.
        return Choice(mass, _one_place(mass, k), None, False, paths=1)

    def plain(losses: Array) -> Array:
        return aggregate.weigh(losses[None], mass, threshold, np.asarray(k), np.asarray(m))[0]

    return Choice(mass, lambda keys: (0.0, k), None, False, plain)


def _one_place(mass: Array, k: float) -> Callable[[Array], tuple[float, float]]:
    """The unit of mass that ends where the k-th place does: see :func:`closecall.aggregates._top`."""
    if (mass == 1).all():
        end = float(np.ceil(k - 1e-9))
        return lambda keys: (end - 1, end)

    def bounds(keys: Array) -> tuple[float, float]:
        order = np.argsort(keys)
        place = int(np.searchsorted(np.cumsum(mass[order]), k * (1 - 1e-12)))
        end = max(float(mass[keys <= keys[order[min(place, len(keys) - 1)]]].sum()), 1.0)
        return end - 1, end

    return bounds


class Rounded:
    """A loss whose kinks are rounded over a width, by a parabola: its slopes there are shares of the two.

    Examples
    --------
    >>> hinge = Rounded(get_loss("hinge"))
    >>> hinge.value(np.array([1.0, 2.0]), 1.0).tolist(), hinge.pulls(np.array([1.0, 0.0]), 1.0)[0].tolist()
    ([0.125, 0.0], [0.5, 1.0])
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        sides = [-loss.slope(np.array([kink - 1e-9, kink + 1e-9])) for kink in loss.kinks]
        self.kinks = [(kink, *side.tolist()) for kink, side in zip(loss.kinks, sides, strict=True)]

    def value(self, margins: Array, width: float) -> Array:
        losses = self.loss.value(margins)
        for kink, before, after in self.kinks:
            near = np.abs(margins - kink) < width / 2
            losses[near] += (before - after) / (2 * width) * (width / 2 - np.abs(margins[near] - kink)) ** 2
        return losses

    def pulls(self, margins: Array, width: float) -> tuple[Array, Array]:
        """Minus the slopes, and where their tangents touch: at a kink within reach, else at the margins."""
        pulls, points = -self.loss.slope(margins), margins.copy()
        for kink, before, after in self.kinks:
            near = np.abs(margins - kink) < width / 2
            pulls = np.where(near, after + (before - after) * (0.5 - (margins - kink) / width), pulls)
            points[near] = kink
        return pulls, points

    def bend(self, margins: Array, width: float) -> Array:
        """The second derivative, at least 0."""
        near = min(1e-4, width / 4)
        bend = (self.loss.slope(margins + near) - self.loss.slope(margins - near)) / (2 * near)
        for kink, before, after in self.kinks:
            bend = np.where(np.abs(margins - kink) < width / 2, (before - after) / width, bend)
        return np.maximum(bend, 0.0)


@dataclass
class View:
    """Margins (samples,) and their losses, kinks rounded over the width."""

    margins: Array
    losses: Array
    width: float


class Margins:
    """A :class:`closecall.solvers.soft.Surface`: losses of the margins of one linear score.

    Parameters
    ----------
    design : Design
        Dense.
    mass : array (samples,)
    problem : Problem
    """

    def __init__(self, design: Design, mass: Array, problem: Problem) -> None:
        inside = mass > 0
        signed = design.signed if inside.all() else design.signed[inside]
        self.rows, self.problem = np.ascontiguousarray(signed, dtype=np.float64), problem
        self.loss, self.penalty = get_loss(problem.loss), problem.alpha * design.penalized
        self.threshold = self.loss.threshold
        self.choice = make_choice(problem, mass[inside].astype(np.float64), self.loss.threshold)
        self.spread = design.spectrum / max(float(mass.sum()), 1e-300)
        self.rounded = Rounded(self.loss)

    def see(self, c: Array, width: float) -> View:
        margins = -(self.rows @ c)
        return View(margins, self.rounded.value(margins, width), width)

    def pulls(self, view: View, rows: Array) -> tuple[Array, Array]:
        return self.rounded.pulls(view.margins[rows], view.width)

    def gradients(self, view: View, rows: Array) -> Array:
        return self.pulls(view, rows)[0][:, None] * self.rows[rows]

    def pull(self, view: View, rows: Array, weights: Array) -> Array:
        return (weights * self.pulls(view, rows)[0]) @ self.rows[rows]

    def bend(self, view: View, rows: Array, weights: Array) -> Array:
        bend = self.rounded.bend(view.margins[rows], view.width)
        heavy = np.flatnonzero(bend > 0)
        scaled = self.rows[rows[heavy]] * np.sqrt(weights[heavy] * bend[heavy])[:, None]
        return scaled.T @ scaled

    def gap(self, c: Array, view: View, weights: Array, touch: View) -> float:
        return held_gap(self, c, view, weights, touch)


def held_gap(surface: Margins, c: Array, view: View, weights: Array, touch: View) -> float:
    """The certificate at c for weights (samples,) as a share of the objective; a convex one counts its own weights.

    The tangents are those at what ``touch`` sees: the same point, or one nearer the optimum for these weights.

    Examples
    --------
    >>> from closecall.solvers.prepared import prepare
    >>> ready = prepare(np.array([[-1.0], [1.0]]), np.array([-1.0, 1.0]), np.ones((1, 2)), fit_intercept=True,
    ...                 penalize_intercept=False, dtype=np.float64)
    >>> surface = Margins(ready.design, np.ones(2), Problem("hinge", "atk", 1, 2.0))
    >>> c = ready.design.to_coordinates(np.array([[0.5]]), np.zeros(1))[0]
    >>> view = surface.see(c, 1e-3)
    >>> round(held_gap(surface, c, view, np.full(2, 0.5), view), 6)
    0.0
    """
    used, loss = np.flatnonzero(weights), surface.loss
    held, (pulls, points) = weights[used], surface.pulls(touch, used)
    heights, pull = held * (loss.value(points) + pulls * points), held * pulls
    rows = surface.rows[used]
    if surface.penalty[-1] == 0:  # a free intercept: its pulls have to sum to zero
        sides = pull * rows[:, -1]
        ahead, behind = np.maximum(sides, 0).sum(), np.maximum(-sides, 0).sum()
        least = min(ahead, behind)
        factors = np.where(sides > 0, least / max(ahead, 1e-300), np.where(sides < 0, least / max(behind, 1e-300), 1.0))
        heights, pull = heights * factors, pull * factors
    penalized = surface.penalty > 0
    across = (pull @ rows)[penalized]
    bound = float(heights.sum() - (across**2 / 2) @ (1 / surface.penalty[penalized]))
    losses = loss.value(view.margins)
    return share_above(surface, losses, weights, 0.5 * float(surface.penalty @ c**2), bound)


def share_above(surface: Any, losses: Array, weights: Array, penalty: float, bound: float) -> float:
    """How far an objective is above what a bound for held weights proves, as a share; 1 if the bound is no number."""
    problem, choice, aggregate = surface.problem, surface.choice, get_aggregate(surface.problem.aggregate)
    threshold = surface.threshold
    convex = choice.convex or (surface.loss.convex and aggregate.convex)
    chosen = own_weights(problem, losses, choice, threshold) if convex else weights
    own, held = aggregate.above(np.stack([chosen, weights]), choice.mass)
    value = float(chosen @ losses + penalty + own)
    gap = (value - max(bound, 0.0) - held) / max(value, NOTHING * threshold * float(chosen.sum()))
    return float(np.clip(gap, 0.0, 1.0)) if np.isfinite(gap) else 1.0


def own_weights(problem: Problem, losses: Array, choice: Choice, threshold: float) -> Array:
    """What the problem's aggregate weighs losses (samples,) by, at its final k."""
    k, m = (np.asarray(count) for count in counts(problem, choice.total))
    return get_aggregate(problem.aggregate).weigh(losses[None], choice.mass, threshold, k, m)[0]

"""Cuts, which turn an aggregate that selects examples into a sum of clipped losses.

If the edges are fixed, the gradient of an aggregate is the gradient of ``sum of clip(l, low, high)``, to which only the
examples with losses between the edges contribute. `close` has the window ``[T - e, T + e]``, `atk` and `maximal` have
``[e, inf)``, `trimmed` has ``(-inf, e]``, and `ranked_range` and `top` have ``[e1, e2]``. The counts k and m determine
the edges. Corners are rounded over a ramp: ``share(l) = ramp((l - low) / width) - ramp((l - high) / width)``, and the
charge is the integral of the share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate, take_smallest
from ..losses import Loss, get_loss
from ..objective import Problem
from .certificate import counts
from .kernels import pull_close, pull_largest, pull_of, pull_top

#: The losses that a cut keeps, numbered as in C: those near T, those above minus the cut, or all losses.
CLOSE, ABOVE, ALL = range(3)


@dataclass(frozen=True)
class LossWindow:
    """A window of losses between two edges with ramps; ``spread`` is the change in ramp width per unit of the cut."""

    low: float = -np.inf
    high: float = np.inf
    width: float = 1.0
    spread: float = 0.0

    def parts(self, losses: Array) -> tuple[Array, Array, Array, Array]:
        """Return the shares of losses (samples,), their charges, and the slopes of the rising and falling ramps."""
        none = np.zeros_like(losses)
        share, charge, rising, falling = np.ones_like(losses), losses, none, none
        if np.isfinite(self.low):
            share, charge, rising = self._ramp(losses - self.low)
        if np.isfinite(self.high):
            down, beyond, falling = self._ramp(losses - self.high)
            share, charge = share - down, charge - beyond
        return share, charge, rising, falling

    def _ramp(self, beyond: Array) -> tuple[Array, Array, Array]:
        """Return a ramp around 0, its integral and its slope."""
        inside = beyond + self.width / 2
        part = np.clip(inside, 0, self.width)
        share = part / self.width
        return share, (inside - part / 2) * share, ((inside > 0) & (inside < self.width)) / self.width


class Rounded:
    """A loss with every kink replaced by a parabola of a given width, so that the slope is continuous."""

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
        """Return the negated slopes and the points of tangency, which are nearby kinks or else the margins."""
        pulls, points = -self.loss.slope(margins), margins.copy()
        for kink, before, after in self.kinks:
            near = np.abs(margins - kink) < width / 2
            pulls = np.where(near, after + (before - after) * (0.5 - (margins - kink) / width), pulls)
            points[near] = kink
        return pulls, points

    def bend(self, margins: Array, width: float) -> Array:
        """Return the second derivative, which is at least 0."""
        near = min(1e-4, width / 4)
        bend = (self.loss.slope(margins + near) - self.loss.slope(margins - near)) / (2 * near)
        for kink, before, after in self.kinks:
            bend = np.where(np.abs(margins - kink) < width / 2, (before - after) / width, bend)
        return np.maximum(bend, 0.0)


@dataclass(frozen=True)
class LossCut:
    """How a problem selects examples: the kind of window and the mass k inside; ``slack`` scales the tolerance of k.

    The largest losses, with a total mass of ``m``, are left out first. This choice minimises the aggregate, so
    alternating between leaving out losses and solving never increases the objective. ``convex`` states whether the rest
    of the problem is convex.
    """

    kind: int
    k: float
    slack: float
    convex: bool
    m: float = 0.0


def cut_of(problem: Problem, mass: Array) -> LossCut | None:
    """Return the cut of a problem with masses (samples,), or None if the aggregate does not use a cut."""
    aggregate, pull, total = get_aggregate(problem.aggregate), pull_of(problem.aggregate), float(mass.sum())
    k, m = counts(problem, total)
    if aggregate.is_average(k, m, total):
        return None
    if pull is pull_close:
        return LossCut(CLOSE, k, min(k, total - k), False)
    if pull is pull_top and (mass == 1).all():  # with other masses, its ties follow a different rule
        k, m = float(np.ceil(k - 1e-9)), float(np.ceil(k - 1e-9)) - 1
    elif pull is not pull_largest:
        return None
    rest, convex = total - m, get_loss(problem.loss).convex
    if k >= total:
        return LossCut(ALL, rest, rest, convex, m)
    return LossCut(ABOVE, k - m, min(k - m, total - k), convex, m)


def left_out(losses: Array, mass: Array, m: float) -> Array:
    """Return the masses (samples,) after removing a mass m from the largest losses; ties share the remainder."""
    return mass - take_smallest(-losses[None], mass, m)[0] if m > 0 else mass


def edge_at(cut: LossCut, losses: Array, mass: Array, threshold: float) -> float:
    """Return the cut (without a ramp) that contains the mass k, given the losses (samples,)."""
    if cut.kind == ALL:
        return np.inf
    keys = np.abs(losses - threshold) if cut.kind == CLOSE else -losses
    order = np.argsort(keys, kind="stable")
    place = int(np.searchsorted(np.cumsum(mass[order]), cut.k * (1 - 1e-12)))
    return float(keys[order[min(place, len(keys) - 1)]])


class Sums:
    """Sums over rows. Adding two such objects adds the sums field by field."""

    def __add__(self, other: Any) -> Any:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(mine + theirs for mine, theirs in both))


@dataclass(frozen=True)
class LookSums(Sums):
    """The sums over rows that a stage needs at given coordinates and a given window.

    ``value``, ``inside`` and ``errors`` are the charge, the mass inside and the misclassified mass. ``gradient`` and
    ``hessian`` are the derivatives of the charge, and ``sizes`` (coordinates,) scale the damping of its curvature.
    ``grown`` and ``by_mass`` (coordinates,) are the derivatives of the mass inside with respect to the cut and to the
    coordinates. ``by_cut`` (coordinates,) is the derivative of the gradient with respect to the cut.
    """

    value: float
    inside: float
    errors: float
    gradient: Array
    sizes: Array
    hessian: Array
    grown: float
    by_cut: Array
    by_mass: Array

"""Settling: from where the steps ended to a point that holds its certificate.

Where several examples compete for a place, no single selection makes the gradient vanish and plain steps alternate.
The gradient is zero for the right *shares*: weights that the competing examples could have if their losses were changed
a little (Goldstein's subdifferential). They are found by a **soft selection**: around the k-th place the weight falls
along a ramp of some *width* in the losses, from the whole mass to nothing, and still sums to k. The gradient is then a
continuous function of the parameters, and a point where it is zero exists for every width (Brouwer). Newton's steps
find it for a wide ramp; then the ramp is narrowed. When it narrows, the shares are what stays and the losses move
together: the step that predicts this keeps the old ramp's examples and their shares. For `atk` and `maximal` the soft
selection is Nesterov's smoothing of a maximum and the steps are Newton's on a convex function. For the others nothing
is certain: a path may end at a fold, and the next one begins at another width.

At the last width no loss is changed by more than ``tol`` of the mean loss that is weighed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Protocol

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from .._names import Array
from ..losses import Loss

#: Widths at which a path begins, in shares of the mean loss, in this order: where one path ends, another goes on.
STARTS = (0.1, 0.03, 0.3, 0.01, 1.0)
#: Of many examples a narrow ramp holds enough, and a wide one so many that its steps are slow.
MANY, NARROW_STARTS = 10_000, (0.01, 0.003, 0.03, 0.1)
#: What a ramp is narrowed to; the square root of it, and so on, where that is too far.
NARROWING, NEAREST = 0.2, 0.6
#: A close aggregate does not settle where it misclassifies this share of the mass more than at the start, no other
#: where its objective is this share higher.
WORSE = 0.01
#: Newton steps at the first width of a path and at the others; those of a convex objective cannot go astray.
FIRST, NEXT, CONVEX = 16, 8, 40
#: How a step is shortened, how often, and by what share of the margins' size (or of 1) it moves them at most.
SHORTER, TRIALS, FARTHEST = 0.4, 4, 1.0
NEARBY = 3  # steps towards the optimum for held weights, whose tangents bound best
SMALLEST = 1e-6  # a mean loss below it counts as it


@dataclass(frozen=True)
class Choice:
    """How an aggregate selects: the examples between two masses, by their losses or their distance from T.

    Parameters
    ----------
    mass : array (samples,)
        Positive.
    bounds : callable
        Keys (samples,) -> the masses, counted from the smallest key, between which examples are taken.
    threshold : float or None
        T if the keys are distances from it; None: the largest losses come first.
    convex : bool
    plain : callable, optional
        Losses -> weights of an aggregate that selects in a way of its own: such weights have no ramp.
    paths : int, optional
        How many starts are worth trying.
    """

    mass: Array
    bounds: Callable[[Array], tuple[float, float]]
    threshold: float | None
    convex: bool
    plain: Callable[[Array], Array] | None = None
    paths: int | None = None
    unit: bool = field(init=False)
    total: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", bool((self.mass == 1).all()))
        object.__setattr__(self, "total", float(self.mass.sum()))

    def keys(self, losses: Array) -> Array:
        """Small for examples that are taken."""
        return -losses if self.threshold is None else np.abs(losses - self.threshold)

    def turns(self, losses: Array) -> Array:
        """How the key changes with the loss: -1 or 1."""
        return np.full(len(losses), -1.0) if self.threshold is None else np.sign(losses - self.threshold)


class Surface(Protocol):
    """The losses of a problem as functions of its coordinates; see :mod:`closecall.solvers.finish`."""

    choice: Choice
    penalty: Array
    loss: Loss
    spread: Array  # (coordinates,): how much the margins move, as a mean square, for each coordinate's square

    def see(self, c: Array, width: float) -> Any:
        """Whatever the methods below need; ``losses`` (samples,) are its losses, kinks rounded over the width."""

    def gradients(self, view: Any, rows: Array) -> Array:
        """Of the losses of some rows, (rows, coordinates)."""

    def pull(self, view: Any, rows: Array, weights: Array) -> Array:
        """The sum of these gradients, (coordinates,), with weights (rows,)."""

    def bend(self, view: Any, rows: Array, weights: Array) -> Array:
        """The curvature of the weighted losses, (coordinates, coordinates); positive semidefinite."""

    def gap(self, c: Array, view: Any, weights: Array, touch: Any) -> float:
        """The certificate for weights (samples,) held as they are, by the tangents at what ``touch`` sees."""


@dataclass
class Ramp:
    """The examples that share a place: +1 or -1 as they enter the weights, their positions and the ramp's middle."""

    sign: float
    rows: Array
    edge: float


def soft_smallest(choice: Choice, keys: Array, k: float, width: float) -> tuple[Array, Array, float]:
    """Weights of the mass ``k`` with the smallest keys, which fall along a ramp; who is on it, and its middle.

    Examples
    --------
    >>> choice = Choice(np.ones(4), lambda keys: (0.0, 2.0), None, True)
    >>> weights, rows, edge = soft_smallest(choice, np.array([0.0, 1.0, 1.2, 5.0]), 2.0, 0.4)
    >>> weights.round(6).tolist(), rows.tolist(), round(edge, 6)
    ([1.0, 0.75, 0.25, 0.0], [1, 2], 1.1)
    """
    mass, none = choice.mass, np.empty(0, dtype=np.intp)
    if k <= 0:
        return np.zeros(len(keys)), none, 0.0
    if k >= choice.total * (1 - 1e-12):
        return mass.copy(), none, 0.0
    hard = _edge(choice, keys, k)
    near = np.flatnonzero(np.abs(keys - hard) <= width)
    weights = np.where(keys < hard, mass, 0.0)
    base, places, share = float(weights.sum() - weights[near].sum()), keys[near], mass[near]
    # As the middle moves up, what is taken grows piece by piece in proportion to the mass on the ramp.
    ends = np.concatenate([places - width / 2, places + width / 2])
    order = np.argsort(ends)
    ends, rises = ends[order], np.cumsum(np.concatenate([share, -share])[order]) / width
    taken = base + np.concatenate([[0.0], np.cumsum(rises[:-1] * np.diff(ends))])
    place = int(np.clip(np.searchsorted(taken, k), 1, len(ends) - 1))
    edge = float(ends[place - 1] + (k - taken[place - 1]) / max(rises[place - 1], 1e-300))
    fraction = np.clip(0.5 + (edge - places) / width, 0, 1)
    weights[near] = share * fraction
    return weights, near[(fraction > 0) & (fraction < 1)], edge


def _edge(choice: Choice, keys: Array, k: float) -> float:
    """The key at which the mass reaches k."""
    if choice.unit:
        place = min(int(np.ceil(k - 1e-9)), len(keys)) - 1
        return float(np.partition(keys, place)[place])
    order = np.argsort(keys)
    place = int(np.searchsorted(np.cumsum(choice.mass[order]), k * (1 - 1e-12)))
    return float(keys[order[min(place, len(keys) - 1)]])


class Spot:
    """A point, its soft weights at a width and its gradient."""

    def __init__(self, surface: Surface, c: Array, width: float) -> None:
        self.surface, self.c, self.width = surface, c, width
        self.view = surface.see(c, width)
        choice, losses = surface.choice, self.view.losses
        self.ramps: list[Ramp] = []
        self.gap = np.inf
        if choice.plain is not None:
            self.weights = choice.plain(losses)
        else:
            self.keys = choice.keys(losses)
            self.weights = self._taken(choice)
        self._sum()

    def _taken(self, choice: Choice) -> Array:
        low, high = choice.bounds(self.keys)
        weights, rows, edge = soft_smallest(choice, self.keys, high, self.width)
        self.ramps.append(Ramp(1.0, rows, edge))
        if low > 1e-9:
            fewer, rows, edge = soft_smallest(choice, self.keys, low, self.width)
            self.ramps.append(Ramp(-1.0, rows, edge))
            weights = np.maximum(weights - fewer, 0.0)
        return weights

    def _sum(self) -> None:
        self.used = np.flatnonzero(self.weights)
        weights, shrink = self.weights[self.used], self.surface.penalty * self.c
        self.gradient = self.surface.pull(self.view, self.used, weights) + shrink
        self.value = float(weights @ self.view.losses[self.used] + 0.5 * (shrink @ self.c))
        # What Newton's steps minimise where it exists: the maximum over the weights, smoothed.
        self.smooth = self.value - self.width / 2 * float(weights @ (weights / self.surface.choice.mass[self.used] - 1))

    def narrowed(self, width: float) -> tuple[Array, Array]:
        """Where this zero of the gradient is expected at another width: the same examples share, as before.

        Also the curvature here. The spot's own weights change.
        """
        mass, old = self.surface.choice.mass, self.width
        for ramp in self.ramps:
            if ramp.rows.size > 1:
                offset, share = ramp.edge - self.keys[ramp.rows], mass[ramp.rows]
                change = offset * (1 / width - 1 / old)
                change -= (share @ change) / share.sum()
                self.weights[ramp.rows] += ramp.sign * share * change
        self.width = width
        self._sum()
        held, whole = self.matrices()
        return self.c - _solve(whole, self.gradient), held

    def matrices(self) -> tuple[Array, Array]:
        """The curvature with the weights held, and the gradient's derivative, in which they move."""
        held = self.surface.bend(self.view, self.used, np.maximum(self.weights[self.used], 0.0))
        held[np.diag_indices(len(held))] += self.surface.penalty + 1e-10 * np.trace(held) / len(held) + 1e-12
        whole = held.copy()
        for ramp in self.ramps:
            if ramp.rows.size > 1:
                each, share = self.surface.gradients(self.view, ramp.rows), self.surface.choice.mass[ramp.rows]
                turned = (share * self.surface.choice.turns(self.view.losses[ramp.rows]))[:, None] * each
                apart = np.outer(share @ each, turned.sum(axis=0)) / share.sum() - each.T @ turned
                whole += ramp.sign / self.width * apart
        return held, whole


def _factor(matrix: Array) -> Array:
    """Cholesky's factor; LAPACK's own call, because that of scipy.linalg costs more than a small matrix does."""
    factor, failed = dpotrf(matrix, lower=1)
    return factor if failed == 0 else np.full_like(matrix, np.nan)


def _apply(factor: Array, right: Array) -> Array:
    return np.asarray(dpotrs(factor, right, lower=1)[0])


def _solve(matrix: Array, right: Array) -> Array:
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return np.full(len(right), np.nan)


class Settling:
    """Paths of one problem from one start, with an allowance of steps.

    Parameters
    ----------
    surface : Surface
    start : array (coordinates,)
    steps : int
        Newton steps allowed in all.
    tol : float
    """

    def __init__(self, surface: Surface, start: Array, steps: int, tol: float) -> None:
        self.surface, self.start, self.left, self.tol = surface, start, steps, tol
        self.allowed = steps
        spot = Spot(surface, start, 1e-9)
        mean = spot.value / max(float(spot.weights.sum()), 1e-300)
        self.most = self._errors(spot) + WORSE * surface.choice.total
        self.highest = (1 + WORSE) * spot.value if surface.choice.threshold is None else np.inf
        self.unit = 2 * max(mean, SMALLEST)  # a ramp changes losses by half its width
        self.last = tol * self.unit

    @property
    def used(self) -> int:
        """Steps taken so far."""
        return self.allowed - self.left

    def run(self) -> Spot | None:
        """A certified spot, or None."""
        spot = Spot(self.surface, self.start, self.last)
        if self._certified(spot):
            return spot
        if self.surface.choice.plain is not None:
            return self._stage(self.start, self.last, CONVEX, None)
        for width in islice(_widths(len(self.surface.choice.mass)), self.surface.choice.paths):
            if self.left <= 0:
                return None
            found = self._path(width * self.unit)
            if found is not None:
                return found
        return None

    def _path(self, width: float) -> Spot | None:
        convex = self.surface.choice.convex
        spot = self._stage(self.start, width, CONVEX if convex else FIRST, None)
        narrowing = NARROWING
        while spot is not None and spot.width > self.last and self.left > 0:
            width = spot.width
            following = self._stage(spot.c, max(width * narrowing, self.last), CONVEX if convex else NEXT, spot)
            if following is None:
                narrowing = np.sqrt(narrowing)
                if narrowing > NEAREST:
                    return None
                spot = Spot(self.surface, spot.c, width)  # the prediction changed its weights
            else:
                spot, narrowing = following, max(narrowing**2, NARROWING)
                if convex and self._certified(spot):  # a bound is one, however wide the ramp that found it
                    return spot
        return spot if spot is not None and spot.width <= self.last else None

    def _stage(self, c: Array, width: float, steps: int, before: Spot | None) -> Spot | None:
        """A zero of the gradient at one width, near c; None if it was not found."""
        spot = Spot(self.surface, c, width)
        if before is not None:
            guess, held = before.narrowed(width)
            self.left -= 1
            if np.isfinite(guess).all():
                ahead, factor = Spot(self.surface, guess, width), _factor(held)
                if self._length(factor, ahead) < self._length(factor, spot):
                    spot = ahead
        for _ in range(steps):
            held, whole = spot.matrices()
            factor = _factor(held)
            decrement = self._length(factor, spot)
            if self._found(spot, decrement, factor):
                return spot
            if self.left <= 0:
                return None
            self.left -= 1
            following = self._step(spot, factor, whole, decrement)
            if following is None:
                return None
            spot = following
        return None

    def _found(self, spot: Spot, decrement: float, factor: Array) -> bool:
        if decrement > 0.25 * self.tol * spot.value:
            return False
        return spot.width > self.last or self._certified(spot, factor)

    def _certified(self, spot: Spot, factor: Array | None = None) -> bool:
        """Whether the spot holds its certificate, by tangents at its own margins or, where the loss is convex, nearby.

        The tangents of the optimum for the held weights give the best bound; a few steps with the factor of the
        curvature lead there.
        """
        if self._errors(spot) > self.most or spot.value > self.highest:
            return False
        surface, c, touch = self.surface, spot.c, spot.view
        spot.gap = min(spot.gap, surface.gap(spot.c, spot.view, spot.weights, touch))
        for _ in range(NEARBY if surface.loss.convex else 0):
            if factor is None or spot.gap <= self.tol:
                break
            gradient = surface.pull(touch, spot.used, spot.weights[spot.used]) + surface.penalty * c
            c = c - _apply(factor, gradient)
            touch = surface.see(c, spot.width)
            spot.gap = min(spot.gap, surface.gap(spot.c, spot.view, spot.weights, touch))
        return spot.gap <= self.tol

    def _errors(self, spot: Spot) -> float:
        """What is on the wrong side, which a close aggregate's constant M charges; at w = 0, where all tie, all is."""
        threshold = self.surface.choice.threshold
        return 0.0 if threshold is None else float(self.surface.choice.mass[spot.view.losses >= threshold].sum())

    def _length(self, factor: Array, spot: Spot) -> float:
        """Half the squared gradient in the metric of the curvature: Newton's decrement."""
        return 0.5 * float(spot.gradient @ _apply(factor, spot.gradient))

    def _step(self, spot: Spot, factor: Array, whole: Array, decrement: float) -> Spot | None:
        """Newton's step, shortened until the smoothed objective falls; without one, to the best of a few gradients."""
        step = -_solve(whole, spot.gradient)
        if not np.isfinite(step).all():
            return None
        far = FARTHEST * max(np.sqrt(self.surface.spread @ spot.c**2), 1.0)
        t = min(1.0, far / max(np.sqrt(self.surface.spread @ step**2), 1e-300))
        if self.surface.choice.convex:
            return self._descended(spot, step, t)
        return self._shortened(spot, step, t, factor, decrement)

    def _descended(self, spot: Spot, step: Array, t: float) -> Spot | None:
        fall = float(spot.gradient @ step)
        for _ in range(5 * TRIALS):
            there = Spot(self.surface, spot.c + t * step, spot.width)
            if there.smooth <= spot.smooth + 1e-4 * t * fall:
                return there
            t *= SHORTER
        return None

    def _shortened(self, spot: Spot, step: Array, t: float, factor: Array, decrement: float) -> Spot | None:
        best, least = None, np.inf
        for _ in range(TRIALS):
            there = Spot(self.surface, spot.c + t * step, spot.width)
            length = self._length(factor, there)
            if length < least:
                best, least = there, length
            if least <= 0.9 * decrement:
                break
            t *= SHORTER
        return best


def _widths(samples: int) -> Iterator[float]:
    """The starts, then others between them without end."""
    yield from STARTS if samples < MANY else NARROW_STARTS
    for number in count(2):
        yield float(10.0 ** (-3 * ((number * 0.6180339887) % 1)))

"""Sums over rows for :mod:`closecall.solvers.stationary`: a selection with a ramp, and how it changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..losses import Loss

#: Rows are kept that are by this share of the seen margins' range, or of 1, outside of it.
BEYOND = 0.25
_BLOCK = 1 << 16  # entries of rows that are worked on at a time: they stay in cache
PLACES = -5.0, 600.0  # between which the place is looked for
_SEEN = 0.01  # rows this near the edge are seen, whatever the ramp
_STEP = 1e-4  # between the slopes whose difference is the curvature


@dataclass(frozen=True)
class Aim:
    """Where to look: coordinates, place and width, and the margins between which rows are seen, and kept if asked."""

    c: Array
    place: float
    width: float
    seen: tuple[float, float]
    kept: tuple[float, float] | None = None


def make_aim(loss: Loss, c: Array, place: float, width: float, keep: bool = False) -> Aim:
    """An aim with its margins: the rows on the ramp and inside of it, and those just outside."""
    edge, wide = np.exp(-place), max(width, _SEEN)
    low = margin_at(loss, 2 * loss.threshold - edge + wide / 2)
    high = margin_at(loss, edge * np.exp(-wide / (2 * loss.threshold)))
    beyond = BEYOND * max(high - low, 1.0)
    return Aim(c, place, width, (low, high), (low - beyond, high + beyond) if keep else None)


def margin_at(loss: Loss, level: float) -> float:
    """The margin at which a falling loss is at ``level``.

    Examples
    --------
    >>> from closecall.losses import get_loss
    >>> round(margin_at(get_loss("logistic"), np.log(2.0)), 9)
    0.0
    """
    low, high = -1.0, 1.0
    while low > -1e9 and loss.value(np.array([low]))[0] < level:
        low *= 8
    while high < 1e9 and loss.value(np.array([high]))[0] > level:
        high *= 8
    while high - low > 1e-9 * max(1.0, abs(low), abs(high)):
        points = np.linspace(low, high, 65)
        place = int(np.count_nonzero(loss.value(points[1:-1]) > level))
        low, high = points[place], points[place + 1]
    return float(high)


@dataclass
class Tally:
    """Sums over rows at an aim; sides are those of the labels, -1 first.

    Parameters
    ----------
    mass, value : float
        Of the weights, and of the weighted losses.
    heights, pulls : arrays (2,)
        What the tangents of the weighted losses have at margin 0, and minus their slopes, by side.
    across : array (2, coordinates)
        Minus the slopes times the rows, by side; the sum is the gradient.
    held, moved : arrays (coordinates, coordinates)
        The curvature with the weights held, and what their change adds to the gradient's derivative.
    by_place, mass_by_c : arrays (coordinates,)
        Derivatives of the gradient by the place, and of the mass by the coordinates.
    mass_by_place, errors : float
        The derivative of the mass by the place, and the misclassified mass.
    up, down : float
        How far the place can rise until a row enters the ramp from outside, and fall until one does from inside.
    full : bool
        Whether all rows were looked at.
    """

    mass: float
    value: float
    heights: Array
    pulls: Array
    across: Array
    held: Array
    moved: Array
    by_place: Array
    mass_by_c: Array
    mass_by_place: float
    errors: float
    up: float
    down: float
    full: bool = True

    @classmethod
    def zero(cls, size: int) -> Tally:
        """Of no rows."""
        square, line = np.zeros((size, size)), np.zeros(size)
        return cls(0.0, 0.0, np.zeros(2), np.zeros(2), np.zeros((2, size)), square, square.copy(), line, line.copy(),
                   0.0, 0.0, np.inf, np.inf)  # fmt: skip

    def __add__(self, other: Tally) -> Tally:
        both = {name: value + getattr(other, name) for name, value in vars(self).items()}
        both |= {name: min(getattr(self, name), getattr(other, name)) for name in ("up", "down", "full")}
        return Tally(**both)

    @property
    def gradient(self) -> Array:
        """Of the weighted losses, (coordinates,)."""
        return np.asarray(self.across.sum(axis=0))


def tally(loss: Loss, aim: Aim, margins: Array, mass: Array, rows: Callable[[Array], Array]) -> Tally:
    """Sums over rows with margins and masses (samples,); ``rows`` gives ``-y * z`` of some of them, in float64.

    The margins, which may be rounded, say which rows are seen.
    """
    near = np.flatnonzero((margins > aim.seen[0]) & (margins < aim.seen[1]))
    size = max(1, _BLOCK // len(aim.c))
    found = Tally.zero(len(aim.c))
    for begin in range(0, len(near), size):
        some = near[begin : begin + size]
        found = found + _tally(loss, aim, rows(some), mass[some])
    return found


def _tally(loss: Loss, aim: Aim, signed: Array, weight: Array) -> Tally:
    """Of rows that stay in cache."""
    margins = -(signed @ aim.c)
    losses, pull = loss.value(margins), -loss.slope(margins)
    shares, by_loss, by_place = ramp(loss.threshold, aim, losses)
    found = Tally.zero(len(aim.c))
    outside, inside = (shares <= 0) & (by_place > 0), (shares >= 1) & (by_place > 0)
    found.up = float((-shares[outside] / by_place[outside]).min(initial=np.inf))
    found.down = float(((shares[inside] - 1) / by_place[inside]).min(initial=np.inf))
    on = np.flatnonzero((shares > 0) & (shares < 1))
    held = weight * np.clip(shares, 0.0, 1.0)
    heights, pulls = held * (losses + pull * margins), held * pull
    found.mass, found.value = float(held.sum()), float(held @ losses)
    ahead = signed[:, -1] < 0
    sides = np.stack([~ahead, ahead]).astype(np.float64)
    found.heights, found.pulls, found.across = sides @ heights, sides @ pulls, (sides * pulls) @ signed
    bend = np.maximum(loss.slope(margins + _STEP) - loss.slope(margins - _STEP), 0.0) / (2 * _STEP)
    scaled = signed * np.sqrt(held * bend)[:, None]
    found.held = scaled.T @ scaled
    each, change = pull[on, None] * signed[on], weight[on] * by_loss[on]
    found.moved = (each * change[:, None]).T @ each
    found.by_place, found.mass_by_c = (weight[on] * by_place[on]) @ each, change @ each
    found.mass_by_place = float(weight[on] @ by_place[on])
    return found


def ramp(threshold: float, aim: Aim, losses: Array) -> tuple[Array, Array, Array]:
    """Shares of the losses (samples,), not cut at 0 and 1, and their derivatives by the loss and by the place."""
    edge, width = np.exp(-aim.place), aim.width
    wrong = losses >= threshold
    small = np.maximum(np.where(wrong, threshold, losses), 1e-300)
    shares = 0.5 + np.where(wrong, 2 * threshold - edge - losses, threshold * (np.log(small) + aim.place)) / width
    by_loss = np.where(wrong, -1.0, threshold / small) / width
    return shares, by_loss, np.where(wrong, edge, threshold) / width


def place_of(loss: Loss, losses: Array, mass: Array, k: float, width: float) -> float | None:
    """The place at which weights of losses (samples,) sum to ``k``; None where k reaches beyond twice T.

    Examples
    --------
    >>> from closecall.losses import get_loss
    >>> losses = np.array([0.1, 0.2, 0.6, 0.8, 3.0])
    >>> place = place_of(get_loss("logistic"), losses, np.ones(5), 3.0, 0.01)
    >>> bool(0.1 < np.exp(-place) < 0.2)
    True
    """
    threshold, (low, high), wrong = loss.threshold, PLACES, losses >= loss.threshold
    far, heavy = (2 * threshold - losses[wrong]) / width + 0.5, mass[wrong]
    near, light = threshold * np.log(np.maximum(losses[~wrong], 1e-300)) / width + 0.5, mass[~wrong]
    while high - low > 1e-12 * max(1.0, abs(high)):
        place = (low + high) / 2
        taken = heavy @ np.clip(far - np.exp(-place) / width, 0.0, 1.0)
        taken += light @ np.clip(near + threshold * place / width, 0.0, 1.0)
        low, high = (place, high) if taken < k else (low, place)
    return high if high < PLACES[1] - 1 else None

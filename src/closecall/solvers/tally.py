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
_STEP = 1e-4  # between the slopes whose difference is the curvature, where the loss does not know its own
_HINTED, _CHORDS = 0.25, 100  # how far from a hint a place is looked for first, and how often
_POINTS = 1025  # of a grid in which a margin is looked for: three such grids find nine digits


@dataclass(frozen=True)
class Aim:
    """Where to evaluate: coordinates, place and width, and the margins of rows to use, and to keep if requested.

    Tangents touch at the coordinates ``touch`` if these are given.
    """

    c: Array
    place: float
    width: float
    seen: tuple[float, float]
    kept: tuple[float, float] | None = None
    touch: Array | None = None


def make_aim(loss: Loss, c: Array, place: float, width: float, keep: bool = False, touch: Array | None = None) -> Aim:
    """A request with its margins: the rows on the ramp and inside it, and those just outside."""
    edge, wide = np.exp(-place), max(width, _SEEN)
    low = margin_at(loss, 2 * loss.threshold - edge + wide / 2)
    high = margin_at(loss, edge * np.exp(-wide / (2 * loss.threshold)))
    beyond = BEYOND * max(high - low, 1.0)
    return Aim(c, place, width, (low, high), (low - beyond, high + beyond) if keep else None, touch)


def margin_at(loss: Loss, level: float) -> float:
    """The margin at which a falling loss is at ``level``.

    Examples
    --------
    >>> from closecall.losses import get_loss
    >>> round(margin_at(get_loss("logistic"), np.log1p(np.exp(-2.0))), 9)
    2.0
    """
    if loss.inverse is not None:
        return loss.inverse(level)
    low, high = -1.0, 1.0
    while low > -1e9 and loss.value(np.array([low]))[0] < level:
        low *= 8
    while high < 1e9 and loss.value(np.array([high]))[0] > level:
        high *= 8
    while high - low > 1e-9 * max(1.0, abs(low), abs(high)):
        points = np.linspace(low, high, _POINTS)
        place = int(np.count_nonzero(loss.value(points[1:-1]) > level))
        low, high = points[place], points[place + 1]
    return float(high)


@dataclass
class Tally:
    """Sums over rows at an aim; arrays by side have label -1 first.

    Parameters
    ----------
    mass, value : float
        Sums of the weights and of the weighted losses.
    heights, pulls : arrays (2,)
        The values of the tangents of the weighted losses at margin 0, and minus their slopes, by side.
    across : array (2, coordinates)
        Minus the slopes times the rows, by side.
    gradient : array (coordinates,)
        The gradient of the weighted losses.
    held, moved : arrays (coordinates, coordinates)
        The curvature with the weights held, and what their change adds to the gradient's derivative.
    by_place, mass_by_c : arrays (coordinates,)
        Derivatives of the gradient with respect to the place, and of the mass with respect to the coordinates.
    mass_by_place, errors : float
        The derivative of the mass with respect to the place, and the misclassified mass.
    up, down : float
        How far the place can rise before a row enters the ramp from outside, and fall before one enters from inside;
        infinite if a row is already on it.
    full : bool
        Whether all rows were evaluated.
    """

    mass: float
    value: float
    heights: Array
    pulls: Array
    across: Array
    gradient: Array
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
        """The tally of no rows."""
        square, line = np.zeros((size, size)), np.zeros(size)
        sides = np.zeros(2), np.zeros(2), np.zeros((2, size))
        lines = line.copy(), square, square.copy(), line, line.copy()
        return cls(0.0, 0.0, *sides, *lines, 0.0, 0.0, np.inf, np.inf)

    def __add__(self, other: Tally) -> Tally:
        both = {name: value + getattr(other, name) for name, value in vars(self).items()}
        both |= {name: min(getattr(self, name), getattr(other, name)) for name in ("up", "down", "full")}
        if both["mass_by_place"] > 0:
            both |= {"up": np.inf, "down": np.inf}
        return Tally(**both)


def tally(loss: Loss, aim: Aim, margins: Array, mass: Array, rows: Callable[[Array], Array]) -> Tally:
    """Sums over rows with margins and masses (samples,); ``rows`` gives ``-y * z`` of some of them, in float64.

    The margins, which may be rounded, determine which rows are used.
    """
    near = np.flatnonzero((margins > aim.seen[0]) & (margins < aim.seen[1]))
    found = Tally.zero(len(aim.c))
    for some in in_cache(len(near), len(aim.c)):
        add_rows(found, loss, aim, rows(near[some]), mass[near[some]])
    return found


def in_cache(rows: int, width: int) -> list[slice]:
    """Slices of rows that stay in cache as float64, if they are ``width`` wide."""
    step = max(1, _BLOCK // max(1, width))
    return [slice(begin, begin + step) for begin in range(0, rows, step)]


def add_rows(found: Tally, loss: Loss, aim: Aim, signed: Array, weight: Array) -> None:
    """Add the relevant ones of rows that stay in cache, ``-y * z`` in float64, with their masses."""
    margins = -(signed @ aim.c)
    seen = np.flatnonzero((margins > aim.seen[0]) & (margins < aim.seen[1]))
    if len(seen) < len(margins):
        signed, weight, margins = signed.take(seen, axis=0), weight[seen], margins[seen]
    losses, slopes = loss.value(margins), loss.slope(margins)
    shares, by_loss, by_place = ramp(loss.threshold, aim.place, aim.width, losses)
    on = np.flatnonzero((shares > 0) & (shares < 1))
    if not on.size:  # how far the next row is matters only where none is on the ramp
        outside, inside = (shares <= 0) & (by_place > 0), (shares >= 1) & (by_place > 0)
        found.up = min(found.up, float((-shares[outside] / by_place[outside]).min(initial=np.inf)))
        found.down = min(found.down, float(((shares[inside] - 1) / by_place[inside]).min(initial=np.inf)))
    held = weight * np.clip(shares, 0.0, 1.0)
    found.mass, found.value = found.mass + float(held.sum()), found.value + float(held @ losses)
    scaled = signed * np.sqrt(held * _bend(loss, margins, slopes))[:, None]
    found.held += scaled.T @ scaled
    pulls, values, points = -held * slopes, losses, margins
    gradient = pulls @ signed
    found.gradient += gradient
    if aim.touch is not None:
        points = -(signed @ aim.touch)
        pulls, values = -held * loss.slope(points), loss.value(points)
        gradient = pulls @ signed
    ahead, heights = signed[:, -1] < 0, held * values + pulls * points
    for total, part in ((found.heights, heights), (found.pulls, pulls)):
        total += float(part @ ~ahead), float(part @ ahead)
    across = (pulls * ahead) @ signed
    found.across += np.stack([gradient - across, across])
    each, change = slopes[on, None] * signed.take(on, axis=0), weight[on] * by_loss[on]
    found.moved += (each * change[:, None]).T @ each
    found.by_place -= (weight[on] * by_place[on]) @ each
    found.mass_by_c -= change @ each
    found.mass_by_place += float(weight[on] @ by_place[on])


def _bend(loss: Loss, margins: Array, slopes: Array) -> Array:
    if loss.bend is not None:
        return loss.bend(slopes)
    return np.maximum(loss.slope(margins + _STEP) - loss.slope(margins - _STEP), 0.0) / (2 * _STEP)


def ramp(threshold: float, place: float, width: float, losses: Array) -> tuple[Array, Array, Array]:
    """Shares of the losses (samples,), not clipped to [0, 1], and their derivatives w.r.t. the loss and the place."""
    edge, wrong = np.exp(-place), losses >= threshold
    small = np.maximum(np.where(wrong, threshold, losses), 1e-300)
    shares = 0.5 + np.where(wrong, 2 * threshold - edge - losses, threshold * (np.log(small) + place)) / width
    by_loss = np.where(wrong, -1.0, threshold / small) / width
    return shares, by_loss, np.where(wrong, edge, threshold) / width


def place_of(loss: Loss, losses: Array, mass: Array, k: float, width: float, hint: float = 0.0) -> float | None:
    """The place at which weights of losses (samples,) sum to ``k``; None where k reaches beyond twice T.

    The search starts around ``hint``.

    Examples
    --------
    >>> from closecall.losses import get_loss
    >>> losses = np.array([0.1, 0.2, 0.6, 0.8, 3.0])
    >>> place = place_of(get_loss("logistic"), losses, np.ones(5), 3.0, 0.01)
    >>> bool(0.1 < np.exp(-place) < 0.2)
    True
    """
    threshold, wrong = loss.threshold, losses >= loss.threshold
    far, heavy = (2 * threshold - losses[wrong]) / width + 0.5, mass[wrong]
    near, light = threshold * np.log(np.maximum(losses[~wrong], 1e-300)) / width + 0.5, mass[~wrong]

    def excess(place: float) -> float:
        taken = heavy @ np.clip(far - np.exp(-place) / width, 0.0, 1.0)
        return float(taken + light @ np.clip(near + threshold * place / width, 0.0, 1.0)) - k

    low = high = float(np.clip(hint, *PLACES))
    below = above = excess(low)
    reach = _HINTED
    while below >= 0 and low > PLACES[0]:
        high, above, low = low, below, max(low - reach, PLACES[0])
        below, reach = excess(low), 4 * reach
    while above < 0 and high < PLACES[1]:
        low, below, high = high, above, min(high + reach, PLACES[1])
        above, reach = excess(high), 4 * reach
    if above < 0 or below >= 0:
        return None if above < 0 else low
    return _crossing(excess, (low, high), (below, above), 1e-10 * k)


def _crossing(
    excess: Callable[[float], float], ends: tuple[float, float], values: tuple[float, float], enough: float
) -> float:
    """The zero of an increasing function, continuous or not: chords and bisection in turn."""
    (low, high), (below, above) = ends, values
    for number in range(_CHORDS):
        chord = low - (high - low) * below / (above - below)
        place = (low + high) / 2 if number % 3 == 2 or not low < chord < high else chord
        here = excess(place)
        if abs(here) <= enough or high - low <= 1e-13 * max(1.0, abs(high)):
            return place
        low, high, below, above = (place, high, here, above) if here < 0 else (low, place, below, here)
    return high

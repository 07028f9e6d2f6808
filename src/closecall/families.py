"""Families of aggregates: members have parameters and are named with them, such as ``tilted(-2)``.

Their weights sum to the mass (alpha means the same as for `average`) but may exceed an example's mass. If the value
is not ``weights . losses``, the ``excess`` is the difference, and the weights are the gradient of the value.

- ``tilted(t)``: n / t * log(mean(exp(t * loss))). t > 0 moves towards the largest loss and is convex; t < 0 moves away
  from outliers.
- ``superquantile(level, width)``: the mean of the largest 1 - level of the losses, smoothed over the width. Without
  smoothing it is `atk` with k = 1 - level, a fraction.
- ``human(turn, least)``: both ends of the losses count more than the middle.

All shapes are (problems, samples). :func:`closecall.aggregates.spectrum` makes an aggregate from any weights over the
sorted losses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy.special import xlogy

from ._names import Array

#: From a share of the mass, counted from the largest loss down, to the share of the weight that it carries.
Cumulative = Callable[[Array], Array]


def tilted_weights(losses: Array, mass: Array, t: float) -> Array:
    """Return n * softmax(t * losses), weighted by mass.

    Examples
    --------
    >>> tilted_weights(np.array([[0.0, 1.0]]), np.ones(2), 2.0).round(3).tolist()
    [[0.238, 1.762]]
    """
    mass = np.broadcast_to(mass, losses.shape)
    exponents = np.where(mass > 0, t * losses, -np.inf)
    raw = mass * np.exp(exponents - exponents.max(axis=1, keepdims=True))
    return raw * (mass.sum(axis=1, keepdims=True) / raw.sum(axis=1, keepdims=True))


def tilted_excess(weights: Array, mass: Array, t: float) -> Array:
    """Return how far n / t * log(mean(exp(t * losses))) exceeds ``weights . losses`` (problems,)."""
    mass = np.broadcast_to(mass, weights.shape)
    return -xlogy(weights, weights / np.where(mass > 0, mass, 1.0)).sum(axis=1) / t


def spectrum_weights(losses: Array, mass: Array, cumulative: Cumulative) -> Array:
    """Weight losses by rank: a group of equal losses gets the increase of the cumulative weight and shares it by mass.

    Examples
    --------
    >>> half = lambda share: np.minimum(2 * share, 1.0)
    >>> spectrum_weights(np.array([[3.0, 1.0, 1.0, 0.0]]), np.ones(4), half).tolist()
    [[2.0, 1.0, 1.0, 0.0]]
    """
    mass = np.broadcast_to(mass, losses.shape)
    order = np.argsort(-losses, axis=1, kind="stable")
    ranked = np.take_along_axis(losses, order, axis=1)
    ends = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1)
    places, last = np.arange(losses.shape[1]), losses.shape[1] - 1
    parted = np.diff(ranked, axis=1) != 0
    edge = np.ones((len(losses), 1), dtype=bool)
    # The places where the group of equal losses begins and ends, for each place.
    first = np.maximum.accumulate(np.where(np.hstack([edge, parted]), places, 0), axis=1)
    final = np.minimum.accumulate(np.where(np.hstack([parted, edge]), places, last)[:, ::-1], axis=1)[:, ::-1]
    below = np.hstack([np.zeros((len(losses), 1)), ends])
    start, end, total = np.take_along_axis(below, first, 1), np.take_along_axis(ends, final, 1), ends[:, -1:]
    gained = cumulative(np.minimum(end / total, 1.0)) - cumulative(np.minimum(start / total, 1.0))
    density = np.empty_like(losses, dtype=float)
    np.put_along_axis(density, order, gained * total / np.where(end > start, end - start, 1.0), axis=1)
    return mass * np.maximum(density, 0.0)


def smooth_weights(losses: Array, mass: Array, most: float, width: float) -> Array:
    """Return mass * clip(1 + (losses - level) / width, 0, most), with the level at which the weights sum to the mass.

    They maximise ``weights . losses`` less ``width / 2 * sum(mass * (weights / mass - 1) ** 2)`` over weights of at
    most ``most`` times the mass that sum to it (Laguel, Malick and Harchaoui's smoothing of the superquantile).

    Examples
    --------
    >>> smooth_weights(np.array([[0.0, 1.0, 2.0, 5.0]]), np.ones(4), 2.0, 4.0).tolist()
    [[0.5, 0.75, 1.0, 1.75]]
    """
    mass = np.broadcast_to(mass, losses.shape)
    total = mass.sum(axis=1, keepdims=True)
    # As the level falls past a point, an example begins to count or reaches its maximum; between points the sum is
    # linear.
    points = np.hstack([losses + width, losses - width * (most - 1)])
    order = np.argsort(-points, axis=1)
    points = np.take_along_axis(points, order, axis=1)
    slopes = np.cumsum(np.take_along_axis(np.hstack([mass, -mass]), order, axis=1), axis=1) / width
    sums = np.cumsum(slopes[:, :-1] * -np.diff(points, axis=1), axis=1)
    place = np.minimum((sums < total).sum(axis=1, keepdims=True), sums.shape[1] - 1)
    slope, above = np.take_along_axis(slopes, place, axis=1), np.take_along_axis(sums, place, axis=1) - total
    level = np.take_along_axis(points, place + 1, axis=1) + above / np.where(slope > 0, slope, np.inf)
    shares = np.clip(1 + (losses - level) / width, 0, most)
    between = mass * ((shares > 0) & (shares < most))
    room = between.sum(axis=1, keepdims=True)
    missing = total - (mass * shares).sum(axis=1, keepdims=True)  # by rounding
    return mass * shares + between * np.where(room > 0, missing / np.where(room > 0, room, 1.0), 0.0)


def smooth_excess(weights: Array, mass: Array, width: float) -> Array:
    """Return how far the smoothed value exceeds ``weights . losses`` (problems,); it is never positive."""
    mass = np.broadcast_to(mass, weights.shape)
    shares = weights / np.where(mass > 0, mass, 1.0)
    return -width / 2 * (mass * np.square(shares - 1)).sum(axis=1)


def prospect(turn: float, least: float) -> Cumulative:
    """Return the cumulative weight of the human-aligned risk of Leqi, Prasad and Ravikumar (2019).

    It is a polynomial of F, the share of smaller losses, whose density has the minimum ``least`` at F = (turn + 1) / 3.
    Here the share is counted from the largest loss down.
    """
    scale = 3 * (1 - least) / (turn**2 - turn + 1)

    def cumulative(share: Array) -> Array:
        below = 1 - share
        return 1 - (scale * (below**3 - (turn + 1) * below**2 + turn * below) + below)

    return cumulative


class Weighing(NamedTuple):
    """A member of a family: (losses, mass) -> weights, whether it is convex, (weights, mass) -> excess (problems,)."""

    weigh: Callable[[Array, Array], Array]
    convex: bool
    excess: Callable[[Array, Array], Array] | None = None


@dataclass(frozen=True)
class Family:
    """Aggregates that differ only in their parameters.

    Parameters
    ----------
    make : callable
        Numbers -> Weighing.
    grid : tuple of str
        The members that a search tries when given only the family's name.
    label, what : str
        The name and a one-line description, for display.
    """

    make: Callable[..., Weighing]
    grid: tuple[str, ...]
    label: str
    what: str


def _check(valid: bool, name: str, value: float, rule: str) -> None:
    if not valid:
        raise ValueError(f"{name}={value!r} must be {rule}")


def _tilted(t: float) -> Weighing:
    _check(math.isfinite(t), "t", t, "a finite number; for the limit of large t, use `maximal`")
    excess = partial(tilted_excess, t=t) if t else None
    return Weighing(partial(tilted_weights, t=t), t >= 0, excess)


def _superquantile(level: float, width: float) -> Weighing:
    _check(0 <= level < 1, "level", level, "a share of the mass in [0, 1)")
    _check(0 < width < math.inf, "width", width, "a positive number; without smoothing, use `atk` with k = 1 - level")
    return Weighing(
        partial(smooth_weights, most=1 / (1 - level), width=width), True, partial(smooth_excess, width=width)
    )


def _human(turn: float, least: float) -> Weighing:
    _check(0 <= turn <= 1, "turn", turn, "in [0, 1]")
    _check(0 <= least <= 1, "least", least, "in [0, 1]")
    return Weighing(partial(spectrum_weights, cumulative=prospect(turn, least)), False)


#: Every family by name: tilted losses (Li et al. 2021), smoothed superquantiles (Laguel et al. 2021), the human-aligned
#: risk (Leqi et al. 2019).
FAMILIES: dict[str, Family] = {
    "tilted": Family(
        _tilted,
        tuple(f"tilted({t:g})" for t in (-4, -2, -1, -0.5, 0.5, 1, 2, 4)),
        "tilted loss",
        "rows weighted by exp(t * loss): towards the largest losses, or away from outliers",
    ),
    "superquantile": Family(
        _superquantile,
        tuple(f"superquantile({p:g},{w:g})" for p in (0.5, 0.8, 0.95) for w in (0.1, 1)),
        "superquantile",
        "the mean of the largest losses, smoothed",
    ),
    "human": Family(
        _human,
        tuple(f"human({a:g},{b:g})" for a in (0.2, 0.4, 0.8) for b in (0.3, 0.7)),
        "human-aligned risk",
        "the largest and the smallest losses count more than the middle",
    ),
}


def family_of(name: str) -> Family | None:
    """Return the family with that name or member, or None.

    Examples
    --------
    >>> family_of("tilted(-2)") is family_of("tilted"), family_of("atk")
    (True, None)
    """
    return FAMILIES.get(name.partition("(")[0])


def expand(name: str) -> tuple[str, ...]:
    """Return the members that a search tries for a name: the grid of a family, or just that aggregate.

    Examples
    --------
    >>> expand("tilted")[:2], expand("atk")
    (('tilted(-4)', 'tilted(-2)'), ('atk',))
    """
    return FAMILIES[name].grid if name in FAMILIES else (name,)

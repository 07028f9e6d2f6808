"""Families of aggregates, whose members have parameters in their names, such as ``tilted(-2)``.

The weights of a member sum to the total mass, so alpha means the same as for `average`, but a weight may exceed its
example's mass. The weights are the gradient of the value, which is ``weights . losses`` plus ``excess``.

- ``tilted(t)``: n / t * log(mean(exp(t * loss))). For t > 0, it is convex; for t < 0, outliers count less.
- ``superquantile(level, width)``: the mean of the largest losses (a fraction 1 - level of all losses), smoothed over
  the width. Without smoothing, it is `atk` with the fraction k = 1 - level.
- ``human(turn, least)``: the largest and the smallest losses count more than those in between.

All arrays have shape (problems, samples).
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

#: Maps a share of the mass, counted from the largest loss down, to the share of the total weight that it receives.
Cumulative = Callable[[Array], Array]


def tilted_weights(losses: Array, mass: Array, t: float) -> Array:
    """Return n * softmax(t * losses), where every example is weighted by its mass."""
    mass = np.broadcast_to(mass, losses.shape)
    exponents = np.where(mass > 0, t * losses, -np.inf)
    raw = mass * np.exp(exponents - exponents.max(axis=1, keepdims=True))
    return raw * (mass.sum(axis=1, keepdims=True) / raw.sum(axis=1, keepdims=True))


def tilted_excess(weights: Array, mass: Array, t: float) -> Array:
    """Return n / t * log(mean(exp(t * losses))) minus ``weights . losses`` (problems,)."""
    mass = np.broadcast_to(mass, weights.shape)
    return -xlogy(weights, weights / np.where(mass > 0, mass, 1.0)).sum(axis=1) / t


def spectrum_weights(losses: Array, mass: Array, cumulative: Cumulative) -> Array:
    """Return weights by rank; equal losses share the increase in cumulative weight in proportion to their masses.

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
    # For each rank, the ranks at which its group of equal losses begins and ends.
    first = np.maximum.accumulate(np.where(np.hstack([edge, parted]), places, 0), axis=1)
    final = np.minimum.accumulate(np.where(np.hstack([parted, edge]), places, last)[:, ::-1], axis=1)[:, ::-1]
    below = np.hstack([np.zeros((len(losses), 1)), ends])
    start, end, total = np.take_along_axis(below, first, 1), np.take_along_axis(ends, final, 1), ends[:, -1:]
    gained = cumulative(np.minimum(end / total, 1.0)) - cumulative(np.minimum(start / total, 1.0))
    density = np.empty_like(losses, dtype=float)
    np.put_along_axis(density, order, gained * total / np.where(end > start, end - start, 1.0), axis=1)
    return mass * np.maximum(density, 0.0)


def smooth_weights(losses: Array, mass: Array, most: float, width: float) -> Array:
    """Return mass * clip(1 + (losses - level) / width, 0, most), with the level for which the weights sum to the mass.

    Among all weights that sum to the mass and are at most ``most`` times the mass, these maximise ``weights . losses``
    minus ``width / 2 * sum(mass * (weights / mass - 1) ** 2)``: Laguel et al.'s smoothing of the superquantile.

    Examples
    --------
    >>> smooth_weights(np.array([[0.0, 1.0, 2.0, 5.0]]), np.ones(4), 2.0, 4.0).tolist()
    [[0.5, 0.75, 1.0, 1.75]]
    """
    mass = np.broadcast_to(mass, losses.shape)
    total = mass.sum(axis=1, keepdims=True)
    # As the level falls past a point, an example begins to count or reaches its maximum; in between the sum is linear.
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
    missing = total - (mass * shares).sum(axis=1, keepdims=True)  # due to rounding
    return mass * shares + between * np.where(room > 0, missing / np.where(room > 0, room, 1.0), 0.0)


def smooth_excess(weights: Array, mass: Array, width: float) -> Array:
    """Return the smoothed value minus ``weights . losses`` (problems,), which is never positive."""
    mass = np.broadcast_to(mass, weights.shape)
    shares = weights / np.where(mass > 0, mass, 1.0)
    return -width / 2 * (mass * np.square(shares - 1)).sum(axis=1)


def prospect(turn: float, least: float) -> Cumulative:
    """Return the cumulative weight of the human-aligned risk of Leqi, Prasad and Ravikumar (2019).

    It is a polynomial in F, the share of smaller losses. The minimum of its derivative is ``least``, at F = (turn + 1)
    / 3. Here, the share is counted from the largest loss down.
    """
    scale = 3 * (1 - least) / (turn**2 - turn + 1)

    def cumulative(share: Array) -> Array:
        below = 1 - share
        return 1 - (scale * (below**3 - (turn + 1) * below**2 + turn * below) + below)

    return cumulative


class Weighing(NamedTuple):
    """A member of a family: its weight function, whether it is convex, and the function that computes its excess."""

    weigh: Callable[[Array, Array], Array]
    convex: bool
    excess: Callable[[Array, Array], Array] | None = None


@dataclass(frozen=True)
class Family:
    """Aggregates that differ only in the parameters from which ``make`` creates a member.

    A search that is given only the name of the family tries the members in ``grid``. ``label`` and ``what`` are the
    name and a one-line description, for display.
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
    return Weighing(partial(tilted_weights, t=t), t >= 0, partial(tilted_excess, t=t) if t else None)


def _superquantile(level: float, width: float) -> Weighing:
    _check(0 <= level < 1, "level", level, "a share of the mass in [0, 1)")
    _check(0 < width < math.inf, "width", width, "a positive number; for no smoothing, use `atk` with k = 1 - level")
    weigh = partial(smooth_weights, most=1 / (1 - level), width=width)
    return Weighing(weigh, True, partial(smooth_excess, width=width))


def _human(turn: float, least: float) -> Weighing:
    _check(0 <= turn <= 1, "turn", turn, "in [0, 1]")
    _check(0 <= least <= 1, "least", least, "in [0, 1]")
    return Weighing(partial(spectrum_weights, cumulative=prospect(turn, least)), False)


#: Every family by name (Li et al. 2021; Laguel et al. 2021; Leqi et al. 2019).
FAMILIES: dict[str, Family] = {
    "tilted": Family(
        _tilted,
        tuple(f"tilted({t:g})" for t in (-4, -2, -1, -0.5, 0.5, 1, 2, 4)),
        "tilted loss",
        "weights examples by exp(t * loss), to emphasise the largest losses or to ignore outliers",
    ),
    "superquantile": Family(
        _superquantile,
        tuple(f"superquantile({p:g},{w:g})" for p in (0.5, 0.8, 0.95) for w in (0.1, 1)),
        "superquantile",
        "a smoothed mean of the largest losses",
    ),
    "human": Family(
        _human,
        tuple(f"human({a:g},{b:g})" for a in (0.2, 0.4, 0.8) for b in (0.3, 0.7)),
        "human-aligned risk",
        "the largest and the smallest losses count more than those in between",
    ),
}


def family_of(name: str) -> Family | None:
    """Return the family with this name, or with a member of this name, or None.

    Examples
    --------
    >>> family_of("tilted(-2)") is family_of("tilted"), family_of("atk")
    (True, None)
    """
    return FAMILIES.get(name.partition("(")[0])


def expand(name: str) -> tuple[str, ...]:
    """Return what a search tries for a name: the grid of a family, or just the aggregate with that name.

    Examples
    --------
    >>> expand("tilted")[:2], expand("atk")
    (('tilted(-4)', 'tilted(-2)'), ('atk',))
    """
    return FAMILIES[name].grid if name in FAMILIES else (name,)

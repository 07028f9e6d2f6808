"""Aggregates, which turn individual losses into weights.

An aggregate is defined by the weights that it assigns to examples. Its value is ``weights . losses`` (plus a constant
for ``close``, see :func:`closecall.objective.aggregate_value`), and its gradient is computed with these weights fixed.

Three rules always apply. *Tied examples share*: if several examples tie for the k-th rank, they share the remaining
mass in proportion to their own masses. *Sample weights are masses*: an example of mass 2 counts as two examples. *The
order of the examples does not matter*.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral, Real

import numpy as np

from ._names import Array, lookup
from .families import FAMILIES, Cumulative, Weighing, spectrum_weights

Count = int | float | None


def resolve_count(count: Count, total: float, *, name: str = "k", low: float = 1) -> float:
    """Convert ``k`` to a mass; ``name`` is its name in messages, and ``low`` is the smallest count allowed.

    An int is a number of examples (1 is one example), a float in (0, 1] is a fraction of the mass, and None means 1.0.

    Examples
    --------
    >>> resolve_count(10, 554), resolve_count(0.5, 554), resolve_count(1.0, 554), resolve_count(None, 554)
    (10.0, 277.0, 554.0, 554.0)
    """
    if count is None:
        return float(total)
    if isinstance(count, bool) or not isinstance(count, Real):
        raise TypeError(f"{name} must be an int, a float in (0, 1] or None, not {count!r}")
    if isinstance(count, Integral):
        if count < low:
            raise ValueError(f"{name}={count} is too small; it is a number of examples and must be >= {low:g}")
        if count > total * (1 + 1e-12):
            raise ValueError(
                f"{name}={count} exceeds the {total:g} examples available (total sample weight); "
                f"use a smaller {name}, a fraction in (0, 1], or None for all"
            )
        return min(float(count), float(total))
    fraction = float(count)
    if (low == 0 and fraction == 0) or 0 < fraction <= 1:
        return fraction * total
    hint = f", {name}={fraction:.0f}" if fraction.is_integer() and fraction >= low else ""
    raise ValueError(f"{name}={count!r} is not a fraction in (0, 1]; pass an int for a count of examples{hint}")


def warn_of_one(aggregate: str, *counts: Count, depth: int = 3) -> None:
    """Warn that k=1.0 means all examples, unless other counts are fractions too."""
    alone = {count for count in counts if isinstance(count, Real) and not isinstance(count, Integral)} == {1.0}
    if alone and "k" in get_aggregate(aggregate).takes:
        warnings.warn(
            "k=1.0 is a fraction and selects all examples. Pass the int k=1 for one example, or k=None for all of them",
            UserWarning,
            stacklevel=depth,
        )


def take_smallest(keys: Array, mass: Array, k: Array | float) -> Array:
    """Return weights that select the smallest keys, with a total mass of ``k``; tied examples share the remaining mass.

    Keys have shape (problems, samples), masses have shape (samples,) or (problems, samples), and ``k`` is a float or an
    array of shape (problems,). Each weight (problems, samples) lies between 0 and the example's mass; the weights of
    each problem sum to ``k``.

    Examples
    --------
    >>> take_smallest(np.array([[3.0, 1.0, 1.0, 0.0]]), np.ones(4), 2.0).tolist()
    [[0.0, 0.5, 0.5, 1.0]]
    """
    mass = np.broadcast_to(mass, keys.shape)
    wanted = np.broadcast_to(np.asarray(k, dtype=float), keys.shape[:1])[:, None]
    order = np.argsort(keys, axis=1, kind="stable")
    cumulative = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1)
    # The k-th rank is the first at which the cumulative mass reaches k. A sum of n masses is exact to about n eps and a
    # fraction of it to one eps more (0.07 * 100 > 7); such a rounding error must not cause the next example to be
    # included.
    almost = 1 - 4 * keys.shape[1] * np.finfo(float).eps
    place = np.minimum((cumulative < wanted * almost).sum(axis=1, keepdims=True), keys.shape[1] - 1)
    edge = np.take_along_axis(keys, np.take_along_axis(order, place, axis=1), axis=1)
    inside, tied = mass * (keys < edge), mass * (keys == edge)
    tied_mass = tied.sum(axis=1, keepdims=True)
    share = np.clip((wanted - inside.sum(axis=1, keepdims=True)) / np.where(tied_mass > 0, tied_mass, 1), 0, 1)
    # If all of the mass is selected, the weights are an exact copy of it, because close with k = n is average.
    return np.where(wanted >= cumulative[:, -1:] * almost, mass, inside + share * tied)


Weigh = Callable[[Array, Array, float, Array, Array], Array]


def _average(losses: Array, mass: Array, threshold: float, k: Array, m: Array) -> Array:
    return np.array(np.broadcast_to(mass, losses.shape), dtype=float)


def _maximal(losses: Array, mass: Array, threshold: float, k: Array, m: Array) -> Array:
    return take_smallest(-losses, mass, 1.0)


def _top(losses: Array, mass: Array, threshold: float, k: Array, m: Array) -> Array:
    # The k-th largest loss is where the cumulative mass from the top reaches k. Its group of tied examples ends at
    # `end`. The unit of mass that ends there includes neighbours of the group only if the group's mass is below 1.
    largest = take_smallest(-losses, mass, k)
    touched = np.where(largest > 0, losses, np.inf)
    group_floor = touched.min(axis=1, keepdims=True)
    end = np.maximum((np.broadcast_to(mass, losses.shape) * (losses >= group_floor)).sum(axis=1), 1.0)
    return take_smallest(-losses, mass, end) - take_smallest(-losses, mass, end - 1.0)


def _atk(losses: Array, mass: Array, threshold: float, k: Array, m: Array) -> Array:
    return take_smallest(-losses, mass, k)


def _close(losses: Array, mass: Array, threshold: float, k: Array, m: Array) -> Array:
    return take_smallest(np.abs(losses - threshold), mass, k)


def _ranked_range(losses: Array, mass: Array, threshold: float, k: Array, m: Array) -> Array:
    return take_smallest(-losses, mass, k) - take_smallest(-losses, mass, m)


def _trimmed(losses: Array, mass: Array, threshold: float, k: Array, m: Array) -> Array:
    return np.broadcast_to(mass, losses.shape) - take_smallest(-losses, mass, m)


@dataclass(frozen=True)
class Aggregate:
    """A rule that turns n losses into weights.

    Parameters
    ----------
    weigh : callable
        ``(losses, mass, threshold, k, m) -> weights``, where ``k`` and ``m`` have already been converted to masses.
    takes : tuple of str
        Which of the counts ``k`` and ``m`` the aggregate uses.
    decays : bool
        Whether k decreases during the run, as in Algorithm 1.
    convex : bool
        Whether it is convex if the loss is. If so, ``weights . losses`` is a lower bound on its value for any losses.
    full : bool
        Whether the weights equal the masses, as in `average`, whenever k is the total mass and m is 0.
    sums_to : float, optional
        The sum of the weights, if it differs from k - m. An aggregate without k uses this sum as k.
    close : bool
        Whether the aggregate uses the threshold and adds M for each misclassified example outside the selection.
    bounded : bool
        Whether no weight exceeds the mass of its example.
    excess : callable, optional
        ``(weights, mass) -> (problems,)``: the value minus ``weights . losses``; zero by default.
    """

    name: str
    weigh: Weigh
    takes: tuple[str, ...] = ()
    decays: bool = False
    convex: bool = False
    full: bool = False
    sums_to: float | None = None
    close: bool = False
    bounded: bool = True
    excess: Callable[[Array, Array], Array] | None = None

    @property
    def plain(self) -> bool:
        """Whether the aggregate is `average` (under any name), which takes neither k nor m and uses all examples."""
        return self.full and not self.takes

    def counts(self, k: Count, m: Count, total: float) -> tuple[float, float]:
        """Convert ``k`` and ``m`` to masses and check those that this aggregate uses."""
        k_mass = resolve_count(k, total) if "k" in self.takes else min(float(self.sums_to or total), float(total))
        m_mass = resolve_count(0 if m is None else m, total, name="m", low=0) if "m" in self.takes else 0.0
        if "m" in self.takes and m_mass >= k_mass:
            raise ValueError(
                f"m={m!r} leaves no examples: it must be below {'k' if 'k' in self.takes else 'n'}={k_mass:g}"
            )
        return k_mass, m_mass

    def is_average(self, k: float, m: float, total: float) -> bool:
        """Whether the aggregate equals `average` for these values of k and m.

        Examples
        --------
        >>> get_aggregate("atk").is_average(5.0, 0.0, 5.0), get_aggregate("top").is_average(5.0, 0.0, 5.0)
        (True, False)
        """
        return self.full and k >= total and m == 0

    def above(self, weights: Array, mass: Array) -> Array:
        """Return the excess of the value over ``weights . losses`` (problems,), which is usually zero."""
        return np.zeros(len(weights)) if self.excess is None else self.excess(weights, mass)

    def carried(self, k: Array | float, m: Array | float) -> Array | float:
        """Return the sum of the weights, where ``k`` and ``m`` are masses."""
        return np.maximum(np.subtract(k, m), 0.0) if self.sums_to is None else self.sums_to

    def weights(
        self,
        losses: Array,
        *,
        threshold: float = math.nan,
        k: Count = None,
        m: Count = None,
        mass: Array | None = None,
    ) -> Array:
        """Return the weights, with the same shape as the losses: (samples,) or (problems, samples).

        Only `close` and `close_decay` use the threshold T of the individual loss. ``k`` and ``m`` are numbers of
        examples or fractions of the mass, and ``mass`` (samples,) contains sample weights, which default to 1.

        Examples
        --------
        >>> get_aggregate("close").weights(np.array([0.1, 2.0, 0.7]), k=1, threshold=0.6931).tolist()
        [0.0, 0.0, 1.0]
        """
        losses = np.asarray(losses, dtype=float)
        rows = np.atleast_2d(losses)
        if rows.shape[1] == 0:
            raise ValueError("there are no losses to aggregate")
        if not np.isfinite(rows).all():
            raise ValueError("the losses contain NaN or infinite values; check the scores that produced them")
        mass = np.ones(rows.shape[1]) if mass is None else check_mass(mass, rows.shape[1])
        if self.close and math.isnan(threshold):
            raise ValueError(f"{self.name!r} needs the loss's threshold T = l(0), e.g. log(2) for the logistic loss")
        k_mass, m_mass = self.counts(k, m, float(mass.sum()))
        return self.weigh(rows, mass, threshold, np.asarray(k_mass), np.asarray(m_mass)).reshape(losses.shape)


def check_mass(mass: Array, samples: int) -> Array:
    """Return sample weights as floats; invalid weights, or the wrong number of weights, raise ``ValueError``."""
    mass = np.asarray(mass, dtype=float)
    if mass.shape != (samples,):
        raise ValueError(f"sample_weight has shape {mass.shape}; expected ({samples},), one weight for each example")
    if not np.isfinite(mass).all():
        raise ValueError("sample_weight contains NaN or infinite values")
    if (mass < 0).any():
        raise ValueError("sample_weight contains negative values; weights are masses and must be >= 0")
    if not (mass > 0).any():
        raise ValueError("sample_weight is zero everywhere; at least one example needs a positive weight")
    return mass


def _aggregate_of(name: str, member: Weighing) -> Aggregate:
    def weigh(losses: Array, mass: Array, threshold: float, k: Array, m: Array) -> Array:
        return member.weigh(losses, mass)

    return Aggregate(name, weigh, convex=member.convex, bounded=False, excess=member.excess)


def spectrum(name: str, cumulative: Cumulative, *, convex: bool = False) -> Aggregate:
    """Return an aggregate that weights losses only by rank; its weights sum to the total mass.

    Add the aggregate to :data:`AGGREGATES` to use it by name. ``cumulative`` increases from 0 to 1 on [0, 1]: it maps a
    share of the mass, counted from the largest loss down, to the share of the total weight that this mass receives;
    ``lambda u: u`` gives `average`. If ``cumulative`` is concave, larger losses never have smaller weights, and the
    aggregate is ``convex``.

    Examples
    --------
    >>> exponential = spectrum("exponential", lambda u: np.expm1(-2 * u) / np.expm1(-2.0), convex=True)
    >>> exponential.weights(np.array([0.1, 3.0, 0.7])).round(3).tolist()
    [0.445, 1.688, 0.867]
    """
    return _aggregate_of(name, Weighing(lambda losses, mass: spectrum_weights(losses, mass, cumulative), convex))


@lru_cache(maxsize=512)
def _member(name: str) -> Aggregate:
    """Return the family member with this name, such as ``tilted(-2)``; raise ``KeyError`` for an unknown family."""
    if name in FAMILIES:
        raise ValueError(f"{name!r} is a family of aggregates; name a member, such as {FAMILIES[name].grid[0]!r}")
    parts = re.fullmatch(r"(\w+)\(([^()]*)\)", name)
    if parts is None or parts[1] not in FAMILIES:
        raise KeyError(name)
    family = FAMILIES[parts[1]]
    try:
        return _aggregate_of(name, family.make(*map(float, parts[2].split(","))))
    except (TypeError, ValueError) as error:
        example = family.grid[0]
        raise ValueError(f"{name!r} is not a valid aggregate: {error}; a valid name is {example!r}") from None


class _Aggregates(dict[str, Aggregate]):
    """The aggregates by name. Members of families are created on demand and are not listed."""

    def __missing__(self, name: str) -> Aggregate:
        return _member(name)

    def __contains__(self, name: object) -> bool:
        try:
            return bool(self[name])  # type: ignore[index]
        except (KeyError, TypeError, ValueError):
            return False


#: All aggregates by name: those of the paper, then two closely related ones (Hu et al. 2020; trimming). Members of
#: families, such as `tilted(-2)`, can be looked up here too (:mod:`closecall.families`).
AGGREGATES: dict[str, Aggregate] = _Aggregates(
    (aggregate.name, aggregate)
    for aggregate in (
        Aggregate("average", _average, convex=True, full=True),
        Aggregate("maximal", _maximal, convex=True, sums_to=1.0),
        Aggregate("top", _top, ("k",), sums_to=1.0),
        Aggregate("atk", _atk, ("k",), convex=True, full=True),
        Aggregate("close", _close, ("k",), full=True, close=True),
        Aggregate("close_decay", _close, ("k",), decays=True, full=True, close=True),
        Aggregate("ranked_range", _ranked_range, ("k", "m"), full=True),
        Aggregate("trimmed", _trimmed, ("m",), full=True),
    )
)


def get_aggregate(name: str) -> Aggregate:
    """Return the aggregate with the given name; an unknown name raises a ``ValueError`` that lists the known names.

    Examples
    --------
    >>> get_aggregate("close_decay").decays
    True
    >>> get_aggregate("tilted(1)").weights(np.array([0.0, 1.0])).round(2).tolist()
    [0.54, 1.46]
    """
    return lookup(AGGREGATES, name, "aggregate")

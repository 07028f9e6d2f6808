"""The few hot functions: from margins to the pull of each example, a block of problems at a time.

A block is a few rows (problems) of one loss, one kind of aggregate and one fold, small enough to stay in cache.
Everything works on *minus* the margins, in place where it can. Measured on one AVX-512 core in float32: `np.exp` 0.5
ns an element, `np.partition` 1.6 (one place for all rows), `np.sort` 3, `scipy.special.expit` 8.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..losses import Loss, get_loss

#: Rows up to this long are sorted whole, so that one call serves rows of different k.
SORT_LIMIT = 640


@dataclass(frozen=True)
class Mass:
    """A fold's sample weights: all ones, zeros and ones, or general."""

    values: Array
    unit: bool
    outside: Array | None  # boolean, only for zeros and ones
    total: float


def make_mass(values: Array, dtype: type) -> Mass:
    """Classify sample weights (samples,) once, for every step."""
    if (values == 1).all():
        return Mass(values.astype(dtype), True, None, float(values.sum()))
    zero = values == 0
    if (values[~zero] == 1).all():
        return Mass(values.astype(dtype), True, zero, float(values.sum()))
    return Mass(values.astype(dtype), False, None, float(values.sum()))


# --- activations: minus margins -> (closeness key, minus slope). The buffer handed in may be overwritten.


def _logistic(negative: Array) -> tuple[Array, Array]:
    # With p = sigmoid(m), abs(l - log 2) orders examples like max(2p, 1/(2p)): no logarithm is needed.
    half = np.exp(negative, out=negative)
    half += 1
    half *= 0.5
    twice = np.reciprocal(half)
    key = np.maximum(half, twice, out=half)
    twice *= -0.5
    twice += 1
    return key, twice


def _hinge(negative: Array) -> tuple[Array, Array]:
    slope = (negative > -1).astype(negative.dtype)
    np.maximum(negative, -1, out=negative)
    return np.abs(negative, out=negative), slope


def _generic(loss: Loss) -> Callable[[Array], tuple[Array, Array]]:
    def activation(negative: Array) -> tuple[Array, Array]:
        margins = np.negative(negative, out=negative)
        return np.abs(loss.value(margins) - loss.threshold).astype(margins.dtype), -loss.slope(margins)

    return activation


def closeness(loss: str) -> Callable[[Array], tuple[Array, Array]]:
    """The activation of a loss: minus margins -> (key that grows with abs(l - T), minus slope)."""
    return {"logistic": _logistic, "hinge": _hinge}.get(loss) or _generic(get_loss(loss))


def logistic_slope(negative: Array) -> Array:
    """Minus the slope of the logistic loss, in place."""
    np.negative(negative, out=negative)
    np.exp(negative, out=negative)
    negative += 1
    return np.reciprocal(negative, out=negative)


def minus_slope(loss: str, negative: Array) -> Array:
    """Minus the slope of the loss, possibly in place."""
    if loss == "logistic":
        return logistic_slope(negative)
    if loss == "hinge":
        return (negative > -1).astype(negative.dtype)
    return -get_loss(loss).slope(-negative)


# --- selection


def _edges(keys: Array, places: Array) -> Array:
    """The ``places``-th smallest key of each row (0-based), (problems, 1)."""
    if keys.shape[1] <= SORT_LIMIT:
        return np.take_along_axis(np.sort(keys, axis=1), places[:, None], axis=1)
    edges = np.empty((len(keys), 1), dtype=keys.dtype)
    for place in np.unique(places):  # one SIMD partition for all rows of equal k
        rows = places == place
        edges[rows, 0] = np.partition(keys[rows] if not rows.all() else keys, place, axis=1)[:, place]
    return edges


def _weighted_edges(keys: Array, mass: Array, k: Array) -> Array:
    """The key at which the cumulative mass reaches k, in each row."""
    if keys.dtype == np.float32:  # sort (order-preserving integer of the key, index) packed into one word: SIMD
        bits = keys.view(np.int32)
        packed = (bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))).astype(np.int64) << 32
        packed |= np.arange(keys.shape[1])
        packed.sort(axis=1)
        order = packed & 0xFFFFFFFF
    else:
        order = np.argsort(keys, axis=1)
    cumulative = np.cumsum(mass[order], axis=1, dtype=np.float64)
    reached = (cumulative < (k * (1 - 1e-12))[:, None]).sum(axis=1, keepdims=True)
    places = np.minimum(reached, keys.shape[1] - 1)
    return np.take_along_axis(keys, np.take_along_axis(order, places, axis=1), axis=1)


def select(keys: Array, k: Array, mass: Mass) -> Array:
    """Weights of the mass k with the smallest keys; ties share (boolean where every weight is 0 or 1).

    The fast twin of :func:`closecall.aggregates.take_smallest`.

    Parameters
    ----------
    keys : array (problems, samples)
        Overwritten outside a fold.
    k : array (problems,)
        Positive masses.
    mass : Mass
    """
    if not mass.unit:
        edges = _weighted_edges(keys, mass.values, k)
        tied = (keys == edges) * mass.values
        inside = (keys < edges) * mass.values
        room = k - inside.sum(axis=1, dtype=np.float64)
        share = np.clip(room / np.maximum(tied.sum(axis=1, dtype=np.float64), 1e-300), 0, 1)
        return inside + share[:, None].astype(keys.dtype) * tied
    if mass.outside is not None:
        keys[:, mass.outside] = np.inf
    edges = _edges(keys, np.minimum(np.ceil(k).astype(np.intp), keys.shape[1]) - 1)
    inside = keys <= edges
    counts = np.count_nonzero(inside, axis=1)
    uneven = np.flatnonzero(counts != k)
    if not uneven.size:
        return inside
    weights = inside.astype(keys.dtype)
    tied = keys[uneven] == edges[uneven]
    ties = np.count_nonzero(tied, axis=1)
    share = (k[uneven] - (counts[uneven] - ties)) / ties
    weights[uneven] = np.where(tied, share[:, None], weights[uneven])
    if mass.outside is not None:  # a row whose k is all of the fold may tie at infinity
        weights[:, mass.outside] = 0
    return weights


def _top_weights(keys: Array, k: Array, mass: Mass) -> Array:
    """One unit of weight, shared by the examples tied at the k-th smallest key (see aggregates._top)."""
    if mass.unit:
        if mass.outside is not None:
            keys[:, mass.outside] = np.inf
        edges = _edges(keys, np.ceil(k).astype(np.intp) - 1)
        tied = (keys == edges).astype(keys.dtype)
        return tied / np.count_nonzero(tied, axis=1)[:, None].astype(keys.dtype)
    edges = _weighted_edges(keys, mass.values, k)
    end = np.maximum(((keys <= edges) * mass.values).sum(axis=1, dtype=np.float64), 1.0)
    end = np.minimum(end, mass.total)
    start = end - 1.0
    weights = select(keys, end, mass)
    some = np.flatnonzero(start > 1e-9)
    if some.size:
        weights[some] -= select(keys[some], start[some], mass)
    return weights


# --- kinds: (loss, minus margins, k, m, mass) -> pull, an array (problems, samples) of weight times minus slope


def pull_all(loss: str, negative: Array, k: Array, m: Array, mass: Mass) -> Array:
    """``average``: every example pulls by its own slope."""
    pull = minus_slope(loss, negative)
    return pull if mass.unit and mass.outside is None else pull * mass.values


def pull_close(loss: str, negative: Array, k: Array, m: Array, mass: Mass) -> Array:
    """``close``: the k examples whose loss is nearest the threshold."""
    keys, slope = closeness(loss)(negative)
    return slope * select(keys, k, mass)


def pull_largest(loss: str, negative: Array, k: Array, m: Array, mass: Mass) -> Array:
    """``atk``, ``maximal``, ``ranked_range``, ``trimmed``: the losses ranked m+1..k."""
    weights = select(_rank_keys(loss, negative), k, mass)
    some = np.flatnonzero(m > 0)
    if some.size:
        weights = weights.astype(negative.dtype)
        weights[some] -= select(_rank_keys(loss, negative[some]), m[some], mass)
    return weights * minus_slope(loss, negative)


def pull_top(loss: str, negative: Array, k: Array, m: Array, mass: Mass) -> Array:
    """``top``: the k-th largest loss alone."""
    weights = _top_weights(_rank_keys(loss, negative), k, mass)
    return weights * minus_slope(loss, negative)


def _rank_keys(loss: str, negative: Array) -> Array:
    """Keys that grow as the loss falls, tied where the losses tie: margins, cut off where the loss is flat."""
    margins = -negative
    if loss in ("hinge", "squared_hinge", "modified_huber"):
        return np.minimum(margins, 1, out=margins)
    return np.clip(margins, -1, 1, out=margins) if loss == "ramp" else margins


#: How each aggregate pulls.
PULLS: dict[str, Callable[[str, Array, Array, Array, Mass], Array]] = {
    "average": pull_all,
    "maximal": pull_largest,
    "atk": pull_largest,
    "ranked_range": pull_largest,
    "trimmed": pull_largest,
    "top": pull_top,
    "close": pull_close,
    "close_decay": pull_close,
}

"""Cuts in NumPy: where the smallest keys of a row end, for eager code on the CPU.

``np.partition`` is many times faster than torch's sort, topk and kthvalue there. At usual batch sizes the number of
calls dominates, and a NumPy call is cheaper than one of torch's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from closecall._names import Array

LONG = 4096  # beyond this many keys with masses, narrowing down beats sorting
SAMPLE = 1024  # how many keys are sampled to narrow down a long row
EPSILON = float(np.finfo(np.float64).eps)


class Taken(NamedTuple):
    """The smallest keys of one row."""

    weights: Array  # (samples,), of the keys' dtype
    mass: float  # the weights' sum
    edge: float  # the key at the last place taken; NaN if nothing is


def slack(samples: int) -> float:
    """The factor by which a sum of this many masses may fall short of k through rounding, as in the core."""
    return 1 - 4 * samples * EPSILON


def take_row(keys: Array, wanted: float, mass: Array | None = None, total: float | None = None) -> Taken:
    """Weights of the smallest keys of one row, summing to ``wanted`` or to the total, if less; ties share.

    Parameters
    ----------
    keys : array (samples,)
    wanted : float
        Mass to take.
    mass : array (samples,), optional
    total : float, optional
        The sum of the masses, if known.

    Examples
    --------
    >>> take_row(np.array([3.0, 1.0, 1.0, 0.0]), 2.0).weights.tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    if total is None:
        total = keys.size if mass is None else float(mass.sum(dtype=float))
    if wanted >= total * slack(keys.size):
        whole = np.ones_like(keys) if mass is None else mass.astype(keys.dtype)
        real = keys if mass is None else keys[mass > 0]
        return Taken(whole, total, float(real.max()) if real.size else np.nan)
    if wanted <= 0:
        return Taken(np.zeros_like(keys), 0.0, np.nan)
    return _take_plain(keys, wanted) if mass is None else _take_weighted(keys, wanted, mass)


def _take_plain(keys: Array, wanted: float) -> Taken:
    place = max(int(np.ceil(wanted * slack(keys.size))) - 1, 0)
    edge = np.partition(keys, place)[place]
    until = keys <= edge
    count = np.count_nonzero(until)
    weights = until.astype(keys.dtype)
    if count != wanted:  # a tie at the edge, or a part of an example
        tied = keys == edge
        inside = count - np.count_nonzero(tied)
        weights[tied] = min(max((wanted - inside) / (count - inside), 0.0), 1.0) if count > inside else 0.0
    return Taken(weights, wanted, float(edge))


def _take_weighted(keys: Array, wanted: float, mass: Array) -> Taken:
    edge = weighted_edge(keys, mass, wanted * slack(keys.size))
    weights, tied = mass * (keys < edge), np.flatnonzero(keys == edge)
    inside, theirs = float(weights.sum(dtype=float)), mass[tied]
    share = float(theirs.sum(dtype=float))
    weights = weights.astype(keys.dtype, copy=False)
    weights[tied] = theirs * min(max((wanted - inside) / share, 0.0), 1.0) if share > 0 else 0.0
    return Taken(weights, wanted, float(edge))


def weighted_edge(keys: Array, mass: Array, target: float) -> Any:
    """The key at which the cumulative mass of one row reaches the target; beyond the end, the last key with mass."""
    if keys.size > LONG and target >= mass.sum(dtype=float):
        return keys[mass > 0].max() if (mass > 0).any() else keys.max()
    while keys.size > LONG:
        low, high = _bracket(keys, mass, target)
        below, above = keys < low, keys > high
        inside = float((mass * below).sum(dtype=float))
        between = float((mass * ~(below | above)).sum(dtype=float))
        if target <= inside and below.any():
            keep = below
        elif target <= inside + between:
            if low == high:
                return low
            keep, target = ~(below | above), target - inside
        else:
            keep, target = above, target - inside - between
        if keep.all():  # nothing but the sample's two ends: sorting is the way on
            break
        keys, mass = np.compress(keep, keys), np.compress(keep, mass)  # twice as fast as indexing with a mask
    order = keys.argsort()
    cumulative = mass[order].cumsum(dtype=float)
    return keys[order[cumulative.searchsorted(min(target, cumulative[-1]))]]


def _bracket(keys: Array, mass: Array, target: float) -> tuple[Any, Any]:
    # Two keys between which the target lies most likely: a sample says where, and what is kept is checked by its mass.
    step = max(keys.size // SAMPLE, 1)
    some, weights = keys[::step], mass[::step].astype(float)
    order = np.argsort(some)
    cumulative = np.cumsum(weights[order])
    if cumulative[-1] <= 0:
        return some[order[0]], some[order[-1]]
    place = np.searchsorted(cumulative, cumulative[-1] * target / mass.sum(dtype=float))
    spread = some.size // 20  # about three standard deviations of a median's place
    return some[order[max(place - spread, 0)]], some[order[min(place + spread, some.size - 1)]]


def cut_rows(keys: Array, mass: Array | None, wanted: Array, copies: Array | None = None) -> tuple[Array, Array, Array]:
    """The cut of many rows at once: the key at the k-th place, the mass below it and the mass tied with it.

    Parameters
    ----------
    keys : array (rows, samples)
    mass : array (rows, samples) or None
    wanted : array (rows, 1)
    copies : array of int, optional
        For small whole masses: the index of each sample, repeated by its mass. Weighted samples then need no sorting
        either.

    Returns
    -------
    edge, inside, tied : array (rows, 1)
    """
    if mass is not None and copies is None:
        edge = _weighted_edges(keys, mass, wanted)
    else:
        edge = _edges(keys if copies is None else keys[:, copies], wanted)
    parts = keys < edge, keys == edge
    if mass is None:
        sums = (np.count_nonzero(part, axis=1) for part in parts)
    else:
        sums = (np.einsum("ij,ij->i", mass, part, dtype=wanted.dtype) for part in parts)
    inside, tied = (each.astype(wanted.dtype)[:, None] for each in sums)
    return edge, inside, tied


def _edges(keys: Array, wanted: Array) -> Array:
    place = np.clip(np.ceil(wanted[:, 0]) - 1, 0, keys.shape[1] - 1).astype(np.intp)
    edge = np.empty((len(keys), 1), dtype=keys.dtype)
    for where in set(place.tolist()):  # rows of a grid share few different k
        chosen = place == where
        some = keys if chosen.all() else keys[chosen]
        edge[chosen, 0] = np.partition(some, where, axis=1)[:, where]
    return edge


def _weighted_edges(keys: Array, mass: Array, wanted: Array) -> Array:
    if keys.shape[1] > LONG:
        rows = zip(keys, mass, wanted[:, 0], strict=True)
        return np.array([[weighted_edge(*row)] for row in rows], dtype=keys.dtype)
    order = np.argsort(keys, axis=1)
    cumulative = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1, dtype=wanted.dtype)
    # Past the end (rounding, or more wanted than there is) the k-th place is the last key that has mass.
    reach = np.minimum(wanted, cumulative[:, -1:])
    place = (cumulative < reach).sum(axis=1, keepdims=True)
    return np.take_along_axis(keys, np.take_along_axis(order, place, axis=1), axis=1)

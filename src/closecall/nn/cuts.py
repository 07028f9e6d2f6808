"""Cuts in NumPy for eager code on the CPU: the points at which a selection of the smallest keys ends.

On the CPU, ``np.partition`` is many times faster than torch's sort, topk and kthvalue. At the usual batch sizes, the
number of calls dominates the cost, and a NumPy call is cheaper than a torch call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from closecall._names import Array


class Taken(NamedTuple):
    """The selection of the smallest keys of one row."""

    weights: Array  # (samples,), in the dtype of the keys
    mass: float  # the sum of the weights
    edge: float  # the largest selected key; NaN if nothing is selected


def almost(samples: Any, epsilon: float = 2.0**-52) -> Any:
    """Return the fraction of k that a sum of this many masses must reach; it allows for rounding, as in the core."""
    return 1 - 4 * samples * epsilon


def take_row(keys: Array, wanted: float, mass: Array | None = None, total: float | None = None) -> Taken:
    """Select the smallest keys (samples,) up to the mass ``wanted``; tied keys share the remainder.

    Examples
    --------
    >>> take_row(np.array([3.0, 1.0, 1.0, 0.0]), 2.0).weights.tolist()
    [0.0, 0.5, 0.5, 1.0]
    """
    if total is None:
        total = keys.size if mass is None else float(mass.sum(dtype=float))
    if wanted >= total * almost(keys.size):
        whole = np.ones_like(keys) if mass is None else mass.astype(keys.dtype)
        real = keys if mass is None else keys[mass > 0]
        return Taken(whole, total, float(real.max()) if real.size else np.nan)
    if wanted <= 0:
        return Taken(np.zeros_like(keys), 0.0, np.nan)
    if mass is None:
        place = max(int(np.ceil(wanted * almost(keys.size))) - 1, 0)
        edge = np.partition(keys, place)[place]
    else:
        edge = _weighted_edges(keys[None], mass[None], np.array([[wanted * almost(keys.size)]]))[0, 0]
    weights = (keys < edge).astype(keys.dtype) if mass is None else (mass * (keys < edge)).astype(keys.dtype)
    tied = keys == edge
    theirs = 1.0 if mass is None else mass[tied]
    left = wanted - float(weights.sum(dtype=float))
    share = float(np.count_nonzero(tied) if mass is None else mass[tied].sum(dtype=float))
    weights[tied] = theirs * min(max(left / share, 0.0), 1.0) if share > 0 else 0.0
    return Taken(weights, wanted, float(edge))


def cut_rows(keys: Array, mass: Array | None, wanted: Array) -> tuple[Array, Array, Array]:
    """Return the cut of each row of keys (rows, samples) at the mass ``wanted`` (rows, 1), as arrays (rows, 1).

    A cut consists of the k-th smallest key, the mass below it and the mass tied with it.
    """
    edge = _edges(keys, wanted) if mass is None else _weighted_edges(keys, mass, wanted)
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
    for where in set(place.tolist()):  # the rows of a grid have few distinct k
        chosen = place == where
        some = keys if chosen.all() else keys[chosen]
        edge[chosen, 0] = np.partition(some, where, axis=1)[:, where]
    return edge


def _weighted_edges(keys: Array, mass: Array, wanted: Array) -> Array:
    order = np.argsort(keys, axis=1)
    cumulative = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1, dtype=wanted.dtype)
    # Beyond the end (through rounding, or if more than the total is wanted), the cut is at the last key with mass.
    reach = np.minimum(wanted, cumulative[:, -1:])
    place = (cumulative < reach).sum(axis=1, keepdims=True)
    return np.take_along_axis(keys, np.take_along_axis(order, place, axis=1), axis=1)

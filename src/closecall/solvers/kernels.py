"""The most expensive functions, which compute gradients from negated margins for one block of problems at a time.

A block consists of a few rows (problems) with the same loss, kind of aggregate and fold, and is small enough to fit in
the cache. Arrays are overwritten where possible. On one AVX-512 core in float32, `np.exp` takes 0.5 ns per element,
`np.partition` 1.6 ns (with the same position for all rows), `np.sort` 3 ns and `scipy.special.expit` 8 ns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from .._names import Array
from ..aggregates import Aggregate, get_aggregate
from ..losses import get_loss
from .design import Design

#: If k is at most 1 / GATHER of the examples, gathering them is faster than a product with all rows.
GATHER = 40
#: The negated margin beyond which a logistic key grows in proportion to it; pull.c uses the same number.
STEEP = 60.0


@dataclass(frozen=True)
class Mass:
    """The sample weights of a fold, which are all ones, only zeros and ones, or arbitrary."""

    values: Array
    unit: bool
    outside: Array | None  # boolean, only for zeros and ones
    total: float

    @property
    def factors(self) -> Array | None:
        """The masses, or None if all of them are 1."""
        return None if self.unit and self.outside is None else self.values


def make_mass(values: Array, dtype: type) -> Mass:
    """Classify sample weights (samples,) once for all steps."""
    zero = values == 0
    unit = bool((values[~zero] == 1).all())
    return Mass(values.astype(dtype), unit, zero if unit and zero.any() else None, float(values.sum()))


# --- activations: negated margins -> (closeness key, raw), and raw -> negated slope. Buffers may be overwritten.

Finish = Callable[[Array], Array]
Key = Callable[[Array], tuple[Array, Array]]


def _logistic_key(negative: Array) -> tuple[Array, Array]:
    # With p = sigmoid(m), abs(l - log 2) orders examples like max(2p, 1/(2p)): no logarithm is needed. Beyond STEEP the
    # exponential continues as a straight line; otherwise it would overflow, and outliers would tie.
    beyond = np.maximum(negative - STEEP, 0)
    half = np.exp(np.minimum(negative, STEEP, out=negative), out=negative)
    if beyond.any():
        half *= 1 + beyond
    half += 1
    half *= 0.5
    twice = np.reciprocal(half)
    return np.maximum(half, twice, out=half), twice


def _logistic_finish(twice: Array) -> Array:
    twice *= -0.5
    twice += 1
    return twice


def _hinge_key(negative: Array) -> tuple[Array, Array]:
    keys = np.maximum(negative, -1)
    return np.abs(keys, out=keys), negative


def closeness(loss: str) -> tuple[Key, Finish]:
    """Return functions that map negated margins to (keys growing with abs(l - T), raw), and raw to negated slopes."""
    item, finish = get_loss(loss), partial(minus_slope, loss)

    def key(negative: Array) -> tuple[Array, Array]:
        return np.abs(item.value(-negative) - item.threshold).astype(negative.dtype), negative

    known: dict[str, tuple[Key, Finish]] = {
        "logistic": (_logistic_key, _logistic_finish),
        "hinge": (_hinge_key, finish),
    }
    return known.get(loss, (key, finish))


def minus_slope(loss: str, negative: Array) -> Array:
    """Return the negated slopes of the loss, possibly overwriting the margins."""
    if not get_loss(loss).likelihood:
        return -get_loss(loss).slope(-negative)
    np.exp(np.negative(negative, out=negative), out=negative)
    negative += 1
    return np.reciprocal(negative, out=negative)


# --- selection


def _edges(keys: Array, places: Array) -> tuple[Array, Array]:
    """Return the key with 0-based rank ``places`` in each row (problems, 1), and whether the next key is equal."""
    rows, samples = np.arange(len(keys)), keys.shape[1]
    if samples <= 640:  # for few samples, a complete sort is faster: it handles rows with different k in one call
        ordered = np.sort(keys, axis=1)
        edges = ordered[rows, places]
        return edges[:, None], ordered[rows, np.minimum(places + 1, samples - 1)] == edges
    edges, ties = np.empty(len(keys), dtype=keys.dtype), np.empty(len(keys), dtype=bool)
    ends = [*(np.flatnonzero(places[1:] != places[:-1]) + 1).tolist(), len(places)]
    for begin, end in zip([0, *ends], ends, strict=False):  # one SIMD partition for neighbours with equal k
        place = places[begin]
        ordered = np.partition(keys[begin:end], place, axis=1)
        edges[begin:end] = ordered[:, place]
        ties[begin:end] = ordered[:, place + 1 :].min(axis=1, initial=np.inf) == ordered[:, place]
    return edges[:, None], ties


def _weighted_edges(keys: Array, mass: Array, k: Array) -> Array:
    """Return the key at which the cumulative mass reaches k in each row."""
    order = np.argsort(keys, axis=1)
    cumulative = np.cumsum(mass[order], axis=1, dtype=np.float64)
    places = np.minimum((cumulative < (k * (1 - 1e-12))[:, None]).sum(axis=1), keys.shape[1] - 1)
    rows = np.arange(len(keys))
    return keys[rows, order[rows, places]][:, None]


def select(keys: Array, k: Array, mass: Mass) -> Array:
    """Return weights that select the smallest keys, with a total mass of k (Boolean if every weight is 0 or 1).

    This is a fast version of :func:`closecall.aggregates.take_smallest`. The keys (problems, samples) of examples
    outside the fold are overwritten, and k (problems,) must be positive.
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
    edges, ties = _edges(keys, np.minimum(np.ceil(k).astype(np.intp), keys.shape[1]) - 1)
    inside = keys <= edges
    uneven = np.flatnonzero(ties | (k != np.floor(k)))
    if not uneven.size:
        return inside
    weights = inside.astype(keys.dtype)
    tied = keys[uneven] == edges[uneven]
    number = np.count_nonzero(tied, axis=1)
    share = (k[uneven] - (np.count_nonzero(inside[uneven], axis=1) - number)) / number
    weights[uneven] = np.where(tied, share[:, None], weights[uneven])
    if mass.outside is not None:  # a row whose k is the whole fold may tie at infinity
        weights[:, mass.outside] = 0
    return weights


def _ranked_weights(keys: Array, k: Array, m: Array, mass: Mass) -> Array:
    """Return weights that select the ranks m to k, counted from the smallest key."""
    weights, some = select(keys, k, mass), np.flatnonzero(m > 0)
    if some.size:
        weights = weights.astype(keys.dtype)
        weights[some] -= select(keys[some], m[some], mass)
    return weights


def _top_weights(keys: Array, k: Array, mass: Mass) -> Array:
    """Return weights that sum to 1, shared by the examples that tie for the k-th smallest key (see aggregates._top)."""
    if mass.unit:
        if mass.outside is not None:
            keys[:, mass.outside] = np.inf
        edges, _ = _edges(keys, np.ceil(k).astype(np.intp) - 1)
        tied = keys == edges
        number = np.count_nonzero(tied, axis=1)
        return tied if (number == 1).all() else tied / number[:, None].astype(keys.dtype)
    edges = _weighted_edges(keys, mass.values, k)
    end = np.maximum(((keys <= edges) * mass.values).sum(axis=1, dtype=np.float64), 1.0)
    end = np.minimum(end, mass.total)
    return _ranked_weights(keys, end, np.where(end - 1.0 > 1e-9, end - 1.0, 0.0), mass)


def _plain_weights(aggregate: Aggregate, losses: Array, threshold: float, k: Array, m: Array, mass: Mass) -> Array:
    """Return weights from the aggregate's definition, one problem at a time if k or m differs between problems."""
    values, losses = mass.values.astype(np.float64), losses.astype(np.float64)
    size = len(k) if (k == k[0]).all() and (m == m[0]).all() else 1
    parts = [slice(row, row + size) for row in range(0, len(k), size)]
    return np.concatenate(
        [aggregate.weigh(losses[part], values, threshold, *map(np.asarray, (k[part][0], m[part][0]))) for part in parts]
    )


def weigh(aggregate: str, losses: Array, threshold: float, k: Array, m: Array, mass: Mass) -> Array:
    """Return the weights of losses (problems, samples), as :meth:`closecall.aggregates.Aggregate.weights` does."""
    pull = PULLS.get(aggregate)
    if pull is pull_all:
        return np.broadcast_to(mass.values, losses.shape)
    if pull is pull_close:
        return select(np.abs(losses - threshold), k, mass)
    if pull is pull_top:
        return _top_weights(-losses, k, mass)
    if pull is pull_largest:
        return _ranked_weights(-losses, k, m, mass)
    return _plain_weights(get_aggregate(aggregate), losses, threshold, k, m, mass)


# --- kinds: (design, loss, negated margins, k, m, mass) -> gradient (problems, coordinates)

Pull = Callable[[Design, str, Array, Array, Array, Mass], Array]


def _apply(design: Design, weights: Array, raw: Array, finish: Finish, k: Array) -> Array:
    """Return the gradient of the weighted losses; if few examples are selected, use only these in the product."""
    samples, count = raw.shape[1], int(k[0])
    few = weights.dtype == np.bool_ and count * GATHER <= samples and isinstance(design.signed, np.ndarray)
    if not few or (k != count).any():
        return design.gradient(finish(raw) * weights)
    chosen = np.flatnonzero(weights.ravel())
    pull = finish(raw.ravel()[chosen]).reshape(len(raw), 1, count)
    return (pull @ design.signed[(chosen % samples).reshape(len(raw), count)])[:, 0]


def pull_all(design: Design, loss: str, negative: Array, k: Array, m: Array, mass: Mass) -> Array:
    """Return the gradient of ``average``, to which every example contributes its slope."""
    pull = minus_slope(loss, negative)
    return design.gradient(pull if mass.factors is None else pull * mass.factors)


def pull_close(design: Design, loss: str, negative: Array, k: Array, m: Array, mass: Mass) -> Array:
    """Return the gradient of ``close``, which uses the k examples with losses nearest the threshold."""
    key, finish = closeness(loss)
    keys, raw = key(negative)
    return _apply(design, select(keys, k, mass), raw, finish, k)


def pull_largest(design: Design, loss: str, negative: Array, k: Array, m: Array, mass: Mass) -> Array:
    """Return the gradient of ``atk``, ``maximal``, ``ranked_range`` or ``trimmed``, from the losses ranked m+1..k."""
    weights = _ranked_weights(_rank_keys(loss, negative), k, m, mass)
    return _apply(design, weights, negative, partial(minus_slope, loss), k)


def pull_top(design: Design, loss: str, negative: Array, k: Array, m: Array, mass: Mass) -> Array:
    """Return the gradient of ``top``, which uses only the k-th largest loss."""
    weights = _top_weights(_rank_keys(loss, negative), k, mass)
    return _apply(design, weights, negative, partial(minus_slope, loss), np.ones(len(k)))


def _rank_keys(loss: str, negative: Array) -> Array:
    """Return keys that grow as the loss falls: margins if the loss decreases strictly, otherwise negated losses.

    Examples on a flat part of the loss tie, but their slopes are zero.
    """
    margins, known = -negative, get_loss(loss)
    return margins if known.falls is not None else np.negative(known.value(margins)).astype(negative.dtype)


def pull_of(name: str) -> Pull:
    """Return the gradient function of an aggregate from :data:`PULLS`, or one that uses the aggregate's definition."""
    if name in PULLS:
        return PULLS[name]
    aggregate = get_aggregate(name)

    def pull(design: Design, loss: str, negative: Array, k: Array, m: Array, mass: Mass) -> Array:
        known, margins = get_loss(loss), -negative.astype(np.float64)
        weights = _plain_weights(aggregate, known.value(margins), known.threshold, k, m, mass)
        slopes = np.where(weights > 0, known.slope(margins), 0)
        return design.gradient((-weights * slopes).astype(negative.dtype))

    pull.__name__ = f"pull of {name}"  # distinguishes blocks
    return pull


#: The gradient functions of aggregates that have a fast one.
PULLS: dict[str, Pull] = {
    "average": pull_all,
    "maximal": pull_largest,
    "atk": pull_largest,
    "ranked_range": pull_largest,
    "trimmed": pull_largest,
    "top": pull_top,
    "close": pull_close,
    "close_decay": pull_close,
}

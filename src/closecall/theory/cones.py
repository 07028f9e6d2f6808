"""Branch and bound over cones of classifiers: the exact 0-1 minimum for three to six features.

Let z = y * (x, 1) be an example multiplied by its label. A classifier theta is correct on z if ``theta . z > 0``. The
orthants of the space of theta are cones with D = d + 1 rays each. A cone is split by a new ray between two of its rays.
The signs of the products of z with the rays of a cone determine what is known about z:

    all positive: correct for every theta in the cone      none positive: wrong for every theta in the cone
    both:         undecided; only these are kept, and their products with a new ray are a mixture of two columns

The mass of the wrong examples is a lower bound on the errors of every classifier in the cone. Each ray is a classifier,
so its errors are an upper bound. A cone is dropped if its lower bound reaches the target. If no cone survives a pass,
no classifier misclassifies less than the target. The target rises from half the errors of the best known classifier to
all of them, so a proven bound is always available; the last pass takes most of the time.

Pairs of undecided examples raise the bound: if no theta in the cone is correct on both examples, one of them counts as
an error. :func:`matched` chooses the pairs. In docs/results/beyond-exact.md, pairs halve the number of cones.

A cone is split on a long edge whose ends disagree about a large undecided mass, at the mean position where the sign
changes. If only the mass were considered, a few edges might be split forever while the others stayed long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from closecall._names import Array

#: If the product of two vectors of length 1 is at most this, the example is on the boundary and counts as wrong.
ON_BOUNDARY = 1e-9
#: The number of cones that are split at once; larger blocks do not fit in the cache.
BLOCK = 2000
#: The targets of the passes, as fractions of the best known errors.
STEPS = (0.5, 0.7, 0.8, 0.9, 0.95)
#: Examples are matched only if there are at most this many pairs of opposite classes.
MOST_PAIRS = 4_000_000


@dataclass(frozen=True)
class _Cones:
    """A block of cones and their undecided examples.

    Each row stands for an example in a cone.
    """

    products: Array  # (rows, D), of the example with the rays of the cone
    owner: Array  # (rows,), the number of the cone
    example: Array  # (rows,), the number of the example
    mass: Array  # (rows,)
    wrong: Array  # (cones,), the mass that every theta of a cone misclassifies
    rays: Array  # (cones, D, D)

    def part(self, rows: Array, cones: Array) -> _Cones:
        """Return the cones and rows that are selected by Boolean arrays."""
        owner = (np.cumsum(cones) - 1)[self.owner[rows]]
        by_rows, by_cones = (self.example[rows], self.mass[rows]), (self.wrong[cones], self.rays[cones])
        return _Cones(self.products[rows], owner, *by_rows, *by_cones)


def least_outside(
    vectors: Array,
    weights: Array,
    *,
    best: float,
    time_limit: float,
    accept: Callable[[Array], float],
    slopes: Array | None = None,
) -> float:
    """Split cones until the best classifier is proven optimal or time runs out; return the lower bound.

    Vectors, weights, ``accept`` and the bound are defined as in :func:`closecall.theory.cover.lightest_cover`. ``best``
    is the weight of the vectors outside a known half-space. ``slopes`` (dimensions - 1,) are those of a good
    classifier, if the last entry of each vector is its label; pairs that it orders wrongly raise the bounds.
    """
    deadline = time.monotonic() + time_limit
    partner = np.full(len(vectors), -1) if slopes is None else matched(vectors, slopes)
    # In coordinates in which the vectors have no preferred direction, orthants divide them about evenly.
    frame = np.asarray(np.linalg.qr(vectors, mode="r"))
    vectors = np.linalg.solve(frame.T, vectors.T).T
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    slack = 1e-9 * float(weights.sum())
    whole = np.array_equal(weights, np.round(weights))
    bound = 0.0
    while bound < best - slack:
        part = next((step for step in STEPS if step * best > bound + slack), 1.0)
        target = float(np.ceil(part * best)) if whole else part * best
        proven, found = _pass(vectors, weights, partner, target - slack, deadline, accept)
        best = min(best, found)
        if proven is None:
            break
        if proven:
            bound = min(target, best)
    return bound if bound < best - slack else best


def matched(vectors: Array, slopes: Array) -> Array:
    """Match examples of opposite classes that the slopes order wrongly; return partners (samples,), or -1 if none.

    The number of pairs is the largest possible and equals the number of errors with the best threshold. Pairs with
    larger differences in score are preferred, because other slopes are likely to order them wrongly too.
    """
    labels = np.sign(vectors[:, -1])
    plus, minus = np.flatnonzero(labels > 0), np.flatnonzero(labels < 0)
    partner = np.full(len(vectors), -1)
    if plus.size * minus.size > MOST_PAIRS:
        return partner
    x = vectors[:, :-1] * labels[:, None]
    spread = np.maximum(x.std(axis=0), 1e-300)
    x, scores = x / spread, x @ slopes
    wrongly = scores[minus] - scores[plus][:, None]
    squares = np.square(x).sum(axis=1)
    distance = np.sqrt(np.maximum(squares[plus][:, None] + squares[minus] - 2 * x[plus] @ x[minus].T, 1e-12))
    decided = wrongly / distance
    # One more pair is worth more than any preference among pairs.
    worth = np.where(wrongly > 0, 1 + decided / max(float(decided.max(initial=0.0)) * len(vectors), 1e-300), 0.0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    paired = worth[rows, columns] > 0
    first, second = plus[rows[paired]], minus[columns[paired]]
    partner[first], partner[second] = second, first
    return partner


def _shared(cones: _Cones, patterns: Array, partner: Array) -> Array:
    """Return the mass (cones,) that pairs add to the bounds: the lighter example's mass if one must be wrong."""
    dimensions, count = cones.rays.shape[1], len(cones.wrong)
    undecided = np.flatnonzero((patterns > 0) & (patterns < (1 << dimensions) - 1) & (partner[cones.example] >= 0))
    place = np.full((count, len(partner)), -1, dtype=np.int32)
    place[cones.owner[undecided], cones.example[undecided]] = undecided
    first = undecided[cones.example[undecided] < partner[cones.example[undecided]]]
    second = place[cones.owner[first], partner[cones.example[first]]]
    both = (second >= 0) & (patterns[first] & patterns[second] == 0)  # no ray is right on both
    first, second = first[both], second[both]
    p, q = cones.products[first], cones.products[second]
    # No theta is right on both if p + c q <= 0 on all rays for some c > 0, that is, for a c between these limits.
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.where(p > ON_BOUNDARY, p / np.maximum(-q, 0.0), 0.0).max(axis=1, initial=0.0)
        most = np.where(q > ON_BOUNDARY, -p / np.where(q > 0, q, 1.0), np.inf).min(axis=1, initial=np.inf)
    never = least * (1 + 1e-9) <= most
    lighter = np.minimum(cones.mass[first[never]], cones.mass[second[never]])
    return np.bincount(cones.owner[first[never]], lighter, minlength=count)


def _pass(
    vectors: Array, weights: Array, partner: Array, target: float, deadline: float, accept: Callable[[Array], float]
) -> tuple[bool | None, float]:
    """Return whether every classifier misclassifies at least the target, and the smallest weight accepted in the pass.

    The first value is None if time runs out, and False as soon as a classifier below the target is accepted.
    """
    waiting = [_orthants(vectors, weights)]
    best, tried = np.inf, np.inf
    while waiting:
        if time.monotonic() >= deadline:
            return None, best
        cones = waiting.pop()
        cones, patterns, errors = _decide(cones)
        if errors.min() < min(target, tried):
            # A ray whose classifier cannot be confirmed on the data, because of rounding, is not tried again.
            tried = float(errors.min())
            cone, ray = np.unravel_index(int(errors.argmin()), errors.shape)
            best = min(best, accept(vectors @ cones.rays[cone, ray] > ON_BOUNDARY))
            if best < target:
                return False, best
        alive = cones.wrong < target
        if alive.any() and (partner >= 0).any():
            alive &= cones.wrong + _shared(cones, patterns, partner) < target
        if alive.any():
            undecided = (patterns > 0) & (patterns < (1 << vectors.shape[1]) - 1) & alive[cones.owner]
            waiting += _halves(_split(cones.part(undecided, alive), patterns[undecided]))
    return True, best


def _orthants(vectors: Array, weights: Array) -> _Cones:
    samples, dimensions = vectors.shape
    signs = np.where(_members(dimensions), 1.0, -1.0)
    products = (vectors * signs[:, None]).reshape(-1, dimensions)
    owner = np.repeat(np.arange(len(signs)), samples)
    rays = signs[:, :, None] * np.eye(dimensions)
    example = np.tile(np.arange(samples), len(signs))
    return _Cones(products, owner, example, np.tile(weights, len(signs)), np.zeros(len(signs)), rays)


def _members(dimensions: int) -> Array:
    """Return which rays have positive products in each pattern, as a Boolean array (2 ** dimensions, dimensions)."""
    return (np.arange(1 << dimensions)[:, None] >> np.arange(dimensions)) & 1 > 0


def _masses(cones: _Cones, patterns: Array) -> Array:
    """Return the mass of each sign pattern in each cone (cones, 2 ** dimensions)."""
    kinds = 1 << cones.rays.shape[1]
    places = cones.owner * kinds + patterns
    return np.bincount(places, cones.mass, minlength=len(cones.wrong) * kinds).reshape(-1, kinds)


def _decide(cones: _Cones) -> tuple[_Cones, Array, Array]:
    """Return the cones with the mass that is wrong for every theta, the sign patterns, and the errors of the rays."""
    dimensions = cones.rays.shape[1]
    patterns = (cones.products > ON_BOUNDARY) @ (1 << np.arange(dimensions))
    masses = _masses(cones, patterns)
    wrong = cones.wrong + masses[:, 0]
    errors = wrong[:, None] + masses[:, 1:] @ ~_members(dimensions)[1:]
    return replace(cones, wrong=wrong), patterns, errors


def _split(cones: _Cones, patterns: Array) -> _Cones:
    """Split each cone in two with a new ray on one edge, which replaces one end of this edge in each half."""
    dimensions = cones.rays.shape[1]
    starts, ends = np.triu_indices(dimensions, 1)
    members = _members(dimensions)
    crossed_mass = _masses(cones, patterns) @ (members[:, starts] ^ members[:, ends])
    lengths = np.square(cones.rays[:, starts] - cones.rays[:, ends]).sum(axis=2)
    edge = (crossed_mass * lengths).argmax(axis=1)
    start, end = starts[edge], ends[edge]
    rows, owner = np.arange(len(patterns)), cones.owner
    left, right = cones.products[rows, start[owner]], cones.products[rows, end[owner]]
    crossing = np.where((left > ON_BOUNDARY) != (right > ON_BOUNDARY), cones.mass, 0.0)
    places = left / np.where(crossing > 0, left - right, 1.0)
    count = len(cones.wrong)
    crossed = np.bincount(owner, crossing, minlength=count)
    mean = np.bincount(owner, crossing * places, minlength=count) / np.where(crossed > 0, crossed, 1.0)
    # A ray too near an end would make a cone very thin. If no example changes sign, the ray is in the middle.
    place = np.where(crossed > 0, np.clip(mean, 0.1, 0.9), 0.5)
    every = np.arange(count)
    ray = cones.rays[every, start] * (1 - place)[:, None] + cones.rays[every, end] * place[:, None]
    length = np.linalg.norm(ray, axis=1)
    ray, middle = ray / length[:, None], (left + place[owner] * (right - left)) / length[owner]
    products, rays = np.stack([cones.products] * 2), np.stack([cones.rays] * 2)
    products[0, rows, start[owner]], products[1, rows, end[owner]] = middle, middle
    rays[0, every, start], rays[1, every, end] = ray, ray
    return _Cones(
        products.reshape(-1, dimensions),
        np.concatenate([owner, owner + count]),
        np.tile(cones.example, 2),
        np.tile(cones.mass, 2),
        np.tile(cones.wrong, 2),
        rays.reshape(-1, dimensions, dimensions),
    )


def _halves(cones: _Cones) -> list[_Cones]:
    """Return a list that contains the block, or its two halves if it is too large."""
    if len(cones.wrong) <= BLOCK:
        return [cones]
    first = np.arange(len(cones.wrong)) < len(cones.wrong) // 2
    return [cones.part(half[cones.owner], half) for half in (first, ~first)]

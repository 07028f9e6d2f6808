"""Branch and bound over cones of classifiers: the exact 0-1 minimum for three to six features.

Fold the label into the example, z = y * (x, 1), so a classifier theta is right on z if ``theta . z > 0``. The orthants
of the space of theta are cones of D = d + 1 rays each; a cone is split by a new ray between two of its own. For a cone
only the products of z with its rays matter:

    all positive: right for every theta of the cone        none positive: wrong for every theta of the cone
    both:         undecided; only these are handed down, and the new ray's products are a mixture of two columns

The wrong ones are a lower bound for the whole cone, each ray is a classifier and hence an upper bound, and a cone whose
bound reaches the target is dropped. A pass without survivors proves that no classifier misclassifies less than its
target. The targets rise from half the errors of the best known classifier to all of them, so there is a proven bound at
any time; the cost grows with every step and is dominated by the last.

Undecided examples add to a bound in pairs: if no theta of the cone can be right on both, one of them counts as an
error. Only the pairs that a good classifier orders wrongly matter, with each example in at most one: see
:func:`matched`. They halve the number of cones (measured on the sets of docs/results/beyond-exact.md).

The edge to split is long and crossed by much undecided mass; it is split at the mean position of the crossings:
choosing by mass alone might split a few edges forever while the others stay long. Measured on 300 normal examples, a
sixth of them wrong: ten thousand cones for three features, where enumeration checks 300 ** 3 positions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import linear_sum_assignment

from closecall._names import Array

#: A product this small, of vectors of length 1, is on the boundary, hence wrong.
ON_BOUNDARY = 1e-9
#: Cones that are split at once: larger blocks leave the cache.
BLOCK = 2000
#: The targets of the passes, as parts of the best known.
STEPS = (0.5, 0.7, 0.8, 0.9, 0.95)
#: Pairs of examples of both classes up to which they are matched.
MOST_PAIRS = 4_000_000


@dataclass(frozen=True)
class _Cones:
    """A block of cones and their undecided examples, one after the other.

    ``products`` (rows, D) with the rays of its cone, ``owner`` (rows,) the cone, ``example`` (rows,) which it is,
    ``mass`` (rows,), ``wrong`` (cones,) the mass decided to be wrong, ``rays`` (cones, D, D).
    """

    products: Array
    owner: Array
    example: Array
    mass: Array
    wrong: Array
    rays: Array

    def part(self, rows: Array, cones: Array) -> _Cones:
        """The selected cones and rows (bool arrays)."""
        renumbered = np.cumsum(cones) - 1
        owner = renumbered[self.owner[rows]]
        return _Cones(
            self.products[rows], owner, self.example[rows], self.mass[rows], self.wrong[cones], self.rays[cones]
        )


def least_outside(
    vectors: Array,
    weights: Array,
    *,
    best: float,
    time_limit: float,
    accept: Callable[[Array], float],
    slopes: Array | None = None,
) -> float:
    """Split cones until the best classifier is proven or time runs out; return the lower bound.

    Every open half-space through the origin leaves out at least this weight of the vectors (samples, dimensions) of
    positive weights (samples,). ``best`` is the weight that a known classifier leaves outside. ``accept`` receives bool
    arrays (samples,) of vectors inside an open half-space, and returns the smallest weight left out so far. ``slopes``
    (dimensions - 1,) are those of a good classifier, for vectors whose last entry is their label: pairs that it orders
    wrongly raise the bounds.

    Examples
    --------
    >>> vectors = np.array([[1.0, 1.0], [-2.0, -2.0], [1.0, 0.0]])
    >>> weights = np.array([3.0, 2.0, 1.0])
    >>> least_outside(vectors, weights, best=4.0, time_limit=10, accept=lambda inside: float(weights[~inside].sum()))
    2.0
    """
    deadline = time.monotonic() + time_limit
    partner = np.full(len(vectors), -1) if slopes is None else matched(vectors, slopes)
    # In the frame in which the vectors have no preferred direction, orthants cut them about evenly.
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
    """The partner of each example, (samples,), -1 where there is none: both classes, ordered wrongly, each in one pair.

    The number of pairs is the largest possible, and equals the number of errors of the best threshold. Among these,
    pairs with the largest distances are preferred, because other slopes order them wrongly too.

    Examples
    --------
    >>> matched(np.array([[3.0, 1.0], [5.0, 1.0], [-4.0, -1.0], [-1.0, -1.0]]), np.array([1.0])).tolist()
    [2, -1, 0, -1]
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
    # A pair is worth more than any order of the others.
    worth = np.where(wrongly > 0, 1 + decided / max(float(decided.max(initial=0.0)) * len(vectors), 1e-300), 0.0)
    rows, columns = linear_sum_assignment(worth, maximize=True)
    paired = worth[rows, columns] > 0
    first, second = plus[rows[paired]], minus[columns[paired]]
    partner[first], partner[second] = second, first
    return partner


def _shared(cones: _Cones, patterns: Array, partner: Array) -> Array:
    """What pairs of undecided examples add to the bounds (cones,): the lighter one, unless both can be right."""
    dimensions, count = cones.rays.shape[1], len(cones.wrong)
    undecided = np.flatnonzero((patterns > 0) & (patterns < (1 << dimensions) - 1) & (partner[cones.example] >= 0))
    place = np.full((count, len(partner)), -1, dtype=np.int32)
    place[cones.owner[undecided], cones.example[undecided]] = undecided
    first = undecided[cones.example[undecided] < partner[cones.example[undecided]]]
    second = place[cones.owner[first], partner[cones.example[first]]]
    both = (second >= 0) & (patterns[first] & patterns[second] == 0)  # right together on no ray
    first, second = first[both], second[both]
    p, q = cones.products[first], cones.products[second]
    # p + c q is nowhere positive for a c between these: where p is, q is as far below, and the other way round.
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.where(p > ON_BOUNDARY, p / np.maximum(-q, 0.0), 0.0).max(axis=1, initial=0.0)
        most = np.where(q > ON_BOUNDARY, -p / np.where(q > 0, q, 1.0), np.inf).min(axis=1, initial=np.inf)
    never = least * (1 + 1e-9) <= most
    lighter = np.minimum(cones.mass[first[never]], cones.mass[second[never]])
    return np.bincount(cones.owner[first[never]], lighter, minlength=count)


def _pass(
    vectors: Array, weights: Array, partner: Array, target: float, deadline: float, accept: Callable[[Array], float]
) -> tuple[bool | None, float]:
    """Whether no classifier leaves out less than the target (None: time ran out), and the least accepted meanwhile.

    A pass ends with False as soon as a classifier below the target is accepted.
    """
    waiting = [_orthants(vectors, weights)]
    best, tried = np.inf, np.inf
    while waiting:
        if time.monotonic() >= deadline:
            return None, best
        cones = waiting.pop()
        cones, patterns, errors = _decide(cones)
        if errors.min() < min(target, tried):
            # Rays whose classifier cannot be confirmed on the data, blurred by rounding, are not tried again.
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
    """Which rays are positive in each pattern: bool (2 ** dimensions, dimensions)."""
    return (np.arange(1 << dimensions)[:, None] >> np.arange(dimensions)) & 1 > 0


def _masses(cones: _Cones, patterns: Array) -> Array:
    """The mass of each pattern of signs in each cone (cones, 2 ** dimensions)."""
    kinds = 1 << cones.rays.shape[1]
    places = cones.owner * kinds + patterns
    return np.bincount(places, cones.mass, minlength=len(cones.wrong) * kinds).reshape(-1, kinds)


def _decide(cones: _Cones) -> tuple[_Cones, Array, Array]:
    """The cones, with examples that are wrong everywhere counted; the rows' sign patterns; the errors of all rays."""
    dimensions = cones.rays.shape[1]
    patterns = (cones.products > ON_BOUNDARY) @ (1 << np.arange(dimensions))
    masses = _masses(cones, patterns)
    wrong = cones.wrong + masses[:, 0]
    errors = wrong[:, None] + masses[:, 1:] @ ~_members(dimensions)[1:]
    return replace(cones, wrong=wrong), patterns, errors


def _split(cones: _Cones, patterns: Array) -> _Cones:
    """Split each cone in two: a new ray on the edge crossed by the most mass replaces one end or the other."""
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
    # Not too near an end, or cones become needles; in the middle where nothing is left to cross.
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
    """The block itself, or its two halves if it is too large."""
    count = len(cones.wrong)
    if count <= BLOCK:
        return [cones]
    first = np.arange(count) < count // 2
    return [cones.part(half[cones.owner], half) for half in (first, ~first)]

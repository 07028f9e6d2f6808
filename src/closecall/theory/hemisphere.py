"""The densest hemisphere: the exact 0-1 minimum by enumeration.

Let z = y * (x, 1) be an example multiplied by its label. A classifier theta is correct on z if ``theta . z > 0``, so
the classifier with the fewest errors is the open half-space through the origin that contains the most mass (Johnson &
Preparata 1978, "The densest hemisphere problem", Theoretical Computer Science 6: 93-107).

All classifiers that are correct on the same examples form a cone, which has a facet where ``theta . v = 0`` for one
example v. There, only the remainders of the other examples modulo v matter, and these have one fewer dimension.
Examples parallel to v are put on one side or the other by an infinitesimal rotation. The recursion

    best(Z) = min over v in Z of [ best(Z modulo v) + lighter side of the examples parallel to v ]

holds without any assumption of general position: repeated, collinear and coplanar points need no special treatment. In
the plane, the recursion ends with a sort by angle and a running sum. The cost is O(n^d log n) for d features.
"""

from __future__ import annotations

import numpy as np

from closecall._names import Array

#: The number of values that a sweep processes at a time, so that they stay in the cache.
BLOCK = 20_000


def densest_hemisphere(vectors: Array, weights: Array, tolerance: float) -> tuple[float, Array]:
    """Return the smallest weight outside an open half-space through the origin, and a mask (samples,) of its vectors.

    The vectors have shape (samples, dimensions) and must not be zero; the weights have shape (samples,). Vectors whose
    directions differ by less than ``tolerance`` count as parallel. For whole numbers (times powers of two) of moderate
    size, the arithmetic is exact, and any small tolerance gives the exact answer.
    """
    samples, dimensions = vectors.shape
    if dimensions == 1:
        vectors, dimensions = np.hstack([vectors, np.zeros_like(vectors)]), 2
    if dimensions == 2:
        cost, _, inside = _sweep(vectors[None, :, 0], vectors[None, :, 1], weights[None], np.zeros(1), tolerance)
        return cost, inside
    best, best_inside = np.inf, np.zeros(samples, dtype=bool)
    # One level above the plane, many pivots are swept at once.
    pivots = max(1, BLOCK // samples) if dimensions == 3 else 1
    for start in range(0, samples, pivots):
        rest, parallel, along = _modulo(vectors, vectors[start : start + pivots], tolerance)
        ahead = (weights * (parallel & (along > 0))).sum(axis=1)
        behind = (weights * (parallel & (along < 0))).sum(axis=1)
        lighter = np.minimum(ahead, behind)
        if dimensions == 3:
            # Vectors parallel to the pivot vanish from the plane: they get no weight and an arbitrary direction.
            across, up = np.where(parallel, 1.0, rest[:, 0]), np.where(parallel, 0.0, rest[:, 1])
            cost, row, inside = _sweep(across, up, np.where(parallel, 0.0, weights), lighter, tolerance)
        else:
            row, inside, others = 0, np.zeros(samples, dtype=bool), ~parallel[0]
            cost = float(lighter[0])
            if others.any():
                below, inside[others] = densest_hemisphere(rest[0][:, others].T, weights[others], tolerance)
                cost += below
        if cost < best:
            forward = along[row] > 0 if ahead[row] >= behind[row] else along[row] < 0
            best, best_inside = cost, np.where(parallel[row], forward, inside)
    return best, best_inside


def _modulo(vectors: Array, pivots: Array, tolerance: float) -> tuple[Array, Array, Array]:
    """Return vectors modulo each pivot, a mask of vectors that vanish, and the products of vectors with each pivot."""
    dimensions = vectors.shape[1]
    lead = np.abs(pivots).argmax(axis=1)
    others = (lead[:, None] + np.arange(1, dimensions)) % dimensions
    columns = vectors.T
    head = np.take_along_axis(pivots, lead[:, None], axis=1)[:, :, None]
    tail = np.take_along_axis(pivots, others, axis=1)[:, :, None]
    # Elimination by cross-multiplication instead of division keeps whole numbers whole and therefore exact. A negative
    # head inverts all vectors, which makes no difference to half-spaces.
    rest = columns[others] * head - columns[lead][:, None] * tail
    size = np.abs(head[:, 0]) * np.abs(vectors).max(axis=1)
    return rest, np.abs(rest).max(axis=1) <= tolerance * size, pivots @ columns


def _sweep(across: Array, up: Array, weights: Array, extra: Array, tolerance: float) -> tuple[float, int, Array]:
    """Rotate half-planes about the origin, and return the smallest weight outside one of them, plus ``extra``.

    Also return the row of this minimum and the vectors inside. The arrays have shape (pivots, samples), and ``extra``
    has shape (pivots,).
    """
    # Mirror every vector into the upper half-plane; a mirrored vector is inside if its image is outside.
    mirror = np.where((up < 0) | ((up == 0) & (across < 0)), -1.0, 1.0)
    across, up = across * mirror, np.abs(up)
    with np.errstate(divide="ignore"):
        order = np.argsort(-across / up, axis=1)  # by angle, without an arctangent
    across, up = np.take_along_axis(across, order, axis=1), np.take_along_axis(up, order, axis=1)
    next_across, next_up = np.roll(across, -1, axis=1), np.roll(up, -1, axis=1)
    cross, dot = np.abs(across * next_up - next_across * up), across * next_across + up * next_up
    dot[:, -1] *= -1  # the last is followed by the first, half a turn later
    parted = cross > tolerance * dot
    total = weights.sum(axis=1, keepdims=True)
    steps = -np.take_along_axis(mirror * weights, order, axis=1)
    costs = np.cumsum(steps, axis=1) + (total - steps.sum(axis=1, keepdims=True)) / 2
    lowest = np.where(parted, costs, np.inf).min(axis=1)
    highest = np.where(parted, costs, -np.inf).max(axis=1)  # the opposite half-plane costs total - costs
    best = np.minimum(lowest, total[:, 0] - highest) + extra
    row = int(best.argmin())
    opposite = total[row, 0] - highest[row] < lowest[row]
    turn = np.where(parted[row], -costs[row] if opposite else costs[row], np.inf).argmin()
    inside = np.empty(across.shape[1], dtype=bool)
    inside[order[row]] = np.arange(across.shape[1]) <= turn
    return float(best[row]), row, inside ^ (mirror[row] < 0) ^ opposite

"""The 0-1 minimum as a mixed-integer program that covers conflicts, with a lower bound that is always valid.

Let z = y * (x, 1) be an example multiplied by its label. By Gordan's theorem, no linear classifier is correct on all
examples in a set if and only if some mixture of them vanishes (lambda >= 0, sum(lambda) = 1, sum(lambda * z) = 0).
These mixtures form a polytope. The mixture at a vertex contains at most d + 2 examples, which form a *conflict*: every
classifier is wrong on at least one of them. The smallest mass of errors is thus the weight of the lightest *cover*, a
set with an example from each conflict. There are too many conflicts to list, so they are found as needed:

    cover the conflicts known so far (HiGHS, binary variables only): the optimum is a lower bound
    find conflicts among the examples outside the cover (linear programs): if there are none, the bound is attained

There are no "big M" constraints, whose tolerance would invalidate the bound for classifiers with small margins.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from closecall._names import Array

#: The number of searches for conflicts before the next cover. On 100 examples with 5 features and 15 errors, a gap
#: remained after 20 s with 1 search, and 15 searches took about 7 s.
PASSES = 10
#: HiGHS proves an optimum to within 1e-6 of the largest weight; values that are closer count as equal.
GAP = 2e-6


def find_conflict(vectors: Array, costs: Array) -> Array | None:
    """Return the rows of a minimal set of vectors that no open half-space through the origin contains, or None.

    The vectors have shape (samples, dimensions). The set belongs to the mixture with the lowest cost, so different
    ``costs`` (samples,) can give different sets.
    """
    samples, dimensions = vectors.shape
    if samples == 0:
        return None
    mixture = linprog(
        costs,
        A_eq=np.vstack([vectors.T, np.ones(samples)]),
        b_eq=np.append(np.zeros(dimensions), 1.0),
        method="highs-ds",  # the simplex method ends at a vertex, whose support is minimal
        options={"primal_feasibility_tolerance": 1e-10},
    )
    # Keep every positive part, however small: a conflict with too many members is valid, but one with too few is not.
    return np.flatnonzero(mixture.x > 0) if mixture.status == 0 else None


def lightest_cover(vectors: Array, weights: Array, *, time_limit: float, accept: Callable[[Array], float]) -> float:
    """Cover conflicts until the bound is attained or time runs out; return the lower bound.

    The bound applies to the total weight of the vectors outside an open half-space with the origin on its boundary. The
    vectors have shape (samples, dimensions), and their weights (samples,) are positive. ``accept`` receives a Boolean
    array (samples,) that marks the vectors inside a half-space, and returns the smallest outside weight found so far.
    """
    deadline = time.monotonic() + time_limit
    rng = np.random.default_rng(0)  # affects only the order in which conflicts are found
    slack = GAP * float(weights.max(initial=0.0))
    conflicts: list[Array] = []
    covered, blame = np.zeros(len(weights), dtype=bool), np.zeros(len(weights))
    bound, attained = 0.0, np.inf

    def give_up(alive: Array) -> Array | None:
        # Remove the example of a conflict with the most conflicts for its weight, until no conflict or no time is left.
        while time.monotonic() < deadline:
            rows = np.flatnonzero(alive)
            found = find_conflict(vectors[rows], rng.random(rows.size))
            if found is None:
                return alive
            conflict = rows[found]
            conflicts.append(conflict)
            blame[conflict] += 1 / weights[conflict]
            alive[conflict[blame[conflict].argmax()]] = False
        return None

    while True:
        known = len(conflicts)
        for _ in range(PASSES):
            before = len(conflicts)
            free = give_up(~covered)
            attained = attained if free is None else accept(free)
            if free is None or len(conflicts) == before:
                break
        bound = max(bound, _disjoint(conflicts, weights))
        # Without a new conflict, the cover is complete and its weight is the bound.
        if len(conflicts) == known or attained <= bound + slack or time.monotonic() >= deadline:
            break
        proven, cover = _solve_cover(conflicts, weights, deadline - time.monotonic())
        bound = max(bound, proven)
        if cover is None or attained <= bound + slack:
            break
        covered = cover
    return attained if attained <= bound + slack else bound


def _solve_cover(conflicts: list[Array], weights: Array, time_limit: float) -> tuple[float, Array | None]:
    """Return a lower bound on the weight of a cover, and the lightest cover found (samples,) or None."""
    # SciPy 1.13 passes the indices to HiGHS unchanged, and HiGHS needs 32 bits.
    ends = np.cumsum([0, *map(len, conflicts)], dtype=np.int32)
    members = (np.ones(ends[-1]), np.concatenate(conflicts).astype(np.int32), ends)
    heaviest = float(weights.max())
    result = milp(
        weights / heaviest,
        integrality=np.ones(len(weights)),
        bounds=Bounds(0, 1),
        constraints=LinearConstraint(sparse.csr_array(members, shape=(len(conflicts), len(weights))), 1, np.inf),
        options={"time_limit": max(time_limit, 0.01), "mip_rel_gap": 0},
    )
    bound = 0.0 if result.mip_dual_bound is None else heaviest * float(result.mip_dual_bound)
    if np.array_equal(weights, np.round(weights)):  # sums of whole weights are whole
        bound = float(np.ceil(bound - GAP * heaviest))
    return bound, None if result.x is None else result.x > 0.5


def _disjoint(conflicts: list[Array], weights: Array) -> float:
    """Return a lower bound on the weight of a cover by processing one conflict after another, without a solver."""
    left, bound = weights.copy(), 0.0
    for conflict in conflicts:
        # A weight may be divided among conflicts: each conflict takes the smallest remaining weight of its members.
        toll = left[conflict].min()
        left[conflict] -= toll
        bound += float(toll)
    return bound

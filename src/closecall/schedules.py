"""Schedules, which give k as a function of the step. Steps are numbered from 1 to E, as in the paper's Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

Schedule = Callable[[int], float]


def constant(k: float) -> Schedule:
    """Return a schedule with the same k at every step."""
    return lambda step: k


def last_convex_step(steps: int) -> int:
    """Return the last step of Algorithm 1 at which k = n for every k*; up to this step, runs do not depend on k*.

    Examples
    --------
    >>> last_convex_step(1000), last_convex_step(3), last_convex_step(1)
    (333, 1, 0)
    """
    # i < E/3 has k = n by the first branch; i = E/3, if whole, by the second, whose formula starts at k = n.
    return steps // 3


def first_final_step(steps: int) -> int:
    """Return the first step at which k = k*, i.e. the smallest i with i >= 2E/3.

    Examples
    --------
    >>> first_final_step(1000), first_final_step(3), first_final_step(1)
    (667, 2, 1)
    """
    return -(-2 * steps // 3)


def between(start: float, end: float, over: int, under: int) -> float:
    """Return the count at which a fraction ``over / under`` of the way from start to end remains.

    If both counts are integers, the arithmetic is exact and halves are rounded to even; otherwise, nothing is rounded.

    Examples
    --------
    >>> between(100.0, 10.0, 1, 4), between(0.5, 0.0, 1, 4)
    (32.0, 0.125)
    """
    if over in (0, under):  # in floats, end + (start - end) may exceed start
        return start if over else end
    if start.is_integer() and end.is_integer():  # Python rounds a Fraction half to even, exactly
        return float(int(end) + round(Fraction(int(start - end) * over, under)))
    return end + (start - end) * over / under


def decay(k_star: float, n: float, steps: int) -> Schedule:
    """Return the schedule of Algorithm 1: k = n in the first third, then a linear decay to k*, then a constant k*.

    ``k_star`` is the final k, ``n`` is the mass of all examples, and ``steps`` is E, the number of steps (at least 1).
    :func:`between` states how k is rounded.

    Examples
    --------
    >>> k_at = decay(10, 100, 9)
    >>> [k_at(step) for step in range(1, 10)]
    [100.0, 100.0, 100.0, 70.0, 40.0, 10.0, 10.0, 10.0, 10.0]
    """
    if steps < 1:
        raise ValueError(f"a run needs at least one step, not {steps}")
    if not 0 < k_star <= n:
        raise ValueError(f"k*={k_star:g} must lie in (0, n={n:g}]")
    first, last = float(n), float(k_star)

    def k_at(step: int) -> float:
        over = 2 * steps - 3 * step  # at i = E/3, the formula of the second third gives n too
        return first if over >= steps else last if over <= 0 else between(first, last, over, steps)

    return k_at

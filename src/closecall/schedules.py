"""Schedules, which give k as a function of the step. Steps are numbered 1..E as in the paper's Algorithm 1."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

Schedule = Callable[[int], float]


def constant(k: float) -> Schedule:
    """Return the schedule with the same k at every step.

    Examples
    --------
    >>> constant(10.0)(999)
    10.0
    """
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


def decay(k_star: float, n: float, steps: int) -> Schedule:
    """Return the schedule of Algorithm 1: k = n in the first third, then a linear decay to k*, then constant k*.

    Parameters
    ----------
    k_star : float
        The final k.
    n : float
        The mass of all examples.
    steps : int
        E, the number of steps of the run; at least 1.

    Returns
    -------
    schedule : callable
        ``step -> k`` for steps 1..E. If n and k* are whole, the arithmetic is exact and halves are rounded to even;
        otherwise k is not rounded.

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
    whole = float(n).is_integer() and float(k_star).is_integer()

    def k_at(step: int) -> float:
        if 3 * step <= steps:  # at i = E/3 the second branch is n too, but in floats k* + (n - k*) may exceed n
            return float(n)
        if 3 * step >= 2 * steps:
            return float(k_star)
        if whole:  # Python rounds a Fraction half to even, exactly
            return float(int(k_star) + round(Fraction(int(n - k_star) * (2 * steps - 3 * step), steps)))
        return k_star + (n - k_star) * (2 * steps - 3 * step) / steps

    return k_at

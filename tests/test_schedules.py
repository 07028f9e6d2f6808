"""The decay of Algorithm 1 against an exact reference, for all small runs."""

import math
from fractions import Fraction
from functools import cache
from itertools import product

import pytest
from hypothesis import given, strategies as st

from closecall.schedules import decay, first_final_step, last_convex_step

RUNS = range(1, 61)
SIZES = range(1, 41)


def half_to_even(number: Fraction) -> int:
    below = math.floor(number)
    return min(below, below + 1, key=lambda whole: (abs(number - whole), whole % 2))


@cache
def exact_fall(gap: int, steps: int) -> list[int]:
    """Return k - k* at steps 1..E if n - k* is ``gap``, by the three lines of the algorithm in fractions."""
    fall = []
    for step in range(1, steps + 1):
        if step < Fraction(steps, 3):
            fall.append(gap)
        elif step < Fraction(2 * steps, 3):
            fall.append(half_to_even(gap * Fraction(2 * steps - 3 * step, steps)))
        else:
            fall.append(0)
    return fall


def run(k_star: float, n: float, steps: int) -> list[float]:
    k_at = decay(k_star, n, steps)
    return [k_at(step) for step in range(1, steps + 1)]


def test_every_small_run_is_algorithm_1() -> None:
    for steps, n in product(RUNS, SIZES):
        for k_star in range(1, n + 1):
            assert run(k_star, n, steps) == [k_star + fall for fall in exact_fall(n - k_star, steps)], (n, k_star)


fractional = st.floats(0.01, 1e4).filter(lambda number: not number.is_integer())


@given(n=fractional, part=st.floats(0.001, 1), steps=st.integers(1, 100))
def test_fractional_counts_are_not_rounded(n: float, part: float, steps: int) -> None:
    k_star = part * n
    for step, k in enumerate(run(k_star, n, steps), start=1):
        share = min(max(Fraction(2 * steps - 3 * step, steps), 0), 1)
        assert k == pytest.approx(float(Fraction(k_star) + (Fraction(n) - Fraction(k_star)) * share), rel=1e-14)


def test_the_parts_begin_and_end_where_they_say() -> None:
    # k* = 1/2 is not whole, so nothing is rounded and k falls at every step of the middle part.
    for steps in RUNS:
        ks = run(0.5, 1000.0, steps)
        assert last_convex_step(steps) == sum(k == 1000 for k in ks)
        assert steps - first_final_step(steps) + 1 == sum(k == 0.5 for k in ks)


@pytest.mark.parametrize(
    ("k_star", "n", "steps", "message"),
    [
        (1, 5, 0, "at least one step"),
        (0, 5, 3, "k.=0 must lie in"),
        (6, 5, 3, "k.=6 must lie in"),
        (math.nan, 5, 3, "k.=nan must lie in"),
        (1, math.nan, 3, "must lie in"),
    ],
)
def test_bad_runs_are_refused(k_star: float, n: float, steps: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decay(k_star, n, steps)

"""Laws of the aggregates, each tested on all aggregates and against an exact reference in fractions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from closecall.aggregates import AGGREGATES, get_aggregate, resolve_count, take_smallest

from .family_twins import MEMBERS, member_weights

EVERY = sorted(AGGREGATES) + MEMBERS
every_aggregate = pytest.mark.parametrize("name", EVERY)
CLOSE = {"close", "close_decay"}
LOG2 = Fraction(math.log(2))

#: Losses are eighths, so that ties are common and |l - T| is exact for T = 1.
LOSSES = st.integers(0, 32).map(lambda eighths: Fraction(eighths, 8))
WHOLE = st.integers(0, 3).map(Fraction)
#: Ones, whole, dyadic (exact floats), tenths (not exact) and seventieths (often less than 1 in total).
MASSES = {
    "ones": st.just(Fraction(1)),
    "whole": WHOLE,
    "quarters": st.integers(0, 8).map(lambda part: Fraction(part, 4)),
    "tenths": st.integers(0, 20).map(lambda part: Fraction(part, 10)),
    "below one": st.integers(0, 5).map(lambda part: Fraction(part, 70)),
}


@dataclass(frozen=True)
class Case:
    """Exact losses, masses and counts; a Fraction is a fraction of the mass, an int a count of examples."""

    losses: tuple[Fraction, ...]
    masses: tuple[Fraction, ...]
    k: int | Fraction | None = None
    m: int | Fraction | None = None
    threshold: Fraction = Fraction(1)

    @property
    def total(self) -> Fraction:
        return sum(self.masses, Fraction(0))

    def mass_of(self, count: int | Fraction | None, default: Fraction) -> Fraction:
        if count is None:
            return default
        return Fraction(count) if isinstance(count, int) else count * self.total

    @property
    def k_mass(self) -> Fraction:
        return self.mass_of(self.k, self.total)

    @property
    def m_mass(self) -> Fraction:
        return self.mass_of(self.m, Fraction(0))

    def keys(self, name: str) -> list[Fraction]:
        return [abs(loss - self.threshold) if name in CLOSE else -loss for loss in self.losses]

    def rows(self, rows: list[int]) -> Case:
        """Return the examples at these rows, in this order."""
        losses, masses = (tuple(values[row] for row in rows) for values in (self.losses, self.masses))
        return replace(self, losses=losses, masses=masses)

    def weights(self, name: str) -> np.ndarray:
        """Return the weights by the package."""
        k, m = (count if count is None or isinstance(count, int) else float(count) for count in (self.k, self.m))
        losses, masses = np.array(self.losses, dtype=float), np.array(self.masses, dtype=float)
        return get_aggregate(name).weights(losses, threshold=float(self.threshold), k=k, m=m, mass=masses)

    def exact_weights(self, name: str) -> list[Fraction]:
        """Return the weights by definition: rank the mass on a line, select an interval, share within tied groups."""
        if name in MEMBERS:
            return member_weights(name, self.losses, self.masses)
        keys, spans, start = self.keys(name), {}, Fraction(0)
        for key in sorted(set(keys)):
            size = sum(mass for other, mass in zip(keys, self.masses, strict=True) if other == key)
            spans[key] = start, start + size
            start += size
        # `top`: the unit of mass that ends where the group of the k-th largest loss ends.
        end = max(min(stop for _, stop in spans.values() if stop >= self.k_mass), Fraction(1))
        low, high = {
            "average": (0, self.total),
            "maximal": (0, 1),
            "top": (end - 1, end),
            "atk": (0, self.k_mass),
            "close": (0, self.k_mass),
            "close_decay": (0, self.k_mass),
            "ranked_range": (self.m_mass, self.k_mass),
            "trimmed": (self.m_mass, self.total),
        }[name]
        taken = {key: max(min(stop, high) - max(start, low), 0) for key, (start, stop) in spans.items()}
        sizes = {key: stop - start for key, (start, stop) in spans.items()}
        return [mass * taken[key] / (sizes[key] or 1) for key, mass in zip(keys, self.masses, strict=True)]


@st.composite
def cases(draw: st.DrawFn, kinds: tuple[str, ...] = tuple(MASSES)) -> Case:
    masses = draw(st.lists(MASSES[draw(st.sampled_from(kinds))], min_size=1, max_size=12).filter(any))
    losses = draw(st.lists(LOSSES, min_size=len(masses), max_size=len(masses)))
    case = Case(tuple(losses), tuple(masses), threshold=draw(st.sampled_from([Fraction(1), LOG2])))
    parts = draw(st.sampled_from([3, 7, 20, 100]))
    counts = [st.none(), st.integers(1, parts).map(lambda part: Fraction(part, parts))]
    if case.total >= 1:
        counts.append(st.integers(1, math.floor(case.total)))
    case = replace(case, k=draw(st.one_of(counts)))
    # m stays below k: a whole number, or a fraction of the mass that is so many twentieths of k.
    below = [st.none(), st.integers(0, 19).map(lambda part: case.k_mass / case.total * Fraction(part, 20))]
    below.append(st.integers(0, math.ceil(case.k_mass) - 1))
    return replace(case, m=draw(st.one_of(below)))


def assert_same(measured: np.ndarray, expected: object, name: str = "") -> None:
    np.testing.assert_allclose(measured, np.array(expected, dtype=float), rtol=0, atol=1e-12, err_msg=name)


# Drawing a case costs more than weighing it, so each law is tested on all aggregates with the same case. The comparison
# with the exact twin implies that order does not matter, that a mass of two is two copies and that ties share.
some = settings(max_examples=40)


@settings(max_examples=300)
@given(case=cases())
def test_weights_are_those_of_the_exact_twin(case: Case) -> None:
    for name in EVERY:
        weights = case.weights(name)
        assert_same(weights, case.exact_weights(name), name)
        assert (weights >= 0).all(), name
        if get_aggregate(name).bounded:
            assert (weights <= np.array(case.masses, dtype=float)).all(), name


@some
@given(case=cases(), data=st.data())
def test_each_row_of_a_batch_is_weighed_alone(case: Case, data: st.DataObject) -> None:
    other = replace(case, losses=tuple(data.draw(st.permutations(case.losses))))
    losses = np.array([case.losses, other.losses], dtype=float)
    mass, threshold = np.array(case.masses, dtype=float), float(case.threshold)
    k, m = (float(count / case.total) for count in (case.k_mass, case.m_mass))
    for name in EVERY:
        batch = get_aggregate(name).weights(losses, threshold=threshold, k=k, m=m, mass=mass)
        assert_same(batch, [case.weights(name), other.weights(name)], name)


@some
@given(case=cases(), masses=st.lists(st.floats(1e-3, 1e3), min_size=12, max_size=12))
def test_close_of_everything_is_average_bit_for_bit(case: Case, masses: list[float]) -> None:
    losses = np.array(case.losses, dtype=float)
    for mass in (np.array(case.masses, dtype=float), np.array(masses[: len(losses)])):
        for k in (None, 1.0):
            for name in ("close", "close_decay", "atk"):
                weights = get_aggregate(name).weights(losses, threshold=1.0, k=k, mass=mass)
                np.testing.assert_array_equal(weights, mass)
    n = len(losses)
    np.testing.assert_array_equal(get_aggregate("close").weights(losses, threshold=1.0, k=n), np.ones(n))


@pytest.mark.parametrize("n", [1, 3, 7, 10, 29, 100, 1000])
def test_a_percentage_that_means_a_whole_count_is_that_count(n: int) -> None:
    # 0.07 * 100 is 7.000000000000001 in floats: the eighth example must get nothing.
    losses = np.arange(n, 0.0, -1.0)
    for percent in range(1, 101):
        if percent * n % 100 == 0:
            k = percent * n // 100
            atk, top = (get_aggregate(name).weights(losses, k=percent / 100) for name in ("atk", "top"))
            np.testing.assert_array_equal(np.flatnonzero(atk), range(k))
            np.testing.assert_array_equal(np.flatnonzero(top), [k - 1])


def test_many_inexact_masses_still_reach_their_sum() -> None:
    # Summed in order, 100,000 tenths exceed 10,000 by 1.9e-8; this must not affect the rank of the next example.
    for part in (0.1, 0.3, 0.7):
        mass = np.append(np.full(100_000, part), [1.0, 1.0])
        losses = np.append(np.full(100_000, 3.0), [2.0, 1.0])
        weights = get_aggregate("top").weights(losses, k=round(part * 100_000), mass=mass)
        assert weights[:-2].sum() == pytest.approx(1)
        assert weights[-2:].tolist() == [0.0, 0.0]


def test_a_whole_count_may_miss_the_total_by_a_rounding() -> None:
    sizes = range(10, 1000, 10)
    assert any(np.full(size, 0.1).sum() < size // 10 for size in sizes)
    for size in sizes:
        mass = np.full(size, 0.1)
        weights = get_aggregate("close").weights(np.arange(size), k=size // 10, threshold=1.0, mass=mass)
        np.testing.assert_array_equal(weights, mass)


def test_take_smallest_takes_a_count_for_each_problem() -> None:
    keys = np.array([[3.0, 1.0, 2.0, 1.0]] * 5)
    expected = [[0, 0, 0, 0], [0, 0.5, 0, 0.5], [0, 1, 0.25, 1], [0.5, 1, 1, 1], [1, 1, 1, 1]]
    assert_same(take_smallest(keys, np.ones(4), np.array([0, 1, 2.25, 3.5, 9])), expected)
    assert take_smallest(keys, np.ones((5, 4)), 2.0).tolist() == [[0, 1, 0, 1]] * 5


def aggregate_of(name: str, losses: np.ndarray) -> np.ndarray:
    aggregate = get_aggregate(name)
    weights = aggregate.weights(losses, threshold=1.0, k=2, m=1)
    return (weights * losses).sum(axis=1) + aggregate.above(weights, np.ones(losses.shape[1]))


@every_aggregate
def test_convex_means_convex_in_the_losses(name: str) -> None:
    first, second = np.random.default_rng(0).uniform(0, 2, size=(2, 2000, 4))
    chord = (aggregate_of(name, first) + aggregate_of(name, second)) / 2
    above = aggregate_of(name, (first + second) / 2) > chord + 1e-12
    assert above.any() != AGGREGATES[name].convex


def test_counts_resolve_to_masses() -> None:
    assert [resolve_count(k, 8) for k in (1, np.int64(3), 8, 1.0, None, 0.25)] == [1, 3, 8, 8, 8, 2]
    assert resolve_count(0, 8, low=0) == resolve_count(0.0, 8, low=0) == 0
    for total, part in np.random.default_rng(0).uniform(1e-6, 1, size=(50, 2)):
        assert resolve_count(part, 1e6 * total) == resolve_count(float(part), 1e6 * total) == part * (1e6 * total)


BAD_COUNTS = [
    (0, ValueError, "k=0 is too small"),
    (-3, ValueError, "k=-3 is too small"),
    (4, ValueError, "k=4 exceeds the 3 examples"),
    (0.0, ValueError, "fraction in"),
    (-0.5, ValueError, "fraction in"),
    (1.5, ValueError, "fraction in.*int for a count"),
    (math.nan, ValueError, "fraction in"),
    (math.inf, ValueError, "fraction in"),
    (True, TypeError, "k must be an int"),
    (np.True_, TypeError, "k must be an int"),
    ("2", TypeError, "k must be an int"),
]


def test_bad_counts_are_refused() -> None:
    for name in EVERY:
        for k, error, message in BAD_COUNTS if "k" in AGGREGATES[name].takes else ():
            with pytest.raises(error, match=message):
                get_aggregate(name).weights(np.arange(3.0), k=k, threshold=1.0)
        for m in (-1, 3, 4, 1.0, 1.5, math.nan, True) if "m" in AGGREGATES[name].takes else ():
            with pytest.raises((ValueError, TypeError), match=r"^m[= ]"):
                get_aggregate(name).weights(np.arange(3.0), m=m)


BAD_MASSES = [
    ([1, -1, 1], "negative"),
    ([1, math.nan, 1], "NaN or infinite"),
    ([1, math.inf, 1], "NaN or infinite"),
    ([0, 0, 0], "zero everywhere"),
    ([1, 1], r"shape \(2,\); expected \(3,\)"),
    ([[1, 1, 1]], r"shape \(1, 3\)"),
    (2.0, r"shape \(\)"),
]


@every_aggregate
def test_bad_masses_and_losses_are_refused(name: str) -> None:
    weights = get_aggregate(name).weights
    for mass, message in BAD_MASSES:
        with pytest.raises(ValueError, match=message):
            weights(np.arange(3.0), threshold=1.0, mass=mass)
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match="losses contain NaN or infinite"):
            weights([1.0, bad], threshold=1.0)
    for mass in (None, []):
        with pytest.raises(ValueError, match="no losses"):
            weights([], threshold=1.0, mass=mass)
    if name in CLOSE:
        with pytest.raises(ValueError, match="threshold"):
            weights([1.0, 2.0], k=1)

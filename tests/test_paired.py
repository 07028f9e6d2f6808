"""Paired gains: the standard error compared with brute force and SciPy, and its level on noise."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from closecall.paired import (
    FEWEST,
    Gain,
    Units,
    apart,
    compare,
    from_sums,
    over_folds,
    over_tests,
    paired,
    units_of,
)


def left_out(gains: np.ndarray, weights: np.ndarray, codes: np.ndarray) -> float:
    """Return the jackknife standard error over units, by leaving each of them out."""
    means = np.array([np.average(gains[codes != code], weights=weights[codes != code]) for code in np.unique(codes)])
    centre = np.average(gains, weights=weights)
    return float(np.sqrt((len(means) - 1) / len(means) * ((means - centre) ** 2).sum()))


@given(st.integers(0, 10_000), st.integers(3, 12), st.booleans())
@settings(max_examples=60)
def test_the_error_is_that_of_leaving_each_unit_out(seed: int, units: int, heavy: bool) -> None:
    rng = np.random.default_rng(seed)
    codes = np.concatenate([np.arange(units), rng.integers(0, units, 30)])
    gains = rng.choice([-1.0, 0.0, 1.0, 0.5], len(codes))
    weights = rng.lognormal(sigma=2.0 if heavy else 0.0, size=len(codes))
    found = paired(gains, weights, Units(codes, "groups"))
    assert found.mean == pytest.approx(np.average(gains, weights=weights), abs=1e-12)
    assert found.standard_error == pytest.approx(left_out(gains, weights, codes), rel=1e-9, abs=1e-12)
    assert (found.count, found.unit) == (units, "groups")
    scaled = paired(gains, 20 * weights, Units(codes, "groups"))
    for name in ("mean", "standard_error", "degrees"):
        assert getattr(scaled, name) == pytest.approx(getattr(found, name), rel=1e-9, abs=1e-12)
    shares = np.bincount(codes, weights) / weights.sum()
    assert found.degrees <= 1 / (shares @ shares) - 1 + 1e-9


@given(st.integers(0, 10_000))
@settings(max_examples=40)
def test_groups_that_cross_add_up_less_what_they_share(seed: int) -> None:
    rng = np.random.default_rng(seed)
    first, second = np.divmod(rng.permutation(80), 8)
    gains, weights = rng.normal(size=80), rng.lognormal(size=80)
    found = paired(gains, weights, Units(first, "groups", other=second))
    alone = [left_out(gains, weights, codes) for codes in (first, second, np.arange(80))]
    squares = alone[0] ** 2 + alone[1] ** 2 - alone[2] ** 2
    assert found.standard_error == pytest.approx(max(alone[0], alone[1], np.sqrt(max(squares, 0))), rel=1e-9)
    assert found.count == 8
    assert found.degrees <= 7


def test_unsteady_gains_have_the_error_of_one_test() -> None:
    rng = np.random.default_rng(6)
    tests = rng.choice([-1.0, 0.0, 1.0], (2, 70))
    gains, spread = over_tests(tests.sum(axis=0), (tests**2).sum(axis=0), np.full(70, 2))
    found, steady = paired(gains, np.ones(70), spread=spread), paired(gains, np.ones(70))
    each = [((one - gains.mean()) ** 2).sum() / 69 / 70 for one in tests]
    assert found.standard_error == pytest.approx(np.sqrt(np.mean(each)))
    assert steady.standard_error == pytest.approx(gains.std(ddof=1) / np.sqrt(70))
    assert steady.standard_error < found.standard_error
    same = paired(tests[0], np.ones(70), spread=np.zeros(70))
    assert same == paired(tests[0], np.ones(70))


def test_rows_of_equal_weight_are_students_test() -> None:
    found = paired(np.random.default_rng(0).normal(0.1, 1.0, 40), np.ones(40))
    assert 30 < found.degrees <= 39
    exact = stats.t.isf(stats.norm.sf(2.0), found.degrees) * found.standard_error
    assert found.needed(2.0) == pytest.approx(exact)
    assert found.needed(0.0) == 0
    assert np.isfinite(found.needed(1000.0))


def test_a_mass_of_two_is_two_copies_of_the_mean_and_of_equal_rows_of_the_error() -> None:
    """Copies that are known to be copies count as a weight; other equal rows count as independent."""
    rng = np.random.default_rng(2)
    gains, mass = rng.choice([-1.0, 0.0, 1.0], 50), rng.integers(1, 5, 50)
    rows = np.repeat(np.arange(50), mass)
    weighed = paired(gains, mass.astype(float))
    known, unknown = (paired(gains[rows], np.ones(len(rows)), units) for units in (Units(rows), apart(len(rows))))
    for name in ("mean", "standard_error", "degrees", "count"):
        assert getattr(weighed, name) == pytest.approx(getattr(known, name))
    assert unknown.mean == pytest.approx(weighed.mean)
    assert unknown.standard_error < 0.8 * weighed.standard_error


@pytest.mark.parametrize("guard", [1.5, 2.0, 2.5])
def test_few_rows_that_differ_are_judged_as_mcnemar_does(guard: float) -> None:
    """With b gains and c losses, the reference is the mid-p value of the binomial distribution (Fagerland 2013)."""
    level, wrong = stats.norm.sf(guard), 0
    for b in range(31):
        for c in range(31 - b):
            gains = np.concatenate([np.ones(b), -np.ones(c), np.zeros(300 - b - c)])
            taken = compare("a", "b", paired(gains, np.ones(300)), guard).taken
            middle = stats.binom.sf(b, b + c, 0.5) + stats.binom.pmf(b, b + c, 0.5) / 2
            assert not (taken and middle > 1.1 * level)
            assert taken or middle > 0.4 * level
            wrong += taken != (middle <= level)
    assert wrong <= 12  # of 496, all of them near the level


@pytest.mark.parametrize("count", [6, 8, 20])
def test_few_groups_of_unequal_size_keep_the_level(count: int) -> None:
    rng, runs, level = np.random.default_rng(3), 3000, stats.norm.sf(2.0)
    for sizes in (np.ones(count), rng.lognormal(sigma=1.0, size=count)):
        taken = 0
        for _ in range(runs):
            found = paired(rng.normal(size=count), sizes)
            taken += found.mean > found.needed(2.0)
        assert taken <= stats.binom.isf(1e-4, runs, level)


def test_a_choice_needs_what_chance_reaches_and_never_less_than_student() -> None:
    plain = Gain(0.1, 0.05, 30.0, 31)
    assert replace(plain, chance=(0.1,) * 5).needed(2.0) == plain.needed(2.0)
    chosen = replace(plain, chance=(1.0, 1.6, 2.2, 2.8, 3.4))
    for guard, factor in ((0.25, 0.5), (0.75, 1.3), (2.0, 2.8), (2.5, 3.4), (5.0, 6.8)):
        assert chosen.needed(guard) == pytest.approx(factor * 0.05)
    assert compare("a", "b", chosen, 2.0).chance == chosen.chance


@pytest.mark.parametrize("seed", range(20))
def test_the_strength_is_the_largest_guard_that_the_gain_exceeds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    chance = tuple(np.sort(4 * rng.random(5))) if seed % 2 else ()
    mean, degrees = float(rng.normal(0.1, 0.1)), float(rng.choice([0.0, 1.0, 9.5, 1e9]))
    gain = Gain(mean, 0.05 * (seed > 1), degrees, 50, chance=chance)
    exceeded = [guard for guard in np.arange(0.01, 8.0, 0.01) if gain.mean > gain.needed(guard)]
    assert gain.strength == max(exceeded, default=0.0)


def test_with_fewer_than_six_units_even_a_constant_gain_is_not_enough() -> None:
    for count in (1, 2, 5, 6):
        found = paired(np.full(60, 0.1), np.ones(60), Units(np.arange(60) * count // 60, "groups"))
        outcome = compare("forest", "baseline", found, 2.0)
        assert found.count == count
        assert outcome.taken == (count >= FEWEST)
        few = f"over {count} groups, too few for a standard error: baseline is kept"
        assert (few in str(outcome)) == (count < FEWEST)
    for nothing in (paired(np.full(3, np.nan), np.ones(3)), Gain(0.0, 0.0, 9.0, 10)):
        assert not compare("a", "b", nothing, 1.0).taken


def test_time_is_cut_into_few_long_blocks_of_what_was_asked() -> None:
    units = units_of(np.zeros(100), None, [(np.arange(40), np.arange(40, 70)), (np.arange(70), np.arange(70, 100))])
    assert (units.time, units.name) == (True, "blocks of time")
    np.testing.assert_array_equal(units.among(np.arange(40, 100))[0], np.repeat(np.arange(6), 10))
    rows = units_of(np.array([3, 4, 3]), None, [(np.array([0, 2]), np.array([1])), (np.array([1]), np.array([0, 2]))])
    assert (rows.time, rows.codes.tolist()) == (False, [0, 1, 0])
    assert units_of(np.arange(3), ["b", "a", "b"], []).codes.tolist() == [1, 0, 1]
    both = units_of(np.zeros(4), ["b", "a", "b", "a"], [(np.array([0, 1]), np.array([2, 3]))])  # members in time
    assert [way.tolist() for way in both.among(np.arange(4))] == [[0, 1, 2, 3], [1, 0, 1, 0]]


def test_sums_are_the_rows_they_sum() -> None:
    rng = np.random.default_rng(5)
    gains, weights = rng.choice([-1.0, 0.0, 1.0], 5000, p=[0.05, 0.85, 0.1]), rng.lognormal(size=5000)
    kinds = np.array([-1.0, 0.0, 1.0])
    masses, squares = (np.array([(weights[gains == kind] ** power).sum() for kind in kinds]) for power in (1, 2))
    whole, few = paired(gains, weights), from_sums(kinds, masses, squares)
    assert few.mean == pytest.approx(whole.mean)
    assert few.standard_error == pytest.approx(whole.standard_error, rel=1e-3)
    assert few.needed(2.5) == pytest.approx(whole.needed(2.5), rel=0.02)


def test_folds_have_students_quantile_and_the_correction() -> None:
    gains = np.array([0.1, 0.0, 0.2, 0.1, 0.05])
    found = over_folds(gains, 0.25)
    assert found.standard_error == pytest.approx(gains.std(ddof=1) * np.sqrt(1 / 5 + 0.25))
    assert found.needed(2.0) == pytest.approx(stats.t.isf(stats.norm.sf(2.0), 4) * found.standard_error)
    assert not compare("a", "b", over_folds(gains, 0.25, Units(np.arange(50) % 5, "groups")), 0.1).taken
    assert not compare("a", "b", over_folds(gains[:1], 0.25), 0.1).taken

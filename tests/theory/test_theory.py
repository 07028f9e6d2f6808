"""The exact 0-1 intercept, the exact 0-1 minimum and the generalisation bound, against slow twins and known answers."""

import itertools
from time import monotonic

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse
from scipy.optimize import linprog

from closecall.theory import best_intercept, log_growth, minimum_errors, risk_bound
from closecall.theory.cover import _disjoint, _solve_cover, find_conflict, lightest_cover
from closecall.theory.hemisphere import densest_hemisphere
from closecall.theory.optimum import _ZeroOneSearch


def errors_of(scores, y, mass):
    return float(mass[y * scores <= 0].sum())


# --- the intercept -------------------------------------------------------------------------------------------------


def intercept_by_trial(scores, y, mass):
    """Slow reference: try the middle of every gap between scores that count, widest first, then both ends."""
    places = np.unique(scores[mass > 0])
    gaps = sorted(itertools.pairwise(places), key=lambda gap: (gap[0] / 2 - gap[1] / 2, gap[0]))
    reach = max(places[-1] - places[0], 1)
    cuts = [low / 2 + high / 2 for low, high in gaps] + [places[0] - reach, places[-1] + reach]
    return min(((-cut, errors_of(scores - cut, y, mass)) for cut in cuts), key=lambda pair: pair[1])


@st.composite
def scored(draw):
    n = draw(st.integers(2, 9))
    # A few half-integers make ties in scores, in widths and in errors; exact, so that both twins agree to the bit.
    scores = draw(hnp.arrays(float, n, elements=st.integers(-6, 6).map(lambda i: i / 2)))
    y = np.array([-1, 1, *draw(st.lists(st.sampled_from([-1, 1]), min_size=n - 2, max_size=n - 2))])
    mass = draw(hnp.arrays(float, n, elements=st.sampled_from([0.0, 0.5, 1.0, 2.0])))
    mass[draw(st.integers(0, n - 1))] = 1.0
    return scores, y, mass


@given(scored())
def test_intercept_equals_its_slow_twin(problem):
    scores, y, mass = problem
    intercept, errors = best_intercept(scores, y, mass)
    assert (intercept, errors) == intercept_by_trial(scores, y, mass)
    assert errors == errors_of(scores + intercept, y, mass)


def test_a_batch_equals_its_rows():
    rng = np.random.default_rng(0)
    scores, y = rng.normal(size=(7, 30)).round(1), np.resize([-1, 1, 1], 30)
    masses = rng.integers(0, 3, size=(7, 30)) / 2
    for mass in (None, masses[0], masses):
        intercepts, errors = best_intercept(scores, y, mass)
        row_masses = [mass] * 7 if mass is None or mass.ndim == 1 else mass
        rows = [best_intercept(row, y, row_mass) for row, row_mass in zip(scores, row_masses, strict=True)]
        assert [tuple(pair) for pair in zip(intercepts.tolist(), errors.tolist(), strict=True)] == rows


def test_floats_without_a_middle_are_tied():
    scores = np.array([1.0, np.nextafter(1.0, 2.0)])
    assert best_intercept(scores, [-1, 1])[1] == 1
    assert best_intercept([1e20, 1e20, 1e20], [-1, 1, 1])[1] == 1  # and an end is beyond even large scores


def test_scores_closer_than_the_resolution_are_tied():
    scores, y = np.array([0.3 + 1e-15, 0.3, 1.0, 1.0]), np.array([1, -1, 1, -1])
    assert best_intercept(scores, y)[1] == 1
    assert best_intercept(scores, y, resolution=1e-12)[1] == 2
    intercepts, errors = best_intercept(np.stack([scores, scores]), y, resolution=[0.0, 1e-12])
    assert errors.tolist() == [1, 2]
    assert intercepts[0] == best_intercept(scores, y)[0]


# --- the minimum ---------------------------------------------------------------------------------------------------


def separable(vectors):
    zeros = np.zeros(vectors.shape[1])
    return linprog(zeros, A_ub=-vectors, b_ub=-np.ones(len(vectors)), bounds=(None, None)).status == 0


def minimum_by_trial(X, y, mass):
    """Slow reference: leave out sets of examples, lightest first, until a linear programme separates the others."""
    vectors = np.hstack([X, np.ones((len(y), 1))]) * y[:, None]
    subsets = np.array(list(itertools.product([False, True], repeat=len(y))))
    weights = subsets @ mass
    return next(weights[i] for i in np.argsort(weights, kind="stable") if separable(vectors[~subsets[i]]))


def check(optimum, X, y, mass):
    assert optimum.errors == pytest.approx(errors_of(X @ optimum.coef + optimum.intercept, y, mass))
    assert optimum.proven == (optimum.lower_bound == optimum.errors)


def lattice_problem(rng, n, d, size):
    """Return many points in few places, with many repeated, collinear and coplanar points."""
    X = rng.integers(0, size, size=(n, d)).astype(float)
    y = np.where(rng.random(n) < 0.5, 1, -1)
    y[:2] = -1, 1
    mass = rng.choice([0.0, 0.5, 1.0, 1.5, 2.25], n)
    mass[:2] = 1
    return X, y, mass


@pytest.mark.parametrize("d", [1, 2, 3, 4])
def test_all_methods_equal_trial_of_all_subsets_and_each_other(d):
    for seed, (n, size) in enumerate([(9, 3), (9, 3), (9, 3), (9, 50), (25, 6), (25, 1000)][: 5 if d == 4 else None]):
        X, y, mass = lattice_problem(np.random.default_rng([d, seed]), 14 if (d, n) == (4, 25) else n, d, size)
        found = [minimum_errors(X, y, mass, method=method) for method in ("enumeration", "cones", "milp")]
        expected = minimum_by_trial(X, y, mass) if n == 9 else found[0].errors
        for optimum, method in zip(found, ("enumeration", "cones", "milp"), strict=True):
            assert (optimum.errors, optimum.proven, optimum.method) == (pytest.approx(expected), True, method)
            check(optimum, X, y, mass)


def test_the_minimum_does_not_depend_on_the_frame():
    """Decimals, and a sheared frame even more, perturb collinear points in the last bits; the result is the same."""
    rng = np.random.default_rng(4)
    X, y, mass = lattice_problem(rng, 60, 3, 4)
    expected = minimum_errors(X, y, mass)
    frames = [X * 0.1 + 0.3, X * [1e-6, 1.0, 1e6], X @ rng.normal(size=(3, 3)) + 100 * rng.normal(size=3)]
    for frame in frames:
        optimum = minimum_errors(frame, y, mass)
        assert optimum.errors == pytest.approx(expected.errors)
        assert optimum.proven
        check(optimum, frame, y, mass)


def test_errors_do_not_hang_on_the_last_bits():
    """With w = (1, 1, 1) the first two rows both score 0.1; cancellation must not separate them."""
    X = np.array([[1e8, 0.1, -1e8], [0, 0.1, 0], [1e8, 0, 0], [0, 1, 0], [0, 0, 1e8]])
    found = _ZeroOneSearch(X, np.array([-1, 1, 1, 1, 1]), np.ones(5))
    assert found.columns.tolist() == [0, 1, 2]
    found.evaluate(found.scales)
    assert found.coef.tolist() == [1, 1, 1]
    assert found.errors == 1


def test_dependent_features_do_not_count():
    rng = np.random.default_rng(5)
    X, y, mass = lattice_problem(rng, 40, 2, 5)
    wide = np.column_stack([np.full(40, 7.0), X[:, 0], X @ [1.0, 2.0], 3 - X[:, 1], X[:, 1]])
    optimum = minimum_errors(wide, y, mass)
    assert optimum.method == "enumeration"
    assert optimum.errors == minimum_errors(X, y, mass).errors
    check(optimum, wide, y, mass)
    constant = minimum_errors(np.ones((40, 2)), y, mass)
    assert constant.errors == min(mass[y > 0].sum(), mass[y < 0].sum())
    check(constant, np.ones((40, 2)), y, mass)


@pytest.mark.parametrize("d", [2, 6])
def test_separable_data_have_no_errors(d):
    rng = np.random.default_rng(6)
    X = rng.normal(size=(80, d))
    y = np.where(X @ np.arange(1, d + 1) > 0.5, 1, -1)
    for given_X in (X, sparse.csr_matrix(X)):
        optimum = minimum_errors(given_X, y)
        assert (optimum.errors, optimum.proven) == (0, True)
        check(optimum, X, y, np.ones(80))


@pytest.mark.parametrize(("method", "budgets"), [("milp", (1e-9, 0.3, 2.0)), ("cones", (1e-9, 0.02, 60.0))])
def test_without_time_there_is_still_a_bound_from_below(method, budgets):
    """With three features enumeration gives the minimum, which the bounds must enclose for any time limit."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(120, 3))
    y = np.where(X[:, 0] + rng.normal(size=120) > 0, 1, -1)
    truth = minimum_errors(X, y, method="enumeration").errors
    bounds = []
    for seconds in budgets:
        start = monotonic()
        optimum = minimum_errors(X, y, method=method, time_limit=seconds)
        assert monotonic() - start < seconds + 5.0
        assert optimum.lower_bound <= truth <= optimum.errors
        check(optimum, X, y, np.ones(120))
        bounds.append(optimum.lower_bound)
        assert optimum.proven == (optimum.errors == truth == optimum.lower_bound)
    assert bounds[0] < truth
    assert bounds[-1] > 0


def test_a_conflict_is_minimal_and_cannot_be_met():
    rng = np.random.default_rng(8)
    X = rng.normal(size=(40, 5))
    vectors = np.hstack([X, np.ones((40, 1))]) * rng.choice([-1, 1], 40)[:, None]
    for _ in range(10):
        conflict = find_conflict(vectors, rng.random(40))
        assert 2 <= len(conflict) <= 7
        assert not separable(vectors[conflict])
        assert all(separable(vectors[np.delete(conflict, i)]) for i in range(len(conflict)))


@pytest.mark.parametrize("weights", [np.ones(10), np.arange(1.0, 11.0), np.linspace(0.1, 1.3, 10)])
def test_a_cover_is_the_lightest_of_all_subsets(weights):
    rng = np.random.default_rng(9)
    subsets = np.array(list(itertools.product([False, True], repeat=10)))
    for _ in range(5):
        conflicts = [np.sort(rng.choice(10, rng.integers(2, 5), replace=False)) for _ in range(12)]
        covers = np.all([subsets[:, conflict].any(axis=1) for conflict in conflicts], axis=0)
        bound, cover = _solve_cover(conflicts, weights, 10.0)
        assert bound == pytest.approx((subsets[covers] @ weights).min())
        assert weights[cover].sum() == pytest.approx(bound)
        assert 0 < _disjoint(conflicts, weights) <= bound + 1e-9


def test_half_planes_know_antiparallel_from_parallel():
    """Use directions within the tolerance of each other, on both sides of the line where angles wrap around."""
    tiny = 1e-17
    upward = np.array([[1.0, tiny], [-1.0, tiny], [0.0, 1.0]])
    assert densest_hemisphere(upward, np.array([2.0, 3.0, 4.0]), 1e-9)[0] == 2
    for direction in ([1.0, 1.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, -tiny]):
        cost, inside = densest_hemisphere(np.outer([1, 2, 3, -1], direction), np.ones(4), 1e-9)
        assert (cost, inside.tolist()) == (1, [True, True, True, False])


def test_the_cover_of_nothing_is_nothing():
    assert lightest_cover(np.eye(3), np.ones(3), time_limit=5, accept=lambda free: float((~free).sum())) == 0


# --- the generalisation bound, and bad input -------------------------------------------------------------------------


def test_growth_and_risk_bound_against_plain_sums():
    from math import comb, log, sqrt

    for vc, n in [(0, 5), (3, 10), (4, 60), (30, 12)]:
        assert log_growth(vc, n) == pytest.approx(log(sum(comb(n, i) for i in range(vc + 1))))
    h = (log(sum(comb(2000, i) for i in range(4))) + log(4 / 0.1)) / 1000
    assert risk_bound(0.02, 1000, 3, 0.1) == pytest.approx(0.02 + 2 * sqrt(0.02 * h) + 4 * h)
    assert risk_bound(0.5, 10, 3, 0.1) == 1.0


BAD = [
    (lambda: best_intercept([0.0, np.nan], [-1, 1]), "NaN or infinite"),
    (lambda: best_intercept(np.zeros((1, 2, 2)), [-1, 1]), "shape"),
    (lambda: best_intercept([0.0, 1.0], [-1, 1, 1]), "y has shape"),
    (lambda: best_intercept([0.0, 1.0], [1, 1]), "only one class"),
    (lambda: best_intercept([0.0, 1.0], [-1, 1], [0.0, 0.0]), "zero everywhere"),
    (lambda: best_intercept([[0.0, 1.0]], [-1, 1], [[1.0, 1.0], [1.0, 1.0]]), "one row for each problem"),
    (lambda: minimum_errors([[0.0], [np.inf]], [-1, 1]), "NaN or infinite"),
    (lambda: minimum_errors([[0.0], [1.0]], [0, 1]), "labels must be -1 and"),
    (lambda: minimum_errors([[0.0], [1.0]], [-1, 1], [1, -1]), "negative"),
    (lambda: minimum_errors([[0.0], [1.0]], [-1, 1], method="guess"), "unknown method 'guess'; choose one of"),
    (lambda: minimum_errors([[0.0], [1.0]], [-1, 1], time_limit=0), "time_limit"),
    (lambda: minimum_errors([[-1.7e308], [1.7e308]], [-1, 1]), "float range"),
    (lambda: minimum_errors([[0.0], [1.0]], [-1, 1], start=[1.0, 2.0]), "start must be finite and have shape"),
    (lambda: risk_bound(1.5, 10, 2, 0.1), "training_risk"),
    (lambda: risk_bound(0.5, 10, 2, 1.0), "delta"),
    (lambda: risk_bound(0.5, 0, 2, 0.1), "samples must be >= 1"),
]


def test_bad_input_gets_a_clear_error():
    for call, message in BAD:
        with pytest.raises(ValueError, match=message):
            call()

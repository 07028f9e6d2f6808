"""Values and gradients of a batch of problems, the constant M, and input checks."""

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy import sparse

from closecall.aggregates import AGGREGATES, get_aggregate
from closecall.losses import LOSSES, get_loss
from closecall.objective import Problem, aggregate_value, check_data, values_and_gradients

EVERY_PAIR = list(product(sorted(LOSSES), sorted(AGGREGATES)))
KINKS = {"hinge": [1.0], "ramp": [-1.0, 1.0]}


def problem_of(loss: str, aggregate: str, *, k: object = 4, m: object = 2, alpha: float = 0.3) -> Problem:
    return Problem(loss, aggregate, k=k, m=m, alpha=alpha)


def draw_data(seed: int, samples: int = 12, features: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels of both classes, and whole masses, some of them zero."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.resize([-1.0, 1.0], samples))
    return rng.normal(size=(samples, features)), y, rng.permutation(np.resize([1.0, 2.0, 0.0, 3.0], samples))


def draw_points(seed: int, problems: int, features: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([seed, 1])
    return rng.normal(size=(problems, features)), rng.normal(size=problems)


def weights_and_side(problem: Problem, margins: np.ndarray, mass: np.ndarray) -> np.ndarray:
    """Return what must be constant for the objective to be smooth: the selection and the side of each kink."""
    loss = get_loss(problem.loss)
    weights = get_aggregate(problem.aggregate).weights(
        loss.value(margins), threshold=loss.threshold, k=problem.k, m=problem.m, mass=mass
    )
    return np.concatenate([weights, *(margins > kink for kink in KINKS.get(problem.loss, []))])


@pytest.mark.parametrize(("loss", "aggregate"), EVERY_PAIR)
def test_gradients_match_central_differences_where_there_is_one(loss: str, aggregate: str) -> None:
    problem, step, checked = problem_of(loss, aggregate), 1e-6, 0
    for seed in range(5):
        X, y, mass = draw_data(seed)
        (coef,), (intercept,) = draw_points(seed, 1)
        point = np.append(coef, intercept)

        def value(at: np.ndarray, X: np.ndarray = X, y: np.ndarray = y, mass: np.ndarray = mass) -> float:
            return values_and_gradients([problem], at[None, :-1], at[-1:], X, y, mass=mass)[0][0]

        def state(at: np.ndarray, X: np.ndarray = X, y: np.ndarray = y, mass: np.ndarray = mass) -> np.ndarray:
            return weights_and_side(problem, y * (X @ at[:-1] + at[-1]), mass)

        _, slopes, intercept_slopes = values_and_gradients([problem], coef[None], point[-1:], X, y, mass=mass)
        gradient = np.append(slopes, intercept_slopes)
        for axis, nudge in enumerate(step * np.eye(point.size)):
            if np.allclose(state(point + nudge), state(point - nudge), rtol=0, atol=1e-12):
                difference = (value(point + nudge) - value(point - nudge)) / (2 * step)
                assert gradient[axis] == pytest.approx(difference, rel=1e-6, abs=1e-5)
                checked += 1
    assert checked >= 15  # of 20: random points are smooth almost surely


def all_problems() -> list[Problem]:
    return [problem_of(loss, aggregate, alpha=0.1 * row) for row, (loss, aggregate) in enumerate(EVERY_PAIR)]


def assert_same(first: tuple[np.ndarray, ...], second: tuple[np.ndarray, ...]) -> None:
    for one, other in zip(first, second, strict=True):
        assert type(one) is type(other) is np.ndarray
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("penalize_intercept", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_dense_csr_copies_and_single_problems_agree(seed: int, penalize_intercept: bool) -> None:
    (X, y, mass), problems = draw_data(seed), all_problems()
    X[np.abs(X) < 0.5] = 0
    coef, intercept = draw_points(seed, len(problems))

    def evaluate(X: object, y: np.ndarray, mass: np.ndarray | None) -> tuple[np.ndarray, ...]:
        return values_and_gradients(problems, coef, intercept, X, y, mass=mass, penalize_intercept=penalize_intercept)

    whole = evaluate(X, y, mass)
    for container in (sparse.csr_matrix, sparse.csr_array):
        assert_same(evaluate(container(X), y, mass), whole)
    rows = np.repeat(np.arange(len(y)), mass.astype(int))
    assert_same(evaluate(X[rows], y[rows], None), whole)
    alone = [
        values_and_gradients(
            [problem], coef[[row]], intercept[[row]], X, y, mass=mass, penalize_intercept=penalize_intercept
        )
        for row, problem in enumerate(problems)
    ]
    assert_same(tuple(np.concatenate(part) for part in zip(*alone, strict=True)), whole)


@pytest.mark.parametrize(("loss", "aggregate"), EVERY_PAIR)
def test_the_objective_is_the_aggregate_plus_the_penalty(loss: str, aggregate: str) -> None:
    (X, y, mass), problem = draw_data(3), problem_of(loss, aggregate)
    coef, intercept = draw_points(3, 1)
    margins = y * (X @ coef[0] + intercept[0])
    losses = get_loss(loss).value(margins)
    weights = get_aggregate(aggregate).weights(losses, threshold=get_loss(loss).threshold, k=4, m=2, mass=mass)
    without = float(weights @ losses)
    assert aggregate_value(problem, margins, mass=mass) == pytest.approx(without, rel=1e-12)
    for penalize, squares in ((False, (coef**2).sum()), (True, (coef**2).sum() + intercept[0] ** 2)):
        values, *_ = values_and_gradients([problem], coef, intercept, X, y, mass=mass, penalize_intercept=penalize)
        assert values[0] == pytest.approx(without + 0.3 / 2 * squares, rel=1e-12)


def test_k_overrides_the_problems_k() -> None:
    (X, y, mass), (coef, intercept) = draw_data(4), draw_points(4, 2)
    problems = [Problem("logistic", "close", k=1), Problem("hinge", "close_decay", k=0.5)]
    asked = [Problem("logistic", "close", k=5), Problem("hinge", "close", k=None)]
    total = float(mass.sum())
    overridden = values_and_gradients(problems, coef, intercept, X, y, mass=mass, k=[5.0, total])
    assert_same(overridden, values_and_gradients(asked, coef, intercept, X, y, mass=mass))
    margins = y * (X @ coef[0])
    assert aggregate_value(problems[0], margins, mass=mass, k=5.0) == aggregate_value(asked[0], margins, mass=mass)


margins_and_masses = st.lists(
    st.tuples(st.integers(-12, 12).map(lambda quarters: quarters / 4), st.sampled_from([0.25, 0.5, 1.0, 2.0])),
    min_size=1,
    max_size=10,
)


@given(rows=margins_and_masses, part=st.sampled_from([0.1, 0.5, 0.9, 1.0]), constant=st.sampled_from([0.0, 10.0, 1e6]))
def test_close_charges_m_for_errors_outside(rows: list[tuple[float, float]], part: float, constant: float) -> None:
    margins, mass = np.array(rows).T
    losses = 1 - margins.clip(max=1)
    weights = get_aggregate("close").weights(losses, threshold=1.0, k=part, mass=mass)
    charged = sum(c - s for margin, c, s in zip(margins, mass, weights, strict=True) if margin <= 0)
    for name in ("close", "close_decay"):
        value = aggregate_value(Problem("hinge", name, k=part), margins, mass=mass, constant=constant)
        assert value == pytest.approx(float(weights @ losses + constant * charged), rel=1e-12)
        without = aggregate_value(Problem("hinge", name, k=part), margins, mass=mass)
        assert without == pytest.approx(float(weights @ losses), rel=1e-12)
    for name in set(AGGREGATES) - {"close", "close_decay"}:
        problem = Problem("hinge", name, k=part)
        assert aggregate_value(problem, margins, mass=mass, constant=constant) == aggregate_value(
            problem, margins, mass=mass
        )


def test_an_infinite_loss_of_no_weight_counts_nothing() -> None:
    margins = np.array([-1.7e308, 0.5, -1.0])  # the slope of the first is infinite too
    assert aggregate_value(Problem("squared_hinge", "close", k=1), margins) == 0.25
    values, slopes, _ = values_and_gradients(
        [Problem("squared_hinge", "close", k=1, alpha=0)], np.ones((1, 1)), np.zeros(1), margins[:, None], np.ones(3)
    )
    assert (values.tolist(), slopes.tolist()) == ([0.25], [[-0.5]])


BAD_DATA = [
    ([[0.0], [math.nan]], [-1, 1], None, "X contains NaN or infinite"),
    ([[0.0], [math.inf]], [-1, 1], None, "X contains NaN or infinite"),
    ([[math.inf], [-math.inf]], [-1, 1], None, "X contains NaN or infinite"),
    (sparse.csr_matrix([[0.0], [math.nan]]), [-1, 1], None, "X contains NaN or infinite"),
    ([[0.0], [1.0]], [1, 1], None, "only one class"),
    ([[0.0], [1.0]], [0, 1], None, "labels must be -1 and .1, but y contains 0, 1"),
    ([[0.0], [1.0], [2.0]], [-1, 0, 1], None, "labels must be -1"),
    ([[0.0], [1.0]], ["a", "b"], None, "labels must be -1"),
    ([[0.0], [1.0]], [True, False], None, "labels must be -1"),
    ([[0.0], [1.0], [2.0]], [-1, 1, math.nan], None, "labels must be -1"),
    ([[0.0], [1.0]], [-1, 1, 1], None, r"y has shape \(3,\); expected \(2,\)"),
    ([[0.0], [1.0]], [[-1], [1]], None, r"y has shape \(2, 1\)"),
    ([[0.0], [1.0]], [-1, 1], [1.0], r"sample_weight has shape \(1,\); expected \(2,\)"),
    ([[0.0], [1.0]], [-1, 1], [1.0, -1.0], "negative"),
    ([[0.0], [1.0]], [-1, 1], [1.0, math.nan], "NaN or infinite"),
    ([[0.0], [1.0]], [-1, 1], [0.0, 0.0], "zero everywhere"),
    (np.empty((0, 2)), [], None, "no rows"),
    ([0.0, 1.0], [-1, 1], None, "two-dimensional"),
    ([["a"], ["b"]], [-1, 1], None, "encode it as numbers"),
]


@pytest.mark.parametrize(("X", "y", "sample_weight", "message"), BAD_DATA)
def test_bad_data_is_refused(X: object, y: object, sample_weight: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_data(X, y, sample_weight)


@pytest.mark.parametrize("container", [np.asarray, sparse.csr_matrix, sparse.csc_matrix, sparse.coo_array])
def test_good_data_passes_unchanged(container: object) -> None:
    dense = np.array([[0.0, 1.7e308], [1.0, 1.7e308], [-3.0, 0.0]])  # its sum overflows, its entries do not
    X, y, mass = check_data(container(dense), [1, -1, 1], [1, 0, 2])
    np.testing.assert_array_equal(X.toarray() if sparse.issparse(X) else X, dense)
    assert not sparse.issparse(X) or X.format == "csr"
    assert (y.tolist(), mass.tolist()) == ([1, -1, 1], [1, 0, 2])


BAD_CALLS = [
    *(
        (np.array(bad), None, "margins contain NaN or infinite")
        for bad in ([1, math.nan], [1, math.inf], [-math.inf, 0])
    ),
    *((bad, None, "margins must be a non-empty vector") for bad in (np.empty(0), np.ones((2, 2)), np.array(1.0))),
    *(
        (np.ones(2), *bad)
        for bad in (([1.0], "shape"), ([1.0, -1.0], "negative"), ([0, 0], "zero"), ([1, math.nan], "NaN"))
    ),
]


def test_bad_margins_masses_and_alphas_are_refused() -> None:
    for margins, mass, message in BAD_CALLS:
        with pytest.raises(ValueError, match=message):
            aggregate_value(Problem("logistic", "close", k=1), margins, mass=mass)
        if mass is not None:
            given = np.zeros((1, 1)), np.zeros(1), np.ones((2, 1)), np.array([-1, 1])
            with pytest.raises(ValueError, match=message):
                values_and_gradients([Problem()], *given, mass=mass)
    for alpha in (-1.0, math.nan, math.inf, "1", None):
        with pytest.raises(ValueError, match="alpha="):
            Problem(alpha=alpha)


@pytest.mark.parametrize("name", ["closest", "", None, 3, ["hinge"]])
def test_an_unknown_name_lists_the_known_ones(name: object) -> None:
    for find, known in ((get_loss, LOSSES), (get_aggregate, AGGREGATES)):
        with pytest.raises(ValueError, match="unknown") as caught:
            find(name)
        assert all(each in str(caught.value) for each in (repr(name), *known))
    for problem in ({"loss": name}, {"aggregate": name}):
        with pytest.raises(ValueError, match="unknown"):
            Problem(**problem)


@pytest.mark.parametrize(("k", "error"), [(0, ValueError), (4, ValueError), (1.5, ValueError), (True, TypeError)])
def test_a_bad_k_is_refused_when_the_problem_meets_its_data(k: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="k"):
        Problem("logistic", "close", k=k).resolve(3.0, 10)


def test_resolve_gives_decay_only_to_close_decay() -> None:
    for name, aggregate in AGGREGATES.items():
        _, _, k_at, m = problem_of("hinge", name).resolve(12.0, 9)
        assert (k_at(1) != k_at(9)) == aggregate.decays
        assert m == (2 if "m" in aggregate.takes else 0)

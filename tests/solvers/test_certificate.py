"""Certificates: a bound is never above an optimum found elsewhere, and no wrong solution is called converged."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse
from scipy.optimize import minimize

from closecall import AggregateLossClassifier
from closecall.aggregates import AGGREGATES, Aggregate, take_smallest
from closecall.losses import LOSSES, Loss
from closecall.objective import Problem, aggregate_value, values_and_gradients
from closecall.solvers import convex, kernels, solve
from closecall.solvers.certificate import Judged, hinge_bounds, judge, lower_bounds
from closecall.solvers.design import make_design
from closecall.solvers.kernels import PULLS, make_mass
from closecall.solvers.reference import solve_one
from gate import convex_judge
from tests.solvers import judge_of


@settings(max_examples=8)
@given(st.integers(0, 10**9))
@pytest.mark.filterwarnings("ignore")  # scikit-learn's and SciPy's, on unscaled data
def test_random_convex_problems_reach_an_independent_optimum_or_say_that_they_did_not(case: int) -> None:
    assert convex_judge.look_at(case)[1] == []


@pytest.mark.parametrize("seed", range(6))
def test_a_warm_start_ends_where_a_cold_one_does(seed: int) -> None:
    """From the solution for other rows, the first steps are halved; coefficients and margins must stay consistent."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(200, 60)), np.where(rng.random(200) < 0.5, 1.0, -1.0)
    item = Problem(alpha=0.01)
    first = solve(X[:160], y[:160], [item])
    warm = solve(X[40:], y[40:], [item], init=(first.coef, first.intercept))
    assert warm.converged.all()
    assert warm.objective[0] == pytest.approx(judge_of(X[40:], y[40:], item).best(everyone=False), rel=1e-4)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "modified_huber"])
def test_a_wrong_answer_is_never_called_converged(loss: str) -> None:
    """A few passes over the data are not enough, and the gap shows it: its bound is below what longer runs find."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 10)), np.where(rng.random(80) < 0.5, 1.0, -1.0)
    items = [Problem(loss, alpha=1e-3), Problem(loss, "atk", 50, 0.5)]
    runs = [solve(X, y, items, max_iter=steps, settle=settle, init="zeros")
            for steps, settle in ((1, 0), (2, 0), (20, 0), (2000, 3000))]  # fmt: skip
    assert not runs[0].converged.any()
    assert runs[3].converged.all()
    for run in runs:
        assert (run.objective * (1 - run.gap) <= runs[3].objective * (1 + 1e-9)).all()
        assert (run.objective >= runs[3].objective * (1 - runs[3].gap)).all()


@pytest.mark.parametrize("intercept", ["none", "free", "penalized"])
@pytest.mark.parametrize("loss", [name for name, loss in LOSSES.items() if loss.convex])
def test_no_parameters_lie_under_a_bound(loss: str, intercept: str) -> None:
    """Weak duality, with tangents near the margins at the minimum, where the bound is tight, and further away."""
    rng = np.random.default_rng(7)
    item = LOSSES[loss]
    for number in range(12):
        X, y = rng.normal(size=(12, 3)) + rng.normal(), np.where(np.arange(12) % 3, 1.0, -1.0)
        mass, alpha = rng.random(12) + 0.1, float(10.0 ** rng.uniform(-2, 2))
        own, used = judge_of(X, y, Problem(loss, alpha=alpha), mass, intercept), float(intercept != "none")
        best = minimize(lambda c, own=own, used=used: own.objective(c[:3], used * c[3]), np.zeros(4),
                        method="Powell", options={"maxfev": 1500})  # fmt: skip
        points = (y * (X @ best.x[:3] + used * best.x[3]) + (number % 4) ** 2 / 10 * rng.normal(size=12))[None]
        tangents = points, item.slope(points)
        bound = lower_bounds(Judged(X, y, intercept), item, mass[None], *tangents, np.array([alpha]))[0]
        assert bound <= best.fun * (1 + 1e-6)
        if loss == "hinge":
            rows = -y[:, None] * (X if intercept == "none" else np.column_stack([X, np.ones(12)]))
            penalty = np.full((1, rows.shape[1]), alpha)
            if intercept == "free":
                penalty[:, -1] = 0
            dual = mass * np.clip((1 - points) * 10 + rng.normal(size=12), -1, 1.5)
            assert hinge_bounds(rows, mass, penalty, dual)[0] <= best.fun * (1 + 1e-6)


def test_a_bound_in_single_precision_lies_under_what_double_precision_reaches() -> None:
    """No bound exceeds the minimum; bounds computed in float32 are reduced by their rounding error."""
    rng = np.random.default_rng(8)
    for _ in range(12):
        X = (rng.normal(size=(40, 3)) + np.array([100.0, 0.0, 0.0])).astype(np.float32)
        y, alpha = np.where(X[:, 1] + rng.normal(size=40) > 0, 1.0, -1.0), float(10 ** rng.uniform(-2, 1))
        item = Problem("hinge", alpha=alpha)
        found, finer = solve(X, y, [item], tol=1e-4), solve(X.astype(np.float64), y, [item], tol=1e-6)
        losses = np.maximum(1 - y * (X.astype(np.float64) @ finer.coef[0] + finer.intercept[0]), 0)
        reached = losses.sum() + alpha / 2 * finer.coef[0] @ finer.coef[0]
        assert found.objective[0] * (1 - found.gap[0]) <= reached * (1 + 1e-10)


@pytest.fixture
def added() -> Iterator[None]:
    """User-defined aggregates and a loss: one decays, one takes no count, one has weights that do not sum to k."""

    def heavy(losses: np.ndarray, mass: np.ndarray, threshold: float, k: np.ndarray, m: np.ndarray) -> np.ndarray:
        return take_smallest(-losses, mass, k) / 2 + np.broadcast_to(mass, losses.shape) / 4

    def half(losses: np.ndarray, mass: np.ndarray, threshold: float, k: np.ndarray, m: np.ndarray) -> np.ndarray:
        return take_smallest(losses, mass, 0.5 * mass.sum())

    def near(losses: np.ndarray, mass: np.ndarray, threshold: float, k: np.ndarray, m: np.ndarray) -> np.ndarray:
        return take_smallest(np.abs(losses - threshold), mass, k)

    extra = [Aggregate("my_heavy", heavy, ("k",), convex=True), Aggregate("my_half", half),
             Aggregate("my_decay", near, ("k",), decays=True, full=True, close=True)]  # fmt: skip
    for aggregate in extra:
        AGGREGATES[aggregate.name] = aggregate
    LOSSES["my_smooth"] = Loss(
        "my_smooth", lambda m: np.where(m <= 0, 0.5 - m, np.maximum(1 - m, 0) ** 2 / 2),
        lambda m: -np.clip(1 - m, 0, 1),
        0.5, 1.0, True,
    )  # fmt: skip
    yield
    for aggregate in extra:
        del AGGREGATES[aggregate.name]
    del LOSSES["my_smooth"]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("loss", ["logistic", "hinge", "my_smooth"])
@pytest.mark.parametrize("name", ["my_heavy", "my_half", "my_decay"])
def test_what_a_user_adds_is_solved_as_it_is_defined(name: str, loss: str, weighted: bool, added: None) -> None:
    rng = np.random.default_rng(4)
    X = rng.normal(size=(80, 3))
    y = np.where(X[:, 0] + 0.7 * rng.normal(size=80) > 0, 1.0, -1.0)
    mass = rng.integers(1, 4, 80).astype(float) if weighted else np.ones(80)
    item = Problem(loss, name, 20 if "k" in AGGREGATES[name].takes else None, 2.0)
    found = solve(X, y, [item, Problem(loss, alpha=2.0)], max_iter=60, sample_weight=mass)
    slow = solve_one(X, y, item, max_iter=60, sample_weight=mass)
    if not (name == "my_decay" and loss == "hinge"):  # two solutions of a kinked average differ in the last digits
        assert found.objective[0] == pytest.approx(slow.objective, rel=1e-3)
        assert found.n_iter[0] == slow.n_iter
    margins = y * (X @ found.coef[0] + found.intercept[0])
    value = aggregate_value(item, margins, mass=mass) + (found.coef[0] ** 2).sum()
    assert found.objective[0] == pytest.approx(value, rel=1e-9)
    assert abs(found.objective[0] / found.objective[1] - 1) > 1e-3  # it is not the average


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("multiclass", ["top_two", "softmax"])
@pytest.mark.parametrize("name", ["maximal", "my_half"])
def test_joint_classes_take_what_takes_no_k(name: str, multiclass: str, added: None) -> None:
    rng = np.random.default_rng(5)
    X = rng.normal(size=(90, 3))
    y = np.argmax(X + 0.5 * rng.normal(size=(90, 3)), axis=1)
    models = [
        AggregateLossClassifier(aggregate=each, multiclass=multiclass, max_iter=200).fit(X, y)
        for each in (name, "average")
    ]
    assert np.abs(models[0].coef_ - models[1].coef_).max() > 1e-2
    assert models[0].k_ == (1.0 if name == "maximal" else 90.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_margins_far_out_are_not_tied_with_rows_left_out(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """The k examples reach margins of -90 to -200; they lie inside the fold and are taken in order."""
    X = np.concatenate([-np.linspace(90, 200, 20), np.linspace(1, 2, 20), [1.0, -1.0]])[:, None]
    y = np.concatenate([np.ones(40), [-1.0, -1.0]])
    fold = np.ones(42)
    fold[::3] = 0
    design = make_design(X, y, fold[None], fit_intercept=False, penalize=False, dtype=dtype)
    mass, k = make_mass(fold, dtype), np.array([20.0])
    negative = design.negative_margins(np.abs(design.to_coordinates(np.ones((1, 1)), np.zeros(1))))
    loss = LOSSES["logistic"]
    margins = -negative.astype(float)
    weights = AGGREGATES["close"].weigh(loss.value(margins), fold, loss.threshold, k, np.zeros(1))
    expected = -(weights * loss.slope(margins)) @ design.signed.astype(float)
    found = PULLS["close"](design, "logistic", negative.copy(), k, np.zeros(1), mass)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    keys, _ = kernels.closeness("logistic")[0](negative.copy())
    assert np.isfinite(keys).all()
    assert len(np.unique(keys[0, :20])) == 20


@pytest.mark.parametrize("aggregate", ["tilted(1)", "tilted(4)", "superquantile(0.8,0.1)", "superquantile(0.5,2)"])
@pytest.mark.parametrize("loss", ["logistic", "squared_hinge"])
def test_the_gap_of_a_family_is_a_share_of_its_own_objective(loss: str, aggregate: str) -> None:
    """At a point moved along a faint column, which changes little but the penalty, the gap is almost exact."""
    rng = np.random.default_rng(9)
    for _ in range(4):
        X = rng.normal(size=(60, 3)) * [3.0, 1.0, 1e-6]
        y = np.where(X[:, 0] + 2 * rng.normal(size=60) > 0, 1.0, -1.0)
        mass, item = rng.integers(1, 4, 60).astype(float), Problem(loss, aggregate, alpha=0.3)

        def objective(c: np.ndarray) -> tuple[float, np.ndarray]:
            value, slopes, last = values_and_gradients([item], c[None, :3], c[3:], X, y, mass=mass)  # noqa: B023
            return float(value[0]), np.append(slopes[0], last)

        best = minimize(objective, np.zeros(4), jac=True, tol=1e-14, options={"maxiter": 10_000})
        moved = best.x + 3 * np.eye(4)[2]
        value = objective(moved)[0]
        found = judge(Judged(X, y, "free"), mass[None], [item], np.zeros(1, int), moved[None, :3], moved[3:], tol=0.0)
        assert found[0][0] == pytest.approx(value, rel=1e-12)
        assert (1 - 1e-6) * (value - best.fun) / value <= found[2][0] <= 1.1 * (value - best.fun) / value


@pytest.mark.parametrize("alpha", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("kind", ["sparse", "sparse, float32", "large"])
def test_averages_of_the_hinge_are_certified_on_rows_of_any_kind(
    kind: str, alpha: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without second-order steps too, the bound is below the optimum of the interior point, and close to it."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = np.where(rng.random((300, 25)) < 0.2, rng.normal(size=(300, 25)), 0.0)
        y = np.where(X @ rng.normal(size=25) + 0.7 * rng.normal(size=300) > 0.3, 1.0, -1.0)
        mass, item = rng.integers(1, 4, 300).astype(float), Problem("hinge", alpha=alpha)
        best = solve(X, y, [item], sample_weight=mass, tol=1e-6)
        assert best.gap[0] < 1e-6
        if kind == "large":
            monkeypatch.setattr(convex, "LARGEST_RANK", 1)
        dtype = np.float32 if "float32" in kind else np.float64
        given = X if kind == "large" else sparse.csr_array(X)
        found = solve(given.astype(dtype), y, [item], sample_weight=mass, tol=1e-4, settle=1000)
        monkeypatch.undo()
        assert found.converged[0]
        rounding = 1e-6 if dtype is np.float32 else 1e-9
        assert found.objective[0] * (1 - found.gap[0]) <= best.objective[0] * (1 + rounding)
        assert best.objective[0] * (1 - 1e-6 - rounding) <= found.objective[0] <= 1.0001 * best.objective[0]

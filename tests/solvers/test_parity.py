"""The batched solver against the slow, obvious one, and the laws of masses, folds, order and storage."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from closecall.aggregates import AGGREGATES
from closecall.losses import LOSSES
from closecall.objective import Problem
from closecall.schedules import last_convex_step
from closecall.solvers import Solutions, reference, solve, sweep
from closecall.solvers.reference import solve_one

from ..family_twins import MEMBERS

N, D, STEPS = 90, 4, 60


@cache
def data(n: int = N, d: int = D, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Correlated features and a noisy boundary that is not through the origin."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) @ rng.normal(size=(d, d))
    return X, np.where(X @ rng.normal(size=d) + rng.normal(size=n) > 0.3, 1.0, -1.0)


def problem(loss: str, aggregate: str, alpha: float, k: Any = 12) -> Problem:
    takes = AGGREGATES[aggregate].takes
    return Problem(loss, aggregate, k=k if "k" in takes else None, alpha=alpha, m=5 if "m" in takes else None)


def weights(kind: str) -> np.ndarray:
    rng = np.random.default_rng(1)
    return rng.integers(1, 4, N).astype(float) if kind == "whole" else rng.random(N) + 0.2


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "penalised": {"penalize_intercept": True},
    "no intercept": {"fit_intercept": False},
    "from zeros": {"init": "zeros"},
    "whole weights": {"sample_weight": weights("whole")},
    "fractional weights": {"sample_weight": weights("fractional")},
}


def same(found: Solutions, expected: Solutions, rtol: float = 1e-6) -> None:
    """Assert equal solutions: objectives up to ``rtol``, the same 0-1 errors and the same steps."""
    np.testing.assert_allclose(found.objective, expected.objective, rtol=rtol, atol=1e-9)
    np.testing.assert_allclose(found.errors, expected.errors, atol=1e-9)


@pytest.mark.parametrize("setting", SETTINGS)
def test_parity_with_the_reference(setting: str) -> None:
    """Objectives within 0.1 %, errors within one example, the same steps; the next test covers hinge decay."""
    X, y = data()
    losses = LOSSES if setting in ("plain", "whole weights") else ("logistic", "hinge", "ramp")
    alphas = (0.1, 10.0) if setting == "plain" else (1.0,)
    names = [*AGGREGATES, *MEMBERS] if setting in ("plain", "fractional weights") else list(AGGREGATES)
    problems = [problem(loss, name, alpha) for loss in losses for name in names for alpha in alphas]
    problems = [item for item in problems if (item.loss, item.aggregate) != ("hinge", "close_decay")]
    found = solve(X, y, problems, max_iter=STEPS, **SETTINGS[setting])
    for row, item in enumerate(problems):
        slow = solve_one(X, y, item, max_iter=STEPS, **SETTINGS[setting])
        if (
            item.aggregate == "average" and LOSSES[item.loss].convex
        ):  # two different minimisers: only the optimum is comparable
            assert found.objective[row] <= slow.objective * 1.001, item
        else:
            assert found.objective[row] == pytest.approx(slow.objective, rel=1e-3, abs=1e-9), item
            assert found.n_iter[row] == slow.n_iter, item
        assert abs(found.errors[row] - slow.errors) <= 1, item


@pytest.mark.parametrize("setting", ["plain", "penalised", "fractional weights"])
def test_hinge_decay_from_the_same_root(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Selections magnify differences between averages, so both runs start from the batched average."""
    X, y = data()
    settings = SETTINGS[setting]
    for alpha in (0.1, 1.0, 10.0):
        item = problem("hinge", "close_decay", alpha)
        root = solve(X, y, [Problem("hinge", alpha=alpha)], max_iter=last_convex_step(STEPS), **settings)
        start = np.append(root.coef[0], root.intercept[0])
        monkeypatch.setattr(reference, "_convex", lambda *_, start=start: start)
        slow = solve_one(X, y, item, max_iter=STEPS, **settings)
        found = solve(X, y, [item], max_iter=STEPS, **settings)
        assert found.objective[0] == pytest.approx(slow.objective, rel=1e-3), item
        assert abs(found.errors[0] - slow.errors) <= 1, item
        assert found.n_iter[0] == slow.n_iter


def few(k: Any = 12) -> list[Problem]:
    """Every aggregate with two losses: enough to test the laws."""
    return [
        problem(loss, name, alpha, k) for loss in ("logistic", "hinge") for name in AGGREGATES for alpha in (0.5, 5)
    ]


def test_folds_are_solved_as_if_alone() -> None:
    """Averages agree to 0.01 %; atk and maximal, which zigzag towards their minimum, to 2 %."""
    X, y = data()
    folds = (np.arange(N)[None] % 3 != np.arange(3)[:, None]).astype(float)
    problems = [item for item in few() if item.aggregate in ("average", "atk", "maximal")]  # convex: one solution
    together = solve(X, y, problems * 3, folds=folds, fold_of=np.repeat(np.arange(3), len(problems)), max_iter=2000)
    for fold in range(3):
        kept = folds[fold] > 0
        alone = solve(X[kept], y[kept], problems, max_iter=2000)
        mine = slice(fold * len(problems), (fold + 1) * len(problems))
        rtol = np.array([1e-4 if item.aggregate == "average" else 2e-2 for item in problems])
        assert (np.abs(together.objective[mine] / alone.objective - 1) < rtol).all()
    coef = solve(X, y, [problem("logistic", "close", 1)] * 2, folds=folds[:2], fold_of=[0, 1], init="zeros").coef
    assert np.abs(coef[0] - coef[1]).max() > 1e-3


def test_one_fold_of_zeros_and_ones_is_the_rows_left() -> None:
    X, y = data()
    fold = (np.arange(N) % 4 > 0).astype(float)
    masked = solve(X, y, few(), folds=fold, max_iter=STEPS)
    same(masked, solve(X[fold > 0], y[fold > 0], few(), max_iter=STEPS))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_merging_duplicates_changes_nothing(dtype: type, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, (200, 2)).astype(dtype)
    y = np.where(X @ [1.0, 0.5] + rng.normal(size=200) > 1.2, 1.0, -1.0)
    convex = [item for item in few(30) if item.aggregate in ("average", "atk", "maximal")]
    merged = solve(X, y, convex, max_iter=2000)
    calls = []
    monkeypatch.setattr(sweep, "merge_duplicates", lambda *given: calls.append(1) or given)
    np.testing.assert_allclose(solve(X, y, convex, max_iter=2000).objective, merged.objective, rtol=1e-3)
    assert calls


def test_problem_order_and_company_are_irrelevant() -> None:
    X, y = data()
    together = solve(X, y, few(), max_iter=STEPS)
    order = np.random.default_rng(6).permutation(len(few()))
    shuffled = solve(X, y, [few()[i] for i in order] + few()[:3], max_iter=STEPS)
    np.testing.assert_allclose(shuffled.objective[: len(order)], together.objective[order], rtol=1e-6)
    np.testing.assert_array_equal(shuffled.objective[len(order) :], shuffled.objective[np.argsort(order)[:3]])


@pytest.mark.parametrize("d", [4, 30])
def test_threads_the_order_of_rows_and_the_memory_change_nothing(d: int) -> None:
    X, y = data(d=d)
    expected, order = solve(X, y, few(), max_iter=STEPS), np.random.default_rng(5).permutation(N)
    same(solve(X, y, few(), max_iter=STEPS, threads=2), expected)
    same(solve(X, y, few(), max_iter=STEPS, memory_limit=1), expected)
    same(solve(X[order], y[order], few(), max_iter=STEPS), expected)


def test_all_of_the_examples_is_the_average() -> None:
    X, y = data()
    aggregates = ("average", "close", "close_decay", "atk")
    found = solve(X, y, [Problem("logistic", name, k=None if name == "average" else N) for name in aggregates])
    assert np.ptp(found.objective) == 0
    assert np.ptp(found.coef, axis=0).max() == 0


@pytest.mark.parametrize("settings", [{}, {"penalize_intercept": True}, {"fit_intercept": False}])
def test_sparse_is_dense(settings: dict[str, Any]) -> None:
    """CSR uses other coordinates (scaled columns, no eigenbasis), but convex problems have the same solution."""
    rng = np.random.default_rng(7)
    X = sparse.random(150, 20, 0.2, format="csr", random_state=rng)
    y = np.where(X @ rng.normal(size=20) + 0.1 * rng.normal(size=150) > 0, 1.0, -1.0)
    problems = [Problem(loss, alpha=alpha) for loss in ("logistic", "hinge", "squared_hinge") for alpha in (0.1, 10)]
    dense = solve(X.toarray(), y, problems, max_iter=5000, tol=1e-5, **settings)
    found = solve(X, y, problems, max_iter=5000, tol=1e-5, **settings)
    np.testing.assert_allclose(found.objective, dense.objective, rtol=1e-4)


def test_other_sparse_formats_and_sparse_close() -> None:
    X, y = data(150, 20)
    X = np.where(np.abs(X) > 1, X, 0)
    problems = few()
    csr = solve(sparse.csr_matrix(X), y, problems, max_iter=200)
    same(solve(sparse.csc_matrix(X), y, problems, max_iter=200), csr)
    dense = solve(X, y, problems, max_iter=200)
    assert (csr.errors <= dense.errors + 0.1 * len(y)).all()


@pytest.mark.parametrize("fold", [0, 1])
def test_labels_outside_a_fold_change_nothing(fold: int) -> None:
    """The labels of rows outside a fold do not change a single bit of its solution, however early it stops."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 8)), np.where(np.arange(60) % 2, 1.0, -1.0)
    folds = np.stack([np.arange(60) < 40, np.arange(60) >= 20]).astype(float)
    problems = [Problem(alpha=10.0**power) for power in range(-5, 6)] + [Problem("logistic", "close_decay", 10, 0.1)]
    other, fold_of = np.where(folds[fold] > 0, y, -y), np.repeat([0, 1], len(problems))
    settings: dict[str, Any] = {"folds": folds, "fold_of": fold_of, "max_iter": 9, "tol": 1e-3}
    first, second = (solve(X, labels, 2 * problems, **settings).coef for labels in (y, other))
    np.testing.assert_array_equal(first[fold_of == fold], second[fold_of == fold])
    assert (first[fold_of != fold] != second[fold_of != fold]).any()

"""Certified solutions against SciPy's minimisers, linear programs and liblinear, none of which use ramps."""

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from sklearn.datasets import make_blobs, make_classification
from sklearn.svm import LinearSVC

from closecall import AggregateLossClassifier
from closecall.aggregates import AGGREGATES
from closecall.losses import LOSSES
from closecall.objective import Problem, aggregate_value
from closecall.solvers import solve
from closecall.solvers.engine import Engine
from tests.solvers import judge_of

TOL = 1e-4


def draw(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng([9, seed])
    n, d = int(rng.integers(14, 50)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) * 10 ** rng.uniform(-1, 1, d)
    X = np.round(X) if seed % 4 == 0 else X
    y = np.where(X[:, 0] / max(X[:, 0].std(), 1e-9) + rng.normal(size=n) > 0, 1.0, -1.0)
    y[:2] = 1, -1
    return X, y, rng.random(n) + 0.1 if seed % 3 == 0 else np.ones(n), rng


def fitted(X: np.ndarray, y: np.ndarray, mass: np.ndarray, item: Problem, **how: Any) -> Any:
    return solve(X, y, [item], sample_weight=mass, **{"max_iter": 300, "tol": TOL, "settle": 600} | how)


@pytest.mark.parametrize("seed", range(12))
def test_the_largest_losses_settle_at_their_minimum(seed: int) -> None:
    X, y, mass, rng = draw(seed)
    name = "maximal" if seed % 5 == 0 else "atk"
    item = Problem("hinge" if seed % 2 else "logistic", name, 0.6 * rng.random() + 0.1 if name == "atk" else None,
                   float(10 ** rng.uniform(-3, 2)))  # fmt: skip
    found = fitted(X, y, mass, item)
    best = judge_of(X, y, item, mass).best(everyone=True)
    assert found.converged[0]
    assert found.objective[0] <= best * (1 + 2 * TOL)
    assert found.objective[0] * (1 - found.gap[0]) <= best * (1 + 1e-7)


def reachable(keys: np.ndarray, mass: np.ndarray, k: float, moved: float) -> tuple[np.ndarray, np.ndarray]:
    """The least and largest weight of each example in the k smallest keys if every key may change by ``moved``."""
    surely = np.array([mass[keys + moved < key - moved].sum() for key in keys])
    perhaps = np.array([mass[keys - moved < key + moved].sum() for key in keys]) - mass
    return np.clip(k - perhaps, 0, mass), np.clip(k - surely, 0, mass)


@pytest.mark.parametrize("way", ["near", "far", "path"])
@pytest.mark.parametrize("name", ["close", "close_decay", "trimmed", "ranked_range"])
@pytest.mark.parametrize("seed", range(6))
def test_what_settles_has_shares_that_make_the_gradient_zero(name: str, seed: int, way: str) -> None:
    """A linear program finds such shares among weights that are possible if no loss changes by more than the tol."""
    X, y, mass, rng = draw(seed + 50)
    takes, total, d = AGGREGATES[name].takes, float(mass.sum()), X.shape[1]
    item = Problem("logistic", name, 0.5 if "k" in takes else None, float(10 ** rng.uniform(-2, 1)),
                   0.1 if "m" in takes else None)  # fmt: skip
    if way == "path":
        engine = Engine(X, y, mass[None], np.arange(len(y), dtype=np.uint64), n_starts=2)
        found: Any = engine.solve([item], np.zeros(1, dtype=int), TOL)
    else:
        found = fitted(X, y, mass, item, **({"init": (-30 * np.ones(d), 0.0), "max_iter": 1} if way == "far" else {}))
    if not found.gap[0] <= TOL:
        pytest.skip("this problem is not certified")
    loss = LOSSES["logistic"]
    margins = y * (X @ found.coef[0] + found.intercept[0])
    losses, pulls = loss.value(margins), -loss.slope(margins)
    keys = np.abs(losses - loss.threshold) if AGGREGATES[name].close else -losses
    k, m = total * (item.k or 1.0), total * (item.m or 0.0)
    objective = aggregate_value(item, margins, mass=mass) + item.alpha / 2 * found.coef[0] @ found.coef[0]
    moved = 1.1 * TOL * max(objective / (k - m), 1e-6)
    low, high = reachable(keys, mass, k, moved)
    if m:
        fewer = reachable(keys, mass, m, moved)
        low, high = np.maximum(low - fewer[1], 0), np.maximum(high - fewer[0], 0)
    columns = (y * pulls)[:, None] * np.column_stack([X, np.ones(len(X))])
    scale = np.abs(columns).max(axis=0) * (k - m)
    target = np.append(item.alpha * found.coef[0], 0.0)
    slack = np.eye(d + 1)
    program = linprog(
        np.append(np.zeros(len(X)), np.ones(2 * d + 2)),
        A_eq=np.vstack([np.hstack([(columns / scale).T, slack, -slack]),
                        np.append(np.ones(len(X)), np.zeros(2 * d + 2))]),
        b_eq=np.append(target / scale, k - m),
        bounds=[*zip(low, np.maximum(low, high), strict=True), *[(0, None)] * (2 * d + 2)],
    )  # fmt: skip
    assert program.status == 0
    assert program.fun < 2e-3


def test_most_of_them_settle() -> None:
    """Otherwise the test above could pass by skipping."""
    settled = [
        fitted(*draw(seed)[:3], Problem("logistic", name, 0.5, 1.0)).converged[0]
        for seed in range(50, 56) for name in ("close", "close_decay")
    ]  # fmt: skip
    assert sum(settled) >= 9


def test_close_does_not_settle_at_zero() -> None:
    """At w = 0 every loss is T and all tie: a stationary point, but useless."""
    X, y, mass, _ = draw(1)
    for alpha in (1.0, 30.0):
        item = Problem("hinge", "close", 0.3, alpha)
        rough, found = solve(X, y, [item], max_iter=300, tol=TOL), fitted(X, y, mass, item)
        assert found.errors[0] <= rough.errors[0] + 0.01 * len(y)


def test_crammer_and_singers_machine_is_liblinears() -> None:
    X, y = make_blobs(80, centers=3, n_features=3, cluster_std=4.0, random_state=4)
    for alpha in (0.3, 10.0):
        mine = AggregateLossClassifier(loss="hinge", multiclass="top_two", alpha=alpha, fit_intercept=False).fit(X, y)
        peer = LinearSVC(multi_class="crammer_singer", C=1 / alpha, fit_intercept=False, tol=1e-8, max_iter=10**6)
        values = []
        for coef in (mine.coef_, peer.fit(X, y).coef_):
            scores = X @ coef.T
            own = scores[np.arange(80), y].copy()
            scores[np.arange(80), y] = -np.inf
            values.append(np.maximum(1 - own + scores.max(axis=1), 0).sum() + alpha / 2 * (coef**2).sum())
        assert values[0] <= values[1] * (1 + 2 * TOL)
        assert values[0] * (1 - mine.gap_[0]) <= values[1] * (1 + 1e-6)


@pytest.mark.parametrize("loss", ["ramp", "logistic", "hinge"])
@pytest.mark.parametrize("aggregate", ["top", "trimmed", "atk", "ranked_range"])
def test_settling_never_ends_higher(loss: str, aggregate: str) -> None:
    """The ramp loss is flat at large margins, and w = 0 is often stationary: a certificate must not make it worse."""
    for seed in range(4):
        X, y = make_classification(120, 4, n_informative=3, n_redundant=0, random_state=seed)
        y = np.where(y > 0, 1.0, -1.0)
        problem = [Problem(loss, aggregate, 0.5, 1.0, 2 if aggregate in ("trimmed", "ranked_range") else None)]
        before, after = (solve(X, y, problem, max_iter=90, tol=1e-2, settle=steps) for steps in (0, 90))
        assert after.objective <= 1.03 * before.objective

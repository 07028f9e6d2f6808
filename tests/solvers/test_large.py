"""Close-k on many rows ends at a stationary point: scikit-learn on the rows that it chose, and differences, judge."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from closecall import CloseKClassifier, Problem
from closecall.losses import get_loss
from closecall.solvers import solve
from closecall.solvers.large import OnePlace
from closecall.solvers.tally import Aim, Tally, make_aim, margin_at, place_of, tally


def draw(seed: int, samples: int, features: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([31, seed])
    X = rng.normal(size=(samples, features)) * ([1.0, 2.0, 0.5, 1.0] * features)[:features]
    score = X @ rng.normal(size=features) + rng.logistic(size=samples) + 0.3
    return X, np.where((score > 0) ^ (rng.random(samples) < 0.05), 1, -1)


def excess(X: np.ndarray, y: np.ndarray, mass: np.ndarray, model: CloseKClassifier, k: float) -> float:
    """By how much the objective could fall for the k closest rows, as scikit-learn minimises it."""
    margins = y * (X @ model.coef_[0] + model.intercept_[0])
    order = np.argsort(np.abs(np.logaddexp(0, -margins) - np.log(2)))
    weights = np.zeros(len(y))
    weights[order] = np.clip(k - np.concatenate([[0.0], np.cumsum(mass[order])[:-1]]), 0.0, mass[order])
    used = weights > 0
    peer = LogisticRegression(C=1 / model.alpha, solver="newton-cholesky", tol=1e-12, max_iter=200)
    peer.fit(X[used], y[used], weights[used])

    def value(coef: np.ndarray, intercept: float) -> float:
        return float(weights @ np.logaddexp(0, -y * (X @ coef + intercept)) + model.alpha / 2 * coef @ coef)

    mine = value(model.coef_[0], model.intercept_[0])
    return (mine - value(peer.coef_[0], peer.intercept_[0])) / mine


@pytest.mark.parametrize(("k", "alpha", "weighted"), [(0.1, 1.0, True), (0.02, 50.0, False)])
def test_many_rows_end_certified(k: float, alpha: float, weighted: bool) -> None:
    X, y = draw(1, 90_000)
    mass = np.random.default_rng(5).integers(1, 4, len(y)).astype(float) if weighted else np.ones(len(y))
    model = CloseKClassifier(k=k, alpha=alpha).fit(X, y, mass)  # a warning would be an error
    assert model.converged_
    assert excess(X, y, mass, model, k * mass.sum()) < 1e-4
    average = LogisticRegression(C=1 / alpha).fit(X, y, mass)
    assert model.score(X, y, mass) > average.score(X, y, mass) - 0.002


def test_problems_of_one_batch_keep_their_places() -> None:
    X, y = draw(2, 90_000, 2)
    close, plain = Problem("logistic", "close_decay", 0.2, 1.0), Problem(alpha=3.0)
    found = solve(X, y, [plain, close], max_iter=60, settle=60, tol=1e-4, shuffled=True)
    alone = solve(X, y, [close], max_iter=60, settle=60, tol=1e-4, shuffled=True)
    peer = LogisticRegression(C=1 / 3.0, solver="newton-cholesky", tol=1e-10).fit(X, y)
    assert found.converged.all()
    assert found.coef[0] == pytest.approx(peer.coef_[0], rel=1e-3)
    assert np.array_equal(found.coef[1], alone.coef[0])


def seen(rows: np.ndarray, mass: np.ndarray, c: np.ndarray, place: float, width: float, name: str) -> Tally:
    loss = get_loss(name)
    here = OnePlace(-rows, np.ones(len(rows)), mass, np.zeros(3), np.ones(3), "none")
    return here.look(loss, make_aim(loss, c, place, width)).sums


@pytest.mark.parametrize("name", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("seed", range(3))
def test_derivatives_are_those_of_differences(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, mass, c = rng.normal(size=(4000, 3)), rng.random(4000) + 0.5, 2 * rng.normal(size=3)
    place, width, step = 1.5, 0.4, 1e-6
    here = seen(rows, mass, c, place, width, name)
    held = here.held + here.moved
    for axis in range(3):
        move = step * np.eye(3)[axis]
        ahead, behind = (seen(rows, mass, c + sign * move, place, width, name) for sign in (1, -1))
        assert (ahead.gradient - behind.gradient) / (2 * step) == pytest.approx(held[axis], rel=1e-2, abs=2.0)
        assert (ahead.mass - behind.mass) / (2 * step) == pytest.approx(here.mass_by_c[axis], rel=1e-2, abs=2.0)
    ahead, behind = (seen(rows, mass, c, place + sign * step, width, name) for sign in (1, -1))
    assert (ahead.gradient - behind.gradient) / (2 * step) == pytest.approx(here.by_place, rel=1e-2, abs=2.0)
    assert (ahead.mass - behind.mass) / (2 * step) == pytest.approx(here.mass_by_place, rel=1e-2)


def test_a_narrow_ramp_takes_the_closest_and_parts_add_up() -> None:
    rng = np.random.default_rng(7)
    rows, mass, c, loss = rng.normal(size=(900, 3)), rng.random(900), rng.normal(size=3), get_loss("logistic")
    losses = np.logaddexp(0, rows @ c)
    k = 0.3 * mass.sum()
    place = place_of(loss, losses, mass, k, 1e-9)
    assert place is not None
    whole = seen(rows, mass, c, place, 1e-9, "logistic")
    keys = np.abs(losses - np.log(2))
    order = np.argsort(keys)
    taken = np.clip(k - np.concatenate([[0.0], np.cumsum(mass[order])[:-1]]), 0.0, mass[order])
    assert whole.value == pytest.approx(taken @ losses[order], rel=1e-5)
    assert whole.gradient == pytest.approx((taken / (1 + np.exp(-rows[order] @ c))) @ rows[order], rel=1e-3, abs=1e-2)
    parts = [seen(rows[part], mass[part], c, place, 1e-9, "logistic") for part in np.array_split(np.arange(900), 4)]
    total = sum(parts[1:], parts[0])
    for name, value in vars(whole).items():
        assert np.allclose(getattr(total, name), value, rtol=1e-9, atol=1e-9), name


def test_k_beyond_the_losses_that_are_seen_is_left_to_the_steps() -> None:
    losses = np.array([0.1, 0.5, 5.0, 6.0])
    assert place_of(get_loss("logistic"), losses, np.ones(4), 3.0, 0.01) is None
    assert margin_at(get_loss("hinge"), 3.0) == pytest.approx(-2.0)
    empty = tally(get_loss("logistic"), Aim(np.ones(2), 1.0, 0.1, (-1.0, 1.0)), np.empty(0), np.empty(0),
                  lambda some: np.empty((0, 2)))  # fmt: skip
    assert empty.mass == 0
    assert empty.up == np.inf

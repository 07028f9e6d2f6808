"""Close-k on many rows ends at a stationary point, checked by scikit-learn and by finite differences."""

import numpy as np
import pytest
from scipy import sparse
from scipy.optimize import brentq, minimize
from sklearn.linear_model import LogisticRegression

from closecall import CloseKClassifier, Problem
from closecall.losses import get_loss
from closecall.solvers import solve
from closecall.solvers.blocked import FlowSums, ManyRows, NearRows, margin_at
from closecall.solvers.flow import Flow, place_of
from closecall.solvers.rows import Standard
from tests.solvers import judge_of


def draw(seed: int, samples: int, features: int = 4) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([31, seed])
    X = rng.normal(size=(samples, features)) * ([1.0, 2.0, 0.5, 1.0] * features)[:features]
    score = X @ rng.normal(size=features) + rng.logistic(size=samples) + 0.3
    return X, np.where((score > 0) ^ (rng.random(samples) < 0.05), 1, -1)


def excess(X: np.ndarray, y: np.ndarray, mass: np.ndarray, model: CloseKClassifier, k: float) -> float:
    """The share by which scikit-learn can lower the objective of the k closest rows."""
    margins = y * (X @ model.coef_[0] + model.intercept_[0])
    order = np.argsort(np.abs(np.logaddexp(0, -margins) - np.log(2)))
    weights = np.zeros(len(y))
    weights[order] = np.clip(k - np.concatenate([[0.0], np.cumsum(mass[order])[:-1]]), 0.0, mass[order])
    return excess_of(X, y, weights, model)


def excess_of(X: np.ndarray, y: np.ndarray, weights: np.ndarray, model: CloseKClassifier) -> float:
    """The share by which scikit-learn can lower the objective with these weights."""
    used = weights > 0
    judge = judge_of(X[used], y[used], Problem(alpha=model.alpha), weights[used])
    mine = judge.objective(model.coef_[0], model.intercept_[0])
    return (mine - judge.best(everyone=False)) / mine


@pytest.mark.parametrize(("k", "alpha", "weighted"), [(0.1, 1.0, True), (0.02, 50.0, False)])
def test_many_rows_end_certified(k: float, alpha: float, weighted: bool) -> None:
    X, y = draw(1, 90_000)
    mass = np.random.default_rng(5).integers(1, 4, len(y)).astype(float) if weighted else np.ones(len(y))
    model = CloseKClassifier(k=k, alpha=alpha).fit(X, y, mass)  # warnings are errors here
    assert model.converged_
    assert excess(X, y, mass, model, k * mass.sum()) < 1e-4
    average = LogisticRegression(C=1 / alpha).fit(X, y, mass)
    assert model.score(X, y, mass) > average.score(X, y, mass) - 0.002


@pytest.mark.parametrize("seed", range(3))
def test_the_gap_is_of_weights_that_share_the_last_place(seed: int) -> None:
    """Losses within ``tol`` times the mean loss share the last place; with these shares the gap bounds the excess."""
    X, y = draw(10 + seed, 80_000, 2)
    model = CloseKClassifier(k=0.1, alpha=10.0).fit(X, y)
    losses, k, half = np.logaddexp(0, -y * (X @ model.coef_[0] + model.intercept_[0])), 0.1 * len(y), np.log(2)
    keys = np.abs(losses - half)
    chosen = keys <= np.partition(keys, int(k) - 1)[int(k) - 1]
    mean = (losses[chosen].sum() + 5.0 * model.coef_[0] @ model.coef_[0]) / k

    def shares(edge: float) -> np.ndarray:
        """A ramp at the edge of the selection: in losses above T, in their logarithms below it."""
        above = np.where(losses > half, 2 * half - edge - losses, half * (np.log(losses) - np.log(edge)))
        return np.clip(0.5 + above / (1.8 * model.tol * mean), 0.0, 1.0)

    edge = brentq(lambda edge: shares(edge).sum() - k, 1e-3, half)
    assert model.converged_
    assert excess_of(X, y, shares(edge), model) <= model.gap_[0] + 1e-9
    assert excess(X, y, np.ones(len(y)), model, k) <= model.gap_[0] + model.tol


def many_rows(rows: np.ndarray, mass: np.ndarray, name: str) -> ManyRows:
    return ManyRows(-rows, np.ones(len(rows)), mass, Standard(np.zeros(3), np.ones(3), False), name)


def seen(rows: np.ndarray, mass: np.ndarray, c: np.ndarray, place: float, width: float, name: str) -> FlowSums:
    return many_rows(rows, mass, name).flow(c, (place, width), None)


@pytest.mark.parametrize("name", ["logistic", "squared_hinge"])
@pytest.mark.parametrize("seed", range(3))
def test_derivatives_are_those_of_differences(name: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, mass, c = rng.normal(size=(4000, 3)), rng.random(4000) + 0.5, 2 * rng.normal(size=3)
    place, width, step = 1.5, 0.4, 1e-6
    here = seen(rows, mass, c, place, width, name)
    held = here.bend + here.moved
    for axis in range(3):
        move = step * np.eye(3)[axis]
        ahead, behind = (seen(rows, mass, c + sign * move, place, width, name) for sign in (1, -1))
        assert (ahead.gradient - behind.gradient) / (2 * step) == pytest.approx(held[axis], rel=1e-2, abs=2.0)
        assert (ahead.held - behind.held) / (2 * step) == pytest.approx(here.mass_by_c[axis], rel=1e-2, abs=2.0)
    ahead, behind = (seen(rows, mass, c, place + sign * step, width, name) for sign in (1, -1))
    assert (ahead.gradient - behind.gradient) / (2 * step) == pytest.approx(here.by_place, rel=1e-2, abs=2.0)
    assert (ahead.held - behind.held) / (2 * step) == pytest.approx(here.mass_by_place, rel=1e-2)


def test_a_narrow_ramp_takes_the_closest_and_parts_add_up() -> None:
    rng = np.random.default_rng(7)
    rows, mass, c, loss = rng.normal(size=(900, 3)), rng.random(900), rng.normal(size=3), get_loss("logistic")
    losses = np.logaddexp(0, rows @ c)
    k = 0.3 * mass.sum()
    place = place_of(loss.threshold, losses, mass, k, 1e-9)
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


def test_k_beyond_the_losses_that_are_seen_has_no_place() -> None:
    losses = np.array([0.1, 0.5, 5.0, 6.0])
    assert place_of(np.log(2), losses, np.ones(4), 3.0, 0.01) is None
    assert margin_at(get_loss("hinge"), 3.0) == pytest.approx(-2.0)
    empty = many_rows(np.empty((0, 3)), np.empty(0), "logistic").flow(np.ones(3), (1.0, 0.1), None)
    assert empty.held == 0


@pytest.mark.parametrize("free", [True, False])
def test_tangents_bound_from_wherever_they_touch(free: bool) -> None:
    rng = np.random.default_rng(int(free))
    rows = np.column_stack([rng.normal(size=(500, 2)), np.ones(500)]) * rng.choice([-1.0, 1.0], 500)[:, None]
    mass, c, loss = rng.random(500), rng.normal(size=3), get_loss("logistic")
    penalty = np.array([2.0, 0.5, 0.0 if free else 1.0])
    place = place_of(loss.threshold, np.logaddexp(0, rows @ c), mass, 60.0, 0.3)
    assert place is not None
    here = many_rows(rows, mass, "logistic")
    # The weights of the ramp, written out: in the losses of errors, in the logarithms of the others.
    losses, edge, middle = np.logaddexp(0, rows @ c), np.exp(-place), np.log(2)
    shares = np.where(losses >= middle, 2 * middle - edge - losses, middle * (np.log(losses) + place)) / 0.3 + 0.5
    weights = mass * np.clip(shares, 0, 1)
    least = minimize(lambda w: weights @ np.logaddexp(0, rows @ w) + penalty @ w**2 / 2, c, tol=1e-12).fun
    bounds = []
    for touch in (c, *(c + rng.normal(size=3) for _ in range(5))):
        sums = here.flow(c, (place, 0.3), touch)
        assert sums.held == pytest.approx(weights.sum())
        bounds.append(sums.bound(penalty))
        assert bounds[-1] <= least * (1 + 1e-9)
    end = minimize(lambda w: weights @ np.logaddexp(0, rows @ w) + penalty @ w**2 / 2, c, tol=1e-12).x
    sums = here.flow(c, (place, 0.3), end)
    assert sums.bound(penalty) == pytest.approx(least, rel=1e-4)
    assert max(bounds) < least


class Forgetful(ManyRows):
    """Rows that gather only two of three."""

    def gather(self, c: np.ndarray, low: float, high: float) -> NearRows:
        found = super().gather(c, low, high)
        return NearRows(*([part[np.arange(len(part)) % 3 > 0] for part in parts] for parts in vars(found).values()))


def test_a_certificate_covers_rows_that_were_not_gathered() -> None:
    X, y = draw(2, 3000, 3)
    ends = []
    for kind in (ManyRows, Forgetful):
        rows = kind(X, y.astype(float), np.ones(3000), Standard(np.zeros(3), np.ones(3), True), "logistic")
        flow = Flow(rows, 600.0, np.array([1.0, 1.0, 1.0, 0.0]), np.eye(4), 1e-3)
        ends.append(flow.run(np.zeros(4), (1.0, 1.0)))
    assert ends[0] is not None
    assert ends[0].sums.errors == np.count_nonzero(y * (X @ ends[0].c[:3] + ends[0].c[3]) <= 0)  # on all rows
    assert ends[1] is None


def test_a_loss_at_the_lower_end_of_a_band_counts_once() -> None:
    rows = many_rows(np.repeat(np.eye(3), 2, axis=0), np.arange(1.0, 7.0), "logistic")
    c = np.array([0.5, 1.0, -0.5])
    losses = np.logaddexp(0, c)  # pairs of equal losses
    for threshold, keys in ((None, -losses), (np.log(2), np.abs(losses - np.log(2)))):
        found = rows.keys(c, threshold, *np.sort(keys)[1:])  # two of six rows are below, the others in the band
        pairs = np.argsort(keys)
        assert found.below == np.array([3.0, 7.0, 11.0])[pairs[0]]
        assert found.below + np.concatenate(found.mass).sum() == 21.0


def test_rows_are_read_as_they_lie() -> None:
    X, y = draw(3, 90_000, 3)
    X = (X * [1.0, 1e4, 1e-3] + [0.0, 5e4, 0.0]).astype(np.float32)
    wide = np.zeros((len(y), 6), dtype=np.float32)
    wide[:, ::2] = X
    found = [CloseKClassifier(k=0.1).fit(table, y)
             for table in (X, np.asfortranarray(X), wide[:, ::2], X.astype(np.float64))]  # fmt: skip
    assert all(each.converged_ for each in found)
    for each in found[1:]:
        assert each.coef_ == pytest.approx(found[0].coef_, rel=1e-5)


def test_empty_columns_of_sparse_rows_change_nothing() -> None:
    rng = np.random.default_rng(4)
    X = sparse.random(300, 20, 0.2, format="csr", random_state=4)
    y = np.where(X @ rng.normal(size=20) + 0.1 * rng.normal(size=300) > 0, 1, -1)
    places = np.sort(rng.choice(400, 20, replace=False))
    wide = sparse.csr_matrix((X.data, places[X.indices], X.indptr), shape=(300, 400))
    problems = [Problem(alpha=0.5), Problem("logistic", "close_decay", 0.3, 0.5)]
    for free in (True, False):
        few, many = (solve(table, y, problems, max_iter=200, fit_intercept=free) for table in (X, wide))
        assert np.allclose(many.coef[:, places], few.coef, rtol=1e-6, atol=1e-9)
        assert many.intercept == pytest.approx(few.intercept, rel=1e-6, abs=1e-9)
        assert np.count_nonzero(np.delete(many.coef, places, axis=1)) == 0
        again = solve(wide, y, problems, max_iter=200, fit_intercept=free, init=(many.coef, many.intercept))
        assert (again.objective <= many.objective * (1 + 1e-6)).all()

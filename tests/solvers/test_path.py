"""Paths of cuts against functions defined here: stages end at minima, cuts contain k, and C agrees with NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize

from closecall.losses import LOSSES, get_loss
from closecall.solvers import path
from closecall.solvers.cuts import ABOVE, ALL, CLOSE, LookSums, LossCut
from closecall.solvers.path import PathTask, walk_on
from closecall.solvers.rows import DenseRows
from closecall.solvers.stages import LOWEST, NEAR, Spot, Walk

RAMP, KINK = 1.5, 0.1  # repeated here, so the test does not import them
compiled = pytest.mark.skipif(path.LIBRARY is None, reason="the package was installed without a C compiler")


def hinge(margins, kink):
    """The hinge loss, averaged over a window of width ``kink``."""
    rest, half = 1 - margins, kink / 2
    return np.where(rest <= -half, 0.0, np.where(rest >= half, rest, (rest + half) ** 2 / (2 * kink)))


VALUES = {"hinge": hinge, "ramp": lambda m, kink: hinge(m, kink) - hinge(m + 2, kink)}


def distances(loss, c, rows, kink=KINK):
    """Losses at coordinates c, minus T."""
    margins = -(c @ rows.across)[: rows.samples]
    values = VALUES[loss](margins, kink) if get_loss(loss).kinks else get_loss(loss).value(margins)
    return values - get_loss(loss).threshold


def mass_inside(loss, c, rows, mass, cut, ramp=RAMP, kink=KINK):
    """The mass within a cut that is uniformly distributed over the ramp."""
    far = np.abs(distances(loss, c, rows, kink))
    return float(mass @ np.clip((cut + ramp * cut / 2 - far) / (ramp * cut), 0, 1))


def clipped_sum(loss, c, rows, mass, alpha, cut, ramp=RAMP, kink=KINK):
    """The mean of ``sum clip(l - T, -e, e) + cut`` over cuts e that are uniform over the ramp, and the penalty."""
    above = distances(loss, c, rows, kink)
    far, low, high = np.abs(above), cut * (1 - ramp / 2), cut * (1 + ramp / 2)
    between = ((far**2 - low**2) / 2 + far * (high - far)) / (high - low)
    least = np.where(far <= low, far, np.where(far >= high, cut, between))
    return float(mass @ (cut + np.sign(above) * least) + 0.5 * alpha * rows.penalized @ c**2)


def table(seed, n=60, d=3, levels=0):
    """A noisy table with two outliers, rounded to ``levels`` values per unit if given."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    y = np.where(X @ rng.standard_normal(d) + rng.standard_normal(n) > 0.3, 1.0, -1.0)
    y[:2] = -1, 1
    X[-2:] *= 6
    return (np.round(X * levels) / levels if levels else X), y, rng


def tasks_of(loss, mass, k, alpha, size, noise=None):
    """One path for each alpha, all under the same masses or the same noise."""
    run = mass if noise is None else mass * noise
    return [PathTask(loss, run, mass, each, np.array(k), np.zeros(size)) for each in np.atleast_1d(alpha)]


def stacked(spots):
    """Spots (tasks, targets) as arrays: coordinates (tasks, targets, size), the rest (tasks, targets)."""
    found = {name: np.array([[getattr(spot, name) for spot in row] for row in spots])
             for name in ("c", "cut", "inside", "value", "errors")}  # fmt: skip
    return SimpleNamespace(coordinates=found.pop("c"), **found)


def follow(rows, tasks, **how):
    ends = path.follow(rows, tasks, **how)
    found = stacked([spots for spots, _ in ends])
    found.looks = np.array([looks for _, looks in ends])
    return found


def sharpen(rows, loss, mass, alpha, cut, spots, ramps, near):
    """The spots (tasks,) at the last ramp that each reaches, and these ramps."""
    ends = [walk_on(rows.margins(loss, mass), each * rows.penalized).sharpen(spot, cut, np.array(ramps), np.array(near))
            for each, spot in zip(alpha, spots, strict=True)]  # fmt: skip
    return stacked([[spot] for spot, _ in ends]), np.array([ramp for _, ramp in ends])


def twins(run):
    """The results of a function with the compiled kernel and without it."""
    with pytest.MonkeyPatch.context() as patch:
        fast = run()
        patch.setattr(path, "LIBRARY", None)
        return fast, run()


def same(fast, slow, **near):
    for name in ("coordinates", "cut", "inside", "value", "errors"):
        np.testing.assert_allclose(getattr(fast, name), getattr(slow, name), **near)


def close_cut(k):
    return LossCut(CLOSE, k, k, False)


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=6, deadline=None)
@given(seed=st.integers(0, 10_000), alpha=st.sampled_from([0.3, 3.0]), carried=st.booleans(), intercept=st.booleans())
def test_spots_are_minima_of_the_clipped_sum(loss, seed, alpha, carried, intercept):
    X, y, rng = table(seed)
    mass = rng.exponential(size=60)
    rows = DenseRows(X, y, mass, intercept, False)
    k = np.array([0.97, 0.6, 0.25]) * mass.sum()
    noise = rng.exponential(size=60) if carried else None
    spots = follow(rows, tasks_of(loss, mass, k, alpha, rows.across.shape[0], noise))
    for place in range(3):
        c, cut = spots.coordinates[0, place], spots.cut[0, place]
        value = clipped_sum(loss, c, rows, mass, alpha, cut)
        assert spots.value[0, place] == pytest.approx(value, rel=1e-10)
        assert spots.inside[0, place] == pytest.approx(mass_inside(loss, c, rows, mass, cut), rel=1e-10, abs=1e-10)
        assert spots.errors[0, place] == pytest.approx(float(mass @ (c @ rows.across >= 0)[:60]))
        lower = minimize(lambda at, cut=cut: clipped_sum(loss, at, rows, mass, alpha, cut), c, method="Nelder-Mead",
                         options={"initial_simplex": c + 1e-3 * np.eye(len(c) + 1, len(c)), "maxiter": 60})  # fmt: skip
        assert lower.fun > value * (1 - 1e-6)
        assert np.isfinite(spots.coordinates).all()


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "sigmoid"])
@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10_000), shares=st.lists(st.floats(0.1, 0.99), min_size=1, max_size=3), noisy=st.booleans())
def test_the_mass_inside_is_k(loss, seed, shares, noisy):
    """If losses are close to each other, there is a cut for every k, even for all rows but one."""
    X, y, rng = table(seed, 150)
    mass = rng.integers(1, 4, 150).astype(float)
    rows = DenseRows(X, y, mass, True, False)
    k = np.sort(shares)[::-1] * mass.sum()
    k = np.append(mass.sum() - mass.min(), k)
    spots = follow(rows, tasks_of(loss, mass, k, 1.0, 4, rng.exponential(size=150) if noisy else None))
    assert (np.abs(spots.inside[0] - k) <= NEAR * k * (1 + 1e-9)).mean() >= 0.5  # a minimum may cease to be one
    assert abs(spots.inside[0, 0] - k[0]) <= NEAR * k[0] * (1 + 1e-9)


def test_newton_places_a_cut_with_fewer_looks_than_bisection(monkeypatch):
    X, y, _ = table(3, 400)
    rows, looks = DenseRows(X, y, np.ones(400), True, False), []
    for slope in (Walk.slope, lambda walk, spot: (0.0, np.zeros_like(spot.c))):
        monkeypatch.setattr(Walk, "slope", slope)
        walk = Walk(rows.margins("sigmoid", np.ones(400)), rows.penalized)
        spot = walk.place(walk.settle(np.zeros(4), 0.4), 120.0, 1e-4, 0.5, here=True)
        assert abs(spot.inside - 120) < 1e-4
        looks.append(walk.looks)
    assert looks[0] < 0.7 * looks[1]


@compiled
@pytest.mark.parametrize("seed", range(6))
def test_kept_factors_are_those_of_the_twin(seed):
    """Loose stages of many columns keep and correct a factor; C and NumPy take the same steps, which end downhill."""
    X, y, _ = table(seed, 400, 12)
    mass = np.ones(400)
    rows = DenseRows(X, y, mass, True, False)
    tasks = tasks_of("logistic", mass, np.array([0.6, 0.3]) * 400, [0.1, 1.0, 10.0], 13)
    fast, slow = twins(lambda: follow(rows, tasks, tol=1e-3))
    np.testing.assert_allclose(fast.looks, slow.looks, atol=4)  # C evaluates a point again if a factor was too old
    same(fast, slow, rtol=1e-6, atol=1e-8)
    for alpha in (0.1, 1.0, 10.0):  # the average is convex: loose steps end near it
        margins, penalty = rows.margins("logistic", mass), alpha * rows.penalized
        exact, loose = (walk_on(margins, penalty, tol=tol).settle(np.zeros(13), np.inf) for tol in (1e-9, 1e-3))
        assert loose.value <= exact.value * 1.001


@compiled
@pytest.mark.parametrize("loss", list(path.LOSSES))
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_the_kernel_equals_its_twin(loss, data):
    few = [2, 3, 8, 9, 40] if loss == "logistic" else []  # few kinks: many minima, and rounding chooses one
    n = data.draw(st.sampled_from([*few, 150, 257, 300]))
    X, y, rng = table(data.draw(st.integers(0, 10_000)), n, data.draw(st.integers(1, 6)), data.draw(st.integers(0, 2)))
    mass = data.draw(st.sampled_from([np.ones(n), rng.exponential(size=n), (np.arange(n) % 4 < 3) * 1.0]))
    rows = DenseRows(X, y, mass, data.draw(st.booleans()), data.draw(st.booleans()))
    size, k = rows.across.shape[0], np.array([0.96, 0.5, 0.2]) * mass.sum()
    alpha, noisy = [0.01, 1.0, 100.0], mass * rng.exponential(size=n)
    tasks = [PathTask(loss, run, mass, each, k, 0.1 * rng.standard_normal(size))
             for run, each in zip((mass, noisy, noisy), alpha, strict=True)]  # fmt: skip
    fast, slow = twins(lambda: follow(rows, tasks))
    np.testing.assert_allclose(fast.looks, slow.looks, rtol=0.2, atol=60)  # rounding adds a halving
    ends = [Spot(c, cut) for c, cut in zip(fast.coordinates[:, 1], fast.cut[:, 1], strict=True)]
    sharp = twins(lambda: sharpen(rows, loss, mass, alpha, close_cut(k[1]), ends, [0.5, 0.1], [0.02, 1e-6]))
    np.testing.assert_allclose(sharp[0][1], sharp[1][1])
    for mine, twin in ((fast, slow), (sharp[0][0], sharp[1][0])):
        for name in ("coordinates", "cut", "inside", "value", "errors"):
            found, expected = getattr(mine, name), getattr(twin, name)
            np.testing.assert_allclose(found, expected, rtol=2e-4, atol=2e-4 * (1 + np.abs(expected).max()))


@pytest.mark.parametrize("loss", ["logistic", "hinge", "modified_huber"])
def test_units_do_not_matter(loss):
    """Masses and alpha four times as large, or features in another unit, give the same coordinates, bit for bit."""
    X, y, rng = table(8, 61)
    mass = rng.exponential(size=61)
    k = np.array([0.5, 0.1]) * mass.sum()
    first = follow(DenseRows(X, y, mass, True, False), tasks_of(loss, mass, k, 0.5, 4))
    heavy = follow(DenseRows(X, y, 4 * mass, True, False), tasks_of(loss, 4 * mass, 4 * k, 2.0, 4))
    assert (heavy.coordinates == first.coordinates).all()
    assert (heavy.value == 4 * first.value).all()
    other = follow(DenseRows(8 * X, y, mass, True, False), tasks_of(loss, mass, k, 32.0, 4))
    assert (other.coordinates == first.coordinates).all()


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e8 / 3])
def test_a_constant_column_changes_nothing(loss, alpha, value):
    X, y, _ = table(3)
    wide, mass, k = np.insert(X, 1, value, axis=1), np.ones(60), [30.0, 8.0]
    plain, more = DenseRows(X, y, mass, True, False), DenseRows(wide, y, mass, True, False)
    expected = plain.to_parameters(follow(plain, tasks_of(loss, mass, k, alpha, 4)).coordinates)
    coef, intercept = more.to_parameters(follow(more, tasks_of(loss, mass, k, alpha, 5)).coordinates)
    assert (coef[..., 1] == 0).all()
    np.testing.assert_allclose(np.delete(coef, 1, axis=-1), expected[0], rtol=1e-6)
    np.testing.assert_allclose(intercept, expected[1], rtol=1e-6)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 9999), n=st.integers(2, 40), intercept=st.booleans(), penalized=st.booleans())
def test_coordinates_give_the_margins_and_the_penalty(seed, n, intercept, penalized):
    rng = np.random.default_rng(seed)
    X, y = rng.standard_normal((n, 3)) * [1e-6, 1, 1e6] + [0, 5, 0], np.where(rng.random(n) < 0.5, -1.0, 1.0)
    rows, c = DenseRows(X, y, rng.exponential(size=n), intercept, penalized), rng.standard_normal(3 + intercept)
    coef, free = rows.to_parameters(c)
    np.testing.assert_allclose(-(c @ rows.across)[:n], y * (X @ coef + free), rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(rows.to_coordinates(coef, free), c, rtol=1e-6, atol=1e-9)
    own = coef @ coef + (free**2 if intercept and penalized else 0)
    assert rows.penalized @ c**2 == pytest.approx(own, rel=1e-9)
    assert rows.across.shape[1] % 8 == 0
    assert not rows.across[:, n:].any()


def test_columns_are_standardised_by_mass():
    X, y, rng = table(2, 30)
    mass = rng.exponential(size=30)
    rows = DenseRows(X * [1e-3, 1, 1e3] + 7, y, mass, True, False)
    signed = -rows.across[:3, :30] * y
    np.testing.assert_allclose(signed @ mass, 0, atol=1e-9)
    np.testing.assert_allclose(signed**2 @ mass / mass.sum(), 1)


def test_sharpening_reaches_the_ramp_and_k_exactly():
    X, y, rng = table(11, 80)
    mass = rng.exponential(size=80)
    rows, k, alpha = DenseRows(X, y, mass, True, False), 0.3 * mass.sum(), [0.1, 1.0, 10.0]
    for loss in ("logistic", "hinge", "squared_hinge"):
        ends = [spots[0] for spots, _ in path.follow(rows, tasks_of(loss, mass, [k], alpha, 4))]
        ramps, near = np.geomspace(RAMP, 1e-3, 8), np.append(np.full(7, NEAR), 1e-6)
        found, reached = sharpen(rows, loss, mass, alpha, close_cut(k), ends, ramps, near)
        assert (reached == 1e-3).sum() >= 2
        for place in np.flatnonzero(reached == 1e-3):
            c, cut = found.coordinates[place, 0], found.cut[place, 0]
            at = {"ramp": 1e-3, "kink": min(KINK, 1e-3 * cut)}
            assert abs(mass_inside(loss, c, rows, mass, cut, **at) - k) <= 2e-4 * k
            value = clipped_sum(loss, c, rows, mass, alpha[place], cut, **at)
            assert found.value[place, 0] == pytest.approx(value, rel=1e-3)


def test_a_cut_that_cannot_be_placed_is_reported():
    """If all losses are T, every cut contains all rows."""
    X, y = np.zeros((9, 1)), np.repeat([-1.0, 1.0, 1.0], 3)
    rows, mass = DenseRows(X, y, np.ones(9), False, False), np.ones(9)
    spots = follow(rows, tasks_of("logistic", mass, [3.0], 1.0, 1))
    assert spots.inside[0, 0] == 9
    assert not spots.coordinates.any()
    found, reached = sharpen(rows, "logistic", mass, [1.0], close_cut(3.0), [Spot(np.zeros(1), 1.0)], [0.5], [1e-6])
    assert reached[0] == 0
    assert found.cut[0, 0] == 1  # unchanged


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge", "ramp", "focal"])
@pytest.mark.parametrize("alpha", [0.0, 1e-8, 1e5])
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 9999), n=st.sampled_from([2, 3, 9, 33]), scale=st.sampled_from([1e-8, 1.0, 1e8]))
def test_numbers_stay_finite(loss, alpha, seed, n, scale):
    rng = np.random.default_rng(seed)
    X = np.round(rng.standard_normal((n, 2)) * 2) * scale
    X = np.c_[X, X[:, :1], np.full(n, 0.3)]
    y = np.where(X[:, 0] > 0, 1.0, -1.0)
    rows, mass = DenseRows(X, y, np.ones(n), bool(seed % 2), False), np.ones(n)
    spots = follow(rows, tasks_of(loss, mass, [0.9 * n, 1.0], alpha, rows.across.shape[0]))
    for name in ("coordinates", "inside", "value", "errors"):
        assert np.isfinite(getattr(spots, name)).all()
    assert (spots.cut > 0).all()
    assert (spots.looks < 20_000).all()


def test_stages_are_as_exact_as_asked():
    X, y, _ = table(4)
    rows, mass = DenseRows(X, y, np.ones(60), True, False), np.ones(60)
    tasks = tasks_of("logistic", mass, [15.0], 1.0, 4)
    exact, loose = follow(rows, tasks), follow(rows, tasks, tol=1e-2)
    assert loose.looks[0] < exact.looks[0]
    slopes = []
    for spots in (exact, loose):
        c, cut = spots.coordinates[0, 0], spots.cut[0, 0]
        ahead, behind = (
            [clipped_sum("logistic", c + step * unit, rows, mass, 1.0, cut) for unit in np.eye(4)]
            for step in (1e-6, -1e-6)
        )
        slopes.append(np.abs(np.subtract(ahead, behind) / 2e-6).max())
    assert slopes[0] < 1e-3
    assert slopes[0] < 0.1 * slopes[1]


def test_a_value_that_no_longer_falls_ends_a_stage():
    """If a slope is reported but only rounding is left, there is one step with its halvings and no other."""

    class Flat(Walk):
        def look(self, c, cut):
            self.looks += 1
            slope, none = np.full(2, 1e-3), np.zeros(2)
            return 1.0, LookSums(1.0, 1.0, 0.0, slope, np.ones(2), np.eye(2), 0.0, none, none)

    walk = Flat(None, np.zeros(2), 50, 1e-9)
    walk.settle(np.zeros(2), 0.1)
    assert walk.looks <= 2 + 40


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
def test_the_first_cut_contains_nearly_all_of_the_mass(loss):
    X, y, rng = table(3, 50)
    mass, c = rng.exponential(size=50) ** 3, rng.standard_normal(4)
    rows = DenseRows(X, y, mass, True, False)
    apart, cut = np.abs(distances(loss, c, rows)), walk_on(rows.margins(loss, mass), rows.penalized).first_cut(c)
    within, before = (float(mass[apart <= edge].sum()) for edge in (cut * (1 + 1e-9), cut * (1 - 1e-9)))
    assert before < 0.95 * mass.sum() <= within


def test_no_path_ends_below_the_lowest_cut():
    X, y = np.array([[-1.0], [1.0]] * 10), np.array([-1.0, 1.0] * 10)
    rows, mass = DenseRows(X, y, np.ones(20), True, False), np.ones(20)
    spots = follow(rows, tasks_of("logistic", mass, [1e-3], 1e5, 2))
    assert spots.cut[0, 0] > 0.4 * LOWEST * np.log(2)


@pytest.mark.parametrize("kind", [CLOSE, ABOVE, ALL])
@pytest.mark.parametrize("loss", LOSSES)
def test_gradients_and_hessians_are_those_of_the_value(loss, kind):
    """The derivatives of the gradient with respect to the cut, and of the mass inside, are correct too."""
    X, y, rng = table(6, 20)
    rows, mass = DenseRows(X, y, np.ones(20), True, False), rng.exponential(size=20)
    walk = Walk(rows.margins(loss, mass), 0.3 * rows.penalized, 9, 1e-9, kind=kind)
    c, cut, h = 0.3 * rng.standard_normal(4), -0.31 if kind == ABOVE else 0.31, 1e-6
    value, sums = walk.look(c, cut)
    ends = [[walk.look(c + sign * h * unit, cut) for sign in (1, -1)] for unit in np.eye(4)]
    penalty = 0.3 * rows.penalized
    slopes = [(ahead[0] - behind[0]) / (2 * h) for ahead, behind in ends]
    np.testing.assert_allclose(sums.gradient + penalty * c, slopes, rtol=1e-5, atol=1e-6)
    counted = [(ahead[1].inside - behind[1].inside) / (2 * h) for ahead, behind in ends]
    np.testing.assert_allclose(sums.by_mass, counted, rtol=1e-4, atol=1e-5)
    ahead, behind = (walk.look(c, cut + sign * h)[1] for sign in (1, -1))
    np.testing.assert_allclose(sums.by_cut, (ahead.gradient - behind.gradient) / (2 * h), rtol=1e-4, atol=1e-5)
    assert sums.grown == pytest.approx((ahead.inside - behind.inside) / (2 * h), rel=1e-4, abs=1e-5)
    bends = [(ahead[1].gradient - behind[1].gradient) / (2 * h) for ahead, behind in ends]
    if get_loss(loss).convex:  # for the others, negative curvature is left out
        np.testing.assert_allclose(sums.hessian, bends, rtol=1e-3, atol=1e-2)
    assert np.isfinite(value)


@compiled
@pytest.mark.parametrize("kind", [ABOVE, ALL])
@pytest.mark.parametrize("loss", list(path.LOSSES))
def test_the_kernel_equals_its_twin_for_every_window(loss, kind):
    X, y, rng = table(21, 90)
    mass = rng.exponential(size=90)
    rows, k = DenseRows(X, y, mass, True, False), (0.3 if kind == ABOVE else 1.0) * mass.sum()
    given = rows, loss, mass, [1.0], LossCut(kind, k, 0.3 * k, True), [Spot(np.zeros(4), -0.7)]
    ramps, near = [1.0, 0.5, 0.2], [0.02, 0.02, 1e-4]
    fast, slow = twins(lambda: sharpen(*given, ramps, near))
    assert fast[1] == slow[1] > 0
    same(fast[0], slow[0], rtol=1e-4, atol=1e-4)
    width, low = 0.2 * get_loss(loss).threshold, -fast[0].cut[0, 0]
    losses = distances(loss, fast[0].coordinates[0, 0], rows, min(KINK, width)) + get_loss(loss).threshold
    if kind == ABOVE:
        assert mass @ np.clip((losses - low) / width + 0.5, 0, 1) == pytest.approx(k, rel=1e-3)

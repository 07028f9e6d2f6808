"""The compiled kernel against its NumPy twin: the same selection and the same pulls, whatever the hints are."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from closecall.aggregates import get_aggregate
from closecall.losses import get_loss
from closecall.solvers import compiled
from closecall.solvers.design import Design
from closecall.solvers.kernels import PULLS, make_mass

pytestmark = pytest.mark.skipif(compiled.LIBRARY is None, reason="the package was installed without a C compiler")
AGGREGATES = ("average", "maximal", "atk", "top", "close")


class Identity:
    """A design whose gradients are the pulls themselves."""

    def gradient(self, pull):
        return pull

    signed = None


def pulls(values, loss, aggregate, k, mass, hints):
    """Pulls of minus margins (rows, samples) by the compiled kernel."""
    columns = np.zeros((2, values.shape[1]), dtype=values.dtype).T  # not contiguous, so that C computes only pulls
    design = Design(columns, np.ones(2), np.ones(2), mass[None], None, None, "none")
    puller = compiled.Puller(design, [make_mass(mass, values.dtype.type)], len(values))
    codes = compiled.codes(np.full(len(values), loss), np.full(len(values), aggregate), np.zeros(len(values)))
    bound, found = compiled.BoundPull(puller, codes, hints), np.zeros_like(values)
    bound.values[:] = values
    left = bound.pull(k)
    found[bound.left[:left]] = bound.values[:left]
    return found


def twin(values, loss, aggregate, k, mass):
    kind = make_mass(mass, values.dtype.type)
    with np.errstate(over="ignore", under="ignore"):
        return PULLS[aggregate](Identity(), loss, values.copy(), k, np.zeros(len(k)), kind)


def example(seed, rows, samples, levels):
    """Minus margins at several scales, rounded to 1 / ``levels`` for ties (0: not rounded)."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, samples)) * rng.choice([0.01, 1, 30], (rows, 1))
    return np.round(values * levels) / levels if levels else values


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("aggregate", AGGREGATES)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_pulls_equal_the_twins(dtype, loss, aggregate, data):
    samples = data.draw(st.sampled_from([1, 2, 7, 63, 64, 65, 200, 700, 2500]))
    values = example(data.draw(st.integers(0, 999)), 3, samples, data.draw(st.sampled_from([0, 1, 4]))).astype(dtype)
    mass = np.random.default_rng(data.draw(st.integers(0, 9))).random(samples)
    style = data.draw(st.sampled_from(["ones", "fold", "general"] if aggregate != "top" else ["ones", "fold"]))
    mass = {"ones": np.ones(samples), "fold": (mass < 0.8) * 1.0, "general": np.ceil(4 * mass) / 2}[style]
    mass[0] = 1
    k = np.ceil(data.draw(st.floats(0.01, 1)) * mass.sum()) * np.ones(3)
    k[2] = data.draw(st.floats(0.5, 1)) * k[2] if aggregate != "top" else k[2]
    wild = data.draw(st.sampled_from([(0, 0, 0.1), (1.2, -3, 1e-9), (1e30, 0, 1), (0, 0, 1e9), (-1e30, 1e30, 0)]))
    hints = np.array([[-1, -1, -1], wild, [1, 0.1, 0.01]])
    found = pulls(values, loss, aggregate, k, mass, hints.astype(float))
    expected = twin(values, loss, aggregate, k, mass)
    np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6 if dtype == np.float32 else 1e-13)


def test_hints_do_not_matter_when_the_edge_wanders():
    rng = np.random.default_rng(1)
    values, hints, k = rng.standard_normal((4, 5000)), np.full((4, 3), -1.0), np.array([5.0, 50, 500, 4000])
    for step in range(30):
        values += rng.standard_normal(values.shape) * 10.0 ** -(step % 7)
        fresh = np.full((4, 3), -1.0)
        for aggregate in ("close", "atk"):
            warm = pulls(values, "logistic", aggregate, k, np.ones(5000), hints)
            cold = pulls(values, "logistic", aggregate, k, np.ones(5000), fresh)
            assert (warm == cold).all()
            assert ((warm > 0).sum(axis=1) == k).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("style", ["ones", "fold", "general"])
def test_gradients_equal_brute_force_along_a_walk(dtype, loss, scale, style):
    """Whatever the hints are, sorting all keys in float64 selects the same examples."""
    rng, samples = np.random.default_rng(5), 1500
    Z = rng.standard_normal((samples, 6)).astype(dtype)
    Z[1000:1200] = Z[:200]  # ties
    place = np.arange(samples)
    mass = {"ones": np.ones(samples), "fold": (place % 5 > 0) * 1.0, "general": 1.0 + place % 3}[style]
    design = Design(Z, np.ones(6), np.ones(6), mass[None], None, None, "none")
    names = ["close"] * 5 + ["atk"] * 3 + ["top"] * (3 if style != "general" else 0)
    k = np.array([1.0, 20, 150.5, 600, 1100, 1, 150, 1100, 1, 150, 1100])[: len(names)]
    puller = compiled.Puller(design, [make_mass(mass, dtype)], len(names))
    codes = compiled.codes(np.full(len(names), loss), np.array(names), np.zeros(len(names)))
    bound = compiled.BoundPull(puller, codes, np.full((len(names), 3), -1.0))
    C = scale * rng.standard_normal((len(names), 6))
    for step in range(40):
        C += scale * 10.0 ** -(step % 5) * rng.standard_normal(C.shape)
        found = bound.gradients(C.astype(dtype), k)
        margins = -bound_margins(C.astype(dtype), design)
        slopes = -get_loss(loss).slope(margins)
        for row, name in enumerate(names):
            losses, threshold = get_loss(loss).value(margins[row]), get_loss(loss).threshold
            count = np.asarray(k[row])
            weights = get_aggregate(name).weigh(losses[None], mass, threshold, count, np.zeros(()))[0]
            expected = (weights * slopes[row]) @ Z.astype(float)
            near = 3e-4 if dtype == np.float32 else 1e-9
            size = (weights * slopes[row]) @ np.abs(Z) + 1
            assert (np.abs(found[row] - expected) <= near * size).all(), (name, k[row], step)


def bound_margins(C, design):
    """Minus margins as the kernel's product rounds them, in float64."""
    return np.matmul(C, design.across).astype(np.float64)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_extreme_margins_stay_finite(dtype):
    values = np.array([[0, -0.0, 1e-30, -1e-30, 50, -50, 1e4, -1e4, np.finfo(dtype).max, np.finfo(dtype).min]], dtype)
    for aggregate in AGGREGATES:
        found = pulls(values, "logistic", aggregate, np.array([3.0]), np.ones(10), np.full((1, 3), -1.0))
        assert np.isfinite(found).all()
        assert (found >= 0).all()


def test_what_it_does_not_support_is_left_to_numpy(monkeypatch):
    monkeypatch.setitem(PULLS, "mine", lambda *given: None)
    design = Design(np.eye(4), np.ones(4), np.ones(4), np.ones((1, 4)), None, None, "none")
    losses = np.array(["logistic", "logistic", "ramp", "hinge", "logistic"])
    codes = compiled.codes(losses, np.array(["atk", "atk", "close", "top", "mine"]), np.zeros(5))
    masses = [make_mass(np.array([1, 2.0, 1, 1]), np.float64)]
    assert compiled.serves(design, codes, np.array([0, 1, 0, 0, 0]), masses).tolist() == [True] + [False] * 4

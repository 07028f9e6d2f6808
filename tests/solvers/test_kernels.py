"""The fast selection against the plain one, with ties, masses, folds and both float types."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from closecall.aggregates import AGGREGATES, take_smallest
from closecall.losses import LOSSES
from closecall.solvers import kernels
from closecall.solvers.design import make_design
from closecall.solvers.kernels import PULLS, Mass, make_mass, select

DTYPES = [np.float32, np.float64]
KINDS = ["ones", "fold", "whole", "fractional"]


@st.composite
def selections(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, Mass, np.ndarray]:
    """Draw keys (problems, samples) with ties, positive k (problems,) and masses for every path."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, samples = draw(st.integers(1, 4)), draw(st.sampled_from([1, 2, 7, 30, 700]))
    levels = draw(st.sampled_from([1, 3, 1000]))
    keys = rng.integers(-levels, levels + 1, (rows, samples)).astype(draw(st.sampled_from(DTYPES))) / 8
    kind = draw(st.sampled_from(KINDS))
    values = {
        "ones": np.ones(samples),
        "fold": (rng.random(samples) < 0.7).astype(float),
        "whole": rng.integers(0, 4, samples).astype(float),
        "fractional": rng.random(samples),
    }[kind]
    values[0] = values[0] or 1.0
    total = values.sum()
    k = np.maximum(rng.random(rows), 1e-3) * total
    if draw(st.booleans()):
        k = np.minimum(np.maximum(np.rint(k), 1), total)
    if draw(st.booleans()):
        k[:] = k[0]  # rows of one k share a partition
    return keys, k, make_mass(values, keys.dtype.type), values


@given(selections())
def test_select_is_take_smallest(case: tuple[np.ndarray, np.ndarray, Mass, np.ndarray]) -> None:
    keys, k, mass, values = case
    expected = take_smallest(keys.astype(float), values, k)
    found = select(keys.copy(), k, mass)
    np.testing.assert_allclose(found, expected, atol=1e-5 * max(1.0, values.max()))


@given(selections())
def test_top_weights_are_the_aggregate_top(case: tuple[np.ndarray, np.ndarray, Mass, np.ndarray]) -> None:
    keys, k, mass, values = case
    expected = AGGREGATES["top"].weigh(-keys.astype(float), values, np.nan, k, np.zeros(1))
    found = kernels._top_weights(keys.copy(), k, mass)
    # In float32 the unit of weight is the difference between sums of up to a thousand masses.
    np.testing.assert_allclose(found, expected, atol=2e-4 if keys.dtype == np.float32 else 1e-9)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("samples", [60, 900])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PULLS)
def test_pulls_are_the_aggregates_gradients(name: str, kind: str, samples: int, dtype: type) -> None:
    """Gathered or not, sorted or partitioned, a gradient is the sum of weights * slopes * rows."""
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(samples, 3)), np.where(rng.random(samples) < 0.5, 1.0, -1.0)
    values = {"ones": np.ones(samples), "fold": (np.arange(samples) % 3 > 0).astype(float)}.get(
        kind, rng.integers(1, 4, samples) + 0.25 * (kind == "fractional")
    )
    design = make_design(X, y, values[None], fit_intercept=True, penalize=False, dtype=dtype)
    mass, aggregate = make_mass(values, dtype), AGGREGATES[name]
    C = rng.normal(size=(4, design.rank))
    k, m = np.array([3.0, 3.0, 20.0, 25.0]), np.full(4, 2.0 if "m" in aggregate.takes else 0.0)
    if name in ("average", "trimmed"):
        k[:] = values.sum()
    if name == "maximal":
        k[:] = 1.0
    for loss in LOSSES.values():
        margins = -design.negative_margins(C)
        losses = loss.value(margins.astype(float))
        weights = aggregate.weigh(losses, values, loss.threshold, k, m)
        expected = (-weights * loss.slope(margins.astype(float))) @ design.signed.astype(float)
        found = PULLS[name](design, loss.name, -margins, k, m, mass)
        np.testing.assert_allclose(found, expected, rtol=2e-3, atol=2e-3 if dtype == np.float32 else 1e-8)

"""Laws of SquashingScaler on random columns, with SciPy as the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.utils.estimator_checks import check_estimator

from closecall import SquashingScaler
from closecall.preprocessing import ROOM, robust_scale, squash, unsquash


def columns() -> np.ndarray:
    """Return columns of many kinds, each with a few extreme and a few missing cells."""
    rng = np.random.default_rng()
    X = rng.normal(rng.normal(0, 9, 12), 10.0 ** rng.uniform(-6, 6, 12), (300, 12))
    X[:, 8:] = rng.exponential(10.0 ** rng.uniform(-6, 6, 4), (300, 4))
    X += (rng.random(X.shape) < 0.03) * rng.uniform(-900, 900, X.shape) * X.std(axis=0)
    X[rng.random(X.shape) < 0.05] = np.nan
    return X


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_check_estimator_without_expected_failures() -> None:
    results = check_estimator(SquashingScaler(), on_fail=None)
    assert {each["check_name"]: each["exception"] for each in results if each["status"] == "failed"} == {}
    assert len(results) > 40


def test_centre_and_scale_are_the_median_and_its_deviation_by_scipy() -> None:
    X = columns()
    center, scale = robust_scale(X)
    np.testing.assert_allclose(center, np.nanmedian(X, axis=0), rtol=1e-12)
    expected = stats.median_abs_deviation(X, axis=0, scale="normal", nan_policy="omit")
    np.testing.assert_allclose(scale, expected, rtol=1e-9)


def test_ordinary_cells_are_on_a_line_and_wild_ones_are_bounded_in_order() -> None:
    X = columns()
    scaler = SquashingScaler().fit(X)
    z, found = (X - scaler.center_) / scaler.scale_, scaler.transform(X)
    inside = np.abs(z) <= 3
    np.testing.assert_allclose(found[inside], z[inside], rtol=1e-12)
    np.testing.assert_array_equal(scaler.is_far(X), np.abs(z) > 3)
    assert (np.abs(found[np.abs(z) > 3]) > 3).all()
    assert np.nanmax(np.abs(found)) <= 3 + ROOM
    grid = np.linspace(-9, 9, 9001)
    assert (np.diff(squash(grid)) > 0).all()
    slopes = np.diff(squash(grid)) / np.diff(grid)
    assert np.abs(np.diff(slopes)).max() < 0.02, "no corner"


def test_the_inverse_returns_what_was_there() -> None:
    X = columns()
    scaler = SquashingScaler().fit(X)
    np.testing.assert_allclose((scaler.inverse_transform(scaler.transform(X)) - X) / scaler.scale_, 0 * X, atol=1e-6)
    assert unsquash(squash(np.array([np.inf, -np.inf]))).tolist() == [np.inf, -np.inf]


@pytest.mark.parametrize("rows", [2, 3, 40])
def test_two_values_become_minus_one_and_one_whatever_their_share_and_unit(rows: int) -> None:
    rng = np.random.default_rng()
    low, gap = rng.normal(0, 100), 10.0 ** rng.uniform(-3, 3)
    x = np.full(rows, low)
    x[0] += gap
    found = SquashingScaler().fit_transform(x[:, None]).ravel()
    np.testing.assert_allclose(found, [1, *[-1] * (rows - 1)], rtol=1e-9)


def test_constant_empty_and_infinite_cells() -> None:
    X = np.array([[5.0, np.nan, 1.0], [5.0, np.nan, 2.0], [5.0, np.nan, 3.0], [5.0, np.nan, np.inf]])
    found = SquashingScaler().fit_transform(X)
    assert (found[:, 0] == 0).all()
    assert np.isnan(found[:, 1]).all()
    assert found[3, 2] == 3 + ROOM
    assert found[1, 2] == 0


def test_more_than_half_equal_takes_the_quarters_then_the_deviation() -> None:
    rng = np.random.default_rng()
    half = np.where(np.arange(400) < 280, 0.0, rng.uniform(1, 2, 400))
    rare = np.where(np.arange(400) < 380, 0.0, rng.uniform(1, 2, 400))
    _, scale = robust_scale(np.column_stack([half, rare]))
    quarters = stats.iqr(half) / (2 * stats.norm.ppf(0.75))
    np.testing.assert_allclose(scale, [quarters, rare.std()], rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-320, 1e-200, 1e200, 1e307])
def test_units_at_the_ends_of_floats(unit: float) -> None:
    X = np.random.default_rng().normal(size=(50, 3)) * unit
    X[:40, 2] = 0
    found = SquashingScaler().fit_transform(X)
    assert np.isfinite(found).all()
    assert unit < 1e-300 or found.std() > 0.3


def test_float32_names_and_frames() -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.random.default_rng().normal(size=(30, 2)).astype(np.float32), columns=["a", "b"])
    scaler = SquashingScaler().set_output(transform="pandas").fit(frame)
    found = scaler.transform(frame)
    assert list(found.columns) == list(scaler.get_feature_names_out()) == ["a", "b"]
    assert found.to_numpy().dtype == np.float32
    with pytest.raises(ValueError, match="bound"):
        SquashingScaler(bound=0).fit(frame)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bound", [3.0, np.inf])
def test_onnx_carries_it(dtype: Any, bound: float) -> None:
    skl2onnx = pytest.importorskip("skl2onnx")
    runtime = pytest.importorskip("onnxruntime")
    from closecall.linear.onnx import register

    register()
    X = columns()[:, :5]
    X = (X / np.nanstd(X, axis=0)).astype(dtype)
    model = SquashingScaler(bound).fit(X)
    session = runtime.InferenceSession(
        skl2onnx.to_onnx(model, X[:1]).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (found,) = session.run(None, {session.get_inputs()[0].name: X})
    assert found.dtype == dtype
    near = 1e-9 if dtype is np.float64 else 1e-6 * float(np.nanmax(np.abs(X)) / model.scale_.min())
    np.testing.assert_allclose(found, model.transform(X), rtol=near, atol=near)

"""Individual losses: their stated properties, measured over the whole float range."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, strategies as st

from closecall.losses import LOSSES, Loss, get_loss

EVERY = sorted(LOSSES)
every_loss = pytest.mark.parametrize("loss", [LOSSES[name] for name in EVERY], ids=EVERY)
both_widths = pytest.mark.parametrize("dtype", [np.float32, np.float64])

#: Margins at which the slope jumps.
KINKS = {"hinge": [1.0], "ramp": [-1.0, 1.0]}
STEP = 1e-3
GRID = np.arange(-20, 20, STEP)

#: The losses of a margin, written with plain numbers; `p` is the probability of a correct prediction.
FORMULAS: dict[str, Callable[[float, float], float]] = {
    "logistic": lambda m, p: -math.log(p),
    "hinge": lambda m, p: max(1 - m, 0),
    "squared_hinge": lambda m, p: max(1 - m, 0) ** 2,
    "ramp": lambda m, p: min(max(1 - m, 0), 2),
    "modified_huber": lambda m, p: max(1 - m, 0) ** 2 if m >= -1 else -4 * m,
    "focal": lambda m, p: -((1 - p) ** 2) * math.log(p),
    "sigmoid": lambda m, p: 1 - p,
    "generalized_cross_entropy": lambda m, p: (1 - p**0.7) / 0.7,
}


def extremes(dtype: type[np.floating]) -> np.ndarray:
    """Return margins over the whole float range: the largest, subnormals, and where exp underflows or overflows."""
    info = np.finfo(dtype)
    sizes = [info.max, info.max / 2, np.sqrt(info.max), 1e4, 800, 746, 745, 710, 709, 104, 103, 89, 88, 20, 1]
    sizes += [0.5, info.eps, info.eps / 4, info.tiny, info.smallest_subnormal, 0]
    positive = np.array(sizes, dtype=dtype)
    return np.unique(np.concatenate([-positive, positive]))


@every_loss
def test_the_threshold_is_the_loss_on_the_boundary(loss: Loss) -> None:
    assert loss.threshold == pytest.approx(float(loss.value(np.zeros(1))[0]), rel=1e-15)
    assert LOSSES[loss.name] is get_loss(loss.name) is loss


@every_loss
def test_values_are_those_of_the_formula(loss: Loss) -> None:
    for margin in (-5.0, -3.0, -1.0, -0.5, -0.3, 0.0, 0.5, 0.7, 1.0, 3.0, 4.0):
        expected = FORMULAS[loss.name](margin, 1 / (1 + math.exp(-margin)))
        assert loss.value(np.array(margin)) == pytest.approx(expected, rel=1e-12)


@every_loss
def test_slopes_match_central_differences(loss: Loss) -> None:
    margins, step = np.linspace(-12, 12, 4001), 1e-5
    smooth = np.all([np.abs(margins - kink) > 2 * step for kink in KINKS.get(loss.name, [math.inf])], axis=0)
    assert smooth.mean() > 0.99
    measured = (loss.value(margins + step) - loss.value(margins - step)) / (2 * step)
    # At a jump of the curvature (squared_hinge, modified_huber) the central difference is off by step / 2.
    np.testing.assert_allclose(loss.slope(margins)[smooth], measured[smooth], rtol=1e-7, atol=2 * step)


@every_loss
def test_slopes_at_kinks_are_subgradients(loss: Loss) -> None:
    for kink in KINKS.get(loss.name, []):
        left, at, right = loss.slope(np.array([kink - 1e-6, kink, kink + 1e-6]))
        assert min(left, right) <= at <= max(left, right)
        assert left != right


@every_loss
def test_the_curvature_bound_holds_and_is_not_loose(loss: Loss) -> None:
    # From the values alone, so that a wrong slope cannot hide a wrong bound.
    measured = np.abs(np.diff(loss.value(GRID), 2)).max() / STEP**2
    if loss.name in KINKS:
        assert math.isinf(loss.curvature)
        assert measured > 0.5 / STEP  # a jump of the slope, seen through a window of STEP
    else:
        assert measured <= loss.curvature * (1 + 1e-6)
        assert loss.curvature <= 1.1 * measured


@every_loss
def test_convex_means_below_every_chord(loss: Loss) -> None:
    left, right = np.meshgrid(np.linspace(-8, 8, 161), np.linspace(-8, 8, 161))
    above = loss.value((left + right) / 2) - (loss.value(left) + loss.value(right)) / 2
    assert (above.max() <= 1e-12) == loss.convex


@every_loss
@both_widths
def test_losses_never_rise_and_every_margin_has_a_value_and_a_slope(loss: Loss, dtype: type[np.floating]) -> None:
    for margins in (GRID.astype(dtype), extremes(dtype)):
        values, slopes = loss.value(margins), loss.slope(margins)  # warnings are errors
        assert values.dtype == slopes.dtype == dtype
        assert values.shape == slopes.shape == margins.shape
        assert (values >= 0).all()  # neither is NaN
        assert (slopes <= 0).all()
        # Neighbours may differ by a rounding of the value itself, not by more.
        assert (values[1:] * (1 - 4 * np.finfo(dtype).eps) <= values[:-1]).all()
        # Only a loss that outgrows its margin may leave the range of floats.
        if loss.name not in ("squared_hinge", "modified_huber"):
            assert np.isfinite([values, slopes]).all()


def exact_logistic(margin: float) -> Decimal:
    with localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -(10**9), 10**9
        if abs(margin) > 1e4:  # beyond the range of floats the loss is the hinge to the last bit
            return max(-Decimal(margin), Decimal(0))
        # ln(1 + e) loses e where e is below the precision; there ln(1 + e) = e to 60 digits.
        small = (-abs(Decimal(margin))).exp()
        return ((1 + small).ln() if small > Decimal("1e-40") else small) + max(-Decimal(margin), Decimal(0))


@both_widths
@given(data=st.data())
def test_logistic_never_overflows_and_is_exact_to_rounding(dtype: type[np.floating], data: st.DataObject) -> None:
    width = 8 * np.dtype(dtype).itemsize
    anywhere = st.floats(allow_nan=False, allow_infinity=False, width=width)
    usual = st.floats(-128, 128, width=width)
    margins = np.array(data.draw(st.lists(st.one_of(anywhere, usual), min_size=1, max_size=8)), dtype=dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        values, slopes = get_loss("logistic").value(margins), get_loss("logistic").slope(margins)
    assert values.dtype == slopes.dtype == dtype
    assert ((slopes >= -1) & (slopes <= 0)).all()
    info = np.finfo(dtype)
    for margin, value in zip(margins.tolist(), values.tolist(), strict=True):
        exact = exact_logistic(margin)
        error = abs(Fraction(value) - Fraction(exact))
        assert error <= 4 * Fraction(float(info.eps)) * Fraction(exact) + 2 * Fraction(float(info.smallest_subnormal))

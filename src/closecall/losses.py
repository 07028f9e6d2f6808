"""Individual losses as functions of the margin: their values, slopes and thresholds.

A loss is a function of the margin ``m = y * f(x)``. Its *threshold* ``T = l(0)`` is the loss of an example on the
decision boundary. To add a loss, write functions for its value and slope, and add one line to the table ``LOSSES``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from ._names import Array, lookup

#: The focal loss's exponent (Lin et al. 2017 recommend 2).
FOCAL_GAMMA = 2
#: The exponent of the generalised cross-entropy (Zhang and Sabuncu 2018 recommend 0.7): 0 gives logistic, 1 sigmoid.
GCE_Q = 0.7


@dataclass(frozen=True)
class Loss:
    """An individual loss.

    Parameters
    ----------
    value, slope : callable
        Margins of any shape -> losses, or their derivatives with respect to the margin (a subgradient at a kink).
    threshold : float
        T = l(0).
    curvature : float
        A bound on the absolute value of the second derivative; infinite if the slope jumps.
    convex : bool
        Whether the loss is a convex function of the margin.
    falls : (float, float), optional
        The loss decreases strictly between these margins and is constant outside, so examples can be ranked by margin.
        By default, they are ranked by loss.
    kinks : tuple of float
        Margins at which the slope jumps.
    bend, inverse : callable, optional
        Slopes -> second derivatives, and a loss -> its margin; by default, they are found numerically.
    likelihood : bool
        Whether minimising its average amounts to logistic regression, so that scores are log-odds.

    Examples
    --------
    >>> get_loss("hinge").value(np.array([-1.0, 0.0, 3.0])).tolist()
    [2.0, 1.0, 0.0]
    """

    name: str
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    threshold: float
    curvature: float
    convex: bool
    falls: tuple[float, float] | None = None
    kinks: tuple[float, ...] = ()
    bend: Callable[[Array], Array] | None = None
    inverse: Callable[[float], float] | None = None
    likelihood: bool = False


_INF = math.inf
_ALWAYS = (-_INF, _INF)


def _logistic(margins: Array) -> Array:
    # The argument of exp is never positive, so exp cannot overflow; log1p keeps the digits of tiny losses.
    return np.log1p(np.exp(-np.abs(margins))) + np.maximum(-margins, 0)


def _logistic_slope(margins: Array) -> Array:
    return -expit(-margins)


def _bend(slopes: Array) -> Array:
    return -slopes * (1 + slopes)


def _inverse(level: float) -> float:
    return -level if level > 40 else -math.log(math.expm1(level)) if level > 0 else _INF


def _hinge(margins: Array) -> Array:
    return np.maximum(1 - margins, 0)


def _hinge_slope(margins: Array) -> Array:
    return -(margins < 1).astype(margins.dtype)


def _squared_hinge(margins: Array) -> Array:
    with np.errstate(over="ignore"):  # beyond the square root of the largest float the loss itself is infinite
        return np.square(np.maximum(1 - margins, 0))


def _squared_hinge_slope(margins: Array) -> Array:
    with np.errstate(over="ignore"):
        return -2 * np.maximum(1 - margins, 0)


def _ramp(margins: Array) -> Array:
    return np.clip(1 - margins, 0, 2)


def _ramp_slope(margins: Array) -> Array:
    return -((margins < 1) & (margins > -1)).astype(margins.dtype)


def _modified_huber(margins: Array) -> Array:
    with np.errstate(over="ignore"):
        return np.where(margins >= -1, np.square(np.maximum(1 - np.maximum(margins, -1), 0)), -4 * margins)


def _modified_huber_slope(margins: Array) -> Array:
    return -2 * np.clip(1 - margins, 0, 2)


def _focal(margins: Array) -> Array:
    return expit(-margins) ** FOCAL_GAMMA * _logistic(margins)


def _focal_slope(margins: Array) -> Array:
    right, wrong = expit(margins), expit(-margins)
    return -(wrong**FOCAL_GAMMA) * (FOCAL_GAMMA * right * _logistic(margins) + wrong)


def _sigmoid(margins: Array) -> Array:
    return expit(-margins)


def _sigmoid_slope(margins: Array) -> Array:
    return -expit(margins) * expit(-margins)


def _gce(margins: Array) -> Array:
    # (1 - p^q) / q with p = sigmoid(margin); expm1 keeps the digits of small losses.
    return -np.expm1(-GCE_Q * _logistic(margins)) / GCE_Q


def _gce_slope(margins: Array) -> Array:
    return -np.exp(-GCE_Q * _logistic(margins)) * expit(-margins)


class _Losses(dict[str, Loss]):
    def __missing__(self, name: str) -> Loss:
        if name != "generalized_ce":
            raise KeyError(name)
        message = "the loss 'generalized_ce' is now called 'generalized_cross_entropy'; the old name will stop working"
        warnings.warn(message, FutureWarning, stacklevel=4)
        return self["generalized_cross_entropy"]


#: Every loss by name. Hinge and ramp have kinks; ramp and focal are not convex. The ramp is the hinge truncated at
#: 2 (Wu & Liu 2007 with s = -1), `modified_huber` is as in scikit-learn (Zhang 2004), `focal` as in Lin et al. (2017).
#: `sigmoid` is symmetric, l(m) + l(-m) = 1: flipped labels cost all classifiers the same (Ghosh et al. 2015);
#: `generalized_cross_entropy` lies between `sigmoid` and `logistic`.
LOSSES: dict[str, Loss] = _Losses(
    (loss.name, loss)
    for loss in (
        Loss("logistic", _logistic, _logistic_slope, math.log(2), 0.25, True, _ALWAYS, (), _bend, _inverse, True),
        Loss("hinge", _hinge, _hinge_slope, 1.0, _INF, True, (-_INF, 1.0), (1.0,)),
        Loss("squared_hinge", _squared_hinge, _squared_hinge_slope, 1.0, 2.0, True, (-_INF, 1.0)),
        Loss("ramp", _ramp, _ramp_slope, 1.0, _INF, False, (-1.0, 1.0), (-1.0, 1.0)),
        Loss("modified_huber", _modified_huber, _modified_huber_slope, 1.0, 2.0, True, (-_INF, 1.0)),
        # |l''| is largest, 0.4962, at m = -0.603 (a test recomputes it); rounded up.
        Loss("focal", _focal, _focal_slope, math.log(2) / 2**FOCAL_GAMMA, 0.5, False, _ALWAYS),
        # The curvature of the sigmoid is largest, 1 / (6 sqrt(3)) = 0.0962, at m = log(2 + sqrt(3)).
        Loss("sigmoid", _sigmoid, _sigmoid_slope, 0.5, 0.1, False, _ALWAYS),
        Loss("generalized_cross_entropy", _gce, _gce_slope, (1 - 2**-GCE_Q) / GCE_Q, 0.12, False, _ALWAYS),
    )
)


def get_loss(name: str) -> Loss:
    """Return the loss with the given name; an unknown name raises a ``ValueError`` that lists the known names.

    Examples
    --------
    >>> round(get_loss("logistic").threshold, 4)
    0.6931
    """
    return lookup(LOSSES, name, "loss")

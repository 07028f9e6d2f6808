"""The paper's bounds, each with the condition and the constants under which it holds.

Notation: c are the masses, s the weights of ``close`` (summing to k), l the losses, T = l(0), and M the constant of
the paper's definition of the close-k loss (section "Close-k Aggregate Loss"),

    L = sum(s * l) + M * sum((c - s) * [m <= 0]),

one M for all parameters compared, at least the largest loss that occurs and at least T. With E = sum(c * [m <= 0])
the misclassified mass, everything here follows from one identity,

    L / M - E = sum(s * (l / M - [m <= 0])),

in which a misclassified example has T <= l <= M and a correct one 0 <= l < T.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import gammaln, logsumexp


def _check(k: float, threshold: float, constant: float) -> None:
    if not 0 < k < math.inf:
        raise ValueError(f"k={k!r} must be a positive, finite mass")
    if not 0 < threshold <= constant < math.inf:
        raise ValueError(
            f"constant={constant!r} (the paper's M) must be finite and at least the threshold T={threshold!r} > 0"
        )


def close_value_bounds(errors: Any, k: float, *, threshold: float, constant: float) -> tuple[Any, Any]:
    """Bounds on L / M for a classifier with the given errors (the paper's Lemma "bounded by 0-1 loss").

    The paper's bounds are E - k < L / M < E + k (its formula has close-1 instead of close-k). The identity gives the
    tighter bounds E - k (1 - T / M) <= L / M <= E + k T / M.

    Parameters
    ----------
    errors : float or array
        E, the misclassified mass.
    k : float
        The mass that ``close`` uses.
    threshold : float
        T, the loss of an example on the boundary.
    constant : float
        M, at least T and the largest loss.

    Examples
    --------
    >>> close_value_bounds(3, 2, threshold=1.0, constant=4.0)
    (1.5, 3.5)
    """
    _check(k, threshold, constant)
    return errors - k * (1 - threshold / constant), errors + k * threshold / constant


def minimizer_errors_bound(optimum: float, k: float, *, whole: bool = True) -> float:
    """The largest mass that a minimiser of the close-k loss can misclassify (Lemma k; k = 1 is Lemma optimum).

    From the two sides of :func:`close_value_bounds`, E(minimiser) < E(optimum) + k, without regularisation. Whole
    masses make E whole, hence the paper's E(optimum) + k - 1; with fractional ones that bound can be exceeded.

    Parameters
    ----------
    optimum : float
        The smallest misclassified mass in the family.
    k : float
        The mass that ``close`` uses.
    whole : bool
        Whether all masses are whole numbers: the bound may then be attained, otherwise it is never reached.

    Examples
    --------
    >>> minimizer_errors_bound(4, 1), minimizer_errors_bound(4, 2.5), minimizer_errors_bound(4.3, 2.5, whole=False)
    (4, 6, 6.8)
    """
    _check(k, 1.0, 1.0)
    return optimum + (math.ceil(k) - 1 if whole else k)


def training_errors_bound(value: Any, k: float, *, threshold: float, constant: float) -> Any:
    """The largest mass that a classifier with close-k loss L can misclassify in training: L / M + k (1 - T / M).

    The proof of the paper's generalisation theorem needs this step. The paper has L + k - 1 instead, which is wrong for
    two reasons: L is in units of M, not of errors, and k - 1 compares the minimiser with the optimum and does not apply
    to a single classifier (with k = 1 and a single error on the boundary, L / M + k - 1 = T / M < 1).

    Parameters
    ----------
    value : float or array
        L, with its M term: :func:`closecall.objective.aggregate_value` with ``constant=M``.
    k, threshold, constant : float
        As in :func:`close_value_bounds`.

    Examples
    --------
    >>> training_errors_bound(8.0, 2, threshold=1.0, constant=4.0)
    3.5
    """
    _check(k, threshold, constant)
    return value / constant + k * (1 - threshold / constant)


def log_growth(vc: int, samples: int) -> float:
    """Sauer's lemma: the logarithm of sum(binomial(samples, i) for i = 0..vc), which bounds the growth function.

    Examples
    --------
    >>> round(float(np.exp(log_growth(2, 5)))), round(float(np.exp(log_growth(9, 5))))
    (16, 32)
    """
    if vc < 0 or samples < 1:
        raise ValueError(f"need a VC dimension >= 0 and at least one sample, not vc={vc!r}, samples={samples!r}")
    i = np.arange(min(vc, samples) + 1)
    return float(logsumexp(gammaln(samples + 1) - gammaln(i + 1) - gammaln(samples - i + 1)))


def risk_bound(training_risk: float, samples: int, vc: int, delta: float) -> float:
    """A bound on the risk of every classifier of the class at once, with probability at least 1 - delta.

    Vapnik and Chervonenkis's relative deviation inequality, P(sup (R - r) / sqrt(R) > e) <= 4 S(2n) exp(-n e^2 / 4)
    with R the risk, r the training risk and S the growth function, gives with Sauer's lemma

        R <= r + 2 sqrt(r h) + 4 h,   h = (log sum(binomial(2n, i) for i = 0..vc) + log(4 / delta)) / n,

    which is Corollary 5.2 of Boucheron, Bousquet and Lugosi (2005) with its constants. The n examples are independent
    draws of mass one. Linear classifiers on d features with an intercept have vc = d + 1.

    Examples
    --------
    >>> round(risk_bound(0.1, 100_000, 3, 0.05), 4)
    0.1141
    """
    if not 0 <= training_risk <= 1:
        raise ValueError(f"training_risk={training_risk!r} must lie in [0, 1]")
    if not 0 < delta < 1:
        raise ValueError(f"delta={delta!r} must lie strictly between 0 and 1")
    h = (log_growth(vc, 2 * samples) + math.log(4 / delta)) / samples
    return min(1.0, training_risk + 2 * math.sqrt(training_risk * h) + 4 * h)


def generalization_bound(
    value: float, k: float, *, samples: int, vc: int, delta: float, threshold: float, constant: float
) -> float:
    """A bound on the risk from the close-k training loss, with probability at least 1 - delta (generalisation theorem).

    :func:`risk_bound` at the training risk that :func:`training_errors_bound` allows, (L / M + k (1 - T / M)) / n. The
    paper's statement has L for L / M, k - 1 for k (1 - T / M), and leaves out the division of these sums by n.

    Parameters
    ----------
    value : float
        L, the close-k loss summed over the training set, with its M term.
    k : float
        The mass that ``close`` uses.
    samples : int
        n, the number of training examples.
    vc : int
        VC dimension of the class.
    delta : float
        The probability that the bound fails.
    threshold, constant : float
        T and M.

    Examples
    --------
    >>> bound = generalization_bound(4e4, 10, samples=100_000, vc=3, delta=0.05, threshold=1.0, constant=4.0)
    >>> round(bound, 4)
    0.1142
    """
    errors = training_errors_bound(value, k, threshold=threshold, constant=constant)
    return risk_bound(min(1.0, max(errors, 0.0) / samples), samples, vc, delta)

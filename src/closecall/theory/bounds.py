"""The paper's bounds, with the conditions and constants for which they hold.

The proofs are in docs/theory/mathematics.md, which also states where the paper is imprecise. L is the close-k loss with
its constant M (:func:`closecall.objective.aggregate_value`), E is the misclassified mass, and T = l(0). M is the same
for all models being compared, and is at least T and at least the largest loss that occurs. In the functions below,
``k`` is the mass that ``close`` uses, ``threshold`` is T, and ``constant`` is M.
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
    """Return bounds on L / M for a classifier with the given errors (the paper's lemma "bounded by 0-1 loss").

    The bounds are E - k (1 - T / M) <= L / M <= E + k T / M, which is tighter than the paper's E - k < L / M < E + k.
    ``errors`` (E) may be an array.

    Examples
    --------
    >>> close_value_bounds(3, 2, threshold=1.0, constant=4.0)
    (1.5, 3.5)
    """
    _check(k, threshold, constant)
    return errors - k * (1 - threshold / constant), errors + k * threshold / constant


def minimizer_errors_bound(optimum: float, k: float, *, whole: bool = True) -> float:
    """Return the largest mass that a minimiser of the close-k loss can misclassify (Lemma k and Lemma optimum).

    ``optimum`` is the smallest mass that any classifier in the class misclassifies. Without regularisation,
    E(minimiser) < E(optimum) + k. If all masses are whole numbers (``whole``), so is E, which gives the paper's bound
    E(optimum) + k - 1.

    Examples
    --------
    >>> minimizer_errors_bound(4, 1), minimizer_errors_bound(4, 2.5), minimizer_errors_bound(4.3, 2.5, whole=False)
    (4, 6, 6.8)
    """
    _check(k, 1.0, 1.0)
    return optimum + (math.ceil(k) - 1 if whole else k)


def training_errors_bound(value: Any, k: float, *, threshold: float, constant: float) -> Any:
    """Return the largest mass that a classifier with close-k loss L can misclassify in training, L / M + k (1 - T / M).

    ``value`` is L. The proof of the paper's generalisation theorem needs this bound; the paper's L + k - 1 is wrong.

    Examples
    --------
    >>> training_errors_bound(8.0, 2, threshold=1.0, constant=4.0)
    3.5
    """
    _check(k, threshold, constant)
    return value / constant + k * (1 - threshold / constant)


def log_growth(vc: int, samples: int) -> float:
    """Return the logarithm of sum(binomial(samples, i) for i = 0..vc), Sauer's bound on the growth function.

    Examples
    --------
    >>> round(float(np.exp(log_growth(2, 5)))), round(float(np.exp(log_growth(9, 5))))
    (16, 32)
    """
    if vc < 0 or samples < 1:
        raise ValueError(f"vc must be >= 0 and samples must be >= 1, not vc={vc!r} and samples={samples!r}")
    i = np.arange(min(vc, samples) + 1)
    return float(logsumexp(gammaln(samples + 1) - gammaln(i + 1) - gammaln(samples - i + 1)))


def risk_bound(training_risk: float, samples: int, vc: int, delta: float) -> float:
    """Return a risk bound that holds for all classifiers in a class at once, with probability at least 1 - delta.

    Vapnik and Chervonenkis's relative deviation inequality and Sauer's lemma give, with the training risk r,

        R <= r + 2 sqrt(r h) + 4 h,   h = (log sum(binomial(2n, i) for i = 0..vc) + log(4 / delta)) / n.

    This is Corollary 5.2 of Boucheron, Bousquet and Lugosi (2005) with its constants. The n examples are drawn
    independently, and each has mass 1. Linear classifiers on d features with an intercept have vc = d + 1.

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
    """Return a bound on the risk that holds with probability at least 1 - delta, given the close-k training loss.

    This is :func:`risk_bound` for the largest training risk that :func:`training_errors_bound` allows. ``value`` is L,
    summed over n = ``samples`` training examples, and ``vc`` is the VC dimension of the class.

    Examples
    --------
    >>> bound = generalization_bound(4e4, 10, samples=100_000, vc=3, delta=0.05, threshold=1.0, constant=4.0)
    >>> round(bound, 4)
    0.1142
    """
    errors = training_errors_bound(value, k, threshold=threshold, constant=constant)
    return risk_bound(min(1.0, max(errors, 0.0) / samples), samples, vc, delta)

"""Tests that compare the accuracies of methods on the splits of one data set, or their means across data sets.

The paper treats 25 overlapping random splits as if they were independent samples. The splits are not independent: they
share examples, and both methods use the same ones. See ``docs/statistics.md`` for the consequences.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy  # `scipy.stats` is loaded on first use: it takes half of a command's start-up time

from closecall._names import Array

#: Splits are 50/25/25. The validation part is used to choose hyperparameters, so it counts as training: 25 / 75.
TEST_OVER_TRAIN = 1 / 3
SIGNIFICANCE = 0.05
#: The smallest gain in accuracy that counts as a gain.
POINTS = 0.02
PairTest = Callable[[Array, Array], Array]


def corrected_test(first: Array, second: Array, *, test_over_train: float = TEST_OVER_TRAIN) -> Array:
    """Return the two-sided p-values of the corrected paired t-test (Nadeau & Bengio 2003).

    The arguments are the accuracies (..., splits) of two methods on the same splits. The variance factor is 1 / splits
    + test / train, where train includes the validation part; ``test_over_train=0`` gives the plain paired t-test. If
    the difference is the same on every split, it has no variance: p is then 1 for a difference of zero and 0 (the
    limit) for any other.

    Examples
    --------
    >>> round(float(corrected_test(np.array([0.9, 0.8, 0.85]), np.array([0.7, 0.75, 0.7]))), 3)
    0.166
    """
    first, second = check_pair(first, second)
    differences = first - second
    splits = differences.shape[-1]
    mean = differences.mean(axis=-1)
    constant = np.ptp(differences, axis=-1) == 0
    variance = (1 / splits + test_over_train) * differences.var(axis=-1, ddof=1)
    t = mean / np.sqrt(np.where(constant, 1, variance))
    return np.where(constant, np.where(mean == 0, 1.0, 0.0), 2 * scipy.stats.t.sf(np.abs(t), splits - 1))


def check_pair(first: Array, second: Array) -> tuple[Array, Array]:
    first, second = np.asarray(first, dtype=float), np.asarray(second, dtype=float)
    if first.shape != second.shape or first.ndim == 0:
        raise ValueError(f"scores must be on the same splits, but have shapes {first.shape} and {second.shape}")
    if first.shape[-1] < 2:
        raise ValueError(f"a test needs at least two splits, not {first.shape[-1]}")
    if np.isnan(first).any() or np.isnan(second).any():
        raise ValueError("the scores contain NaN; compare only data sets with complete splits")
    return first, second


def holm(p: Array) -> Array:
    """Return Holm's step-down adjusted p-values, to be compared with the significance level for the whole family.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.03])).round(2).tolist()
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p, dtype=float)
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1)
    return adjusted

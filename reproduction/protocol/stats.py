"""Tests and intervals that the reproduction needs in addition to those in the library."""

import math
import warnings

import numpy as np
import scipy  # `scipy.stats` is loaded on first use: it takes half of the start-up time of a command

from closecall._names import Array
from closecall.stats import POINTS, SIGNIFICANCE, TEST_OVER_TRAIN, PairTest, check_pair, corrected_test, holm

__all__ = ["POINTS", "SIGNIFICANCE", "TEST_OVER_TRAIN", "PairTest", "corrected_test", "holm"]


def paper_test(first: Array, second: Array) -> Array:
    """Return the p-values (...) of the paper's test for two arrays of accuracies (..., splits) on the same splits.

    The test is the two-sided independent t-test with equal variances; if there is no variance, p is 1.
    """
    first, second = check_pair(first, second)
    # The range detects constant scores: the computed variance of equal floats need not be zero.
    constant = (np.ptp(first, axis=-1) == 0) & (np.ptp(second, axis=-1) == 0)
    difference = first.mean(axis=-1) - second.mean(axis=-1)
    splits = first.shape[-1]
    variance = (first.var(axis=-1, ddof=1) + second.var(axis=-1, ddof=1)) / splits
    t = difference / np.sqrt(np.where(constant, 1, variance))
    return np.where(constant, 1.0, 2 * scipy.stats.t.sf(np.abs(t), 2 * splits - 2))


def wilcoxon(first: Array, second: Array) -> float:
    """Return the two-sided p-value of the Wilcoxon signed-rank test for mean scores (datasets,); 1 if all are equal.

    Zero differences are divided equally between the signs, and the normal approximation is used, as in Demsar (2006).
    """
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    if not differences.any():
        return 1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions of SciPy warn if there are few data sets
        return float(scipy.stats.wilcoxon(differences, zero_method="zsplit", method="approx").pvalue)


def average_ranks(scores: Array) -> Array:
    """Return the mean rank of each method from scores (datasets, methods); 1 is best, and tied ranks are averaged.

    Examples
    --------
    >>> average_ranks(np.array([[0.9, 0.8, 0.8], [0.7, 0.6, 0.9]])).tolist()
    [1.5, 2.75, 1.75]
    """
    return scipy.stats.rankdata(-np.asarray(scores, dtype=float), axis=1).mean(axis=0)


def critical_difference(methods: int, datasets: int, *, level: float = SIGNIFICANCE) -> float:
    """Return the critical difference for average ranks in the Nemenyi test.

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    q = float(scipy.stats.studentized_range.ppf(1 - level, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * datasets))


def rank_groups(ranks: Array, distance: float) -> list[tuple[int, ...]]:
    """Return the maximal groups of methods, best first, whose ranks differ by less than the critical difference.

    Examples
    --------
    >>> rank_groups(np.array([1.0, 3.0, 1.5, 2.2]), 1.3)
    [(0, 2, 3), (3, 1)]
    """
    order = np.argsort(ranks, kind="stable")
    groups: list[tuple[int, ...]] = []
    for start in range(len(order)):
        group = tuple(int(i) for i in order[start:] if ranks[i] - ranks[order[start]] < distance)
        if len(group) > 1 and not (groups and set(group) <= set(groups[-1])):
            groups.append(group)
    return groups


def fraction_interval(count: int, total: int) -> tuple[float, float]:
    """Return the exact (Clopper-Pearson) 95 % interval for a fraction of data sets; (0, 1) if there are none.

    Examples
    --------
    >>> low, high = fraction_interval(25, 93)
    >>> round(low, 3), round(high, 3)
    (0.182, 0.371)
    """
    if total == 0:
        return 0.0, 1.0
    interval = scipy.stats.binomtest(count, total).proportion_ci(confidence_level=0.95, method="exact")
    return float(interval.low), float(interval.high)


#: The bootstrap needs this many values; with fewer, its intervals are too narrow (84 % coverage with five).
MANY = 30


def mean_interval(values: Array) -> tuple[float, float, float]:
    """Return a mean over data sets and its 95 % interval (bootstrap if at least :data:`MANY` values, else Student's t).

    The seed is fixed, so the same numbers always give the same interval. The bounds are NaN for a single value.

    Examples
    --------
    >>> [round(number, 3) for number in mean_interval(np.array([1.0, 2.0, 3.0]))]
    [2.0, -0.484, 4.484]
    """
    values = np.asarray(values, dtype=float)
    mean = float(values.mean()) if len(values) else math.nan
    if len(values) < 2:
        return mean, math.nan, math.nan
    if np.ptp(values) == 0:
        return mean, mean, mean
    if len(values) < MANY:
        half = float(scipy.stats.t.ppf(0.975, len(values) - 1) * scipy.stats.sem(values))
        return mean, mean - half, mean + half
    drawn = np.random.default_rng(0).integers(0, len(values), (4999, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return mean, float(low), float(high)

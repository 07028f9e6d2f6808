"""Tests and intervals of the reproduction, beside those that the library has; NumPy and SciPy only."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import scipy  # `scipy.stats` is loaded when it is first asked: half of the time a command takes to start

from closecall._names import Array
from closecall.stats import POINTS, SIGNIFICANCE, TEST_OVER_TRAIN, PairTest, check_pair, corrected_test, holm

__all__ = ["POINTS", "SIGNIFICANCE", "TEST_OVER_TRAIN", "PairTest", "corrected_test", "holm"]


def paper_test(first: Array, second: Array) -> Array:
    """The paper's test: two-sided independent t-test with equal variances; zero variance means no difference.

    Parameters
    ----------
    first, second : array (..., splits)
        Accuracies on the same splits.

    Returns
    -------
    p : array (...)

    Examples
    --------
    >>> float(paper_test(np.array([0.9, 0.9, 0.9]), np.array([0.8, 0.8, 0.8])))
    1.0
    """
    first, second = check_pair(first, second)
    # Exactly constant scores are asked for by range: a variance of equal floats need not come out as zero.
    constant = (np.ptp(first, axis=-1) == 0) & (np.ptp(second, axis=-1) == 0)
    difference = first.mean(axis=-1) - second.mean(axis=-1)
    splits = first.shape[-1]
    variance = (first.var(axis=-1, ddof=1) + second.var(axis=-1, ddof=1)) / splits
    t = difference / np.sqrt(np.where(constant, 1, variance))
    return np.where(constant, 1.0, 2 * scipy.stats.t.sf(np.abs(t), 2 * splits - 2))


def wilcoxon(first: Array, second: Array) -> float:
    """Two-sided p of Wilcoxon's signed-rank test over data sets; zero differences are split, as Demsar (2006) does.

    Uses the normal approximation, as Demsar does. (Some versions of SciPy's test warn about few data sets.)

    Parameters
    ----------
    first, second : array (datasets,)
        Mean scores. No difference anywhere gives 1.

    Examples
    --------
    >>> wilcoxon(np.array([0.8, 0.9]), np.array([0.8, 0.9]))
    1.0
    """
    differences = np.asarray(first, dtype=float) - np.asarray(second, dtype=float)
    if not differences.any():
        return 1.0
    n, ranks = len(differences), scipy.stats.rankdata(np.abs(differences))
    above = float(ranks @ ((differences > 0) + (differences == 0) / 2))
    tied = np.unique(ranks, return_counts=True)[1]
    variance = n * (n + 1) * (2 * n + 1) / 24 - float((tied**3 - tied).sum()) / 48
    return float(2 * scipy.stats.norm.sf(abs(above - n * (n + 1) / 4) / math.sqrt(variance)))


def average_ranks(scores: Array) -> Array:
    """Mean rank of each method over the data sets; 1 is best, ties share.

    Parameters
    ----------
    scores : array (datasets, methods)

    Examples
    --------
    >>> average_ranks(np.array([[0.9, 0.8, 0.8], [0.7, 0.6, 0.9]])).tolist()
    [1.5, 2.75, 1.75]
    """
    return scipy.stats.rankdata(-np.asarray(scores, dtype=float), axis=1).mean(axis=0)


def friedman(scores: Array) -> tuple[float, float]:
    """Friedman's chi-square, corrected for ties, and the p of Iman & Davenport's F over (datasets, methods) scores.

    Scores that are all equal show no difference: 0 and 1.

    Examples
    --------
    >>> chi_square, p = friedman(np.array([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0], [3.0, 1.0, 2.0]]))
    >>> round(chi_square, 3), round(p, 3)
    (4.667, 0.049)
    """
    datasets, methods = np.shape(scores)
    ranks = average_ranks(scores)
    chi_square = 12 * datasets / (methods * (methods + 1)) * float((ranks**2).sum() - methods * (methods + 1) ** 2 / 4)
    tied = [np.unique(row, return_counts=True)[1] for row in np.asarray(scores)]
    spread = 1 - sum(float((t**3 - t).sum()) for t in tied) / (datasets * methods * (methods**2 - 1))
    if spread <= 0:
        return 0.0, 1.0
    chi_square /= spread  # tied ranks vary less than the formula assumes
    room = datasets * (methods - 1) - chi_square
    if room <= 0:  # every data set ranks the methods alike: F is infinite
        return chi_square, 0.0
    f = (datasets - 1) * chi_square / room
    return chi_square, float(scipy.stats.f.sf(f, methods - 1, (methods - 1) * (datasets - 1)))


def critical_difference(methods: int, datasets: int, *, level: float = SIGNIFICANCE) -> float:
    """Nemenyi's critical difference of average ranks.

    Examples
    --------
    >>> round(critical_difference(4, 14), 2)
    1.25
    """
    q = float(scipy.stats.studentized_range.ppf(1 - level, methods, np.inf)) / math.sqrt(2)
    return q * math.sqrt(methods * (methods + 1) / (6 * datasets))


def rank_groups(ranks: Array, distance: float) -> list[tuple[int, ...]]:
    """The maximal groups of methods, best first, whose ranks differ by less than the critical difference.

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


def fraction_interval(
    count: int, total: int, *, method: Literal["exact", "wilson"] = "exact", level: float = 0.95
) -> tuple[float, float]:
    """Interval for a fraction of data sets: Clopper & Pearson's (``exact``) or Wilson's; (0, 1) if there are none.

    Examples
    --------
    >>> low, high = fraction_interval(25, 93)
    >>> round(low, 3), round(high, 3)
    (0.182, 0.371)
    """
    if total == 0:
        return 0.0, 1.0
    interval = scipy.stats.binomtest(count, total).proportion_ci(confidence_level=level, method=method)
    return float(interval.low), float(interval.high)


#: Values from which the interval of a mean is a bootstrap's; of fewer its percentiles are too narrow (84 % of five).
MANY = 30


def mean_interval(values: Array) -> tuple[float, float, float]:
    """A mean over data sets and its 95 % interval: percentile bootstrap from :data:`MANY` on, below it Student's t.

    The generator is fixed, so the same numbers always give the same interval. One value has no interval: both ends are
    NaN.

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

"""Starts for nonconvex problems: the masses used along each path, the same in the folds and in the refit."""

from __future__ import annotations

import numpy as np

from .._names import Array, spread_out

#: Starts at least and at most, rows times starts, and starts times the work of a look: rows times squared columns, of
#: which a row counts as so many more. On 23 PMLB sets of 120 to 1,700 rows ten starts had no more training errors than
#: the best of twenty runs of Algorithm 1 in 91 % of 184 problems, four in 83 %, one in 67 %.
LEAST_STARTS, MOST_STARTS, ROWS_STARTED, WORK_STARTED, OVERHEAD = 2, 10, 10_000, 1e7, 10
#: An odd number by which the hashes of rows become the streams of the starts' random masses, and of the sample.
STREAM = 0xD1B54A32D192ED03
#: Which share of the rows the second start has, and what the others weigh.
INNER, TINY = 0.75, 1e-6


def starts_for(samples: int, size: int) -> int:
    """The default number of starts for rows (samples, size).

    Examples
    --------
    >>> starts_for(500, 7), starts_for(5000, 7), starts_for(4601, 58)
    (10, 2, 2)
    """
    least = min(ROWS_STARTED // samples, int(WORK_STARTED / (samples * (size + OVERHEAD) ** 2)))
    return int(np.clip(least, LEAST_STARTS, MOST_STARTS))


def start_masses(X: Array, mass: Array, words: Array, n_starts: int) -> Array:
    """The masses of each start (n_starts, samples).

    The first uses the given masses. The second leaves out the most extreme quarter of the rows: outliers tilt the
    average, and no descent recovers from that. The others are random with mean 1: in turn exponential, squared
    exponential, and restricted to one row in five. The more they deviate from 1, the further apart the paths end.

    Examples
    --------
    >>> found = start_masses(np.arange(10_000.0)[:, None], np.ones(10_000), np.arange(10_000, dtype=np.uint64), 5)
    >>> bool((found[0] == 1).all()), found[1, [0, 5000]].tolist(), np.round(found[2:].mean(axis=1), 1).tolist()
    (True, [1e-06, 1.0], [1.0, 1.0, 1.0])
    """
    factors = [np.ones(len(words))]
    if n_starts > 1:
        inside = mass > 0
        far = np.full(len(words), np.inf)
        far[inside] = outlyingness(X[inside])
        ranked = np.sort(far[inside])
        factors.append(np.where(far <= ranked[int(INNER * (len(ranked) - 1))], 1.0, TINY))
    kinds = (lambda u: -np.log1p(-u), lambda u: np.log1p(-u) ** 2 / 2, lambda u: np.where(u < 0.2, 5.0, TINY))
    for start in range(2, n_starts):
        uniform = spread_out(words + np.uint64(start * STREAM % (1 << 64)))
        factors.append(kinds[start % len(kinds)](uniform))
    return np.stack(factors) * mass


def outlyingness(X: Array) -> Array:
    """The largest robust deviation of each row over the columns (samples,).

    Examples
    --------
    >>> outlyingness(np.array([[0.0], [1.0], [2.0], [3.0], [50.0]])).tolist()
    [2.0, 1.0, 0.0, 1.0, 48.0]
    """
    far = np.abs(X - np.median(X, axis=0)).astype(np.float64)
    middle, whole = np.median(far, axis=0), far.mean(axis=0)
    unit = np.where(middle > 0, middle, np.where(whole > 0, whole, 1.0))  # most values of a column may be equal
    with np.errstate(over="ignore"):  # a column of one number and a spread of the smallest floats
        return np.asarray((far / unit).max(axis=1, initial=0.0))

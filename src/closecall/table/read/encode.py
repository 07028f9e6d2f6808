"""Encode columns as a matrix, as learnt from the training rows."""

from __future__ import annotations

import numpy as np

from closecall._names import Array


def moments(X: Array) -> tuple[Array, Array]:
    """Return the mean and scale (features,) that standardise X (samples, features); a constant column has scale 1.

    Examples
    --------
    >>> [part.tolist() for part in moments(np.array([[0.0, 5.0], [2.0, 5.0]]))]
    [[1.0, 5.0], [1.0, 1.0]]
    """
    top = np.abs(X).max(axis=0, initial=0)
    # Squares of such numbers would overflow or underflow, so the column is divided by a power of two of its size.
    extreme = (top > 1e100) | ((top < 1e-100) & (top > 0))
    if extreme.any():
        unit = np.where(extreme, np.exp2(np.floor(np.log2(np.where(extreme, top, 1)))), 1)
        mean, scale = moments(X / unit)
        return mean * unit, scale * unit
    mean, scale = X.mean(axis=0), X.std(axis=0)
    # The deviation of a constant column is rounding noise, not exactly zero.
    constant = scale <= 10 * np.finfo(float).eps * np.maximum(np.abs(mean), np.finfo(float).tiny)
    return mean, np.where(constant, 1, scale)


def learn(column: Array, nominal: bool, most: int | None = None) -> tuple[float, Array | None]:
    """Return the value for missing cells, and the ``most`` frequent codes (None for numbers).

    A missing number becomes the mean, a missing code the most frequent one; ties go to the first.

    Examples
    --------
    >>> fill, levels = learn(np.array([0.0, 2.0, 2.0, 1.0, 1.0, np.nan]), nominal=True, most=2)
    >>> fill, levels.tolist()
    (1.0, [1.0, 2.0])
    """
    known = column[~np.isnan(column)]
    if not nominal:
        return _mean(known), None
    levels, counts = np.unique(known, return_counts=True)
    ranked = np.argsort(-counts, kind="stable")
    return float(levels[ranked[0]]) if len(levels) else -1.0, np.sort(levels[ranked[:most]])


def _mean(known: Array) -> float:
    """Return the mean, even if the sum overflows; 0 if there are no numbers."""
    if not len(known):
        return 0.0
    return float(known.mean() if np.abs(known).max() < 1e100 else moments(known[:, None])[0][0])


def plan_of(column: Array, nominal: bool) -> tuple[float, Array | None]:
    """Return the value for missing cells, and the codes that get their own column (None for numbers).

    With two codes, a second column would only be the complement of the first.

    Examples
    --------
    >>> fill, levels = plan_of(np.array([0.0, 2.0, 2.0, np.nan]), nominal=True)
    >>> fill, levels.tolist()
    (2.0, [2.0])
    """
    fill, levels = learn(column, nominal)
    return fill, levels if levels is None or len(levels) > 2 else levels[1:]


def encoded(column: Array, fill: float, levels: Array | None) -> Array:
    """Return the columns (samples, width) that encode a column; a code without its own column is all zeros."""
    filled = np.where(np.isnan(column), fill, column)[:, None]
    return filled if levels is None else (filled == levels).astype(float)

"""Encode columns as a matrix, using values learnt from the training rows."""

from __future__ import annotations

import numpy as np

from closecall._names import Array


def moments(X: Array) -> tuple[Array, Array]:
    """Return the mean and scale (features,) that standardise X (samples, features); a constant column has scale 1."""
    top = np.abs(X).max(axis=0, initial=0)
    # Squares of such numbers would overflow or underflow, so the column is divided by a power of two of about its size.
    extreme = (top > 1e100) | ((top < 1e-100) & (top > 0))
    if extreme.any():
        unit = np.where(extreme, np.exp2(np.floor(np.log2(np.where(extreme, top, 1)))), 1)
        mean, scale = moments(X / unit)
        return mean * unit, scale * unit
    mean, scale = X.mean(axis=0), X.std(axis=0)
    # The deviation of a constant column is rounding noise, not exactly zero.
    constant = scale <= 10 * np.finfo(float).eps * np.maximum(np.abs(mean), np.finfo(float).tiny)
    return mean, np.where(constant, 1, scale)


def mean_of(known: Array) -> float:
    """Return the mean of numbers, even if their sum overflows; 0 if there are none."""
    if not len(known):
        return 0.0
    return float(known.mean() if np.abs(known).max() < 1e100 else moments(known[:, None])[0][0])


def encoded(column: Array, fill: float, levels: Array | None) -> Array:
    """Return the columns (samples, width) that encode a column; a code without its own column is all zeros."""
    filled = np.where(np.isnan(column), fill, column)[:, None]
    return filled if levels is None else (filled == levels).astype(float)

"""From columns to a matrix: what training rows say of the others."""

from __future__ import annotations

import numpy as np

from closecall._names import Array


def moments(X: Array) -> tuple[Array, Array]:
    """Mean and scale (features,) that turn X (samples, features) into mean 0 and variance 1; constant columns keep 1.

    Examples
    --------
    >>> [part.tolist() for part in moments(np.array([[0.0, 5.0], [2.0, 5.0]]))]
    [[1.0, 5.0], [1.0, 1.0]]
    """
    mean, scale = X.mean(axis=0), X.std(axis=0)
    # A constant column's deviation is rounding noise, not exactly zero: left alone, it becomes zero by its mean.
    constant = scale <= 10 * np.finfo(float).eps * np.maximum(np.abs(mean), np.finfo(float).tiny)
    return mean, np.where(constant, 1, scale)

"""Standardised columns, the coordinates of all paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._names import Array

BLOCK = 1 << 16  # the number of entries to process at a time, which stay in the cache as float64
ROUNDED = 1e-3  # the largest error of margins in single precision


def in_cache(rows: int, width: int) -> Iterator[slice]:
    """Return slices of rows with ``width`` entries that stay in the cache as float64."""
    step = max(1, BLOCK // max(1, width))
    return (slice(begin, begin + step) for begin in range(0, rows, step))


@dataclass(frozen=True)
class Standard:
    """The coordinates of standardised columns, with the intercept last; mean and scale are (features,)."""

    mean: Array
    scale: Array
    intercept: bool

    @property
    def size(self) -> int:
        return len(self.mean) + self.intercept

    def to_parameters(self, c: Array) -> tuple[Array, Array]:
        """Return the coefficients (..., features) and intercepts (...) for coordinates (..., coordinates)."""
        coef = c[..., : len(self.mean)] / self.scale
        return coef, (c[..., -1] if self.intercept else np.zeros(c.shape[:-1])) - (coef * self.mean).sum(axis=-1)

    def to_coordinates(self, coef: Array, intercept: Any) -> Array:
        """Return the coordinates for coefficients and intercepts (the inverse of :meth:`to_parameters`)."""
        last = np.asarray(intercept + (coef * self.mean).sum(axis=-1))[..., None]
        return np.concatenate([coef * self.scale, last], axis=-1) if self.intercept else coef * self.scale

    def penalty(self, alpha: float, penalize_intercept: bool) -> Array:
        """Return the penalties of the coordinates."""
        return np.append(alpha / self.scale**2, [alpha * penalize_intercept] * self.intercept)

    def scores(self, X: Array, c: Array) -> Array:
        """Return scores (rows,), in the single precision of X if that suffices within six scales of the mean."""
        coef, intercept = self.to_parameters(c)
        if X.dtype == np.float32 and np.finfo(np.float32).eps * float(
            np.abs(coef) @ (np.abs(self.mean) + 6.0 * self.scale)
        ) <= ROUNDED:  # fmt: skip
            return np.asarray(X @ coef.astype(np.float32) + np.float32(intercept))
        found = np.empty(len(X))
        for some in in_cache(*X.shape):
            np.matmul(X[some].astype(np.float64, copy=False), coef, out=found[some])
        return found + intercept

    def signed(self, X: Array, signs: Array, found: Array | None = None) -> Array:
        """Return rows ``-y * z`` (rows, coordinates), stored in ``found`` if it is given."""
        found = np.empty((len(X), self.size)) if found is None else found
        inner = found[:, : len(self.mean)]
        np.subtract(X, self.mean, out=inner)
        inner *= -signs[:, None] / self.scale
        found[:, len(self.mean) :] = -signs[:, None]
        return found


def standards(X: Array, mass: Array, fit_intercept: bool, penalize_intercept: bool) -> tuple[Standard, Array]:
    """Return the mass-weighted means and scales of the columns of X in float64, and which columns are constant.

    Means are subtracted only if there is a free intercept.

    Examples
    --------
    >>> standards(np.array([[1.0, 5.0], [3.0, 5.0]]), np.ones(2), True, False)
    (Standard(mean=array([2., 5.]), scale=array([1., 1.]), intercept=True), array([False,  True]))
    """
    # These are plain sums, not products, because every BLAS adds in its own order, and plain sums are always the same.
    share = (mass / mass.sum())[:, None]
    mean = (share * X).sum(axis=0) if fit_intercept and not penalize_intercept else np.zeros(X.shape[1])
    scale = np.sqrt((share * np.square(X - mean)).sum(axis=0))
    # Deviations as small as this are rounding errors, and values below 1e-100 lose their digits when squared.
    constant = scale <= np.maximum(1e-14 * np.abs(X).max(axis=0), 1e-100)
    return Standard(mean, np.where(constant, 1.0, scale), fit_intercept), constant

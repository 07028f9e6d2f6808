"""Dense rows as paths look at them: in the coordinates of standardised columns, the same on every processor."""

from __future__ import annotations

import numpy as np

from .._names import Array

LANES = 8  # the kernel's rows come in multiples of it
#: Deviations up to this share of a column's largest value are rounding; squares of values this small have no digits.
ROUNDING, SMALLEST = 1e-14, 1e-100


class DenseRows:
    """Dense rows in the coordinates of standardised columns, the intercept last. Constant columns are zero.

    Parameters
    ----------
    X : array (samples, features)
    y : array (samples,) in {-1, +1}
    mass : array (samples,)
        What means and deviations are weighted by.
    fit_intercept, penalize_intercept : bool

    Examples
    --------
    >>> rows = DenseRows(np.array([[0.0], [4.0]]), np.array([-1.0, 1.0]), np.ones(2), True, False)
    >>> rows.across[:, :2].tolist()
    [[-1.0, -1.0], [1.0, -1.0]]
    """

    def __init__(self, X: Array, y: Array, mass: Array, fit_intercept: bool, penalize_intercept: bool) -> None:
        samples, features = X.shape
        X = X.astype(np.float64)
        # Plain sums, not products: BLAS adds in an order of each processor's own, and these are the same everywhere.
        share, sizes = (mass / mass.sum())[:, None], np.abs(X).max(axis=0)
        self.mean = (share * X).sum(axis=0) if fit_intercept and not penalize_intercept else np.zeros(features)
        X -= self.mean
        scale = np.sqrt((share * np.square(X)).sum(axis=0))
        constant = scale <= np.maximum(ROUNDING * sizes, SMALLEST)
        X[:, constant], self.scale = 0.0, np.where(constant, 1.0, scale)
        self.intercept, self.samples = fit_intercept, samples
        #: Minus signed rows (coordinates, rows), which are filled up to the kernel's lanes: minus margins are products.
        self.across = np.zeros((features + fit_intercept, samples + -samples % LANES))
        self.across[:features, :samples] = -(y[:, None] * X / self.scale).T
        self.across[features:, :samples] = -y
        #: What alpha is multiplied by for each coordinate.
        self.penalized = np.append(1 / self.scale**2, [float(penalize_intercept)] * fit_intercept)

    def to_parameters(self, c: Array) -> tuple[Array, Array]:
        """Coefficients (..., features) and intercepts (...) of coordinates (..., coordinates)."""
        coef = c[..., : len(self.mean)] / self.scale
        return coef, (c[..., -1] if self.intercept else np.zeros(c.shape[:-1])) - (coef * self.mean).sum(axis=-1)

    def to_coordinates(self, coef: Array, intercept: Array) -> Array:
        """The inverse of :meth:`to_parameters`."""
        inner = coef * self.scale
        return (
            np.concatenate([inner, (intercept + (coef * self.mean).sum(axis=-1))[..., None]], axis=-1)
            if self.intercept
            else inner
        )

    def filled(self, masses: Array) -> Array:
        """Masses (..., samples) with rows of no mass at the end."""
        found = np.zeros((len(masses), self.across.shape[1]))
        found[:, : self.samples] = masses
        return found

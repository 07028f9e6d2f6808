"""Rows for paths, with standardised coordinates, losses with rounded kinks, and the tangents for certificates."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import take_smallest
from ..losses import get_loss
from .certificate import balance
from .cuts import LookSums, LossWindow, Rounded, Sums
from .design import row_blocks

BLOCK = 1 << 16  # the number of entries to process at a time, which stay in the cache as float64
ROUNDED = 1e-3  # the largest error of margins in single precision


def in_cache(rows: int, width: int) -> list[slice]:
    """Return at least one slice of rows with ``width`` entries each; in float64, every slice fits in the cache."""
    return row_blocks((max(rows, 1), width), BLOCK)


@dataclass(frozen=True)
class Standard:
    """The coordinates of standardised columns, with the intercept last; mean and scale have shape (features,)."""

    mean: Array
    scale: Array
    intercept: bool

    @property
    def size(self) -> int:
        return len(self.mean) + self.intercept

    def to_parameters(self, c: Array) -> tuple[Array, Array]:
        """Convert coordinates (..., coordinates) to coefficients (..., features) and intercepts (...)."""
        coef = c[..., : len(self.mean)] / self.scale
        return coef, (c[..., -1] if self.intercept else np.zeros(c.shape[:-1])) - (coef * self.mean).sum(axis=-1)

    def to_coordinates(self, coef: Array, intercept: Any) -> Array:
        """Convert coefficients and intercepts to coordinates (the inverse of :meth:`to_parameters`)."""
        last = np.asarray(intercept + (coef * self.mean).sum(axis=-1))[..., None]
        return np.concatenate([coef * self.scale, last], axis=-1) if self.intercept else coef * self.scale

    def penalty(self, alpha: float, penalize_intercept: bool) -> Array:
        """Return the penalties of the coordinates."""
        return np.append(alpha / self.scale**2, [alpha * penalize_intercept] * self.intercept)

    def scores(self, X: Array, c: Array) -> Array:
        """Return scores (rows,), in float32 if X is and if that is precise enough within six scales of the mean."""
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
    """
    # These are plain sums, not products, because every BLAS adds in its own order, and plain sums are always the same.
    share = (mass / mass.sum())[:, None]
    mean = (share * X).sum(axis=0) if fit_intercept and not penalize_intercept else np.zeros(X.shape[1])
    scale = np.sqrt((share * np.square(X - mean)).sum(axis=0))
    # Deviations as small as this are rounding errors, and values below 1e-100 lose their digits when squared.
    constant = scale <= np.maximum(1e-14 * np.abs(X).max(axis=0), 1e-100)
    return Standard(mean, np.where(constant, 1.0, scale), fit_intercept), constant


class DenseRows:
    """Dense rows X (samples, features) with labels y in {-1, +1}, in standardised coordinates.

    Constant columns are set to zero. Means and standard deviations are weighted by mass (samples,).
    """

    def __init__(self, X: Array, y: Array, mass: Array, fit_intercept: bool, penalize_intercept: bool) -> None:
        self.samples, features = X.shape
        X = X.astype(np.float64)
        standard, constant = standards(X, mass, fit_intercept, penalize_intercept)
        X -= standard.mean
        X[:, constant] = 0.0
        self.to_parameters, self.to_coordinates = standard.to_parameters, standard.to_coordinates
        #: The negated signed rows (coordinates, rows), which give negated margins. Zeros fill the kernel's eight lanes.
        self.across = np.zeros((features + fit_intercept, self.samples + -self.samples % 8))
        self.across[:features, : self.samples] = -(y[:, None] * X / standard.scale).T
        self.across[features:, : self.samples] = -y
        #: The factors of alpha in the penalties of the coordinates.
        self.penalized = standard.penalty(1.0, penalize_intercept)

    def margins(self, loss: str, mass: Array) -> Margins:
        """Return these rows with a loss and masses (samples,)."""
        return Margins(self.across[:, : self.samples], loss, mass)


@dataclass(frozen=True)
class TangentSums(Sums):
    """Sums of tangents to weighted losses, separately for the labels -1 and +1.

    ``value`` and ``held`` are the sums of the weighted losses and of the weights. ``heights`` (3,) are the sums of the
    tangents at margin 0; the last one is for tangents of slope 0. ``pulls`` (2,) are the sums of the negated slopes,
    and ``across`` (2, coordinates) contains the sums of the negated slopes times the rows. ``bend`` (coordinates,
    coordinates) is the curvature of the losses with fixed weights.
    """

    value: float
    held: float
    heights: Array
    pulls: Array
    across: Array
    bend: Array

    def bound(self, penalty: Array, factor: float = 1.0) -> float:
        """Return a lower bound (at least 0) on the objective for these weights, multiplied by a factor."""
        factors = np.full(2, factor)
        if penalty[-1] == 0:  # a free intercept
            factors = factor * balance(self.pulls[None] * [-1, 1])[0]
        penalized = penalty > 0
        pulled = (factors @ self.across)[penalized]
        found = float(
            factors @ self.heights[:2] + factor * self.heights[2] - (pulled**2 / 2) @ (1 / penalty[penalized])
        )
        return max(found, 0.0) if np.isfinite(found) else 0.0


class LossRows(ABC):
    """Rows with losses and masses for stages and certificates; subclasses compute the losses."""

    mass: Array

    @abstractmethod
    def see(self, c: Array, width: float) -> Any:
        """Return a view of the losses (samples,) and their derivatives at c, with kinks rounded over a width."""

    def exact_view(self, c: Array, width: float) -> Any:
        """Return the result of ``see``, computed identically on all processors if the subclass supports this."""
        return self.see(c, width)

    @abstractmethod
    def plain_losses(self, c: Array) -> Array:
        """Return the losses (samples,) without rounding the kinks."""

    @abstractmethod
    def pull(self, view: Any, weights: Array) -> Array:
        """Return the sum of the weighted losses' gradients (coordinates,)."""

    @abstractmethod
    def bend(self, view: Any, held: Array, turned: Array, sizes: Array) -> tuple[Array, Array]:
        """Return two results: the sizes that scale the damping, and the curvature.

        The losses are weighted by ``held`` and the squared slopes by ``turned``.
        """

    @abstractmethod
    def tangents(self, view: Any, weights: Array, penalty: Array) -> float:
        """Return a lower bound on the objective with fixed weights (samples,)."""

    def look(self, c: Array, window: LossWindow, width: float) -> LookSums:
        """Return the sums that a stage needs."""
        view = self.see(c, width)
        share, charge, rising, falling = window.parts(view.losses)
        held, edges, turned = self.mass * share, self.mass * (rising + falling), self.mass * (rising - falling)
        by_cut = edges * (1 + window.spread * (0.5 - share))
        sizes, hessian = self.bend(view, held, turned, edges)
        return LookSums(
            float(self.mass @ charge), float(held.sum()), float(self.mass @ view.wrong), self.pull(view, held), sizes,
            hessian, float(by_cut.sum()), self.pull(view, by_cut), self.pull(view, turned),
        )  # fmt: skip

    def largest(self, c: Array, k: float) -> float:
        """Return the sum of the largest losses, whose total mass is k."""
        losses = self.plain_losses(c)
        return float(take_smallest(-losses[None], self.mass, k)[0] @ losses)

    def bound(
        self, c: Array, window: LossWindow, width: float, most: float, penalty: Array
    ) -> tuple[float, float, float]:
        """Return the sum of the weighted losses, the sum of weights (at most ``most``), and the tangent bound."""
        view = self.exact_view(c, width)
        weights = self.mass * window.parts(view.losses)[0]
        weights *= min(1.0, most / max(float(weights.sum()), 1e-300))
        losses = float((weights * self.plain_losses(c)).sum())
        return losses, float(weights.sum()), self.tangents(view, weights, penalty)


@dataclass(frozen=True)
class View:
    """Losses (samples,) with rounded kinks, a mask of the misclassified examples, and values for the methods below."""

    losses: Array
    wrong: Array
    pulls: Array
    bends: Array
    margins: Array
    points: Array


class Margins(LossRows):
    """Rows ``across`` (coordinates, samples), as in :class:`DenseRows`, with a loss and masses (samples,)."""

    def __init__(self, across: Array, loss: str, mass: Array) -> None:
        self.across, self.loss, self.mass = across, get_loss(loss), mass
        self.threshold, self.rounded = self.loss.threshold, Rounded(self.loss)

    def see(self, c: Array, width: float) -> View:
        return self._view(-(c @ self.across), width)

    def exact_view(self, c: Array, width: float) -> View:
        return self._view(self.exact_margins(c), width)

    def _view(self, margins: Array, width: float) -> View:
        pulls, points = self.rounded.pulls(margins, width)
        bends = self.rounded.bend(margins, width) if self.loss.bend is None else self.loss.bend(-pulls)
        return View(self.rounded.value(margins, width), margins <= 0, pulls, bends, margins, points)

    def pull(self, view: View, weights: Array) -> Array:
        return np.asarray(self.across @ (weights * view.pulls))

    def bend(self, view: View, held: Array, turned: Array, sizes: Array) -> tuple[Array, Array]:
        square = view.pulls**2
        large = np.square(self.across) @ (held * (view.bends + view.pulls) + sizes * square)
        return large, (self.across * (held * view.bends + turned * square)) @ self.across.T

    def tangents(self, view: View, weights: Array, penalty: Array) -> float:
        return self.tangent_sums(view, weights).bound(penalty)

    def tangent_sums(self, view: View, weights: Array, second: bool = False) -> TangentSums:
        """Return the sums of the tangents to the weighted losses, with their curvature only if ``second``."""
        used = np.flatnonzero(weights)
        across, weights, pulls, points = self.across[:, used], weights[used], view.pulls[used], view.points[used]
        heights, pulls = weights * (self.loss.value(points) + pulls * points), weights * pulls
        ahead, level = across[-1] < 0, pulls == 0  # labels +1, if the last coordinate is an intercept
        sides = np.stack([~ahead & ~level, ahead & ~level, level]).astype(np.float64)
        scaled = across * np.sqrt(weights * view.bends[used]) if second else np.zeros((1, 1))
        return TangentSums(
            float(weights @ self.loss.value(view.margins[used])), float(weights.sum()), sides @ heights,
            sides[:2] @ pulls, (sides[:2] * pulls) @ across.T, scaled @ scaled.T,
        )  # fmt: skip

    def plain_losses(self, c: Array) -> Array:
        return self.loss.value(self.exact_margins(c))

    def exact_margins(self, c: Array) -> Array:
        """Return margins that are identical on all processors, because they determine the width of ramps."""
        return -(c[:, None] * self.across).sum(axis=0)

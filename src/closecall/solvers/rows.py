"""Dense rows for paths: in the coordinates of standardised columns, identical on every processor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..aggregates import take_smallest
from ..losses import Loss, get_loss
from .certificate import balance
from .cuts import LookSums, LossWindow, add_up

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
        The weights for means and deviations.
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

    def margins(self, loss: str, mass: Array) -> Margins:
        """These rows with a loss and masses (samples,)."""
        return Margins(self.across[:, : self.samples], loss, mass)

    def filled(self, masses: Array) -> Array:
        """Masses (..., samples) with rows of no mass at the end."""
        found = np.zeros((len(masses), self.across.shape[1]))
        found[:, : self.samples] = masses
        return found


class Rounded:
    """A loss whose kinks are rounded over a width by a parabola, with slopes between the two at the kink.

    Examples
    --------
    >>> hinge = Rounded(get_loss("hinge"))
    >>> hinge.value(np.array([1.0, 2.0]), 1.0).tolist(), hinge.pulls(np.array([1.0, 0.0]), 1.0)[0].tolist()
    ([0.125, 0.0], [0.5, 1.0])
    """

    def __init__(self, loss: Loss) -> None:
        self.loss = loss
        sides = [-loss.slope(np.array([kink - 1e-9, kink + 1e-9])) for kink in loss.kinks]
        self.kinks = [(kink, *side.tolist()) for kink, side in zip(loss.kinks, sides, strict=True)]

    def value(self, margins: Array, width: float) -> Array:
        losses = self.loss.value(margins)
        for kink, before, after in self.kinks:
            near = np.abs(margins - kink) < width / 2
            losses[near] += (before - after) / (2 * width) * (width / 2 - np.abs(margins[near] - kink)) ** 2
        return losses

    def pulls(self, margins: Array, width: float) -> tuple[Array, Array]:
        """Minus the slopes, and where their tangents touch: at a nearby kink, otherwise at the margins."""
        pulls, points = -self.loss.slope(margins), margins.copy()
        for kink, before, after in self.kinks:
            near = np.abs(margins - kink) < width / 2
            pulls = np.where(near, after + (before - after) * (0.5 - (margins - kink) / width), pulls)
            points[near] = kink
        return pulls, points

    def bend(self, margins: Array, width: float) -> Array:
        """The second derivative, at least 0."""
        near = min(1e-4, width / 4)
        bend = (self.loss.slope(margins + near) - self.loss.slope(margins - near)) / (2 * near)
        for kink, before, after in self.kinks:
            bend = np.where(np.abs(margins - kink) < width / 2, (before - after) / width, bend)
        return np.maximum(bend, 0.0)


@dataclass(frozen=True)
class View:
    """Losses (samples,) with rounded kinks, which examples are wrong, and the values for the methods below."""

    losses: Array
    wrong: Array
    pulls: Array
    bends: Array
    margins: Array
    width: float


class Margins:
    """Rows with a loss and masses, as used by a stage and its certificate.

    Parameters
    ----------
    across : array (coordinates, samples)
        Minus signed rows, as in :class:`DenseRows`.
    loss : str
    mass : array (samples,)
    """

    def __init__(self, across: Array, loss: str, mass: Array) -> None:
        self.across, self.loss, self.mass = across, get_loss(loss), mass
        self.threshold, self.rounded = self.loss.threshold, Rounded(self.loss)

    def see(self, c: Array, width: float) -> View:
        """The losses at coordinates c."""
        return self._view(-(c @ self.across), width)

    def _view(self, margins: Array, width: float) -> View:
        pulls = self.rounded.pulls(margins, width)[0]
        bends = self.rounded.bend(margins, width) if self.loss.bend is None else self.loss.bend(-pulls)
        return View(self.rounded.value(margins, width), margins <= 0, pulls, bends, margins, width)

    def pull(self, view: View, weights: Array) -> Array:
        """The sum of the weighted losses' gradients, (coordinates,)."""
        return np.asarray(self.across @ (weights * view.pulls))

    def bend(self, view: View, held: Array, turned: Array, sizes: Array) -> tuple[Array, Array]:
        """The sizes for damping, and the curvature with fixed weights and with ``turned`` squares."""
        square = view.pulls**2
        large = np.square(self.across) @ (held * (view.bends + view.pulls) + sizes * square)
        return large, (self.across * (held * view.bends + turned * square)) @ self.across.T

    def look(self, c: Array, window: LossWindow, width: float) -> LookSums:
        """Compute the sums that a stage needs."""
        return add_up(self, self.see(c, width), window, self.mass)

    def largest(self, c: Array, k: float) -> float:
        """The sum of the largest losses of the mass k."""
        losses = self.plain_losses(c)
        return float(take_smallest(-losses[None], self.mass, k)[0] @ losses)

    def bound(
        self, c: Array, window: LossWindow, width: float, most: float, penalty: Array
    ) -> tuple[float, float, float]:
        """Weighted losses, the mass they weigh, and a lower bound of the objective for such weights: by tangents.

        Weights are scaled down to ``most`` in all. See :mod:`closecall.solvers.certificate`.
        """
        view = self._view(self._margins(c), width)
        weights = self.mass * window.parts(view.losses)[0]
        weights *= min(1.0, most / max(float(weights.sum()), 1e-300))
        losses = float((weights * self.loss.value(view.margins)).sum())
        return losses, float(weights.sum()), self.tangents(view, weights, penalty)

    def tangents(self, view: View, weights: Array, penalty: Array) -> float:
        """A lower bound of the objective for held weights (samples,)."""
        used = np.flatnonzero(weights)
        held, (pulls, points) = weights[used], self.rounded.pulls(view.margins[used], view.width)
        heights = held * (self.loss.value(points) + pulls * points)
        return lower_bound(heights, held * pulls, self.across[:, used], penalty)

    def plain_losses(self, c: Array) -> Array:
        """Losses (samples,) without any rounding."""
        return self.loss.value(self._margins(c))

    def _margins(self, c: Array) -> Array:
        """Margins by plain sums, identical on every processor, because they determine how narrow the ramps become."""
        return -(c[:, None] * self.across).sum(axis=0)


def lower_bound(heights: Array, pulls: Array, across: Array, penalty: Array) -> float:
    """A lower bound for all coordinates, by tangents with heights and minus slopes (samples,) at margin 0; at least 0.

    If the last coordinate has no penalty, its pulls must sum to zero, so the heavier side is scaled down.
    """
    if penalty[-1] == 0:
        factors = np.where(pulls != 0, balance((pulls * across[-1])[None])[0], 1.0)
        heights, pulls = heights * factors, pulls * factors
    penalized = penalty > 0
    pulled = across[penalized] @ pulls
    found = float(heights.sum() - (pulled**2 / 2) @ (1 / penalty[penalized]))
    return max(found, 0.0) if np.isfinite(found) else 0.0

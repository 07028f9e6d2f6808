"""Settling: from where the steps ended to a point that holds its certificate.

Where several examples compete for a place, no single selection makes the gradient vanish and plain steps alternate.
The gradient is zero for the right *shares*: weights that the competing examples could have if their losses were changed
a little (Goldstein's subdifferential). They are found by a soft selection (:mod:`closecall.solvers.soft`), for which a
point where the gradient is zero exists at every width (Brouwer). Newton's steps find it for a wide ramp; then the ramp
is narrowed. When it narrows, the shares are what stays and the losses move together: the step that predicts this keeps
the old ramp's examples and their shares. For `atk` and `maximal` the steps are Newton's on a convex function. For the
others nothing is certain: a path may end at a fold, and the next one begins at another width.

At the last width no loss is changed by more than ``tol`` of what the objective, there and not at the start, is for each
unit of the mass that is weighed: all together they change it by at most ``tol`` of itself.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from .._names import Array
from .soft import SoftSpot, Surface, solve_or_nan

#: Widths at which a path begins, in shares of the mean loss, in this order: where one path ends, another goes on. Kinks
#: are rounded over the width as well, and want wide ones. Of 400 fits on 26 PMLB sets two settled on a later path.
STARTS, KINKED_STARTS = (0.1, 0.03, 0.3, 0.01), (0.1, 1.0, 0.3, 0.03)
#: Of many examples a narrow ramp holds enough, and a wide one so many that its steps are slow.
MANY, NARROW_STARTS = 10_000, (0.01, 0.003, 0.03, 0.1)
#: What a ramp is narrowed to; the square root of it, and so on, where that is too far.
NARROWING, NEAREST = 0.2, 0.6
#: A close aggregate does not settle where it misclassifies this share of the mass more than at the start, no other
#: where its objective is this share higher.
WORSE = 0.01
#: Newton steps at the first width of a path and at the others; those of a convex objective cannot go astray.
FIRST, NEXT, CONVEX = 13, 8, 40
#: A path goes nowhere if so many steps have not brought the decrement, as a share of the objective, to this share of
#: the first; after so many such paths there is no other. Of many examples, whose steps are dear, half of both.
LOOK, FALLEN, NOWHERE = 8, 0.5, 2
#: How a step is shortened, how often, and by what share of the margins' size (or of 1) it moves them at most.
SHORTER, TRIALS, FARTHEST = 0.4, 4, 1.0
NEARBY = 3  # steps towards the optimum for held weights, whose tangents bound best
SMALLEST = 1e-6  # a mean loss below it counts as it
BELOW = 0.9  # of the last width, which is smaller where the objective is


def _factor(matrix: Array) -> Array:
    """Cholesky's factor; LAPACK's own call, because that of scipy.linalg costs more than a small matrix does."""
    factor, failed = dpotrf(matrix, lower=1)
    return factor if failed == 0 else np.full_like(matrix, np.nan)


def _apply(factor: Array, right: Array) -> Array:
    return np.asarray(dpotrs(factor, right, lower=1)[0])


class Settling:
    """Paths of one problem from one start, with an allowance of steps.

    Parameters
    ----------
    surface : Surface
    start : array (coordinates,)
    steps : int
        Newton steps allowed in all.
    tol : float
    """

    def __init__(self, surface: Surface, start: Array, steps: int, tol: float) -> None:
        self.surface, self.start, self.left, self.tol = surface, start, steps, tol
        self.allowed = steps
        spot = SoftSpot(surface, start, 1e-9)
        mean = spot.value / max(float(spot.weights.sum()), 1e-300)
        self.most = self._errors(spot) + WORSE * surface.choice.total
        self.highest = (1 + WORSE) * spot.value if surface.choice.threshold is None else np.inf
        self.unit = 2 * max(mean, SMALLEST)  # a ramp changes losses by half its width
        few = len(surface.choice.mass) < MANY
        self.look, self.hopes = (LOOK, NOWHERE) if few else (LOOK // 2, NOWHERE // 2)

    @property
    def used(self) -> int:
        """Steps taken so far."""
        return self.allowed - self.left

    def run(self) -> SoftSpot | None:
        """A certified spot, or None."""
        spot = SoftSpot(self.surface, self.start, self.tol * self.unit)
        if self._certified(spot):
            return spot
        if self.surface.choice.plain is not None:
            found = self._stage(self.start, self.tol * self.unit, CONVEX, None)
            return found if found is not None and found.gap <= self.tol else None
        for width in _starts(self.surface):
            if self.left <= 0 or not self.hopes:
                return None
            found = self._path(width * self.unit)
            if found is not None:
                return found
        return None

    def _path(self, width: float) -> SoftSpot | None:
        convex = self.surface.choice.convex
        spot = self._stage(self.start, width, CONVEX if convex else FIRST, None)
        narrowing = NARROWING
        while spot is not None and spot.width > self._last(spot) and self.left > 0:
            width, last = spot.width, BELOW * self._last(spot)
            following = self._stage(spot.c, max(width * narrowing, last), CONVEX if convex else NEXT, spot)
            if following is None:
                narrowing = np.sqrt(narrowing)
                if narrowing > NEAREST:
                    return None
                spot = SoftSpot(self.surface, spot.c, width)  # the prediction changed its weights
            else:
                spot, narrowing = following, max(narrowing**2, NARROWING)
                if convex and self._certified(spot):  # a bound is one, however wide the ramp that found it
                    return spot
        return spot if spot is not None and spot.width <= self._last(spot) else None

    def _last(self, spot: SoftSpot) -> float:
        """How wide a ramp may be at the end, if it ends here."""
        return 2 * self.tol * max(spot.value / max(float(spot.weights.sum()), 1e-300), SMALLEST)

    def _stage(self, c: Array, width: float, steps: int, before: SoftSpot | None) -> SoftSpot | None:
        """A zero of the gradient at one width, near c; None if it was not found."""
        spot = SoftSpot(self.surface, c, width)
        if before is not None:
            guess, held = before.narrowed(width)
            self.left -= 1
            if np.isfinite(guess).all():
                ahead, factor = SoftSpot(self.surface, guess, width), _factor(held)
                if self._length(factor, ahead) < self._length(factor, spot):
                    spot = ahead
        enough, fallen = np.inf, self.surface.choice.convex or before is not None
        for number in range(steps):
            held, whole = spot.matrices()
            factor = _factor(held)
            decrement = self._length(factor, spot)
            if self._found(spot, decrement, factor):
                return spot
            enough = FALLEN * decrement / max(spot.value, 1e-300) if number == 0 else enough
            fallen = fallen or decrement <= enough * spot.value
            if number == self.look and not fallen:
                self.hopes -= 1
                return None
            if self.left <= 0:
                return None
            self.left -= 1
            following = self._step(spot, factor, whole, decrement)
            if following is None:
                return None
            spot = following
        return None

    def _found(self, spot: SoftSpot, decrement: float, factor: Array) -> bool:
        if decrement > 0.25 * self.tol * spot.value:
            return False
        return spot.width > self._last(spot) or self._certified(spot, factor)

    def _certified(self, spot: SoftSpot, factor: Array | None = None) -> bool:
        """Whether the spot holds its certificate, by tangents at its own margins or, where the loss is convex, nearby.

        The tangents of the optimum for the held weights give the best bound; a few steps with the factor of the
        curvature lead there.
        """
        if self._errors(spot) > self.most or spot.value > self.highest:
            return False
        surface, c, touch = self.surface, spot.c, spot.view
        spot.gap = min(spot.gap, surface.gap(spot.c, spot.view, spot.weights, touch))
        for _ in range(NEARBY if surface.loss.convex else 0):
            if factor is None or spot.gap <= self.tol:
                break
            gradient = surface.pull(touch, spot.used, spot.weights[spot.used]) + surface.penalty * c
            c = c - _apply(factor, gradient)
            touch = surface.see(c, spot.width)
            spot.gap = min(spot.gap, surface.gap(spot.c, spot.view, spot.weights, touch))
        return spot.gap <= self.tol

    def _errors(self, spot: SoftSpot) -> float:
        """What is on the wrong side, which a close aggregate's constant M charges; at w = 0, where all tie, all is."""
        threshold = self.surface.choice.threshold
        return 0.0 if threshold is None else float(self.surface.choice.mass[spot.view.losses >= threshold].sum())

    def _length(self, factor: Array, spot: SoftSpot) -> float:
        """Half the squared gradient in the metric of the curvature: Newton's decrement."""
        return 0.5 * float(spot.gradient @ _apply(factor, spot.gradient))

    def _step(self, spot: SoftSpot, factor: Array, whole: Array, decrement: float) -> SoftSpot | None:
        """Newton's step, shortened until the smoothed objective falls; without one, to the best of a few gradients."""
        step = -solve_or_nan(whole, spot.gradient)
        if not np.isfinite(step).all():
            return None
        far = FARTHEST * max(np.sqrt(self.surface.spread @ spot.c**2), 1.0)
        t = min(1.0, far / max(np.sqrt(self.surface.spread @ step**2), 1e-300))
        if self.surface.choice.convex:
            return self._descended(spot, step, t)
        return self._shortened(spot, step, t, factor, decrement)

    def _descended(self, spot: SoftSpot, step: Array, t: float) -> SoftSpot | None:
        fall = float(spot.gradient @ step)
        for _ in range(5 * TRIALS):
            there = SoftSpot(self.surface, spot.c + t * step, spot.width)
            if there.smooth <= spot.smooth + 1e-4 * t * fall:
                return there
            t *= SHORTER
        return None

    def _shortened(self, spot: SoftSpot, step: Array, t: float, factor: Array, decrement: float) -> SoftSpot | None:
        best, least = None, np.inf
        for _ in range(TRIALS):
            there = SoftSpot(self.surface, spot.c + t * step, spot.width)
            length = self._length(factor, there)
            if length < least:
                best, least = there, length
            if least <= 0.9 * decrement:
                break
            t *= SHORTER
        return best


def _starts(surface: Surface) -> tuple[float, ...]:
    """The widths at which paths of a problem begin."""
    many = len(surface.choice.mass) >= MANY
    found = NARROW_STARTS if many else KINKED_STARTS if surface.loss.kinks else STARTS
    return found[: surface.choice.paths]

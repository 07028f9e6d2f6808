"""One stage of a path, and one path of stages, in NumPy: the slow twin of `stages.h`, for any loss."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from .._names import Array
from ..losses import Loss
from .finish import Rounded

#: Which share of the mass the first cut holds, what a cut is multiplied by from stage to stage, and the width of a ramp
#: as a share of its cut. Of ramps of 0.1 to 1.5 and factors of 0.5 to 0.8 on 16 PMLB sets none was more accurate; these
#: need the fewest looks.
BEGIN, FACTOR, RAMP = 0.95, 0.5, 1.5
GENTLE = 0.8  # what a cut is multiplied by where it is placed anew for a narrower ramp
#: How near to k the mass inside a cut has to be while starts compete, and where it ends, as a share of k.
ROUGHLY, NEAR = 0.25, 0.02
#: How exactly a stage is solved then, by Newton's decrement as a share of the value. At the end looser stages would let
#: the rounding of a processor choose the next one.
COARSE, TOL = 1e-5, 1e-9
#: Newton's steps of one stage and of a path, halvings of a step, tries to place a cut, its moves until k lies between
#: two, and the lowest cut as a share of T: what is then inside ties.
STAGE, STEPS, HALVINGS, TRIES, MOVES, LOWEST = 100, 100_000, 40, 24, 60, 1e-7
ARMIJO, DAMPING, FLAT = 1e-4, 0.1, 1e-11
STALLED = 1e-4  # of the tolerance: what falls less is rounding
#: The width over which the kinks of a loss are rounded.
KINK = 0.1


@dataclass
class Spot:
    """Where a stage ended: coordinates, cut, the mass inside it, the penalised value, and the misclassified mass."""

    c: Array
    cut: float
    inside: float
    value: float
    errors: float


@dataclass
class Walk:
    """The slow twin: one path, as `path.c` follows it.

    Parameters
    ----------
    across : array (coordinates, samples)
    loss : Loss
    mass : array (samples,)
    penalty : array (coordinates,)
    stage : int
        Steps that a stage may take.
    tol : float
    """

    across: Array
    loss: Loss
    mass: Array
    penalty: Array
    stage: int
    tol: float
    ramp: float = RAMP
    kink: float = KINK
    steps: int = field(default=STEPS, init=False)
    looks: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.rounded = Rounded(self.loss)

    def look(self, c: Array, cut: float) -> tuple[Spot, Array, Array, Array]:
        """The spot there; its gradient, its Hessian and the sizes by which that is damped."""
        self.looks += 1
        margins, low, high = -(c @ self.across), cut - self.ramp * cut / 2, cut + self.ramp * cut / 2
        losses, slopes = self.rounded.value(margins, self.kink), self.rounded.pulls(margins, self.kink)[0]
        bend = self.rounded.bend(margins, self.kink) if self.loss.bend is None else self.loss.bend(-slopes)
        share, turned, charge = np.ones_like(margins), np.zeros_like(margins), losses
        if np.isfinite(cut):
            above = losses - self.loss.threshold
            side, far = np.where(above > 0, 1.0, -1.0), np.abs(above)
            share = np.clip((high - far) / (high - low), 0, 1)
            charge = cut + side * (np.minimum(far, high) - np.clip(far - low, 0, high - low) ** 2 / (2 * (high - low)))
            turned = np.where((low < far) & (far < high), side * slopes**2 / (high - low), 0.0)
        value = float(self.mass @ charge + 0.5 * self.penalty @ c**2)
        gradient = self.across @ (self.mass * share * slopes) + self.penalty * c
        hessian = (self.across * (self.mass * (share * bend - turned))) @ self.across.T + np.diag(self.penalty)
        sizes = np.square(self.across) @ (self.mass * (share * (bend + slopes) + np.abs(turned))) + self.penalty
        spot = Spot(c, cut, float(self.mass @ share), value, float(self.mass @ (margins <= 0)))
        return spot, gradient, hessian, sizes

    def settle(self, c: Array, cut: float) -> Spot:
        """Damped Newton steps at one cut, always downhill."""
        damping, (spot, gradient, hessian, sizes) = 0.0, self.look(c, cut)
        for _ in range(self.stage):
            if self.steps <= 0 or spot.inside <= 0:  # where nothing is inside, the cut is too low
                break
            self.steps -= 1
            damping, step = _newton(gradient, hessian, sizes, damping)
            fall = float(gradient @ step)
            if not -fall > self.tol * spot.value:
                break
            for halvings in range(HALVINGS):
                there = self.look(spot.c + 0.5**halvings * step, cut)
                if there[0].value <= spot.value + ARMIJO * 0.5**halvings * fall:
                    break
            else:
                break
            stalled = not spot.value - there[0].value > STALLED * self.tol * spot.value
            spot, gradient, hessian, sizes = there
            if stalled:
                break
            damping = 0.0 if damping < 0.8 * DAMPING else damping if halvings else damping / 4
        return spot

    def climb(self, spot: Spot, k: float, everything: float) -> Spot:
        """The spot with its cut raised until the mass inside is above k, or all of it."""
        for _ in range(MOVES):
            if self.steps <= 0 or spot.inside > k or spot.inside >= everything:
                break
            spot = self.settle(spot.c, spot.cut / FACTOR)
        return spot

    def place(self, high: Spot, low: Spot, k: float, near: float) -> Spot:
        """Between a spot whose mass inside is above k and one where it is not: one where it is k.

        A high one that is not above it is the nearest.
        """
        if high.inside <= k:
            return high if high.inside > low.inside else low
        above, below, last = high.inside - k, low.inside - k, 0
        for _ in range(TRIES):
            if abs(low.inside - k) <= near * k or self.steps <= 0:
                return low
            if abs(high.inside - k) <= near * k:
                return high
            share = min(max(above / (above - below) if above > below else 0.5, 0.05), 0.95)
            found = self.settle(high.c, high.cut * (low.cut / high.cut) ** share)
            if found.inside > k:  # Illinois: the other end counts less each time it stays
                below, above, high, last = below * (0.5 if last == 1 else 1), found.inside - k, found, 1
            else:
                above, below, low, last = above * (0.5 if last == -1 else 1), found.inside - k, found, -1
        return low

    def carry_over(self, spot: Spot, k: float, factor: float, near: float) -> Spot:
        """A spot at the mass k under other masses than those of the path, from where the path was."""
        spot = high = self.settle(spot.c, spot.cut)
        for _ in range(MOVES):
            if self.steps <= 0 or abs(spot.inside - k) <= near * k:
                break
            if spot.inside > k:
                high, spot = spot, self.settle(spot.c, spot.cut * factor)
                if not spot.cut > LOWEST * self.loss.threshold:
                    break
            elif high.inside <= k:
                spot, high = high, self.settle(high.c, high.cut / factor)
            else:
                return self.place(high, spot, k, near)
        return spot

    def run(self, start: Array, targets: Array, own: Array | None, near: float = NEAR) -> list[Spot]:
        """Spots at the target masses, falling; settled under ``own`` masses where these are others."""
        here, spots = self.settle(start, np.inf), list[Spot]()
        cut, everything = max(self._distance(here.c), LOWEST * self.loss.threshold), here.inside  # losses may all be T
        here = replace(here, cut=cut)
        before = replace(here, inside=0.0)  # higher cuts are looked at where k is not below the first
        while len(spots) < len(targets):
            last = not cut > LOWEST * self.loss.threshold or self.steps <= 0
            if not last:
                here = self.settle(here.c, cut)
            while len(spots) < len(targets) and (last or here.inside <= targets[len(spots)]):
                k, found = targets[len(spots)], here
                if own is not None:
                    running, self.mass = self.mass, own
                    found = self.carry_over(found, k, FACTOR, near)
                    self.mass = running
                elif not last:
                    found = self.place(self.climb(before, k, everything), here, k, near)
                spots.append(found)
            before, cut = here, cut * FACTOR
        return spots

    def _distance(self, c: Array) -> float:
        """The distance from T within which a share of the mass lies."""
        far = np.abs(self.rounded.value(-(c @ self.across), self.kink) - self.loss.threshold)
        order = np.argsort(far)
        reached = np.cumsum(self.mass[order])
        return float(far[order[min(np.searchsorted(reached, BEGIN * reached[-1]), len(far) - 1)]])


def _newton(gradient: Array, hessian: Array, sizes: Array, damping: float) -> tuple[float, Array]:
    """The damping that makes a Hessian positive definite, if it needs any, and Newton's step.

    A coordinate of size 0 has no pull either: any curvature leaves it where it is.
    """
    hessian = hessian + np.diag(sizes == 0)
    for _ in range(60):
        factor, failed = dpotrf(hessian + np.diag(damping * sizes), lower=1)
        if not failed and (np.diag(factor) ** 2 > FLAT * sizes).all():
            return damping, -dpotrs(factor, gradient, lower=1)[0]
        damping = 2 * damping if damping > 0 else DAMPING
    return damping, np.zeros_like(gradient)

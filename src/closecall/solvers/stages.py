"""One stage of a path, cuts that count a mass, and one path of stages, in NumPy: the slow twin of `stages.h`.

It works for every loss, several classes, and rows in several places.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from .._names import Array
from .cuts import ALL, CLOSE, LookSums, LossCut, LossWindow

#: Which share of the mass the first cut holds, what a cut is multiplied by from stage to stage, and the width of a ramp
#: as a share of its cut. Of ramps of 0.1 to 1.5 and factors of 0.5 to 0.8 on 16 PMLB sets none was more accurate; these
#: need the fewest looks.
BEGIN, FACTOR, RAMP = 0.95, 0.5, 1.5
GENTLE = 0.8  # what a cut is multiplied by where it is placed anew for a narrower ramp
#: How near to k the mass inside a cut has to be while starts compete, and where it ends, as a share of k.
ROUGHLY, NEAR = 0.25, 0.02
#: How exactly a stage is solved in a heat, while starts compete, and in the end, by Newton's decrement as a share of
#: the value. On three PMLB sets and five alphas, one start: 1e-3 had up to half a per cent more errors than 1e-5 with
#: three quarters of the looks, 1e-2 up to 4 % more with two fifths. At the end looser stages would let the rounding
#: of a processor choose the next one.
ROUGHEST, COARSE, TOL = 1e-2, 1e-3, 1e-9
#: Newton's steps of one stage and of a path, halvings of a step, moves of a cut until it holds k, and
#: the lowest cut as a share of T: what is then inside ties.
STAGE, STEPS, HALVINGS, MOVES, LOWEST = 100, 100_000, 40, 60, 1e-7
NARROWEST = 1e-13  # as a share of the cuts: between two so near what is counted jumps
ARMIJO, DAMPING, FLAT = 1e-4, 0.1, 1e-11
STALLED = 1e-4  # of the tolerance: what falls less is rounding
#: The width over which the kinks of a loss are rounded.
KINK = 0.1


@dataclass
class Spot:
    """Where a stage ended: coordinates, cut, the mass inside it, the penalised value, and the misclassified mass.

    ``sums`` and the Cholesky ``factor`` of the last step say how the minimum moves with its cut.
    """

    c: Array
    cut: float
    inside: float = 0.0
    value: float = 0.0
    errors: float = 0.0
    sums: LookSums | None = None
    factor: Array | None = None

    def row(self) -> list[float]:
        """The spot as a row of numbers, in the layout used by the C code."""
        return [*self.c, self.cut, self.inside, self.value, self.errors]


@dataclass
class Walk:
    """Stages of one problem, as `path.c` takes them.

    Parameters
    ----------
    rows : Margins or whatever has its ``look`` and ``threshold``
    penalty : array (coordinates,)
    stage : int
        The maximum number of steps in a stage.
    tol : float
    kind : int
        Which losses a cut keeps, see :mod:`closecall.solvers.cuts`.
    """

    rows: Any
    penalty: Array
    stage: int = STAGE
    tol: float = TOL
    ramp: float = RAMP
    kink: float = KINK
    kind: int = CLOSE
    steps: int = field(default=STEPS, init=False)
    looks: int = field(default=0, init=False)

    def window(self, cut: float) -> LossWindow:
        """The window of a cut."""
        threshold = self.rows.threshold
        if self.kind == ALL or not np.isfinite(cut):
            return LossWindow()
        if self.kind == CLOSE:
            return LossWindow(threshold - cut, threshold + cut, self.ramp * cut, self.ramp)
        return LossWindow(-cut, np.inf, self.ramp * threshold)

    def look(self, c: Array, cut: float) -> tuple[float, LookSums]:
        """The penalised value and the sums at given coordinates."""
        self.looks += 1
        sums = self.rows.look(c, self.window(cut), self.kink)
        return sums.value + 0.5 * float(self.penalty @ c**2), sums

    def settle(self, c: Array, cut: float) -> Spot:
        """Damped Newton steps at one cut, always downhill."""
        damping, factor, (value, sums) = 0.0, None, self.look(c, cut)
        for _ in range(self.stage):
            if self.steps <= 0 or sums.inside <= 0:  # where nothing is inside, the cut is too low
                break
            self.steps -= 1
            gradient = sums.gradient + self.penalty * c
            hessian, sizes = sums.hessian + np.diag(self.penalty), sums.sizes + self.penalty
            damping, factor = _factor(hessian, sizes, damping)
            if factor is None:
                break
            step = -_solve(factor, gradient)
            fall = float(gradient @ step)
            if not -fall > self.tol * value:
                break
            for halvings in range(HALVINGS):
                there, seen = self.look(c + 0.5**halvings * step, cut)
                if there <= value + ARMIJO * 0.5**halvings * fall:
                    break
            else:
                break
            stalled = not value - there > STALLED * self.tol * value
            c, value, sums = c + 0.5**halvings * step, there, seen
            if stalled:
                break
            damping = 0.0 if damping < 0.8 * DAMPING else damping if halvings else damping / 4
        return Spot(c, cut, sums.inside, value, sums.errors, sums, factor)

    def place(self, spot: Spot, k: float, slack: float, factor: float) -> tuple[Spot, int]:
        """A point whose cut contains the mass k up to a slack, and the number of moves needed.

        The moves are Newton steps in the cut, with the minimum following. They stay between the nearest cuts with more
        and with less mass, once both are known. If no cut contains k, the nearest one is returned.
        """
        spot, moves, before, tries = self.settle(spot.c, spot.cut), 0, np.inf, 0
        high: Spot | None = None
        low: Spot | None = None
        for tries in range(MOVES + 1):
            if tries == MOVES or self.steps <= 0 or not abs(spot.inside - k) > slack:
                break
            inside = spot.inside > k
            high, low = (spot, low) if inside else (high, spot)
            slope, drift = _slope(spot)
            following = spot.cut - (spot.inside - k) / slope if slope > 0 else spot.cut
            least = low.cut if low else self._moved(spot.cut, factor, -1, moves)
            most = high.cut if high else self._moved(spot.cut, factor, 1, moves)
            newton = slope > 0 and least < following < most
            if high and low:
                if not most - least > NARROWEST * (abs(most) + abs(least)):  # what is counted jumps
                    break
                if tries % 3 == 2:
                    newton, before = newton and most - least < 0.5 * before, most - least
                if not newton:
                    following = np.sqrt(most * least) if self.kind == CLOSE else (most + least) / 2
            else:
                if not newton:
                    following, moves = least if inside else most, moves + 1
                newton = slope > 0
            if self.kind == CLOSE and not following > LOWEST * self.rows.threshold:
                break
            start = spot.c
            if newton:
                start = spot.c + (following - spot.cut) * drift
            elif high and not inside:
                start = high.c
            spot = self.settle(start, following)
        known = [each for each in (spot, high, low) if each is not None]
        return min(known, key=lambda each: abs(each.inside - k)), tries

    def _moved(self, cut: float, factor: float, way: int, moves: int) -> float:
        """The cut moved one step in (-1) or out (1)."""
        if self.kind == CLOSE:
            return cut / factor if way > 0 else cut * factor
        return cut + way * self.ramp * self.rows.threshold * 2.0 ** min(moves, 40)

    def sharpen(self, spot: Spot, cut: LossCut, ramps: Array, near: Array) -> tuple[Spot, float]:
        """The point solved at one ramp after another, with the mass k inside, and the last ramp reached."""
        reached, found, self.kind = 0.0, spot, cut.kind
        for ramp, share in zip(ramps.tolist(), near.tolist(), strict=True):
            self.ramp = ramp
            self.kink = min(KINK, ramp * (spot.cut if cut.kind == CLOSE else self.rows.threshold))
            spot = self.place(spot, cut.k, share * cut.slack, GENTLE)[0]
            if not abs(spot.inside - cut.k) <= share * cut.slack:
                break
            found, reached = spot, ramp
        return found, reached

    def run(self, start: Array, targets: Array, slack: Array, own: Any) -> list[Spot]:
        """Points at the target masses, in descending order, for the ``own`` rows."""
        here, running = self.settle(start, np.inf), self.rows
        spots = [here] * int(np.isinf(targets).sum())  # all of it: the average
        lowest = LOWEST * running.threshold
        cut = max(self._distance(here.c), lowest)  # losses may all be T
        here = replace(here, cut=cut)
        while len(spots) < len(targets):
            last = not cut > lowest or self.steps <= 0
            if not last:
                here = self.settle(here.c, cut)
            while len(spots) < len(targets) and (last or here.inside <= targets[len(spots)]):
                found, self.rows = here, own
                if not last or own is not running:
                    found = self.place(found, targets[len(spots)], slack[len(spots)], FACTOR)[0]
                self.rows = running
                spots.append(found)
            cut *= FACTOR
        return spots

    def _distance(self, c: Array) -> float:
        """The distance from T within which a share of the mass lies."""
        far, mass = np.abs(self.rows.see(c, self.kink).losses - self.rows.threshold), self.rows.mass
        order = np.argsort(far)
        reached = np.cumsum(mass[order])
        return float(far[order[min(np.searchsorted(reached, BEGIN * reached[-1]), len(far) - 1)]])


def _slope(spot: Spot) -> tuple[float, Array]:
    """How the mass inside grows with the cut while the minimum follows, and how the minimum moves."""
    if spot.factor is None or spot.sums is None:
        return 0.0, np.zeros_like(spot.c)
    drift = -_solve(spot.factor, spot.sums.by_cut)
    return spot.sums.grown + float(spot.sums.by_mass @ drift), drift


def _factor(hessian: Array, sizes: Array, damping: float) -> tuple[float, Array | None]:
    """The damping that makes a Hessian positive definite, if needed, and its Cholesky factor.

    A coordinate of size 0 has no gradient either, so any curvature leaves it unchanged.
    """
    hessian = hessian + np.diag(sizes == 0)
    for _ in range(60):
        factor, failed = dpotrf(hessian + np.diag(damping * sizes), lower=1)
        if not failed and (np.diag(factor) ** 2 > FLAT * sizes).all():
            return damping, factor
        damping = 2 * damping if damping > 0 else DAMPING
    return damping, None


def _solve(factor: Array, right: Array) -> Array:
    return np.asarray(dpotrs(factor, right, lower=1)[0])

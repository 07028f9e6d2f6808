"""One stage of a path, cuts that count a mass, and one path of stages, in NumPy: the slow version of `stages.h`.

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
#: Newton's steps of one stage and of a path, shortenings of a step, moves of a cut until it holds k, and
#: the lowest cut as a share of T: what is then inside ties.
STAGE, STEPS, SHORTENINGS, MOVES, LOWEST = 100, 100_000, 40, 60, 1e-7
NARROWEST = 1e-13  # as a share of the cuts: between two so near what is counted jumps
#: What a step is multiplied by that does not descend, in loose stages and in exact ones. On four PMLB sets and four
#: alphas a quarter, with damping after it, needs 10 to 20 % fewer looks than halves without.
SHORTENED = {True: 0.25, False: 0.5}
ARMIJO, DAMPING, FLAT = 1e-4, 0.1, 1e-11
#: The tolerance of ends in a search. Stages at least as loose keep factors from so many coordinates on: while a
#: step leaves at most a share of what the last one left, and for so many steps; steps with less than a share of the
#: curvature that it predicts do not correct it. On spambase (58 coordinates) paths take half the time. In exact stages,
#: whose narrow ramps bend the objective everywhere, kept factors took up to ten times the looks (adult, k = 0.01).
EXACT, WIDE, KEPT, MEMORY, CURVED = 1e-5, 8, 0.5, 8, 0.01
STALLED = 1e-4  # of the tolerance: what falls less is rounding
#: The width over which the kinks of a loss are rounded.
KINK = 0.1


@dataclass
class Curvature:
    """A Cholesky factor, corrected by the steps since: (step, change of the gradient, 1 / their product)."""

    factor: Array
    pairs: list[tuple[Array, Array, float]] = field(default_factory=list)

    def solve(self, right: Array) -> Array:
        """The inverse times a vector: two loops, as in L-BFGS."""
        shares = []
        for step, change, inverse in reversed(self.pairs):
            shares.append(inverse * float(step @ right))
            right = right - shares[-1] * change
        found = np.asarray(dpotrs(self.factor, right, lower=1)[0])
        for (step, change, inverse), share in zip(self.pairs, reversed(shares), strict=True):
            found = found + (share - inverse * float(change @ found)) * step
        return found

    def remember(self, step: Array, change: Array, predicted: float) -> bool:
        """Add a pair, unless it curves less than a share of the prediction or the memory is full."""
        curved = float(step @ change)
        if len(self.pairs) == MEMORY or not curved > CURVED * predicted:
            return False
        self.pairs.append((step, change, 1 / curved))
        return True


@dataclass
class Spot:
    """Where a stage ended: coordinates, cut, the mass inside it, the penalised value, and the misclassified mass.

    ``sums`` and the ``curvature`` of the last step say how the minimum moves with its cut.
    """

    c: Array
    cut: float
    inside: float = 0.0
    value: float = 0.0
    errors: float = 0.0
    sums: LookSums | None = None
    curvature: Curvature | None = None

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

    def settle(self, c: Array, cut: float, curvature: Curvature | None = None) -> Spot:
        """Damped Newton steps at one cut, always downhill; a given curvature is tried before that of the start."""
        damping, last, (value, sums) = 0.0, np.inf, self.look(c, cut)
        gradient = sums.gradient + self.penalty * c
        loose = self.tol >= EXACT
        keeps = loose and len(c) >= WIDE
        curvature = Curvature(curvature.factor, [*curvature.pairs]) if curvature is not None and keeps else None
        for _ in range(self.stage):
            if self.steps <= 0 or sums.inside <= 0:  # where nothing is inside, the cut is too low
                break
            self.steps -= 1
            step, fall, fresh = c, -np.inf, False
            if curvature is not None and last:
                step = -curvature.solve(gradient)
                fall = float(gradient @ step)
            if curvature is None or not last or (not -fall <= KEPT * last and -fall > self.tol * value):
                sizes = sums.sizes + self.penalty
                damping, curvature = _factor(sums.hessian + np.diag(self.penalty), sizes, damping)
                if curvature is None:
                    break
                step = -curvature.solve(gradient)
                fall, fresh = float(gradient @ step), True
            if not -fall > self.tol * value:
                break
            t = 1.0
            for _ in range(SHORTENINGS if fresh else 1):
                there, seen = self.look(c + t * step, cut)
                if there <= value + ARMIJO * t * fall:
                    break
                t *= SHORTENED[loose]
            else:
                if fresh:
                    break
                curvature = None  # it is too old
                continue
            stalled, before = not value - there > STALLED * self.tol * value, gradient
            c, value, sums = c + t * step, there, seen
            if stalled:
                break
            gradient, last = sums.gradient + self.penalty * c, -fall
            if t < 1 or not keeps or not curvature.remember(t * step, gradient - before, t * t * -fall):
                last = 0.0  # its factor would not serve
            if t < 1 and loose:
                damping = 2 * damping or DAMPING
            else:
                damping = 0.0 if damping < 0.8 * DAMPING else damping if t < 1 else damping / 4
        return Spot(c, cut, sums.inside, value, sums.errors, sums, curvature)

    def place(self, spot: Spot, k: float, slack: float, factor: float, here: bool = False) -> tuple[Spot, int]:
        """A point whose cut contains the mass k up to a slack, and the number of moves needed.

        The moves are Newton steps in the cut, with the minimum following. They stay between the nearest cuts with more
        and with less mass, once both are known. If no cut contains k, the nearest one is returned. ``here``: a stage
        has just ended at this spot.
        """
        if not here:
            spot = self.settle(spot.c, spot.cut)
        moves, before, tries = 0, np.inf, 0
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
            spot = self.settle(start, following, spot.curvature if newton else None)
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
                    found = self.place(found, targets[len(spots)], slack[len(spots)], FACTOR, own is running)[0]
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
    if spot.curvature is None or spot.sums is None:
        return 0.0, np.zeros_like(spot.c)
    drift = -spot.curvature.solve(spot.sums.by_cut)
    return spot.sums.grown + float(spot.sums.by_mass @ drift), drift


def _factor(hessian: Array, sizes: Array, damping: float) -> tuple[float, Curvature | None]:
    """The damping that makes a Hessian positive definite, if needed, and its curvature.

    A coordinate of size 0 has no gradient either, so any curvature leaves it unchanged.
    """
    hessian = hessian + np.diag(sizes == 0)
    for _ in range(60):
        factor, failed = dpotrf(hessian + np.diag(damping * sizes), lower=1)
        if not failed and (np.diag(factor) ** 2 > FLAT * sizes).all():
            return damping, Curvature(factor)
        damping = 2 * damping if damping > 0 else DAMPING
    return damping, None

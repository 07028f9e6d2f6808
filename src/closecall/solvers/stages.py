"""Paths of cuts, which minimise close-k as a clipped loss, stage by stage.

At a fixed cut e, the close-k gradient is the gradient of ``sum of clip(l, T - e, T + e)``. Only the examples with ``|l
- T| < e`` contribute to it, and an error beyond the cut costs T + e, the paper's M. A stage is therefore an ordinary
minimisation with Newton steps and a line search, in which corners are rounded over a ramp. Lowering the cut corresponds
to the paper's decay. A single path visits every k, because k determines only the cut.

The method works for every loss, for several classes, and for rows on several machines. :mod:`closecall.solvers.path`
runs a stage in compiled code where possible.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from .._names import Array
from .cuts import ALL, CLOSE, LookSums, LossCut, LossWindow

#: The factor between the cuts of two stages, and the width of a ramp as a share of its cut. On 16 PMLB sets, ramps from
#: 0.1 to 1.5 and factors from 0.5 to 0.8 were equally accurate; these need the fewest evaluations.
FACTOR, RAMP = 0.5, 1.5
#: The tolerance for the mass inside a cut at the end of a path, as a share of k.
NEAR = 0.02
#: The tolerance of a stage: Newton's decrement as a share of the value. With looser stages, rounding would decide which
#: minimum a path reaches.
TOL = 1e-9
#: The tolerance for the ends of paths in a search. Stages at least this loose keep a Cholesky factor, which halves the
#: time on spambase (58 coordinates). In exact stages, whose narrow ramps make the curvature vary, kept factors took up
#: to ten times as many evaluations (adult, k = 0.01).
EXACT = 1e-5
STAGE = 100  # the maximum number of Newton steps in a stage
LOWEST = 1e-7  # the lowest cut as a share of T: everything inside is tied
DAMPING = 0.1  # the first damping, as a share of the size of each coordinate
KINK = 0.1  # the width over which the kinks of a loss are rounded


@dataclass
class Curvature:
    """A Cholesky factor and the later steps that correct it, as (step, change in the gradient, 1 / their product)."""

    factor: Array
    pairs: list[tuple[Array, Array, float]] = field(default_factory=list)

    def solve(self, right: Array) -> Array:
        """Multiply a vector by the inverse of the curvature in two loops, as in L-BFGS."""
        shares = []
        for step, change, inverse in reversed(self.pairs):
            shares.append(inverse * float(step @ right))
            right = right - shares[-1] * change
        found = np.asarray(dpotrs(self.factor, right, lower=1)[0])
        for (step, change, inverse), share in zip(self.pairs, reversed(shares), strict=True):
            found = found + (share - inverse * float(change @ found)) * step
        return found

    def remember(self, step: Array, change: Array, predicted: float) -> bool:
        """Add a pair unless there are already eight pairs or its curvature is at most a hundredth of the prediction."""
        curved = float(step @ change)
        if len(self.pairs) == 8 or not curved > 0.01 * predicted:
            return False
        self.pairs.append((step, change, 1 / curved))
        return True


@dataclass
class Spot:
    """The end of a stage: coordinates, cut, mass inside the cut, penalised value, and misclassified mass.

    ``curvature`` is the curvature of the last step, and ``sums`` are the sums of the last evaluation in NumPy.
    """

    c: Array
    cut: float
    inside: float = 0.0
    value: float = 0.0
    errors: float = 0.0
    curvature: Any = None
    sums: LookSums | None = None


@dataclass
class Walk:
    """The stages of one problem on ``rows`` (for example, a :class:`closecall.solvers.rows.Margins`).

    ``penalty`` has shape (coordinates,), ``stage`` is the maximum number of steps in a stage, ``tol`` is the tolerance
    of a stage, and ``kind`` is a constant from :mod:`closecall.solvers.cuts`.
    """

    rows: Any
    penalty: Array
    stage: int = STAGE
    tol: float = TOL
    ramp: float = RAMP
    kink: float = KINK
    kind: int = CLOSE
    highest: float = field(default=np.inf, init=False)  # the highest edge above which losses are selected
    steps: int = field(default=100_000, init=False)  # the number of steps left
    looks: int = field(default=0, init=False)

    def window(self, cut: float) -> LossWindow:
        threshold = self.rows.threshold
        if self.kind == ALL or not np.isfinite(cut):
            return LossWindow()
        if self.kind == CLOSE:
            return LossWindow(threshold - cut, threshold + cut, self.ramp * cut, self.ramp)
        return LossWindow(-cut, np.inf, self.ramp * threshold)

    def look(self, c: Array, cut: float) -> tuple[float, LookSums]:
        """Return the penalised value and the sums at coordinates c."""
        self.looks += 1
        sums = self.rows.look(c, self.window(cut), self.kink)
        return sums.value + 0.5 * float(self.penalty @ c**2), sums

    def settle(self, c: Array, cut: float, curvature: Any = None) -> Spot:
        """Minimise the value at one cut with damped Newton steps, which never increase it.

        If a curvature is given, it is tried before the curvature at the start. With at least eight coordinates, a
        factor costs more than a few evaluations. Loose stages then keep the factor as long as each decrement is at most
        half the previous one. They also divide rejected steps by four and increase the damping. On four PMLB data sets
        with four alphas each, this takes 10 to 20 % fewer evaluations than halving without damping.
        """
        damping, last, (value, sums) = 0.0, np.inf, self.look(c, cut)
        gradient = sums.gradient + self.penalty * c
        loose = self.tol >= EXACT
        keeps = loose and len(c) >= 8
        curvature = Curvature(curvature.factor, [*curvature.pairs]) if curvature is not None and keeps else None
        for _ in range(self.stage):
            if self.steps <= 0 or sums.inside <= 0:  # if nothing is inside, the cut is too low
                break
            self.steps -= 1
            step, fall, fresh = c, -np.inf, False
            if curvature is not None and last:
                step = -curvature.solve(gradient)
                fall = float(gradient @ step)
            if curvature is None or not last or (not -fall <= 0.5 * last and -fall > self.tol * value):
                sizes = sums.sizes + self.penalty
                damping, curvature = _factor(sums.hessian + np.diag(self.penalty), sizes, damping)
                if curvature is None:
                    break
                step = -curvature.solve(gradient)
                fall, fresh = float(gradient @ step), True
            if not -fall > self.tol * value:
                break
            t = 1.0
            for _ in range(40 if fresh else 1):
                there, seen = self.look(c + t * step, cut)
                if there <= value + 1e-4 * t * fall:
                    break
                t *= 0.25 if loose else 0.5
            else:
                if fresh:
                    break
                curvature = None  # the factor is too old
                continue
            stalled, before = not value - there > 1e-4 * self.tol * value, gradient  # only rounding errors are left
            c, value, sums = c + t * step, there, seen
            if stalled:
                break
            gradient, last = sums.gradient + self.penalty * c, -fall
            if t < 1 or not keeps or not curvature.remember(t * step, gradient - before, t * t * -fall):
                last = 0.0  # the factor is of no further use
            if t < 1 and loose:
                damping = 2 * damping or DAMPING
            else:
                damping = 0.0 if damping < 0.8 * DAMPING else damping if t < 1 else damping / 4
        return Spot(c, cut, sums.inside, value, sums.errors, curvature, sums)

    def slope(self, spot: Spot) -> tuple[float, Array]:
        """Return the derivatives of the mass inside the cut and of the minimum with respect to the cut."""
        if spot.curvature is None or spot.sums is None:
            return 0.0, np.zeros_like(spot.c)
        drift = -spot.curvature.solve(spot.sums.by_cut)
        return spot.sums.grown + float(spot.sums.by_mass @ drift), drift

    def place(self, spot: Spot, k: float, slack: float, factor: float, here: bool = False) -> Spot:
        """Move the cut until the mass inside it differs from k by at most ``slack``, and update the minimum.

        The cut is moved by Newton steps, which stay between the nearest cuts with more mass and with less mass once
        both are known. If no cut contains the mass k, the nearest cut is returned. ``here`` states that a stage has
        just ended at ``spot``.
        """
        if not here:
            spot = self.settle(spot.c, spot.cut)
        moves, before = 0, np.inf
        high: Spot | None = None
        low: Spot | None = None
        for tries in range(60):
            if self.steps <= 0 or not abs(spot.inside - k) > slack:
                break
            inside = spot.inside > k
            high, low = (spot, low) if inside else (high, spot)
            slope, drift = self.slope(spot)
            following = spot.cut - (spot.inside - k) / slope if slope > 0 else spot.cut
            least = low.cut if low else self._moved(spot.cut, factor, -1, moves)
            most = high.cut if high else self._moved(spot.cut, factor, 1, moves)
            newton = slope > 0 and least < following < most
            if high and low:
                if not most - least > 1e-13 * (abs(most) + abs(least)):  # the mass jumps between them
                    break
                if tries % 3 == 2:
                    newton, before = newton and most - least < 0.5 * before, most - least
                if not newton:
                    following = (
                        most * float(np.sqrt(least / most)) if self.kind == CLOSE else most + 0.5 * (least - most)
                    )
            else:
                if not newton:
                    following, moves = least if inside else most, moves + 1
                newton = slope > 0
            if self.kind == CLOSE and not following > LOWEST * self.rows.threshold:
                break
            if self.kind != CLOSE:  # beyond the highest edge, a stage may find nothing to minimise
                following = max(following, -self.highest - self.window(following).width / 2)
            start = spot.c
            if newton:
                start = spot.c + (following - spot.cut) * drift
            elif high and not inside:
                start = high.c
            spot = self.settle(start, following, spot.curvature if newton else None)
        known = [each for each in (spot, high, low) if each is not None]
        return min(known, key=lambda each: abs(each.inside - k))

    def _moved(self, cut: float, factor: float, way: int, moves: int) -> float:
        """Return the cut after one step inwards (-1) or outwards (1)."""
        if self.kind == CLOSE:
            return cut / factor if way > 0 else cut * factor
        return cut + way * self.ramp * self.rows.threshold * 2.0 ** min(moves, 40)

    def sharpen(self, spot: Spot, cut: LossCut, ramps: Array, near: Array) -> tuple[Spot, float]:
        """Solve the problem with each ramp in turn, keeping the mass k inside; return the last :class:`Spot` and ramp.

        The ramp is 0 if every ramp failed. The tolerances ``near`` (ramps,) are relative to the slack of the cut.
        """
        reached, found, self.kind = 0.0, spot, cut.kind
        for ramp, share in zip(ramps.tolist(), near.tolist(), strict=True):
            self.ramp = ramp
            self.kink = min(KINK, ramp * (spot.cut if cut.kind == CLOSE else self.rows.threshold))
            spot = self.place(spot, cut.k, share * cut.slack, 0.8)  # the cut is already near
            if not abs(spot.inside - cut.k) <= share * cut.slack:
                break
            found, reached = spot, ramp
        return found, reached

    def run(self, start: Array, targets: Array, slack: Array, own: Any) -> list[Spot]:
        """Follow a path, and return a :class:`Spot` on the ``own`` rows for each target mass in descending order."""
        spots: list[Spot] = []
        here, running = self.settle(start, np.inf), self.rows
        lowest = LOWEST * running.threshold
        cut = max(self.first_cut(here.c), lowest)  # all losses may be T
        here = replace(here, cut=cut)
        while len(spots) < len(targets):
            last = not cut > lowest or self.steps <= 0
            if not last:
                here = self.settle(here.c, cut)
            while len(spots) < len(targets) and (last or here.inside <= targets[len(spots)]):
                found, self.rows = replace(here), own
                if not last or own is not running:
                    found = self.place(found, targets[len(spots)], slack[len(spots)], FACTOR, own is running)
                self.rows = running
                spots.append(found)
            cut *= FACTOR
        return spots

    def first_cut(self, c: Array) -> float:
        """Return the distance from T within which 95 % of the mass lies."""
        distances, mass = np.abs(self.losses(c) - self.rows.threshold), self.rows.mass
        order = np.argsort(distances, kind="stable")
        reached = np.cumsum(mass[order])
        return float(distances[order[min(np.searchsorted(reached, 0.95 * reached[-1]), len(order) - 1)]])

    def losses(self, c: Array) -> Array:
        """Return the losses (samples,) with rounded kinks."""
        return np.asarray(self.rows.see(c, self.kink).losses)


def _factor(hessian: Array, sizes: Array, damping: float) -> tuple[float, Curvature | None]:
    """Return the damping that makes a Hessian positive definite, and the resulting curvature.

    The gradient of a coordinate with size 0 is zero, so a step leaves it unchanged whatever curvature is assumed.
    """
    hessian = hessian + np.diag(sizes == 0)
    for _ in range(60):
        factor, failed = dpotrf(hessian + np.diag(damping * sizes), lower=1)
        if not failed and (np.diag(factor) ** 2 > 1e-11 * sizes).all():  # smaller pivots are rounding errors
            return damping, Curvature(factor)
        damping = 2 * damping if damping > 0 else DAMPING
    return damping, None

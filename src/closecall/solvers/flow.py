"""Certified solutions of close-k problems on many rows, found by following a flow.

If there are many rows, the penalty per example is small and scores are large. Most losses inside the cut are then tiny,
and a ramp whose width is proportional to the cut would include all correctly classified rows. Below T, the width of the
ramp is therefore measured in logarithms of losses (multiplied by T, so that both scales agree at T). The unknowns are
the coordinates and the *place*, the negated logarithm of the smallest selected loss. The gradient must be zero and the
weights must sum to k. Implicit Euler steps in the metric of the curvature follow the flow towards this point
(pseudo-transient continuation). The steps become longer as the gradient decreases, and are limited where the selection
changes with the coordinates and the curvature is low. For 10^5 rows and 20 columns, with k = 0.1 and alpha = 1, the
flow takes 0.03 s; the stages of :mod:`closecall.solvers.stages` at fixed cuts take 5 s and produce no certificate.

A point is certified with the weights of a ramp that is so narrow that it changes no loss by more than ``tol`` times the
mean loss. The tangents touch where a Newton step with these weights would end, so the gap is about the gain of that
step. Rows near the window are gathered if there is memory for them. The certificate always covers all rows, so a
missing row would be noticed.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.optimize import brentq

from .._names import Array
from ..losses import get_loss
from .blocked import SEEN, FlowSums, ManyRows, Ramp, margins_of
from .certificate import NOTHING
from .narrow import NARROWING, gap_of

WIDEST = 1.0  # the width of the first ramp
ROUGH = 0.5  # problems are solved on all rows to this share of the tolerance
PLACES = -5.0, 600.0  # the range in which the place is sought


@dataclass(frozen=True)
class Point:
    """A point of a flow: its coordinates, ramp, sums and distance from stationarity, and the points of tangency."""

    c: Array
    ramp: Ramp
    sums: FlowSums
    residual: float
    touch: Array | None = None


@dataclass
class Flow:
    """A close-k problem with a smooth loss on :class:`ManyRows`, or on remote rows with the same methods.

    ``penalty`` has shape (coordinates,). ``metric`` (coordinates, coordinates) gives the mean squared change in the
    margins when the coordinates change. ``gathers`` states whether the rows near the window may be gathered in one
    place.
    """

    rows: Any
    k: float
    penalty: Array
    metric: Array
    tol: float
    gathers: bool = True
    looks: int = field(default=0, init=False)
    center: Array | None = field(default=None, init=False)
    reach: tuple[float, float] = field(default=(0.0, 0.0), init=False)
    local: Any = field(default=None, init=False)

    def run(self, c: Array, ramp: Ramp) -> Point | None:
        """Start at c with the given ramp, and return a certified point or None."""
        narrowing, gentler, enough = NARROWING, 0, ROUGH * self.tol
        point = self.stage(c, ramp, enough)
        if point is None and ramp[1] < WIDEST:
            point = self.stage(c, (ramp[0], WIDEST), enough)
        while point is not None:
            last = min(1.8 * self.tol * self.value(point) / self.k, point.ramp[1])  # 2 would barely certify
            end = self.certified(point, last)
            if end is not None or point.ramp[1] <= last:
                return end
            enough = max(NARROWING * enough, 1e-3 * self.tol)  # the point itself may not be precise enough
            following = self.narrowed(point, max(point.ramp[1] * narrowing, last), enough)
            if following is None and gentler == 2:  # even the fourth root of the narrowing was too much
                return None
            narrowing, gentler = (narrowing, 0) if following else (float(np.sqrt(narrowing)), gentler + 1)
            point = following or point
        return None

    def certified(self, point: Point, width: float) -> Point | None:
        """Return the point with narrow-ramp weights that sum to k, or None if they do not certify it on all rows."""
        touch, ramp = None, (self.placed(point, width), width)
        for _ in range(4):  # the tangents touch at c, then where Newton steps lead
            end = self.see(point.c, ramp, touch)
            gap = self.gap(end)
            if gap <= self.tol and self.gathers:
                end = self.see(point.c, ramp, touch, whole=True)
                gap = self.gap(end)
            if gap <= self.tol:
                return end
            if np.isfinite(gap):
                touch = point.c if touch is None else touch
                touch = touch - _solved(self.held(end.sums), end.sums.across.sum(axis=0) + self.penalty * touch)
            elif self.gathers:  # other rows have entered the window
                self.center = None
                ramp = self.placed(point, width), width
        return None

    def placed(self, point: Point, width: float) -> float:
        """Return the place at which the weights of a ramp sum to k."""
        hint, threshold = point.ramp[0], self.rows.threshold
        if self.gathers:
            rows = self._gathered(point.c, (hint, width))
            found = place_of(threshold, rows.losses(point.c), rows.mass, self.k, width, hint)
            return hint if found is None else found
        for reach in (2 * max(width, SEEN) / threshold) * 4.0 ** np.arange(4):  # until a band contains the k-th place
            inner, outer = (threshold - np.exp(-hint + way * reach) for way in (1, -1))
            self.looks += 1
            band = self.rows.keys(point.c, threshold, inner, outer)
            losses, mass = (np.concatenate([np.empty(0), *part]) for part in (band.losses, band.mass))
            found = place_of(threshold, losses, mass, self.k - band.below, width, hint)
            if found is not None:
                return found
        return hint

    def narrowed(self, point: Point, width: float, enough: float) -> Point | None:
        """Return the stationary point of a narrower ramp, starting from the point of a wider ramp."""
        return self.stage(point.c, (self.placed(point, width), width), enough, 1e3)

    def stage(self, c: Array, ramp: Ramp, enough: float, time: float = 10.0) -> Point | None:
        """Return a stationary point of one ramp with a residual of at most ``enough``; ``time`` is the first step size.

        A step that more than quadruples the residual is undone and repeated with a smaller ``time``.
        """
        best, inverse, here = None, 1.0, self.see(c, ramp, None)
        for _ in range(60):
            if not np.isfinite(here.residual) or here.residual <= enough:
                return here if here.residual <= enough else None
            if best is not None and here.residual > 4.0 * best.residual and time > 1e-3:
                time = 0.25 * min(1 / inverse, 12.0)  # with longer times, the curvature dominates
            else:
                if best is not None:
                    time *= float(np.clip(1.5 * np.sqrt(best.residual / here.residual), 0.5, 30.0))
                best = here
            inverse = 1 / time
            move, shift = self._step(best, inverse)
            if not (np.isfinite(move).all() and np.isfinite(shift)):
                return None
            place = float(np.clip(best.ramp[0] + shift, *PLACES))
            here = self.see(best.c + move, (place, ramp[1]), None)
        return None

    def see(self, c: Array, ramp: Ramp, touch: Array | None, whole: bool = False) -> Point:
        """Return a point, evaluated on all rows if ``whole``, otherwise only on those near the window if possible."""
        rows = self.rows if whole or not self.gathers else self._gathered(c, ramp)
        self.looks += 1
        sums = rows.flow(c, ramp, touch)
        gradient, found = sums.gradient + self.penalty * c, Point(c, ramp, sums, 0.0, touch)
        decrement = 0.5 * float(gradient @ _solved(self.held(sums), gradient))
        return replace(found, residual=decrement / self.value(found) + ((sums.held - self.k) / self.k) ** 2)

    def _gathered(self, c: Array, ramp: Ramp) -> Any:
        """Return the rows near the window; gather them again if margins may have changed too much."""
        low, high = margins_of(get_loss(self.rows.name), ramp)
        if self.center is not None:
            spare, move = min(low - self.reach[0], self.reach[1] - high), c - self.center
            # If only the scale of the coordinates changes, every margin changes in proportion to itself.
            along = float(self.center @ self.metric @ move) / max(self.length(self.center) ** 2, 1e-300)
            scaled = abs(along) * max(abs(self.reach[0]), abs(self.reach[1]))
            # The remaining change in an individual margin is at most about four times the root mean square.
            if scaled + 4.0 * self.length(move - along * self.center) <= spare:
                return self.local
        beyond = 0.25 * max(high - low, 1.0)
        self.reach = low - beyond, high + beyond
        found = self.rows.gather(c, *self.reach)
        pieces = found.X, found.signs, found.mass
        X, signs, mass = (part[0] if len(part) == 1 else np.concatenate(part) for part in pieces)
        room = None if self.center is None else self.local.held
        self.center, self.local = c, ManyRows(X, signs, mass, self.rows.standard, self.rows.name)
        self.local.hold(room)
        self.looks += 1
        return self.local

    def value(self, point: Point) -> float:
        """Return the objective."""
        return max(point.sums.value + 0.5 * float(self.penalty @ point.c**2), 1e-300)

    def gap(self, point: Point) -> float:
        """Return the gap for these weights, relative to the objective, or infinity if the weights do not sum to k."""
        if abs(point.sums.held - self.k) > 1e-5 * self.k:
            return np.inf
        value = self.value(point)
        return gap_of(value, point.sums.bound(self.penalty), max(value, NOTHING * self.rows.threshold * self.k))

    def held(self, sums: FlowSums) -> Array:
        """Return the curvature for fixed weights."""
        held = sums.bend + np.diag(self.penalty)
        return held + (1e-10 * np.trace(held) / len(held) + 1e-300) * np.eye(len(held))

    def length(self, move: Array) -> float:
        return float(np.sqrt(max(float(move @ self.metric @ move), 0.0)))

    def _step(self, point: Point, inverse: float) -> tuple[Array, float]:
        """Return an implicit step of the flow: the changes in the coordinates and in the place.

        The step changes the margins by at most half their size or 0.5, whichever is larger. It changes the place by at
        most a quarter of its absolute value or 1, whichever is larger.
        """
        sums, held, missing = point.sums, self.held(point.sums), point.sums.held - self.k
        nowhere = np.full(len(point.c), np.nan), 0.0
        if not sums.mass_by_place > 0:  # no row is on the ramp
            return nowhere
        matrix = held + sums.moved - np.outer(sums.by_place, sums.mass_by_c) / sums.mass_by_place
        right = sums.gradient + self.penalty * point.c - sums.by_place * (missing / sums.mass_by_place)
        if not np.isfinite(matrix).all():
            return nowhere
        # In directions in which the flow grows, its rate would lead backwards. With a fixed selection, the rate is 1.
        rates, directions = np.linalg.eig(_solved(held, matrix))
        rates = np.abs(rates.real) + 1j * rates.imag + max(inverse, 0.12)
        move = -(directions @ (_solved(directions, _solved(held, right)) / rates)).real
        move *= min(1.0, 0.5 * max(self.length(point.c), 1.0) / max(self.length(move), 1e-300))
        shift = -(missing + float(sums.mass_by_c @ move)) / sums.mass_by_place
        limit = 0.25 * max(abs(point.ramp[0]), 4.0)
        return move, float(np.clip(shift, -limit, limit))


def _solved(matrix: Array, right: Array) -> Array:
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return np.full(right.shape, np.nan)


def place_of(threshold: float, losses: Array, mass: Array, k: float, width: float, hint: float = 0.0) -> float | None:
    """Return the place at which the weights of losses (samples,) sum to k, or None if losses above 2 * T are needed."""
    wrong = losses >= threshold
    above, heavy = (2 * threshold - losses[wrong]) / width + 0.5, mass[wrong]
    below, light = threshold * np.log(np.maximum(losses[~wrong], 1e-300)) / width + 0.5, mass[~wrong]

    def excess(place: float) -> float:
        held = heavy @ np.clip(above - np.exp(-place) / width, 0.0, 1.0)
        return float(held + light @ np.clip(below + threshold * place / width, 0.0, 1.0)) - k

    ends = hint - 0.25, hint + 0.25
    if not excess(ends[0]) < 0 < excess(ends[1]):
        ends = PLACES
    if not excess(ends[0]) < 0 <= excess(ends[1]):
        return None
    return float(brentq(excess, *ends, xtol=1e-13, rtol=1e-14))

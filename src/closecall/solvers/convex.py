"""Minimise average losses with second-order steps where these are cheap, and otherwise with a batched L-BFGS.

Neither method ever increases the objective. L-BFGS advances all problems together, with one pass over the data for each
trial point. Every problem is a row with its own line search, memory and stopping test. The coordinates are scaled by
the diagonal of the curvature bound, ``c * z^2 + alpha``. If columns are linearly dependent, the curvature exceeds the
diagonal in a few directions. The L-BFGS memory captures these directions, and the first step is short enough for them.

For L-BFGS, the hinge is rounded over a width (Huber's rounding) and shifted for each example by a multiplier, which is
the example's slope at the kink and its dual variable (the method of multipliers: Hestenes 1969, Powell 1969). Whenever
a row is solved well enough for its current multipliers, its slopes become the next multipliers. The width need not
shrink, so steps remain long. The slopes are a feasible point of the dual, so a row stops when its gap is small enough.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from scipy import sparse

from .._names import Array
from ..losses import get_loss
from .certificate import hinge_bounds
from .design import Design
from .kernels import Mass, minus_slope
from .newton import LARGEST_DESIGN, LARGEST_RANK, Book, Found, Limits, interior_hinge, logistic_losses, newton_logistic
from .steps import Rows

#: Losses whose average is minimised by second-order steps: Newton steps, or interior-point steps if there is a kink.
SECOND_ORDER = {"logistic": newton_logistic, "hinge": interior_hinge}
#: The final width, in margins, over which the hinge is rounded. The first width is the mean distance from the kink, and
#: each update of the multipliers divides it by four. With final widths from 0.03 to 0.3, the number of passes on 36
#: sparse data sets varies by a third.
WIDTH = 0.1


def minimize(design: Design, rows: Rows, masses: list[Mass], start: Array, limits: Limits) -> Found:
    """Solve the average-loss problems in ``rows``, given starts (rows, coordinates) and the masses of the folds.

    For all rows, return the coordinates, numbers of passes, snapshots and lower bounds on the minima (0 if unknown).
    """
    found = start.copy(), np.full(len(start), limits.passes), start.copy(), np.zeros(len(start))
    if limits.passes < 1:
        return found
    dense, entries = isinstance(design.signed, np.ndarray) and design.rank <= LARGEST_RANK, design.signed.size
    cheap = [loss for loss in SECOND_ORDER if dense and entries <= LARGEST_DESIGN << (3 if _smooth(loss) else 0)]
    if smooth := [loss for loss in cheap if _smooth(loss)]:
        start = _pilot(design, rows, masses, start, limits, smooth)
    for loss, same in _groups(design, rows, cheap):
        second = loss in cheap
        size = max(4, (1 << 18) // design.samples) if second else len(same)  # problems that step together
        for part in (same[begin : begin + size] for begin in range(0, len(same), size)):
            own, way = [masses[fold] for fold in rows.fold[part]], second_order if second else quasi_newton
            pieces = way(design, loss, own, rows.alpha[part], start[part], limits)
            for whole, piece in zip(found, pieces, strict=True):
                whole[part] = piece
    found[3][:] *= 1 - design.rounding  # the possible relative error of the bounds
    return found


def _smooth(loss: str) -> bool:
    """Return whether a loss that is solved with second-order steps uses Newton steps."""
    return not get_loss(loss).kinks


def _groups(design: Design, rows: Rows, cheap: list[str]) -> list[tuple[str, Array]]:
    """Return groups of rows to solve together, with a single loss and fold (all folds if call overhead dominates)."""
    groups = []
    for loss in np.unique(rows.loss).tolist():
        same = np.flatnonzero(rows.loss == loss)
        if loss in cheap and _smooth(loss) and design.signed.size <= 1 << 14:  # twice as fast up to this size
            groups.append((loss, same))
        else:
            groups += [(loss, same[rows.fold[same] == fold]) for fold in np.unique(rows.fold[same])]
    return groups


def _pilot(design: Design, rows: Rows, masses: list[Mass], start: Array, limits: Limits, smooth: list[str]) -> Array:
    """Return the solution for the middle alpha as the start if at least eight rows of a fold have the same start.

    The rows then reach the same optimum in two or three steps instead of five. Each fold is treated separately, so that
    no problem starts from a model that was trained on its test rows.
    """
    start, ahead = start.copy(), replace(limits, snapshot=None, beat=lambda number: None)
    mates = Counter(zip(rows.loss, rows.fold, strict=True))
    alike = rows.alike(start) if limits.passes >= 8 else []
    groups = [group for group in alike if 8 <= len(group) == mates[rows.loss[group[0]], rows.fold[group[0]]]]
    groups = [group for group in groups if rows.loss[group[0]] in smooth]
    middle = [group[len(group) // 2] for group in groups]
    if groups:
        pilots = rows.take(np.array(middle))
        for group, end in zip(groups, minimize(design, pilots, masses, start[middle], ahead)[0], strict=True):
            start[group] = end
    return start


def second_order(design: Design, loss: str, masses: list[Mass], alpha: Array, start: Array, limits: Limits) -> Found:
    """Use Newton or interior-point steps to solve average-loss problems with the same loss but different masses."""
    rows = design.signed if _smooth(loss) else design.signed.astype(np.float64)
    mass = masses[0].values
    if any(other is not masses[0] for other in masses):  # several folds
        mass = np.stack([each.values for each in masses])
    elif design.signed.size <= LARGEST_DESIGN and not (mass > 0).all():  # otherwise, copies cost more than masses of 0
        rows, mass = rows[mass > 0], mass[mass > 0]
    penalty = alpha[:, None] * design.penalized
    return SECOND_ORDER[loss](rows, mass.astype(np.float64), penalty, start, limits)


def quasi_newton(design: Design, loss: str, masses: list[Mass], alpha: Array, start: Array, limits: Limits) -> Found:
    """Use L-BFGS to solve average-loss problems with the same loss and fold."""
    book, state = Book(start, limits), _State(design, loss, masses[0], alpha, start, limits)
    for number in range(2, limits.passes + 1):  # the first pass evaluated the start
        done = state.advance()
        book.bounds[book.active] = state.bound
        kept = book.note(number, state.best if state.multiplied else state.C, done)
        if not kept.size:
            break
        if done.any():
            state.keep(kept)
    return book.close()


def _rounded_hinge(negative: Array, shares: Array, width: Array) -> tuple[Array, Array, Array, Array]:
    """Return rounded losses, negated slopes, plain losses and slacks at the kink, all with shape (rows, samples)."""
    width = width[:, None].astype(negative.dtype)
    short = 1 + negative
    moved = short + width * shares
    slope = np.clip(moved / width, 0, 1)
    plain = np.maximum(short, 0)
    return (moved - width / 2 * slope) * slope, slope, plain, plain - slope * short


class _State:
    """The active rows of an L-BFGS run, along the first axis of each array (or the second, for names in ``PAST``)."""

    PAST = ("steps", "changes", "inverse")  # (10, rows, ...): the memory

    def __init__(self, design: Design, loss: str, mass: Mass, alpha: Array, start: Array, limits: Limits) -> None:
        self.loss, self.mass, self.alpha, self.limits = loss, mass, alpha, limits
        self.multiplied = loss in SECOND_ORDER and not _smooth(loss)
        if self.multiplied and sparse.issparse(design.signed):  # slopes at kinks need more digits than float32 has
            design = replace(design, signed=design.signed.astype(np.float64))
        self.design, rows, curvature = design, len(start), get_loss(loss).curvature
        #: The square root of the majoriser, which scales the coordinates of directions and memory.
        self.scale = np.sqrt(min(curvature, 4.0) / design.raised * design.spectrum + alpha[:, None] * design.penalized)
        #: The multipliers (rows, samples) as shares of the mass, or an array (rows, 0) if the loss has no kink.
        self.shares = np.zeros((rows, design.samples * self.multiplied), dtype=design.signed.dtype)
        self.width = np.full(rows, WIDTH)
        for part in self._blocks(rows) if self.multiplied else ():
            distances = np.abs(1 + design.negative_margins(start[part])) @ mass.values / mass.total
            self.width[part] = np.maximum(distances, WIDTH)
        self.C = start.copy()
        #: The minimised function, which is the objective if the loss has no kink; the slack is the part of the gap that
        #: is not due to the gradient.
        self.value, self.gradient, self.objective, self.slack = self.evaluate(start)
        self.best, self.lowest, self.bound = start.copy(), self.objective.copy(), np.zeros(rows)
        #: The gap at the last update of the multipliers, and the number of updates since then that did not narrow it.
        self.gap, self.idle, self.calm = np.full(rows, np.inf), np.zeros(rows, dtype=int), np.zeros(rows, dtype=int)
        self.direction, self.slope, self.trial = np.zeros_like(start), np.zeros(rows), np.full(rows, 1 / design.raised)
        self.steps, self.changes = np.zeros((2, 10, *start.shape))
        self.inverse, self.newest = np.zeros((10, rows)), 0  # 1 / (step . change), 0 if empty
        self.turn(np.ones(rows, dtype=bool))

    def keep(self, rows: Array) -> None:
        """Continue with only these rows."""
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value[:, rows] if name in self.PAST else value[rows])

    def _blocks(self, rows: int) -> Iterator[slice]:
        return (slice(begin, begin + self.limits.block_rows) for begin in range(0, rows, self.limits.block_rows))

    def evaluate(self, C: Array, rows: Array | slice = slice(None)) -> tuple[Array, Array, Array, Array]:
        """Return the value and gradient of the minimised function at C for these rows, the objective and the slack."""
        shares, width, alpha = self.shares[rows], self.width[rows], self.alpha[rows]
        sums, gradient = np.zeros((3, len(C))), np.empty_like(C)
        weights = 1 if self.mass.factors is None else self.mass.factors
        for part in self._blocks(len(C)):
            negative = self.design.negative_margins(C[part])
            if self.multiplied:
                values, pull, *plain = _rounded_hinge(negative, shares[part], width[part])
            else:
                known = get_loss(self.loss)
                values = logistic_losses(negative)[1] if known.likelihood else known.value(-negative)
                pull, plain = minus_slope(self.loss, negative), [values]
            gradient[part] = self.design.gradient(pull * weights)
            for place, each in enumerate((values, *plain)):
                sums[place, part] = (each * weights).sum(axis=1, dtype=np.float64)
        shrink = alpha[:, None] * self.design.penalized * C
        size = 0.5 * (shrink * C).sum(axis=1)
        return sums[0] + size, gradient + shrink, sums[1] + size, sums[2]

    def advance(self) -> Array:
        """Evaluate one trial point of every row, and return which rows are done."""
        noise = 8 * np.finfo(self.design.signed.dtype).eps
        trial = self.C + self.trial[:, None] * self.direction / self.scale
        found = self.evaluate(trial)
        good = found[0] <= self.value + 1e-4 * self.trial * self.slope + noise * np.abs(self.value)
        stuck = ~good & (self.trial < 1e-6)
        enough = noise if self.multiplied else self.limits.tol**2
        small = (good & (self.value - found[0] <= enough * np.abs(self.value))) | stuck
        # Remember the steps and gradient changes of the accepted rows in scaled coordinates.
        step = np.where(good[:, None], trial - self.C, 0) * self.scale
        change = np.where(good[:, None], found[1] - self.gradient, 0) / self.scale
        bend = (step * change).sum(axis=1)
        curved = bend > 1e-10 * np.sqrt((step**2).sum(axis=1) * (change**2).sum(axis=1))
        self.newest = (self.newest + 1) % len(self.inverse)
        self.steps[self.newest], self.changes[self.newest] = step, change
        self.inverse[self.newest] = np.where(curved, 1 / np.where(curved, bend, 1), 0)
        self.C, self.gradient = np.where(good[:, None], (trial, found[1]), (self.C, self.gradient))
        state = self.value, self.objective, self.slack
        self.value, self.objective, self.slack = np.where(good, (found[0], *found[2:]), state)
        lower = self.objective < self.lowest
        self.best[lower], self.lowest = self.C[lower], np.minimum(self.objective, self.lowest)
        self.trial = np.where(good, 1.0, self.trial * 0.4)
        self.calm = np.where(small, self.calm + 1, np.where(good, 0, self.calm))
        done = self._multiply() if self.multiplied else self.calm >= 3
        done |= ~np.isfinite(found[0]) & stuck
        self.turn(good | stuck)
        return done

    def _multiply(self) -> Array:
        """Update the multipliers of rows that are solved well enough, and return which rows are done.

        A gap is the sum of the slack, the squared gradient divided by twice the penalty, and the correction for a free
        intercept. If the gradient term is small compared with the slack, the multipliers need an update. With factors
        from 0.1 to 2 instead of 0.5, the number of passes on 36 sparse data sets varies by a third.
        """
        penalty, steep = self.alpha[:, None] * self.design.penalized, np.abs(self.gradient)
        weights = self.mass.values.astype(np.float64)
        extra = np.where(penalty > 0, steep**2 / np.where(penalty > 0, 2 * penalty, 1), steep).sum(axis=1)
        enough = 0.01 * self.limits.tol * self.lowest
        ready = np.flatnonzero((extra <= 0.5 * np.maximum(self.slack, enough)) | (self.calm >= 2))
        for rows in (ready[part] for part in self._blocks(len(ready))):
            slopes = _rounded_hinge(self.design.negative_margins(self.C[rows]), self.shares[rows], self.width[rows])[1]
            found = hinge_bounds(self.design.signed, weights, penalty[rows], slopes * weights)
            self.shares[rows], self.bound[rows] = slopes, np.maximum(found, self.bound[rows])
        gap = self.lowest - self.bound
        if ready.size:
            self.width[ready] = np.maximum(0.25 * self.width[ready], WIDTH)
            shrunk = self.gap[ready] - gap[ready] > self.limits.tol**2 * self.lowest[ready]
            self.idle[ready] = np.where(shrunk, 0, self.idle[ready] + 1)
            self.gap[ready], self.calm[ready] = gap[ready], 0
            self.value[ready], self.gradient[ready], _, self.slack[ready] = self.evaluate(self.C[ready], ready)
        return (gap <= enough) | (self.idle >= 10)

    def turn(self, rows: Array) -> None:
        """Set new directions for ``rows`` with the two-loop recursion (Nocedal 1980), using each row's own memory."""
        scaled, newest, size = self.gradient / self.scale, self.newest, len(self.inverse)
        vector, coefficients = scaled.copy(), []
        order = [slot for age in range(size) if self.inverse[slot := (newest - age) % size].any()]
        for slot in order:
            coefficient = self.inverse[slot] * np.einsum("pc,pc->p", self.steps[slot], vector)
            coefficients.append(coefficient)
            vector -= coefficient[:, None] * self.changes[slot]
        curved = np.einsum("pc,pc->p", self.changes[newest], self.changes[newest]) * self.inverse[newest]
        vector *= np.where(curved > 0, 1 / np.where(curved > 0, curved, 1), 1)[:, None]
        for slot, coefficient in zip(reversed(order), reversed(coefficients), strict=True):
            back = self.inverse[slot] * np.einsum("pc,pc->p", self.changes[slot], vector)
            vector += (coefficient - back)[:, None] * self.steps[slot]
        downhill = np.einsum("pc,pc->p", vector, scaled)
        uphill = ~(downhill > 1e-12 * (scaled**2).sum(axis=1))
        vector[uphill] = scaled[uphill]
        self.direction = np.where(rows[:, None], -vector, self.direction)
        self.slope = np.where(rows, -np.where(uphill, (scaled**2).sum(axis=1), downhill), self.slope)

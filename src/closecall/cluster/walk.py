"""Selections: Algorithm 1's steps over partitions, as :mod:`closecall.solvers.steps` takes them.

The end of such a run depends on its path, so the path is that of the in-memory solver: the same majoriser, the same k
at every step, the same windows of ten steps. Every few steps a pass evaluates the gradient of all rows exactly (an
*anchor*): rows far inside the selection are summed, the few around the k-th place gathered, which makes the k-th key
exact. Between anchors the gradient changes as that of a sample does: the error is the sample's error of the *change*,
and the next anchor removes it. If the selected rows fit in one place, they are gathered instead, and the steps are
exact as long as no other row can have come near.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate, take_smallest
from ..losses import get_loss
from ..objective import Problem
from ..schedules import Schedule, decay, first_final_step, last_convex_step
from ..solvers.steps import SMALL_MARGIN, WINDOW, is_steep, share_of_gram, step_curvature, within_reach
from .blocks import Block, Frame
from .draw import Draw
from .looks import Look, Sums, keys_of
from .rest import Asked, Resting, margins_within, seen
from .window import Window

#: Anchors in each third of a run.
ANCHORS = 20
#: An anchor's window holds so many times the rows by which the last prediction was off, and at least this many.
OFF, LEAST_ROWS = 6.0, 1000
#: SignedRows are gathered for the last third where so many times the selected ones fit.
SPARE = 2.0
#: Tries to find the k-th place.
TRIES = 8


@dataclass(frozen=True)
class SignedRows:
    """Rows ``-y * z`` (rows, coordinates) that represent the mass ``total``, and their masses."""

    signed: Array
    mass: Array
    total: float


def rows_of(frame: Frame, block: Block, asked: Asked) -> SignedRows:
    """A sample as rows of one problem."""
    signs = np.where(block.y == asked.label, 1.0, -1.0)
    mass = frame.masses(block.y, block.mass)
    return SignedRows(frame.rows(block.X, signs), mass, float(mass.sum()))


@dataclass
class Stride:
    """The state of a run: coordinates, the next step, and the history of its window of steps."""

    c: Array
    step: int
    eta: float = 1.0
    path: float = 0.0
    count: int = 0
    mark: Array = field(default_factory=lambda: np.empty(0))
    rests: bool = False

    def open(self) -> None:
        self.count, self.path, self.mark = 0, 0.0, self.c.copy()


class Course:
    """One problem's run: its schedule, its majoriser, and the gradient of rows.

    Parameters
    ----------
    asked : Asked
    problem : Problem
    drawn : Draw
        The sample, and the Gram matrix of all rows.
    steps : int
    """

    def __init__(self, asked: Asked, problem: Problem, drawn: Draw, steps: int) -> None:
        self.asked, self.gram, self.steps = asked, drawn.gram, steps
        self.loss, self.decays = get_loss(problem.loss), get_aggregate(problem.aggregate).decays
        self.curvature, self.total = step_curvature(problem.loss), asked.selection.total
        self.steep = is_steep(problem.loss)
        k = asked.selection.k
        self.k_at: Schedule = decay(k, self.total, steps) if self.decays else (lambda step: k)
        self.last = first_final_step(steps)

    def advance(self, stride: Stride, gradient: Array) -> None:
        """Take one step, as :meth:`closecall.solvers.steps._Walk.advance` and ``judge`` do."""
        k, rank = self.k_at(stride.step), len(stride.c)
        share = float(share_of_gram(np.asarray(k), rank, self.total))
        majoriser = self.curvature * share * self.gram + np.diag(self.asked.penalty)
        majoriser[np.diag_indices(rank)] += 1e-14 * np.trace(majoriser) / rank
        move = stride.eta * np.linalg.solve(majoriser, gradient + self.asked.penalty * stride.c)
        if self.steep:
            move *= within_reach(self.length(move), self.length(stride.c), self.total)
        stride.c = stride.c - move
        stride.path += self.length(move)
        stride.count += 1
        if stride.count == WINDOW and (not self.decays or stride.step >= self.last):
            net = self.length(stride.c - stride.mark)
            size = max(self.length(stride.c), SMALL_MARGIN * float(np.sqrt(self.total)))
            stride.eta *= 0.5 if net < 0.5 * stride.path else 1.0
            stride.rests = bool(stride.path <= WINDOW * self.asked.tol * size)
            stride.open()
        elif self.decays and stride.step == self.last - 1:
            stride.open()
        stride.step += 1

    def length(self, move: Array) -> float:
        return float(np.sqrt(max(float(move @ self.gram @ move), 0.0)))

    def gradient(self, rows: SignedRows, c: Array, k: float) -> tuple[Array, float]:
        """Gradient of the selected mass ``k`` among rows that represent ``rows.total``, and the k-th key."""
        margins = -(rows.signed @ c)
        keys = keys_of(self.asked.selection.threshold, self.loss.value(margins))
        share = rows.total / self.total
        weights = take_smallest(keys[None], rows.mass, k * share)[0]
        used = np.flatnonzero(weights)
        pull = -weights[used] * self.loss.slope(margins[used])
        return pull @ rows.signed[used] / share, float(keys[used].max())


def walk(
    asked: Asked, problem: Problem, drawn: Draw, sample: SignedRows, start: Array, steps: int
) -> Generator[Look, Sums, Resting]:
    """Coroutine of one problem; ``start`` is the optimum of the average where the run begins with its path.

    Yields
    ------
    Look
        Receives its :class:`closecall.cluster.looks.Sums`.

    Returns
    -------
    Resting
    """
    course = Course(asked, problem, drawn, steps)
    planted = course.decays and course.loss.convex
    stride = Stride(start, last_convex_step(steps) + 1 if planted else 1)
    stride.open()
    every = max(1, -(-last_convex_step(steps) // ANCHORS))
    last = course.last if course.decays else 0
    place, tried = Place(course, sample), asked.selection.whole
    while stride.step <= steps and not stride.rests:
        if stride.step >= last and not tried:
            tried = yield from _narrowed(course, stride, place)
            continue
        began = stride.step
        exact = (yield from place.look(stride.c, course.k_at(began))).gradient
        off = exact - course.gradient(place.sample, stride.c, course.k_at(began))[0]
        end = min(began + every, steps + 1, last if began < last else steps + 1)
        course.advance(stride, exact)
        while stride.step < end and not stride.rests:
            course.advance(stride, off + course.gradient(place.sample, stride.c, course.k_at(stride.step))[0])
    window = yield from place.look(stride.c, asked.selection.k)
    return replace(seen(window), rests=stride.rests)


class Place:
    """The k-th key: predicted from the sample, corrected by the last pass, exact after a new pass."""

    def __init__(self, course: Course, sample: SignedRows) -> None:
        self.course, self.sample = course, sample
        self.bias, self.wanted = 0.0, course.asked.room / 2

    def predict(self, c: Array, k: float) -> tuple[float, float]:
        """The predicted key and the density of rows around it."""
        edge = self.course.gradient(self.sample, c, k)[1] + self.bias
        return edge, max(density(self.course, self.sample, c, edge, self.course.asked), 1.0)

    def look(self, c: Array, k: float) -> Generator[Look, Sums, Window]:
        """Coroutine: run passes at c until the k-th place of the mass k is among the gathered rows."""
        course = self.course
        asked = replace(course.asked, selection=replace(course.asked.selection, k=k))
        plain = Look(asked.label, c, course.loss.name, asked.selection.threshold, np.inf, np.inf, second=False)
        if asked.selection.whole:
            return Window(plain, (yield plain), asked.selection, asked.penalty)
        predicted, rows = self.predict(c, k)
        reach, edge, below, above = self.wanted / rows / 2, predicted, -np.inf, np.inf
        for _ in range(TRIES):
            high = edge + reach
            margins = margins_within(course.loss, asked.selection.threshold, high)
            look = replace(plain, low=edge - reach, high=high, margins=margins)
            window = Window(look, (yield look), asked.selection, asked.penalty)
            if not window.missing:
                off = abs(window.edge - predicted) * rows
                self.bias += window.edge - predicted
                self.wanted = float(np.clip(OFF * off + 0.3 * self.wanted, LEAST_ROWS, asked.room / 2))
                return window
            below, above = (max(below, high), above) if window.missing > 0 else (below, min(above, look.low))
            wide = max(abs(window.missing) / asked.selection.total * asked.rows / rows, 2 * reach)
            edge = edge + float(np.sign(window.missing)) * wide
            if below > -np.inf and above < np.inf:
                edge, reach = (below + above) / 2, max(reach, (above - below) / 8)
            else:
                reach *= 2
        raise FloatingPointError("the k-th example was not found; scale the features")


def density(course: Course, sample: SignedRows, c: Array, edge: float, asked: Asked) -> float:
    """Estimated density of table rows per unit of the key around ``edge``."""
    keys = keys_of(asked.selection.threshold, course.loss.value(-(sample.signed @ c)))
    near = np.sort(np.abs(keys - edge))
    count = min(max(32, len(near) // 100), len(near))
    return float(count / len(near) * asked.rows / max(2 * near[count - 1], 1e-12))


def _narrowed(course: Course, stride: Stride, place: Place) -> Generator[Look, Sums, bool]:
    """Coroutine: run the last third on the rows nearest the boundary; steps left over use anchors. Returns True.

    If all of them fit, the steps are exact. Otherwise as many as fit are used as a better sample.
    """
    asked = course.asked
    exact = SPARE * asked.taken <= asked.room
    if not exact and SPARE * asked.taken * len(place.sample.mass) / asked.rows >= asked.room:
        return True  # the sample has as many
    while stride.step <= course.steps and not stride.rests:
        near = yield from _near(course, stride.c, place)
        if near is None:
            break
        rows, high = near
        if not exact:
            place.sample, place.bias = rows, 0.0
            break
        center, norms = stride.c.copy(), np.sqrt(np.einsum("ij,ij->i", rows.signed, rows.signed)).max()
        first = stride.step
        while stride.step <= course.steps and not stride.rests:
            gradient, edge = course.gradient(rows, stride.c, asked.selection.k)
            # No other row can have a key below this: margins move by at most the norm of a row times the step.
            far = float(np.linalg.norm(stride.c - center)) * norms
            if stride.step > first and edge + far * _steepest(course) > high:
                break
            course.advance(stride, gradient)
    return True


def _near(course: Course, c: Array, place: Place) -> Generator[Look, Sums, tuple[SignedRows, float] | None]:
    """Coroutine: rows nearest the boundary at c, as many as there is room for, and up to which key; None if k reaches
    those whose loss is constant, which tie."""
    asked = course.asked
    k, threshold = asked.selection.k, asked.selection.threshold
    edge, wide = place.predict(c, k)
    share = min(1.0, asked.room / (SPARE * asked.taken))
    high = edge + (0.9 * SPARE - 1) * max(asked.taken, asked.room / SPARE) / wide
    for _ in range(TRIES):
        margins = margins_within(course.loss, threshold, high)
        sums = yield Look(
            asked.label, c, course.loss.name, threshold, -np.inf, high, margins, share=share, second=False
        )  # fmt: skip
        mass = np.concatenate(sums.gathered_mass) if sums.found else np.empty(0)
        if mass.sum() > k * (1 + 1e-12):
            return SignedRows(np.concatenate(sums.gathered), mass, course.total), high
        if sums.flat.any():
            break
        high += max(abs(high), 0.1)
    return None


def _steepest(course: Course) -> float:
    """A bound on how fast a key changes with the margin: slopes are at most about 1 near the boundary."""
    return float(np.abs(course.loss.slope(np.array([-1.0, 0.0, 0.5]))).max())

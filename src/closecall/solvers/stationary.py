"""Stationary points of close-k on many examples: Newton's steps over a ramp, by sums over the rows alone.

Steps that hold the selection approach the point where they rest slowly: on many examples little penalty is left for
each, and the scores go on growing. Newton's step sees how the selection moves as well. It needs weights that change
continuously, so that the selection has a ramp: the weight of an example falls from its mass to nothing around the k-th
place. Beyond the boundary the ramp is ``width`` wide in the losses; on the right side, where losses are small and
crowded, in their logarithms times T, which is the same at T and narrower elsewhere. The unknowns are the coordinates
and the *place*, minus the logarithm of the smallest loss that is taken: its equation is that the weights sum to k. All
that a step needs are sums over the rows, so that the rows may lie anywhere.

A wide ramp has one such point, or few, and a flow leads to it: steps are those of an implicit Euler scheme in the
metric of the curvature (pseudo-transient continuation), longer as the gradient falls, Newton's in the end. Then the
ramp is narrowed, as in :mod:`closecall.solvers.settle`, to the same last width, with the same certificate. Every width
is solved to many digits, so that where a run ends depends on where it began only through the first.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

import numpy as np

from .._names import Array
from ..losses import Loss
from .certificate import NOTHING
from .tally import PLACES, Aim, Tally, make_aim, place_of, tally

#: The first ramp, and what each is narrowed to; where that is too far, the root of it, so many times.
WIDEST, NARROWING, GENTLER = 1.0, 0.2, 2
#: A ramp that took so few steps is narrowed to the last width at once.
FEW = 4
#: A width is solved when half the squared gradient in the metric of the curvature, and the square of the share by which
#: the weights miss k, are together below this share of the objective: coefficients then have five digits or more.
ENOUGH = 1e-12
#: Steps at one width, and looks at all rows in a run.
STEPS, LOOKS = 60, 60
#: A step that makes this many times more of the residual is taken back, and its time shortened: to this share, and at
#: most to what the curvature notices.
MORE, SHORTER, NOTICED, SHORTEST = 4.0, 0.25, 12.0, 1e-3
#: Times of the first step from afar, from a neighbour's answer, and after the ramp was narrowed.
AFAR, NEARBY, NARROWED = 1.0, 5.0, 1e3
#: Rows that are kept serve until a move has changed the margins, as a root mean square, by this share of how far they
#: reach beyond those that are seen.
NEAR = 0.25
#: A step moves the margins, and the place, by at most these shares of their size; less than 1 counts as it, than 4.
FARTHEST, FARTHEST_PLACE = 0.5, 0.25
_INTO = 1e-6  # how far into the ramp, where it is empty, the next row is let


def held_bound(heights: Array, pulls: Array, across: Array, penalty: Array) -> float:
    """The tangents' lower bound, by sums over the two sides: see :mod:`closecall.solvers.certificate`."""
    factors = np.ones(2)
    if penalty[-1] == 0:  # a free intercept: its pulls have to sum to zero
        factors = pulls.min() / np.where(pulls > 0, pulls, 1.0)
    penalized = penalty > 0
    if not penalized.any():
        return 0.0
    pulled = (factors @ across)[penalized]
    return max(float(factors @ heights - (pulled**2 / 2) @ (1 / penalty[penalized])), 0.0)


@dataclass(frozen=True)
class Goal:
    """A problem: its loss, k, the penalty (coordinates,), tol, and how long a move of the coordinates is.

    ``metric`` (coordinates, coordinates) gives the mean square by which a move changes the margins; ``keep`` says
    whether rows near the boundary may come to one place.
    """

    loss: Loss
    k: float
    penalty: Array
    metric: Array
    tol: float
    keep: bool = True

    def length(self, move: Array) -> float:
        return float(np.sqrt(max(float(move @ self.metric @ move), 0.0)))


@dataclass(frozen=True)
class Seen:
    """What a look at all rows brings home: the sums, and the rows that were kept with their masses."""

    sums: Tally
    rows: Array | None = None
    mass: Array | None = None


@dataclass(frozen=True)
class Point:
    """Coordinates and place, what is seen there, and how far it is from stationary."""

    c: Array
    place: float
    sums: Tally
    residual: float

    def value(self, goal: Goal) -> float:
        """The objective."""
        return self.sums.value + 0.5 * float(goal.penalty @ self.c**2)

    def gap(self, goal: Goal) -> float:
        """The certificate for these weights, as a share of the objective."""
        sums, value = self.sums, self.value(goal)
        bound = held_bound(sums.heights, sums.pulls, sums.across, goal.penalty)
        gap = (value - bound) / max(value, NOTHING * goal.loss.threshold * goal.k)
        return float(np.clip(gap, 0.0, 1.0)) if np.isfinite(gap) else 1.0


Looking = Generator[Aim, Seen, "Point | None"]


@dataclass
class Search:
    """One run over all rows; coroutines yield aims and receive what is :class:`Seen`."""

    goal: Goal
    looks: int = 0
    steps: int = 0
    center: Array | None = None
    rows: Array | None = None
    mass: Array = field(default_factory=lambda: np.empty(0))

    def run(self, c: Array, place: float) -> Looking:
        """Coroutine: a certified point, near c if the widest ramp has one there; None if none was found."""
        goal, width, narrowing, gentler = self.goal, WIDEST, NARROWING, 0
        point = yield from self.stage(c, place, width, NEARBY, confirm=False)
        while point is not None:
            last = 2 * goal.tol * point.value(goal) / goal.k
            if width <= last and point.sums.full:
                return point if point.gap(goal) <= goal.tol else None
            narrower, before = max(width * narrowing, min(0.9 * last, width)), self.steps
            place = self._place(point, narrower)
            self.center = None  # a narrower ramp has fewer rows
            following = yield from self.stage(point.c, place, narrower, NARROWED, confirm=narrower <= last)
            if following is not None:
                # Where nothing moved, nothing will: the last width is next.
                point, width, gentler = following, narrower, 0
                narrowing = NARROWING if self.steps - before > FEW else 0.0
            elif gentler == GENTLER:
                return None
            else:
                narrowing, gentler = float(np.sqrt(max(narrowing, NARROWING**2))), gentler + 1
        return None

    def _place(self, point: Point, width: float) -> float:
        """The place at another width, by the rows that are kept; as it was without them."""
        if self.rows is None:
            return point.place
        losses = self.goal.loss.value(-(self.rows @ point.c))
        found = place_of(self.goal.loss, losses, self.mass, self.goal.k, width)
        return point.place if found is None else found

    def stage(self, c: Array, place: float, width: float, time: float, confirm: bool = True) -> Looking:
        """Coroutine: the stationary point of one ramp, by all rows if it is to be confirmed."""
        best, inverse, here = None, 1.0, (yield from self._see(c, place, width))
        for _ in range(STEPS):
            if not np.isfinite(here.residual):
                return None
            if here.residual <= ENOUGH:
                if here.sums.full or not confirm:
                    return here
                best, here = None, (yield from self._see(here.c, here.place, width, fresh=True))
                continue
            if best is not None and here.residual > MORE * best.residual and time > SHORTEST:
                time = SHORTER * min(1 / inverse, NOTICED)
            else:
                if best is not None:
                    time *= float(np.clip(1.5 * np.sqrt(best.residual / here.residual), 0.5, 30.0))
                best = here
            move, shift, inverse = self._step(best, time)
            if not (np.isfinite(move).all() and np.isfinite(shift)) or self.looks >= LOOKS:
                return None
            here = yield from self._see(best.c + move, best.place + shift, width)
        return None

    def _see(self, c: Array, place: float, width: float, fresh: bool = False) -> Generator[Aim, Seen, Point]:
        goal = self.goal
        place = float(np.clip(place, *PLACES))
        aim = make_aim(goal.loss, c, place, width, goal.keep)
        far = 0.0 if aim.kept is None else NEAR * (aim.kept[1] - aim.seen[1])
        if self.rows is not None and not fresh and self.center is not None and goal.length(c - self.center) <= far:
            rows = self.rows
            sums = replace(tally(goal.loss, aim, -(rows @ c), self.mass, lambda some: rows[some]), full=False)
            return self._point(c, place, sums)
        self.looks += 1
        self.rows = None  # the old ones make room first
        seen = yield aim
        self.rows, self.center = seen.rows, c
        self.mass = np.empty(0) if seen.mass is None else seen.mass
        return self._point(c, place, seen.sums)

    def _point(self, c: Array, place: float, sums: Tally) -> Point:
        self.steps += 1
        goal = self.goal
        gradient = sums.gradient + goal.penalty * c
        found = Point(c, place, sums, 0.0)
        decrement = 0.5 * float(gradient @ _solve(self._held(sums), gradient))
        residual = decrement / max(found.value(goal), 1e-300) + ((sums.mass - goal.k) / goal.k) ** 2
        return replace(found, residual=residual)

    def _held(self, sums: Tally) -> Array:
        held = sums.held + np.diag(self.goal.penalty)
        return held + (1e-10 * np.trace(held) / len(held) + 1e-300) * np.eye(len(held))

    def _step(self, point: Point, time: float) -> tuple[Array, float, float]:
        """An implicit step of the flow: moves of the coordinates and of the place, and the inverse of its time."""
        goal, sums, held = self.goal, point.sums, self._held(point.sums)
        right, matrix, missing = sums.gradient + goal.penalty * point.c, held, sums.mass - goal.k
        if sums.mass_by_place > 0:
            matrix = held + sums.moved - np.outer(sums.by_place, sums.mass_by_c) / sums.mass_by_place
            right = right - sums.by_place * (missing / sums.mass_by_place)
        # Where the flow grows, a long implicit step would go backwards.
        slowest = float(np.linalg.eigvals(_solve(held, matrix)).real.min()) if np.isfinite(matrix).all() else np.nan
        inverse = max(1 / time, -1.5 * slowest)
        move = -_solve(inverse * held + matrix, right)
        move *= min(1.0, FARTHEST * max(goal.length(point.c), 1.0) / max(goal.length(move), 1e-300))
        if sums.mass_by_place > 0:
            shift = -(missing + float(sums.mass_by_c @ move)) / sums.mass_by_place
        elif abs(missing) <= 1e-9 * goal.k:
            shift = 0.0
        else:  # no row is on the ramp: the next one is let in
            shift = min(sums.up, 1.0) + _INTO if missing < 0 else -min(sums.down, 1.0) - _INTO
        far = FARTHEST_PLACE * max(abs(point.place), 4.0)
        return move, float(np.clip(shift, -far, far)), inverse


def _solve(matrix: Array, right: Array) -> Array:
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return np.full(right.shape, np.nan)

"""Stationary points of close-k on many examples: Newton steps over a ramp, using only sums over the rows.

Steps with a fixed selection converge slowly: on many examples there is little penalty for each, and the scores keep
growing. A Newton step also accounts for the change of the selection. It needs weights that change continuously, so the
selection has a ramp: the weight of an example falls from its mass to nothing around the k-th place. Beyond the boundary
the ramp is ``width`` wide in the losses; on the right side, where losses are small and crowded, in their logarithms
times T, which is the same at T and narrower elsewhere. The unknowns are the coordinates and the *place*, minus the
logarithm of the smallest selected loss: its equation is that the weights sum to k. A step needs only sums over the
rows, which may be stored anywhere.

A wide ramp has one such point, or few, and a flow leads to it: steps are those of an implicit Euler scheme in the
metric of the curvature (pseudo-transient continuation), longer as the gradient falls. Rows are nearly as dense on one
side of an edge as on the other, so gains and losses nearly cancel: in some directions the selection moves with the
coordinates and little pulls them back. There the length of a step is limited to a multiple of a step with a fixed
selection. Then the ramp is narrowed, as in :mod:`closecall.solvers.settle`, to the same last width.

A point is certified for the weights of the last width. Tangents may touch anywhere: they touch where a Newton step with
these weights would end. The gap is then about what that step would gain, and a point need not be stationary to many
digits to be certified.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace

import numpy as np

from .._names import Array
from ..losses import Loss
from .certificate import NOTHING
from .tally import PLACES, Aim, Tally, add_rows, in_cache, make_aim, place_of

#: The first ramp, and what each is narrowed to; where that is too far, the root of it, so many times.
WIDEST, NARROWING, GENTLER = 1.0, 0.2, 2
#: A width is solved when half the squared gradient in the metric of the curvature, and the square of the share by which
#: the weights miss k, are together below this share of tol, as a share of the objective.
ROUGH = 0.5
#: What a step takes the flow's rate to be at least, where one that holds the selection has 1.
FLOOR = 0.12
#: The last width, in terms of the ramp that costs tol; what the residual there may be, in tol, to look at all rows.
LAST, SURE = 1.8, 0.9
#: How near k weights have to be there, and in how many looks.
EXACT, PLACED = 1e-5, 30
#: Maximum steps at one width, and passes over all rows in a run.
STEPS, LOOKS = 60, 60
#: A step that makes this many times more of the residual is taken back, and its time shortened: to this share, and at
#: most to what the curvature notices.
MORE, SHORTER, NOTICED, SHORTEST = 4.0, 0.25, 12.0, 1e-3
#: Times of the first step from afar, from a neighbour's answer, and after the ramp was narrowed.
AFAR, NEARBY, NARROWED = 1.0, 10.0, 1e3
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
    """The result of a pass over all rows: the sums, and the kept rows with their masses."""

    sums: Tally
    rows: Array | None = None
    mass: Array | None = None


@dataclass(frozen=True)
class Point:
    """Coordinates and place, the sums there, and the distance from stationarity."""

    c: Array
    place: float
    sums: Tally
    residual: float

    def value(self, goal: Goal) -> float:
        """The objective."""
        return self.sums.value + 0.5 * float(goal.penalty @ self.c**2)

    def gap(self, goal: Goal) -> float:
        """The certificate for these weights, as a share of the objective: by tangents where they touch."""
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
    reach: tuple[float, float] = (0.0, 0.0)
    rows: Array | None = None
    mass: Array = field(default_factory=lambda: np.empty(0))

    def run(self, c: Array, place: float, width: float = WIDEST) -> Looking:
        """Coroutine: a certified point, near c if the first ramp has one there; None if none was found."""
        goal, narrowing, gentler, enough = self.goal, NARROWING, 0, ROUGH * self.goal.tol
        point = yield from self.stage(c, place, width, NEARBY, enough)
        if point is None and width < WIDEST:
            width = WIDEST
            point = yield from self.stage(c, place, width, NEARBY, enough)
        while point is not None:
            last = LAST * goal.tol * point.value(goal) / goal.k
            end = yield from self._end(point, min(last, width))
            if end is not None:
                return end
            if width <= last:
                return None
            following = yield from self.narrow(point, max(width * narrowing, last), enough)
            if following is not None:
                point, width, gentler = following, max(width * narrowing, last), 0
            elif gentler == GENTLER:
                return None
            else:
                narrowing, gentler = float(np.sqrt(narrowing)), gentler + 1
        return None

    def _end(self, point: Point, width: float) -> Looking:
        """Coroutine: the same coordinates at the last width, if they are certified on all rows.

        Tangents touch where a Newton step with the weights held would end: there the bound is nearly the minimum.
        """
        goal, place = self.goal, self._placed(point.c, point.place, width) or point.place
        touch, look, tried = None, False, {}
        for _ in range(PLACED):
            if look:
                self.center = None  # all rows are to say it
            found = yield from self._see(point.c, place, width, touch=touch)
            sums, missing = found.sums, goal.k - found.sums.mass
            if abs(missing) > EXACT * goal.k:
                tried[found.place] = missing
                place = self._placed(point.c, found.place, width) or found.place
                if place in tried:  # no rows are kept, or they say nothing new
                    place = _between(tried, point.sums.mass_by_place)  # few rows are on the last ramp
                continue
            if found.residual > SURE * goal.tol:
                return None
            gap = np.inf if touch is None else found.gap(goal)
            if gap <= goal.tol and sums.full:
                return found
            # The first touch is nearly always enough; others are tried on the rows that are kept.
            look = touch is None or gap <= SURE * goal.tol
            if gap > SURE * goal.tol:
                gradient = sums.gradient if touch is None else sums.across.sum(axis=0)
                touch = point.c if touch is None else touch
                touch = touch - _solve(self._held(sums), gradient + goal.penalty * touch)
        return None

    def _placed(self, c: Array, place: float, width: float) -> float | None:
        """The place at which the weights of the kept rows sum to k; None if no rows are kept."""
        if self.rows is None:
            return None
        losses = self.goal.loss.value(-(self.rows @ c))
        return place_of(self.goal.loss, losses, self.mass, self.goal.k, width, place)

    def narrow(self, point: Point, width: float, enough: float) -> Looking:
        """Coroutine: the stationary point of a narrower ramp, from that of a wider one."""
        goal, place = self.goal, point.place
        if self.rows is not None:
            margins = -(self.rows @ point.c)
            place = place_of(goal.loss, goal.loss.value(margins), self.mass, goal.k, width, place) or place
            aim = make_aim(goal.loss, point.c, place, width, keep=True)
            if self._serves(aim) and aim.kept is not None:  # it has fewer rows, and those that are kept hold them
                kept = np.flatnonzero((margins > aim.kept[0]) & (margins < aim.kept[1]))
                rows = self.rows[: len(kept)]
                for some in in_cache(*rows.shape):  # in place: there may be no room for two
                    rows[some] = self.rows.take(kept[some], axis=0)
                self.rows, self.mass = rows, self.mass[kept]
                self.reach, self.center = aim.kept, point.c
        return (yield from self.stage(point.c, place, width, NARROWED, enough))

    def stage(self, c: Array, place: float, width: float, time: float, enough: float) -> Looking:
        """Coroutine: the stationary point of one ramp, whose residual is small enough."""
        best, inverse, here = None, 1.0, (yield from self._see(c, place, width))
        for _ in range(STEPS):
            if not np.isfinite(here.residual):
                return None
            if here.residual <= enough:
                return here
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

    def _see(self, c: Array, place: float, width: float, touch: Array | None = None) -> Generator[Aim, Seen, Point]:
        goal, place = self.goal, float(np.clip(place, *PLACES))
        aim = make_aim(goal.loss, c, place, width, goal.keep, touch)
        if self.rows is not None and self._serves(aim):
            sums = replace(Tally.zero(len(c)), full=False)
            for some in in_cache(*self.rows.shape):
                add_rows(sums, goal.loss, aim, self.rows[some], self.mass[some])
            return self._point(c, place, sums)
        self.looks += 1
        self.rows, self.mass = None, np.empty(0)  # the old ones make room first
        seen = yield aim
        self.rows, self.center, self.reach = seen.rows, c, aim.kept or aim.seen
        self.mass = np.empty(0) if seen.mass is None else seen.mass
        return self._point(c, place, seen.sums)

    def _serves(self, aim: Aim) -> bool:
        """Whether the kept rows contain all rows relevant to a request."""
        if self.center is None:
            return False
        spare = min(aim.seen[0] - self.reach[0], self.reach[1] - aim.seen[1])
        # A change of scale alone moves no row further than in proportion to its margin.
        goal, c, move = self.goal, self.center, aim.c - self.center
        along = float(c @ goal.metric @ move) / max(goal.length(c) ** 2, 1e-300)
        far = abs(along) * max(abs(self.reach[0]), abs(self.reach[1])) + goal.length(move - along * c) / NEAR
        return far <= spare

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
        """An implicit step of the flow: changes of the coordinates and of the place, and the inverse step length."""
        goal, sums, held = self.goal, point.sums, self._held(point.sums)
        right, matrix, missing = sums.gradient + goal.penalty * point.c, held, sums.mass - goal.k
        if sums.mass_by_place > 0:
            matrix = held + sums.moved - np.outer(sums.by_place, sums.mass_by_c) / sums.mass_by_place
            right = right - sums.by_place * (missing / sums.mass_by_place)
        inverse, move = 1 / time, np.full(len(right), np.nan)
        if np.isfinite(matrix).all():  # where the flow grows, its own rate would lead backwards
            rates, directions = np.linalg.eig(_solve(held, matrix))
            rates = np.abs(rates.real) + 1j * rates.imag + max(inverse, FLOOR)
            move = -(directions @ (_solve(directions, _solve(held, right)) / rates)).real
        move *= min(1.0, FARTHEST * max(goal.length(point.c), 1.0) / max(goal.length(move), 1e-300))
        if sums.mass_by_place > 0:
            shift = -(missing + float(sums.mass_by_c @ move)) / sums.mass_by_place
        elif abs(missing) <= 1e-9 * goal.k:
            shift = 0.0
        else:  # no row is on the ramp: the next one is let in
            shift = min(sums.up, 1.0) + _INTO if missing < 0 else -min(sums.down, 1.0) - _INTO
        far = FARTHEST_PLACE * max(abs(point.place), 4.0)
        return move, float(np.clip(shift, -far, far)), inverse


def _between(tried: dict[float, float], change: float) -> float:
    """The next place to try, from earlier places and the mass missing at each; with few rows, mass changes in jumps."""
    low = max((place for place, missing in tried.items() if missing > 0), default=None)
    high = min((place for place, missing in tried.items() if missing <= 0), default=None)
    if low is None or high is None:
        place, missing = list(tried.items())[-1]
        step = max(abs(missing) / change if change > 0 else 0.0, _INTO * 8 ** len(tried))
        return place + float(np.copysign(min(step, 0.1), missing))
    share = 0.5 if len(tried) % 3 == 2 else tried[low] / (tried[low] - tried[high])
    return low + (high - low) * share


def _solve(matrix: Array, right: Array) -> Array:
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return np.full(right.shape, np.nan)

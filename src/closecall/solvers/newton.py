"""Second-order steps for the convex phase: Newton for the logistic loss, an interior point for the hinge.

Where a Hessian is cheap, a dozen Newton steps replace hundreds of gradient steps, however small alpha is. The hinge has
no Hessian, but its average is a quadratic program: a primal-dual interior point solves it with the same weighted Gram
matrices and the duality gap shows how far away the optimum still is. All problems of one loss and fold advance
together: arrays are (problems, samples) and (problems, coordinates), margins are updated, not recomputed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .._names import Array
from .certificate import Judged

#: Entries of the design up to which second-order steps pay: their vectors are float64 and every Gram costs rank passes.
LARGEST_DESIGN = 1 << 22
LARGEST_RANK = 256
_GAP, _PATIENCE, _INNERMOST = 1e-8, 8, 1e-14  # of the interior point, in double precision
#: The least curvature of a row, and after a step that had to be this short: far out there is none left to go by.
_FLATTEST, _DAMPED, _SHORT = 1e-12, 1e-4, 1 / 64
#: A Newton run's last matrix serves again where its decrement has fallen to this share of the one before.
_KEPT = 0.05
_STRAIGHT = 0.5  # a margin that moves by less has less than twice its curvature all the way
_GRAM_BLOCK = 1 << 16  # entries of a weighted block of rows: it stays in cache

Beat = Callable[[int], None]
Found = tuple[Array, Array, Array, Array]  # coordinates, passes used, snapshots, lower bounds of the minima


def grams(rows: Array, weights: Array) -> Array:
    """``rows' diag(weights) rows`` for every row of weights: (problems, coordinates, coordinates), float64."""
    rank = rows.shape[1]
    size = max(rank, _GRAM_BLOCK // max(1, rank))
    found = np.zeros((len(weights), rank, rank))
    roots = np.sqrt(weights)
    for begin in range(0, len(rows), size):
        block = rows[begin : begin + size]
        for gram, root in zip(found, roots[:, begin : begin + size], strict=True):
            scaled = root[:, None] * block
            gram += scaled.T @ scaled
    return found


def _solve(matrices: Array, diagonal: Array, right: Array) -> Array:
    """Solve (matrix + diagonal) x = right for every problem, slightly damped where there is no curvature.

    Scaled to a unit diagonal first: features without a common scale span more than the float's digits.
    """
    places = np.arange(matrices.shape[1])
    heights = matrices[:, places, places] + diagonal
    scale = 1 / np.sqrt(np.where(heights > 0, heights, 1.0))
    matrices = matrices * scale[:, :, None] * scale[:, None, :]
    matrices[:, places, places] = 1 + 1e-14
    return scale * np.linalg.solve(matrices, (scale * right)[:, :, None])[:, :, 0]


class Book:
    """Tracks which problems are still running, and their state when they stopped and at the snapshot."""

    def __init__(self, start: Array, passes: int, snapshot: int | None, folds: bool = False) -> None:
        self.folds = folds
        self.final, self.snapshots = start.copy(), start.copy()
        self.used, self.bounds = np.full(len(start), passes), np.zeros(len(start))
        self.active, self.snapshot = np.arange(len(start)), snapshot

    def note(self, number: int, C: Array, done: Array) -> Array:
        """Record this pass; returns the positions that continue."""
        self.final[self.active] = C
        if number == self.snapshot:
            self.snapshots[:] = self.final
        self.used[self.active[done]] = number
        self.active = self.active[~done]
        return np.flatnonzero(~done)

    def product(self, part: Array, matrix: Array) -> Array:
        """``part @ matrix`` of the running problems.

        The rounding of a product depends on its number of rows. If problems of several folds run together, all of them
        stay in it to the end; otherwise the labels of one fold would affect the last digits of another.
        """
        if not self.folds or len(part) == len(self.final):
            return part @ matrix
        whole = np.zeros((len(self.final), part.shape[1]), dtype=part.dtype)
        whole[self.active] = part
        return (whole @ matrix)[self.active]

    def close(self, number: int) -> Found:
        if self.snapshot is not None and number < self.snapshot:
            self.snapshots[:] = self.final
        return self.final, self.used, self.snapshots, self.bounds


def newton_logistic(
    rows: Array, mass: Array, penalty: Array, start: Array, *, passes: int, tol: float, snapshot: int | None, beat: Beat
) -> Found:
    """Average logistic problems by Newton steps with a line search along the margins.

    Parameters
    ----------
    rows : array (samples, coordinates)
        ``-y * z``, as in a design.
    mass : array (samples,) or (problems, samples)
        One for all problems, or one each, in which case problems of several folds step together.
    penalty : array (problems, coordinates)
        alpha where it applies.
    start : array (problems, coordinates)
    passes, tol, snapshot, beat
        As in :func:`closecall.solvers.convex.minimize`.

    Examples
    --------
    >>> rows, ones = np.array([[-1.0], [-1.0], [1.0]]), np.ones((1, 1))
    >>> settings = {"passes": 50, "tol": 1e-6, "snapshot": None, "beat": lambda number: None}
    >>> found = newton_logistic(rows, np.ones(3), 0 * ones, ones, **settings)
    >>> found[0].round(6).tolist()  # log 2: two for, one against
    [[0.693147]]
    """
    book, C, kind = Book(start, passes, snapshot, mass.ndim > 1), start, rows.dtype
    # Minus margins, in the type of the rows like all that has their length; rows that start alike share theirs.
    alike = len(C) > 1 and mass.ndim == 1 and bool((C[0] == C).all())
    margins = (C[:1] if alike else C).astype(kind) @ rows.T
    hessians = _Hessians(rows, mass.astype(kind), len(C))
    flat, losses = _logistic(margins, mass)
    value = losses + 0.5 * (penalty * C**2).sum(axis=1)
    enough = max(tol**2, 8 * float(np.finfo(kind).eps))
    number, least = 1, np.full((len(C), 1), _FLATTEST, dtype=kind)
    for number in range(1, passes + 1):
        share = 1 / (1 + flat)
        gradient = book.product(np.exp(np.minimum(margins, 0)) * share * hessians.light, rows) + penalty * C
        step, fall = hessians.step(flat * share * share, least, penalty, gradient, tol * value)
        near = -fall <= 2 * enough * value
        along = book.product(step.astype(kind), rows.T)
        t, margins, flat, reached = _line_search(along, margins, flat, C, step, penalty, mass, value, fall, near)
        C = C + t[:, None] * step
        kept = book.note(number, C, near | (t == 0))
        beat(number)
        if not kept.size:
            break
        C, margins, flat, penalty, value = C[kept], margins[kept], flat[kept], penalty[kept], reached[kept]
        least = np.where(t[kept] < _SHORT, _DAMPED, _FLATTEST)[:, None].astype(kind)
        hessians.keep(kept, t)
        mass = _own(mass, kept)
    return book.close(number)


class _Hessians:
    """Weighted Gram matrices (problems, coordinates, coordinates) of a Newton run, kept while their steps remain good.

    A matrix costs as much as several gradients. That of the last step is reused if its decrement has fallen to a small
    share of the last one, and if the gradient that such a step would leave is small enough for the certificate, which
    divides its square by alpha.
    """

    def __init__(self, rows: Array, light: Array, problems: int) -> None:
        self.rows, self.light = rows, light
        self.matrices, self.before = np.empty((problems, 0, 0)), np.zeros(problems)

    def step(self, bend: Array, least: Array, penalty: Array, gradient: Array, allowed: Array) -> tuple[Array, Array]:
        """Steps (problems, coordinates) for curvatures (problems, samples), or one row for all, and their falls.

        ``allowed`` (problems,) is what the certificate may leave of each objective.
        """
        if self.matrices.size:
            step = -_solve(self.matrices, penalty, gradient)
            left = _KEPT * (gradient**2 / np.where(penalty > 0, 2 * penalty, np.inf)).sum(axis=1)
            good = (-(gradient * step).sum(axis=1) <= _KEPT * self.before) & (left <= allowed)
            stale = np.flatnonzero(~good)
        else:
            stale, self.matrices = np.arange(len(bend)), np.empty((len(penalty), *[len(gradient.T)] * 2))
            step = np.empty_like(gradient)
        if stale.size:
            found = grams(self.rows, np.maximum(bend[stale], least[stale]) * _own(self.light, stale))
            if len(bend) < len(penalty):  # one row for all
                stale, found = np.arange(len(penalty)), np.broadcast_to(found, self.matrices.shape)
            self.matrices[stale] = found
            step[stale] = -_solve(found, penalty[stale], gradient[stale])
        fall = (gradient * step).sum(axis=1)
        self.before = -fall
        return step, fall

    def keep(self, kept: Array, t: Array) -> None:
        """Continue with these problems; after a shortened step the old matrix is discarded."""
        self.matrices, self.before = self.matrices[kept], np.where(t[kept] == 1, self.before[kept], 0.0)
        self.light = _own(self.light, kept)


def _own(mass: Array, problems: Array) -> Array:
    """The masses of these problems; a single row is shared by all."""
    return mass if mass.ndim == 1 else mass[problems]


def _logistic(margins: Array, mass: Array) -> tuple[Array, Array]:
    """``exp(-|margins|)`` (problems, samples) and the summed losses (problems,) of minus margins."""
    flat = np.exp(-np.abs(margins))
    losses = log_of_one_and(flat)
    losses += np.maximum(margins, 0)
    losses = losses.astype(np.float64, copy=False)
    return flat, losses @ mass if mass.ndim == 1 else np.einsum("ps,ps->p", losses, mass)


def log_of_one_and(small: Array) -> Array:
    """``log(1 + small)`` to the last digits, four times as fast as ``np.log1p`` where that has no vector form.

    The rounding error of the sum is known exactly, and is added back with the slope of the logarithm.

    Examples
    --------
    >>> log_of_one_and(np.array([1e-30, 1.0])).tolist()
    [1e-30, 0.6931471805599453]
    """
    near = 1 + small
    lost = small - (near - 1)
    lost /= near
    found = np.log(near, out=near)
    found += lost
    return found


def _line_search(
    along: Array, margins: Array, flat: Array, C: Array, step: Array, penalty: Array, mass: Array, value: Array,
    fall: Array, near: Array,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """The largest of 1, 1/2, 1/4 ... that lowers each objective enough; 0 if only rounding error remains.

    Also returns the margins, their exponentials and the objectives there, which the next step reuses. A problem that is
    ``near`` its optimum, and moves no margin far enough to double its curvature, cannot increase its objective: it
    takes the whole step without further evaluation. ``along`` is the change of the negative margins per unit step.
    """
    t = np.where(near & (np.abs(along).max(axis=1) <= _STRAIGHT), 1.0, 0.0)
    waiting, trial, reached = np.flatnonzero(t == 0), 1.0, value.copy()
    if not waiting.size:
        return t, margins, flat, reached
    if len(margins) < len(C):
        margins, flat = (np.broadcast_to(part, along.shape) for part in (margins, flat))
    there = np.empty_like(along), np.empty_like(along)  # who stays without a step leaves, and asks for neither
    for _ in range(40):
        whole = len(waiting) == len(C)
        line = margins + along if whole else margins[waiting] + along[waiting]
        bent, losses = _logistic(line, _own(mass, waiting))
        moved = C[waiting] + trial * step[waiting]
        found = losses + 0.5 * (penalty[waiting] * moved**2).sum(axis=1)
        good = found <= value[waiting] + 1e-4 * trial * fall[waiting]
        if whole and good.all():
            return np.full(len(C), trial), line, bent, found
        t[waiting[good]], reached[waiting[good]] = trial, found[good]
        there[0][waiting[good]], there[1][waiting[good]] = line[good], bent[good]
        waiting, trial = waiting[~good], trial / 2
        if not waiting.size:
            break
        along *= 0.5
    return t, *there, reached


def interior_hinge(
    rows: Array, mass: Array, penalty: Array, start: Array, *, passes: int, tol: float, snapshot: int | None, beat: Beat
) -> Found:
    """Average hinge problems by a primal-dual interior-point method (Mehrotra's predictor-corrector).

    min 1/2 w'Pw + c'xi with xi >= 0 and slack s = m + xi - 1 >= 0 has multipliers a for s and c - a for xi, and the
    optimum has Pw = sum of a * y * z, a * s = 0 and (c - a) * xi = 0. Eliminating all but w leaves one system with a
    weighted Gram matrix a step (Ferris & Munson 2002). Parameters as in :func:`newton_logistic`; every mass is
    positive. The best point so far is kept, so more passes never end higher.

    Examples
    --------
    >>> rows, ones = np.array([[-1.0], [-2.0], [1.0]]), np.ones((1, 1))
    >>> settings = {"passes": 50, "tol": 1e-6, "snapshot": None, "beat": lambda number: None}
    >>> interior_hinge(rows, np.ones(3), 1e-3 * ones, ones, **settings)[0].round(4).tolist()
    [[0.5]]
    """
    book = Book(start, passes, snapshot)
    C, best, lowest = start, start.copy(), np.full(len(start), np.inf)
    margins = -(C @ rows.T)
    inner = _centered(margins - 1, mass)
    least, idle, number = np.full(len(C), np.inf), np.zeros(len(C), dtype=int), 1
    for number in range(1, passes + 1):
        value = np.maximum(1 - margins, 0) @ mass + 0.5 * (penalty * C**2).sum(axis=1)
        better = value < lowest
        best[better], lowest = C[better], np.minimum(value, lowest)
        off = penalty * C + inner[2] @ rows  # the dual residual; rows are -y * z
        gap = (inner[2] * inner[0] + inner[3] * inner[1]).sum(axis=1) + np.abs(off * C).sum(axis=1)
        idle = np.where(gap < 0.9 * least, 0, idle + 1)  # a gap that no longer shrinks has met rounding
        least = np.fmin(gap, least)
        enough = max(tol**2, _GAP) * np.maximum(lowest, max(tol, 1e-6) * mass.sum())
        done = (gap <= enough) | ((idle >= _PATIENCE) & (gap <= 1e-5 * mass.sum()))
        ending = done | (number == passes)
        if ending.any():
            book.bounds[book.active[ending]] = hinge_bounds(rows, mass, penalty[ending], inner[2][ending])
        kept = book.note(number, best, done)
        beat(number)
        if not kept.size:
            break
        C, best, lowest, least, idle, penalty = (a[kept] for a in (C, best, lowest, least, idle, penalty))
        C, inner = _interior_step(rows, penalty, C, inner[:, kept], off[kept])
        margins = -(C @ rows.T)
        inner[1] = inner[0] - (margins - 1)  # holds s = m + xi - 1 against rounding
        np.maximum(inner, _INNERMOST, out=inner)  # far from denormal numbers, which are slow
    return book.close(number)


def hinge_bounds(rows: Any, mass: Array, penalty: Array, dual: Array) -> Array:
    """Lower bounds (problems,) of average hinge problems by points (problems, samples) of their dual.

    ``sum a - sum_j (sum a * rows_j)^2 / (2 penalty_j)`` for any 0 <= a <= mass; where nothing penalises a coordinate
    its sum has to be zero, so the heavier side is scaled down. Only the last coordinate is repaired: at alpha = 0,
    where no coordinate has a penalty, the bound is 0.

    Examples
    --------
    >>> rows, half = np.array([[-1.0, 1.0], [-1.0, -1.0]]), np.full((1, 2), 0.5)
    >>> hinge_bounds(rows, np.ones(2), np.array([[1.0, 0.0]]), half).tolist()
    [0.5]
    """
    dual = np.clip(dual, 0, mass)
    last = rows[:, -1] if isinstance(rows, np.ndarray) else rows[:, [-1]].toarray()[:, 0]
    if (penalty[:, -1] == 0).any():
        ahead, behind = dual @ np.maximum(last, 0), dual @ np.maximum(-last, 0)
        least = np.minimum(ahead, behind)
        sides = [np.where(side > 0, least / np.where(side > 0, side, 1), 0)[:, None] for side in (ahead, behind)]
        free = penalty[:, -1:] == 0
        dual = dual * np.where(free, np.where(last > 0, sides[0], np.where(last < 0, sides[1], 1)), 1)
    across = Judged(rows, last, "none").sums(dual) ** 2
    across[:, -1] *= penalty[:, -1] > 0
    bound = dual.sum(axis=1) - (across / (2 * np.where(penalty > 0, penalty, 1e-300))).sum(axis=1)
    return np.where(bound > 0, bound, 0.0)


def _centered(beyond: Array, mass: Array) -> Array:
    """The four positive variables (4, problems, samples): s, xi, a and c - a, for margins ``1 + beyond``.

    They lie on the central path, a * s = (c - a) * xi = mu with mu the mean mass: the root of a quadratic equation.
    """
    mu = mass.mean()
    width = np.hypot(2 * mu / mass, beyond)
    slack, short = (2 * mu / mass + width + beyond) / 2, (2 * mu / mass + width - beyond) / 2
    return np.stack([slack, short, mu / slack, mu / short])


def _interior_step(rows: Array, penalty: Array, C: Array, inner: Array, off: Array) -> tuple[Array, Array]:
    """One predictor-corrector step of every problem."""
    slack, short, dual, rest = inner
    spread = slack / dual + short / rest
    matrices = grams(rows, 1 / spread)
    mean = (dual * slack + rest * short).sum(axis=1, keepdims=True) / (2 * slack.shape[1])

    def direction(target: Array | float, bend_a: Array | float, bend_b: Array | float) -> tuple[Array, Array]:
        first, second = (target - bend_a) / dual - slack, (target - bend_b) / rest - short
        wanted = (first - second) / spread
        step = _solve(matrices, penalty, -(wanted @ rows) - off)
        change = wanted + (step @ rows.T) / spread
        return step, np.stack([first - slack / dual * change, second + short / rest * change, change, -change])

    def longest(moves: Array) -> Array:
        return 1 / np.maximum((-moves / inner).max(axis=(0, 2)), 1.0)[:, None]

    _, moves = direction(0.0, 0.0, 0.0)
    aimed = inner + longest(moves) * moves
    left = (aimed[2] * aimed[0] + aimed[3] * aimed[1]).sum(axis=1, keepdims=True) / (2 * slack.shape[1])
    step, moves = direction((left / mean) ** 3 * mean, moves[2] * moves[0], moves[3] * moves[1])
    far = 0.995 * longest(moves)
    return C + far * step, inner + far * moves

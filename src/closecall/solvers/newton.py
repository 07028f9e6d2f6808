"""Second-order steps for average losses: Newton steps for the logistic loss, and interior-point steps for the hinge.

If a Hessian is cheap, a dozen Newton steps replace hundreds of gradient steps, however small alpha is. The average
hinge loss has no Hessian, but minimising it is a quadratic program, for which an interior-point method uses the same
weighted Gram matrices and computes the duality gap. All problems with the same loss and fold advance together, so
arrays have shape (problems, samples) or (problems, coordinates). Margins are updated rather than recomputed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._names import Array
from .certificate import hinge_bounds
from .design import row_blocks

#: Second-order steps are worthwhile for designs with up to this many entries: their vectors are float64, and a Gram
#: matrix costs as many passes as there are coordinates. For Newton steps, which reuse and share matrices, the limit is
#: eight times as large.
LARGEST_DESIGN = 1 << 22
#: Matrices (coordinates, coordinates) are worthwhile up to this many coordinates.
LARGEST_RANK = 256

Found = tuple[Array, Array, Array, Array]  # coordinates, passes used, snapshots, lower bounds on the minima


@dataclass(frozen=True)
class Limits:
    """The limits of a minimisation."""

    passes: int  #: the maximum for each problem
    #: A problem stops when its gap (hinge; with L-BFGS a hundredth of ``tol``), its Newton decrement (logistic) or each
    #: of its last three decreases is below ``tol ** 2`` of its objective.
    tol: float
    block_rows: int = 1  #: how many problems L-BFGS evaluates together
    snapshot: int | None = None  #: also return the coordinates after this many passes
    beat: Callable[[int], None] = lambda number: None  #: called after every pass with its number


class Book:
    """A record of which problems are still running, and of the state of each problem at the end and at the snapshot."""

    def __init__(self, start: Array, limits: Limits, folds: bool = False) -> None:
        self.limits, self.folds, self.number = limits, folds, 1
        self.final, self.snapshots, self.active = start.copy(), start.copy(), np.arange(len(start))
        self.used, self.bounds = np.full(len(start), limits.passes), np.zeros(len(start))

    def note(self, number: int, C: Array, done: Array) -> Array:
        """Record this pass, and return the positions of the problems that continue."""
        self.final[self.active], self.number = C, number
        if number == self.limits.snapshot:
            self.snapshots[:] = self.final
        self.used[self.active[done]] = number
        self.active = self.active[~done]
        self.limits.beat(number)
        return np.flatnonzero(~done)

    def product(self, part: Array, matrix: Array) -> Array:
        """Return ``part @ matrix`` for the running problems.

        The rounding error of a product depends on its number of rows. If problems from several folds run together, the
        product therefore includes all of them until the end. Otherwise, the labels of one fold would affect the last
        digits of the results for another.
        """
        if not self.folds or len(part) == len(self.final):
            return part @ matrix
        whole = np.zeros((len(self.final), part.shape[1]), dtype=part.dtype)
        whole[self.active] = part
        return (whole @ matrix)[self.active]

    def close(self) -> Found:
        """Return the result."""
        if self.limits.snapshot is not None and self.number < self.limits.snapshot:
            self.snapshots[:] = self.final
        return self.final, self.used, self.snapshots, self.bounds


def grams(rows: Array, weights: Array) -> Array:
    """Return ``rows' diag(weights) rows`` in float64 (problems, coordinates, coordinates) for each row of weights."""
    rank = rows.shape[1]
    found = np.zeros((len(weights), rank, rank))
    roots = np.sqrt(weights)
    for part in row_blocks(rows.shape, max(rank**2, 1 << 16)):  # a weighted block stays in cache
        for gram, root in zip(found, roots[:, part], strict=True):
            scaled = root[:, None] * rows[part]
            gram += scaled.T @ scaled
    return found


def _solve(matrices: Array, diagonal: Array, right: Array) -> Array:
    """Solve (matrix + diagonal) x = right for every problem, with slight damping in directions without curvature.

    The matrices are first scaled to a unit diagonal, because the scales of features may differ by more than the
    precision of a float.
    """
    places = np.arange(matrices.shape[1])
    heights = matrices[:, places, places] + diagonal
    scale = 1 / np.sqrt(np.where(heights > 0, heights, 1.0))
    matrices = matrices * scale[:, :, None] * scale[:, None, :]
    matrices[:, places, places] = 1 + 1e-14
    return scale * np.linalg.solve(matrices, (scale * right)[:, :, None])[:, :, 0]


def newton_logistic(rows: Array, mass: Array, penalty: Array, start: Array, limits: Limits) -> Found:
    """Minimise the average logistic loss with Newton steps and a line search on the margins.

    ``rows`` (samples, coordinates) are ``-y * z``, as in a design. ``mass`` has shape (samples,), or (problems,
    samples) if problems from several folds advance together. ``penalty`` is alpha for penalised coordinates and 0 for
    others. Both ``penalty`` and ``start`` have shape (problems, coordinates).
    """
    book, C, kind = Book(start, limits, mass.ndim > 1), start, rows.dtype
    # Negated margins and all other arrays of their length have the type of the rows. Equal starts share one row.
    alike = len(C) > 1 and mass.ndim == 1 and bool((C[0] == C).all())
    margins = (C[:1] if alike else C).astype(kind) @ rows.T
    hessians = _Hessians(rows, mass.astype(kind), len(C))
    flat, losses = _summed(margins, mass)
    value = losses + 0.5 * (penalty * C**2).sum(axis=1)
    enough = max(limits.tol**2, 8 * float(np.finfo(kind).eps))
    short = np.zeros((len(C), 1), dtype=bool)
    for number in range(1, limits.passes + 1):
        share = 1 / (1 + flat)
        gradient = book.product(np.exp(np.minimum(margins, 0)) * share * hessians.light, rows) + penalty * C
        # The curvature of an example is at least this: at large margins, too little is left, especially after short
        # steps.
        least = np.where(short, 1e-4, 1e-12).astype(kind)
        step, fall = hessians.step(flat * share * share, least, penalty, gradient, limits.tol * value)
        near = -fall <= 2 * enough * value
        along = book.product(step.astype(kind), rows.T)
        t, margins, flat, reached = _line_search(along, margins, flat, C, step, penalty, mass, value, fall, near)
        C = C + t[:, None] * step
        kept = book.note(number, C, near | (t == 0))
        if not kept.size:
            break
        C, margins, flat, penalty, value = C[kept], margins[kept], flat[kept], penalty[kept], reached[kept]
        short = t[kept, None] < 1 / 64
        hessians.keep(kept, t)
        mass = _own(mass, kept)
    return book.close()


class _Hessians:
    """The weighted Gram matrices (problems, coordinates, coordinates) of a Newton run, reused while steps are good.

    A matrix costs as much as several gradients. The last matrix is reused if the Newton decrement has fallen to a
    twentieth of the previous one, and if the gradient after such a step would be small enough for the certificate,
    which divides the squared gradient by alpha.
    """

    def __init__(self, rows: Array, light: Array, problems: int) -> None:
        self.rows, self.light = rows, light
        self.matrices, self.before = np.empty((problems, 0, 0)), np.zeros(problems)

    def step(self, bend: Array, least: Array, penalty: Array, gradient: Array, allowed: Array) -> tuple[Array, Array]:
        """Return steps (problems, coordinates) and the slopes of the objectives along them (problems,).

        The curvatures ``bend`` have shape (problems, samples), or (1, samples) if all problems share them. ``allowed``
        (problems,) is the gap that is allowed in the certificate.
        """
        if self.matrices.size:
            step = -_solve(self.matrices, penalty, gradient)
            left = 0.05 * (gradient**2 / np.where(penalty > 0, 2 * penalty, np.inf)).sum(axis=1)
            good = (-(gradient * step).sum(axis=1) <= 0.05 * self.before) & (left <= allowed)
            stale = np.flatnonzero(~good)
        else:
            stale, self.matrices = np.arange(len(bend)), np.empty((len(penalty), *[len(gradient.T)] * 2))
            step = np.empty_like(gradient)
        if stale.size:
            found = grams(self.rows, np.maximum(bend[stale], least[stale]) * _own(self.light, stale))
            if len(bend) < len(penalty):
                stale, found = np.arange(len(penalty)), np.broadcast_to(found, self.matrices.shape)
            self.matrices[stale] = found
            step[stale] = -_solve(found, penalty[stale], gradient[stale])
        fall = (gradient * step).sum(axis=1)
        self.before = -fall
        return step, fall

    def keep(self, kept: Array, t: Array) -> None:
        """Continue with only these problems, and discard the matrices of problems with shortened steps."""
        self.matrices, self.before = self.matrices[kept], np.where(t[kept] == 1, self.before[kept], 0.0)
        self.light = _own(self.light, kept)


def _own(mass: Array, problems: Array) -> Array:
    return mass if mass.ndim == 1 else mass[problems]


def logistic_losses(negative: Array) -> tuple[Array, Array]:
    """Return ``exp(-|m|)`` and the logistic losses of negated margins.

    ``log(1 + small)`` is accurate to the last digits here, because the exactly known rounding error of the sum is added
    back with the slope of the logarithm. This formula is four times as fast as ``np.log1p`` on processors without a
    vectorised version of ``np.log1p``.

    Examples
    --------
    >>> logistic_losses(np.array([-70.0, 0.0]))[1].tolist()
    [3.975449735908647e-31, 0.6931471805599453]
    """
    flat = np.exp(-np.abs(negative))
    near = 1 + flat
    lost = flat - (near - 1)
    lost /= near
    losses = np.log(near, out=near)
    losses += lost
    losses += np.maximum(negative, 0)
    return flat, losses


def _summed(margins: Array, mass: Array) -> tuple[Array, Array]:
    flat, losses = logistic_losses(margins)
    losses = losses.astype(np.float64, copy=False)
    return flat, losses @ mass if mass.ndim == 1 else np.einsum("ps,ps->p", losses, mass)


def _line_search(
    along: Array, margins: Array, flat: Array, C: Array, step: Array, penalty: Array, mass: Array, value: Array,
    fall: Array, near: Array,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Return the largest step (1, 1/2, ...) that reduces each objective enough, or 0 if only rounding errors remain.

    Also return the margins, their exponentials and the objectives at this point, which the next step reuses. ``along``
    is the change in the negated margins per unit step.
    """
    # Near the optimum, a step that moves no margin by more than 1/2 cannot double a curvature, so it cannot increase
    # the objective: the whole step is taken without further evaluation.
    t = np.where(near & (np.abs(along).max(axis=1) <= 0.5), 1.0, 0.0)
    waiting, trial, reached = np.flatnonzero(t == 0), 1.0, value.copy()
    if not waiting.size:
        return t, margins, flat, reached
    if len(margins) < len(C):
        margins, flat = (np.broadcast_to(part, along.shape) for part in (margins, flat))
    there = np.empty_like(along), np.empty_like(along)  # problems without a step stop and need neither
    for _ in range(40):
        whole = len(waiting) == len(C)
        line = margins + along if whole else margins[waiting] + along[waiting]
        bent, losses = _summed(line, _own(mass, waiting))
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


def interior_hinge(rows: Array, mass: Array, penalty: Array, start: Array, limits: Limits) -> Found:
    """Minimise the average hinge loss with a primal-dual interior-point method (Mehrotra's predictor-corrector).

    The problem min 1/2 w'Pw + c'xi with xi >= 0 and slack s = m + xi - 1 >= 0 has the multipliers a for s and c - a for
    xi. At the optimum, Pw = sum of a * y * z, a * s = 0 and (c - a) * xi = 0. Eliminating all variables except w leaves
    one system per step, with a weighted Gram matrix (Ferris & Munson 2002). The parameters are the same as for
    :func:`newton_logistic`, but every mass must be positive. The best point so far is kept, so more passes never give a
    higher objective.
    """
    book, tol, total = Book(start, limits), limits.tol, mass.sum()
    C, best, lowest = start, start.copy(), np.full(len(start), np.inf)
    margins = -(C @ rows.T)
    # The variables s, xi, a and c - a (4, problems, samples) start on the central path a * s = (c - a) * xi = mu, where
    # mu is the mean mass, and solve a quadratic equation.
    mu, beyond = mass.mean(), margins - 1
    width = np.hypot(2 * mu / mass, beyond)
    slack, short = (2 * mu / mass + width + beyond) / 2, (2 * mu / mass + width - beyond) / 2
    inner = np.stack([slack, short, mu / slack, mu / short])
    least, idle = np.full(len(C), np.inf), np.zeros(len(C), dtype=int)
    for number in range(1, limits.passes + 1):
        value = np.maximum(1 - margins, 0) @ mass + 0.5 * (penalty * C**2).sum(axis=1)
        better = value < lowest
        best[better], lowest = C[better], np.minimum(value, lowest)
        off = penalty * C + inner[2] @ rows  # the dual residual; rows are -y * z
        gap = (inner[2] * inner[0] + inner[3] * inner[1]).sum(axis=1) + np.abs(off * C).sum(axis=1)
        idle = np.where(gap < 0.9 * least, 0, idle + 1)  # a gap that no longer shrinks is rounding error
        least = np.fmin(gap, least)
        enough = max(tol**2, 1e-8) * np.maximum(lowest, max(tol, 1e-6) * total)
        done = (gap <= enough) | ((idle >= 8) & (gap <= 1e-5 * total))
        ending = done | (number == limits.passes)
        if ending.any():
            book.bounds[book.active[ending]] = hinge_bounds(rows, mass, penalty[ending], inner[2][ending])
        kept = book.note(number, best, done)
        if not kept.size:
            break
        C, best, lowest, least, idle, penalty = (a[kept] for a in (C, best, lowest, least, idle, penalty))
        C, inner = _interior_step(rows, penalty, C, inner[:, kept], off[kept])
        margins = -(C @ rows.T)
        inner[1] = inner[0] - (margins - 1)  # s = m + xi - 1 despite rounding
        np.maximum(inner, 1e-14, out=inner)  # denormal numbers are slow
    return book.close()


def _interior_step(rows: Array, penalty: Array, C: Array, inner: Array, off: Array) -> tuple[Array, Array]:
    """Take one predictor-corrector step for every problem."""
    slack, short, dual, rest = inner
    spread = slack / dual + short / rest
    matrices = grams(rows, 1 / spread)
    mean = (dual * slack + rest * short).sum(axis=1, keepdims=True) / (2 * slack.shape[1])

    def direction(target: Array | float, bend_a: Array | float, bend_b: Array | float) -> tuple[Array, Array]:
        first, second = (target - bend_a) / dual - slack, (target - bend_b) / rest - short
        goal = (first - second) / spread
        step = _solve(matrices, penalty, -(goal @ rows) - off)
        change = goal + (step @ rows.T) / spread
        return step, np.stack([first - slack / dual * change, second + short / rest * change, change, -change])

    def longest(moves: Array) -> Array:
        return 1 / np.maximum((-moves / inner).max(axis=(0, 2)), 1.0)[:, None]

    _, moves = direction(0.0, 0.0, 0.0)
    predicted = inner + longest(moves) * moves
    left = (predicted[2] * predicted[0] + predicted[3] * predicted[1]).sum(axis=1, keepdims=True) / (2 * slack.shape[1])
    step, moves = direction((left / mean) ** 3 * mean, moves[2] * moves[0], moves[3] * moves[1])
    length = 0.995 * longest(moves)
    return C + length * step, inner + length * moves

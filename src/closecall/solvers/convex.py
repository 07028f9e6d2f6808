"""The convex phase: `average` problems, by second-order steps where they are cheap, else by a batched L-BFGS.

Neither ever increases the objective. In the L-BFGS all problems advance together, one pass over the data for each
trial point, but every
row has its own line search, memory and stopping. Its coordinates are scaled by the diagonal of the curvature's bound,
``c * z^2 + alpha``. Where the columns are not independent the diagonal does not bound the curvature, but few directions
exceed it, which the memory learns; the first step is short enough for them. There the hinge is rounded over a width
(Huber's rounding), and moved for each example by a multiplier: its slope on the kink, the example's share in the dual
(the method of multipliers: Hestenes 1969, Powell 1969). Each time a row is solved well enough for its multipliers, its
own slopes become the next ones. The width need not shrink, so steps stay long, and the slopes are a point of the dual
that meets the objective: the row stops when its gap is small enough, and its bound is the certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from .._names import Array
from ..losses import get_loss
from .design import Design
from .kernels import Mass, minus_slope
from .newton import (
    LARGEST_DESIGN,
    LARGEST_RANK,
    Book,
    Found,
    hinge_bounds,
    interior_hinge,
    log_of_one_and,
    newton_logistic,
)

MEMORY = 10
#: Margins over which the hinge is rounded in the end; before that over the mean distance from the kink, then a quarter
#: of it with each new multipliers. The share of its own slack that a row's gradient may add to the gap when
#: it takes new multipliers. From 0.03 to 0.3, and from 0.1 to 2, the passes of 36 sparse sets differ by a third.
WIDTH, NARROWING, SHARED = 0.1, 0.25, 0.5
#: A hinge row leaves with this share of the tolerance as its gap, or after so many multipliers that changed nothing.
LEFT, IDLE = 0.01, 10
_ARMIJO = 1e-4
#: Losses whose average has second-order steps.
SECOND_ORDER = {"logistic": newton_logistic, "hinge": interior_hinge}
#: Those without a kink, whose steps are Newton's.
NEWTON = [loss for loss in SECOND_ORDER if not get_loss(loss).kinks]
FOLDS_TOGETHER = 1 << 14  # entries of a design up to which all folds take Newton steps together: twice as fast
PILOT_FROM = 8  # rows that start alike, from which one going ahead saves steps
_TOGETHER, _LEAST_TOGETHER = 1 << 18, 4  # problems x samples that take second-order steps together; problems at least
#: Entries of a design up to which the steps of a loss are of second order: Newton's matrices are few and shared.
LARGEST = {loss: LARGEST_DESIGN << (3 if loss in NEWTON else 0) for loss in SECOND_ORDER}


@dataclass(frozen=True)
class Roots:
    """`average` problems, as rows: the roots from which decay runs grow."""

    loss: list[str]
    fold: Array
    alpha: Array


@dataclass(frozen=True)
class Limits:
    """Limits of a minimisation: see :func:`minimize`."""

    passes: int
    tol: float
    block_rows: int
    snapshot: int | None
    beat: Callable[[int], None]


@dataclass
class _State:
    """The search state of each row; arrays have the rows first."""

    C: Array
    value: Array  # of what is minimised, which is the objective where the loss has no kink
    gradient: Array
    objective: Array
    slack: Array  # what of the gap is not the gradient's
    scale: Array  # square root of the majoriser: directions live in scaled coordinates
    width: Array
    shares: Array  # (rows, samples): the multipliers, shares of the mass; (rows, 0) where the loss has no kink
    best: Array  # the coordinates of the lowest objective, that objective, and what is proven to lie under it
    lowest: Array
    bound: Array
    gap: Array  # at its last multipliers, and how many of them have not narrowed it
    idle: Array
    direction: Array
    slope: Array
    trial: Array
    steps: Array  # (MEMORY, rows, coordinates)
    changes: Array
    inverse: Array  # (MEMORY, rows): 1 / (step . change), 0 = empty
    newest: int
    calm: Array

    def keep(self, rows: Array) -> _State:
        slices = {
            name: (value[:, rows] if name in ("steps", "changes", "inverse") else value[rows])
            for name, value in vars(self).items()
            if isinstance(value, np.ndarray)
        }
        return _State(**slices, newest=self.newest)


def _logistic(negative: Array, shares: Array, width: Array) -> Evaluated:
    values = log_of_one_and(np.exp(-np.abs(negative)))
    values += np.maximum(negative, 0)
    return values, minus_slope("logistic", negative), values, None


def _rounded_hinge(negative: Array, shares: Array, width: Array) -> Evaluated:
    width = width[:, None].astype(negative.dtype)
    short = 1 + negative
    moved = short + width * shares
    slope = np.clip(moved / width, 0, 1)
    plain = np.maximum(short, 0)
    return (moved - width / 2 * slope) * slope, slope, plain, plain - slope * short


def _any(loss: str, negative: Array) -> Evaluated:
    values = get_loss(loss).value(-negative)
    return values, minus_slope(loss, negative), values, None


#: Minus margins, shares and widths -> what is minimised, minus its slopes, the losses, and their slack at a kink.
Evaluated = tuple[Array, Array, Array, Array | None]
ROUNDED = {"logistic": _logistic, "hinge": _rounded_hinge}
#: Losses that are rounded and have multipliers.
MULTIPLIED = [loss for loss in ROUNDED if get_loss(loss).kinks]


def minimize(
    design: Design,
    roots: Roots,
    masses: list[Mass],
    start: Array,
    *,
    passes: int,
    tol: float,
    block_rows: int,
    snapshot: int | None = None,
    beat: Callable[[int], None] | None = None,
) -> Found:
    """Minimise the average problems.

    Parameters
    ----------
    design : Design
    roots : Roots
    masses : list of Mass, one for each fold
    start : array (rows, coordinates)
    passes : int
        The maximum number of passes of each row.
    tol : float
        A row leaves when its gap (hinge; a hundredth of ``tol`` by L-BFGS), its Newton decrement (logistic) or each of
        its last three drops is under ``tol ** 2`` of its objective.
    block_rows : int
        Rows evaluated together.
    snapshot : int, optional
        Also return the coordinates after that many passes.
    beat : callable, optional
        Called after every pass with its number.

    Returns
    -------
    coordinates, used, snapshots, bounds
        Arrays (rows, coordinates), (rows,), (rows, coordinates), (rows,): lower bounds of the minima, 0 if not known.
    """
    found = start.copy(), np.full(len(start), passes), start.copy(), np.zeros(len(start))
    if passes < 1:
        return found
    limits = Limits(passes, tol, block_rows, snapshot, beat or (lambda number: None))
    dense, entries = isinstance(design.signed, np.ndarray) and design.rank <= LARGEST_RANK, design.signed.size
    cheap = [loss for loss, least in LARGEST.items() if dense and entries <= least]
    if not set(NEWTON).isdisjoint(cheap):
        start = _pilot(design, roots, masses, start, limits)
    for loss, same in _groups(design, roots, cheap):
        second = loss in cheap
        size = max(_LEAST_TOGETHER, _TOGETHER // design.samples) if second else len(same)
        for part in (same[begin : begin + size] for begin in range(0, len(same), size)):
            if second:
                own = [masses[fold] for fold in roots.fold[part]]
                pieces = second_order(design, loss, own, roots.alpha[part], start[part], limits)
            else:
                pieces = quasi_newton(design, loss, masses[roots.fold[part[0]]], roots.alpha[part], start[part], limits)
            for whole, piece in zip(found, pieces, strict=True):
                whole[part] = piece
    return found


def _groups(design: Design, roots: Roots, cheap: list[str]) -> list[tuple[str, Array]]:
    """Groups of rows solved together: one per loss and fold, or across folds where call overhead dominates."""
    losses, folds = np.array(roots.loss), roots.fold
    groups = []
    for loss in sorted({*roots.loss}):
        same = np.flatnonzero(losses == loss)
        if loss in cheap and loss in NEWTON and design.signed.size <= FOLDS_TOGETHER:
            groups.append((loss, same))
        else:
            groups += [(loss, same[folds[same] == fold]) for fold in np.unique(folds[same])]
    return groups


def _pilot(design: Design, roots: Roots, masses: list[Mass], start: Array, limits: Limits) -> Array:
    """Starts of the rows: if many logistic rows of a fold would start alike, its middle alpha is solved first.

    They end at the same optimum, in two or three steps instead of five. This stays within a fold: no row starts from a
    model that has seen its test rows.
    """
    start, ahead = start.copy(), replace(limits, snapshot=None, beat=lambda number: None)
    for loss in NEWTON:
        mine = [np.flatnonzero((np.array(roots.loss) == loss) & (roots.fold == fold)) for fold in np.unique(roots.fold)]
        many = [rows for rows in mine if min(len(rows), limits.passes) >= PILOT_FROM]
        flocks = [rows for rows in many if not (start[rows] != start[rows[0]]).any()]
        middle = [rows[np.argsort(roots.alpha[rows])[len(rows) // 2]] for rows in flocks]
        pilots = Roots([loss] * len(middle), roots.fold[middle], roots.alpha[middle])
        for _, some in _groups(design, pilots, NEWTON):
            own = [masses[fold] for fold in pilots.fold[some]]
            ends = second_order(design, loss, own, pilots.alpha[some], start[np.array(middle)[some]], ahead)[0]
            for place, end in zip(some, ends, strict=True):
                start[flocks[place]] = end
    return start


def second_order(design: Design, loss: str, masses: list[Mass], alpha: Array, start: Array, limits: Limits) -> Found:
    """Minimise average problems of one loss, each with its mass, by Newton or interior-point steps."""
    rows = design.signed if loss in NEWTON else design.signed.astype(np.float64)
    mass = masses[0].values
    if any(other is not masses[0] for other in masses):  # of several folds
        mass = np.stack([each.values for each in masses])
    elif design.signed.size <= LARGEST_DESIGN and not (mass > 0).all():  # above, a copy costs more than masses of zero
        rows, mass = rows[mass > 0], mass[mass > 0]
    C, used, snapshots, bounds = SECOND_ORDER[loss](
        rows, mass.astype(np.float64), alpha[:, None] * design.penalized, start,
        passes=limits.passes, tol=limits.tol, snapshot=limits.snapshot, beat=limits.beat,
    )  # fmt: skip
    return C, used, snapshots, bounds * (1 - design.rounding)


def quasi_newton(design: Design, loss: str, mass: Mass, alpha: Array, start: Array, limits: Limits) -> Found:
    """Minimise average problems of one loss and fold by L-BFGS."""
    book, multiplied, rounding = Book(start, limits.passes, limits.snapshot), loss in MULTIPLIED, design.rounding
    if multiplied and sparse.issparse(design.signed):  # slopes at kinks need more digits than float32 has
        design = replace(design, signed=design.signed.astype(np.float64))
    state = _begin(design, loss, mass, alpha, start, limits)
    noise, number = 8 * np.finfo(design.signed.dtype).eps, 1
    enough = noise if multiplied else limits.tol**2
    for number in range(2, limits.passes + 1):  # the first pass was the start's own
        trial = state.C + state.trial[:, None] * state.direction / state.scale
        found = _evaluate(design, loss, mass, alpha, trial, state.shares, state.width, limits.block_rows)
        good = found[0] <= state.value + _ARMIJO * state.trial * state.slope + noise * np.abs(state.value)
        stuck = ~good & (state.trial < 1e-6)
        small = (good & (state.value - found[0] <= enough * np.abs(state.value))) | stuck
        _accept(state, good, trial, *found)
        state.trial = np.where(good, 1.0, state.trial * 0.4)
        state.calm = np.where(small, state.calm + 1, np.where(good, 0, state.calm))
        done = _multiply(design, loss, mass, alpha, state, limits) if multiplied else state.calm >= 3
        done |= ~np.isfinite(found[0]) & stuck
        _turn(state, good | stuck)
        book.bounds[book.active] = state.bound
        kept = book.note(number, state.best if multiplied else state.C, done)
        limits.beat(number)
        if not kept.size:
            break
        if done.any():
            state, alpha = state.keep(kept), alpha[kept]
    C, used, snapshots, bounds = book.close(number)
    return C, used, snapshots, bounds * (1 - rounding)


def _begin(design: Design, loss: str, mass: Mass, alpha: Array, start: Array, limits: Limits) -> _State:
    rows, curvature = len(start), get_loss(loss).curvature
    scale = np.sqrt(min(curvature, 4.0) / design.raised * design.spectrum + alpha[:, None] * design.penalized)
    shares = np.zeros((rows, design.samples * (loss in MULTIPLIED)), dtype=design.signed.dtype)
    width = np.maximum(_distances(design, mass, start, limits.block_rows) if shares.size else 0.0, np.full(rows, WIDTH))
    value, gradient, objective, slack = _evaluate(design, loss, mass, alpha, start, shares, width, limits.block_rows)
    shape, none = (MEMORY, *start.shape), np.zeros(rows)
    state = _State(
        start.copy(), value, gradient, objective, slack, scale, width, shares, start.copy(), objective.copy(),
        none.copy(), none + np.inf, none.astype(int), np.zeros_like(start), none, none + 1 / design.raised,
        np.zeros(shape), np.zeros(shape), np.zeros(shape[:2]), 0, none.astype(int),
    )  # fmt: skip
    _turn(state, np.ones(rows, dtype=bool))
    return state


def _distances(design: Design, mass: Mass, C: Array, block_rows: int) -> Array:
    """How far margins are from 1 on average, (rows,)."""
    found = np.empty(len(C))
    for begin in range(0, len(C), block_rows):
        part = slice(begin, begin + block_rows)
        found[part] = np.abs(1 + design.negative_margins(C[part])) @ mass.values / mass.total
    return found


def _evaluate(
    design: Design, loss: str, mass: Mass, alpha: Array, C: Array, shares: Array, width: Array, block_rows: int
) -> tuple[Array, Array, Array, Array]:
    """The minimised function at C, its gradient, the objective and the slack."""
    sums, gradient = np.zeros((3, len(C))), np.empty_like(C)
    for begin in range(0, len(C), block_rows):
        part = slice(begin, begin + block_rows)
        negative = design.negative_margins(C[part])
        how = ROUNDED.get(loss)
        values, pull, *plain = how(negative, shares[part], width[part]) if how else _any(loss, negative)
        weights = 1 if mass.unit and mass.outside is None else mass.values
        gradient[part] = design.gradient(pull * weights)
        for place, each in enumerate((values, *plain)):
            if each is not None:
                sums[place, part] = (each * weights).sum(axis=1, dtype=np.float64)
    shrink = alpha[:, None] * design.penalized * C
    size = 0.5 * (shrink * C).sum(axis=1)
    return sums[0] + size, gradient + shrink, sums[1] + size, sums[2]


def _accept(
    state: _State, good: Array, trial: Array, value: Array, gradient: Array, objective: Array, slack: Array
) -> None:
    """Move the accepted rows and store their steps and gradient changes, in scaled coordinates."""
    step = np.where(good[:, None], trial - state.C, 0) * state.scale
    change = np.where(good[:, None], gradient - state.gradient, 0) / state.scale
    bend = (step * change).sum(axis=1)
    enough = bend > 1e-10 * np.sqrt((step**2).sum(axis=1) * (change**2).sum(axis=1))
    state.newest = (state.newest + 1) % MEMORY
    state.steps[state.newest], state.changes[state.newest] = step, change
    state.inverse[state.newest] = np.where(enough, 1 / np.where(enough, bend, 1), 0)
    state.C = np.where(good[:, None], trial, state.C)
    state.value = np.where(good, value, state.value)
    state.gradient = np.where(good[:, None], gradient, state.gradient)
    state.objective, state.slack = np.where(good, objective, state.objective), np.where(good, slack, state.slack)
    lower = state.objective < state.lowest
    state.best[lower], state.lowest = state.C[lower], np.minimum(state.objective, state.lowest)


def _multiply(design: Design, loss: str, mass: Mass, alpha: Array, state: _State, limits: Limits) -> Array:
    """Update the multipliers of rows that are solved well enough; returns which rows are done.

    A gap is the sum of the slack, the squared gradient over twice the penalty, and the correction for a free intercept.
    If the gradient's part is small compared with the slack, the multipliers need an update.
    """
    penalty, steep, weights = alpha[:, None] * design.penalized, np.abs(state.gradient), mass.values.astype(np.float64)
    extra = np.where(penalty > 0, steep**2 / np.where(penalty > 0, 2 * penalty, 1), steep).sum(axis=1)
    enough = LEFT * limits.tol * state.lowest
    ready = np.flatnonzero((extra <= SHARED * np.maximum(state.slack, enough)) | (state.calm >= 2))
    for begin in range(0, len(ready), limits.block_rows):
        rows = ready[begin : begin + limits.block_rows]
        slopes = ROUNDED[loss](design.negative_margins(state.C[rows]), state.shares[rows], state.width[rows])[1]
        found = hinge_bounds(design.signed, weights, penalty[rows], slopes * weights)
        state.shares[rows], state.bound[rows] = slopes, np.maximum(found, state.bound[rows])
    gap = state.lowest - state.bound
    if ready.size:
        state.width[ready] = np.maximum(NARROWING * state.width[ready], WIDTH)
        shrunk = state.gap[ready] - gap[ready] > limits.tol**2 * state.lowest[ready]
        state.idle[ready], state.gap[ready], state.calm[ready] = (
            np.where(shrunk, 0, state.idle[ready] + 1),
            gap[ready],
            0,
        )
        state.value[ready], state.gradient[ready], _, state.slack[ready] = _evaluate(
            design, loss, mass, alpha[ready], state.C[ready], state.shares[ready], state.width[ready], limits.block_rows
        )
    return (gap <= enough) | (state.idle >= IDLE)


def _turn(state: _State, rows: Array) -> None:
    """New directions for ``rows`` by the two-loop recursion (Nocedal 1980), each row with its own memory."""
    scaled = state.gradient / state.scale
    vector, coefficients = scaled.copy(), []
    newest = state.newest
    order = [slot for age in range(MEMORY) if state.inverse[slot := (newest - age) % MEMORY].any()]
    for slot in order:
        coefficient = state.inverse[slot] * np.einsum("pc,pc->p", state.steps[slot], vector)
        coefficients.append(coefficient)
        vector -= coefficient[:, None] * state.changes[slot]
    size = np.einsum("pc,pc->p", state.changes[newest], state.changes[newest]) * state.inverse[newest]
    vector *= np.where(size > 0, 1 / np.where(size > 0, size, 1), 1)[:, None]
    for slot, coefficient in zip(reversed(order), reversed(coefficients), strict=True):
        back = state.inverse[slot] * np.einsum("pc,pc->p", state.changes[slot], vector)
        vector += (coefficient - back)[:, None] * state.steps[slot]
    downhill = np.einsum("pc,pc->p", vector, scaled)
    uphill = ~(downhill > 1e-12 * (scaled**2).sum(axis=1))
    vector[uphill] = scaled[uphill]
    state.direction = np.where(rows[:, None], -vector, state.direction)
    state.slope = np.where(rows, -np.where(uphill, (scaled**2).sum(axis=1), downhill), state.slope)

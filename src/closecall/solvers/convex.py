"""The convex phase: `average` problems, by second-order steps where they are cheap, else by a batched L-BFGS.

Neither goes uphill. In the L-BFGS all problems advance together, one pass over the data for each trial point, but
every row has its own line search, memory and stopping. Its coordinates are scaled by the diagonal of the curvature's
bound, ``c * z^2 + alpha``. Where the columns are not independent the diagonal does not bound the curvature, but few
directions exceed it, which the memory learns; the first step is as short as they ask. There the hinge is rounded over a
width mu that each row narrows on its own (Huber's rounding): at width mu its minimum is within mu / 2 for each example
*on the kink*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from .._names import Array
from ..losses import get_loss
from .design import Design
from .kernels import Mass, minus_slope
from .newton import LARGEST_DESIGN, LARGEST_RANK, Book, Found, interior_hinge, log_of_one_and, newton_logistic

MEMORY = 10
NARROWING = 0.25  # each width is a quarter of the last
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
    """What a minimisation is allowed: see :func:`minimize`."""

    passes: int
    tol: float
    block_rows: int
    snapshot: int | None
    beat: Callable[[int], None]


@dataclass
class _State:
    """What the search remembers of each row; arrays have the rows first."""

    C: Array
    value: Array
    gradient: Array
    scale: Array  # square root of the majoriser: directions live in scaled coordinates
    width: Array
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


def rounded(loss: str, negative: Array, width: Array) -> tuple[Array, Array]:
    """Values and minus slopes of a block of minus margins; the hinge is rounded over ``width`` (rows, 1)."""
    if loss in ROUNDED:
        return ROUNDED[loss](negative, width)
    values = get_loss(loss).value(-negative)
    return values, minus_slope(loss, negative)


def _logistic(negative: Array, width: Array) -> tuple[Array, Array]:
    values = log_of_one_and(np.exp(-np.abs(negative)))
    values += np.maximum(negative, 0)
    return values, minus_slope("logistic", negative)


def _rounded_hinge(negative: Array, width: Array) -> tuple[Array, Array]:
    short = 1 + negative
    part = np.clip(short, 0, width)
    short -= part / 2
    slope = part / width
    return short * slope, slope


ROUNDED = {"logistic": _logistic, "hinge": _rounded_hinge}


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
        How often each row may look at the data.
    tol : float
        A row leaves when its gap (hinge), its Newton decrement (logistic) or each of its last three drops is under
        ``tol ** 2`` of its objective.
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
    """Which rows are solved together: those of a loss and fold, of all folds where calls cost more than numbers."""
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
    """Starts of the rows: where many logistic rows of a fold would start alike, its middle alpha goes ahead of them.

    They end at the same optimum, in two or three steps instead of five. The fold is their own: no row starts from a
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
    book, tol = Book(start, limits.passes, limits.snapshot), limits.tol
    state, narrowest = _begin(design, loss, mass, alpha, start, limits)
    noise, number = 8 * np.finfo(design.signed.dtype).eps, 1
    for number in range(2, limits.passes + 1):  # the first pass was the start's own
        trial = state.C + state.trial[:, None] * state.direction / state.scale
        value, gradient = _evaluate(design, loss, mass, alpha, trial, state.width, limits.block_rows)
        good = value <= state.value + _ARMIJO * state.trial * state.slope + noise * np.abs(state.value)
        stuck = ~good & (state.trial < 1e-6)
        drop = state.value - value
        _accept(state, good, trial, value, gradient)
        state.trial = np.where(good, 1.0, state.trial * 0.4)
        # A width need not be solved beyond its own error, which is in proportion to it.
        enough = np.where(state.width > narrowest, np.maximum(tol * state.width, tol**2), tol**2)
        small = (good & (drop <= enough * np.abs(state.value))) | stuck
        state.calm = np.where(small, state.calm + 1, np.where(good, 0, state.calm))
        _narrow(design, loss, mass, alpha, state, narrowest, limits.block_rows, stuck)
        _turn(state, good | stuck)
        done = (state.calm >= 3) & (state.width <= narrowest) | ~np.isfinite(value) & stuck
        kept = book.note(number, state.C, done)
        limits.beat(number)
        if not kept.size:
            break
        if done.any():
            state, alpha = state.keep(kept), alpha[kept]
    return book.close(number)


def _begin(design: Design, loss: str, mass: Mass, alpha: Array, start: Array, limits: Limits) -> tuple[_State, float]:
    narrowest = min(max(limits.tol, 1e-5), 1.0)
    curvature = get_loss(loss).curvature
    width = np.full(len(start), narrowest if np.isfinite(curvature) else 1.0)
    scale = np.sqrt(min(curvature, 4.0) / design.raised * design.spectrum + alpha[:, None] * design.penalized)
    value, gradient = _evaluate(design, loss, mass, alpha, start, width, limits.block_rows)
    shape = (MEMORY, *start.shape)
    state = _State(
        start.copy(), value, gradient, scale, width, np.zeros_like(start), np.zeros(len(start)),
        np.full(len(start), 1 / design.raised), np.zeros(shape), np.zeros(shape), np.zeros(shape[:2]), 0,
        np.zeros(len(start), dtype=int),
    )  # fmt: skip
    _turn(state, np.ones(len(start), dtype=bool))
    return state, narrowest


def _evaluate(
    design: Design, loss: str, mass: Mass, alpha: Array, C: Array, width: Array, block_rows: int
) -> tuple[Array, Array]:
    """Objectives and gradients at C."""
    value, gradient = np.empty(len(C)), np.empty_like(C)
    for begin in range(0, len(C), block_rows):
        part = slice(begin, begin + block_rows)
        negative = design.negative_margins(C[part])
        losses, pull = rounded(loss, negative, width[part, None].astype(negative.dtype))
        if not (mass.unit and mass.outside is None):
            losses, pull = losses * mass.values, pull * mass.values
        value[part] = losses.sum(axis=1, dtype=np.float64)
        gradient[part] = design.gradient(pull)
    shrink = alpha[:, None] * design.penalized * C
    return value + 0.5 * (shrink * C).sum(axis=1), gradient + shrink


def _accept(state: _State, good: Array, trial: Array, value: Array, gradient: Array) -> None:
    """Move the good rows and remember their step and change of gradient, in scaled coordinates."""
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


def _narrow(
    design: Design, loss: str, mass: Mass, alpha: Array, state: _State, narrowest: float, block_rows: int, stuck: Array
) -> None:
    """Rows that have settled at their width go on to the next; their value and gradient change with it."""
    ready = np.flatnonzero((state.width > narrowest) & ((state.calm >= 2) | stuck))
    if not ready.size:
        return
    state.width[ready] = np.maximum(state.width[ready] * NARROWING, narrowest)
    state.value[ready], state.gradient[ready] = _evaluate(
        design, loss, mass, alpha[ready], state.C[ready], state.width[ready], block_rows
    )
    state.calm[ready] = 0


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

"""The convex phase: `average` problems by a batched L-BFGS that never goes uphill.

All problems advance together, one pass over the data for each trial point, but every row has its own line search,
memory and stopping. Coordinates are scaled by the majoriser ``c * spectrum + alpha``, so that a unit step is safe.
The hinge is rounded over a width mu that each row narrows on its own (Huber's rounding): at width mu its minimum is
within mu / 2 for each example *on the kink*, and a few dozen quasi-Newton steps a width beat any subgradient method.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..losses import get_loss
from .design import Design
from .kernels import Mass, minus_slope

MEMORY = 10
NARROWING = 0.25  # each width is a quarter of the last
_ARMIJO = 1e-4


@dataclass(frozen=True)
class Roots:
    """`average` problems, as rows: the roots from which decay runs grow."""

    loss: list[str]
    fold: Array
    alpha: Array


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
    if loss == "logistic":
        flat = np.exp(-np.abs(negative))
        near = 1 + flat
        # log(1 + e) loses e below the float's epsilon; times e / ((1 + e) - 1) restores it (Kahan).
        exact = np.log(near)
        near -= 1
        np.divide(flat, near, out=near, where=near > 0)
        values = np.where(exact > 0, exact * near, flat) + np.maximum(negative, 0)
        return values, minus_slope(loss, negative)
    if loss == "hinge":
        short = 1 + negative
        part = np.clip(short, 0, width)
        short -= part / 2
        slope = part / width
        return short * slope, slope
    values = get_loss(loss).value(-negative)
    return values, minus_slope(loss, negative)


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
) -> tuple[Array, Array, Array, Array]:
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
        A row has converged when three passes in a row each lower its objective by less than ``tol ** 2`` of it.
    block_rows : int
        Rows evaluated together.
    snapshot : int, optional
        Also return the coordinates after that many passes.
    beat : callable, optional
        Called after every pass with its number.

    Returns
    -------
    coordinates, used, converged, snapshots
        Arrays (rows, coordinates), (rows,), (rows,), (rows, coordinates).
    """
    final, used = start.copy(), np.full(len(start), passes)
    converged, snapshots = np.zeros(len(start), dtype=bool), start.copy()
    if not len(start) or passes < 1:
        return final, used, converged, snapshots
    active = np.arange(len(start))
    state, narrowest = _begin(design, roots, masses, start, tol, block_rows)
    noise = 8 * np.finfo(design.signed.dtype).eps
    for number in range(2, passes + 1):  # the first pass was the start's own
        trial = state.C + state.trial[:, None] * state.direction / state.scale
        value, gradient = _evaluate(design, roots, masses, active, trial, state.width, block_rows)
        value, gradient = _add_penalty(design, roots.alpha[active], trial, value, gradient)
        good = value <= state.value + _ARMIJO * state.trial * state.slope + noise * np.abs(state.value)
        stuck = ~good & (state.trial < 1e-6)
        drop = state.value - value
        _accept(state, good, trial, value, gradient)
        state.trial = np.where(good, 1.0, state.trial * 0.4)
        # A width need not be solved beyond its own error, which is in proportion to it.
        enough = np.where(state.width > narrowest, np.maximum(tol * state.width, tol**2), tol**2)
        small = (good & (drop <= enough * np.abs(state.value))) | stuck
        state.calm = np.where(small, state.calm + 1, np.where(good, 0, state.calm))
        _narrow(design, roots, masses, active, state, narrowest, tol, block_rows, stuck)
        _turn(state, good | stuck)
        done = (state.calm >= 3) & (state.width <= narrowest) | ~np.isfinite(value) & stuck
        if snapshot == number:
            snapshots[:] = final
            snapshots[active] = state.C
        final[active] = state.C
        if done.any():
            used[active[done]], converged[active[done]] = number, True
            active, state = active[~done], state.keep(np.flatnonzero(~done))
        if beat is not None:
            beat(number)
        if not active.size:
            break
    if snapshot is not None and number < snapshot:
        snapshots[:] = final
    return final, used, converged, snapshots


def _begin(
    design: Design, roots: Roots, masses: list[Mass], start: Array, tol: float, block_rows: int
) -> tuple[_State, float]:
    narrowest = min(max(tol, 1e-5), 1.0)
    rows = np.arange(len(start))
    kinked = np.array([not np.isfinite(get_loss(loss).curvature) for loss in roots.loss])
    width = np.where(kinked, 1.0, narrowest)
    curvature = np.array([min(get_loss(loss).curvature, 4.0) for loss in roots.loss])
    scale = np.sqrt(curvature[:, None] * design.spectrum + roots.alpha[:, None] * design.penalized)
    value, gradient = _evaluate(design, roots, masses, rows, start, width, block_rows)
    value, gradient = _add_penalty(design, roots.alpha, start, value, gradient)
    shape = (MEMORY, *start.shape)
    state = _State(
        start.copy(), value, gradient, scale, width, np.zeros_like(start), np.zeros(len(start)), np.ones(len(start)),
        np.zeros(shape), np.zeros(shape), np.zeros(shape[:2]), 0, np.zeros(len(start), dtype=int),
    )  # fmt: skip
    _turn(state, np.ones(len(start), dtype=bool))
    return state, narrowest


def _evaluate(
    design: Design, roots: Roots, masses: list[Mass], rows: Array, C: Array, width: Array, block_rows: int
) -> tuple[Array, Array]:
    """Sums of losses and their gradients at C, without the penalty; ``rows`` says which root each row of C is."""
    value, gradient = np.empty(len(rows)), np.empty_like(C)
    keys = np.array([f"{roots.loss[row]}|{roots.fold[row]}" for row in rows])
    for key in np.unique(keys):
        group = np.flatnonzero(keys == key)
        loss, mass = roots.loss[rows[group[0]]], masses[roots.fold[rows[group[0]]]]
        for begin in range(0, len(group), block_rows):
            part = group[begin : begin + block_rows]
            negative = design.negative_margins(C[part])
            losses, pull = rounded(loss, negative, width[part, None].astype(negative.dtype))
            if not (mass.unit and mass.outside is None):
                losses, pull = losses * mass.values, pull * mass.values
            value[part] = losses.sum(axis=1, dtype=np.float64)
            gradient[part] = design.gradient(pull)
    return value, gradient


def _add_penalty(design: Design, alpha: Array, C: Array, value: Array, gradient: Array) -> tuple[Array, Array]:
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
    design: Design, roots: Roots, masses: list[Mass], active: Array, state: _State, narrowest: float, tol: float,
    block_rows: int, stuck: Array,
) -> None:  # fmt: skip
    """Rows that have settled at their width go on to the next; their value and gradient change with it."""
    ready = np.flatnonzero((state.width > narrowest) & ((state.calm >= 2) | stuck))
    if not ready.size:
        return
    state.width[ready] = np.maximum(state.width[ready] * NARROWING, narrowest)
    value, gradient = _evaluate(design, roots, masses, active[ready], state.C[ready], state.width[ready], block_rows)
    value, gradient = _add_penalty(design, roots.alpha[active[ready]], state.C[ready], value, gradient)
    state.value[ready], state.gradient[ready] = value, gradient
    state.calm[ready] = 0


def _turn(state: _State, rows: Array) -> None:
    """New directions for ``rows`` by the two-loop recursion (Nocedal 1980), each row with its own memory."""
    scaled = state.gradient / state.scale
    vector, coefficients = scaled.copy(), []
    order = [(state.newest - age) % MEMORY for age in range(MEMORY)]
    for slot in order:
        coefficient = state.inverse[slot] * np.einsum("pc,pc->p", state.steps[slot], vector)
        coefficients.append(coefficient)
        vector -= coefficient[:, None] * state.changes[slot]
    newest = state.newest
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

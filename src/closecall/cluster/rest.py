"""Averages over partitions: Newton steps from the sample's solution, one pass each.

Each problem is a coroutine that yields the request of its next pass and receives the sums; this way all classes of
one-vs-rest share their passes.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._names import Array
from ..losses import Loss
from ..solvers.tally import margin_at
from .looks import Look, Sums
from .window import Selection, Window

#: Passes that one problem may take from its start.
LIMIT = 40
#: A problem rests when its objective can fall by no more than this share of it: coefficients are exact to its root.
PRECISE = 1e-13


@dataclass(frozen=True)
class Resting:
    """The end of a run: coordinates, objective, gap, errors and whether it has converged."""

    c: Array
    objective: float
    gap: float
    errors: float
    rests: bool


@dataclass(frozen=True)
class Asked:
    """A problem: the class that counts as +1, the selection, the penalty, the total rows, tol and room.

    ``room`` is how many rows may be gathered around a k-th place, ``near`` how many near the boundary.
    """

    label: Any
    selection: Selection
    penalty: Array
    rows: int
    tol: float
    room: int
    near: int

    @property
    def taken(self) -> float:
        """The approximate number of selected rows."""
        return self.selection.k / self.selection.total * self.rows


def margins_within(loss: Loss, threshold: float | None, high: float) -> tuple[float, float]:
    """Margins outside of which keys are above ``high``: losses fall with the margin, so both ends are searched.

    Examples
    --------
    >>> from closecall.losses import get_loss
    >>> low, high = margins_within(get_loss("hinge"), 1.0, 0.5)
    >>> round(low, 6), round(high, 6)
    (-0.5, 0.5)
    """
    if loss.falls is None or not np.isfinite(high):
        return -np.inf, np.inf
    least, most = (threshold - high, threshold + high) if threshold is not None else (-high, np.inf)
    ends = []
    for level, outside in ((most, -np.inf), (least, np.inf)):
        inside = loss.value(np.array([-1e9, 1e9]))
        end = margin_at(loss, level) if inside[1] < level < inside[0] else outside
        ends.append(end + float(np.sign(outside)) * 1e-8 * max(1.0, abs(end)) if np.isfinite(end) else end)
    return ends[0], ends[1]


def rest(asked: Asked, start: Array) -> Generator[Look, Sums, Resting]:
    """Coroutine of one average of a smooth convex loss.

    Yields
    ------
    Look
        Receives its :class:`closecall.cluster.looks.Sums`.

    Returns
    -------
    Resting
    """
    c, best, step = start, None, np.zeros_like(start)
    for _ in range(LIMIT):
        look = Look(asked.label, c, asked.selection.loss, None, np.inf, np.inf)
        sums = yield look
        here = seen(Window(look, sums, asked.selection, asked.penalty))
        if best is not None and not here.objective <= best.objective * (1 + 1e-12):
            step = step / 4  # too far: the quadratic does not hold there
            c = best.c + step
            continue
        best, gradient = here, sums.gradient + asked.penalty * c
        step = -_solved(sums.bend, asked.penalty, gradient)
        if -float(gradient @ step) <= 2 * PRECISE * here.objective:
            return replace(here, rests=True)
        c = c + step
    return best or here


def _solved(bend: Array | None, penalty: Array, right: Array) -> Array:
    """Solve (curvature + penalty) x = right, scaled to a unit diagonal and slightly damped where curvature is zero."""
    matrix = np.diag(penalty) + (0.0 if bend is None else bend)
    heights = np.diag(matrix)
    scale = 1 / np.sqrt(np.where(heights > 0, heights, 1.0))
    matrix = matrix * scale[:, None] * scale
    matrix[np.diag_indices(len(matrix))] = 1 + 1e-13
    return scale * np.linalg.solve(matrix, scale * right)


def seen(window: Window) -> Resting:
    """The state of a run at a window: objective, gap and errors, not yet converged."""
    value, gap = window.certificate()
    return Resting(window.c, value, gap, window.sums.errors, False)

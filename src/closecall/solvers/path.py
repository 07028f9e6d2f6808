"""Paths on dense rows, whose stages run in C for the losses that `path.c` supports; paths run in several threads.

The solution of a nonconvex problem depends on its start. Further starts are the ends of paths with random masses, from
which the problem is minimised again.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._names import Array
from ..losses import get_loss
from .crew import Crew
from .rows import DenseRows, Margins
from .stages import NEAR, STAGE, TOL, Spot, Walk

#: The losses that the C code supports, and their numbers in C.
LOSSES = {"logistic": 0, "hinge": 1}


class KernelRows(ctypes.Structure):
    """The rows of a path and the window of its stages, in the form that C reads."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("across", "penalty", "mass")),
        *((name, ctypes.c_int64) for name in ("rows", "size", "loss", "kind")),
        *((name, ctypes.c_double) for name in ("threshold", "ramp", "kink")),
        ("room", ctypes.c_void_p),
    )


def _load() -> Any:
    pointer, whole, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("_path.so")))
        library.settle.argtypes = [pointer, real, real, whole, whole, pointer]
        library.slope.argtypes = [pointer, real, whole, whole, pointer, pointer]
        library.losses.argtypes = [pointer] * 3
        library.room_of.argtypes, library.state_of.argtypes = [whole, whole], [whole]
    except (OSError, AttributeError):  # not compiled, or from older sources
        return None
    library.settle.restype = library.room_of.restype = library.state_of.restype = whole
    library.slope.restype, library.losses.restype = real, None
    return library


LIBRARY = _load()


@dataclass
class CompiledWalk(Walk):
    """A :class:`Walk` on :class:`Margins` of :class:`DenseRows` whose stages run in C.

    The curvature of a spot is an array with five results, the coordinates and a factor, together with the number of
    steps that correct the factor.
    """

    def __post_init__(self) -> None:
        across = self.rows.across
        (self.size, self.samples), padded = across.shape, across.strides[0] // across.itemsize  # zeros at the end
        self.room, self.mass = np.zeros(LIBRARY.room_of(padded, self.size)), np.zeros(padded)
        self.numbers, self.filled = LIBRARY.state_of(self.size), None
        addresses = (part.ctypes.data for part in (across, self.penalty, self.mass))
        whole = padded, self.size, LOSSES[self.rows.loss.name], self.kind
        self.kernel = KernelRows(*addresses, *whole, self.rows.threshold, self.ramp, self.kink, self.room.ctypes.data)
        self.last: Spot | None = None

    def _kernel(self) -> int:
        """Return the address of the rows with the current masses and window."""
        if self.filled is not self.rows.mass:
            self.filled = self.rows.mass
            self.mass[: self.samples] = self.filled
        self.kernel.kind, self.kernel.ramp, self.kernel.kink = self.kind, self.ramp, self.kink
        return ctypes.addressof(self.kernel)

    def settle(self, c: Array, cut: float, curvature: Any = None) -> Spot:
        state, known = np.empty(self.numbers), -1
        if curvature is not None:
            state[:], known = curvature
        place = state[5 : 5 + self.size]
        place[:] = c
        steps = max(min(self.stage, self.steps), 0)
        known = LIBRARY.settle(self._kernel(), cut, self.tol, steps, known, state.ctypes.data)
        inside, value, errors, looks, taken = state[:5].tolist()
        self.looks, self.steps = self.looks + int(looks), self.steps - int(taken)
        self.last = Spot(place, cut, inside, value, errors, (state, known) if known >= 0 else None)
        return self.last

    def slope(self, spot: Spot) -> tuple[float, Array]:
        drift = np.zeros(self.size)
        if spot.curvature is None:
            return 0.0, drift
        (state, known), moved = spot.curvature, spot is not self.last
        given = spot.cut, known, moved, state.ctypes.data, drift.ctypes.data
        return LIBRARY.slope(self._kernel(), *given), drift

    def losses(self, c: Array) -> Array:
        found, c = np.empty(len(self.mass)), np.array(c, dtype=np.float64)
        LIBRARY.losses(self._kernel(), c.ctypes.data, found.ctypes.data)
        return found[: self.samples]


def walk_on(rows: Margins, penalty: Array, stage: int = STAGE, tol: float = TOL) -> Walk:
    """Return a :class:`Walk` on the margins of dense rows, compiled if C supports their loss."""
    return (CompiledWalk if LIBRARY is not None and rows.loss.name in LOSSES else Walk)(rows, penalty, stage, tol)


@dataclass(frozen=True)
class PathTask:
    """A path that starts at the average with the masses ``run`` (samples,) and ends at cuts with the masses ``own``.

    The targets ``k`` are masses in descending order, and ``start`` (coordinates,) is the start for the average.
    """

    loss: str
    run: Array
    own: Array
    alpha: float
    k: Array
    start: Array


def follow(
    rows: DenseRows, tasks: Sequence[PathTask], *, stage: int = STAGE, threads: int = 1, tol: float = TOL,
    near: float = NEAR,
) -> list[tuple[list[Spot], int]]:  # fmt: skip
    """Follow every path to its last k, and return a :class:`Spot` for each k and the number of evaluations.

    ``tol`` is the precision of the stages, and ``near`` is the precision of the mass inside as a share of k.
    """

    def path(task: PathTask) -> tuple[list[Spot], int]:
        total = float(task.own.sum())
        slack = near * np.where(total > task.k, np.minimum(task.k, total - task.k), task.k)
        running = rows.margins(task.loss, task.run)
        own = running if task.own is task.run else rows.margins(task.loss, task.own)
        walk = walk_on(running, task.alpha * rows.penalized, stage, tol)
        return walk.run(task.start, task.k, slack, own), walk.looks

    return Crew(threads).map(path, tasks)


def averages(rows: DenseRows, loss: str, masses: Sequence[Array], alpha: float) -> list[Array]:
    """Return the minimum of the average for each of the masses; the logistic loss replaces nonconvex losses."""
    loss, penalty = loss if get_loss(loss).convex else "logistic", alpha * rows.penalized
    return [walk_on(rows.margins(loss, mass), penalty).settle(np.zeros(len(penalty)), np.inf).c for mass in masses]

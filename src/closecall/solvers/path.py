"""Paths on dense rows, with the stages in C for the losses that `path.c` has, and several paths in threads.

A nonconvex problem depends on its start. Further starts are the ends of paths under random masses, from which the
problem is minimised again.
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

#: The losses that C has, and their numbers there.
LOSSES = {"logistic": 0, "hinge": 1}


def _load() -> Any:
    pointer, whole, real, flag = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double, ctypes.c_int32
    rows: list[Any] = [pointer, whole, whole, flag, real, pointer, pointer, flag, real, real, pointer]
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("_path.so")))
        library.settle.argtypes = [*rows, real, real, whole, pointer, pointer, whole, pointer]
        library.slope.argtypes = [*rows, real, pointer, pointer, whole, flag, pointer]
        library.losses.argtypes = [*rows, pointer, pointer]
        library.room_of.argtypes, library.factor_of.argtypes = [whole, whole], [whole]
    except (OSError, AttributeError):  # not compiled, or from older sources
        return None
    library.settle.restype = library.room_of.restype = library.factor_of.restype = whole
    library.slope.restype, library.losses.restype = real, None
    return library


LIBRARY = _load()


@dataclass
class CompiledWalk(Walk):
    """A walk on :class:`Margins` of :class:`DenseRows` whose stages run in C."""

    def __post_init__(self) -> None:
        self.size, self.samples = self.rows.across.shape
        self.padded = self.rows.across.strides[0] // self.rows.across.itemsize  # the rows end in zeros
        self.room = np.zeros(LIBRARY.room_of(self.padded, self.size))
        self.last: Spot | None = None

    def _call(self, function: Any, *given: Any) -> Any:
        """Call C with the rows and further arguments, passing contiguous arrays by address."""
        rows, mass = self.rows, np.zeros(self.padded)
        mass[: self.samples] = rows.mass
        given = (
            rows.across, self.padded, self.size, LOSSES[rows.loss.name], rows.threshold, self.penalty, mass, self.kind,
            self.ramp, self.kink, self.room, *given,
        )  # fmt: skip
        return function(*(part.ctypes.data if isinstance(part, np.ndarray) else part for part in given))

    def settle(self, c: Array, cut: float, curvature: Any = None) -> Spot:
        c, found = np.array(c, dtype=np.float64), np.empty(5)
        factor, known = np.empty(LIBRARY.factor_of(self.size)), -1
        if curvature is not None:
            factor, known = curvature[0].copy(), curvature[1]
        most = max(min(self.stage, self.steps), 0)
        known = self._call(LIBRARY.settle, cut, self.tol, most, c, factor, known, found)
        inside, value, errors, looks, steps = found.tolist()
        self.looks, self.steps = self.looks + int(looks), self.steps - int(steps)
        self.last = Spot(c, cut, inside, value, errors, (factor, known) if known >= 0 else None)
        return self.last

    def slope(self, spot: Spot) -> tuple[float, Array]:
        drift = np.zeros(self.size)
        if spot.curvature is None:
            return 0.0, drift
        return self._call(LIBRARY.slope, spot.cut, spot.c, *spot.curvature, spot is not self.last, drift), drift

    def losses(self, c: Array) -> Array:
        found = np.empty(self.padded)
        self._call(LIBRARY.losses, np.ascontiguousarray(c), found)
        return found[: self.samples]


def walk_on(rows: Margins, penalty: Array, stage: int = STAGE, tol: float = TOL) -> Walk:
    """Return a walk on the margins of dense rows, compiled if C has their loss."""
    return (CompiledWalk if LIBRARY is not None and rows.loss.name in LOSSES else Walk)(rows, penalty, stage, tol)


@dataclass(frozen=True)
class PathTask:
    """A path that starts at the average under the masses ``run`` (samples,); its spots are placed under its ``own``.

    The targets ``k`` are masses, falling; ``start`` (coordinates,) is where the average begins.
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
    """Follow every path to its last k; return its spots, one for each k, and the number of evaluations.

    ``tol`` is the precision of the stages, and ``near`` that of the mass inside, as a share of k.
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
    """Return the minima (coordinates,) of the average under each of the masses; of the logistic loss if not convex."""
    loss, penalty = loss if get_loss(loss).convex else "logistic", alpha * rows.penalized
    return [walk_on(rows.margins(loss, mass), penalty).settle(np.zeros(len(penalty)), np.inf).c for mass in masses]

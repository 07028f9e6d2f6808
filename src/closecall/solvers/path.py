"""Paths of cuts: close-k as a clipped loss, minimised stage by stage.

At a fixed cut e the close-k gradient is the gradient of a function: ``sum of clip(l, T - e, T + e)`` has the slopes of
the examples with ``|l - T| < e`` and none elsewhere, and charges an error beyond the cut T + e, the paper's M. A stage
is therefore an ordinary minimisation: Newton steps with a line search, with corners rounded over a ramp. Lowering the
cut is the paper's decay, and one path visits every k: k only determines the cut. A nonconvex problem depends on its
start; further starts are the ends of paths under random masses, from which the problem is minimised again. `path.c`
handles the logistic and hinge losses, :mod:`closecall.solvers.stages` the others, and all of them without a compiler.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from .._names import Array
from ..losses import get_loss
from .crew import Crew
from .cuts import LossCut
from .rows import DenseRows
from .stages import BEGIN, FACTOR, GENTLE, KINK, NEAR, RAMP, STAGE, STEPS, TOL, Spot, Walk

#: The losses that C knows, by its numbers.

LOSSES = {"logistic": 0, "hinge": 1}


@dataclass(frozen=True)
class Spots:
    """Points on several paths: coordinates (tasks, targets, size), the rest (tasks, targets); evaluations (tasks,)."""

    coordinates: Array
    cut: Array
    inside: Array
    value: Array
    errors: Array
    looks: Array


@dataclass(frozen=True)
class Tasks:
    """Paths of one loss: each under its ``run`` masses, its spots under its ``own``.

    Parameters
    ----------
    loss : str
    masses : array (kinds, samples)
    run, own : arrays (tasks,) of int
    alpha : array (tasks,)
    k : array (tasks, targets)
        Masses, falling.
    starts : array (tasks, coordinates)
        Where the average begins.
    """

    loss: str
    masses: Array
    run: Array
    own: Array
    alpha: Array
    k: Array
    starts: Array

    def take(self, some: Array) -> Tasks:
        parts = {name: getattr(self, name)[some] for name in ("run", "own", "alpha", "k", "starts")}
        return replace(self, **parts)


def follow(
    rows: DenseRows, tasks: Tasks, *, stage: int = STAGE, threads: int = 1, tol: float = TOL, near: float = NEAR
) -> Spots:
    """Follow every path down to its last k.

    Parameters
    ----------
    rows : DenseRows
    tasks : Tasks
    stage : int
        The maximum number of Newton steps in a stage.
    threads : int
    tol, near : float
        The precision of the stages, and how close to k the mass inside must be, as a share of it.
    """
    slack = near * _slack(tasks.k, tasks.masses[tasks.own].sum(axis=1)[:, None])
    walk: Callable[..., Spots] = _compiled if LIBRARY is not None and tasks.loss in LOSSES else _walked
    parts = np.array_split(np.arange(len(tasks.alpha)), min(len(tasks.alpha), 4 * threads if threads > 1 else 1))
    found = Crew(threads).map(lambda some: walk(rows, tasks.take(some), slack[some], stage, tol), parts)
    return Spots(*(np.concatenate([getattr(each, name) for each in found]) for name in Spots.__dataclass_fields__))


def _slack(k: Array, total: Array) -> Array:
    return np.where(total > k, np.minimum(k, total - k), k)


@dataclass(frozen=True)
class Sharpening:
    """Known points, to be solved again at ever narrower ramps with the same mass inside their cuts.

    Parameters
    ----------
    loss : str
    masses : array (kinds, samples)
    own : array (tasks,) of int
    alpha : array (tasks,)
    cuts : list of LossCut, all of one kind
    coordinates : array (tasks, size)
    cut : array (tasks,)
    ramps : array (tasks, levels)
    near : array (levels,)
        The tolerance of the masses at each level, as a share of the cuts' slack.
    """

    loss: str
    masses: Array
    own: Array
    alpha: Array
    cuts: list[LossCut]
    coordinates: Array
    cut: Array
    ramps: Array
    near: Array

    def take(self, some: Array) -> Sharpening:
        names = ("own", "alpha", "coordinates", "cut", "ramps")
        return replace(
            self, cuts=[self.cuts[each] for each in some], **{name: getattr(self, name)[some] for name in names}
        )


def sharpen(rows: DenseRows, task: Sharpening, *, stage: int = STAGE, tol: float = TOL) -> tuple[Spots, Array]:
    """The points, one per target, and the last ramp at which k could be placed (tasks,), 0 if there is none."""
    size, tasks = rows.across.shape[0], len(task.alpha)
    found, reached, looks = np.zeros((tasks, 1, size + 4)), np.zeros(tasks), np.zeros(tasks, dtype=np.int64)
    found[:, 0, :size], found[:, 0, size] = task.coordinates, task.cut
    if LIBRARY is not None and task.loss in LOSSES:
        own, kind = np.ascontiguousarray(task.own, dtype=np.int64), task.cuts[0].kind
        k, slack = np.array([cut.k for cut in task.cuts]), np.array([cut.slack for cut in task.cuts])
        alpha, ramps, near = (
            np.ascontiguousarray(part, dtype=np.float64) for part in (task.alpha, task.ramps, task.near)
        )
        _call(LIBRARY.sharpen, rows, task.loss, tasks, rows.filled(task.masses), own, alpha, kind, k, slack,
              ramps.shape[1], ramps, near, GENTLE, tol, stage, STEPS, found, reached, looks)  # fmt: skip
        return _spots(rows, found, looks), reached
    for place in range(tasks):
        walk = Walk(
            rows.margins(task.loss, task.masses[task.own[place]]), task.alpha[place] * rows.penalized, stage, tol
        )
        spot = Spot(task.coordinates[place], float(task.cut[place]))
        spot, reached[place] = walk.sharpen(spot, task.cuts[place], task.ramps[place], task.near)
        found[place, 0], looks[place] = spot.row(), walk.looks
    return _spots(rows, found, looks), reached


def _spots(rows: DenseRows, found: Array, looks: Array) -> Spots:
    size = rows.across.shape[0]
    cut, inside, value, errors = np.moveaxis(found[..., size:], -1, 0)
    return Spots(found[..., :size], cut, inside, value, errors, looks)


def _walked(rows: DenseRows, tasks: Tasks, slack: Array, stage: int, tol: float) -> Spots:
    size = rows.across.shape[0]
    found, looks = np.empty((*tasks.k.shape, size + 4)), np.zeros(len(tasks.alpha), dtype=np.int64)
    for task in range(len(tasks.alpha)):
        running, own = (rows.margins(tasks.loss, tasks.masses[which[task]]) for which in (tasks.run, tasks.own))
        walk = Walk(running, tasks.alpha[task] * rows.penalized, stage, tol)
        spots = walk.run(
            tasks.starts[task], tasks.k[task], slack[task], running if tasks.run[task] == tasks.own[task] else own
        )
        found[task], looks[task] = [spot.row() for spot in spots], walk.looks
    return _spots(rows, found, looks)


def _load() -> Any:
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("_path.so")))
    except OSError:
        return None
    pointer, whole, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    rows: list[Any] = [pointer, whole, whole, ctypes.c_int32, real, real, pointer]
    library.paths.restype = library.sharpen.restype = whole
    library.paths.argtypes = [
        *rows,
        whole,
        *[pointer] * 5,
        whole,
        *[pointer] * 2,
        *[real] * 4,
        whole,
        whole,
        *[pointer] * 2,
    ]
    library.sharpen.argtypes = [*rows, whole, *[pointer] * 3, ctypes.c_int32, *[pointer] * 2, whole, *[pointer] * 2,
                                *[real] * 2, whole, whole, *[pointer] * 3]  # fmt: skip
    return library


LIBRARY = _load()


def _call(function: Any, rows: DenseRows, loss: str, *given: Any) -> None:
    """Call C with rows, a loss and further arguments, passing contiguous arrays by address."""
    size, padded = rows.across.shape
    addresses = [part.ctypes.data if isinstance(part, np.ndarray) else part for part in given]
    if function(rows.across.ctypes.data, padded, size, LOSSES[loss], get_loss(loss).threshold, KINK,
                rows.penalized.ctypes.data, *addresses):  # fmt: skip
        raise MemoryError(f"not enough memory for a path of {padded} rows and {size} coordinates")


def _compiled(rows: DenseRows, tasks: Tasks, slack: Array, stage: int, tol: float) -> Spots:
    parts = (rows.filled(tasks.masses), tasks.alpha, tasks.starts, tasks.k, slack)
    masses, alpha, starts, k, slack = (np.ascontiguousarray(part, dtype=np.float64) for part in parts)
    run, own = (np.ascontiguousarray(part, dtype=np.int64) for part in (tasks.run, tasks.own))
    found, looks = np.empty((*k.shape, rows.across.shape[0] + 4)), np.zeros(len(alpha), dtype=np.int64)
    _call(LIBRARY.paths, rows, tasks.loss, len(alpha), masses, run, own, alpha, starts, k.shape[1], k, slack,
          BEGIN, FACTOR, RAMP, tol, stage, STEPS, found, looks)  # fmt: skip
    return _spots(rows, found, looks)

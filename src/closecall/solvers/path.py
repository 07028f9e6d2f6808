"""Paths of cuts: close-k as a clipped loss, minimised stage by stage.

At a fixed cut e the close-k gradient is the gradient of a function: ``sum of clip(l, T - e, T + e)`` has the slopes of
the examples with ``|l - T| < e`` and none elsewhere, and charges an error beyond the cut T + e, the paper's M. A stage
is therefore an ordinary minimisation: Newton's steps with a line search, its corners rounded over a ramp. Lowering the
cut is the paper's decay, and one path visits every k: k only says where the cut is. What is not convex depends on its
start; other starts are the ends of paths under random masses, from which the true ones are minimised again.

`path.c` serves the logistic and the hinge loss, :mod:`closecall.solvers.stages` the others, and all without a compiler.
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
from .rows import DenseRows
from .stages import BEGIN, FACTOR, GENTLE, KINK, NEAR, RAMP, STAGE, STEPS, TOL, Spot, Walk

#: The losses that C knows, by its numbers.

LOSSES = {"logistic": 0, "hinge": 1}


@dataclass(frozen=True)
class Spots:
    """Spots of several paths: coordinates (tasks, targets, size), the rest (tasks, targets); looks (tasks,)."""

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
        Newton's steps that a stage may take.
    threads : int
    tol, near : float
        How exactly stages are solved, and how near to k the mass inside has to be, as a share of it.
    """
    tasks = replace(tasks, masses=rows.filled(tasks.masses))
    walk: Callable[..., Spots] = _compiled if LIBRARY is not None and tasks.loss in LOSSES else _walked
    parts = np.array_split(np.arange(len(tasks.alpha)), min(len(tasks.alpha), 4 * threads if threads > 1 else 1))
    found = Crew(threads).map(lambda some: walk(rows, tasks.take(some), stage, tol, near), parts)
    return Spots(*(np.concatenate([getattr(each, name) for each in found]) for name in Spots.__dataclass_fields__))


@dataclass(frozen=True)
class Sharpening:
    """Spots that are known, settled at one ramp after the other, with the mass ``k`` inside.

    Parameters
    ----------
    loss : str
    masses : array (kinds, samples)
    own : array (tasks,) of int
    alpha, k : arrays (tasks,)
    coordinates : array (tasks, size)
    cut : array (tasks,)
    ramps : array (tasks, levels)
    near : array (levels,)
        How near to k the mass inside has to be at each level.
    """

    loss: str
    masses: Array
    own: Array
    alpha: Array
    k: Array
    coordinates: Array
    cut: Array
    ramps: Array
    near: Array

    def take(self, some: Array) -> Sharpening:
        parts = {name: getattr(self, name)[some] for name in ("own", "alpha", "k", "coordinates", "cut", "ramps")}
        return replace(self, **parts)


def sharpen(rows: DenseRows, task: Sharpening, *, stage: int = STAGE, tol: float = TOL) -> tuple[Spots, Array]:
    """The spots, each of one target, and the last ramp at which k could be placed (tasks,), 0 if at none."""
    size, tasks = rows.across.shape[0], len(task.alpha)
    found, reached, looks = np.zeros((tasks, 1, size + 4)), np.zeros(tasks), np.zeros(tasks, dtype=np.int64)
    found[:, 0, :size], found[:, 0, size] = task.coordinates, task.cut
    masses = rows.filled(task.masses)
    if LIBRARY is not None and task.loss in LOSSES:
        own = np.ascontiguousarray(task.own, dtype=np.int64)
        parts = [np.ascontiguousarray(part, dtype=np.float64) for part in (task.alpha, task.k, task.ramps, task.near)]
        _call(LIBRARY.sharpen, rows, task.loss, tasks, masses, own, *parts[:2], task.ramps.shape[1], *parts[2:], GENTLE,
              tol, stage, STEPS, found, reached, looks)  # fmt: skip
        return _spots(rows, found, looks), reached
    for place in range(tasks):
        walk = Walk(
            rows.across, get_loss(task.loss), masses[task.own[place]], task.alpha[place] * rows.penalized, stage, tol
        )
        spot, k = Spot(task.coordinates[place], float(task.cut[place]), 0.0, 0.0, 0.0), float(task.k[place])
        for ramp, near in zip(task.ramps[place], task.near, strict=True):
            walk.ramp, walk.kink = ramp, min(KINK, ramp * spot.cut)
            spot = walk.carry_over(spot, k, GENTLE, near)
            if not abs(spot.inside - k) <= near * k:
                break
            found[place, 0], reached[place] = [*spot.c, spot.cut, spot.inside, spot.value, spot.errors], ramp
        looks[place] = walk.looks
    return _spots(rows, found, looks), reached


def _spots(rows: DenseRows, found: Array, looks: Array) -> Spots:
    size = rows.across.shape[0]
    cut, inside, value, errors = np.moveaxis(found[..., size:], -1, 0)
    return Spots(found[..., :size], cut, inside, value, errors, looks)


def _walked(rows: DenseRows, tasks: Tasks, stage: int, tol: float, near: float) -> Spots:
    size = rows.across.shape[0]
    found, looks = np.empty((*tasks.k.shape, size + 4)), np.zeros(len(tasks.alpha), dtype=np.int64)
    for task in range(len(tasks.alpha)):
        mass, penalty = tasks.masses[tasks.run[task]], tasks.alpha[task] * rows.penalized
        walk = Walk(rows.across, get_loss(tasks.loss), mass, penalty, stage, tol)
        same = tasks.run[task] == tasks.own[task]
        spots = walk.run(tasks.starts[task], tasks.k[task], None if same else tasks.masses[tasks.own[task]], near)
        found[task] = [[*spot.c, spot.cut, spot.inside, spot.value, spot.errors] for spot in spots]
        looks[task] = walk.looks
    return _spots(rows, found, looks)


def _load() -> Any:
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("_path.so")))
    except OSError:
        return None
    pointer, whole, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    rows: list[Any] = [pointer, whole, whole, ctypes.c_int32, real, real, pointer]
    library.paths.restype = library.sharpen.restype = whole
    library.paths.argtypes = [*rows, whole, *[pointer] * 5, whole, pointer, *[real] * 5, whole, whole, *[pointer] * 2]
    library.sharpen.argtypes = [*rows, whole, *[pointer] * 4, whole, *[pointer] * 2, *[real] * 2, whole, whole,
                                *[pointer] * 3]  # fmt: skip
    return library


LIBRARY = _load()


def _call(function: Any, rows: DenseRows, loss: str, *given: Any) -> None:
    """Call C with rows, a loss and what else it takes: contiguous arrays by their addresses."""
    size, padded = rows.across.shape
    addresses = [part.ctypes.data if isinstance(part, np.ndarray) else part for part in given]
    if function(rows.across.ctypes.data, padded, size, LOSSES[loss], get_loss(loss).threshold, KINK,
                rows.penalized.ctypes.data, *addresses):  # fmt: skip
        raise MemoryError(f"not enough memory for a path of {padded} rows and {size} coordinates")


def _compiled(rows: DenseRows, tasks: Tasks, stage: int, tol: float, near: float) -> Spots:
    parts = (tasks.masses, tasks.alpha, tasks.starts, tasks.k)
    masses, alpha, starts, k = (np.ascontiguousarray(part, dtype=np.float64) for part in parts)
    run, own = (np.ascontiguousarray(part, dtype=np.int64) for part in (tasks.run, tasks.own))
    found, looks = np.empty((*k.shape, rows.across.shape[0] + 4)), np.zeros(len(alpha), dtype=np.int64)
    _call(LIBRARY.paths, rows, tasks.loss, len(alpha), masses, run, own, alpha, starts, k.shape[1], k,
          BEGIN, FACTOR, RAMP, near, tol, stage, STEPS, found, looks)  # fmt: skip
    return _spots(rows, found, looks)

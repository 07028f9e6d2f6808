"""The compiled kernel for the network; where it is not available, the NumPy code in :mod:`.layers` is used instead.

`kernel.c` is built when the package is installed, if there is a C compiler. It supports the logistic and hinge losses,
the core aggregates, any masses and any number of classes, in float32. Calls release the GIL.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path as File
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from .layers import Shape
from .paths import Data, Path, Settings

#: Losses and aggregates that the kernel supports, keyed by function, because users may register the names again.
LOSSES = {get_loss(name).value: number for number, name in enumerate(("logistic", "hinge"))}
_KINDS = {"average": 0, "close": 1, "atk": 2, "maximal": 2, "top": 3, "ranked_range": 4, "trimmed": 4}
KINDS = {get_aggregate(name).weigh: number for name, number in _KINDS.items()}
_MAXIMAL = get_aggregate("maximal").weigh  # the largest losses up to a mass of one

_POINTERS = ("seen", "signs", "classes", "factors", "masses")
_ROOMS = ("penalized", "scores", "pulls", "deltas", "few", "gradient", "scratch", "room_mass", "places")


class _Job(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_int64) for name in ("features", "hidden", "outputs", "samples", "width", "chunks")),
        *((name, ctypes.c_void_p) for name in _POINTERS),
        ("total", ctypes.c_double),
        *((name, ctypes.c_void_p) for name in _ROOMS),
    )


class _Network(ctypes.Structure):
    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("weights", "mean", "square")),
        ("loss", ctypes.c_int32),
        ("kind", ctypes.c_int32),
        ("alpha", ctypes.c_double),
        ("m", ctypes.c_double),
        ("hint", ctypes.c_double * 3),
    )
    kept: tuple[Array, ...]


def _load() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(File(__file__).with_name("_kernel.so")))
    except OSError:
        return None
    library.network_walk.restype = None
    library.network_walk.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, *[ctypes.c_void_p] * 3]
    return library


LIBRARY = _load()


def serves(path: Path, dtype: Any) -> bool:
    """Return whether the compiled kernel supports this path."""
    known = get_loss(path.loss).value in LOSSES and get_aggregate(path.aggregate).weigh in KINDS
    return LIBRARY is not None and dtype == np.float32 and known


class CompiledWalker:
    """A trainer that handles one network at a time; the data are prepared once for all networks."""

    def __init__(self, data: Data, shape: Shape, settings: Settings) -> None:
        self.data, self.settings = data, settings
        self.schedules: dict[tuple[str, float, range], tuple[Array, ...]] = {}
        samples, height = len(data.rows), shape.layers[2][1]
        # The activations and derivatives of a chunk, 2**16 floats, fit in the L2 cache; 512 samples suffice.
        room = 2**16 // (height + 2 * shape.hidden + shape.outputs)
        width = _whole(-(-samples // -(-samples // max(64, min(room, 512)))))
        chunks = -(-samples // width)
        seen = np.zeros((chunks, height, width), dtype=np.float32)
        for chunk, part in enumerate(np.split(data.rows, range(width, samples, width))):
            seen[chunk, : shape.features, : len(part)] = part.T
            seen[chunk, shape.features, : len(part)] = 1
        classes = data.outputs > 1
        given = {
            "seen": seen,
            "signs": None if classes else data.targets.astype(np.float32),
            "classes": data.targets.astype(np.int32) if classes else None,
            "factors": None if data.mass is None else data.mass.astype(np.float32),
            "masses": None if data.mass is None else data.mass.astype(np.float64),
        }
        sizes = {
            "scores": shape.outputs * chunks * width, "pulls": _whole(samples), "deltas": (2 * shape.hidden) * width,
            "few": (height + shape.outputs) * width, "gradient": shape.size, "scratch": 3 * _whole(samples),
        }  # fmt: skip
        rooms: dict[str, Array] = {name: np.zeros(size, dtype=np.float32) for name, size in sizes.items()}
        rooms["penalized"] = shape.penalized(settings.penalize_intercept).astype(np.float32)
        rooms["room_mass"] = np.zeros(0 if data.mass is None else samples)
        rooms["places"] = np.zeros((3 if classes else 2) * samples, dtype=np.int32)
        self.kept = {**given, **rooms}  # C has only their addresses
        self.job = _Job(
            shape.features, shape.hidden, shape.outputs, samples, width, chunks,
            *(_address(given[name]) for name in _POINTERS), data.total, *(_address(rooms[name]) for name in _ROOMS),
        )  # fmt: skip

    def network(self, weights: Array, mean: Array, square: Array, path: Path) -> Callable[[range], None]:
        """Return a function that trains a network for a span of steps, updating its three vectors (size,)."""
        loss, kind = LOSSES[get_loss(path.loss).value], KINDS[get_aggregate(path.aggregate).weigh]
        hint = (0.0, 0.0, -1.0)  # the last known position of the k-th smallest key
        vectors = weights, mean, square
        state = _Network(*map(_address, vectors), loss, kind, path.alpha, path.m, hint)
        state.kept = vectors  # C has only their addresses

        def walk(span: range) -> None:
            assert LIBRARY is not None
            addresses = map(_address, self._schedule(path.aggregate, path.k, span))
            LIBRARY.network_walk(ctypes.addressof(self.job), ctypes.addressof(state), len(span), *addresses)

        return walk

    def _schedule(self, aggregate: str, k: float, span: range) -> tuple[Array, ...]:
        """Return k, the step size and the correction at each step of a span; most networks share these arrays."""
        if (aggregate, k, span) not in self.schedules:
            counts = Path("", aggregate, 0.0, k, 0.0).counts(self.data.total, self.settings.max_iter, span)
            if get_aggregate(aggregate).weigh is _MAXIMAL:
                counts = np.ones(len(span))
            factors = np.array([self.settings.factors(step) for step in span], dtype=np.float32).T.copy()
            self.schedules[aggregate, k, span] = counts, *factors
        return self.schedules[aggregate, k, span]


def _whole(width: int) -> int:
    """Round up to a multiple of sixteen (two vectors of eight)."""
    return -(-width // 16) * 16


def _address(array: Array | None) -> int | None:
    return None if array is None else array.ctypes.data

"""A compiled version of the most expensive functions in :mod:`.kernels`, which returns the same results.

`pull.c` is compiled when the package is installed, if a C compiler is available. Otherwise, everything runs in NumPy
and is several times slower. The compiled version supports the logistic and hinge losses on dense rows, and releases the
GIL.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from .._names import Array
from .design import Design
from .kernels import Mass, pull_of

#: The codes of losses and pulls in C.
LOSSES = {"logistic": 0, "hinge": 1}
KINDS = {"pull_all": 0, "pull_close": 1, "pull_largest": 2, "pull_top": 3}

_POINTER, _WHOLE = ctypes.c_void_p, ctypes.c_int64


def load(name: str, **functions: tuple[Any, list[Any]]) -> Any:
    """Load a library from this folder, and set the result type and the argument types of its functions.

    Return None if the library was not compiled, or was compiled from older sources.
    """
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name(name)))
        for function, (result, arguments) in functions.items():
            getattr(library, function).restype, getattr(library, function).argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return library


_PULL = _WHOLE, [_POINTER, _WHOLE, _WHOLE, *[_POINTER] * 11, _WHOLE, _POINTER, _POINTER]
LIBRARY = load("_pull.so", pull_f32=_PULL, pull_f64=_PULL)


def serves(design: Design, codes: Array, m: Array, masses: list[Mass]) -> Array:
    """Return a mask of the rows that the compiled kernel supports, given their codes (rows,) and the fold masses."""
    if LIBRARY is None or not isinstance(design.signed, np.ndarray):
        return np.zeros(len(m), dtype=bool)
    plain = np.array([mass.unit for mass in masses])[codes[2]]  # `top` with general masses has a rule of its own
    return (codes[:2] >= 0).all(axis=0) & (m == 0) & (plain | (codes[1] != KINDS["pull_top"]))


def codes(losses: Array, aggregates: Array, folds: Array) -> Array:
    """Return losses, aggregates and folds (3, rows) as the codes used in C, or -1 if unsupported."""
    kinds = [KINDS.get(pull_of(name).__name__, -1) for name in aggregates.tolist()]
    return np.array([[LOSSES.get(loss, -1) for loss in losses.tolist()], kinds, folds], dtype=np.int32)


class Puller:
    """A dense design and the masses of its folds, prepared for C and for blocks of at most ``rows`` rows."""

    def __init__(self, design: Design, masses: list[Mass], rows: int) -> None:
        self.design, dtype = design, design.signed.dtype
        self.margins = np.empty((rows, design.samples), dtype=dtype)
        general = [None if mass.unit else mass.values.astype(np.float64) for mass in masses]
        room = np.empty(2 * design.samples if any(mass is not None for mass in general) else 0)
        self.kept = [mass.factors for mass in masses], general  # C gets only their addresses
        factors, weights = (
            np.array([0 if array is None else array.ctypes.data for array in arrays], dtype=np.uintp)
            for arrays in self.kept
        )
        totals, scratch = np.array([mass.total for mass in masses]), np.empty((4, design.samples), dtype=dtype)
        self.fixed = totals, factors, weights, scratch, room
        self.addresses = [array.ctypes.data for array in self.fixed]  # looking them up costs more than a small step
        self.function = getattr(LIBRARY, "pull_f32" if dtype == np.float32 else "pull_f64")


class BoundPull:
    """Repeated gradients for the same rows; the arguments of the C function are prepared only once.

    ``codes`` (3, rows) come from :func:`codes`. The hints (rows, 3) are the last position of each row's k-th key, the
    drift of this position, and the width of the search around it (negative if unknown). The hints must be contiguous,
    and every call updates them.
    """

    def __init__(self, puller: Puller, codes: Array, hints: Array) -> None:
        self.design, self.function, self.hints = puller.design, puller.function, hints
        signed, rows = puller.design.signed, len(hints)
        self.values, self.k, self.left = puller.margins[:rows], np.empty(rows), np.empty(rows, dtype=np.int64)
        self.codes, self.found = np.ascontiguousarray(codes), np.empty((rows, signed.shape[1]), dtype=signed.dtype)
        first, row = self.codes.ctypes.data, self.codes.strides[0]
        addresses = [first, first + row, first + 2 * row, self.k.ctypes.data, *puller.addresses, hints.ctypes.data]
        self.arguments = [
            _POINTER(self.values.ctypes.data), *map(_WHOLE, self.values.shape), *map(_POINTER, addresses),
            _POINTER(signed.ctypes.data if signed.flags.c_contiguous else None), _WHOLE(signed.shape[1]),
            _POINTER(self.found.ctypes.data), _POINTER(self.left.ctypes.data),
        ]  # fmt: skip

    def pull(self, k: Array) -> int:
        """Turn the negated margins in ``values`` (rows, samples) into pulls, the weighted negated slopes, in place.

        The masses k (rows,) are positive and do not exceed the masses of the folds. If few of a row's examples have a
        nonzero pull and the design's rows are contiguous, the C code computes the row's gradient. The pulls of the
        other rows are moved to the front of ``values``. Return the number of other rows; ``left`` has their indices.
        """
        self.k[:] = k
        return int(self.function(*self.arguments))

    def gradients(self, C: Array, k: Array) -> Array:
        """Return gradients (rows, coordinates) at C without the penalty, in an array that the next call overwrites."""
        np.matmul(C, self.design.across, out=self.values)
        if left := self.pull(k):
            self.found[self.left[:left]] = self.values[:left] @ self.design.signed
        return self.found

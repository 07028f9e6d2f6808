"""The compiled version of the most expensive functions in :mod:`.kernels`, which gives the same results.

`pull.c` is compiled when the package is installed, if there is a C compiler. Without it, everything runs in NumPy and
is several times slower. The compiled version supports the logistic and hinge losses on dense rows, and releases the
GIL.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

import numpy as np

from .._names import Array
from .design import Design
from .kernels import Mass, pull_of, pull_top

#: The numbers of losses and pulls in pull.c.
LOSSES = {"logistic": 0, "hinge": 1}
KINDS = {"pull_all": 0, "pull_close": 1, "pull_largest": 2, "pull_top": 3}


def _load() -> ctypes.CDLL | None:
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("_pull.so")))
    except OSError:
        return None
    pointer, whole = ctypes.c_void_p, ctypes.c_int64
    for function in (library.pull_f32, library.pull_f64):
        function.restype = whole
        function.argtypes = [pointer, whole, whole, *[pointer] * 11, whole, pointer, pointer]
    return library


LIBRARY = _load()


def serves(design: Design, losses: Array, aggregates: Array, m: Array, folds: Array, masses: list[Mass]) -> Array:
    """Return which rows (rows,) the compiled kernel supports, given the masses of the folds."""
    if LIBRARY is None or not isinstance(design.signed, np.ndarray):
        return np.zeros(len(losses), dtype=bool)
    plain = np.array([mass.unit for mass in masses])[folds]  # `top` with general masses has a rule of its own
    numbers = codes(losses, aggregates, folds)
    known = (numbers[:2] >= 0).all(axis=0)
    return known & (m == 0) & (plain | (numbers[1] != KINDS[pull_top.__name__]))


def codes(losses: Array, aggregates: Array, folds: Array) -> Array:
    """Return losses, aggregates and folds (3, rows) as the codes used in C, or -1 if unsupported.

    Examples
    --------
    >>> codes(np.array(["logistic", "ramp"]), np.array(["close_decay", "top"]), np.array([0, 0])).tolist()
    [[0, -1], [1, 3], [0, 0]]
    """
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

    def pull(self, values: Array, codes: Array, k: Array, hints: Array) -> None:
        """Turn negated margins (rows, samples) into pulls, the weighted negated slopes, in place.

        ``codes`` (3, rows) come from :func:`codes`, and k (rows,) are positive masses that do not exceed the fold's
        mass. Hints (rows, 3) are the last position of each row's k-th key, its drift, and the width of the search
        around it, which is negative if unknown. They are updated in place.
        """
        codes, k, left = np.ascontiguousarray(codes), np.ascontiguousarray(k), np.empty(len(k), dtype=np.int64)
        self.function(*self.arguments(values, codes, k, hints, left, None))

    def arguments(
        self, values: Array, codes: Array, k: Array, hints: Array, left: Array, gradients: Array | None
    ) -> list[Any]:
        """Return the arguments of the C function: addresses that are valid as long as these contiguous arrays exist.

        If no gradients are given, or if the design's rows are not contiguous, only the pulls are computed.
        """
        first, row = codes.ctypes.data, codes.strides[0]
        addresses = [first, first + row, first + 2 * row, k.ctypes.data, *self.addresses, hints.ctypes.data]
        signed, sums = self.design.signed, gradients is not None and self.design.signed.flags.c_contiguous
        pointer, whole = ctypes.c_void_p, ctypes.c_int64
        return [
            pointer(values.ctypes.data), *map(whole, values.shape), *map(pointer, addresses),
            pointer(signed.ctypes.data if sums else None), whole(self.design.rank),
            pointer(None if gradients is None else gradients.ctypes.data), pointer(left.ctypes.data),
        ]  # fmt: skip


class BoundPull:
    """A function for repeated gradients of the same rows, which prepares the arguments of the C function once.

    See :meth:`Puller.pull` for the codes and hints. The hints must be contiguous, and every call updates them.
    """

    def __init__(self, puller: Puller, codes: Array, hints: Array) -> None:
        self.design, self.function, self.hints = puller.design, puller.function, hints
        rows, rank = len(hints), puller.design.rank
        self.values, self.k, self.left = puller.margins[:rows], np.empty(rows), np.empty(rows, dtype=np.int64)
        self.codes, self.found = np.ascontiguousarray(codes), np.empty((rows, rank), dtype=self.values.dtype)
        self.arguments = puller.arguments(self.values, self.codes, self.k, hints, self.left, self.found)

    def gradients(self, C: Array, k: Array) -> Array:
        """Return gradients (rows, coordinates) at C without the penalty, in an array that the next call overwrites."""
        np.matmul(C, self.design.across, out=self.values)
        self.k[:] = k
        left = self.function(*self.arguments)
        if left:  # C has summed the gradients of few examples; the pulls of the other rows are first in the values
            self.found[self.left[:left]] = self.values[:left] @ self.design.signed
        return self.found

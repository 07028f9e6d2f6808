"""What all readers share: errors, the order of labels, the import of pandas, and the encoding of columns."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from closecall._budget import LIMIT
from closecall._names import Array

#: A matrix of more than this many bytes is refused: one-hot columns of free text would fill the memory.
MATRIX_BYTES = LIMIT


class DataError(ValueError):
    """A data set that cannot be used as it is; the message states what was found and what to do."""


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels, in numerical order if all are numbers, otherwise in alphabetical order."""
    distinct = sorted(set(labels))
    try:
        return tuple(sorted(distinct, key=float))
    except ValueError:
        return tuple(distinct)


def need_pandas() -> Any:
    """Return the pandas module, or raise an error that names the extra to install."""
    try:
        import pandas
    except ImportError as error:
        raise DataError("reading data sets needs pandas: pip install 'closecall[bench]'") from error
    return pandas


def moments(X: Array) -> tuple[Array, Array]:
    """Return the mean and scale (features,) that standardise X (samples, features); a constant column has scale 1."""
    top = np.abs(X).max(axis=0, initial=0)
    # Squares of such numbers would overflow or underflow, so the column is divided by a power of two close to its size.
    extreme = (top > 1e100) | ((top < 1e-100) & (top > 0))
    if extreme.any():
        unit = np.where(extreme, np.exp2(np.floor(np.log2(np.where(extreme, top, 1)))), 1)
        mean, scale = moments(X / unit)
        return mean * unit, scale * unit
    mean, scale = X.mean(axis=0), X.std(axis=0)
    # The deviation of a constant column is rounding noise, not exactly zero.
    constant = scale <= 10 * np.finfo(float).eps * np.maximum(np.abs(mean), np.finfo(float).tiny)
    return mean, np.where(constant, 1, scale)


def mean_of(known: Array) -> float:
    """Return the mean of numbers, even if their sum overflows; 0 if there are none."""
    if not len(known):
        return 0.0
    return float(known.mean() if np.abs(known).max() < 1e100 else moments(known[:, None])[0][0])


def encoded(column: Array, fill: float, levels: Array | None) -> Array:
    """Return the columns (samples, width) that encode a column; a code without its own column becomes all zeros."""
    filled = np.where(np.isnan(column), fill, column)[:, None]
    return filled if levels is None else (filled == levels).astype(float)

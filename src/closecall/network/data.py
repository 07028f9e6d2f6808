"""Prepare examples for a grid: check and round them, and merge identical rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import check_mass
from ..objective import check_data


@dataclass(frozen=True)
class Data:
    """Distinct examples.

    Rows have shape (samples, features). Targets (samples,) are signs as floats, or class numbers. Masses (samples,) are
    float64, or None if all of them are one. There is one output if targets are signs, otherwise one for each class.
    """

    rows: Array
    targets: Array
    mass: Array | None
    total: float
    outputs: int


def prepare(X: Any, y: Any, sample_weight: Any, classes: int | None, dtype: Any) -> Data:
    """Check and convert examples, merge identical (x, y) rows by adding their masses, and sort the rows.

    A matrix product may return slightly different scores for identical rows, which would break their tie.
    After merging and sorting, the result depends neither on the order of the rows nor on whether rows are repeated or
    weighted.

    Examples
    --------
    >>> data = prepare([[1.0], [0.0], [1.0]], [1, -1, 1], None, None, np.float32)
    >>> data.rows.tolist(), data.mass.tolist()
    ([[0.0], [1.0]], [1.0, 2.0])
    """
    X, y, dtype = np.asarray(X, dtype=np.float64), np.asarray(y), np.dtype(dtype)
    if classes is None:
        X, y, mass = check_data(X, y, sample_weight)
    else:
        mass = np.ones(len(X)) if sample_weight is None else check_mass(sample_weight, len(X))
    with np.errstate(over="ignore"):
        rounded = X.astype(dtype)
    if not np.isfinite(rounded).all():
        raise ValueError(f"X contains NaN, infinite values or values too large for {dtype}; impute or scale them first")
    table, inverse = np.unique(np.column_stack([rounded, y])[mass > 0], axis=0, return_inverse=True)
    with np.errstate(over="ignore"):
        mass = np.bincount(inverse.ravel(), weights=mass[mass > 0])
    low, high = np.finfo(dtype).tiny, np.finfo(dtype).max / len(mass)
    if mass.min() < low or mass.max() > high:
        raise ValueError(f"sample_weight is outside {low:.0e} .. {high:.0e}, the range of {dtype}; rescale the weights")
    return Data(
        np.ascontiguousarray(table[:, :-1], dtype=dtype),
        table[:, -1].astype(dtype if classes is None else np.int64),
        None if (mass == 1).all() else mass,
        float(mass.sum()),
        1 if classes is None else classes,
    )

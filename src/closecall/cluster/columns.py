"""The columns of Parquet files in one pass: moments, extremes, missing values and labels."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._names import Array
from .parquet_source import Piece, numbers_of

#: Labels of a target at most.
MOST_LABELS = 1000


@dataclass
class Columns:
    """Statistics of some rows: features (features,), and how often each label occurs.

    Parameters
    ----------
    rows : int
    known : array
        How many values are finite.
    mean, squares : arrays
        Means, and sums of squared differences from them.
    low, high : arrays
    rising : array of bool
        Whether each value is a whole number above the one before: an identifier, or a counter.
    labels : Counter
        By value; None where one is missing.
    """

    rows: int
    known: Array
    mean: Array
    squares: Array
    low: Array
    high: Array
    rising: Array
    labels: Counter[Any]

    def __add__(self, other: Columns) -> Columns:
        """The rows of both, ``other`` after these; moments are combined as by Chan, Golub and LeVeque."""
        known = self.known + other.known
        share = other.known / np.maximum(known, 1)
        apart = other.mean - self.mean
        labels = self.labels + other.labels
        if len(labels) > MOST_LABELS:
            raise ValueError(
                f"the target has more than {MOST_LABELS} different values; is it really the column to predict?"
            )
        return Columns(
            self.rows + other.rows, known, self.mean + share * apart,
            self.squares + other.squares + self.known * share * apart**2,
            np.minimum(self.low, other.low), np.maximum(self.high, other.high),
            self.rising & other.rising & (self.high < other.low), labels,
        )  # fmt: skip

    @property
    def scale(self) -> Array:
        """Standard deviations (features,) where a missing value is the mean; 1 for a constant column."""
        scale = np.sqrt(self.squares / max(self.rows, 1))
        return np.where(self.low < self.high, np.where(scale > 0, scale, 1.0), 1.0)


def columns_of(piece: Piece) -> Columns:
    """Of one partition."""
    table, width = piece.table(), len(piece.features)
    counts = table.column(piece.target).combine_chunks().value_counts()
    labelled = table.column(piece.target).is_valid()
    table = table if table.column(piece.target).null_count == 0 else table.filter(labelled)
    known, mean, squares = np.zeros((3, width))
    found = Columns(table.num_rows, known, mean, squares, np.full(width, np.inf), np.full(width, -np.inf),
                    np.ones(width, dtype=bool), Counter())  # fmt: skip
    for place, name in enumerate(piece.features):
        values = numbers_of(table.column(name)).astype(np.float64)
        finite = np.isfinite(values)
        there = values if finite.all() else values[finite]
        found.known[place] = len(there)
        found.rising[place] = len(there) == len(values) and bool(
            (np.diff(values) > 0).all() and (values % 1 == 0).all()
        )
        if len(there):
            found.mean[place] = there.mean()
            found.squares[place] = ((there - found.mean[place]) ** 2).sum()
            found.low[place], found.high[place] = there.min(), there.max()
    if len(counts) > MOST_LABELS:
        raise ValueError(
            f"{piece.path!r}: the target {piece.target!r} has more than {MOST_LABELS} different values; is it the "
            "column to predict?"
        )
    values, times = counts.field("values").to_pylist(), counts.field("counts").to_pylist()
    found.labels.update(dict(zip(values, times, strict=True)))
    return found

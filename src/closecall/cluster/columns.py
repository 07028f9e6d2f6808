"""Compute column statistics of Parquet files in one pass: moments, quantiles, extremes, missing values and labels.

Quantiles are computed from a random sample of rows: each row is assigned a random number, and the rows with the
smallest numbers are kept, first in each partition and then in the union of the partitions. With 20,000 sampled rows,
the rank of a quantile differs from the true rank by at most 1.2 % of all rows, with a probability of 99 % (Dvoretzky,
Kiefer and Wolfowitz). For smaller tables, the quantiles are exact.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._names import Array
from ..preprocessing import robust_scale
from .parquet_source import Piece, numbers_of

#: Rows in the sample; the module docstring states the precision that this number guarantees.
SAMPLE = 20_000


@dataclass
class Columns:
    """Statistics of a set of rows.

    For each feature: the number of finite values (``known``), their mean, the sum of squared deviations from the mean,
    the extremes, and whether every value is a whole number greater than the previous one (``rising``), as in an
    identifier column. ``labels`` counts the rows with each label; None stands for a missing label. ``sample`` (sampled
    rows, features) is sorted by the random numbers ``draws`` (sampled rows,).
    """

    rows: int
    known: Array
    mean: Array
    squares: Array
    low: Array
    high: Array
    rising: Array
    labels: Counter[Any]
    draws: Array
    sample: Array

    def __add__(self, other: Columns) -> Columns:
        """Combine these statistics with those of later rows, using Chan, Golub and LeVeque's formula for moments."""
        known = self.known + other.known
        share = other.known / np.maximum(known, 1)
        apart = other.mean - self.mean
        labels = self.labels + other.labels
        _check_labels(len(labels), "the target")
        return Columns(
            self.rows + other.rows, known, self.mean + share * apart,
            self.squares + other.squares + self.known * share * apart**2,
            np.minimum(self.low, other.low), np.maximum(self.high, other.high),
            self.rising & other.rising & (self.high < other.low), labels,
            *_fewest(np.concatenate([self.draws, other.draws]), np.concatenate([self.sample, other.sample]),
                     len(known)),
        )  # fmt: skip

    @property
    def scale(self) -> Array:
        """Return standard deviations (features,), with missing values replaced by the mean, or 1 if constant."""
        scale = np.sqrt(self.squares / max(self.rows, 1))
        return np.where(self.low < self.high, np.where(scale > 0, scale, 1.0), 1.0)

    @property
    def robust(self) -> tuple[Array, Array]:
        """Return the centre and scale that :func:`closecall.preprocessing.robust_scale` computes from the sample.

        For a column with at most two distinct values in the sample but more in the table, return the mean and the
        standard deviation instead.
        """
        center, scale = robust_scale(self.sample)
        known = np.where(np.isfinite(self.sample), self.sample, center)
        low, high = known.min(axis=0, initial=np.inf), known.max(axis=0, initial=-np.inf)
        two = ((known == low) | (known == high)).all(axis=0) & ((low > self.low) | (high < self.high))
        return np.where(two, self.mean, center), np.where(two, self.scale, scale)


def _fewest(draws: Array, sample: Array, features: int) -> tuple[Array, Array]:
    """Keep the rows with the smallest random numbers, up to the size of the sample."""
    most = min(SAMPLE, (1 << 23) // max(features, 1))  # fewer rows if the table is very wide: at most 64 MiB
    kept = np.argsort(draws, kind="stable")[:most]
    return draws[kept], sample[kept]


def _check_labels(labels: int, target: str) -> None:
    if labels > 1000:
        raise ValueError(f"{target} has more than 1000 different values; check that it is the column to predict")


def columns_of(piece: Piece) -> Columns:
    """Compute the statistics of one partition."""
    table, width = piece.table(), len(piece.features)
    counts = table.column(piece.target).combine_chunks().value_counts()
    labelled = table.column(piece.target).is_valid()
    table = table if table.column(piece.target).null_count == 0 else table.filter(labelled)
    draws = np.random.default_rng(piece.number).random(table.num_rows)
    draws, drawn = _fewest(draws, np.arange(table.num_rows)[:, None], width)
    known, mean, squares = np.zeros((3, width))
    low, high, rising = np.full(width, np.inf), np.full(width, -np.inf), np.ones(width, dtype=bool)
    sample = np.empty((len(draws), width))
    for place, name in enumerate(piece.features):
        values = numbers_of(table.column(name)).astype(np.float64)
        finite = np.isfinite(values)
        sample[:, place] = values[drawn[:, 0]]
        there = values if finite.all() else values[finite]
        known[place] = len(there)
        rising[place] = len(there) == len(values) and (np.diff(values) > 0).all() and (values % 1 == 0).all()
        if len(there):
            mean[place] = there.mean()
            squares[place] = ((there - mean[place]) ** 2).sum()
            low[place], high[place] = there.min(), there.max()
    _check_labels(len(counts), f"{piece.path!r}: the target {piece.target!r}")
    labels = Counter(dict(zip(*(counts.field(name).to_pylist() for name in ("values", "counts")), strict=True)))
    return Columns(table.num_rows, known, mean, squares, low, high, rising, labels, draws, sample)

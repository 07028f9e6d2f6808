"""A partition of the rows: its content, its survey, its coordinates, and numbers from the hashes of its rows.

Coordinates are those of standardised columns, ``z = (x - mean) / scale``, the intercept last. A row enters as
``-y * z``, as in :class:`closecall.solvers.design.Design`: multiplied by coordinates it gives minus its margin,
multiplied by minus a slope its gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .._names import Array, spread_out
from ..linear.training import LARGEST
from ..solvers.blocked import Standard

#: Entries of X that are float64 at a time: they stay in cache.
PIECE = 1 << 18
#: Between the number that says which rows a sample has and the one of their folds: the step of splitmix64.
STEP = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Block:
    """A partition: X (rows, features), float32 or float64, its labels and masses (rows,)."""

    X: Array
    y: Array
    mass: Array

    def __len__(self) -> int:
        return len(self.y)

    def pieces(self) -> Iterator[slice]:
        """Slices of rows to process one at a time."""
        size = max(1, PIECE // max(1, self.X.shape[1]))
        return (slice(begin, begin + size) for begin in range(0, len(self), size))


def make_block(X: Any, y: Any, mass: Any = None, *, number: int = 0) -> Block:
    """A checked partition of arrays or frames; every error names the partition.

    Examples
    --------
    >>> block = make_block([[1, 2], [3, 4]], ["no", "yes"])
    >>> block.X.dtype.name, block.mass.tolist()
    ('float64', [1.0, 1.0])
    """
    where = f"partition {number}"
    X, y = np.asarray(X), np.asarray(y)
    if X.ndim != 2:
        raise ValueError(f"{where} of X is not two-dimensional but of shape {X.shape}")
    if X.dtype.kind not in "fiub":
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{where} of X has dtype {X.dtype}; encode it as numbers first") from None
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    y = y.ravel() if y.ndim == 2 and y.shape[1] == 1 else y
    weight = np.ones(len(y)) if mass is None else np.asarray(mass, dtype=np.float64).ravel()
    if y.shape != (len(X),) or weight.shape != (len(X),):
        raise ValueError(
            f"{where} has {len(X)} rows of X, {len(y)} labels and {len(weight)} weights; give X, y and sample_weight "
            "the same partitions"
        )
    with np.errstate(over="ignore", invalid="ignore"):
        if not np.isfinite(X.sum(dtype=np.float64)) and not np.isfinite(X).all():
            raise ValueError(f"{where} of X contains NaN or infinite values; impute or drop them first")
    if not np.isfinite(weight).all() or (weight < 0).any():
        raise ValueError(f"{where} of sample_weight contains negative, NaN or infinite values")
    if len(X) and max(float(X.max(initial=0)), -float(X.min(initial=0))) > LARGEST:
        raise ValueError(f"{where} of X holds values above {LARGEST:g}; scale the features")
    inside = weight > 0
    if not inside.all():
        X, y, weight = X[inside], y[inside], weight[inside]
    return Block(X, y, weight)


@dataclass(frozen=True)
class Survey:
    """What one pass learns about a partition: rows, masses by label, and sums of the features."""

    rows: int
    features: int
    labels: dict[Any, tuple[int, float]]
    total: float
    sums: Array
    squares: Array
    kind: str

    def __add__(self, other: Survey) -> Survey:
        if other.features != self.features:
            raise ValueError(
                f"partitions have {self.features} and {other.features} columns; they must have the same number"
            )
        labels = dict(self.labels)
        for name, (rows, mass) in other.labels.items():
            had = labels.get(name, (0, 0.0))
            labels[name] = had[0] + rows, had[1] + mass
        kind = np.result_type(self.kind, other.kind).name if self.rows and other.rows else (
            self.kind if self.rows else other.kind
        )  # fmt: skip
        return Survey(
            self.rows + other.rows, self.features, labels, self.total + other.total,
            self.sums + other.sums, self.squares + other.squares, kind,
        )  # fmt: skip


def survey(block: Block) -> Survey:
    """The first pass."""
    features = block.X.shape[1]
    sums, squares = np.zeros(features), np.zeros(features)
    for rows in block.pieces():
        X = block.X[rows].astype(np.float64)
        sums += block.mass[rows] @ X
        squares += block.mass[rows] @ (X * X)
    names = np.unique(block.y)
    codes = np.searchsorted(names, block.y)
    counts, masses = np.bincount(codes, minlength=len(names)), np.bincount(codes, block.mass, minlength=len(names))
    labels = dict(zip(names.tolist(), zip(counts.tolist(), masses.tolist(), strict=True), strict=True))
    return Survey(len(block), features, labels, float(block.mass.sum()), sums, squares, block.X.dtype.name)


@dataclass(frozen=True)
class Frame(Standard):
    """The coordinates that all passes of a fit share, and the class weights of masses.

    Parameters
    ----------
    mean, scale : arrays (features,)
    intercept : bool
        Whether the last coordinate is one.
    classes : array (classes,)
    factors : array (classes,) or None
        Class weights.
    """

    classes: Array = field(default_factory=lambda: np.arange(2))
    factors: Array | None = None

    def masses(self, y: Array, mass: Array) -> Array:
        """Masses (rows,) times the weights of their classes."""
        return mass if self.factors is None else mass * self.factors[np.searchsorted(self.classes, y)]


def fold_of(hashes: Array, folds: int) -> Array:
    """The fold (rows,) of rows with these hashes, independent of where a row is and of the sample.

    Examples
    --------
    >>> from closecall.linear.training import row_hashes
    >>> hashes = row_hashes(np.arange(5000.0)[:, None])
    >>> found = fold_of(hashes, 5)
    >>> bool((np.bincount(found) > 900).all()), bool((np.bincount(found[spread_out(hashes) < 0.2]) > 160).all())
    (True, True)
    """
    return np.asarray((spread_out(hashes + STEP) * folds).astype(int))


def whole(block: Block) -> Block:
    """The partition itself."""
    return block


def joined(blocks: Sequence[Block]) -> Block:
    """Several blocks joined into one."""
    return Block(*(np.concatenate([getattr(each, name) for each in blocks]) for name in ("X", "y", "mass")))

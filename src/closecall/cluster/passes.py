"""Partitions of the rows, their summary statistics, the coordinates that they share, and passes over all partitions.

Coordinates refer to standardised columns, ``z = (x - mean) / scale``, with the intercept last. As in
:class:`closecall.solvers.design.Design`, a row is stored as ``-y * z``. The product of a stored row and the coordinates
is the negated margin. Multiplying a stored row by the negated slope of the loss gives the gradient.

A *source* runs a function on every partition. A pass adds up the results in the order of the partitions, so the result
of a fit does not depend on timing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial, reduce
from operator import add
from typing import Any, Protocol

import numpy as np

from .._names import Array, spread_out
from ..linear.training import LARGEST, row_hashes
from ..solvers.rows import Standard


@dataclass(frozen=True)
class Block:
    """A partition: the features X (rows, features) in float32 or float64, and labels and masses (rows,)."""

    X: Array
    y: Array
    mass: Array

    def __len__(self) -> int:
        return len(self.y)

    def pieces(self) -> Iterator[slice]:
        """Yield slices of rows that are small enough for a float64 copy (2 MiB) to stay in the cache."""
        size = max(1, (1 << 18) // max(1, self.X.shape[1]))
        return (slice(begin, begin + size) for begin in range(0, len(self), size))


def make_block(X: Any, y: Any, mass: Any = None, *, number: int = 0) -> Block:
    """Check one partition of arrays or data frames; every error names the partition.

    Examples
    --------
    >>> block = make_block([[1, 2], [3, 4]], ["no", "yes"])
    >>> block.X.dtype.name, block.mass.tolist()
    ('float64', [1.0, 1.0])
    """
    where = f"partition {number}"
    X, y = np.asarray(X), np.asarray(y)
    if X.ndim != 2:
        raise ValueError(f"{where} of X must be two-dimensional, not of shape {X.shape}")
    if X.dtype not in (np.float32, np.float64):
        try:
            X = X.astype(np.float64)
        except (TypeError, ValueError):
            raise ValueError(f"{where} of X has dtype {X.dtype}; encode it as numbers first") from None
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
        raise ValueError(f"{where} of X contains values above {LARGEST:g}; scale the features")
    inside = weight > 0
    if not inside.all():
        X, y, weight = X[inside], y[inside], weight[inside]
    return Block(X, y, weight)


@dataclass(frozen=True)
class Survey:
    """A summary of a partition: the number of rows, the count and mass of each label, and sums for each feature."""

    rows: int
    features: int
    labels: dict[Any, tuple[int, float]]
    total: float
    sums: Array
    squares: Array
    kind: str

    @property
    def counts(self) -> dict[Any, int]:
        """The number of rows with each label."""
        return {name: rows for name, (rows, _) in self.labels.items()}

    def masses(self, classes: Array) -> Array:
        """Return the mass of each class (classes,)."""
        return np.array([self.labels[name][1] for name in classes.tolist()])

    def __add__(self, other: Survey) -> Survey:
        if other.features != self.features:
            raise ValueError(
                f"partitions have {self.features} and {other.features} columns; they must have the same number"
            )
        labels = dict(self.labels)
        for name, (rows, mass) in other.labels.items():
            rows_before, mass_before = labels.get(name, (0, 0.0))
            labels[name] = rows_before + rows, mass_before + mass
        return Survey(
            self.rows + other.rows, self.features, labels, self.total + other.total, self.sums + other.sums,
            self.squares + other.squares, np.result_type(self.kind, other.kind).name,
        )  # fmt: skip


def survey(block: Block) -> Survey:
    """Summarise one partition; the first pass calls this function."""
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
    """The coordinates that all passes of a fit share, the classes, and the class weights (classes,) or None."""

    classes: Array
    factors: Array | None = None

    def masses(self, y: Array, mass: Array) -> Array:
        """Return the masses (rows,) multiplied by the class weights."""
        return mass if self.factors is None else mass * self.factors[np.searchsorted(self.classes, y)]


def fold_of(hashes: Array, folds: int) -> Array:
    """Return the fold for each row hash (rows,), which does not depend on the partition or the sample."""
    # Samples are drawn by the hash itself; one step of splitmix64 makes the folds independent of them.
    return np.asarray((spread_out(hashes + np.uint64(0x9E3779B97F4A7C15)) * folds).astype(int))


def joined(blocks: Sequence[Block]) -> Block:
    """Concatenate several blocks."""
    return Block(*(np.concatenate([getattr(each, name) for each in blocks]) for name in ("X", "y", "mass")))


class ClusterError(RuntimeError):
    """An error in a fit that was caused by the cluster, not by the data."""


def is_collection(X: Any) -> bool:
    """Return whether X is a Dask array or data frame; Dask need not be installed."""
    return hasattr(X, "__dask_graph__")


class Source(Protocol):
    """A source of partitions, wherever they are stored."""

    partitions: int

    def run(self, task: Callable[[Block], Any]) -> Iterator[tuple[int, Any]]:
        """Yield partition numbers and the task's results as they arrive, in any order."""


@dataclass(frozen=True)
class InMemory:
    """Partitions in this process."""

    blocks: Sequence[Block]

    @property
    def partitions(self) -> int:
        return len(self.blocks)

    def run(self, task: Callable[[Block], Any]) -> Iterator[tuple[int, Any]]:
        return ((number, task(block)) for number, block in enumerate(self.blocks))


@dataclass(frozen=True)
class PassEvent:
    """The progress of a fit: the current pass, its purpose, and the numbers of partitions and rows processed so far.

    ``rows_in_all`` is 0 until the first pass has counted the rows.
    """

    phase: str
    number: int
    partitions_done: int
    partitions: int
    rows_done: int
    rows_in_all: int


@dataclass
class Passes:
    """All passes of a fit over a source; ``tell`` is called with a :class:`PassEvent` for each partition."""

    source: Source
    tell: Callable[[PassEvent], None] | None = None
    number: int = 0
    rows: int = 0
    sizes: dict[int, int] = field(default_factory=dict)

    def run(self, phase: str, task: Callable[[Block], Any], size: Callable[[Any], int] | None = None) -> list[Any]:
        """Return the task's results for all partitions, in order; ``size`` returns how many rows a result covers."""
        self.number += 1
        found: dict[int, Any] = {}
        done = 0
        for number, result in self.source.run(task):
            if size is not None:
                self.sizes[number] = size(result)
            done += self.sizes.get(number, 0) if number not in found else 0
            found[number] = result
            if self.tell is not None:
                self.tell(PassEvent(phase, self.number, len(found), self.source.partitions, done, self.rows))
        return [found[number] for number in sorted(found)]

    def survey(self) -> Survey:
        """Return a summary of all rows; raise an error if no classifier can be fitted to them."""
        found = self.run("survey", survey, lambda each: each.rows)
        known = [each for each in found if each.rows]
        if not known:
            raise ValueError("X has no rows with positive weight")
        total: Survey = reduce(add, known)
        self.rows = total.rows
        if len(total.labels) < 2:
            only = next(iter(total.labels))
            raise ValueError(f"y contains only one class ({only!r}); a classifier needs at least two classes")
        return total

    def gather(self) -> list[Block]:
        """Return all rows."""
        return [block for block in self.run("gather", copy) if len(block)]

    def draw(self, shares: dict[Any, float]) -> Block:
        """Draw a sample by row hash, with a given share of the rows of each label.

        The mass of each row is the total mass of the rows that it represents.
        """
        return joined(self.run("sample", partial(draw, shares)))


def draw(shares: dict[Any, float], block: Block) -> Block:
    """Draw the given share of each label's rows from a partition."""
    limits = np.ones(len(block))
    for label, share in shares.items():
        limits[block.y == label] = share
    chosen = np.flatnonzero(spread_out(row_hashes(block.X)) < limits)
    return Block(block.X[chosen], block.y[chosen], block.mass[chosen] / limits[chosen])

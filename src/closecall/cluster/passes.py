"""Partitions, which hold the rows, and passes, which send a request to all partitions.

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

from .._names import spread_out
from ..linear.training import row_hashes
from .blocks import Block, Survey, joined, survey


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
    """The progress of a fit: the current pass, its purpose, and the numbers of processed partitions and rows.

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
    """All passes of a fit over a source; ``tell`` receives a :class:`PassEvent` for each partition."""

    source: Source
    tell: Callable[[PassEvent], None] | None = None
    number: int = 0
    rows: int = 0
    sizes: dict[int, int] = field(default_factory=dict)

    def run(self, phase: str, task: Callable[[Block], Any], size: Callable[[Any], int] | None = None) -> list[Any]:
        """Return the task's results on all partitions, in order; ``size`` returns the number of rows of a result."""
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
        """Return the summary of all rows; raise an error if nothing can be learnt from them."""
        found = self.run("survey", survey, lambda each: each.rows)
        known = [each for each in found if each.rows]
        if not known:
            raise ValueError("X has no rows of positive weight")
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
        """Draw a sample by row hash, with a given share of each label.

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

"""From records to arrays: the rows chosen on every split of every complete data set, and what is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from closecall._names import Array
from closecall.table.read.dataset import DataError
from reproduction.protocol.catalogue import OPENML100
from reproduction.protocol.grid import BASELINES, EQUAL_STARTS, choose
from reproduction.protocol.pairs import Pair, compare, win_fractions
from reproduction.protocol.plan import Cell
from reproduction.protocol.published import LOSSES, METHODS
from reproduction.protocol.sources import resolve
from reproduction.protocol.splits import PARTS

from .record import Record


def title(dataset: str) -> str:
    """The name of a data set, without its source.

    Examples
    --------
    >>> title("pmlb:monk3"), title("openml100:31")
    ('monk3', 'credit-g')
    """
    try:
        source, rest = resolve(dataset)
    except DataError:  # a name that cannot be resolved can still be mentioned
        return dataset
    return OPENML100[int(rest)][1] if source == "openml100" and rest.isdigit() else rest


#: Every method that a cell may have.
ALL_METHODS = (*METHODS, *BASELINES, EQUAL_STARTS)
#: The comparison that the paper is about: what is beaten, and by what.
PAIR = ("average", "close_decay")


class Results(Protocol):
    """A source of finished records: a store, or files exported from one."""

    def done(self) -> set[str]: ...

    def failures(self) -> dict[str, str]: ...

    def records(self, keys: Iterable[str]) -> Iterator[Record]: ...


#: How the reason begins if a published run left out, on request, the largest data sets.
_BY_REQUEST = "left out by request"


@dataclass(frozen=True)
class Hole:
    """A data set that is left out of a table, and why."""

    dataset: str
    why: str

    @property
    def because(self) -> str:
        """The reason without the details of this data set.

        Examples
        --------
        >>> Hole("clean2", "left out by request: rows x columns^2 is 1.9e+08, more than 1.5e+07").because
        'Left out by request, rows x columns^2 more than 1.5e+07'
        >>> Hole("higgs", "no such file").because
        'Not available locally'
        """
        if not self.why.startswith(_BY_REQUEST):
            return "Not available locally"
        return f"{_BY_REQUEST.capitalize()}, rows x columns^2 {self.why.rpartition(', ')[2]}"


@dataclass(frozen=True, eq=False)
class Scores:
    """The chosen rows of one (protocol, model), over the data sets with all their splits."""

    protocol: str
    model: str
    datasets: tuple[str, ...]
    sizes: Array  # (datasets, 2): rows and encoded features
    methods: tuple[str, ...]  # the paper's five, then the baselines that were run
    #: (losses, datasets, methods, splits): train, validation and test accuracies, k as a fraction of the training part
    #: and alpha.
    values: dict[str, Array]
    holes: tuple[Hole, ...]
    max_iter: int

    @property
    def splits(self) -> int:
        return self.values["test"].shape[-1]

    @cached_property
    def _compared(self) -> dict[tuple[str, str], dict[tuple[str, str], Pair]]:
        return {}

    def pairs(self, loss: str, test: str = "") -> dict[tuple[str, str], Pair]:
        """Every ordered pair (base, better) of methods, compared once by the protocol's own test, or another's."""
        key = loss, test or self.protocol
        if key not in self._compared:
            self._compared[key] = compare(self.test(loss, self.methods), self.methods, key[1])
        return self._compared[key]

    def fractions(self, loss: str, criterion: str) -> Array:
        """The paper's square table: entry (i, j) is the fraction of data sets on which method j beats method i."""
        return win_fractions(self.pairs(loss), METHODS, criterion)

    def where(self, loss: str) -> dict[str, str]:
        """The first fields of a record about one loss."""
        return {"protocol": self.protocol, "model": self.model, "loss": loss}

    def chosen(self, loss: str) -> Array:
        """The median over splits of the k*/n that validation chose for close decay (datasets,)."""
        return np.median(self.of("k", loss, ("close_decay",)), axis=-1)[:, 0]

    def test(self, loss: str, methods: Sequence[str] = METHODS) -> Array:
        """Test accuracies (datasets, methods, splits)."""
        return self.of("test", loss, methods)

    def of(self, what: str, loss: str, methods: Sequence[str] = METHODS) -> Array:
        """The values called ``what``, an array (datasets, methods, splits)."""
        return self.values[what][LOSSES.index(loss)][:, [self.methods.index(method) for method in methods]]


class Archive:
    """Finished results; each record is unpacked once, and the same cells are gathered once for all sections."""

    def __init__(self, results: Results) -> None:
        self.results, self.done, self.failures = results, results.done(), results.failures()
        #: What a store keeps beside its records; other results keep nothing.
        self.kept: Callable[[str, int], Any] | None = getattr(results, "kept", None)
        self.understood: Callable[[], AbstractContextManager[None]] = getattr(results, "understood", nullcontext)
        self._chosen: dict[str, Record] = {}
        self._gathered: dict[tuple[tuple[Cell, ...], tuple[Hole, ...]], list[Scores]] = {}

    def chosen(self, cells: Sequence[Cell]) -> list[Record]:
        """The records of finished cells, with the rows that validation chose only."""
        new = [cell for cell in cells if cell.key not in self._chosen]
        for cell, record in zip(new, self.results.records(cell.key for cell in new), strict=True):
            self._chosen[cell.key] = replace(record, rows=choose(record.rows, cell.protocol))
        return [self._chosen[cell.key] for cell in cells]

    def gather(self, cells: Sequence[Cell], holes: Sequence[Hole] = ()) -> list[Scores]:
        """The chosen rows of cells of one start and contamination: :class:`Scores` for each (protocol, model).

        Data sets with a missing or failed cell become holes, beside those given, which could not be planned.
        """
        key = tuple(cells), tuple(holes)
        if key not in self._gathered:
            groups: dict[tuple[str, str], dict[str, list[Cell]]] = {}
            for cell in cells:
                groups.setdefault((cell.protocol, cell.model), {}).setdefault(cell.dataset, []).append(cell)
            self._gathered[key] = [
                self._scores(protocol, model, datasets, holes) for (protocol, model), datasets in sorted(groups.items())
            ]
        return self._gathered[key]

    def _scores(self, protocol: str, model: str, datasets: dict[str, list[Cell]], holes: Sequence[Hole]) -> Scores:
        complete = {name: group for name, group in datasets.items() if all(cell.key in self.done for cell in group)}
        missing = [
            _hole(name, group, self.done, self.failures) for name, group in datasets.items() if name not in complete
        ]
        chosen = {name: self.chosen(sorted(group, key=lambda cell: cell.split)) for name, group in complete.items()}
        max_iter = max((cell.max_iter for cells in complete.values() for cell in cells), default=0)
        return _scores(protocol, model, chosen, (*holes, *missing), max_iter)


def _hole(name: str, cells: list[Cell], done: set[str], failures: dict[str, str]) -> Hole:
    failed = [failures[cell.key] for cell in cells if cell.key in failures]
    left = sum(cell.key not in done for cell in cells)
    if failed:
        return Hole(name, f"{len(failed)} of {len(cells)} cells failed, e.g. {failed[0]}")
    return Hole(name, f"{left} of {len(cells)} cells not run")


def _scores(
    protocol: str, model: str, groups: dict[str, list[Record]], holes: tuple[Hole, ...], max_iter: int
) -> Scores:
    splits = max(map(len, groups.values()), default=0)
    methods = ALL_METHODS
    shape = (len(LOSSES), len(groups), len(methods), splits)
    values = {name: np.full(shape, np.nan) for name in (*PARTS, "k", "alpha")}
    sizes = np.zeros((len(groups), 2), dtype=int)
    for place, records in enumerate(groups.values()):
        for split, record in enumerate(records):
            sizes[place] = sum(record.sizes), record.features
            for row in record.rows:
                # A baseline with a loss of its own stands beside both of the paper's.
                at = [LOSSES.index(row["loss"])] if row["loss"] else range(len(LOSSES))
                index = (at, place, methods.index(row["method"]), split)
                for part, size in zip(PARTS, record.sizes, strict=True):
                    values[part][index] = row[part] / size
                values["k"][index] = row["k"] / record.sizes[0]
                values["alpha"][index] = row["alpha"]
    # A baseline that is not there for every data set and split has no place in a table of means.
    kept = [i for i in range(len(methods)) if i < len(METHODS) or not np.isnan(values["test"][:, :, i]).any()]
    values = {name: array[:, :, kept] for name, array in values.items()}
    return Scores(protocol, model, tuple(groups), sizes, tuple(methods[i] for i in kept), values, holes, max_iter)

"""Arrays from records: the rows chosen on every split of every complete data set, and the data sets left out."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.table.read.dataset import DataError
from reproduction.protocol.catalogue import OPENML100
from reproduction.protocol.dataset import PARTS
from reproduction.protocol.grid import BASELINES, EQUAL_STARTS, choose
from reproduction.protocol.plan import Cell
from reproduction.protocol.protocol import Pair, compare
from reproduction.protocol.published import LOSSES, METHODS
from reproduction.protocol.sources import resolve

from .record import Record

#: Every method that a cell may have.
ALL_METHODS = (*METHODS, *BASELINES, EQUAL_STARTS)
#: The main comparison of the paper: (base, better).
PAIR = ("average", "close_decay")
#: How the reason begins if a published run left out the largest data sets on request.
_BY_REQUEST = "left out by request"


def title(dataset: str) -> str:
    """Return the name of a data set without its source.

    Examples
    --------
    >>> title("pmlb:monk3"), title("openml100:31")
    ('monk3', 'credit-g')
    """
    try:
        source, rest = resolve(dataset)
    except DataError:  # an unknown name can still be shown
        return dataset
    return OPENML100[int(rest)][1] if source == "openml100" and rest.isdigit() else rest


@dataclass(frozen=True)
class Hole:
    """A data set that is left out of a table, and the reason why."""

    dataset: str
    why: str

    @property
    def because(self) -> str:
        """The reason, without details specific to this data set.

        Examples
        --------
        >>> Hole("clean2", "left out by request: rows x columns^2 is 1.9e+08, more than 1.5e+07").because
        'Left out by request, because rows x columns^2 is more than 1.5e+07'
        >>> Hole("higgs", "no such file").because
        'Not available locally'
        """
        if not self.why.startswith(_BY_REQUEST):
            return "Not available locally"
        return f"{_BY_REQUEST.capitalize()}, because rows x columns^2 is {self.why.rpartition(', ')[2]}"


@dataclass(frozen=True, eq=False)
class Scores:
    """The chosen rows of one (protocol, model), for the data sets whose splits are all finished."""

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
    _compared: dict[tuple[str, str], dict[tuple[str, str], Pair]] = field(default_factory=dict)

    @property
    def splits(self) -> int:
        return self.values["test"].shape[-1]

    def pairs(self, loss: str, test: str = "") -> dict[tuple[str, str], Pair]:
        """Compare every ordered pair (base, better) of methods, using the test of this or another protocol."""
        key = loss, test or self.protocol
        if key not in self._compared:
            self._compared[key] = compare(self.test(loss, self.methods), self.methods, key[1])
        return self._compared[key]

    def where(self, loss: str) -> dict[str, str]:
        """Return the fields that all records of one loss share."""
        return {"protocol": self.protocol, "model": self.model, "loss": loss}

    def chosen(self, loss: str) -> Array:
        """Return the medians over splits (datasets,) of the k*/n that validation chose for close decay."""
        return np.median(self.of("k", loss, ("close_decay",)), axis=-1)[:, 0]

    def test(self, loss: str, methods: Sequence[str] = METHODS) -> Array:
        """Return the test accuracies (datasets, methods, splits)."""
        return self.of("test", loss, methods)

    def of(self, what: str, loss: str, methods: Sequence[str] = METHODS) -> Array:
        """Return the values (datasets, methods, splits) of the quantity ``what``."""
        return self.values[what][LOSSES.index(loss)][:, [self.methods.index(method) for method in methods]]


class Archive:
    """Finished results; each record is unpacked once, and scores of the same cells are gathered only once."""

    def __init__(self, results: Any) -> None:  # a Store, or the Campaign exported from one
        self.results, self.done, self.failures = results, results.done(), results.failures()
        self._chosen: dict[str, Record] = {}
        self._gathered: dict[tuple[tuple[Cell, ...], tuple[Hole, ...]], list[Scores]] = {}

    def chosen(self, cells: Sequence[Cell]) -> list[Record]:
        """Return the records of finished cells, with only the rows that validation chose."""
        new = [cell for cell in cells if cell.key not in self._chosen]
        for cell, record in zip(new, self.results.records(cell.key for cell in new), strict=True):
            self._chosen[cell.key] = replace(record, rows=choose(record.rows, cell.protocol))
        return [self._chosen[cell.key] for cell in cells]

    def gather(self, cells: Sequence[Cell], holes: Sequence[Hole] = ()) -> list[Scores]:
        """Return :class:`Scores` for each (protocol, model) among cells with the same start and contamination.

        Data sets with a missing or failed cell are added to ``holes``.
        """
        key = tuple(cells), tuple(holes)
        if key not in self._gathered:
            groups: dict[tuple[str, str], dict[str, list[Cell]]] = {}
            for cell in cells:
                groups.setdefault((cell.protocol, cell.model), {}).setdefault(cell.dataset, []).append(cell)
            self._gathered[key] = [self._scores(*place, groups[place], holes) for place in sorted(groups)]
        return self._gathered[key]

    def _scores(self, protocol: str, model: str, datasets: dict[str, list[Cell]], holes: Sequence[Hole]) -> Scores:
        complete = {name: group for name, group in datasets.items() if all(cell.key in self.done for cell in group)}
        missing = [self._hole(name, group) for name, group in datasets.items() if name not in complete]
        max_iter = max((cell.max_iter for group in complete.values() for cell in group), default=0)
        shape = (len(LOSSES), len(complete), len(ALL_METHODS), max(map(len, complete.values()), default=0))
        values = {name: np.full(shape, np.nan) for name in (*PARTS, "k", "alpha")}
        sizes = np.zeros((len(complete), 2), dtype=int)
        for place, group in enumerate(complete.values()):
            for split, record in enumerate(self.chosen(sorted(group, key=lambda cell: cell.split))):
                sizes[place] = sum(record.sizes), record.features
                for row in record.rows:
                    # A baseline with a loss of its own is compared with both losses of the paper.
                    losses = [LOSSES.index(row["loss"])] if row["loss"] else range(len(LOSSES))
                    index = (losses, place, ALL_METHODS.index(row["method"]), split)
                    for part, size in zip(PARTS, record.sizes, strict=True):
                        values[part][index] = row[part] / size
                    values["k"][index], values["alpha"][index] = row["k"] / record.sizes[0], row["alpha"]
        # A baseline that is missing for some data set or split cannot be in a table of means.
        missed = np.isnan(values["test"]).any(axis=(0, 1, 3))
        kept = [i for i in range(len(ALL_METHODS)) if i < len(METHODS) or not missed[i]]
        values = {name: array[:, :, kept] for name, array in values.items()}
        methods = tuple(ALL_METHODS[i] for i in kept)
        return Scores(protocol, model, tuple(complete), sizes, methods, values, (*holes, *missing), max_iter)

    def _hole(self, name: str, cells: list[Cell]) -> Hole:
        failed = [self.failures[cell.key] for cell in cells if cell.key in self.failures]
        if failed:
            return Hole(name, f"{len(failed)} of {len(cells)} cells failed, e.g. {failed[0]}")
        left = sum(cell.key not in self.done for cell in cells)
        return Hole(name, f"{left} of {len(cells)} cells have not been run")

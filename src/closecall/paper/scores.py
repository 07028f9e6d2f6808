"""From records to arrays: what validation chose on every split of every complete data set, and what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from closecall._names import Array
from closecall.data import DataError
from closecall.data.sources import resolve
from closecall.data.tables import OPENML100
from closecall.evaluate.grid import BASELINES, PARTS, choose

from .plan import Cell
from .published import LOSSES, METHODS
from .record import Record

#: What a reader sees for each method.
LABELS = {**{method: method.replace("_", " ") for method in METHODS}, **BASELINES}


def title(dataset: str) -> str:
    """What a data set is called, without its source.

    Examples
    --------
    >>> title("pmlb:monk3"), title("openml100:31")
    ('monk3', 'credit-g')
    """
    try:
        source, rest = resolve(dataset)
    except DataError:  # a name that cannot be resolved can still be spoken of
        return dataset
    return OPENML100[int(rest)][1] if source == "openml100" and rest.isdigit() else rest


class Results(Protocol):
    """Where finished records are found: a store, or the files that were exported from one."""

    def done(self) -> set[str]: ...

    def failures(self) -> dict[str, str]: ...

    def records(self, keys: Iterable[str]) -> Iterator[Record]: ...


@dataclass(frozen=True)
class Hole:
    """A data set that is left out of a table, and why."""

    dataset: str
    why: str


@dataclass(frozen=True)
class Scores:
    """The chosen rows of one (protocol, model), over the data sets whose splits are all there.

    Parameters
    ----------
    protocol, model : str
    datasets : tuple of str
        Names as :func:`closecall.data.load_dataset` takes them.
    sizes : array (datasets, 2)
        Rows and encoded features.
    methods : tuple of str
        The paper's five, then the baselines that were run.
    values : dict of arrays (losses, datasets, methods, splits)
        ``train``, ``validation`` and ``test`` accuracies, ``k`` as a fraction of the training part, ``alpha``.
    holes : tuple of Hole
    max_iter : int
    """

    protocol: str
    model: str
    datasets: tuple[str, ...]
    sizes: Array
    methods: tuple[str, ...]
    values: dict[str, Array]
    holes: tuple[Hole, ...]
    max_iter: int

    @property
    def splits(self) -> int:
        return self.values["test"].shape[-1]

    def test(self, loss: str, methods: Sequence[str] = METHODS) -> Array:
        """Test accuracies (datasets, methods, splits)."""
        return self.of("test", loss, methods)

    def of(self, what: str, loss: str, methods: Sequence[str] = METHODS) -> Array:
        """Any of the values (datasets, methods, splits)."""
        return self.values[what][LOSSES.index(loss)][:, [self.methods.index(method) for method in methods]]


def gather(store: Results, cells: Sequence[Cell], holes: Sequence[Hole] = ()) -> list[Scores]:
    """Collect the chosen rows of the cells, one :class:`Scores` for each (protocol, model) among them.

    Parameters
    ----------
    store : Store or other Results
    cells : sequence of Cell
        Of one start and one contamination; data sets with a missing or failed cell become holes.
    holes : sequence of Hole
        Data sets that could not even be planned.
    """
    done, failures = store.done(), store.failures()
    groups: dict[tuple[str, str], dict[str, list[Cell]]] = {}
    for cell in cells:
        groups.setdefault((cell.protocol, cell.model), {}).setdefault(cell.dataset, []).append(cell)
    found = []
    for (protocol, model), datasets in sorted(groups.items()):
        complete = {name: group for name, group in datasets.items() if all(cell.key in done for cell in group)}
        missing = [_hole(name, group, done, failures) for name, group in datasets.items() if name not in complete]
        found.append(_scores(store, protocol, model, complete, (*holes, *missing)))
    return found


def _hole(name: str, cells: list[Cell], done: set[str], failures: dict[str, str]) -> Hole:
    failed = [failures[cell.key] for cell in cells if cell.key in failures]
    left = sum(cell.key not in done for cell in cells)
    why = (
        f"{len(failed)} of {len(cells)} cells failed, e.g. {failed[0]}"
        if failed
        else f"{left} of {len(cells)} cells not run"
    )
    return Hole(name, why)


def _scores(
    store: Results, protocol: str, model: str, groups: dict[str, list[Cell]], holes: tuple[Hole, ...]
) -> Scores:
    splits = max((len(cells) for cells in groups.values()), default=0)
    methods = tuple(LABELS)
    shape = (len(LOSSES), len(groups), len(methods), splits)
    values = {name: np.full(shape, np.nan) for name in (*PARTS, "k", "alpha")}
    sizes = np.zeros((len(groups), 2), dtype=int)
    for place, cells in enumerate(groups.values()):
        ordered = sorted(cells, key=lambda cell: cell.split)
        for split, record in enumerate(store.records(cell.key for cell in ordered)):
            sizes[place] = sum(record.sizes), record.features
            for row in choose(record.rows, protocol):
                # A baseline with a loss of its own stands beside both of the paper's.
                at = [LOSSES.index(row["loss"])] if row["loss"] else range(len(LOSSES))
                index = (at, place, methods.index(row["method"]), split)
                for part, size in zip(PARTS, record.sizes, strict=True):
                    values[part][index] = row[part] / size
                values["k"][index] = row["k"] / record.sizes[0]
                values["alpha"][index] = row["alpha"]
    max_iter = max((cell.max_iter for cells in groups.values() for cell in cells), default=0)
    # A baseline that is not there for every data set and split has no place in a table of means.
    kept = [i for i in range(len(methods)) if i < len(METHODS) or not np.isnan(values["test"][:, :, i]).any()]
    values = {name: array[:, :, kept] for name, array in values.items()}
    return Scores(protocol, model, tuple(groups), sizes, tuple(methods[i] for i in kept), values, holes, max_iter)

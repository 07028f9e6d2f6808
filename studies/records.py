"""Finished cells of the benchmark, from a result store or from a folder of exported files, as scores by data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from closecall.data.suites import SUITES
from closecall.paper.exchange import RUNS, read_folder
from closecall.paper.plan import STARTS, Cell
from closecall.paper.record import Record
from closecall.paper.scores import Results, Scores, gather
from closecall.paper.store import Store


class Finished(Results):
    """Cells and their records, read once: a store may go on growing meanwhile."""

    def __init__(self, pairs: Iterable[tuple[Cell, Record]]) -> None:
        self.pairs = {cell.key: (cell, record) for cell, record in pairs}

    def cells(self) -> list[Cell]:
        return [cell for cell, _ in self.pairs.values()]

    def done(self) -> set[str]:
        return set(self.pairs)

    def failures(self) -> dict[str, str]:
        return {}

    def records(self, keys: Iterable[str]) -> Iterator[Record]:
        for key in keys:
            yield self.pairs[key][1]


def read_finished(path: Path | None) -> Finished:
    """Read ``store.sqlite`` (the file, or the folder it lies in; better a copy) or a folder of exported files."""
    if path is None:
        raise SystemExit("this experiment reads finished cells: give --store, a result store or an exported folder")
    if (path / RUNS).exists():
        return Finished((line.cell, line.record) for line in read_folder(path)[0])
    with Store(path / "store.sqlite" if path.is_dir() else path) as store:
        done = store.done()
        cells = [cell for cell in store.cells() if cell.key in done]
        return Finished(zip(cells, store.records(cell.key for cell in cells), strict=True))


def scores(finished: Finished, suite: str, protocol: str, splits: int) -> Scores | None:
    """Linear scores of a suite's data sets that have at least so many splits; None if there is none.

    Exactly ``splits`` of each are used. Where a set was run with several numbers of steps, the most steps count.
    """
    members = set(SUITES[suite])
    groups: dict[str, dict[int, dict[int, Cell]]] = {}
    for cell in finished.cells():
        plain = not cell.contamination and cell.start == STARTS[0] and cell.model == "linear"
        if plain and cell.protocol == protocol and cell.dataset in members:
            groups.setdefault(cell.dataset, {}).setdefault(cell.max_iter, {})[cell.split] = cell
    chosen: list[Cell] = []
    for by_steps in (groups[name] for name in sorted(groups)):
        enough = [steps for steps, cells in by_steps.items() if len(cells) >= splits]
        if enough:
            cells = by_steps[max(enough)]
            chosen += [cells[split] for split in sorted(cells)[:splits]]
    return gather(finished, chosen)[0] if chosen else None

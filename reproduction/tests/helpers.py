"""Tiny cells and work that worker processes can import, a driver to be killed, and invented scores."""

import os
import signal
import sys
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closecall._names import Array
from reproduction.protocol.dataset import PARTS
from reproduction.protocol.grid import ROW
from reproduction.protocol.plan import TARGETS, Cell, RunOptions, Size, Task, rng_for
from reproduction.protocol.published import LOSSES, METHODS
from reproduction.run.engines import ATTEMPTS, Dask, Happening, Local, Work
from reproduction.run.jobs import Job
from reproduction.run.record import Record
from reproduction.run.run import drive
from reproduction.run.scores import ALL_METHODS, Hole, Scores
from reproduction.run.store import Store


def made_scores(
    names: Sequence[str], gain: float | Array, *, noise: float = 0.02, base: float = 0.8, protocol: str = "sound",
    holes: tuple[Hole, ...] = (), seed: int = 0, splits: int = 25,
) -> Scores:  # fmt: skip
    """Return accuracies of ``base`` with noise; close decay is ahead by ``gain`` (one number, or one for each set)."""
    rng, shape = np.random.default_rng(seed), (len(LOSSES), len(names), len(ALL_METHODS), splits)
    values = {name: base + noise * rng.standard_normal(shape) for name in (*PARTS, "k", "alpha")}
    values["test"][:, :, METHODS.index("close_decay")] += np.reshape(gain, (1, -1, 1))
    sizes = np.tile([554, 6], (len(names), 1))
    return Scores(protocol, "linear", tuple(names), sizes, tuple(ALL_METHODS), values, holes, 300)


def job_of(
    names: Sequence[str], splits: int = 3, *, target: str = "overview", suite: str = "embedded",
    holes: Sequence[Hole] = (), protocols: tuple[str, ...] | None = None,
) -> Job:  # fmt: skip
    """Return a job on invented data sets of 100 rows."""
    sizes = tuple(Size(suite, name, "ab" * 32, 100, 4, 40) for name in names)
    return Job(TARGETS[target], (suite,), RunOptions(splits, protocols=protocols), sizes, tuple(holes))


def rows_of(places: Sequence[tuple[str, str]], **fields: Any) -> Array:
    """Return a row for each (loss, method) with the given values."""
    rows = np.zeros(len(places), ROW)
    rows["loss"], rows["method"] = zip(*places, strict=True)
    for name, values in fields.items():
        rows[name] = values
    return rows


def tasks(count: int, name: str = "toy") -> list[Task]:
    return [Task(Cell("none", name, "0", split, "linear", "sound"), 1.0 + split % 3) for split in range(count)]


def toy_rows(cell: Cell) -> np.ndarray:
    """Return rows that depend only on the cell."""
    rows = np.zeros(5, ROW)
    rows["method"], rows["loss"] = "average", "logistic"
    rows["test"] = rng_for(cell, "toy").integers(0, 100, 5)
    return rows


def note(folder: str, cell: Cell) -> int:
    """Append a line to the log of executions; return how often this cell was started."""
    path = Path(folder) / "begun.log"
    with path.open("a") as log:
        log.write(cell.key + "\n")
    return path.read_text().split().count(cell.key)


def work(cell: Cell) -> Record:
    """Log the execution, wait and return rows; data sets with certain names misbehave."""
    begun = note(os.environ["CLOSECALL_TEST_FOLDER"], cell)
    if cell.dataset == "raises":
        raise ValueError("constant columns only")
    if cell.dataset == "deadly" and cell.split == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if cell.dataset == "deadly-once" and cell.split == 1 and begun == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(float(os.environ.get("CLOSECALL_TEST_SLEEP", "0")))
    return Record(cell.key, "done", toy_rows(cell), (50, 25, 25), 3, 0.01)


def level_records(levels: Sequence[int], methods: Sequence[str] = METHODS, **values: float) -> list[dict[str, Any]]:
    """Return records of Figure 5 for outliers at these levels; each outlier costs 0.01 points of accuracy."""
    shared = {"protocol": "paper", "model": "linear", "contamination": "outliers", "majority": 60.0, "gain": 1.0}
    return [
        {**shared, "level": level, "loss": loss, "method": method, "accuracy": 90.0 - level / 100, **values}
        for level in levels for loss in LOSSES for method in methods
    ]  # fmt: skip


#: The profilers and monitors of a cluster keep up to an hour of samples, measured at 40 KB a second in a worker and 20
#: in the driver.
FORGETFUL = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.log-length": 100,
    "distributed.admin.low-level-log-length": 100,
}


@dataclass(frozen=True)
class Cluster:
    """The Dask engine with a scheduler in this process and workers on this machine."""

    workers: int = 2

    def __call__(self, tasks: Sequence[Task], work: Work) -> Generator[Happening, None, None]:
        import dask
        import distributed

        with dask.config.set(FORGETFUL), distributed.LocalCluster(
            n_workers=self.workers, threads_per_worker=1, processes=True, host="127.0.0.1", config=FORGETFUL,
            dashboard_address="127.0.0.1:0", scheduler_kwargs={"allowed_failures": ATTEMPTS - 1},
        ) as cluster:  # fmt: skip
            yield from Dask(cluster.scheduler_address)(tasks, work)


def main(path: str, engine: str, count: str, workers: str = "2") -> None:
    """Drive ``count`` cells into the store at ``path`` and print each event as JSON."""
    with Store(path, write=True) as store:
        chosen = {"local": Local(int(workers)), "dask": Cluster()}[engine]
        for event in drive(tasks(int(count)), store, chosen, work, {"target": "test"}):
            print(event.as_json(), flush=True)


if __name__ == "__main__":
    # The workers find the function only under its real name.
    from reproduction.tests import helpers

    helpers.main(*sys.argv[1:])

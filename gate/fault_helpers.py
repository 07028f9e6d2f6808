"""A driver that tests interrupt, work that runs out of memory, and stores for the tests of faults."""

import contextlib
import os
import resource
import sys
import time
from collections.abc import Generator, Sequence
from pathlib import Path

import numpy as np

from closecall._signals import stoppable
from closecall.cli.exits import explain
from reproduction.protocol.plan import Cell, Task
from reproduction.run.engines import Happening, Local, Work
from reproduction.run.record import Record, pack
from reproduction.run.run import drive
from reproduction.run.store import Store
from reproduction.tests.helpers import tasks, toy_rows


def toy(cell: Cell) -> Record:
    return Record(cell.key, "done", toy_rows(cell), (50, 25, 25), 3, 0.01, notes=("a note",))


def inline(todo: Sequence[Task], work: Work) -> Generator[Happening, None, None]:
    """Run the tasks in this process."""
    for task in todo:
        yield Happening("finished", task, work(task.cell))


def slow(cell: Cell) -> Record:
    time.sleep(0.05)
    return toy(cell)


def hungry(cell: Cell) -> Record:
    """Use more memory than the process may have, unless the test allows it."""
    if not os.environ.get("CLOSECALL_TEST_ROOM"):
        resource.setrlimit(resource.RLIMIT_AS, (1 << 31, resource.RLIM_INFINITY))
        np.ones(1 << 31)
    return toy(cell)


def fill(path: Path, count: int = 3) -> dict[str, bytes]:
    """Write a store with ``count`` finished cells; return its contents."""
    with Store(path, write=True) as store:
        store.begin_run({"target": "test"}, {"python": "3"})
        for task in tasks(count):
            store.add(task.cell, toy(task.cell))
    return contents(path)


def contents(path: Path) -> dict[str, bytes]:
    with Store(path) as store:
        return {
            record.key: pack(record.rows) + repr((record.sizes, record.features, record.notes)).encode()
            for record in store.records(sorted(store.done()))
        }


def alive(pid: int) -> bool:
    """Return whether the process is running; a zombie is not."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    found = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            found += [child, *children(child)]
    return found


def main(path: str) -> None:
    """Drive as the command does, and turn the error that ends the run into a message and an exit code."""
    code = 0
    with stoppable():
        try:
            with Store(path, write=True) as store:
                for event in drive(tasks(400), store, Local(2), slow, {}):
                    print(event.kind, event.cell.key if event.cell else "", flush=True)
        except BaseException as error:
            message, code = explain(error)
            print(message, file=sys.stderr)
    raise SystemExit(code)


if __name__ == "__main__":
    # Imported under its real name, so that the workers find the function that they run.
    from gate import fault_helpers

    fault_helpers.main(*sys.argv[2:])  # the first argument is the name of the command

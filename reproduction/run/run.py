"""The driver, which runs the cells that are not in the store, stores their records and yields progress events."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from reproduction.protocol.plan import Cell, Task

from .engines import Engine, Work
from .environment import environment
from .store import Store


@dataclass(frozen=True)
class Event:
    """A report from the driver."""

    kind: str  # planned, started, lost (a worker died, its cell runs again), done, failed or finished
    cell: Cell | None
    detail: str  # why it failed
    done: int  # finished cells of this plan, including those of earlier runs
    failed: int  # in this run
    total: int
    fraction: float  # finished share of the predicted cost
    eta: float | None  # predicted seconds until the end; None before the first cell
    seconds: float = 0.0  # that the cell took in its worker

    def as_json(self) -> str:
        """Return the event as one line of JSON."""
        return json.dumps(asdict(self))


class _Progress:
    """The counts, and the remaining time as predicted from the costs."""

    def __init__(self, tasks: Sequence[Task], todo: Sequence[Task]) -> None:
        self.total = len(tasks)
        self.cost = sum(task.cost for task in tasks) or 1.0
        self.left = sum(task.cost for task in todo)
        self.at_start = self.left
        self.done, self.failed = len(tasks) - len(todo), 0
        self.began = time.monotonic()

    def event(self, kind: str, cell: Cell | None = None, detail: str = "", seconds: float = 0.0) -> Event:
        spent, finished = time.monotonic() - self.began, self.at_start - self.left
        eta = spent * self.left / finished if finished > 0 else None
        fraction = 1 - self.left / self.cost if self.total else 1.0
        return Event(kind, cell, detail, self.done, self.failed, self.total, fraction, eta, seconds)

    def finish(self, task: Task, ok: bool) -> None:
        self.left -= task.cost
        self.done, self.failed = self.done + ok, self.failed + (not ok)


def drive(
    tasks: Sequence[Task], store: Store, engine: Engine, work: Work, request: dict[str, Any]
) -> Generator[Event, None, None]:
    """Run the cells that the store does not have yet, write each record as it arrives, and yield events.

    Failed cells of earlier runs are tried again; a cell requested twice runs once. ``work`` must be picklable; the
    request is stored with the run.
    """
    unique = list({task.cell.key: task for task in tasks}.values())
    finished = store.done()
    todo = [task for task in unique if task.cell.key not in finished]
    progress = _Progress(unique, todo)
    yield progress.event("planned")
    store.begin_run(request, environment())
    # Closed explicitly: an interrupted driver ends its workers before it ends itself.
    with contextlib.closing(engine(todo, work)) as happenings:
        for happening in happenings:
            task, record = happening.task, happening.record
            if record is None:
                yield progress.event(happening.kind, task.cell, happening.detail)
                continue
            store.add(task.cell, record)
            ok = record.status == "done"
            progress.finish(task, ok)
            yield progress.event("done" if ok else "failed", task.cell, record.error, record.seconds)
    store.finish_run()
    yield progress.event("finished")

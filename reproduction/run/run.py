"""The driver, which runs the cells that are not in the store, stores their records and yields progress events.

Every run is stored with the environment in which it was computed.
"""

import contextlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from reproduction.protocol.plan import Cell, Task

from .engines import Engine, Work
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


def drive(
    tasks: Sequence[Task], store: Store, engine: Engine, work: Work, request: dict[str, Any]
) -> Generator[Event, None, None]:
    """Run the cells that the store does not have yet, write each record as it arrives, and yield events.

    Failed cells of earlier runs are tried again; a cell that is requested twice runs only once. ``work`` must be
    picklable; the request is stored with the run.
    """
    unique, finished, began = {task.cell.key: task for task in tasks}, store.done(), time.monotonic()
    todo = [task for key, task in unique.items() if key not in finished]
    cost = sum(task.cost for task in unique.values()) or 1.0
    planned = left = sum(task.cost for task in todo)
    done, failed = len(unique) - len(todo), 0

    def event(kind: str, cell: Cell | None = None, detail: str = "", seconds: float = 0.0) -> Event:
        eta = (time.monotonic() - began) * left / (planned - left) if planned > left else None
        fraction = 1 - left / cost if unique else 1.0
        return Event(kind, cell, detail, done, failed, len(unique), fraction, eta, seconds)

    yield event("planned")
    store.begin_run(request, environment())
    # The engine is closed explicitly, so that an interrupted driver ends its workers before it exits.
    with contextlib.closing(engine(todo, work)) as happenings:
        for happening in happenings:
            task, record = happening.task, happening.record
            if record is None:
                yield event(happening.kind, task.cell)
                continue
            store.add(task.cell, record)
            ok = record.status == "done"
            left, done, failed = left - task.cost, done + ok, failed + (not ok)
            yield event("done" if ok else "failed", task.cell, record.error, record.seconds)
    store.finish_run()
    yield event("finished")


_PACKAGES = ("closecall", "numpy", "scipy", "scikit-learn", "torch", "pandas", "distributed")


def environment() -> dict[str, Any]:
    """Return the versions, cores, BLAS library, kernel type and git revision, which are stored with every run."""
    from threadpoolctl import threadpool_info

    from closecall.solvers.compiled import LIBRARY

    versions: dict[str, str | None] = dict.fromkeys(_PACKAGES)
    for name in _PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": versions,
        "blas": sorted({f"{pool['internal_api']} {pool.get('version') or ''}".strip() for pool in threadpool_info()}),
        "kernel": "compiled" if LIBRARY else "NumPy",
        "revision": _revision(),
    }


def _revision() -> str | None:
    """Return the git revision of the source, followed by a plus sign if files differ from it; None outside a clone."""
    describe = ["describe", "--always", "--dirty=+", "--abbrev=40", "--exclude=*"]
    try:
        git = ["git", "-C", str(Path(__file__).parent), *describe]
        return subprocess.run(git, check=True, capture_output=True, text=True, timeout=10).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return None

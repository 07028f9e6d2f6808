"""Engines that run tasks in local processes or on Dask, behind one small interface: they take tasks and yield events.

An engine is a function ``engine(tasks, work) -> iterator of Happening``. ``work(cell) -> Record`` runs in a worker
process with one BLAS thread; an exception becomes a failed record. A worker that dies affects only its own cell, which
runs again and is recorded as failed once it has killed ``ATTEMPTS`` workers.
"""

import contextlib
import functools
import multiprocessing
import os
import queue
import signal
import threading
import traceback
import uuid
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import closecall
from closecall._signals import RunError
from reproduction.protocol.plan import Cell, Task

from .record import Record

#: How many workers a cell may kill before it counts as failed.
ATTEMPTS = 3
#: Seconds to wait for a scheduler.
TIMEOUT = 30.0
#: The number of cells that a Dask scheduler has at a time (more than a cluster has cores, but few enough for the memory
#: of the scheduler), and the number submitted together.
WINDOW, BATCH = 1000, 50
_RESUMES = "finished work is kept; the same command resumes the run"

Work = Callable[[Cell], Record]


class EngineError(RunError):
    """The error raised if the engine cannot continue; its message states why and what to do. Finished work is kept."""


@dataclass(frozen=True)
class Happening:
    """A report from an engine: a task ``started``, was ``lost`` (its worker died, so it runs again) or ``finished``."""

    kind: str
    task: Task
    record: Record | None = None


Engine = Callable[[Sequence[Task], Work], Generator[Happening, None, None]]


def guarded(work: Work, cell: Cell) -> Record:
    """Run a cell and return its record; any exception becomes a failed record."""
    from threadpoolctl import threadpool_limits

    try:
        with threadpool_limits(limits=1):
            return work(cell)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno})"
        if isinstance(error, MemoryError):
            message += "; use fewer --workers, so that each has more memory"
        return Record(cell.key, "failed", error=message)


def _on_dask(work: Work, version: str, cell: Cell) -> Record:
    _forget_names()
    if version != closecall.__version__:
        here = f"the worker has closecall {closecall.__version__}, but the driver has {version}"
        return Record(cell.key, "failed", error=f"{here}: install the same version on both and run the command again")
    return guarded(work, cell)


def _forget_names() -> None:
    """Clear the last 100,000 task names that a Dask worker or scheduler caches; each takes half a kilobyte."""
    from dask.utils import key_split

    if key_split.cache_info().currsize > WINDOW:
        key_split.cache_clear()


def _killed(cell: Cell, how: str) -> Record:
    message = f"its worker died {ATTEMPTS} times ({how}); too little memory is the usual cause"
    return Record(cell.key, "failed", error=message)


def _serve(connection: Connection, work: Work) -> None:
    """Run the main loop of a worker, which receives cells and sends records until the driver ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    driver = multiprocessing.parent_process()

    def leave_with(sentinel: int) -> None:
        wait([sentinel])
        os._exit(1)

    if driver is not None:  # a killed driver sends no message, and the current cell may take hours
        threading.Thread(target=leave_with, args=(driver.sentinel,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError):  # the driver has ended
        while True:
            connection.send(guarded(work, connection.recv()))


class _Worker:
    """A worker process and the pipe to it."""

    def __init__(self, work: Work) -> None:
        # Workers are spawned, not forked: a fork may copy a lock of the BLAS threads while it is held.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.connection.close()


@dataclass(frozen=True)
class Local:
    """Worker processes on this machine."""

    workers: int = 1

    def __call__(self, tasks: Sequence[Task], work: Work) -> Generator[Happening, None, None]:
        todo, losses = deque(tasks), Counter[str]()
        pool: list[_Worker] = []
        try:
            while todo or any(worker.task for worker in pool):
                self._fill(pool, len(todo), work)
                for worker in pool:
                    if worker.task is None and todo:
                        worker.task = todo.popleft()
                        yield Happening("started", worker.task)
                        with contextlib.suppress(OSError):  # a dead worker is noticed when its reply is read
                            worker.connection.send(worker.task.cell)
                busy = {worker.connection: (worker, worker.task) for worker in pool if worker.task}
                for worker, task in (busy[connection] for connection in wait(list(busy))):  # type: ignore[index]
                    worker.task, record = None, None
                    with contextlib.suppress(EOFError, OSError):  # the worker is dead
                        record = worker.connection.recv()
                    if record is None:
                        pool.remove(worker)
                        worker.end()
                        losses[task.cell.key] += 1
                        if losses[task.cell.key] < ATTEMPTS:
                            todo.append(task)  # after all others
                            yield Happening("lost", task)
                            continue
                        record = _killed(task.cell, f"exit code {worker.process.exitcode}")
                    yield Happening("finished", task, record)
        finally:
            for worker in pool:
                worker.end()

    def _fill(self, pool: list[_Worker], todo: int, work: Work) -> None:
        """Start as many workers as are needed; if another cannot be started, the existing ones must suffice."""
        idle = sum(worker.task is None for worker in pool)
        for _ in range(min(self.workers - len(pool), todo - idle)):
            try:
                pool.append(_Worker(work))
            except OSError as error:
                if not pool:
                    raise EngineError(f"cannot start a worker ({error}); use fewer --workers") from error
                return


@dataclass(frozen=True)
class Dask:
    """An existing Dask cluster, which itself reruns the cell of a killed worker.

    Workers on other machines need the same version of closecall, and the data directory at the same path.
    """

    address: str  # of a scheduler, such as ``tcp://host:8786``

    def __call__(self, tasks: Sequence[Task], work: Work) -> Generator[Happening, None, None]:
        try:
            import distributed
        except ImportError as error:
            raise ImportError("running on Dask needs the package distributed: pip install 'closecall[dask]'") from error
        try:
            client = distributed.Client(self.address, timeout=TIMEOUT)
        except OSError as error:
            why = f"no Dask scheduler answers at {self.address} ({error})"
            raise EngineError(f"{why}; start it, or omit --scheduler; {_RESUMES}") from error
        suspects: list[Task] = []
        with client:
            for task, found in _submit(client, tasks, work):
                if isinstance(found, Record):
                    yield Happening("finished", task, found)
                else:
                    suspects.append(task)
                    yield Happening("lost", task)
            # Dask gives up every task that was queued on a dead worker. Each of them now runs alone, so that only the
            # task that kills its worker fails again.
            for suspect in suspects:
                for task, found in _submit(client, [suspect], work):
                    if isinstance(found, distributed.KilledWorker):
                        found = _killed(task.cell, "on Dask, even when the cell ran alone")
                    elif not isinstance(found, Record):
                        found = Record(task.cell.key, "failed", error=f"on Dask: {type(found).__name__}: {found}")
                    yield Happening("finished", task, found)


def _submit(client: Any, tasks: Sequence[Task], work: Work) -> Iterator[tuple[Task, Record | Exception]]:
    """Yield records as they arrive, and an exception for a task that Dask could not finish."""
    run = uuid.uuid4().hex  # a scheduler remembers keys that failed, so a new run needs its own
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    futures: dict[Any, Task] = {}
    places = iter(range(0, len(tasks), BATCH))
    while True:
        while len(futures) <= WINDOW - BATCH and (place := next(places, None)) is not None:
            # In batches, because a scheduler never frees all memory of a graph; largest tasks first.
            batch = tasks[place : place + BATCH]
            keys = [f"closecall-{run}-{task.cell.key}" for task in batch]
            on_dask = functools.partial(_on_dask, work, closecall.__version__)
            given = client.map(on_dask, [task.cell for task in batch], key=keys, priority=-place)
            futures.update(zip(given, batch, strict=True))
            for future in given:
                future.add_done_callback(ready.put)
        if not futures:
            return
        future = _next(ready, client)
        try:
            found: Record | Exception = future.result(timeout=TIMEOUT)
        except Exception as error:
            if future.status in ("cancelled", "lost", "pending") or client.status != "running":
                raise _lost() from error
            found = error
        yield futures.pop(future), found
        future.release()
        _forget_names()


def _next(ready: queue.SimpleQueue[Any], client: Any) -> Any:
    """Return the next finished future and check the scheduler, because its futures stay pending if it shuts down."""
    while True:
        with contextlib.suppress(queue.Empty):
            return ready.get(timeout=2)
        if client.status != "running":
            raise _lost()


def _lost() -> EngineError:
    return EngineError(f"the connection to the Dask scheduler was lost; start it again; {_RESUMES}")

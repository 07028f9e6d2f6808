"""Engines that run tasks in local processes or on Dask, behind one small interface: they take tasks and yield events.

An engine is a function ``engine(tasks, work) -> iterator of Happening``. ``work(cell) -> Record`` runs in a worker
process with one BLAS thread; an exception becomes a failed record. A worker that dies affects only its own cell, which
runs again and is recorded as failed once it has killed ``ATTEMPTS`` workers. If a Dask scheduler disappears, the engine
waits for it and resubmits the unfinished cells.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import queue
import signal
import threading
import time
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
#: Seconds to wait for a scheduler that has disappeared, and for the first answer of one.
PATIENCE, FIRST_SIGN = 600.0, 30.0
#: Cells submitted to a Dask scheduler at a time: more than the cores of any cluster, few enough for its memory; and
#: how many are submitted together.
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
    detail: str = ""


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
        here = f"the worker has closecall {closecall.__version__}, the driver {version}"
        return Record(cell.key, "failed", error=f"{here}: install the same version on both and run the command again")
    return guarded(work, cell)


def _forget_names() -> None:
    """Clear Dask's cache of the last 100,000 task names, which take half a kilobyte each, in a worker or scheduler."""
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
        # Spawned, not forked: a fork may copy a lock of the BLAS threads while it is held.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None

    def give(self, task: Task) -> None:
        self.task = task
        with contextlib.suppress(OSError):  # a dead worker is noticed when its reply is read
            self.connection.send(task.cell)

    def take(self) -> Record | None:
        """Return the record, or None if the worker is dead."""
        with contextlib.suppress(EOFError, OSError):
            return self.connection.recv()
        return None

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
                while todo and len(pool) < self.workers:
                    try:
                        pool.append(_Worker(work))
                    except OSError as error:  # without room for another process, continue with the existing ones
                        if not pool:
                            raise EngineError(f"cannot start a worker ({error}); use fewer --workers") from error
                        break
                for worker in pool:
                    if worker.task is None and todo:
                        task = todo.popleft()
                        yield Happening("started", task)
                        worker.give(task)
                busy = {worker.connection: worker for worker in pool if worker.task}
                for connection in wait(list(busy)):
                    yield self._hear(busy[connection], pool, todo, losses)  # type: ignore[index]
        finally:
            for worker in pool:
                worker.end()

    @staticmethod
    def _hear(worker: _Worker, pool: list[_Worker], todo: deque[Task], losses: Counter[str]) -> Happening:
        task, record = worker.task, worker.take()
        if task is None:
            raise RuntimeError("a worker without a task sent a message")
        if record is not None:
            worker.task = None
            return Happening("finished", task, record)
        pool.remove(worker)
        worker.end()
        losses[task.cell.key] += 1
        if losses[task.cell.key] < ATTEMPTS:
            todo.append(task)  # after all others
            return Happening("lost", task)
        return Happening("finished", task, _killed(task.cell, f"exit code {worker.process.exitcode}"))


@dataclass(frozen=True)
class Dask:
    """An existing Dask cluster, which itself reruns the cell of a killed worker.

    Workers on other machines need the same version of closecall, and the data directory under the same path.
    """

    address: str  # of a scheduler, such as ``tcp://host:8786``

    def __call__(self, tasks: Sequence[Task], work: Work) -> Generator[Happening, None, None]:
        try:
            import distributed
        except ImportError as error:
            raise ImportError("running on Dask needs the package distributed: pip install 'closecall[dask]'") from error
        todo, patience = {task.cell.key: task for task in tasks}, FIRST_SIGN
        while todo:
            with _connect(distributed, self.address, patience) as client, contextlib.suppress(_SchedulerGone):
                for happening in _stream(distributed, client, list(todo.values()), work):
                    if happening.kind == "finished":
                        del todo[happening.task.cell.key]
                    yield happening
            if todo:
                patience = PATIENCE
                detail = f"lost the Dask scheduler with {len(todo)} cells unfinished; waiting for it to return"
                yield Happening("lost", next(iter(todo.values())), detail=detail)


class _SchedulerGone(Exception):
    """The error raised if the connection to the scheduler and all its tasks are lost."""


def _connect(distributed: Any, where: str, patience: float) -> Any:
    end = time.monotonic() + patience
    while True:
        try:
            return distributed.Client(where, timeout=min(patience, 10))
        except OSError as error:
            if time.monotonic() > end:
                why = f"no Dask scheduler answers at {where} ({error})"
                raise EngineError(f"{why}; start it, or leave --scheduler out; {_RESUMES}") from error
            time.sleep(1)


def _stream(distributed: Any, client: Any, tasks: Sequence[Task], work: Work) -> Iterator[Happening]:
    suspects: list[Task] = []
    for task, found in _submit(distributed, client, tasks, work):
        if isinstance(found, Record):
            yield Happening("finished", task, found)
        else:
            suspects.append(task)
            yield Happening("lost", task)
    # Dask blames every task that was queued on a dead worker. If each runs alone, only the guilty one fails again.
    for suspect in suspects:
        for task, found in _submit(distributed, client, [suspect], work):
            if isinstance(found, distributed.KilledWorker):
                found = _killed(task.cell, "on Dask, even when the cell ran alone")
            elif not isinstance(found, Record):
                found = Record(task.cell.key, "failed", error=f"on Dask: {type(found).__name__}: {found}")
            yield Happening("finished", task, found)


def _submit(
    distributed: Any, client: Any, tasks: Sequence[Task], work: Work
) -> Iterator[tuple[Task, Record | Exception]]:
    """Yield records as they arrive, and an exception for a task that Dask could not finish."""
    run = uuid.uuid4().hex  # a scheduler remembers keys that failed; a new run needs its own
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    futures: dict[Any, Task] = {}
    places = iter(range(0, len(tasks), BATCH))
    while True:
        try:
            while len(futures) <= WINDOW - BATCH and (place := next(places, None)) is not None:
                # In batches, because a scheduler never frees all memory of a graph; largest tasks first.
                batch = tasks[place : place + BATCH]
                keys = [f"closecall-{run}-{task.cell.key}" for task in batch]
                cells = [task.cell for task in batch]
                on_dask = functools.partial(_on_dask, work, closecall.__version__)
                given = client.map(on_dask, cells, key=keys, priority=-place)
                futures.update(zip(given, batch, strict=True))
                for future in given:
                    future.add_done_callback(ready.put)
            if not futures:
                return
            future = _next(ready, client)
            found: Record | Exception = future.result()
        except _SchedulerGone:
            raise
        except distributed.client.FutureCancelledError as error:
            raise _SchedulerGone from error
        except Exception as error:
            if not isinstance(error, distributed.KilledWorker) and _ends(client):
                raise _SchedulerGone from error
            found = error
        yield futures.pop(future), found
        future.release()
        _forget_names()


def _ends(client: Any, seconds: float = 2.0) -> bool:
    """Return whether the connection is lost; sometimes the first sign is a result that cannot be fetched."""
    end = time.monotonic() + seconds
    while client.status == "running" and time.monotonic() < end:
        time.sleep(0.05)
    return bool(client.status != "running")


def _next(ready: queue.SimpleQueue[Any], client: Any) -> Any:
    """Return the next finished future and check the scheduler, because its futures stay pending if it shuts down."""
    while True:
        with contextlib.suppress(queue.Empty):
            return ready.get(timeout=2)
        if client.status != "running":
            raise _SchedulerGone

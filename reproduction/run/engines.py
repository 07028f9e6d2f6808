"""Run tasks in local processes or on Dask, behind one small interface: tasks in, events out.

An engine is a function ``engine(tasks, work) -> iterator of Happening``. ``work(cell) -> Record`` runs in a worker
process with one BLAS thread. An exception in it becomes a failed record. A worker that dies affects only its own cell,
which is run again, and recorded as failed once it has killed ``ATTEMPTS`` workers. If a Dask scheduler disappears, the
engine waits for it and resubmits what it had not delivered.
"""

from __future__ import annotations

import contextlib
import functools
import math
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
#: Seconds to wait for a scheduler that has gone away, and for the first sign of one.
PATIENCE, FIRST_SIGN = 600.0, 30.0
#: Seconds without any worker after which a cluster of our own is given up for a new one.
DESERTED = 60.0
#: Cells that a Dask scheduler has at a time: more than any cluster's cores, few enough for its memory; and how many it
#: is handed together.
WINDOW, BATCH = 1000, 50

#: Settings of a Dask cluster of our own. Its profilers, of workers and of event loops, keep what they see of each
#: second, its monitors of each half second, for up to an hour: 40 KB a second in a worker, 20 in the driver.
_FORGETFUL = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.log-length": 100,
    "distributed.admin.low-level-log-length": 100,
}

_RESUMES = "finished work is kept; the same command resumes"
_FEWER = f"use fewer --workers, or leave --scheduler out; {_RESUMES}"

Work = Callable[[Cell], Record]


class EngineError(RunError):
    """The engine cannot continue; the message says why and what to do. Finished work is kept."""


@dataclass(frozen=True)
class Happening:
    """What an engine reports: ``started``, ``lost`` (its worker died, it will run again) or ``finished``."""

    kind: str
    task: Task
    record: Record | None = None
    detail: str = ""


Engine = Callable[[Sequence[Task], Work], Generator[Happening, None, None]]


def guarded(work: Work, cell: Cell) -> Record:
    """Run a cell; any exception becomes a failed record."""
    from threadpoolctl import threadpool_limits

    try:
        with threadpool_limits(limits=1):
            return work(cell)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno})"
        if isinstance(error, MemoryError):
            message += "; fewer --workers leave more memory to each"
        return Record(cell.key, "failed", error=message)


def _on_dask(work: Work, version: str, cell: Cell) -> Record:
    _forget_names()
    if version != closecall.__version__:
        here = f"the worker has closecall {closecall.__version__}, the driver {version}"
        return Record(cell.key, "failed", error=f"{here}: install the same on both, then run the same command again")
    return guarded(work, cell)


def _forget_names() -> None:
    """Dask caches the last 100,000 task names in its workers and its scheduler, half a kilobyte each."""
    from dask.utils import key_split

    if key_split.cache_info().currsize > WINDOW:
        key_split.cache_clear()


def _killed(cell: Cell, how: str) -> Record:
    message = f"its worker died {ATTEMPTS} times ({how}); too little memory is the usual cause"
    return Record(cell.key, "failed", error=message)


def _serve(connection: Connection, work: Work) -> None:
    """The main loop of a worker: cells in, records out, until the driver ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    parent = multiprocessing.parent_process()
    if parent is not None:
        # A killed driver cannot say so: do not finish a long cell for no one.
        threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()
    with contextlib.suppress(EOFError, BrokenPipeError):  # the driver has ended
        while True:
            connection.send(guarded(work, connection.recv()))


def _leave_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


class _Worker:
    """One process and the pipe to it."""

    def __init__(self, work: Work) -> None:
        # Spawned, not forked: a fork copies the locks of BLAS threads in whatever state they are.
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, work), daemon=True)
        self.process.start()
        theirs.close()
        self.task: Task | None = None

    def give(self, task: Task) -> None:
        """Send a task; a dead worker is noticed when its reply is read."""
        self.task = task
        with contextlib.suppress(OSError):
            self.connection.send(task.cell)

    def take(self) -> Record | None:
        """The record, or None if the worker is dead."""
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            return None

    def end(self) -> None:
        self.process.terminate()
        self.process.join()
        self.connection.close()


@dataclass(frozen=True)
class Local:
    """Processes on this machine."""

    workers: int = 1

    def __call__(self, tasks: Sequence[Task], work: Work) -> Generator[Happening, None, None]:
        todo, losses = deque(tasks), Counter[str]()
        pool: list[_Worker] = []
        try:
            while todo or any(worker.task for worker in pool):
                while todo and len(pool) < self.workers:
                    try:
                        pool.append(_Worker(work))
                    except OSError as error:  # no more processes, files or memory: continue with the existing ones
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
            todo.append(task)  # last: let the others finish first
            return Happening("lost", task)
        return Happening("finished", task, _killed(task.cell, f"exit code {worker.process.exitcode}"))


@dataclass(frozen=True)
class Dask:
    """A Dask cluster, which runs the cell of a killed worker again by itself.

    Workers elsewhere need the same closecall and the data directory under the same path.
    """

    address: str = ""  # of a scheduler, such as ``tcp://host:8786``; without one a cluster is started here
    workers: int = 1  # to start without an address

    def __call__(self, tasks: Sequence[Task], work: Work) -> Generator[Happening, None, None]:
        if not tasks:
            return
        distributed = _need_distributed()
        todo = {task.cell.key: task for task in tasks}
        patience, barren = FIRST_SIGN, 0
        while todo:
            before = len(todo)
            with contextlib.nullcontext(self.address) if self.address else self._cluster(distributed) as where:
                client = _connect(distributed, where, patience)
                # On a remote cluster workers may come later; here no one else will start any.
                alone = math.inf if self.address else DESERTED
                with client, contextlib.suppress(_SchedulerGone):
                    for happening in _stream(distributed, client, list(todo.values()), work, alone):
                        if happening.kind == "finished":
                            del todo[happening.task.cell.key]
                        yield happening
            if todo:
                barren = barren + 1 if len(todo) == before else 0
                if not self.address and barren == ATTEMPTS:
                    raise EngineError(f"no Dask worker stayed alive in {ATTEMPTS} clusters; {_FEWER}")
                patience = PATIENCE
                gone = f"with {len(todo)} cells to go; " + ("waiting for it" if self.address else "starting others")
                what = "the Dask scheduler" if self.address else "the Dask workers"
                yield Happening("lost", next(iter(todo.values())), detail=f"{what} went away {gone}")

    def _cluster(self, distributed: Any) -> Any:
        import dask

        for attempt in range(1, ATTEMPTS + 1):
            try:
                with dask.config.set(_FORGETFUL):  # the scheduler runs in this process and reads what is set here
                    # Nothing of a local run is for other machines; the workers read the settings that are given here.
                    return distributed.LocalCluster(
                        n_workers=self.workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                        dashboard_address="127.0.0.1:0", scheduler_kwargs={"allowed_failures": ATTEMPTS - 1},
                        config=_FORGETFUL,
                    )  # fmt: skip
            except Exception as error:  # a worker or its nanny that dies while it starts raises many things
                if attempt == ATTEMPTS:
                    why = f"the Dask workers did not start ({type(error).__name__}: {error})"
                    raise EngineError(f"{why}; {_FEWER}") from error


class _SchedulerGone(Exception):
    """The connection to the scheduler is lost, together with all its tasks."""


def _connect(distributed: Any, where: Any, patience: float) -> Any:
    end = time.monotonic() + patience
    while True:
        try:
            return distributed.Client(where, timeout=min(patience, 10))
        except OSError as error:
            if time.monotonic() > end:
                why = f"no Dask scheduler answers at {where} ({error})"
                raise EngineError(f"{why}; start it, or leave --scheduler out; {_RESUMES}") from error
            time.sleep(1)


def _stream(distributed: Any, client: Any, tasks: Sequence[Task], work: Work, alone: float) -> Iterator[Happening]:
    suspects: list[Task] = []
    for task, found in _submit(distributed, client, tasks, work, alone):
        if isinstance(found, Record):
            yield Happening("finished", task, found)
        else:
            suspects.append(task)
            yield Happening("lost", task)
    # Dask blames every task that waits at a worker when it dies, and loses results that lay there: innocent tasks
    # are among the suspects. Alone, only the guilty die.
    for suspect in suspects:
        for task, found in _submit(distributed, client, [suspect], work, alone):
            if isinstance(found, distributed.KilledWorker):
                found = _killed(task.cell, "on Dask, also when it ran alone")
            elif not isinstance(found, Record):
                found = Record(task.cell.key, "failed", error=f"on Dask: {type(found).__name__}: {found}")
            yield Happening("finished", task, found)


def _submit(
    distributed: Any, client: Any, tasks: Sequence[Task], work: Work, alone: float
) -> Iterator[tuple[Task, Record | Exception]]:
    """Records as they arrive; an exception for a task that Dask could not finish."""
    run = uuid.uuid4().hex  # a scheduler remembers keys that failed: a new run must not inherit them
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    futures: dict[Any, Task] = {}
    places = iter(range(0, len(tasks), BATCH))
    while True:
        try:
            while len(futures) <= WINDOW - BATCH and (place := next(places, None)) is not None:
                # Together: a scheduler keeps something of every graph for good. Higher priority comes first, and the
                # tasks come largest first.
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
            future = _next(ready, client, alone)
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
    """Whether the connection is lost; a result that cannot be fetched may be the first sign of it."""
    end = time.monotonic() + seconds
    while client.status == "running" and time.monotonic() < end:
        time.sleep(0.05)
    return bool(client.status != "running")


def _next(ready: queue.SimpleQueue[Any], client: Any, alone: float) -> Any:
    """The next future that is done; a scheduler that shuts down leaves its futures pending, so it is checked too."""
    last = time.monotonic()
    while True:
        with contextlib.suppress(queue.Empty):
            return ready.get(timeout=2)
        if client.status != "running" or time.monotonic() > last + alone:
            raise _SchedulerGone
        if alone < math.inf and client.nthreads():
            last = time.monotonic()


def _need_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ImportError("running on Dask needs the package distributed: pip install 'closecall[dask]'") from error
    return distributed

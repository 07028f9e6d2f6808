"""Run tasks in local processes or on Dask, behind one small interface: tasks in, happenings out.

An engine is a function ``engine(tasks, work) -> iterator of Happening``. ``work(cell) -> Record`` runs in a worker
process with one BLAS thread. An exception in it is a failed record. A worker that dies takes only its own cell with
it: the cell is run again, and recorded as failed when it has cost ``ATTEMPTS`` workers their life.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import traceback
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from .plan import Cell, Task
from .record import Record

#: How many workers a cell may kill before it counts as failed.
ATTEMPTS = 3

Work = Callable[[Cell], Record]


@dataclass(frozen=True)
class Happening:
    """What an engine reports: ``started``, ``lost`` (its worker died, it will run again) or ``finished``."""

    kind: str
    task: Task
    record: Record | None = None


Engine = Callable[[Sequence[Task], Work], Iterator[Happening]]


def guarded(work: Work, cell: Cell) -> Record:
    """Run a cell; whatever it raises becomes a failed record."""
    from threadpoolctl import threadpool_limits

    try:
        with threadpool_limits(limits=1):
            return work(cell)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        message = f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}:{place.lineno})"
        return Record(cell.key, "failed", error=message)


def _killed(cell: Cell, how: str) -> Record:
    message = f"its worker died {ATTEMPTS} times ({how}); too little memory is the usual cause"
    return Record(cell.key, "failed", error=message)


def _serve(connection: Connection, work: Work) -> None:
    """A worker's life: cells in, records out, until the driver ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    parent = multiprocessing.parent_process()
    if parent is not None:
        # A driver that was killed cannot say goodbye: do not finish a long cell for nobody.
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

    def give(self, task: Task) -> bool:
        """Send a task; False if the worker is dead."""
        self.task = task
        try:
            self.connection.send(task.cell)
        except OSError:
            return False
        return True

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
    """Processes on this machine.

    Parameters
    ----------
    workers : int
        How many.

    Examples
    --------
    >>> list(Local(2)([], lambda cell: Record(cell.key, "done")))
    []
    """

    workers: int = 1

    def __call__(self, tasks: Sequence[Task], work: Work) -> Iterator[Happening]:
        todo, losses = deque(tasks), Counter[str]()
        pool: list[_Worker] = []
        try:
            while todo or any(worker.task for worker in pool):
                while todo and len(pool) < self.workers:
                    pool.append(_Worker(work))
                for worker in pool:
                    if worker.task is None and todo:
                        task = todo.popleft()
                        yield Happening("started", task)
                        worker.give(task)  # a dead worker shows itself when we listen to it
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
            raise RuntimeError("a worker without a task spoke")
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

    Parameters
    ----------
    address : str
        A scheduler's, such as ``tcp://host:8786``; "" starts a cluster on this machine.
    workers : int
        How many workers to start without an address. Workers elsewhere need the same closecall and the data directory
        under the same path.
    """

    address: str = ""
    workers: int = 1

    def __call__(self, tasks: Sequence[Task], work: Work) -> Iterator[Happening]:
        if not tasks:
            return
        distributed = _need_distributed()
        with contextlib.ExitStack() as stack:
            where: Any = self.address
            if not where:
                where = stack.enter_context(
                    distributed.LocalCluster(
                        n_workers=self.workers,
                        threads_per_worker=1,
                        processes=True,
                        host="127.0.0.1",  # nothing of a local run is for other machines
                        dashboard_address="127.0.0.1:0",
                        scheduler_kwargs={"allowed_failures": ATTEMPTS - 1},
                    )
                )
            client = stack.enter_context(distributed.Client(where))
            yield from self._stream(distributed, client, tasks, work)

    @staticmethod
    def _stream(distributed: Any, client: Any, tasks: Sequence[Task], work: Work) -> Iterator[Happening]:
        suspects: list[Task] = []
        for task, found in _submit(distributed, client, tasks, work):
            if isinstance(found, Record):
                yield Happening("finished", task, found)
            else:
                suspects.append(task)
                yield Happening("lost", task)
        # Dask blames every task that waits at a worker when it dies, and loses results that lay there: innocent tasks
        # are among the suspects. Alone, only the guilty die.
        for suspect in suspects:
            for task, found in _submit(distributed, client, [suspect], work):
                if isinstance(found, distributed.KilledWorker):
                    found = _killed(task.cell, "on Dask, also when it ran alone")
                elif not isinstance(found, Record):
                    found = Record(task.cell.key, "failed", error=f"on Dask: {type(found).__name__}: {found}")
                yield Happening("finished", task, found)


def _submit(
    distributed: Any, client: Any, tasks: Sequence[Task], work: Work
) -> Iterator[tuple[Task, Record | Exception]]:
    """Records as they come; an exception for a task that Dask could not bring to its end."""
    run = uuid.uuid4().hex  # a scheduler remembers keys that failed: a new run must not inherit them
    futures = {
        # Higher priority first; the tasks come largest first.
        client.submit(guarded, work, task.cell, key=f"closecall-{run}-{task.cell.key}", priority=-place): task
        for place, task in enumerate(tasks)
    }
    for future in distributed.as_completed(list(futures)):
        task = futures.pop(future)
        found: Record | Exception
        try:
            found = future.result()
        except Exception as error:
            found = error
        yield task, found
        future.release()


def _need_distributed() -> Any:
    try:
        import distributed
    except ImportError as error:
        raise ImportError("running on Dask needs the package distributed: pip install 'closecall[dask]'") from error
    return distributed

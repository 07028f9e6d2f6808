"""Use a Dask cluster with data on its workers: a few long tasks are submitted as futures, and the data stay in place.

If a worker dies, Dask recreates its partitions from the source of the collection and repeats the task. If Dask cannot
do so, or if the scheduler or all workers are lost, an error message states what to do.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

try:
    import distributed
    from dask.delayed import delayed
except ImportError as error:
    raise ImportError("fitting on Dask needs the package distributed: pip install 'closecall[dask]'") from error

from .parquet_source import ROWS, ParquetSource, Piece
from .passes import Block, ClusterError, is_collection, make_block

#: The share of the workers' memory that decoded files may occupy; if they need more, they are read in every pass.
MEMORY_SHARE = 0.4
#: Seconds to wait for the scheduler to answer, and for its first worker.
FIRST_SIGN, FIRST_WORKER = 10.0, 30.0
#: Seconds between two checks of the cluster, and seconds without any worker after which a fit gives up.
POLL, LONGEST_ALONE = 5.0, 300.0
GONE = (
    "the connection to the Dask scheduler was lost during a fit ({detail}): start the scheduler and its workers "
    "again, connect a new Client and call fit again"
)
LOST = (
    "the Dask workers lost a partition that cannot be recreated, or died too often while processing it ({detail}); "
    "use a collection that is read from files (not scattered arrays), use smaller partitions, or start workers with "
    "more memory"
)


@contextmanager
def connected(address: str = "", workers: int = 0) -> Iterator[Any]:
    """Yield a client connected to the scheduler at an address such as ``tcp://host:8786``.

    If no address is given, ``workers`` workers are started on this machine; 0 means one worker per core.
    """
    if not address:
        with distributed.LocalCluster(
            n_workers=workers or os.cpu_count() or 1, threads_per_worker=1, host="127.0.0.1",
            dashboard_address="127.0.0.1:0", silence_logs=50,
        ) as cluster, distributed.Client(cluster, direct_to_workers=True) as client:  # fmt: skip
            yield client  # direct_to_workers: the workers are on this machine, so data can bypass the scheduler
        return
    try:
        client = distributed.Client(address, timeout=FIRST_SIGN)
    except (OSError, ValueError, TimeoutError) as error:
        raise ClusterError(
            f"no Dask scheduler answers at {address} ({error}); start one (dask scheduler), correct the address, or "
            "leave it out to use only this machine"
        ) from error
    with client:
        try:
            client.wait_for_workers(1, timeout=FIRST_WORKER)
        except TimeoutError as error:
            raise ClusterError(
                f"the Dask scheduler at {address} has no workers; start some (dask worker {address}) and try again"
            ) from error
        yield client


def parts_of(X: Any) -> list[Any]:
    """Return the row blocks of a Dask array, data frame or series as delayed objects."""
    if not hasattr(X, "rechunk"):
        return list(X.to_delayed())
    return list((X.rechunk({1: -1}) if X.ndim == 2 else X).to_delayed().ravel())


class OnWorkers:
    """The base class of sources whose partitions stay on the workers."""

    client: Any
    blocks: list[Any]

    def run(self, task: Callable[[Block], Any]) -> Iterator[tuple[int, Any]]:
        """Run a task on every partition in place; yield partition numbers and results as they arrive."""
        return results(self.client, lambda: self.client.map(task, self.blocks, pure=False))

    def close(self) -> None:
        """Release the partitions."""
        self.blocks = []


class DaskSource(OnWorkers):
    """Partitions of Dask collections, held on the workers of a client (by default, the current one) during one fit.

    X is an array or a data frame; y and sample_weight are arrays or series with the same partitions.
    """

    def __init__(self, X: Any, y: Any, sample_weight: Any = None, *, client: Any = None) -> None:
        self.client = client or distributed.get_client()
        columns = [X, y] if sample_weight is None else [X, y, sample_weight]
        for name, each in zip(("X", "y", "sample_weight"), columns, strict=False):
            if not is_collection(each):
                raise TypeError(
                    f"{name} is a {type(each).__name__}, not a Dask collection; pass all of them as Dask collections"
                )
        columns = [columns[0], *(_aligned(X, each) for each in columns[1:])]
        parts = [parts_of(each) for each in columns]
        if len({len(each) for each in parts}) > 1:
            sizes = ", ".join(str(len(each)) for each in parts)
            raise ValueError(f"X, y and sample_weight have {sizes} partitions; they must have the same number")
        make = delayed(make_block, pure=False)
        blocks = [make(*each, number=number) for number, each in enumerate(zip(*parts, strict=True))]
        self.partitions = len(blocks)
        self.blocks = self.client.compute(blocks)


class DaskParquetSource(OnWorkers, ParquetSource):
    """Parquet files, which the workers read only once if the data fit in memory, and otherwise in every pass.

    The parameters are the same as for :class:`closecall.cluster.ParquetSource`, plus ``client``, which defaults to the
    current client. The files must have the same paths on all workers.
    """

    def __init__(
        self, paths: str | Sequence[str], target: str, *, features: Sequence[str] | None = None, weight: str = "",
        rows: int = ROWS, client: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(paths, target, features=features, weight=weight, rows=rows)
        self.client = client or distributed.get_client()
        self.blocks: list[Any] = []

    def run(self, task: Callable[[Block], Any]) -> Iterator[tuple[int, Any]]:
        """Run a task on every partition; yield partition numbers and results as they arrive."""
        if not self.blocks and self._fits():
            self.blocks = self.client.map(Piece.read, self.pieces, pure=False)
        return super().run(task) if self.blocks else ParquetSource.run(self, task)

    def each(self, work: Callable[[Piece], Any]) -> Iterator[tuple[int, Any]]:
        """Yield the partition number and the result for each piece."""
        return results(self.client, lambda: self.client.map(work, self.pieces, pure=False))

    def _fits(self) -> bool:
        """Return whether all rows fit into a fraction of the workers' memory, or False if their memory is unlimited."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [int(worker.get("memory_limit") or 0) for worker in workers]
        return bool(limits) and min(limits) > 0 and 8 * self.rows * len(self.features) <= MEMORY_SHARE * sum(limits)


def results(client: Any, start: Callable[[], list[Any]]) -> Iterator[tuple[int, Any]]:
    """Yield each partition's number and result as they arrive; failures raise an error that states what to do."""
    try:
        pending, alone = {future: number for number, future in enumerate(start())}, 0.0
        while pending:
            ready = _ready(client, list(pending))
            for future, result in ready:
                yield pending.pop(future), result
            alone = 0.0 if ready or client.nthreads() else alone or time.monotonic()
            if alone and time.monotonic() - alone > LONGEST_ALONE:
                raise ClusterError(
                    f"there has been no Dask worker for {LONGEST_ALONE:g} seconds (a nanny gives up if a worker takes "
                    "too long to start); start workers and call fit again"
                )
    except distributed.KilledWorker as error:
        raise ClusterError(LOST.format(detail=error)) from error
    except (FileNotFoundError, PermissionError):  # a worker could not read a file
        raise
    except (distributed.client.FutureCancelledError, OSError, TimeoutError) as error:
        raise ClusterError((LOST if _answers(client) else GONE).format(detail=error)) from error
    except Exception as error:  # a client that was closed between two passes raises an error of its own
        if client.status == "running" or isinstance(error, ClusterError):
            raise
        raise ClusterError(GONE.format(detail=error)) from error


def _ready(client: Any, pending: list[Any]) -> list[tuple[Any, Any]]:
    """Return the futures that finish before the next check, with their results; the list is empty if a worker dies."""
    if client.status != "running":
        raise OSError(f"the client is {client.status}")
    try:
        with client.as_current():  # wait uses the current client, which may be a different one
            done = distributed.wait(pending, timeout=POLL, return_when="FIRST_COMPLETED").done
        return [(future, future.result(timeout=POLL)) for future in done]
    except TimeoutError:
        return []


def _answers(client: Any) -> bool:
    """Return whether the client stays connected for two seconds; a lost task may mean a lost connection."""
    end = time.monotonic() + 2.0
    while client.status == "running" and time.monotonic() < end:
        time.sleep(0.05)
    return bool(client.status == "running")


def _aligned(X: Any, other: Any) -> Any:
    """Return the array, rechunked to match the row blocks of X if the chunk sizes of both are known."""
    both = hasattr(X, "rechunk") and hasattr(other, "rechunk")
    if not both or other.chunks[0] == X.chunks[0]:
        return other
    known = all(size == size for each in (X, other) for size in each.chunks[0])  # an unknown size is NaN
    return other.rechunk({0: X.chunks[0]}) if known and len(X) == len(other) else other

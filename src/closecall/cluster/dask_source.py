"""Partitions on the workers of a Dask cluster: few, long tasks through futures; the data stay in place.

If a worker dies, Dask recreates its partitions from the source of the collection and repeats the task. Partitions that
cannot be recreated, a lost scheduler, or workers that do not return raise an error that says what to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import distributed
from dask.delayed import delayed

from .blocks import Block, make_block
from .parquet_source import ROWS, ParquetSource, Piece
from .passes import ClusterError, is_collection

#: The share of the workers' memory that files may take and stay there.
KEPT = 0.4
#: Seconds in which a lost scheduler shows, that a look for results takes, and that a pass waits without any worker.
PATIENCE, WHILE, LONGEST_ALONE = 2.0, 5.0, 300.0
GONE = (
    "the Dask scheduler went away in the middle of a fit ({detail}); nothing of it is kept: start the scheduler and "
    "its workers again, connect a new Client and call fit again"
)
ALONE = (
    "no Dask worker has been there for {seconds:g} seconds, and a nanny gives up where a start takes long; start "
    "workers and call fit again"
)
LOST = (
    "the Dask workers lost a partition that cannot be made again, or died on it too often ({detail}); give fit a "
    "collection that is read from files (not scattered arrays), smaller partitions, or workers with more memory"
)


def parts_of(X: Any) -> list[Any]:
    """The row blocks of a Dask array, data frame or series, delayed."""
    if hasattr(X, "rechunk"):
        if X.ndim == 2 and X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        return list(X.to_delayed().ravel())
    return list(X.to_delayed())


class OnWorkers:
    """Partitions that are kept on the workers."""

    client: Any
    blocks: list[Any]

    def run(self, task: Callable[[Block], Any]) -> Iterator[tuple[int, Any]]:
        """Run a task on every partition in place; yields partition numbers and results as they arrive."""
        return results(self.client, lambda: self.client.map(task, self.blocks, pure=False))

    def close(self) -> None:
        """Release the partitions."""
        self.blocks = []


class DaskSource(OnWorkers):
    """Partitions of Dask collections, kept on the workers for one fit.

    Parameters
    ----------
    X, y : Dask array or data frame, and array or series
        With the same partitions.
    sample_weight : Dask array or series, optional
    client : distributed.Client, optional
        The current one by default.
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
        blocks = [delayed(make_block, pure=False)(*each, number=number)
                  for number, each in enumerate(zip(*parts, strict=True))]  # fmt: skip
        self.partitions = len(blocks)
        self.blocks = self.client.compute(blocks)


class DaskParquetSource(OnWorkers, ParquetSource):
    """Parquet files that the workers read: once if they fit into memory, otherwise in every pass.

    Parameters
    ----------
    paths, target, features, weight, rows
        As in :class:`closecall.cluster.ParquetSource`; the workers see the files under the same paths.
    client : distributed.Client, optional
        The current one by default.
    """

    def __init__(
        self, paths: str | Sequence[str], target: str, *, features: Sequence[str] | None = None, weight: str = "",
        rows: int = ROWS, client: Any = None,
    ) -> None:  # fmt: skip
        super().__init__(paths, target, features=features, weight=weight, rows=rows)
        self.client = client or distributed.get_client()
        self.blocks: list[Any] = []

    def run(self, task: Callable[[Block], Any]) -> Iterator[tuple[int, Any]]:
        """Run a task on every partition; yields partition numbers and results as they arrive."""
        if not self.blocks and self._fits():
            self.blocks = self.client.map(Piece.read, self.pieces, pure=False)
        return super().run(task) if self.blocks else ParquetSource.run(self, task)

    def each(self, work: Callable[[Piece], Any]) -> Iterator[tuple[int, Any]]:
        """Partition numbers and the result for each piece."""
        return results(self.client, lambda: self.client.map(work, self.pieces, pure=False))

    def _fits(self) -> bool:
        """Whether all rows fit into a share of the workers' memory; unknown if they have no limit."""
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        limits = [int(worker.get("memory_limit") or 0) for worker in workers]
        return bool(limits) and min(limits) > 0 and 8 * self.rows * len(self.features) <= KEPT * sum(limits)


def results(client: Any, start: Callable[[], list[Any]]) -> Iterator[tuple[int, Any]]:
    """Partition numbers and results of futures as they arrive; failures raise an error that says what to do."""
    try:
        pending, alone = {future: number for number, future in enumerate(start())}, 0.0
        while pending:
            ready = _ready(client, list(pending))
            for future, result in ready:
                yield pending.pop(future), result
            alone = 0.0 if ready or client.nthreads() else alone or time.monotonic()
            if alone and time.monotonic() - alone > LONGEST_ALONE:
                raise ClusterError(ALONE.format(seconds=LONGEST_ALONE))
    except distributed.KilledWorker as error:
        raise ClusterError(LOST.format(detail=error)) from error
    except (FileNotFoundError, PermissionError):  # of a file that a worker reads
        raise
    except (distributed.client.FutureCancelledError, OSError, TimeoutError) as error:
        raise ClusterError((LOST if _answers(client) else GONE).format(detail=error)) from error
    except Exception as error:  # a client that is closed between two passes has an error of its own
        if client.status == "running" or isinstance(error, ClusterError):
            raise
        raise ClusterError(GONE.format(detail=error)) from error


def _ready(client: Any, pending: list[Any]) -> list[tuple[Any, Any]]:
    """Futures that finish within a time limit, and their results; none if a result was lost with its worker."""
    if client.status != "running":
        raise OSError(f"the client is {client.status}")
    try:
        with client.as_current():  # wait asks for the current one, which may be another
            done = distributed.wait(pending, timeout=WHILE, return_when="FIRST_COMPLETED").done
        return [(future, future.result(timeout=WHILE)) for future in done]
    except TimeoutError:
        return []


def _answers(client: Any) -> bool:
    """Whether the scheduler still responds; a lost task may be the first sign that it does not."""
    end = time.monotonic() + PATIENCE
    while client.status == "running" and time.monotonic() < end:
        time.sleep(0.05)
    return bool(client.status == "running")


def _aligned(X: Any, other: Any) -> Any:
    """The array, rechunked to the row blocks of X if both chunk sizes are known."""
    both = hasattr(X, "rechunk") and hasattr(other, "rechunk")
    if not both or other.chunks[0] == X.chunks[0]:
        return other
    known = all(size == size for each in (X, other) for size in each.chunks[0])  # NaN: not known
    return other.rechunk({0: X.chunks[0]}) if known and len(X) == len(other) else other

"""Partitions on the workers of a Dask cluster: few, long tasks through futures; the data stay where they are.

A partition whose worker dies is made again from what the collection was made of, and the pass repeats its task there;
Dask does both. What cannot be made again, or a scheduler that is gone, is an error that says what to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import distributed
from dask.base import is_dask_collection
from dask.delayed import delayed

from .blocks import Block, make_block


class ClusterError(RuntimeError):
    """The cluster, not the data, is the reason that a fit ended."""


#: Seconds in which a lost scheduler shows.
PATIENCE = 2.0
GONE = (
    "the Dask scheduler went away in the middle of a fit ({detail}); nothing of it is kept: start the scheduler and "
    "its workers again, connect a new Client and call fit again"
)
LOST = (
    "the Dask workers lost a partition that cannot be made again, or died on it too often ({detail}); give fit a "
    "collection that is read from files (not scattered arrays), smaller partitions, or workers with more memory"
)


def is_collection(X: Any) -> bool:
    """Whether X is a Dask array or data frame."""
    return bool(is_dask_collection(X))


def parts_of(X: Any) -> list[Any]:
    """The row blocks of a Dask array, data frame or series, delayed."""
    if hasattr(X, "rechunk"):
        if X.ndim == 2 and X.numblocks[1] > 1:
            X = X.rechunk({1: -1})
        return list(X.to_delayed().ravel())
    return list(X.to_delayed())


class DaskSource:
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
                raise TypeError(f"{name} is a {type(each).__name__}, not a Dask collection; give all of them as one")
        columns = [columns[0], *(_aligned(X, each) for each in columns[1:])]
        parts = [parts_of(each) for each in columns]
        if len({len(each) for each in parts}) > 1:
            sizes = ", ".join(str(len(each)) for each in parts)
            raise ValueError(f"X, y and sample_weight have {sizes} partitions; give all of them the same")
        blocks = [delayed(make_block, pure=False)(*each, number=number)
                  for number, each in enumerate(zip(*parts, strict=True))]  # fmt: skip
        self.partitions = len(blocks)
        self.blocks = self.client.compute(blocks)

    def run(self, task: Callable[[Block], Any]) -> Iterator[tuple[int, Any]]:
        """Run a task on every partition where it is; numbers and results as they come."""
        try:
            futures = self.client.map(task, self.blocks, pure=False)
            number_of = {future.key: number for number, future in enumerate(futures)}
            for future, result in distributed.as_completed(futures, with_results=True):
                if isinstance(result, BaseException):  # a cancelled task comes as a result
                    raise result
                yield number_of[future.key], result
        except distributed.KilledWorker as error:
            raise ClusterError(LOST.format(detail=error)) from error
        except (distributed.client.FutureCancelledError, OSError, TimeoutError) as error:
            raise ClusterError((LOST if self._answers() else GONE).format(detail=error)) from error

    def _answers(self) -> bool:
        """Whether the scheduler is still there; a lost task may be the first sign that it is not."""
        end = time.monotonic() + PATIENCE
        while self.client.status == "running" and time.monotonic() < end:
            time.sleep(0.05)
        return bool(self.client.status == "running")

    def close(self) -> None:
        """Let go of the partitions."""
        self.blocks = []


def _aligned(X: Any, other: Any) -> Any:
    """The array with the row blocks of X, where both know theirs."""
    both = hasattr(X, "rechunk") and hasattr(other, "rechunk")
    if not both or other.chunks[0] == X.chunks[0]:
        return other
    known = all(size == size for each in (X, other) for size in each.chunks[0])  # NaN: not known
    return other.rechunk({0: X.chunks[0]}) if known and len(X) == len(other) else other

"""A table in Parquet files, streamed: every pass reads the row groups again, and memory holds a few of them."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from .blocks import Block, make_block
from .dask_source import ClusterError

#: Rows of a partition: row groups are put together up to it; a larger row group is one.
ROWS = 1 << 19
#: Times that a partition is given to a process that dies.
ATTEMPTS = 3


@dataclass(frozen=True)
class Piece:
    """Row groups of a file, and which columns are what."""

    number: int
    path: str
    groups: tuple[int, ...]
    features: tuple[str, ...]
    target: str
    weight: str

    def read(self) -> Block:
        """The rows, checked."""
        import pyarrow.parquet  # type: ignore[import-untyped]

        names = [*self.features, self.target, *([self.weight] if self.weight else [])]
        with pyarrow.parquet.ParquetFile(self.path, memory_map=True) as file:
            table = file.read_row_groups(list(self.groups), columns=names, use_threads=False)
        kinds = {table.schema.field(name).type.to_pandas_dtype() for name in self.features}
        X = np.empty((table.num_rows, len(self.features)), np.float32 if kinds == {np.float32} else np.float64, "F")
        for place, name in enumerate(self.features):
            X[:, place] = table.column(name).to_numpy()
        y = table.column(self.target).to_numpy()
        return make_block(X, y, table.column(self.weight).to_numpy() if self.weight else None, number=self.number)


def _work(task: Callable[[Block], Any], piece: Piece) -> Any:
    return task(piece.read())


class ParquetSource:
    """Partitions of Parquet files; only numeric columns are features.

    Parameters
    ----------
    paths : str or sequence of str
        A folder, a pattern such as ``data/*.parquet``, or files.
    target : str
        The column of labels.
    features : sequence of str, optional
        All other columns by default.
    weight : str
        A column of sample weights; none by default.
    processes : int
        1 reads in this process, more in a pool; each holds one partition.
    rows : int
        Rows of a partition.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow, pyarrow.parquet
    >>> from closecall.cluster import DaskCloseKClassifier
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     table = pyarrow.table({"a": [-2.0, -1.0, 1.0, 2.0], "y": ["no", "no", "yes", "yes"]})
    ...     pyarrow.parquet.write_table(table, folder + "/part.parquet")
    ...     model = DaskCloseKClassifier(k=2).fit_source(ParquetSource(folder, "y"))
    >>> model.predict([[0.5]]).tolist()
    ['yes']
    """

    def __init__(
        self, paths: str | Sequence[str], target: str, *, features: Sequence[str] | None = None, weight: str = "",
        processes: int = 1, rows: int = ROWS,
    ) -> None:  # fmt: skip
        if processes < 1 or rows < 1:
            raise ValueError(f"processes={processes} and rows={rows} must be at least 1")
        self.processes, self.files = processes, _files(paths)
        self.pieces = list(_pieces(self.files, target, features, weight, rows))
        self.features = self.pieces[0].features
        self.pool: ProcessPoolExecutor | None = None

    @property
    def partitions(self) -> int:
        return len(self.pieces)

    def run(self, task: Callable[[Block], Any]) -> Iterator[tuple[int, Any]]:
        """Numbers of partitions and what the task found there; a partition whose process dies is read again."""
        if self.processes == 1:
            yield from ((piece.number, _work(task, piece)) for piece in self.pieces)
            return
        left, attempts = {piece.number: piece for piece in self.pieces}, 0
        while left:
            try:
                for number, found in self._pooled(task, list(left.values())):
                    del left[number]
                    yield number, found
            except BrokenProcessPool as error:
                self.close()
                attempts += 1
                if attempts == ATTEMPTS:
                    raise ClusterError(
                        f"reading processes died {ATTEMPTS} times, perhaps of too little memory; use processes=1 or "
                        "smaller partitions (rows=)"
                    ) from error

    def _pooled(self, task: Callable[[Block], Any], pieces: Sequence[Piece]) -> Iterator[tuple[int, Any]]:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(
                self.processes, get_context("forkserver" if os.name == "posix" else "spawn")
            )
        todo, running = iter(pieces), dict[Future[Any], int]()
        while True:
            while len(running) < 2 * self.processes and (piece := next(todo, None)) is not None:
                running[self.pool.submit(_work, task, piece)] = piece.number
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                found = future.result()
                yield running.pop(future), found

    def close(self) -> None:
        """End the processes; another pass starts new ones."""
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
            self.pool = None


def _files(paths: str | Sequence[str]) -> list[str]:
    given = [paths] if isinstance(paths, str) else list(paths)
    found: list[str] = []
    for path in given:
        found += sorted(glob.glob(os.path.join(path, "*.parquet") if os.path.isdir(path) else path))
    if not found:
        raise FileNotFoundError(f"no Parquet files at {', '.join(map(repr, given))}")
    return found


def _pieces(
    files: Sequence[str], target: str, features: Sequence[str] | None, weight: str, rows: int
) -> Iterator[Piece]:
    import pyarrow.parquet

    number = 0
    for path in files:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, data = file.schema_arrow, file.metadata
            sizes = [data.row_group(group).num_rows for group in range(data.num_row_groups)]
        missing = [name for name in (target, weight, *(features or ())) if name and name not in schema.names]
        if missing:
            raise ValueError(f"{path!r} has no column {missing[0]!r}; its columns are {', '.join(schema.names[:20])}")
        if features is None:
            features = [name for name in schema.names if name not in (target, weight)]
        for name in features:
            kind = schema.field(name).type
            if not (
                pyarrow.types.is_floating(kind) or pyarrow.types.is_integer(kind) or pyarrow.types.is_boolean(kind)
            ):
                raise ValueError(f"{path!r}: the column {name!r} is {kind}, not numbers; encode it, or leave it out of "
                                 "features")  # fmt: skip
        together: list[int] = []
        for group, size in enumerate(sizes):
            if together and sum(sizes[each] for each in together) + size > rows:
                yield Piece(number, path, tuple(together), tuple(features), target, weight)
                number, together = number + 1, []
            together.append(group)
        if together:
            yield Piece(number, path, tuple(together), tuple(features), target, weight)
            number += 1

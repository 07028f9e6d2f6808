"""Stream a table from Parquet files: every pass reads the row groups again and holds only a few in memory."""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from typing import Any

import numpy as np

from .._budget import LIMIT
from .._names import Array
from ..preprocessing import squash
from .passes import Block, ClusterError, make_block

#: The number of rows in a partition: smaller row groups are combined up to this number.
ROWS = 1 << 19


@dataclass(frozen=True)
class Recast:
    """A transformation of columns and labels: subtract ``mean``, divide by ``scale``, and encode the labels.

    Values beyond ``bound`` are squashed. Missing and infinite values are replaced by the mean; rows whose label has no
    code are left out. With ``single``, float32 columns stay float32.
    """

    mean: Array
    scale: Array
    codes: dict[Any, int]
    single: bool = False
    bound: float = float("inf")

    def label_codes(self, column: Any) -> Array:
        """Return the codes (rows,) of an Arrow column, with -1 for missing and unknown values."""
        coded = column.combine_chunks().dictionary_encode()
        found = np.array([*(self.codes.get(value, -1) for value in coded.dictionary.to_pylist()), -1])
        return np.asarray(found[coded.indices.fill_null(len(found) - 1).to_numpy()])


@dataclass(frozen=True)
class Piece:
    """Some row groups from one file, and the roles of its columns."""

    number: int
    path: str
    groups: tuple[int, ...]
    rows: int
    features: tuple[str, ...]
    target: str
    weight: str
    recast: Recast | None = None

    def table(self) -> Any:
        """Return the rows as an Arrow table."""
        import pyarrow.parquet  # type: ignore[import-untyped]

        names = [*self.features, self.target, *([self.weight] if self.weight else [])]
        with pyarrow.parquet.ParquetFile(self.path, memory_map=True) as file:
            return file.read_row_groups(list(self.groups), columns=names, use_threads=False)

    def read(self) -> Block:
        """Return the checked rows."""
        table = self.table()
        kinds = {str(table.schema.field(name).type) for name in self.features}
        single = kinds == {"float"} and (self.recast is None or self.recast.single)
        X = np.empty((table.num_rows, len(self.features)), np.float32 if single else np.float64, "F")
        y = table.column(self.target)
        y = y.to_numpy() if self.recast is None else self.recast.label_codes(y)
        for place, name in enumerate(self.features):
            values = numbers_of(table.column(name))
            if self.recast is not None:
                values = values.astype(np.float64)
                values -= self.recast.mean[place]
                values /= self.recast.scale[place]
                if not np.isfinite(values.sum()):
                    values[~np.isfinite(values)] = 0.0
                values = squash(values, self.recast.bound)
            X[:, place] = values
        weight = table.column(self.weight).to_numpy() if self.weight else None
        if self.recast is not None and (y < 0).any():
            known = y >= 0
            X, y, weight = X[known], y[known], None if weight is None else weight[known]
        return make_block(X, y, weight, number=self.number)


def numbers_of(column: Any) -> Array:
    """Convert a numeric Arrow column to an array (rows,), with NaN for missing values."""
    return np.asarray(column.cast("uint8").to_numpy() if str(column.type) == "bool" else column.to_numpy())


def _work(task: Callable[[Block], Any], scratch: str, piece: Piece) -> Any:
    return task(_kept(piece, scratch) if scratch else piece.read())


def _kept(piece: Piece, scratch: str) -> Block:
    """Return the rows from files in a folder, with X as a memory map; the first call writes these files."""
    paths = [os.path.join(scratch, f"{piece.number}.{name}.npy") for name in ("y", "mass", "X")]
    if not os.path.exists(paths[-1]):  # X is written last
        block = piece.read()
        labels = block.y if block.y.dtype != object else block.y.astype(str)
        for path, values in zip(paths, (labels, block.mass, np.ascontiguousarray(block.X)), strict=True):
            with tempfile.NamedTemporaryFile(dir=scratch, delete=False) as file:
                np.save(file, values, allow_pickle=False)
            os.replace(file.name, path)
    y, mass = (np.load(path, allow_pickle=False) for path in paths[:2])
    return Block(np.load(paths[2], mmap_mode="r" if len(y) else None, allow_pickle=False), y, mass)


class ParquetSource:
    """Partitions of Parquet files with numeric features.

    Parameters
    ----------
    paths : str or sequence of str
        A folder, a pattern such as ``data/*.parquet``, or a list of files.
    target : str
        The column that contains the labels.
    features : sequence of str, optional
        By default, all other columns.
    weight : str
        A column that contains sample weights, if any.
    processes : int
        With 1, the files are read in this process; with more, a pool is started in which each process holds one
        partition.
    rows : int
        The maximum number of rows in a partition.
    scratch : str
        A folder for decoded rows, which use four bytes per number if all columns are float32, and eight otherwise.
        Passes after the first are several times faster with such a folder. :meth:`close` removes the files. By default,
        nothing is stored.

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
        processes: int = 1, rows: int = ROWS, scratch: str = "",
    ) -> None:  # fmt: skip
        if processes < 1 or rows < 1:
            raise ValueError(f"processes={processes} and rows={rows} must be at least 1")
        self.processes, self.files = processes, files_of(paths)
        self.pieces = list(_pieces(self.files, target, features, weight, rows))
        if not self.pieces:
            raise ValueError(f"{self.files[0]!r} has no rows; pass files with rows")
        self.features, self.partitions = self.pieces[0].features, len(self.pieces)
        self.rows = sum(piece.rows for piece in self.pieces)  # according to the files
        self.pool: ProcessPoolExecutor | None = None
        if scratch and not os.path.isdir(scratch):
            raise ValueError(
                f"scratch={scratch!r} is not a folder; pass one with space for the decoded rows, or omit it"
            )
        self.scratch, self.folder = scratch, ""

    def recast(self, recast: Recast, features: Sequence[str]) -> Any:
        """Return a source for the same files with only these columns, transformed by ``recast``."""
        other = copy(self)
        other.pieces = [replace(piece, features=tuple(features), recast=recast) for piece in self.pieces]
        other.features, other.folder = tuple(features), ""  # stored rows are not transformed
        return other

    def run(self, task: Callable[[Block], Any]) -> Iterator[tuple[int, Any]]:
        """Yield partition numbers and the task's results; a partition whose process dies is read again."""
        if self.scratch and not self.folder:
            self.folder = tempfile.mkdtemp(prefix="closecall-", dir=self.scratch)
        return self.each(partial(_work, task, self.folder))

    def each(self, work: Callable[[Piece], Any]) -> Iterator[tuple[int, Any]]:
        """Yield the partition number and the result for each piece."""
        if self.processes == 1:
            yield from ((piece.number, work(piece)) for piece in self.pieces)
            return
        left, attempts = {piece.number: piece for piece in self.pieces}, 0
        while left:
            try:
                for number, found in self._pooled(work, list(left.values())):
                    del left[number]
                    yield number, found
            except BrokenProcessPool as error:
                self._end()
                attempts += 1
                if attempts == 3:
                    raise ClusterError(
                        "the processes that read files died three times, perhaps for lack of memory; use processes=1 "
                        "or smaller partitions (rows=)"
                    ) from error

    def _pooled(self, work: Callable[[Piece], Any], pieces: Sequence[Piece]) -> Iterator[tuple[int, Any]]:
        if self.pool is None:
            self.pool = ProcessPoolExecutor(
                self.processes, get_context("forkserver" if os.name == "posix" else "spawn")
            )
        todo, running = iter(pieces), dict[Future[Any], int]()
        while True:
            while len(running) < 2 * self.processes and (piece := next(todo, None)) is not None:
                running[self.pool.submit(work, piece)] = piece.number
            if not running:
                return
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                found = future.result()
                yield running.pop(future), found

    def _end(self) -> None:
        if self.pool is not None:
            self.pool.shutdown(cancel_futures=True)
            self.pool = None

    def close(self) -> None:
        """End the processes and remove temporary files; a later pass starts new processes."""
        self._end()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder = ""


def files_of(paths: str | Sequence[str]) -> list[str]:
    """Return the Parquet files in a folder, or those given by a pattern or a list; raise an error if there are none."""
    found: list[str] = []
    for path in [paths] if isinstance(paths, str) else paths:
        some = sorted(glob.glob(os.path.join(glob.escape(path), "*.parquet") if os.path.isdir(path) else path))
        if not some:
            what = "the folder has none" if os.path.isdir(path) else "no file has this name or matches the pattern"
            raise FileNotFoundError(f"no Parquet files at {path!r}: {what}")
        found += some
    return found


def cells_of(paths: str | Sequence[str]) -> int:
    """Return the number of values, including labels, according to the metadata of the files."""
    import pyarrow.parquet

    return sum(data.num_rows * data.num_columns for data in map(pyarrow.parquet.read_metadata, files_of(paths)))


def first_columns(paths: str | Sequence[str]) -> tuple[str, dict[str, bool]]:
    """Return the first file, and whether each of its columns is numeric."""
    import pyarrow.parquet

    first = files_of(paths)[0]
    return first, {field.name: is_numeric(field.type) for field in pyarrow.parquet.read_schema(first)}


def _pieces(
    files: Sequence[str], target: str, features: Sequence[str] | None, weight: str, rows: int
) -> Iterator[Piece]:
    import pyarrow.parquet

    number, first = 0, files[0]
    for path in files:
        with pyarrow.parquet.ParquetFile(path) as file:
            schema, data = file.schema_arrow, file.metadata
            sizes = [data.row_group(group).num_rows for group in range(data.num_row_groups)]
        missing = [name for name in (target, weight, *(features or ())) if name and name not in schema.names]
        if missing:
            other = "" if path == first else f", which {first!r} has: pass files with the same columns"
            raise ValueError(f"{path!r} has no column {missing[0]!r}{other}; its columns are "
                             f"{', '.join(schema.names[:20])}")  # fmt: skip
        if features is None:
            features = [name for name in schema.names if name not in (target, weight)]
        for name in features:
            if not is_numeric(schema.field(name).type):
                raise ValueError(f"{path!r}: the column {name!r} has the type {schema.field(name).type}; encode it as "
                                 "numbers, or leave it out of features")  # fmt: skip
        if max(sizes, default=0) * 8 * (len(features) + 1) > LIMIT:
            raise ValueError(f"{path!r} has a row group of {max(sizes)} rows, which need {LIMIT >> 30} GiB or more "
                             f"of memory; write smaller row groups (row_group_size={rows})")  # fmt: skip
        for groups in _together(sizes, rows):
            size = sum(sizes[group] for group in groups)
            yield Piece(number, path, groups, size, tuple(features), target, weight)
            number += 1


def _together(sizes: Sequence[int], rows: int) -> Iterator[tuple[int, ...]]:
    """Yield lists of consecutive row groups, each list with at most the given total number of rows."""
    begin = 0
    for end in range(1, len(sizes) + 1):
        if end == len(sizes) or sum(sizes[begin : end + 1]) > rows:
            yield tuple(range(begin, end))
            begin = end


def is_numeric(kind: Any) -> bool:
    """Return whether an Arrow type is numeric or boolean."""
    from pyarrow import types

    return bool(types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind))

"""Reading a user's table: where it comes from, what separates its columns, and pieces of it at a time.

Every cell of a text file is read as text. What a column is, is decided once, from all training rows
(:mod:`closecall.tabular.columns`); were it left to the reader, the first piece of a stream could be numbers and the
second text.
"""

from __future__ import annotations

import csv
import gzip
import io
import sys
import warnings
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from closecall._budget import LIMIT, Budget
from closecall._names import Array
from closecall.data import load_dataset
from closecall.data.dataset import DataError, need_pandas
from closecall.data.files import MISSING, SEPARATORS, expanded, suffix_of
from closecall.data.parquet import stream_parquet
from closecall.data.text import CELL_BYTES, PIECE_LIMIT, Text, check_columns, unpacked

from .columns import Column, columns_of, labels_of, quoted, target_of

#: Rows in memory at a time when a table is streamed.
CHUNK = 50_000
_HEAD = 1 << 18
#: Share of the first rows that must be as wide as the header under the right separator.
_AGREE = 0.8


@dataclass(frozen=True, eq=False)
class Table:
    """A table to learn from.

    Parameters
    ----------
    name : str
    frame : pandas frame (samples, columns)
    target : str
    labels : array (samples,) of str
    columns : tuple of Column
        The features; columns of the frame that are not among them are left out.
    notes : tuple of str
        What was decided and the user should know.
    """

    name: str
    frame: Any
    target: str
    labels: Array
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()

    def sample(self, rows: int, seed: int = 0) -> Table:
        """At most that many rows (0: all), each class in proportion and with at least eight if it has them."""
        if not rows or len(self.labels) <= rows:
            return self
        rng, chosen = np.random.default_rng(seed), []
        for label in np.unique(self.labels):
            members = np.flatnonzero(self.labels == label)
            count = min(len(members), max(8, round(rows * len(members) / len(self.labels))))
            chosen.append(rng.choice(members, count, replace=False))
        kept = np.sort(np.concatenate(chosen))
        note = f"{len(kept)} of {len(self.labels)} rows are used, drawn at random by class (--rows 0 takes all)"
        return replace(self, frame=self.frame.iloc[kept], labels=self.labels[kept], notes=(*self.notes, note))


def read(
    source: str,
    target: str = "",
    *,
    drop: Collection[str] = (),
    keep: Collection[str] = (),
    data_dir: str | None = None,
) -> Table:
    """Read a table to learn from and decide what its columns are.

    Parameters
    ----------
    source : str
        A file, ``-`` for standard input, or a data set's name (``monk3``, ``pmlb:...``, ``openml:...``).
    target : str
        The target column; found by name or taken as the last one if empty.
    drop, keep : collections of str
        Columns to leave out, and columns to keep although they look like an identifier.

    Examples
    --------
    >>> table = read("monk3")
    >>> table.labels.shape, [column.kind for column in table.columns][:2]
    ((554,), ['number', 'number'])
    """
    if not is_file(source):
        return _read_named(source, target, drop, data_dir)
    pd = need_pandas()
    pieces = list(stream(source, limit=LIMIT))
    frame = pd.concat(pieces, ignore_index=True) if len(pieces) > 1 else pieces[0]
    name = "standard input" if source == "-" else Path(source).name
    if not len(frame):
        raise DataError(f"{name!r} has a header line but no rows")
    target, notes = target_of(frame, target, name)
    labels, kept, more = labels_of(frame[target], target, name)
    frame = frame if kept.all() else frame[kept]
    features = [column for column in frame.columns if column != target]
    _check_names([*drop, *keep], features, name)
    columns, told = columns_of(frame, [column for column in features if column not in drop], keep)
    if not columns:
        raise DataError(f"{name!r} has no usable column beside the target {target!r}: {'; '.join(told) or 'no other'}")
    return Table(name, frame, target, labels, columns, (*notes, *more, *told))


def check_classes(table: Table, least: int) -> None:
    """An error that names the classes of fewer than ``least`` rows, and one if there are more than 1000."""
    classes, counts = np.unique(table.labels.astype(str), return_counts=True)
    pairs = zip(classes.tolist(), counts.tolist(), strict=True)
    rare = [f"{name!r} ({count})" for name, count in pairs if count < least]
    if rare:
        few = f"{', '.join(rare[:5])}{', ...' if len(rare) > 5 else ''}"
        raise DataError(
            f"{table.name!r}: too few rows of {'the class' if len(rare) == 1 else f'{len(rare)} classes'} {few} of "
            f"{table.target!r}; every class needs {least} or more: drop those rows or merge the classes"
        )
    if len(classes) > 1000:
        raise DataError(f"{table.name!r}: {len(classes)} classes are too many; is {table.target!r} the target?")


def _check_names(given: list[str], features: list[str], name: str) -> None:
    for column in given:
        if column not in features:
            raise DataError(f"{name!r} has no column {column!r}; its columns are {quoted(features)}")


def _read_named(source: str, target: str, drop: Collection[str], data_dir: str | None) -> Table:
    frame, given, kinds = _named(source, data_dir)
    if target and target != given:
        raise DataError(f"the target of the data set {source!r} is {given!r}, not {target!r}; leave --target out")
    _check_names(list(drop), list(kinds), source)
    columns = tuple(Column(name, kind) for name, kind in kinds.items() if name not in drop)
    return Table(source, frame, given, frame[given].to_numpy(dtype=object), columns)


def _named(source: str, data_dir: str | None) -> tuple[Any, str, dict[str, str]]:
    """A data set's frame with its labels, the name of the label column, and the features' kinds."""
    data = load_dataset(source, data_dir)
    frame = data.frame()
    target = "target"
    while target in data.feature_names:
        target += "_"
    frame[target] = np.array(data.classes, dtype=object)[data.y]
    kinds = ["number" if values is None else "nominal" for values in data.categories]
    return frame, target, dict(zip(data.feature_names, kinds, strict=True))


def is_file(source: str) -> bool:
    """Whether a source is a file or standard input, not a data set's name."""
    return source == "-" or bool(suffix_of(source)) or expanded(source).exists()


def stream(source: str, rows: int = CHUNK, *, limit: int = 0, data_dir: str | None = None) -> Iterator[Any]:
    """Frames of at most that many rows each; an empty table with a header gives one empty frame.

    Parameters
    ----------
    source : str
        See :func:`read`.
    rows : int
    limit : int
        Bytes that the whole table may take in memory; 0 bounds each piece instead, for those who keep nothing.
    """
    if not is_file(source):
        frame = _named(source, data_dir)[0]
        yield from (frame.iloc[begin : begin + rows] for begin in range(0, len(frame), rows))
    elif suffix_of(source) == ".parquet":
        # Whole, or in pieces; either way no frame is larger than the limit.
        yield from stream_parquet(expanded(source), rows, limit or PIECE_LIMIT, whole=bool(limit))
    else:
        yield from _stream_text(source, rows, limit)


def _stream_text(source: str, rows: int, limit: int) -> Iterator[Any]:
    pd = need_pandas()
    what = "standard input" if source == "-" else repr(source)  # a file's name may hold control characters
    with _opened(source, what) as raw:
        rest, head = unpacked(raw, _HEAD, what)
        separator, header = sniff(head, what, SEPARATORS.get(suffix_of(source)) or ",")
        text = Text(head, rest, what, Budget(limit or PIECE_LIMIT), separator)
        with pd.read_csv(
            io.BufferedReader(text, 1 << 16), sep=separator, dtype=str, index_col=False, encoding="utf-8-sig",
            keep_default_na=False, na_values=list(MISSING), chunksize=_rows_of_a_piece(rows, head, len(header)),
        ) as reader:  # fmt: skip
            while True:
                text.budget = text.budget if limit else Budget(PIECE_LIMIT)
                with warnings.catch_warnings():
                    # pandas warns of rows longer than the header, and drops what is over
                    warnings.simplefilter("error", pd.errors.ParserWarning)
                    try:
                        frame = next(reader)
                    except StopIteration:
                        return
                yield frame


def _rows_of_a_piece(rows: int, head: bytes, columns: int) -> int:
    """As many as asked for, or as take a fourth of what a piece may: the first rows say how long one is."""
    row = len(head) / max(head.count(b"\n"), 1) + CELL_BYTES * columns
    return max(1, min(rows, int(PIECE_LIMIT / 4 / row)))


@contextmanager
def _opened(source: str, what: str) -> Iterator[IO[bytes]]:
    """The bytes of a source; whatever goes wrong while they are read and parsed becomes one kind of error."""
    pd = need_pandas()
    try:
        if source == "-":
            if sys.stdin is None:
                raise DataError("standard input is closed; give a file, or a pipe")
            yield sys.stdin.buffer
        else:
            with expanded(source).open("rb") as file:
                yield file
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{what} is empty; it needs a header line and rows") from error
    except pd.errors.ParserWarning as error:
        raise DataError(
            f"{what} is not a table of equal rows: some row has more cells than the header line; put quotes around "
            "cells that hold the separator"
        ) from error
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x}"
        raise DataError(f"{what} is not in UTF-8 ({found} is no character there); save it as CSV in UTF-8") from error
    except (pd.errors.ParserError, csv.Error) as error:
        detail = " ".join(str(error).split())[:200]
        raise DataError(
            f"{what} is not a table of equal rows ({detail}); mend the row or save the table anew"
        ) from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{what} is truncated or damaged ({error})") from error
    except OSError as error:
        raise DataError(f"cannot read {what}: {error.strerror or error}") from error


def sniff(head: bytes, what: object, usual: str = ",") -> tuple[str, list[str]]:
    """The separator and the column names that the first lines of a file show.

    Parameters
    ----------
    head : bytes
        The beginning of the file.
    what : object
        Its name, for errors.
    usual : str
        The separator if several, or none, fit.

    Examples
    --------
    >>> sniff(b"a;b,c;d" + bytes([10]) + b"1;2,5;3", "it")
    (';', ['a', 'b,c', 'd'])
    """
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{what} is in UTF-16; save it in UTF-8")
    if b"\0" in head:
        raise DataError(f"{what} holds zero bytes: it is not a text file; give CSV, TSV or .parquet")
    text = head.decode("utf-8-sig", errors="replace")
    if len(head) >= _HEAD:
        text = text.rpartition("\n")[0] or text  # the last line may be cut
    if not text.strip():
        raise DataError(f"{what} is empty; it needs a header line and rows")
    best, found = usual, 1
    for separator in dict.fromkeys((usual, ",", ";", "\t", "|")):
        widths = [len(row) for row in _first_rows(text, separator, 50)]
        # Not all: a row may be broken, or the last one cut, and that row is to be named, not the separator.
        if widths and widths[0] > found and widths.count(widths[0]) >= _AGREE * len(widths):
            best, found = separator, widths[0]
    header = next(row for row in csv.reader(io.StringIO(text), delimiter=best) if row)
    check_columns(len(header), what)
    twice = [name for name, count in Counter(header).items() if count > 1 and name]
    if twice:
        raise DataError(f"{what}: the columns {quoted(twice)} appear twice; rename them")
    if all(_is_number(name) for name in header):
        raise DataError(f"{what}: the first line holds numbers only; it must be a header line with column names")
    return best, header


def _first_rows(text: str, separator: str, count: int) -> list[list[str]]:
    """The first rows under a separator; none if it makes cells of more than Python reads."""
    try:
        rows = [row for row, _ in zip(csv.reader(io.StringIO(text), delimiter=separator), range(count), strict=False)]
    except csv.Error:
        return []
    return [row for row in rows if row]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

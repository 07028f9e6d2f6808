"""Read a user's file, in pieces if necessary, and detect its separator and the types of its columns.

Every cell of a text file is read as text. The type of a column is decided once, from all training rows
(:mod:`closecall.table.read.columns`); otherwise the first piece of a stream could be read as numbers and the second as
text.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
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
from closecall.report.text import is_number

from .columns import Column, columns_of, labels_of, numbers, quoted, suggestion, target_of, texts
from .dataset import DataError, need_pandas
from .files import (
    CELL_BYTES,
    MISSING,
    PIECE_LIMIT,
    SEPARATORS,
    Text,
    check_columns,
    expanded,
    stream_parquet,
    suffix_of,
    unpacked,
)

#: Number of rows in memory at a time when a table is streamed.
CHUNK = 50_000
_HEAD = 1 << 18
#: With the right separator, at least this share of the first rows has as many cells as the header.
_AGREE = 0.8


@dataclass(frozen=True)
class Reading:
    """How to read a file if automatic detection is not enough.

    If the separator is empty, it is detected; an empty encoding means UTF-8. The other fields name the columns to leave
    out, to keep even if they look like identifiers, and to read as numbers or as names.
    """

    separator: str = ""
    encoding: str = ""
    drop: Collection[str] = ()
    keep: Collection[str] = ()
    numeric: Collection[str] = ()
    nominal: Collection[str] = ()

    @property
    def forced(self) -> dict[str, str]:
        """The kind that the user set for each column."""
        return {**dict.fromkeys(self.numeric, "number"), **dict.fromkeys(self.nominal, "nominal")}

    @property
    def named(self) -> tuple[str, ...]:
        """All columns mentioned in the options."""
        return (*self.drop, *self.keep, *self.numeric, *self.nominal)

    def __post_init__(self) -> None:
        if len(self.separator) > 1 or (self.separator and not self.separator.isascii()):
            raise DataError(f"the separator must be one ASCII character, not {self.separator!r}; a tab is $'\\t'")
        if both := sorted(set(self.numeric) & set(self.nominal)):
            raise DataError(f"{quoted(both)} cannot be both numeric and nominal")
        try:
            wide = len("a".encode(codecs.lookup(self.encoding or "utf-8").name)) != 1
        except (LookupError, UnicodeError):
            wide = True
        if wide:
            raise DataError(
                f"the encoding {self.encoding!r} cannot be read; try latin-1, cp1252 or utf-8, or save "
                "the file in UTF-8"
            )


#: How a file that is not a text table begins -> what it is, and what to do.
_FOREIGN = {
    rb"PK\x03\x04": "is a zip archive (perhaps an Excel workbook), not a text file; pass CSV, TSV or .parquet "
    "(in a spreadsheet: save as CSV in UTF-8)",
    rb"\xd0\xcf\x11\xe0": "is an old Excel workbook; save it as CSV in UTF-8",
    rb"%PDF": "is a PDF; export the table as CSV",
    rb"\s*(?:\{\s*\"|\[\s*[\[{])": "is JSON, not a table; save it as CSV (in pandas: read_json, then to_csv)",
    rb"\xff\xfe|\xfe\xff": "is encoded as UTF-16; save it as UTF-8",
    rb"(?s:.*)\0": "contains null bytes, so it is not a text file; pass CSV, TSV or .parquet",
}


@dataclass(frozen=True, eq=False)
class Sheet:
    """A table to learn from: its frame (samples, columns), the labels (samples,) as text, and notes for the user.

    Columns of the frame that are not among ``columns`` are left out.
    """

    name: str
    frame: Any
    target: str
    labels: Array
    columns: tuple[Column, ...]
    notes: tuple[str, ...] = ()

    def sample(self, rows: int, seed: int = 0) -> Sheet:
        """Return at most ``rows`` rows (0: all), stratified by class, with eight or more of each class if possible."""
        if not rows or len(self.labels) <= rows:
            return self
        rng, chosen = np.random.default_rng(seed), []
        for label in np.unique(self.labels):
            members = np.flatnonzero(self.labels == label)
            count = min(len(members), max(8, round(rows * len(members) / len(self.labels))))
            chosen.append(rng.choice(members, count, replace=False))
        kept = np.sort(np.concatenate(chosen))
        note = f"{len(kept)} of {len(self.labels)} rows are used, drawn at random within each class (--rows 0 uses all)"
        return replace(self, frame=self.frame.iloc[kept], labels=self.labels[kept], notes=(*self.notes, note))

    def parsed(self) -> Sheet:
        """Return the same table with its numbers parsed, for repeated splits."""
        found, columns = dict[str, Any](), list[Column]()
        for column in self.columns:
            values, kind = self.frame[column.name], "nominal" if column.kind == "nominal" else "number"
            found[column.label] = texts(values) if kind == "nominal" else numbers(values, column)
            columns.append(Column(column.label, kind))
        frame = need_pandas().DataFrame(found, index=self.frame.index)
        return replace(self, frame=frame, columns=tuple(columns))


def read_file(source: str, target: str = "", reading: Reading | None = None) -> Sheet:
    """Read a file (``-`` for standard input) and detect its columns."""
    pieces = list(stream_file(source, CHUNK, LIMIT, reading or Reading()))
    frame = need_pandas().concat(pieces, ignore_index=True) if len(pieces) > 1 else pieces[0]
    return sheet_of(frame, target, reading, "standard input" if source == "-" else Path(source).name)


def sheet_of(frame: Any, target: str = "", reading: Reading | None = None, name: str = "table") -> Sheet:
    """Detect the columns of a frame (samples, columns), as :func:`read_file` does."""
    reading = reading or Reading()
    if not len(frame):
        raise DataError(f"{name!r} has a header line but no rows")
    target, notes = target_of(frame, target, name)
    labels, kept, more = labels_of(frame[target], target, name)
    frame = frame if kept.all() else frame[kept]
    features = [column for column in frame.columns if column != target]
    check_names(reading.named, features, name)
    used = [column for column in features if column not in reading.drop]
    columns, others = columns_of(frame, used, reading.keep, reading.forced)
    if not columns:
        why = "; ".join(others) or "no other"
        raise DataError(f"{name!r} has no usable column besides the target {target!r}: {why}")
    return Sheet(name, frame, target, labels, columns, (*notes, *more, *others))


def stream_file(source: str, rows: int = CHUNK, limit: int = 0, reading: Reading | None = None) -> Iterator[Any]:
    """Yield frames of at most ``rows`` rows each; an empty table with a header gives one empty frame.

    The whole table may take at most ``limit`` bytes of memory; if ``limit`` is 0, each piece is limited instead, for
    callers that do not keep the pieces.
    """
    if "://" in source:
        raise DataError(f"{source!r} is a URL; download the file first, then pass its path")
    if suffix_of(source) == ".parquet":
        yield from stream_parquet(expanded(source), rows, limit or PIECE_LIMIT, whole=bool(limit))
    else:
        yield from _stream_text(source, rows, limit, reading or Reading())


def check_names(given: Collection[str], features: Collection[str], name: str) -> None:
    """Raise an error for the first of the given names that is not a feature."""
    for column in given:
        if column not in features:
            raise DataError(f"{name!r} has no column {column!r}; {suggestion(column, [*features])}")


def _stream_text(source: str, rows: int, limit: int, reading: Reading) -> Iterator[Any]:
    pd = need_pandas()
    what = "standard input" if source == "-" else repr(source)  # a file name may contain control characters
    with _opened(source, what) as raw:
        rest, head = unpacked(raw, _HEAD, what)
        if rest is raw and source.lower().endswith(".gz"):
            raise DataError(f"{what} is not a gzip file (a Git LFS pointer, perhaps); fetch the file itself")
        usual = reading.separator or SEPARATORS.get(suffix_of(source)) or ","
        separator, header = sniff(head, what, usual, fixed=bool(reading.separator), encoding=reading.encoding)
        text = Text(head, rest, what, Budget(limit or PIECE_LIMIT), separator)
        size = len(head) / max(head.count(b"\n"), 1) + CELL_BYTES * len(header)  # of a row
        with pd.read_csv(
            io.BufferedReader(text, 1 << 16), sep=separator, dtype=str, index_col=False,
            encoding=reading.encoding or "utf-8-sig", keep_default_na=False, na_values=list(MISSING),
            chunksize=max(1, min(rows, int(PIECE_LIMIT / 4 / size))),
        ) as reader:  # fmt: skip
            while True:
                text.budget = text.budget if limit else Budget(PIECE_LIMIT)
                with warnings.catch_warnings():
                    # pandas warns about rows longer than the header, and drops the excess
                    warnings.simplefilter("error", pd.errors.ParserWarning)
                    try:
                        frame = next(reader)
                    except StopIteration:
                        return
                yield frame


@contextmanager
def _opened(source: str, what: str) -> Iterator[IO[bytes]]:
    """Open a source for reading; any failure while it is read or parsed becomes a ``DataError``."""
    pd = need_pandas()
    try:
        if source == "-":
            if sys.stdin is None:
                raise DataError("standard input is closed; pass a file, or use a pipe")
            yield sys.stdin.buffer
        else:
            with expanded(source).open("rb") as file:
                yield file
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{what} is empty; it needs a header line and rows") from error
    except pd.errors.ParserWarning as error:
        longer = "a row has more cells than the header line; put quotes around cells that contain the separator"
        raise DataError(f"{what} is not a table with rows of equal length: {longer}") from error
    except UnicodeDecodeError as error:
        found = f"byte 0x{error.object[error.start]:02x} is not valid there"
        advice = "use --encoding latin-1 (or cp1252), or save it as CSV in UTF-8"
        raise DataError(f"{what} is not in UTF-8 ({found}); {advice}") from error
    except (pd.errors.ParserError, csv.Error) as error:
        detail = f"({' '.join(str(error).split())[:200]}); fix the row or save the table again"
        raise DataError(f"{what} is not a table with rows of equal length {detail}") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{what} is truncated or damaged ({error})") from error
    except OSError as error:
        raise DataError(f"cannot read {what}: {error.strerror or error}") from error


def sniff(
    head: bytes, what: object, usual: str = ",", *, fixed: bool = False, encoding: str = ""
) -> tuple[str, list[str]]:
    """Return the separator and the column names, detected from the first bytes of a file.

    ``usual`` is chosen if several separators fit or none does; if ``fixed`` is true, no other is tried. An empty
    encoding means UTF-8.

    Examples
    --------
    >>> sniff(b"a;b,c;d" + bytes([10]) + b"1;2,5;3", "it")
    (';', ['a', 'b,c', 'd'])
    """
    for start, advice in _FOREIGN.items():
        if re.match(start, head):
            raise DataError(f"{what} {advice}")
    text = head.decode(encoding or "utf-8-sig", errors="replace")
    if len(head) >= _HEAD:
        text = text.rpartition("\n")[0] or text  # the last line may be cut off
    if not text.strip():
        raise DataError(f"{what} is empty; it needs a header line and rows")
    best, found = usual, 1
    for separator in (usual,) if fixed else dict.fromkeys((usual, ",", ";", "\t", "|")):
        widths = [len(row) for row in _first_rows(text, separator, 50)]
        # Not all rows must agree: one may be broken or cut off, and the error should name that row.
        if widths and widths[0] > found and widths.count(widths[0]) >= _AGREE * len(widths):
            best, found = separator, widths[0]
    header = next(row for row in csv.reader(io.StringIO(text), delimiter=best) if row)
    check_columns(len(header), what)
    if twice := [name for name, count in Counter(header).items() if count > 1 and name]:
        raise DataError(f"{what}: the columns {quoted(twice)} appear more than once; rename them")
    if all(is_number(name) for name in header):
        raise DataError(f"{what}: the first line contains only numbers; it must be a header line with column names")
    return best, header


def _first_rows(text: str, separator: str, count: int) -> list[list[str]]:
    """Return the first rows, split at a given separator; none if a cell exceeds the csv module's limit."""
    try:
        rows = [row for row, _ in zip(csv.reader(io.StringIO(text), delimiter=separator), range(count), strict=False)]
    except csv.Error:
        return []
    return [row for row in rows if row]

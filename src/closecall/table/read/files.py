"""File paths, file types, output, and safe reading of untrusted text and Parquet files.

A one-megabyte file can unpack to a gigabyte, a gigabyte of ``1,1`` can need twelve gigabytes of memory, and an unclosed
quote can turn the rest of the file into one cell. Memory use is therefore counted cell by cell, as the text arrives. In
Parquet files, dictionary and run-length encoding can expand a few hundred bytes to gigabytes of text. Text columns are
therefore read as dictionaries, which are as small in memory as in the file, and their expanded size is counted before
allocation.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from closecall._budget import LIMIT, Budget, BudgetError, Readable
from closecall._files import whole_file

from .dataset import DataError

#: How files may denote a missing value.
MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
#: The separator of a table, by the suffix of its file (Parquet has none).
SEPARATORS = {".csv": ",", ".tsv": "\t", ".parquet": ""}
#: Memory needed for a cell in addition to its text: in the parser, in a frame and in a matrix.
CELL_BYTES = 32
#: Memory limit for a piece of a streamed table; pieces usually take a quarter of it.
PIECE_LIMIT = LIMIT >> 2
#: The largest number of columns, and of bytes in the header line.
MAX_COLUMNS, MAX_HEADER = 100_000, 1 << 24
_GZIP = b"\x1f\x8b"


def suffix_of(path: str | Path) -> str:
    """Return the suffix of a file without ``.gz``; empty if it is not one of ``SEPARATORS``."""
    ending = Path(str(path).lower().removesuffix(".gz")).suffix
    return ending if ending in SEPARATORS else ""


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return the path with ``~`` expanded; an unknown home directory raises the same error as a missing file."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise DataError(f"cannot read {str(path)!r}: {error}") from error


@contextmanager
def opened(path: str) -> Iterator[TextIO]:
    """Open a text file that is written completely or not at all; ``-`` and devices are written to directly."""
    if path == "-":
        yield sys.stdout
        sys.stdout.flush()
        return
    with ExitStack() as stack:
        try:
            raw = stack.enter_context(whole_file(path))
        except OSError as error:
            raise DataError(f"cannot write {path!r}: {error.strerror or error}") from error
        yield stack.enter_context(io.TextIOWrapper(raw, encoding="utf-8", newline=""))


class _Rejoined(io.RawIOBase):
    """The bytes already read, followed by the rest of the stream; a pipe cannot be rewound."""

    def __init__(self, head: bytes, rest: Readable) -> None:
        self.head, self.rest = head, rest

    def readable(self) -> bool:
        return True

    def take(self, size: int) -> bytes:
        piece = self.head[:size] if self.head else self.rest.read(size)
        self.head = self.head[len(piece) :]
        return piece

    def readinto(self, buffer: Any) -> int:
        piece = self.take(len(buffer))
        buffer[: len(piece)] = piece
        return len(piece)


class Text(_Rejoined):
    """The bytes of a table, counted as they are read.

    A reader that reads in pieces can set a new budget for each piece. Cells are counted from the separators and line
    endings.
    """

    def __init__(self, head: bytes, rest: Readable, what: object, budget: Budget, separator: str) -> None:
        super().__init__(head, rest)
        self.what, self.budget, self.separator = what, budget, separator

    def take(self, size: int) -> bytes:
        piece = super().take(size)
        if b"\0" in piece:
            raise DataError(f"{self.what} contains null bytes, so it is not a text file; pass CSV, TSV or .parquet")
        cells = piece.count(self.separator.encode()) + piece.count(b"\n")
        try:
            self.budget.spend(len(piece) + CELL_BYTES * cells)
        except BudgetError as error:
            raise DataError(f"{self.what}: {error}. Use a sample of its rows, or check for an unclosed quote") from None
        return piece


def unpacked(raw: Any, size: int, what: object) -> tuple[Readable, bytes]:
    """Return a file (unpacked if it is in gzip format, whatever its name) and its beginning, with at least one line."""
    head = raw.read(size)
    if head.startswith(_GZIP):
        raw = gzip.GzipFile(fileobj=io.BufferedReader(_Rejoined(head, raw)))
        head = raw.read(size)
    while b"\n" not in head and (more := raw.read(size)):
        head += more
        if len(head) > MAX_HEADER:
            raise DataError(f"{what} has a first line of more than {MAX_HEADER} bytes; is it a table?")
    return raw, head


def check_columns(count: int, what: object) -> None:
    """Reject a table with very many columns: pandas needs minutes and gigabytes of memory for a million empty ones."""
    if count > MAX_COLUMNS:
        raise DataError(f"{what} has {count} columns; at most {MAX_COLUMNS} can be read")


def stream_parquet(path: Path, rows: int, limit: int, *, whole: bool = False) -> Iterator[Any]:
    """Yield frames of at most ``rows`` rows, each of at most ``limit`` bytes; an empty file gives one empty frame.

    If ``whole`` is true, a single frame contains all rows.
    """
    if not path.is_file():
        raise DataError(f"cannot read {str(path)!r}: no such file")
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise DataError(f"reading {str(path)!r} needs pyarrow: pip install pyarrow, or save it as CSV") from error
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            plain = _check(file, str(path), limit if whole else 0)
        texts = [field.name for field in plain if _is_text(field.type)]
        with pyarrow.parquet.ParquetFile(path, read_dictionary=texts) as file:
            batches = _bounded(file.iter_batches(batch_size=rows), str(path), limit, whole)
            if whole or not file.metadata.num_rows:
                yield _frame([*batches], file.schema_arrow, plain)
            else:
                yield from (_frame([batch], file.schema_arrow, plain) for batch in batches)
    except (DataError, GeneratorExit):
        raise
    except Exception as error:  # a forged file can raise almost anything in pyarrow and pandas
        detail = " ".join(str(error).split())[:200]
        raise DataError(f"{str(path)!r} is truncated or not a Parquet file ({detail})") from error


def _check(file: Any, what: str, limit: int) -> Any:
    """Return the schema of a file if it describes a table; with a limit, also check the stated size."""
    import pyarrow

    schema, rows = file.schema_arrow, file.metadata.num_rows
    if twice := [name for name, count in Counter(schema.names).items() if count > 1]:
        raise DataError(f"{what}: the columns {', '.join(map(repr, twice[:5]))} appear more than once; rename them")
    nested = [field.name for field in schema if field.type.num_fields and not pyarrow.types.is_dictionary(field.type)]
    if nested:
        raise DataError(f"{what}: the column {nested[0]!r} contains lists or structures; convert it to plain columns")
    check_columns(len(schema), what)
    fixed = [field.type.byte_width for field in schema if pyarrow.types.is_fixed_size_binary(field.type)]
    # The pieces of a stream are checked one by one, but a single row can already be too wide.
    if (CELL_BYTES * len(schema) + sum(fixed)) * max(rows if limit else 1, 1) > (limit or LIMIT):
        size = f"{rows} rows x {len(schema)} columns"
        raise DataError(f"{what} unpacks to {size}, which is too much; use fewer rows or columns")
    return schema


def _is_text(kind: Any) -> bool:
    from pyarrow import types

    kinds = types.is_string, types.is_large_string, types.is_binary, types.is_large_binary
    return any(is_kind(kind) for is_kind in kinds)


def _bounded(batches: Iterator[Any], what: str, limit: int, whole: bool) -> Iterator[Any]:
    size = 0
    for batch in batches:
        size = (size if whole else 0) + sum(map(_plain_bytes, batch.columns))
        if size > limit:
            raise DataError(f"{what} needs more than the {limit} bytes allowed when unpacked")
        yield batch


def _plain_bytes(column: Any) -> int:
    """Return the size of a column once its dictionary is expanded."""
    import pyarrow
    from pyarrow import compute

    if not pyarrow.types.is_dictionary(column.type) or not _is_text(column.type.value_type):
        return max(int(column.nbytes), CELL_BYTES * len(column))
    lengths = compute.binary_length(column.dictionary).cast("int64")
    return CELL_BYTES * len(column) + (compute.sum(lengths.take(column.indices)).as_py() or 0)


def _frame(batches: list[Any], coded: Any, plain: Any) -> Any:
    """Return batches as one pandas frame, with dictionary columns expanded to text."""
    import pyarrow

    table = pyarrow.Table.from_batches(batches, coded).cast(plain)
    table.validate(full=True)  # otherwise invalid UTF-8 raises an error later, wherever it is read
    return table.to_pandas()

"""Paths, types and output of files, and untrusted text that is unpacked, counted and checked while it is read.

A file of a megabyte can unpack to a gigabyte, a gigabyte of ``1,1`` can need twelve gigabytes of memory, and an
unclosed quote can turn the rest of the file into one cell. Memory is therefore counted cell by cell, as the text
arrives.
"""

from __future__ import annotations

import gzip
import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO

from closecall._budget import LIMIT, Budget, BudgetError, Readable
from closecall._files import whole_file

from .dataset import DataError

#: How files may denote a missing value.
MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
#: The separator of a table by its suffix (Parquet has none).
SEPARATORS = {".csv": ",", ".tsv": "\t", ".parquet": ""}
#: Memory for a cell besides its text: in the parser, in a frame and in a matrix.
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
    """Return the path with ``~`` expanded; an unknown home directory is an error like a missing file."""
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
    """The bytes of a table, counted while they are read.

    A reader that works in pieces may set a new budget for each piece. Cells are counted by separators and line ends,
    unless there is no separator.
    """

    def __init__(self, head: bytes, rest: Readable, what: object, budget: Budget, separator: str = "") -> None:
        super().__init__(head, rest)
        self.what, self.budget, self.separator = what, budget, separator

    def take(self, size: int) -> bytes:
        piece = super().take(size)
        if b"\0" in piece:
            raise DataError(f"{self.what} contains zero bytes, so it is not a text file; pass CSV, TSV or .parquet")
        cells = piece.count(self.separator.encode()) + piece.count(b"\n") if self.separator else 0
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
    """Reject a table with very many columns: pandas needs minutes and gigabytes for a million empty ones."""
    if count > MAX_COLUMNS:
        raise DataError(f"{what} has {count} columns; at most {MAX_COLUMNS} can be read")

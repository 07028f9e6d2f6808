"""Files: detecting their type, and reading them up to a limit."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

from closecall._budget import LIMIT, Budget, BudgetError, Readable

from .dataset import DataError
from .text import Text

#: What a file of a user's own may write for a missing value.
MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
#: How a table's file name ends -> its separator (Parquet has none).
SEPARATORS = {".csv": ",", ".tsv": "\t", ".parquet": ""}


def suffix_of(path: str | Path) -> str:
    """The suffix that gives the type of a file, without ``.gz``; "" if it is not in ``SEPARATORS``.

    Examples
    --------
    >>> suffix_of("a/b.csv.gz"), suffix_of("b.parquet"), suffix_of("b.txt")
    ('.csv', '.parquet', '')
    """
    ending = Path(str(path).lower().removesuffix(".gz")).suffix
    return ending if ending in SEPARATORS else ""


def expanded(path: str | os.PathLike[str]) -> Path:
    """The path with ``~`` expanded; an unknown home directory is an error like a missing file."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise DataError(f"cannot read {str(path)!r}: {error}") from error


def read_bytes(path: Path, limit: int = LIMIT, separator: str = "") -> bytes:
    """The file's content, unpacked if it is gzip: at most ``limit`` bytes and, with a separator, of memory for its
    cells.
    """
    try:
        with path.open("rb") as file:
            if not path.name.lower().endswith(".gz"):
                return read_bounded(Text(b"", file, path, Budget(limit), separator), path, limit)
            if file.read(2) != b"\x1f\x8b":
                raise DataError(f"{path} is not a gzip file (a Git LFS pointer, perhaps); fetch the file itself")
            file.seek(0)
            with gzip.GzipFile(fileobj=file) as packed:
                return read_bounded(Text(b"", packed, path, Budget(limit), separator), path, limit)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is truncated or damaged ({error}); delete it and fetch it again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def read_bounded(file: Readable, what: object, limit: int) -> bytes:
    """The whole content of a file, or an error as soon as it exceeds ``limit`` bytes."""
    try:
        return Budget(limit).read(file)
    except BudgetError as error:
        raise DataError(f"{what}: {error}") from None

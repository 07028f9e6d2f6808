"""Paths of files, and their types."""

from __future__ import annotations

import os
from pathlib import Path

from .dataset import DataError

#: How files may denote a missing value.
MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
#: The suffix of a table -> its separator (Parquet has none).
SEPARATORS = {".csv": ",", ".tsv": "\t", ".parquet": ""}


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

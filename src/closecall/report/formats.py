"""Format tables as CSV, so that no name can become a formula, and differences with their signs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import numpy as np

from .text import cell

Row = dict[str, Any]


def write_csv(file: TextIO, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV: numbers are unrounded, None and NaN become empty cells, and text is safe in a spreadsheet."""
    csv.writer(file, lineterminator="\n").writerows(map(_csv_value, row) for row in rows)


def _csv_value(value: object) -> object:
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else repr(float(value))
    return cell(value) if isinstance(value, str) else value


def csv_text(rows: Iterable[Sequence[Any]]) -> str:
    """Return rows as CSV.

    Examples
    --------
    >>> csv_text([("a", "b"), (1.5, None), (float("nan"), "=x")])
    "a,b\\n1.5,\\n,'=x\\n"
    """
    buffer = io.StringIO()
    write_csv(buffer, rows)
    return buffer.getvalue()


def signed(value: float, digits: int) -> str:
    """Return a difference with its sign; a difference that rounds to zero has no minus sign."""
    return f"{round(value, digits) + 0.0:+.{digits}f}"

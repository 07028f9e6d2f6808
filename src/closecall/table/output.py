"""Safe text: names and values of an untrusted table on a terminal and in a spreadsheet."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

from closecall._files import whole_file
from closecall.report.text import no_formula, shown
from closecall.table.read.dataset import DataError


def cell(value: object) -> str:
    r"""A value for a CSV file: unprintable characters escaped, and ``'`` before anything a spreadsheet would evaluate.

    Examples
    --------
    >>> cell("=cmd|' /C calc'!A0"), cell("-1"), cell("-a"), cell("yes")
    ("'=cmd|' /C calc'!A0", '-1', "'-a", 'yes')
    """
    return no_formula(shown(value))


@contextmanager
def opened(path: str) -> Iterator[TextIO]:
    """A text file that is written completely or not at all; ``-`` and devices are written to directly."""
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


def write_rows(file: TextIO, header: Sequence[str], rows: Iterable[Sequence[Any]], as_json: bool, first: bool) -> None:
    """Rows as CSV (the header line before the first) or as JSON lines, which keep every label as it is."""
    if as_json:
        for row in rows:
            print(json.dumps({"kind": "prediction", **dict(zip(header, row, strict=True))}), file=file)
        return
    writer = csv.writer(file, lineterminator="\n")
    if first:
        writer.writerow([cell(name) for name in header])
    writer.writerows([value if isinstance(value, int | float) else cell(value) for value in row] for row in rows)

"""Files with values from an untrusted table: safe in a spreadsheet, and written completely or not at all."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TextIO

from closecall._files import whole_file
from closecall.report.formats import write_csv
from closecall.table.read.dataset import DataError


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


def write_rows(file: TextIO, header: Sequence[str], rows: Iterable[Sequence[Any]], as_json: bool, first: bool) -> None:
    """Write rows as CSV, with a header line before the first row, or as JSON lines, which keep labels unchanged."""
    if as_json:
        for row in rows:
            print(json.dumps({"kind": "prediction", **dict(zip(header, row, strict=True))}), file=file)
        return
    if first:
        write_csv(file, [header])
    write_csv(file, rows)

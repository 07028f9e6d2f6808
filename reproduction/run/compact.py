"""The compact form of cells: one CSV line for each cell, with the rows that validation chose.

A record holds the whole grid in about seven kilobytes. Tables and figures need only the row that validation chose for
each (loss, method). These rows take about a hundred bytes, in a file that any tool can read. Objectives are left out.
"""

import csv
import io
import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.report.text import no_formula
from reproduction.protocol.beyond import STUDIES
from reproduction.protocol.dataset import PARTS
from reproduction.protocol.grid import BASELINES, EQUAL_STARTS, ROW, choose
from reproduction.protocol.plan import NEW_STARTS, Cell
from reproduction.protocol.protocol import get_protocol
from reproduction.protocol.published import LOSSES, METHODS, MODELS

from .record import Record

#: Every (loss, method) of a cell; baselines with a loss of their own come last, with an empty loss.
PLACES = (
    *((loss, method) for loss in LOSSES for method in (*METHODS, "average_exact_intercept")),
    *(("", method) for method in BASELINES if method != "average_exact_intercept"),
)
_CELL = tuple(field.name for field in fields(Cell))
_FACTS = ("run", *(f"{part}_size" for part in PARTS), "features", "seconds", "notes")
_CHOSEN = ("k", "alpha", *PARTS, "n_iter", "converged")
#: Kind of cell -> every (loss, method) with columns in its file.
_PLACES = {
    **dict.fromkeys(MODELS, PLACES),
    "network-starts": tuple((loss, method) for loss in LOSSES for method in (*METHODS, EQUAL_STARTS)),
    **{name: study.places for name, study in STUDIES.items()},
}


def kind_of(cell: Cell) -> str:
    """Return the kind of a cell: its model, except for networks with a separate start for every setting."""
    return "network-starts" if cell.model == "network" and cell.recipe >= NEW_STARTS else cell.model


@cache
def header_of(kind: str) -> tuple[str, ...]:
    chosen = (f"{loss or 'own'}.{method}.{name}" for loss, method in _PLACES[kind] for name in _CHOSEN)
    return (*_CELL, *_FACTS, *chosen)


class CompactError(ValueError):
    """The error raised if the input is not a compact result of this project; the message states where and why."""


@dataclass(frozen=True)
class Line:
    """A cell, its record, and the number of the run that computed it."""

    cell: Cell
    record: Record
    run: int


def spell(text: str) -> str:
    """Encode a string as one line that spreadsheets treat as text; :func:`unspell` reverses the encoding."""
    plain = text.isascii() and text.isprintable()  # true of nearly all texts, and quick to check
    hidden = not plain and any(unicodedata.category(c).startswith(("C", "Zl", "Zp")) for c in text)
    if hidden or text.startswith("'") or no_formula(text) != text:
        # A semicolon is escaped too: some spreadsheets would start a new cell after it.
        return "'" + text.encode("unicode_escape").decode("ascii").replace(";", r"\x3b")
    return text


def unspell(text: str) -> str:
    """Return the text that was passed to :func:`spell`."""
    found = text[1:].encode("ascii").decode("unicode_escape") if text.startswith("'") else text
    if spell(found) != text:
        raise ValueError(f"{text!r} is not validly encoded text")
    return found


def to_text(lines: Sequence[Line]) -> str:
    """Return cells of one kind as CSV, in the order given."""
    buffer = io.StringIO()
    rows = [header_of(kind_of(lines[0].cell)), *map(_write, lines)]
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()


def _write(line: Line) -> list[str]:
    record = line.record
    fields = [getattr(line.cell, name) for name in _CELL]
    cell = [spell(value) if isinstance(value, str) else str(value) for value in fields]
    notes = spell(json.dumps(record.notes)) if record.notes else ""
    facts = [str(line.run), *map(str, record.sizes), str(record.features), f"{record.seconds:.3f}", notes]
    chosen = {(row["loss"], row["method"]): row for row in choose(record.rows, line.cell.protocol)}
    return [*cell, *facts, *(text for place in _PLACES[kind_of(line.cell)] for text in _write_row(chosen.get(place)))]


def _write_row(row: Array | None) -> list[str]:
    if row is None:
        return [""] * len(_CHOSEN)
    counts = [str(row[part]) for part in PARTS]
    # These formats read back as the same numbers: k is any whole number, alpha a power of ten.
    return [f"{row['k']:.17g}", f"{row['alpha']:g}", *counts, str(row["n_iter"]), str(int(row["converged"]))]


def from_text(text: str, runs: int) -> Iterator[Line]:
    """Yield the cells that :func:`to_text` wrote, given the number of runs; damage raises ``CompactError``."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = tuple(next(reader, ()))
        for values in reader:
            line = _read(dict(zip(header, values, strict=True)))
            if not 0 <= line.run < runs:
                raise ValueError(f"run {line.run} is not in the list of {runs} runs")
            yield line
    except (LookupError, TypeError, ValueError, csv.Error) as error:
        raise CompactError(f"line {reader.line_num}: {error}") from None


def _read(values: dict[str, str]) -> Line:
    content: dict[str, Any] = {
        field.name: unspell(values[field.name]) if field.type is str else int(values[field.name])
        for field in fields(Cell)
    }
    get_protocol(content["protocol"])
    cell = Cell(**content)
    if header_of(kind_of(cell)) != tuple(values):
        raise ValueError(f"the columns do not match the model {cell.model!r}")
    rows = np.array([row for place in _PLACES[kind_of(cell)] if (row := _read_row(values, place))], ROW)
    train, validation, test = (int(values[f"{part}_size"]) for part in PARTS)
    features, seconds, sizes = int(values["features"]), float(values["seconds"]), (train, validation, test)
    notes = tuple(map(str, json.loads(unspell(values["notes"]) or "[]")))
    record = Record(cell.key, "done", rows, sizes, features, seconds, notes=notes)
    return Line(cell, record, int(values["run"]))


def _read_row(values: dict[str, str], place: tuple[str, str]) -> tuple[object, ...]:
    """Return a chosen row, or an empty tuple if the cell has none."""
    loss, method = place
    k, alpha, *counts, steps, converged = (values[f"{loss or 'own'}.{method}.{name}"] for name in _CHOSEN)
    if not k:
        return ()
    return loss, method, float(k), float(alpha), *map(int, counts), math.nan, int(steps), converged == "1"


def in_files(lines: Iterable[Line]) -> dict[str, list[Line]]:
    """Return the cells by file, in a fixed order; a file that has all its cells never changes again."""

    def order(line: Line) -> tuple[object, ...]:
        cell = line.cell
        return cell.dataset, cell.max_iter, cell.start, cell.contamination, cell.level, cell.split, cell.checksum

    files: dict[str, list[Line]] = {}
    for line in lines:
        cell = line.cell
        words = [cell.suite, cell.protocol, *kind_of(cell).split("-"), *(["simulated"] if cell.contamination else [])]
        stem = "-".join(re.sub(r"[^A-Za-z0-9]", "_", word) for word in words)
        files.setdefault(f"{stem}.csv.gz", []).append(line)
    return {name: sorted(files[name], key=order) for name in sorted(files)}

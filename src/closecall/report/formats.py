"""Tables as CSV, and as Markdown that fits 80 columns; names cannot become formulas or markup."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from .text import WIDTH, cell, escape_markdown, paragraph

Row = dict[str, Any]


@dataclass(frozen=True)
class Table:
    """A table as displayed, and the numbers behind it.

    ``name`` is the stem of its files; ``rows`` are formatted cells, the first column naming the row; ``records`` one
    flat record for each number, unrounded, for the CSV file; ``notes`` say below the table what was left out, how many
    splits and steps there are, and what each mark means.
    """

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    records: tuple[Row, ...]
    notes: tuple[str, ...] = ()


#: A cell of a record: a format such as ``"{gain:+.2f}"``, or a function of the record.
Column = str | Callable[[Row], str]


def table_of(
    name: str, title: str, columns: Mapping[str, Column], records: Sequence[Row], notes: Sequence[str] = ()
) -> Table:
    """A table with a row for each record.

    Examples
    --------
    >>> table_of("t", "T", {"set": "{name}", "gain": "{gain:+.1f}"}, [{"name": "a", "gain": 0.5}]).rows
    (('a', '+0.5'),)
    """
    rows = tuple(
        tuple(cell.format_map(record) if isinstance(cell, str) else cell(record) for cell in columns.values())
        for record in records
    )
    return Table(name, title, tuple(columns), rows, tuple(records), tuple(notes))


def write_csv(file: TextIO, rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as CSV: numbers are unrounded, None and NaN are empty, and text is safe in a spreadsheet."""
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


def to_csv(table: Table) -> str:
    """Return all records of a table as CSV."""
    names = list(dict.fromkeys(name for record in table.records for name in record))
    return csv_text([names, *([record.get(name) for name in names] for record in table.records)])


def to_markdown(table: Table, width: int = WIDTH) -> str:
    """Title, table and notes on at most 80 columns (or ``width``); long names are cut, long notes wrapped.

    Examples
    --------
    >>> print(to_markdown(Table("t", "T", ("a", "b"), (("x", "0.25"),), (), ("A note.",))))
    ## T
    <BLANKLINE>
    | a   |    b |
    |:----|-----:|
    | x   | 0.25 |
    <BLANKLINE>
    A note.
    <BLANKLINE>
    """
    body = markdown_rows([[escape_markdown(cell) for cell in row] for row in (table.header, *table.rows)], width)
    return "\n\n".join([f"## {escape_markdown(table.title)}", body, *map(paragraph, table.notes)]) + "\n"


def markdown_rows(cells: Sequence[Sequence[str]], width: int = WIDTH) -> str:
    """The lines of a table from cells that are Markdown already; the first row is the header.

    Examples
    --------
    >>> print(markdown_rows([["set", "gain"], ["*monk3*", "+1.0"]]))
    | set     | gain |
    |:--------|-----:|
    | *monk3* | +1.0 |
    """
    columns = list(zip(*cells, strict=True))
    widths = [max(3, *map(len, column)) for column in columns]
    widths[0] = max(3, min(widths[0], width - 1 - sum(each + 3 for each in widths[1:]) - 3))
    names = [_cut(cell, widths[0]) for cell in columns[0]]
    # A header too long for the page is broken by no renderer: cut the numbers' headers to their column.
    body = [
        "| "
        + " | ".join([name.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        + " |"
        for name, row in zip(names, cells, strict=True)
    ]
    rule = "|:" + "-" * (widths[0] + 1) + "|" + "".join("-" * (each + 1) + ":|" for each in widths[1:])
    return "\n".join([body[0], rule, *body[1:]])


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def signed(value: float, digits: int) -> str:
    """A difference with its sign; zero after rounding is never negative.

    Examples
    --------
    >>> signed(-0.04, 1), signed(-0.06, 1)
    ('+0.0', '-0.1')
    """
    return f"{round(value, digits) + 0.0:+.{digits}f}"

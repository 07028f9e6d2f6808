"""Terminal output (consoles, escaped names, tables) and the options that commands share."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table as RichTable

from closecall.report.formats import Row, Table
from closecall.report.text import shown

RESULTS = Path("closecall-results")
Out = Annotated[Path, typer.Option("--out", help="Folder for the result store, tables, figures and report.")]
DataDir = Annotated[str | None, typer.Option(help="Data directory; default: CLOSECALL_DATA, or the user's cache.")]
Json = Annotated[bool, typer.Option("--json", help="Write events or results to standard output as JSON lines.")]


class Console(RichConsole):
    """Rich's console without emoji; a closed pipe raises ``BrokenPipeError``."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Let the command handle a closed pipe; Rich would exit with code 1."""
        raise BrokenPipeError


out, err = Console(), Console(stderr=True)


def plain(value: object) -> str:
    """A name or message as plain text for a console: markup and control characters have no effect."""
    return escape(shown(value))


def words(text: str) -> tuple[str, ...]:
    """Split at commas that are not inside brackets.

    Examples
    --------
    >>> words("a, human(0.4,0.3),")
    ('a', 'human(0.4,0.3)')
    """
    return tuple(word.strip() for word in re.split(r",(?![^()]*\))", text) if word.strip())


def say(record: Row) -> None:
    """Print one line of JSON on standard output."""
    print(json.dumps(record))


def print_table(table: Table) -> None:
    """Print a table with its title."""
    grid = RichTable()
    for place, name in enumerate(table.header):
        grid.add_column(plain(name), justify="right" if place else "left")
    for row in table.rows:
        grid.add_row(*map(plain, row))
    # Above the table, not as its title, which would be broken to the table's width.
    out.print(plain(table.title), style="bold", soft_wrap=True)
    out.print(grid)


def print_records(heading: str, records: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print records as a table or as JSON lines."""
    if as_json:
        for record in records:
            say(record)
    elif records:
        rows = tuple(tuple(map(str, record.values())) for record in records)
        print_table(Table("", heading, tuple(name.replace("_", " ") for name in records[0]), rows, ()))


def print_notes(notes: Iterable[str], console: Console) -> None:
    """Print notes to the user."""
    for note in notes:
        console.print(f"note: {plain(note)}", style="yellow")

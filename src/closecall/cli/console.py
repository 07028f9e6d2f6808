"""Terminal output (consoles, escaped names, tables) and the options that commands share."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Annotated, Any

import typer
from rich.console import Console as RichConsole
from rich.markup import escape
from rich.table import Table as RichTable

from closecall.report.formats import Row
from closecall.report.text import shown

Json = Annotated[bool, typer.Option("--json", help="Write events or results to standard output as JSON lines.")]


class Console(RichConsole):
    """A Rich console without emoji, in which a closed pipe raises ``BrokenPipeError``."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Let the command handle a closed pipe; Rich would exit with code 1."""
        raise BrokenPipeError


out, err = Console(), Console(stderr=True)


def plain(value: object) -> str:
    """Return a name or message as plain text for a console: markup and control characters have no effect."""
    return escape(shown(value))


def words(text: str) -> tuple[str, ...]:
    """Split a string at commas that are not inside brackets.

    Examples
    --------
    >>> words("a, human(0.4,0.3),")
    ('a', 'human(0.4,0.3)')
    """
    return tuple(word.strip() for word in re.split(r",(?![^()]*\))", text) if word.strip())


def say(record: Row) -> None:
    """Print one line of JSON to standard output."""
    print(json.dumps(record))


def print_grid(
    header: Sequence[str], rows: Iterable[Sequence[object]], left: Collection[int] = (0,), lines: bool = False,
    **column: Any,
) -> None:  # fmt: skip
    """Print a table; columns not in ``left`` are right-aligned."""
    grid = RichTable() if lines else RichTable(box=None, pad_edge=False)
    for place, name in enumerate(header):
        grid.add_column(plain(name), justify="left" if place in left else "right", **column)
    for row in rows:
        grid.add_row(*map(plain, row))
    out.print(grid)


def print_notes(notes: Iterable[str], console: Console) -> None:
    for note in notes:
        console.print(f"note: {plain(note)}", style="yellow")

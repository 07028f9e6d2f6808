"""Write tables (CSV and Markdown) and sentences for pages; names cannot turn into formulas or markup."""

import re
import textwrap
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from closecall.report.formats import Row, csv_text
from closecall.report.text import visible

WIDTH = 80
#: The sentences of tables, captions and pages, with placeholders for their numbers.
_WORDS = tomllib.loads(Path(__file__).with_name("words.toml").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Table:
    """A table for display, and the numbers behind it.

    ``name`` is the stem of its file names. ``rows`` contains the formatted cells; the first column names the row.
    ``records`` contains one flat record for each unrounded number, for the CSV file. ``notes``, shown below the table,
    state what was left out, how many splits and steps there are, and what each mark means.
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
    """Return a table with a row for each record."""
    rows = tuple(
        tuple(cell.format_map(record) if isinstance(cell, str) else cell(record) for cell in columns.values())
        for record in records
    )
    return Table(name, title, tuple(columns), rows, tuple(records), tuple(notes))


def to_csv(table: Table) -> str:
    """Return all records of a table as CSV."""
    names = list(dict.fromkeys(name for record in table.records for name in record))
    return csv_text([names, *([record.get(name) for name in names] for record in table.records)])


def to_markdown(table: Table, width: int = WIDTH) -> str:
    """Return the title, table and notes in lines of at most ``width`` characters; long names are cut and notes wrapped.

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
    """Return a Markdown table with the given cells; the first row is the header."""
    columns = list(zip(*cells, strict=True))
    widths = [max(3, *map(len, column)) for column in columns]
    widths[0] = max(3, min(widths[0], width - 1 - sum(each + 3 for each in widths[1:]) - 3))
    names = [_cut(cell, widths[0]) for cell in columns[0]]
    # No renderer breaks a header that is too long for the page, so the headers of numbers are cut to their column.
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


def paragraph(text: str) -> str:
    """Return text as a wrapped Markdown paragraph, in which no line begins a list, heading or quotation."""
    lines = textwrap.wrap(escape_markdown(text), WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    lines = [re.sub(r"^=(?==*$)", "&#61;", line) for line in lines]  # under a line, they would make it a heading
    return "\n".join(map(begun, lines))


def begun(line: str) -> str:
    r"""Escape a line of Markdown that would begin a list, heading or quotation.

    Examples
    --------
    >>> print(begun("#1"), begun("1. one"), begun("23 of 94"))
    \#1 1\. one 23 of 94
    """
    return re.sub(r"^(\d*)(?=[#>]|[-+.)](?:\s|$)|-+$)", r"\1\\", line)


#: The characters with a meaning in Markdown. "<" opens a tag only before a letter, "/", "!" or "?"; "&" begins an
#: entity only before a letter or "#"; "_" marks emphasis only at the edge of a word. So "p < 0.05" and "a_b" stay.
_MARKDOWN = re.compile(r"[|`\\\[\]]|<(?=[A-Za-z/!?])|&(?=[A-Za-z#])|~(?=~)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
#: Not every renderer supports backslash escapes of these characters.
_ENTITIES = {"<": "&lt;", "&": "&amp;", "~": "&#126;"}


def escape_markdown(text: str) -> str:
    r"""Escape text so that Markdown shows it verbatim.

    Examples
    --------
    >>> print(escape_markdown("p < 0.05 of a_b"), escape_markdown("![x](y) <b> | *z*"))
    p < 0.05 of a_b !\[x\](y) &lt;b> \| \*z\*
    """
    text = _MARKDOWN.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), visible(text).replace("\n", " "))
    # A single star is one of our marks; it has no meaning in Markdown except at the start of a line.
    return text.replace("*", "\\*") if text.count("*") > 1 or text.startswith("*") else text


def heading(text: str, level: int = 2) -> str:
    """Return a Markdown heading; level 1 is the title of the page."""
    return f"{'#' * level} {escape_markdown(text)}"


def link(text: str, address: str) -> str:
    """Return a Markdown link."""
    return f"[{escape_markdown(text)}]({address})"


def items(texts: Iterable[str]) -> str:
    """Return the texts as a Markdown list."""
    return "\n".join(f"- {begun(escape_markdown(text))}" for text in texts)


def picture(caption: str, address: str) -> str:
    """Return a Markdown image followed by its caption."""
    return f"![{escape_markdown(caption)}]({address})\n\n{paragraph(caption)}"


def tabled(table: Table, titled: bool = True) -> str:
    """Return a table and its notes, without truncating names; the title is optional."""
    text = to_markdown(table, 1000).rstrip()
    return text if titled else text.partition("\n\n")[2]


def fold(title: str, blocks: Iterable[str], warning: bool = False) -> str:
    r"""Return Markdown blocks, either folded under a title or highlighted as a warning.

    Examples
    --------
    >>> print(fold("Two <b>", [items(["a"]), link("b", "b.md")]))
    ??? note "Two &lt;b>"
    <BLANKLINE>
        - a
    <BLANKLINE>
        [b](b.md)
    """
    mark, title = "!!! warning" if warning else "??? note", begun(escape_markdown(title)).replace('"', "'")
    lines = "\n\n".join(blocks).rstrip().splitlines()
    return f'{mark} "{title}"\n\n' + "\n".join(f"    {line}".rstrip() for line in lines)


def folded(table: Table) -> str:
    """Return a table folded under its title."""
    return fold(table.title, [tabled(table, titled=False)])


def said(name: str, /, **values: Any) -> str:
    """Return the sentence with the given name, with its values filled in."""
    section, _, key = name.partition(".")
    return " ".join(_WORDS[section][key].split()).format_map(values)


def listed(values: Iterable[object]) -> str:
    """Return the values as a list for use in a sentence.

    Examples
    --------
    >>> listed(["one"]), listed(["one", "two"]), listed([1, 2, 3])
    ('one', 'one and two', '1, 2 and 3')
    """
    *parts, last = map(str, values)
    return " and ".join([", ".join(parts), last] if parts else [last])

"""Tables -> CSV, Markdown that fits 80 columns, and LaTeX with booktabs; names are text in all of them."""

from __future__ import annotations

import csv
import io
import re
import textwrap
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from .published import LOSSES, METHODS, PairTable
from .results import LABELS, Scores
from .stats import win_fractions
from .tables import Table

WIDTH = 80
#: What begins a formula in a spreadsheet, the full-width forms too.
_FORMULA = tuple("=+-@\t\r\uff1d\uff0b\uff0d\uff20")


def visible(value: Any) -> Any:
    r"""Text with its control and direction marks spelt out, so that a name can neither hide nor reorder anything.

    Examples
    --------
    >>> print(visible("a\x1b[31mb"), visible("safe\u202egnp"), visible(3))
    a\x1b[31mb safe\u202egnp 3
    """
    if not isinstance(value, str) or hasattr(value, "__html__"):
        return value
    hidden = ("Cc", "Cf", "Zl", "Zp", "Cs")
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in hidden and c != "\n" else c for c in value
    )


def to_csv(table: Table) -> str:
    """All records, unrounded.

    Examples
    --------
    >>> to_csv(Table("t", "T", ("a",), (), ({"a": 1.5, "b": None}, {"a": float("nan"), "b": "x"})))
    'a,b\\n1.5,\\n,x\\n'
    """
    buffer = io.StringIO()
    names = list(dict.fromkeys(name for record in table.records for name in record))
    writer = csv.DictWriter(buffer, names, lineterminator="\n")
    writer.writeheader()
    for record in table.records:
        writer.writerow({name: _plain(value) for name, value in record.items()})
    return buffer.getvalue()


def _plain(value: object) -> object:
    if isinstance(value, float | np.floating):
        return "" if np.isnan(value) else repr(float(value))
    if isinstance(value, str):
        # A name that a spreadsheet would take for a formula is made text.
        return visible(f"'{value}" if value.startswith(_FORMULA) else value).replace("\n", "\\n")
    return value


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
    cells = [[escape_markdown(cell) for cell in row] for row in (table.header, *table.rows)]
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
    notes = list(map(paragraph, table.notes))
    head = f"## {escape_markdown(table.title)}"
    return "\n\n".join([head, "\n".join([body[0], rule, *body[1:]]), *notes]) + "\n"


def paragraph(text: str) -> str:
    """Text as a paragraph of Markdown, wrapped; no line of it begins a list, a heading or a quotation."""
    lines = textwrap.wrap(escape_markdown(text), WIDTH - 2, break_long_words=False, break_on_hyphens=False)
    lines = [re.sub(r"^=(?==*$)", "&#61;", line) for line in lines]  # under a line, they would make it a heading
    return "\n".join(re.sub(r"^(\d*)(?=[#>]|[-+.)](?:\s|$)|-+$)", r"\1\\", line) for line in lines)


#: What begins or ends something in Markdown. "<" opens a tag only before a letter, "/", "!" or "?", "&" an entity only
#: before a letter or "#", "_" emphasis only at the edge of a word: "p < 0.05" and "a_b" stay readable as they are.
_MARKDOWN = re.compile(r"[|`\\\[\]]|<(?=[A-Za-z/!?])|&(?=[A-Za-z#])|~(?=~)|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
#: These have no escape by a backslash that every renderer knows.
_ENTITIES = {"<": "&lt;", "&": "&amp;", "~": "&#126;"}


def escape_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is.

    Examples
    --------
    >>> print(escape_markdown("p < 0.05 of a_b"), escape_markdown("![x](y) <b> | *z*"))
    p < 0.05 of a_b !\[x\](y) &lt;b> \| \*z\*
    """
    text = _MARKDOWN.sub(lambda found: _ENTITIES.get(found[0], f"\\{found[0]}"), visible(text).replace("\n", " "))
    # One star alone is a mark of ours and begins nothing, save at the start of a line.
    return text.replace("*", "\\*") if text.count("*") > 1 or text.startswith("*") else text


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    '"': "''", "…": r"\ldots{}", "\n": " ", "`": r"\textasciigrave{}",
    "[": "{[}", "]": "{]}", "*": "{*}",  # "\\\\" takes a bracket or a star that follows it for its own
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is.

    Examples
    --------
    >>> print(escape_latex("a_b & 50 %"))
    a\\_b \\& 50 \\%
    """
    escaped = "".join(_LATEX.get(character, character) for character in visible(text))
    return re.sub(r"-(?=-)", "-{}", escaped)  # two hyphens would become a dash


def to_latex(table: Table) -> str:
    """A booktabs table of the formatted cells."""
    columns = "l" + "r" * (len(table.header) - 1)
    lines = [" & ".join(map(escape_latex, row)) + r" \\" for row in (table.header, *table.rows)]
    body = "\n".join([r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"])
    return _float(table.title, table.notes, columns, body)


def _float(caption: str, notes: Sequence[str], columns: str, body: str) -> str:
    small = "\n".join(rf"\par\smallskip{{\footnotesize {escape_latex(note)}\par}}" for note in notes)
    return (
        "% needs \\usepackage{booktabs,multirow}\n\\begin{table*}[htbp]\n\\small\n"
        f"\\caption{{{escape_latex(caption)}}}\n\\begin{{center}}\n\\begin{{tabular}}{{{columns}}}\n{body}\n"
        f"\\end{{tabular}}\n\\end{{center}}\n{small}\n\\end{{table*}}\n"
    )


def pairs_latex(parts: Sequence[Scores], criterion: str, published: PairTable | None, notes: Sequence[str]) -> str:
    """The paper's layout: a block of rows for each model, logistic left of hinge; ours, published, difference.

    Parameters
    ----------
    parts : sequence of Scores
        One for each model, all of one protocol.
    criterion : str
    published : PairTable, optional
    notes : sequence of str
    """
    blocks = []
    for scores in parts:
        ours = np.hstack([win_fractions(scores.test(loss), METHODS, scores.protocol, criterion) for loss in LOSSES])
        blocks.append((f"{scores.model}, ours", ours, ""))
        if published is not None:
            theirs = np.hstack([published.fractions(scores.model, loss) for loss in LOSSES])
            blocks += [("paper", theirs, ""), ("difference", ours - theirs, "+")]
    names = [escape_latex(LABELS[method]) for method in METHODS]
    head = [
        r"\toprule",
        r" & & \multicolumn{5}{c}{Logistic} & \multicolumn{5}{c}{Hinge} \\",
        r"\cmidrule(lr){3-7}\cmidrule(lr){8-12}",
        " & & " + " & ".join(names * 2) + r" \\",
    ]
    for label, values, sign in blocks:
        head += [r"\midrule", rf"\multirow{{5}}{{*}}{{{escape_latex(label)}}}"]
        for name, row in zip(names, values, strict=True):
            cells = ["" if np.isnan(value) else f"{value:{sign}.2f}" for value in row]
            head.append(f"& {name} & " + " & ".join(cells) + r" \\")
    caption = published.caption if published is not None else f"Fraction of data sets with wins ({criterion})"
    return _float(f"{caption}; protocol {parts[0].protocol}", notes, "llcccccccccc", "\n".join([*head, r"\bottomrule"]))

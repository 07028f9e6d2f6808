"""Tables -> CSV, Markdown that fits 80 columns, and LaTeX with booktabs."""

from __future__ import annotations

import csv
import io
import re
import textwrap
from collections.abc import Sequence

import numpy as np

from .published import LOSSES, METHODS, PairTable
from .results import LABELS, Scores
from .stats import win_fractions
from .tables import Table

WIDTH = 80


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
    # A name that a spreadsheet would take for a formula is made text.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@") else value


def to_markdown(table: Table) -> str:
    """Title, table and notes on at most 80 columns; long names are cut, long notes wrapped.

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
    cells = [[_escape_markdown(cell) for cell in row] for row in (table.header, *table.rows)]
    columns = list(zip(*cells, strict=True))
    widths = [max(3, *map(len, column)) for column in columns]
    widths[0] = max(3, min(widths[0], WIDTH - 1 - sum(width + 3 for width in widths[1:]) - 3))
    names = [_cut(cell, widths[0]) for cell in columns[0]]
    # A header too long for the page is broken by no renderer: cut the numbers' headers to their column.
    body = [
        "| "
        + " | ".join([name.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))])
        + " |"
        for name, row in zip(names, cells, strict=True)
    ]
    rule = "|:" + "-" * (widths[0] + 1) + "|" + "".join("-" * (width + 1) + ":|" for width in widths[1:])
    notes = [
        textwrap.fill(_escape_markdown(note), WIDTH, break_long_words=False, break_on_hyphens=False)
        for note in table.notes
    ]
    return "\n\n".join([f"## {table.title}", "\n".join([body[0], rule, *body[1:]]), *notes]) + "\n"


def _escape_markdown(text: str) -> str:
    # "<" opens a tag only before a letter, "/", "!" or "?"; "p < 0.05" stays readable as it is.
    return re.sub(r"([|`\\]|<(?=[A-Za-z/!?]))", r"\\\1", text).replace("\n", " ")


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


_LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    '"': "''", "…": r"\ldots{}", "\n": " ",
}  # fmt: skip


def escape_latex(text: str) -> str:
    """Text that LaTeX prints as it is.

    Examples
    --------
    >>> print(escape_latex("a_b & 50 %"))
    a\\_b \\& 50 \\%
    """
    return "".join(_LATEX.get(character, character) for character in text)


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

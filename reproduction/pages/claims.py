"""Fill in the numbers in the text of the pages from the CSV cells named in ``claims.toml``.

``claims.toml`` is next to the results folder, and its paths of pages are relative to its own folder. A claim is a
passage from a page, with ``{}`` in place of each number, and a list of the cells in the same order::

    [["../README.md"]]
    text = "better on {} of the sets, worse on {}"
    from = "headline.csv suite=pmlb94 loss=hinge"
    cells = ["fraction .0% outcome=wins", "fraction .0% outcome=losses"]

A cell consists of a column, a format and the values that identify the row. Line breaks in the page do not matter.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

from reproduction.protocol.files import csv_rows

CLAIMS = "claims.toml"
_NUMBER = r"([+-]?\d[\d,]*(?:\.\d+)?%?)"


def claimed_pages(folder: Path) -> list[Path]:
    """Return the pages whose numbers come from the results in ``folder``."""
    return [folder.parent / name for name in _claims(folder)]


def fill(page: Path, folder: Path, text: str | None = None) -> str:
    """Return a page with every claimed number filled in from the files in ``folder``.

    Every claim must occur exactly once on its page, and every cell must identify exactly one value.
    """
    text = page.read_text(encoding="utf-8") if text is None else text
    name = Path(os.path.relpath(page.resolve(), folder.parent.resolve())).as_posix()
    for claim in _claims(folder).get(name, ()):
        text = _filled(text, claim, folder, name)
    return text


def _claims(folder: Path) -> dict[str, list[dict[str, Any]]]:
    path = folder.parent / CLAIMS
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def _filled(text: str, claim: dict[str, Any], folder: Path, name: str) -> str:
    pieces = [r"\s+".join(map(re.escape, re.split(r"\s+", piece))) for piece in claim["text"].split("{}")]
    found = list(re.finditer(_NUMBER.join(pieces), text))
    if len(found) != 1 or len(pieces) != len(claim["cells"]) + 1:
        raise ValueError(
            f"{name}: {claim['text']!r} occurs {len(found)} times, with {len(claim['cells'])} cells: {CLAIMS} must "
            "contain text that occurs once on the page, and one cell for every {}"
        )
    for place in range(len(claim["cells"]), 0, -1):
        start, end = found[0].span(place)
        text = text[:start] + _value(claim["from"], claim["cells"][place - 1], folder) + text[end:]
    return text


def _value(common: str, cell: str, folder: Path) -> str:
    file, *shared = common.split()
    column, spec, *own = cell.split()
    where = dict(word.split("=", 1) for word in (*shared, *own))
    rows = [row for row in csv_rows(folder / file) if where.items() <= row.items()]
    values = {row[column] for row in rows}
    if len(values) != 1:
        raise ValueError(f"{cell!r} of {common!r} has {len(values)} values in {len(rows)} rows; exactly one is needed")
    value = values.pop()
    return format(int(value) if spec == "d" else float(value), spec)

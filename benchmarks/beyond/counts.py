"""Whether a published error can be the mean of 25 splits at all: such a mean is a whole number of errors.

A test part of N examples and t splits give errors that are multiples of 1 / (t N). Where 100 / (t N) is wider than the
last printed digit, most printed values are impossible, so a possible one says something and an impossible one more.
"""

from __future__ import annotations

import numpy as np

from closecall.data.suites import SUITES
from closecall.paper.published import LOSSES, METHODS, TABLE3_ROW, table3_error
from closecall.paper.scores import LABELS, title

from . import cells
from .choices import released_division
from .common import Row, Settings, markdown, read_lines, signed

SPLITS = 25
FIRST = (5, 10, 15, 20, 25)
SHOWN = (cells.BASE, cells.WIDE)
#: Half of the last printed digit of an error in percent, and a little for the digits that were logged.
HALF = 0.005 + 1e-4


def possible(error: float, size: int, splits: int = SPLITS) -> bool:
    """Whether some whole number of errors on ``splits`` test parts of that size is printed as ``error`` percent.

    Examples
    --------
    >>> possible(11.37, 139), possible(11.36, 139), possible(11.36, 139, splits=24)
    (True, False, True)
    """
    total = size * splits
    return abs(round(error * total / 100) * 100 / total - error) <= HALF


def by_chance(size: int, splits: int = SPLITS) -> float:
    """The share of all printed values that are possible.

    Examples
    --------
    >>> round(by_chance(139), 2), by_chance(1351)
    (0.35, 1.0)
    """
    return float(np.mean([possible(value / 100, size, splits) for value in range(1000, 3000)]))


def table() -> list[Row]:
    """One row for each data set whose test part is small enough to tell."""
    rows = []
    for name in SUITES["fan8"]:
        # The two files that may be the paper's german have the same size.
        if title(name) not in TABLE3_ROW or title(name) == "german-num":
            continue
        size = released_division(name, 0).sizes[2]
        chance = by_chance(size)
        if chance < 1:
            row: Row = {"set": title(name), "size": size, "chance": chance}
            for loss in LOSSES:
                for method in METHODS:
                    error = table3_error(title(name), loss, method)
                    row[f"{loss} {method}"] = "" if error is None else float(possible(error, size))
            rows.append(row)
    return rows


def first_table(settings: Settings) -> list[Row]:
    """Means over the first 5, 10, ... released splits: what an unfinished run would have had printed."""
    found: dict[tuple[str, str, str], dict[int, float]] = {}
    for line in read_lines(settings.raw / "cells.jsonl"):
        for choice in SHOWN:
            for pick in line["picked"].get(choice, ()):
                found.setdefault((line["name"], pick["method"], choice), {})[line["split"]] = 100 * pick["test"]
    rows = []
    for name, (loss, methods) in cells.CELLS.items():
        for method in methods:
            for choice in SHOWN:
                errors = found.get((name, method, choice), {})
                row: Row = {"set": title(name), "loss": loss, "method": method, "choice": choice}
                for count in FIRST:
                    values = [errors[split] for split in range(count) if split in errors]
                    row[f"first_{count}"] = float(np.mean(values)) if len(values) == count else ""
                rows.append(row)
    return rows


def first_section(rows: list[Row]) -> str:
    """The means over the first splits, minus the published error."""
    lines = []
    for row in rows:
        published = table3_error(row["set"], row["loss"], row["method"]) or float("nan")
        left = [row[f"first_{count}"] for count in FIRST]
        lines.append(
            [f"{row['set']}, {row['loss']}, {LABELS[row['method']]}: {row['choice']}"]
            + ["-" if value == "" else signed(value - published) for value in left]
        )
    return markdown(["cell", *(f"first {count}" for count in FIRST)], lines)


def section(rows: list[Row]) -> str:
    """The table, and how often each method's errors are possible."""
    lines = [
        [f"{row['set']}, {loss}", f"{row['size']:.0f}", f"{row['chance']:.0%}"]
        + ["yes" if row[f"{loss} {method}"] else "**no**" for method in METHODS]
        for row in rows
        for loss in LOSSES
    ]
    return markdown(["data set, loss", "test part", "possible by chance", *(LABELS[m] for m in METHODS)], lines)

"""What all experiments share: lines of JSON that can be resumed, divisions, tables, pages, intervals."""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import bootstrap

from closecall.data import Dataset, available, load_dataset
from closecall.paper.cell import Division, divide
from closecall.paper.plan import Cell

ROOT = Path(__file__).parents[1]
Row = dict[str, Any]
Array = np.ndarray


@dataclass
class Settings:
    """What the command line says.

    Parameters
    ----------
    raw : path
        Folder of the raw lines, outside the project.
    out : path
        The project's ``docs/results``.
    splits : int
    sets : list of str
        Only these data sets; all of the experiment's own if empty.
    seconds : float
        Stop after this time; the next run goes on.
    store : path or None
        A result store (or a copy) of ``closecall reproduce``.
    max_values : int
        The largest rows x columns of a data set.
    """

    raw: Path
    out: Path = ROOT / "docs" / "results"
    splits: int = 10
    sets: list[str] | None = None
    seconds: float = float("inf")
    store: Path | None = None
    max_values: int = 20_000


@dataclass(frozen=True)
class Experiment:
    """An experiment by name: how it runs, how its raw lines become a table, how the table becomes a page."""

    name: str
    title: str
    run: Callable[[Settings], None]
    table: Callable[[Settings], list[Row]]
    page: Callable[[list[Row], Path], str]
    splits: int = 10
    file: str = ""

    @property
    def page_name(self) -> str:
        return self.file or f"beyond-{self.name}.md"


# --- lines of JSON


def read_lines(path: Path) -> list[Row]:
    """Records of a file; a line that a killed run left half written is dropped."""
    records = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            records.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return records


def resume(path: Path, keys: Iterable[Row], work: Callable[[Row], Row], seconds: float = float("inf")) -> int:
    """Append ``key | work(key)`` for every key that is not in the file yet; how many were done.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "lines.jsonl"
    ...     [resume(file, [{"i": 1}, {"i": 2}], lambda key: {"twice": 2 * key["i"]}) for _ in range(2)]
    [2, 0]
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    keys = list(keys)
    names = tuple(keys[0]) if keys else ()
    seen = {tuple(record.get(name) for name in names) for record in read_lines(path)}
    began, count = time.perf_counter(), 0
    with path.open("a") as file:
        if path.stat().st_size and not path.read_bytes().endswith(b"\n"):
            file.write("\n")
        for key in keys:
            if tuple(key.values()) in seen:
                continue
            if time.perf_counter() - began > seconds:
                break
            file.write(json.dumps(key | work(key), default=_plain) + "\n")
            file.flush()
            count += 1
    return count


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def with_enough(records: Sequence[Row], wanted: int) -> list[Row]:
    """Records of the data sets that have enough splits: as many as are wanted, or as three in four sets have so far.

    Examples
    --------
    >>> lines = [{"set": name, "split": s} for name, count in zip("abcd", (3, 3, 3, 1)) for s in range(count)]
    >>> sorted({line["set"] for line in with_enough(lines, 5)})
    ['a', 'b', 'c']
    """
    splits: dict[str, set[int]] = {}
    for record in records:
        splits.setdefault(record["set"], set()).add(record["split"])
    counts = sorted((len(found) for found in splits.values()), reverse=True)
    least = min(wanted, counts[(3 * len(counts) + 3) // 4 - 1]) if counts else 0
    return [record for record in records if len(splits[record["set"]]) >= least]


# --- data sets


@lru_cache(maxsize=4)
def dataset(name: str) -> Dataset:
    """A data set at hand; nothing is downloaded."""
    return load_dataset(name, download=False)


def division(name: str, split: int, protocol: str = "sound") -> Division:
    """The benchmark's own division of a data set: the same splits as in its tables.

    Examples
    --------
    >>> division("embedded:monk3", 0).sizes
    (277, 139, 138)
    """
    data = dataset(name)
    return divide(data, Cell("beyond", name, data.checksum, split, "linear", protocol))


def at_hand(suites: Sequence[str], max_values: int, only: Sequence[str] | None = None) -> list[str]:
    """Names of the data sets at hand of at most so many values, smallest first; a title occurs once."""
    sizes: dict[str, tuple[int, str]] = {}
    for suite in suites:
        for member in available(suite):
            if member.at_hand and member.title not in sizes and (not only or member.title in only):
                X = dataset(member.name).X
                if X.size <= max_values:
                    sizes[member.title] = X.size, member.name
    return [name for _, name in sorted(sizes.values())]


# --- numbers


def mean_error(values: Sequence[float] | Array) -> tuple[float, float]:
    """Mean and its standard error; of one value, NaN."""
    values = np.asarray(values, dtype=float)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def mean_interval(values: Sequence[float] | Array) -> tuple[float, float, float]:
    """Mean and its 95 % bootstrap interval (percentile; a fixed stream, so that the same numbers read the same)."""
    values = np.asarray(values, dtype=float)
    mean = float(values.mean()) if len(values) else float("nan")
    if len(values) < 2 or np.ptp(values) == 0:
        return mean, mean, mean
    found = bootstrap((values,), np.mean, method="percentile", n_resamples=4999, rng=np.random.default_rng(0))
    return mean, float(found.confidence_interval.low), float(found.confidence_interval.high)


# --- tables and pages


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows; floats with four digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["empty"], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: f"{v:.4g}" if isinstance(v, float) else v for name, v in row.items()})


def read_csv(path: Path) -> list[Row]:
    """Rows with numbers as floats, and text as text."""
    with path.open(newline="") as file:
        return [{name: _number(value) for name, value in row.items()} for row in csv.DictReader(file)]


def _number(text: str) -> Any:
    try:
        return float(text)
    except (TypeError, ValueError):
        return text


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table; the first column is text, the others stand right.

    Examples
    --------
    >>> print(markdown(["method", "error"], [["close", "1.0"]]))
    | method | error |
    |---|--:|
    | close | 1.0 |
    """
    rule = "|---|" + "--:|" * (len(header) - 1)
    lines = [f"| {' | '.join(str(cell).replace('|', chr(92) + '|') for cell in row)} |" for row in (header, *rows)]
    return "\n".join([lines[0], rule, *lines[1:]])


def signed(value: float, error: float | None = None, digits: int = 2) -> str:
    """``+1.23 ± 0.45``.

    Examples
    --------
    >>> signed(1.234, 0.5), signed(-0.001), signed(float("nan"))
    ('+1.23 ± 0.50', '+0.00', '-')
    """
    if not np.isfinite(value):
        return "-"
    value = round(value, digits) + 0.0
    return f"{value:+.{digits}f}" + (f" ± {error:.{digits}f}" if error is not None and np.isfinite(error) else "")


def of_sets(count: float, total: float) -> str:
    """``3 of 20``."""
    return f"{int(count)} of {int(total)}"


def save_chart(chart: Any, path: Path) -> None:
    """Save an Altair chart as SVG on white, so that it can be read on a dark page too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    chart.configure(background="white", font="sans-serif").save(str(path))
    # Half of the file is what a screen reader would say of each mark; the page's table says it better.
    text = re.sub(r' (?:aria-[a-z]+|role|class|pointer-events|xmlns:xlink)="[^"]*"', "", path.read_text())
    path.write_text(re.sub(r"(\d\.\d\d)\d{3,}", r"\1", text) + "\n")


def interval_chart(rows: Sequence[Row], *, label: str, title: str, zero: bool = True) -> Any:
    """A dot and an interval (``mean``, ``low``, ``high``) for each row, in the rows' order."""
    import altair as alt

    values = [{"label": row[label], "mean": row["mean"], "low": row["low"], "high": row["high"]} for row in rows]
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("label:N", sort=[row[label] for row in rows], title=None, axis=alt.Axis(labelLimit=260))
    )
    bars = base.mark_rule(color="#0072B2", strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    dots = base.mark_point(filled=True, color="#0072B2", size=50, opacity=1).encode(x="mean:Q")
    line = alt.Chart(alt.Data(values=[{"x": 0}])).mark_rule(strokeDash=[3, 3], color="#888").encode(x="x:Q")
    layers = ([line] if zero else []) + [bars, dots]
    return alt.layer(*layers).properties(width=360, height=alt.Step(18))


def made_by(name: str, extra: str = "") -> str:
    """The last line of a page: how it was made, and from what."""
    return (
        f"\n---\n\nMade by `python -m studies {name}{extra}` from "
        f"[beyond/{name}.csv](beyond/{name}.csv); `--page` makes this page again from that table alone.\n"
    )

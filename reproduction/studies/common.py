"""What all studies share: a store that can be resumed, divisions, tables, pages, intervals."""

from __future__ import annotations

import csv
import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from closecall.report.formats import markdown_rows
from reproduction.protocol import available, load_dataset
from reproduction.protocol.dataset import Dataset, Division
from reproduction.protocol.plan import Cell, Task
from reproduction.run.cell import divide
from reproduction.run.engines import Engine, Local
from reproduction.run.record import Record
from reproduction.run.run import drive
from reproduction.run.scores import title
from reproduction.run.store import Store

ROOT = Path(__file__).parents[2]
#: No name is cut on a page that scrolls.
WIDE = 1000
Row = dict[str, Any]
Array = np.ndarray


@dataclass
class Settings:
    """The settings from the command line.

    Parameters
    ----------
    raw : path
        Folder of the stores, one for each study, outside the project.
    out : path
        The project's ``docs/results``.
    splits : int
    sets : list of str
        Only these data sets; all of the experiment's own if empty.
    seconds : float
        Stop after this time; the next run continues.
    max_values : int
        The largest rows x columns of a data set.
    workers : int
        Processes.
    """

    raw: Path
    out: Path = ROOT / "docs" / "results"
    splits: int = 10
    sets: list[str] | None = None
    seconds: float = float("inf")
    max_values: int = 20_000
    workers: int = 1


@dataclass(frozen=True)
class Experiment:
    """An experiment by name: how it runs, how its results become a table, how the table becomes its page, if any."""

    name: str
    run: Callable[[Settings], None]
    table: Callable[[Settings], list[Row]]
    page: Callable[[list[Row], Path], str] | None = None
    splits: int = 10
    file: str = ""

    @property
    def page_name(self) -> str:
        return self.file or f"beyond-{self.name}.md"


# --- what was run


def resume(
    settings: Settings, name: str, keys: Iterable[Row], work: Callable[[Row], Row], engine: Engine | None = None
) -> int:
    """Run ``work(key)`` for every key that the study's store does not have yet; returns how many were done.

    The store and its driver are those of the benchmark: a key is the name of a cell, its result is the record's note.
    A key that fails is reported and tried again the next time.
    """
    store_path(settings, name).parent.mkdir(parents=True, exist_ok=True)
    tasks = [Task(_cell(name, key), 1.0) for key in keys]
    request = {"study": name, "keys": [task.cell.key for task in tasks]}
    began, count = time.perf_counter(), 0
    with Store(store_path(settings, name), write=True) as store:
        events = drive(tasks, store, engine or Local(settings.workers), partial(_record, work), request)
        for event in events:
            count += event.kind == "done"
            if event.kind == "failed" and event.cell:
                print(f"{event.cell.dataset} failed: {event.detail}", file=sys.stderr)
            if event.kind in ("planned", "done", "failed") and time.perf_counter() - began > settings.seconds:
                events.close()
    return count


def lines_of(settings: Settings, name: str) -> list[Row]:
    """Keys and results of everything that was run, in the order requested."""
    path = store_path(settings, name)
    if not path.exists():
        return []
    with Store(path) as store:
        asked = dict.fromkeys(key for run in store.runs() for key in run["request"]["keys"])
        keys = {cell.key: json.loads(cell.dataset) for cell in store.cells()}
        return [keys[record.key] | json.loads(record.notes[0]) for record in store.records(asked)]


def store_path(settings: Settings, name: str) -> Path:
    """The file of a study's store."""
    return settings.raw / name / "store.sqlite"


def _cell(name: str, key: Row) -> Cell:
    return Cell("studies", json.dumps(key), name, int(key.get("split", 0)), "linear", "sound")


def _record(work: Callable[[Row], Row], cell: Cell) -> Record:
    began = time.perf_counter()
    note = json.dumps(work(json.loads(cell.dataset)), default=_plain)
    return Record(cell.key, "done", seconds=time.perf_counter() - began, notes=(note,))


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else str(value)


def with_enough(records: Sequence[Row], wanted: int) -> list[Row]:
    """Records of the data sets with enough splits: the requested number, or what three sets in four have so far.

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
    """A data set that is available locally; nothing is downloaded."""
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
    """Names of the locally available data sets up to the given size, smallest first, without repeated titles."""
    sizes: dict[str, tuple[int, str]] = {}
    for name in (name for suite in suites for name in available(suite)):
        if title(name) not in sizes and (not only or title(name) in only):
            X = dataset(name).X
            if X.size <= max_values:
                sizes[title(name)] = X.size, name
    return [name for _, name in sorted(sizes.values())]


# --- numbers


def mean_error(values: Sequence[float] | Array) -> tuple[float, float]:
    """The mean and its standard error, which is NaN for a single value."""
    values = np.asarray(values, dtype=float)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


# --- tables and pages


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """Write rows as CSV, with floats rounded to four digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["empty"], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: f"{v:.4g}" if isinstance(v, float) else v for name, v in row.items()})


def read_csv(path: Path) -> list[Row]:
    """Read the rows of a CSV file, with numbers as floats and the rest as text."""
    with path.open(newline="") as file:
        return [{name: _number(value) for name, value in row.items()} for row in csv.DictReader(file)]


def _number(text: str) -> Any:
    try:
        return float(text)
    except (TypeError, ValueError):
        return text


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A Markdown table of cells that may contain markup."""
    return markdown_rows([[str(cell).replace("|", r"\|") for cell in row] for row in (header, *rows)], WIDE)


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
    """Save an Altair chart as SVG on white, which is readable on a dark page too."""
    from closecall.report.charts import draw, slim, specification

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(slim(draw(specification(chart.configure(background="white", font="sans-serif")))) + "\n")


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
        f"\n---\n\nMade by `python -m reproduction.studies {name}{extra}` from "
        f"[beyond/{name}.csv](beyond/{name}.csv); `--page` regenerates the page from that table.\n"
    )

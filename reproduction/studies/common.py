"""Shared code of the studies: resumable stores, data sets, comparisons of methods, tables and pages."""

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

from closecall.report.text import p_value
from closecall.stats import corrected_test, holm
from reproduction.pages.formats import markdown_rows
from reproduction.protocol import available, load_dataset
from reproduction.protocol.dataset import Dataset, Division
from reproduction.protocol.files import csv_rows
from reproduction.protocol.plan import Cell, Task
from reproduction.protocol.stats import average_ranks, mean_interval, wilcoxon
from reproduction.run.cell import divide
from reproduction.run.engines import Engine, Local
from reproduction.run.record import Record
from reproduction.run.run import drive
from reproduction.run.scores import title
from reproduction.run.store import Store

ROOT = Path(__file__).parents[2]
#: The fewest rows of a PMLB set on which methods are compared.
FEWEST_ROWS = 100
Row = dict[str, Any]
Array = np.ndarray


@dataclass
class Settings:
    """The settings from the command line."""

    raw: Path  # folder of the stores, one for each study, outside the project
    out: Path = ROOT / "docs" / "results"
    splits: int = 10
    sets: list[str] | None = None  # only these data sets instead of the experiment's own
    seconds: float = float("inf")  # stop after this time; the next run continues
    max_values: int = 20_000  # largest rows x columns of a data set
    workers: int = 1


@dataclass(frozen=True)
class Experiment:
    """An experiment: functions that run it, tabulate its results and, if it has a page, return the page's values."""

    name: str
    run: Callable[[Settings], None]
    table: Callable[[Settings], list[Row]]
    page: Callable[[list[Row], Path], Row] | None = None
    splits: int = 10


# --- results


def resume(
    settings: Settings, name: str, keys: Iterable[Row], work: Callable[[Row], Row], engine: Engine | None = None
) -> int:
    """Run ``work(key)`` for every key that is not in the study's store yet; return the number of keys done.

    The store and its driver are the same as for the tables: a key is the name of a cell, and its result is a note in
    the record. Keys that fail are reported and tried again the next time.
    """
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
    """Return the keys and results of all finished runs, in the order requested."""
    path = store_path(settings, name)
    if not path.exists():
        return []
    with Store(path) as store:
        requested = dict.fromkeys(key for run in store.runs() for key in run["request"]["keys"])
        keys = {cell.key: json.loads(cell.dataset) for cell in store.cells()}
        return [keys[record.key] | json.loads(record.notes[0]) for record in store.records(requested)]


def store_path(settings: Settings, name: str) -> Path:
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
    """Return the records of sets with at least ``wanted`` splits, or as many as three quarters of the sets have.

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
    """Load a data set that is available locally."""
    return load_dataset(name, download=False)


def division(name: str, split: int) -> Division:
    """Divide a data set according to the sound protocol, with the same splits as in the tables."""
    data = dataset(name)
    return divide(data, Cell("beyond", name, data.checksum, split, "linear", "sound"))


def pmlb_sets(max_values: int, only: Sequence[str] | None = None, fewest_rows: int = 0) -> list[str]:
    """Return the names of the available PMLB sets within the given limits, smallest first."""
    names = [name for name in available("pmlb94") if not only or title(name) in only]
    sizes = sorted((dataset(name).X.size, name) for name in names if len(dataset(name).y) >= fewest_rows)
    return [name for size, name in sizes if size <= max_values]


# --- numbers


def mean_error(values: Sequence[float] | Array) -> tuple[float, float]:
    """Return the mean and its standard error, which is NaN for a single value."""
    values = np.asarray(values, dtype=float)
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def summarise(records: Sequence[Row], base: str, methods: Sequence[str], test_over_train: float = 1 / 3) -> list[Row]:
    """Return a row for each (set, method), over the splits on which both the method and the base were run.

    Records have ``set``, ``split``, ``method``, ``accuracy`` and ``seconds``; ``test_over_train`` is needed for Nadeau
    & Bengio's test. Rows contain accuracies and gains over the base in percent, their standard errors over the splits,
    and p-values that are not corrected for multiple tests.

    Examples
    --------
    >>> lines = [{"set": "a", "split": s, "method": m, "accuracy": v, "seconds": 1.0}
    ...          for s, pair in enumerate([(0.8, 0.9), (0.7, 0.81)]) for m, v in zip("xy", pair)]
    >>> [(row["method"], round(row["gain"], 6)) for row in summarise(lines, "x", "xy")]
    [('x', 0.0), ('y', 10.5)]
    """
    found: dict[str, dict[str, dict[int, Row]]] = {}
    for record in records:
        found.setdefault(record["set"], {}).setdefault(record["method"], {})[record["split"]] = record
    rows = []
    for name, by_method in sorted(found.items()):
        if not set(methods) <= set(by_method):
            continue
        for method in methods:
            shared = sorted(set(by_method[method]) & set(by_method[base]))
            if not shared:
                continue
            mine, own = (100 * np.array([by_method[m][s]["accuracy"] for s in shared]) for m in (method, base))
            mean, error = mean_error(mine)
            gain, gain_error = mean_error(mine - own)
            p = 1.0
            if len(shared) > 1 and method != base:
                p = float(corrected_test(mine, own, test_over_train=test_over_train))
            seconds = float(np.median([by_method[method][s].get("seconds", np.nan) for s in shared]))
            rows.append(
                {
                    "set": name, "method": method, "splits": len(shared), "accuracy": mean, "se": error,
                    "gain": gain, "gain_se": gain_error, "p": p, "seconds": seconds,
                }
            )  # fmt: skip
    return rows


def overall(rows: Sequence[Row], base: str) -> list[Row]:
    """Summarise the results across data sets, with one row for each method, in order of first occurrence.

    ``mean``, ``low`` and ``high`` are the mean gain over ``base`` and its interval over the sets; ``better`` and
    ``worse`` count significant differences (Nadeau & Bengio's test with Holm's correction across the sets), and ``up``
    and ``down`` count differences of a point or more.
    """
    methods = list(dict.fromkeys(row["method"] for row in rows))
    sets = sorted({row["set"] for row in rows})
    at = {(row["set"], row["method"]): row for row in rows}
    accuracies = np.array([[at[name, method]["accuracy"] for method in methods] for name in sets])
    ranks = average_ranks(accuracies)
    result = []
    for place, method in enumerate(methods):
        mine = [at[name, method] for name in sets]
        gains = np.array([row["gain"] for row in mine])
        adjusted = holm(np.array([row["p"] for row in mine]))
        mean, low, high = mean_interval(gains)
        result.append(
            {
                "method": method, "sets": len(sets), "accuracy": float(accuracies[:, place].mean()), "mean": mean,
                "low": low, "high": high, "rank": float(ranks[place]),
                "better": int(((adjusted < 0.05) & (gains > 0)).sum()),
                "worse": int(((adjusted < 0.05) & (gains < 0)).sum()),
                "up": int((gains >= 1 - 1e-9).sum()), "down": int((gains <= -1 + 1e-9).sum()),
                "wilcoxon": wilcoxon(accuracies[:, place], accuracies[:, methods.index(base)]),
                "seconds": float(np.median([row["seconds"] for row in mine])),
            }
        )  # fmt: skip
    return result


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
    return [{name: _number(value) for name, value in row.items()} for row in csv_rows(path)]


def _number(text: str) -> Any:
    try:
        return float(text)
    except (TypeError, ValueError):
        return text


def markdown(header: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a Markdown table of any width; its cells may contain markup."""
    return markdown_rows([[str(cell).replace("|", r"\|") for cell in row] for row in (header, *rows)], sys.maxsize)


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
    return f"{int(count)} of {int(total)}"


def save_chart(chart: Any, path: Path) -> None:
    """Save an Altair chart as SVG on a white background, so that it is also readable on a dark page."""
    from closecall.report.charts import draw, specification
    from reproduction.pages.figures import slim

    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(slim(draw(specification(chart.configure(background="white", font="sans-serif")))) + "\n")


def interval_chart(rows: Sequence[Row], title: str) -> Any:
    """Draw a dot and an interval for each row (``label``, ``mean``, ``low``, ``high``), in the given order."""
    import altair as alt

    values = [{name: row[name] for name in ("label", "mean", "low", "high")} for row in rows]
    base = alt.Chart(alt.Data(values=values)).encode(
        y=alt.Y("label:N", sort=[row["label"] for row in rows], title=None, axis=alt.Axis(labelLimit=260))
    )
    bars = base.mark_rule(color="#0072B2", strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    dots = base.mark_point(filled=True, color="#0072B2", size=50, opacity=1).encode(x="mean:Q")
    line = alt.Chart(alt.Data(values=[{"x": 0}])).mark_rule(strokeDash=[3, 3], color="#888").encode(x="x:Q")
    return alt.layer(line, bars, dots).properties(width=360, height=alt.Step(18))


def page_of(name: str, values: Row) -> str:
    """Return the page of a study with the values filled in and a note on how it was made."""
    text = (Path(__file__).with_name("pages") / f"{name}.md").read_text(encoding="utf-8")
    made = (
        f"---\n\nThis page was generated by `python -m reproduction.studies {name}` from "
        f"[beyond/{name}.csv](beyond/{name}.csv); `--page` regenerates the page from that table.\n"
    )
    return f"{text.format_map(values)}\n{made}"


def overall_table(found: Sequence[Row], labels: dict[str, str], base: str) -> str:
    """Return the summary from :func:`overall` as a Markdown table."""
    header = [
        "method", "mean accuracy", f"mean gain over {labels.get(base, base)} (95 % interval)", "a point better / worse",
        "significantly better / worse", "mean rank", "Wilcoxon p", "median seconds",
    ]  # fmt: skip
    lines: list[list[Any]] = []
    for row in found:
        own = row["method"] == base
        lines.append([
            labels.get(row["method"], row["method"]), f"{row['accuracy']:.2f}",
            "-" if own else f"{signed(row['mean'])} ({signed(row['low'])} to {signed(row['high'])})",
            "-" if own else f"{row['up']:.0f} / {row['down']:.0f}",
            "-" if own else f"{row['better']:.0f} / {row['worse']:.0f}",
            f"{row['rank']:.2f}", "-" if own else p_value(row["wilcoxon"]), f"{row['seconds']:.2f}",
        ])  # fmt: skip
    return markdown(header, lines)


def per_set_table(rows: Sequence[Row], methods: Sequence[str], labels: dict[str, str], base: str) -> str:
    """Return a table of all data sets: the accuracy of the base with its standard error, and the others' gains."""
    at = {(row["set"], row["method"]): row for row in rows}
    others = [method for method in methods if method != base]
    lines = []
    for name in sorted({row["set"] for row in rows}):
        own = at[name, base]
        gains = [signed(at[name, method]["gain"], at[name, method]["gain_se"], 1) for method in others]
        lines.append([name, f"{own['accuracy']:.1f} ± {own['se']:.1f}", *gains])
    return markdown(["data set", labels.get(base, base), *(labels.get(m, m) for m in others)], lines)

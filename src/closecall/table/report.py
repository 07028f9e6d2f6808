"""Write a comparison as one self-contained page, and its results as CSV and JSON."""

from __future__ import annotations

import json
import math
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy
import scipy
import sklearn

import closecall
from closecall.report.formats import Row, csv_text
from closecall.report.text import counted, shown
from closecall.table.read.dataset import DataError
from closecall.table.read.files import opened
from closecall.table.read.sheet import Sheet

from . import content
from .contenders import MAJORITY

if TYPE_CHECKING:
    from closecall.report.html import Chart

    from .comparison import TableComparison

#: The default folder of the page.
FOLDER = "closecall-compare"
NEEDS = 'the report needs more packages ({}): pip install "closecall[bench,plots]"'
PAGE_PARTS = {
    "summary": "Summary", "rows": "Rows to check", "calls": "The close calls",
    "mistakes": "Confusion matrices", "diagnosis": "What the data shows", "results": "Ranking",
    "columns": "Columns", "repeat": "How to repeat the comparison",
}  # fmt: skip
#: The header of the table of rows to check, and a description of each kind of row.
SUSPECT = ("kind", "row", "label", "said", "score", "why")
KINDS = {
    "label": "with a label that contradicts a held-out prediction", "cell": "with an extreme number",
    "twin": "nearly identical to a row with a different label",
}  # fmt: skip
#: The precision that a reader may expect, measured in docs/results/beyond-check.md.
PRECISION = (
    "These rows are worth checking, but need not be wrong. With 10 % of the labels flipped, about 60 % of the top 10 % "
    "of the rows were indeed mislabelled; with extreme cells in one column, nearly all rows found were indeed wrong."
)
#: The contents of the files that are saved beside the page.
BESIDE = ("every split of every method", "the results as --json prints them", "all rows to check")
#: Number of rows of each kind on the page.
LISTED = 15


def page_path(given: Path | None, name: str) -> Path:
    """Return the path of the page: the given file, or a file in the given folder or in a folder named after the table.

    Examples
    --------
    >>> page_path(None, "a/b.csv").as_posix(), page_path(Path("x.html"), "a").name, page_path(Path("x"), "a").as_posix()
    ('closecall-compare/b/report.html', 'x.html', 'x/report.html')
    """
    if given is not None:
        return given if given.suffix.lower() in (".html", ".htm") else given / "report.html"
    stem = "standard-input" if name == "-" else Path(name).name.split(".")[0] or "table"
    return Path(FOLDER) / "".join(c if c.isalnum() or c in "-_+" else "_" for c in stem)[:80] / "report.html"


def make_folder(page: Path) -> None:
    """Create the page's folder, or raise an error before the work starts."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot create the folder {str(page.parent)!r}: {error.strerror or error}") from error


def check_packages() -> str:
    """Return the reason why no page can be created, or an empty string."""
    try:
        import closecall.report.html  # noqa: F401
        from closecall.report.charts import check_room

        check_room()
    except ImportError as error:
        return NEEDS.format(error)
    except ValueError as error:
        return str(error)
    return ""


def write(found: TableComparison, page: Path) -> list[Path]:
    """Write the page and the result files; return the paths, page first."""
    beside = [page.with_name(f"{page.stem}-{name}") for name in ("results.csv", "results.json", "rows.csv")]
    document = {"command": found.command, "environment": _environment(), "records": found.records()}
    contents = {
        page: to_html(found, [path.name for path in beside]), beside[0]: to_csv(found),
        beside[1]: json.dumps(document, indent=1) + "\n", beside[2]: csv_text([SUSPECT, *suspect_rows(found.rows)]),
    }  # fmt: skip
    for path, text in contents.items():
        with opened(str(path)) as file:
            file.write(text)
    return list(contents)


def to_csv(found: TableComparison) -> str:
    """Return the results as CSV, with a row for each method and split."""
    metric, name = found.comparison.metric, found.table.name
    header = ("table", "method", "loss", "split", metric.name, "k", "alpha")
    rows = [
        (name, result.method, result.loss, split, metric.plain(value), k, alpha)
        for result in found.comparison.results
        for split, (value, k, alpha) in enumerate(zip(result.values, result.ks, result.alphas, strict=True), 1)
    ]
    return csv_text([header, *rows])


def suspect_rows(suspects: Any, most: int = 0) -> list[tuple[str, ...]]:
    """Return the first ``most`` rows of each kind to check (0: all), numbered from 1, not counting the header line."""
    found: list[tuple[str, ...]] = []
    for kind in KINDS:
        mine = suspects[suspects["kind"] == kind].head(most or len(suspects))
        found += [
            (kind, str(int(row.row) + 1), str(row.label), str(row.said), f"{row.score:.3g}", str(row.detail))
            for row in mine.itertuples()
        ]
    return found


def suspect_counts(suspects: Any) -> str:
    """State how many rows of each kind there are to check."""
    counts = Counter(suspects["kind"])
    return "; ".join(f"{counted(counts[kind], 'row')} {KINDS[kind]}" for kind in KINDS if counts[kind]) or "none"


def suspect_records(suspects: Any, most: int = 0) -> list[Row]:
    """Return the rows to check, in the form that ``--json`` prints."""
    names = ("why", "row", "label", "said", "score", "detail")
    return [{"kind": "row", **dict(zip(names, row, strict=True))} for row in suspect_rows(suspects, most)]


def to_html(found: TableComparison, beside: Sequence[str] = ()) -> str:
    """Return the whole page as HTML."""
    from closecall.report.charts import unchecked
    from closecall.report.html import render

    comparison, table = found.comparison, found.table
    with unchecked():
        charts = _charts(found)
    results = content.rows(comparison)
    columns = [name for name in results[0] if any(row[name] not in (None, "") for row in results)]
    header, rows = content.close_calls(table, found.splits, comparison.classes)
    return render(
        "compare.html.jinja", charts=charts, scripts=("table.js",), parts=list(PAGE_PARTS.items()),
        name=shown(table.name), lead=_lead(found), verdict=content.sentence(comparison.text),
        reason=content.sentence(comparison.reason), outcome="ahead" if comparison.verdict == "close-k" else "",
        hints=found.hints, first=charts[0], calls=charts[1:], call_header=header, call_rows=rows,
        mistakes=content.mistakes(comparison),
        suspects=suspect_rows(found.rows, LISTED), suspect_header=SUSPECT,
        suspect_counts=f"{suspect_counts(found.rows)}.", precision=PRECISION,
        findings=content.findings(found.diagnosis),
        how=f"Mean test {comparison.metric.label} over {len(found.splits)} splits with its 95 % interval. Gains are "
        f"relative to {comparison.found[comparison.plain].title}, and p is adjusted across the contenders (Holm). "
        "The values of k, alpha and the setting are those chosen most often in validation.",
        results=results, columns=columns, formats={**content.FORMATS, comparison.metric.label: ".2f"},
        choices={"loss": list(dict.fromkeys(row["loss"] for row in results if row["loss"]))},
        reading=content.reading(table), notes=table.notes, fields=content.DESCRIBED,
        described=content.described(table),
        command=found.command, environment=_environment(), beside=list(zip(beside, BESIDE, strict=False)),
    )  # fmt: skip


def facts_of(table: Sheet) -> Row:
    """Return facts about a table for JSON output."""
    missing = int(table.frame[[column.name for column in table.columns]].isna().any(axis=1).sum())
    return {
        "name": table.name, "rows": len(table.labels), "target": table.target,
        "classes": dict(sorted(Counter(map(str, table.labels)).items())),
        "columns": dict(Counter(column.kind for column in table.columns)),
        "rows_with_missing_values": missing, "notes": list(table.notes),
    }  # fmt: skip


def _environment() -> Row:
    import pandas

    versions = {package.__name__: package.__version__ for package in (closecall, numpy, pandas, scipy, sklearn)}
    return {"python": platform.python_version(), "platform": platform.platform(), "packages": versions}


#: The rows on which methods are tuned and scored, by how the rows are divided.
_DIVIDED = {
    "": "75 % of the rows and scored on the rest",
    "groups": "about 75 % of the rows and scored on the rest, with no group in both",
    "time": "earlier rows and scored on later ones",
}


def _lead(found: TableComparison) -> str:
    table = found.table
    classes = len(found.comparison.classes)
    return (
        f"{len(table.labels)} rows, {len(table.columns)} columns used, {classes} classes of {table.target!r}. Each "
        f"method is tuned on {_DIVIDED[found.order.kind]}, {len(found.splits)} times."
    )


def _charts(found: TableComparison) -> list[Chart]:
    """Return the opening chart, and a chart of the coefficients of close-k."""
    from closecall.report import charts as draw
    from closecall.report.html import place

    comparison, metric = found.comparison, found.comparison.metric
    plain = comparison.found[comparison.plain].title
    first = place(
        "chart-gains",
        f"The gain of each contender over {plain} on the same test rows: a dot for each split, a tick for the mean "
        "and a bar for its 95 % interval. Grey means not significant after adjustment for all contenders.",
        draw.gains(*content.moves(comparison), f"{metric.unit} gained"),
    )
    left, right = "others", "the class after the arrow"
    if len(comparison.classes) == 2:
        left, right = map(repr, comparison.classes)
    caption = (
        "The largest coefficients of close-k on every split, with their mean and 95 % interval. "
        f"Larger values favour {right} for columns on the right, and {left} for columns on the left. "
        "Grey means that the interval contains zero."
    )
    weights = content.coefficients(found.splits, comparison)
    return [first, place("chart-coefficients", caption, draw.coefficients(weights))]


def as_records(found: TableComparison) -> list[Row]:
    """Return the results as ``--json`` prints them, with the verdict last."""
    comparison, metric = found.comparison, found.comparison.metric
    few = len(comparison.classes) <= 20
    records: list[Row] = [{"kind": "table", **facts_of(found.table)}]
    for rank, result in enumerate(comparison.results, 1):
        records.append({
            "kind": "result", "rank": rank, "method": result.method, "label": result.label, "loss": result.loss,
            **result.record(metric, metric.name),
            "k": None if math.isnan(result.k) else result.k,
            "alpha": None if math.isnan(result.alpha) else result.alpha, "setting": result.setting,
            "values": [metric.plain(value) for value in result.values],
            "recalls": dict(zip(comparison.classes, result.recalls.tolist(), strict=True)) if few else None,
            "confusion": result.confusion.tolist() if few else None,
        })  # fmt: skip
    records += [{"kind": "diagnosis", **asdict(case)} for case in content.findings(found.diagnosis)]
    records += [{"kind": "hint", "text": hint} for hint in found.hints]
    records += suspect_records(found.rows, LISTED)
    records.append({
        "kind": "verdict", "verdict": comparison.verdict, "use": comparison.use, "text": comparison.text,
        "reason": comparison.reason, "linear": comparison.linear, "metric": metric.name,
        "helps": [dict(zip(("method", "gain", "low", "high", "p"), (each.method, *each.interval, each.p), strict=True))
                  for each in comparison.helps],
        "majority": metric.plain(comparison.found[MAJORITY].mean), "majority_class": comparison.majority,
        "splits": len(found.splits), "training_rows": comparison.training_rows,
    })  # fmt: skip
    return records

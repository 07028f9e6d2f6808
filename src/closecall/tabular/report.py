"""A comparison -> one self-contained page, and the same results as CSV and JSON beside it."""

from __future__ import annotations

import csv
import io
import json
import math
import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from closecall.data.dataset import DataError
from closecall.data.sheet import Sheet
from closecall.evaluate.environment import environment
from closecall.linear import Diagnosis
from closecall.report.formats import Row
from closecall.report.text import shown

from . import content
from .conclude import Conclusion, named
from .output import cell, opened

#: Where the page goes unless the user says.
FOLDER = "closecall-compare"
NEEDS = 'the report needs more packages ({}): pip install "closecall[bench,plots]"'
PAGE_PARTS = {
    "summary": "Summary",
    "ranking": "Ranking",
    "differences": "Paired differences",
    "chosen": "Chosen k and alpha",
    "diagnosis": "What the data shows",
    "results": "All results",
    "columns": "Columns",
    "repeat": "How to repeat it",
}


@dataclass(frozen=True)
class Findings:
    """All that a comparison found out, and what was asked.

    Parameters
    ----------
    table : Sheet
    comparison : Conclusion
    diagnosis : Diagnosis
    arguments : sequence of str
        The command's, for those who want to repeat it.
    """

    table: Sheet
    comparison: Conclusion
    diagnosis: Diagnosis
    arguments: Sequence[str]

    @property
    def splits(self) -> int:
        return len(self.comparison.results[0].accuracies)


def page_path(given: Path | None, name: str) -> Path:
    """Where the page goes: the file given, in the folder given, or in a folder named after the table.

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
    """Make the page's folder, or say why it cannot be: before the work, not after."""
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(f"cannot make the folder {str(page.parent)!r}: {error.strerror or error}") from error


def check_packages() -> str:
    """Why no page can be made here, or nothing."""
    try:
        import closecall.report.html
        import closecall.tabular.figures  # noqa: F401
        from closecall.report.charts import check_room

        check_room()
    except ImportError as error:
        return NEEDS.format(error)
    except ValueError as error:
        return str(error)
    return ""


def write(found: Findings, page: Path, records: Sequence[Row]) -> list[Path]:
    """Write the page and the results beside it; the paths, the page first.

    Parameters
    ----------
    found : Findings
    page : Path
    records : sequence of dict
        What ``--json`` would print.
    """
    beside = [page.with_name(f"{page.stem}-results.{suffix}") for suffix in ("csv", "json")]
    document = {"command": _command(found.arguments), "environment": environment(), "records": list(records)}
    contents = [to_html(found, [path.name for path in beside]), to_csv(found), json.dumps(document, indent=1) + "\n"]
    paths = [page, *beside]
    for path, text in zip(paths, contents, strict=True):
        with opened(str(path)) as file:
            file.write(text)
    return paths


def to_csv(found: Findings) -> str:
    """One row for every (method, split)."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["table", "method", "loss", "split", "accuracy", "k", "alpha"])
    for result in found.comparison.results:
        for split, values in enumerate(zip(result.accuracies, result.ks, result.alphas, strict=True), 1):
            plain = ["" if math.isnan(value) else value for value in values]
            writer.writerow([cell(found.table.name), result.method, result.loss, split, *plain])
    return buffer.getvalue()


def to_html(found: Findings, beside: Sequence[str] = ()) -> str:
    """The whole page."""
    from closecall.report.html import render

    comparison, table = found.comparison, found.table
    pictured = _pictured(found)
    results = content.rows(comparison)
    columns = [name for name in results[0] if any(row[name] not in (None, "") for row in results)]
    return render(
        "compare.html.jinja",
        charts=[chart for *_, charts in pictured for chart in charts],
        scripts=("table.js",),
        parts=list(PAGE_PARTS.items()),
        name=shown(table.name),
        lead=_lead(found),
        verdict=_sentence(comparison.text),
        outcome="ahead" if comparison.verdict == "close-k" else "",
        cards=content.cards(comparison),
        pictured=pictured,
        trial=content.trial(found.diagnosis),
        cases=content.cases(found.diagnosis),
        how=f"Mean test accuracy in percent over {found.splits} splits with its 95 % interval; gain over the average "
        "of the same loss and over LogisticRegression in points, each p adjusted over all methods (Holm); k and alpha "
        "as validation chose them most often.",
        results=results,
        columns=columns,
        formats=content.FORMATS,
        choices={"loss": list(dict.fromkeys(row["loss"] for row in results if row["loss"]))},
        reading=content.reading(table),
        notes=table.notes,
        fields=("column", "read as", "missing", "different", "such as", "remark"),
        described=list(content.described(table)),
        repeat="The splits are drawn from --seed, so the same command on the same data gives the same numbers.",
        command=_command(found.arguments),
        environment=environment(),
        beside=list(zip(beside, ("every split of every method", "the results as --json prints them"), strict=False)),
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _command(arguments: Sequence[str]) -> str:
    return shlex.join(["closecall", *arguments])


def _lead(found: Findings) -> str:
    table = found.table
    classes = len(set(map(str, table.labels)))
    return (
        f"{len(table.labels)} rows, {len(table.columns)} columns used, {classes} classes of {table.target!r}. Every "
        "aggregate, scikit-learn's baselines and a tree learn on half of the rows, choose on a quarter and count on "
        f"the last quarter, {found.splits} times."
    )


def _pictured(found: Findings) -> list[tuple[str, str, str, list[Any]]]:
    """Sections of charts: identity, heading, text, charts."""
    from closecall.report import charts
    from closecall.report.html import place

    from . import figures as draw

    comparison = found.comparison
    pairs = [comparison.found[name] for name in (named("average", comparison.loss), "logistic_regression")]
    ranking = place(
        "chart-ranking",
        "Test accuracy of every method: a dot for each split, a tick for the mean, a bar for its 95 % interval. "
        f"Always saying the largest class: {comparison.majority:.1%}, dotted if near. Hover for the numbers, click the "
        "legend to see one kind alone.",
        draw.ranking(*content.spread(comparison), 100 * comparison.majority),
    )
    differences = place(
        "chart-differences",
        "Each method minus average, and minus LogisticRegression, on the same splits. Coloured: significant after "
        "adjusting for all methods.",
        charts.side_by_side(
            [draw.differences(*content.moves(comparison, pair), content.label(pair)) for pair in pairs]
        ),
    )
    chosen = place(
        "chart-chosen",
        "Which k (of the training rows) and alpha the validation part chose, by how many of the splits.",
        draw.chosen(content.choices(comparison), comparison.training_rows),
    )
    gain = place(
        "chart-gain",
        "What each split gained over the average of the same loss, against the share of the rows that k was.",
        draw.gain_by_k(content.gains(comparison)),
    )
    return [
        ("ranking", "Ranking", "Splits share rows: the intervals are Nadeau and Bengio's corrected ones.", [ranking]),
        ("differences", "Paired differences", "Splits are paired: much of what makes one split hard is hard for "
         "every method and cancels here, which makes differences surer than the ranking's intervals.", [differences]),
        ("chosen", "Chosen k and alpha", "A k far below n says that the close calls alone decide; a k that jumps from "
         "split to split says that it hardly matters.", [chosen, gain]),
    ]  # fmt: skip


def as_records(found: Findings, facts: Row) -> list[Row]:
    """The results as ``--json`` prints them, the verdict last."""
    comparison, diagnosis = found.comparison, asdict(found.diagnosis)
    records: list[Row] = [{"kind": "table", **facts}]
    for rank, result in enumerate(comparison.results, 1):
        records.append({
            "kind": "result", "rank": rank, "method": result.method, "loss": result.loss, "accuracy": result.mean,
            "low": result.mean - result.half_width, "high": result.mean + result.half_width,
            "k": None if math.isnan(result.k) else result.k,
            "alpha": None if math.isnan(result.alpha) else result.alpha, "accuracies": result.accuracies,
        })  # fmt: skip
    for case in ("imbalance", "easy", "outliers", "ambiguity"):
        records.append({"kind": "diagnosis", **diagnosis[case]})
    verdict = comparison.verdict
    records.append({
        "kind": "verdict", "verdict": verdict, "text": comparison.text, "reason": comparison.reason,
        "majority": comparison.majority, "splits": found.splits, "training_rows": comparison.training_rows,
    })  # fmt: skip
    return records

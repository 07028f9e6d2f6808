"""The command ``compare``: arguments -> calls; results -> plain text or JSON lines. And what table commands share."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from time import monotonic as time_now
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable

from .console import Console, DataDir, Json, err, out, plain, print_notes, say, words

Data = Annotated[
    str, typer.Argument(help="A CSV, TSV or Parquet file (also .gz), - for standard input, or a data set's name.")
]
Files = Annotated[list[str], typer.Argument(
    help="A CSV, TSV or Parquet file (also .gz), several Parquet files or a folder of them, - for standard input, or a "
    "data set's name."
)]  # fmt: skip
Target = Annotated[str, typer.Option(help="The column to predict; by default target, class, label, y or the last.")]
Drop = Annotated[list[str] | None, typer.Option(help="Leave this column out; may be repeated.")]
Keep = Annotated[list[str] | None, typer.Option(help="Use this column although it looks like an identifier.")]
Numeric = Annotated[list[str] | None, typer.Option(help="Read this column as numbers; may be repeated.")]
Nominal = Annotated[list[str] | None, typer.Option(help="Read this column as names; may be repeated.")]
Sep = Annotated[str, typer.Option(help="The character between columns; detected by default.")]
Encoding = Annotated[str, typer.Option(help="Encoding of a text file that is not UTF-8, such as latin-1.")]
Groups = Annotated[str, typer.Option(help="Rows with the same value in this column stay together.")]
Time = Annotated[str, typer.Option(help="Learn from rows that are earlier by this column only.")]
Multiclass = Annotated[str, typer.Option(help="More than two classes: ovr, top_two or softmax.")]
Metric = Annotated[str, typer.Option(help="accuracy, balanced_accuracy, f1, log_loss or auc.")]
NoSquash = Annotated[bool, typer.Option("--no-squash", help="Leave cells that are far out as they are.")]
Seed = Annotated[int, typer.Option(help="Seed of everything that is drawn at random.")]


def reading_of(
    sep: str, encoding: str, drop: list[str] | None, keep: list[str] | None, numeric: list[str] | None,
    nominal: list[str] | None,
) -> Any:  # fmt: skip
    """How the file is to be read."""
    from closecall.data.sheet import Reading

    return Reading(sep, encoding, *(tuple(names or ()) for names in (drop, keep, numeric, nominal)))


def compare(
    data: Data,
    target: Target = "",
    splits: Annotated[int, typer.Option(help="Divisions into training, validation and test part.")] = 10,
    rows: Annotated[int, typer.Option(help="Use at most this many rows, drawn by class; 0 for all.", min=0)] = 5000,
    metric: Metric = "accuracy",
    with_: Annotated[list[str] | None, typer.Option(
        "--with", help="Another contender: k-nn, tilted, superquantile, human, a member such as 'tilted(-2)', or "
        "package:Class that is installed; may be repeated.")] = None,
    only: Annotated[str, typer.Option(help="Only these contenders, separated by commas.")] = "",
    groups: Groups = "",
    time: Time = "",
    loss: Annotated[str, typer.Option(help="Loss of close-k and the aggregates; the verdict is about the first."
                                      )] = "logistic,hinge",
    multiclass: Multiclass = "top_two",
    top_two: Annotated[bool, typer.Option(hidden=True)] = True,
    max_iter: Annotated[int, typer.Option(help="Steps of each solve of an aggregate.")] = 150,
    drop: Drop = None,
    keep: Keep = None,
    numeric: Numeric = None,
    nominal: Nominal = None,
    sep: Sep = "",
    encoding: Encoding = "",
    seed: Seed = 0,
    jobs: Annotated[int, typer.Option(help="Processes; 0 for one on each core.", min=0)] = 0,
    report: Annotated[Path | None, typer.Option(
        help="The page or its folder; by default in closecall-compare/NAME.", show_default=False)] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no page.")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare close-k, linear models, trees and more on a table, and say what to use."""
    from closecall.tabular.compare import ComparePlan, diagnosis_of, run_splits
    from closecall.tabular.conclude import PLAIN, conclude
    from closecall.tabular.contenders import AGGREGATED, libraries
    from closecall.tabular.divide import Order
    from closecall.tabular.hints import hints
    from closecall.tabular.report import Findings, as_records, check_packages, make_folder, page_path, write
    from closecall.tabular.table import read

    page = None if no_report else page_path(report, data)
    missing = check_packages() if page else ""
    if missing and report:  # asked for by name: say so before the work, not after
        raise ValueError(missing)
    losses = tuple(dict.fromkeys(words(loss))) or ("logistic",)
    solved = not only or AGGREGATED[0] in words(only) or losses[0] not in PLAIN
    plan = ComparePlan(
        splits, losses, multiclass if top_two else "ovr", metric.replace("-", "_"), tuple(with_ or ()), words(only),
        solved, max_iter, seed, jobs,
    )  # fmt: skip
    contenders = plan.contenders()  # a name that nobody has is said before a large table is read
    if not only:
        print_notes(filter(None, libraries().values()), err)
    table = read(data, target, reading_of(sep, encoding, drop, keep, numeric, nominal), data_dir=data_dir)
    order, table = Order.of(table.sample(rows, seed), groups, time)
    if page and not missing:
        make_folder(page)
    chosen = list(_progress(run_splits(table, plan, order), splits))
    found = Findings(
        table, conclude(table, chosen, plan, contenders, order=order), diagnosis_of(table), chosen, hints(table),
        sys.argv[1:], order,
    )  # fmt: skip
    records = as_records(found, facts_of(table))
    path = str(write(found, page, records)[0]) if page and not missing else ""
    if as_json:
        *others, verdict = records
        for record in (*others, *([{"kind": "report", "path": path}] if path else ()), verdict):
            say(record)
    else:
        print_facts(table, out)
        _print_ranking(found.comparison, splits)
        _print_recalls(found.comparison)
        _print_verdict(found)
        if path:
            out.print(f"report: [bold]{plain(path)}[/]", soft_wrap=True)
    if missing:
        err.print(plain(missing), soft_wrap=True)


def _print_verdict(found: Any) -> None:
    diagnosis, comparison = found.diagnosis, found.comparison
    out.print("What the data shows", style="bold")
    for finding in (diagnosis.imbalance, diagnosis.easy, diagnosis.outliers, diagnosis.ambiguity):
        out.print(f"  {finding.case:10} {finding.value:6.1%}  {finding.reading}")
    for hint in found.hints:
        out.print(f"hint: {plain(hint)}", style="yellow")
    out.print()
    out.print(f"Verdict: {plain(comparison.text)}.", style="bold")
    out.print(plain(f"{comparison.reason[0].upper()}{comparison.reason[1:]}."))


def _progress(items: Iterator[Any], total: int) -> Iterator[Any]:
    """The items, with a line of progress where a person is looking."""
    if not err.is_terminal:
        yield from items
        return
    began = time_now()
    with err.status(f"split 1 of {total}") as status:
        for done, item in enumerate(items, 1):
            left = (time_now() - began) / done * (total - done)
            status.update(f"split {min(done + 1, total)} of {total}, about {max(1, round(left))} s left")
            yield item


def facts_of(table: Any) -> dict[str, Any]:
    """What a table is, for programs."""
    kinds = Counter(column.kind for column in table.columns)
    missing = int(table.frame[[column.name for column in table.columns]].isna().any(axis=1).sum())
    return {
        "name": table.name, "rows": len(table.labels), "target": table.target,
        "classes": dict(sorted(Counter(map(str, table.labels)).items())), "columns": dict(kinds),
        "rows_with_missing_values": missing, "notes": list(table.notes),
    }  # fmt: skip


def counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def print_facts(table: Any, console: Console) -> None:
    facts = facts_of(table)
    classes = [f"{name} ({count})" for name, count in facts["classes"].items()]
    more = f" and {len(classes) - 6} more" if len(classes) > 6 else ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts["columns"].items())
    console.print(f"{plain(table.name)}: {len(table.labels)} rows, columns: {kinds}", style="bold")
    console.print(f"target {plain(table.target)}: {plain(', '.join(classes[:6]))}{more}")
    if facts["rows_with_missing_values"]:
        console.print(f"missing values are filled in, in {counted(facts['rows_with_missing_values'], 'row')}")
    print_notes(table.notes, console)
    console.print()


def _print_ranking(found: Any, splits: int) -> None:
    from closecall.tabular.content import ends, label

    ranking, metric = RichTable(box=None, pad_edge=False), found.metric
    digits = 1 if metric.factor == 100 else 3
    for name in ("", "method", "value", "95 % interval", "k", "alpha"):
        ranking.add_column(name, justify="left" if name == "method" else "right", no_wrap=True)
    for rank, result in enumerate(found.results, 1):
        low, high = ends(result, found)
        k, alpha = ("" if math.isnan(value) else f"{value:{form}}" for value, form in zip(
            (result.k, result.alpha), (".0f", "g"), strict=True))  # fmt: skip
        value, interval = f"{metric.shown(result.mean):.{digits}f}", f"{low:.{digits}f} - {high:.{digits}f}"
        name = f"{label(result)}: {found.majority}" if result.family == "majority" else label(result)
        ranking.add_row(str(rank), plain(name[:40]), value, interval, k, alpha)
    out.print(ranking)
    out.print(
        f"Test {metric.label} over {splits} splits; k (of {found.training_rows} training rows) and alpha = 1/C as "
        "chosen most often.\n"
    )


def _print_recalls(found: Any) -> None:
    """How much of each class is found, by what to use and by the plain model; a confusion matrix of few classes."""
    for caption, header, lines in _mistakes(found):
        table = RichTable(box=None, pad_edge=False)
        for place, name in enumerate(header):
            table.add_column(plain(name), justify="right" if place else "left")
        for line in lines:
            table.add_row(*map(plain, line))
        out.print(plain(caption), style="bold")
        out.print(table)
    out.print()


def _mistakes(found: Any) -> list[Any]:
    from closecall.tabular.content import mistakes

    return [(caption, *rest) for caption, *rest in mistakes(found)[:2]] if len(found.classes) <= 5 else []

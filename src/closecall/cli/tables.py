"""The commands ``compare`` and ``check``, and the options that all commands on tables share."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import track

from closecall.report.text import counted, listed

from .console import Console, Json, err, out, plain, print_grid, print_notes, say, words

Data = Annotated[
    str, typer.Argument(help="A CSV, TSV or Parquet file (also gzipped), - for standard input, or a data set's name.")
]
Files = Annotated[list[str], typer.Argument(
    help="A CSV, TSV or Parquet file (optionally gzipped), several Parquet files or a folder of them, - for standard "
    "input, or the name of a data set."
)]  # fmt: skip
Target = Annotated[
    str,
    typer.Option(
        help="The column to predict; by default the one named target, class, label or y, otherwise the last one."
    ),
]
Drop = Annotated[list[str] | None, typer.Option(help="Leave this column out; may be repeated.")]
Keep = Annotated[list[str] | None, typer.Option(help="Use this column even if it looks like an identifier.")]
Numeric = Annotated[list[str] | None, typer.Option(help="Read this column as numbers; may be repeated.")]
Nominal = Annotated[list[str] | None, typer.Option(help="Read this column as categories; may be repeated.")]
Sep = Annotated[str, typer.Option(help="The character that separates columns; detected by default.")]
Encoding = Annotated[str, typer.Option(help="Encoding of a text file that is not UTF-8, such as latin-1.")]
Groups = Annotated[str, typer.Option(help="Keep rows that share a value in this column in the same part.")]
Time = Annotated[str, typer.Option(help="Order rows by this column, and train only on earlier rows.")]
Multiclass = Annotated[str, typer.Option(help="Method for more than two classes: ovr, top_two or softmax.")]
Metric = Annotated[str, typer.Option(help="The metric: accuracy, balanced_accuracy, f1, log_loss or auc.")]
Loss = Annotated[str, typer.Option(help="Loss for close-k and the aggregates: logistic, hinge, ...")]
NoSquash = Annotated[bool, typer.Option("--no-squash", help="Leave extreme cells as they are.")]
Seed = Annotated[int, typer.Option(help="Seed for all random numbers.")]


def reading_of(sep: str, encoding: str, *columns: list[str] | None) -> Any:
    """Return options for reading a file; ``columns`` lists those to drop, to keep, and to read as numbers or names."""
    from closecall.table.read.sheet import Reading

    return Reading(sep, encoding, *(tuple(names or ()) for names in columns))


def compare(
    data: Data,
    target: Target = "",
    no_squash: NoSquash = False,
    splits: Annotated[int, typer.Option(help="Number of random splits into training, validation and test parts.")] = 10,
    rows: Annotated[int, typer.Option(help="Use at most this many rows, sampled by class; 0 for all.", min=0)] = 5000,
    metric: Metric = "accuracy",
    everyone: Annotated[bool, typer.Option("--all", help="Include all contenders that are installed.")] = False,
    with_: Annotated[list[str] | None, typer.Option(
        "--with", help="Add a contender: k-nn, tilted, superquantile, human, 'tilted(-2)', atk, top, ..., or "
        "package:Class from an installed package; may be repeated.")] = None,
    only: Annotated[str, typer.Option(help="Include only these contenders, separated by commas.")] = "",
    groups: Groups = "", time: Time = "",
    loss: Loss = "logistic", multiclass: Multiclass = "top_two",
    drop: Drop = None, keep: Keep = None, numeric: Numeric = None, nominal: Nominal = None,
    sep: Sep = "", encoding: Encoding = "", seed: Seed = 0,
    jobs: Annotated[int, typer.Option(help="Number of processes; 0 for one per core.", min=0)] = 0,
    report: Annotated[Path | None, typer.Option(
        help="File or folder for the report; default: closecall-compare/NAME.", show_default=False)] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Do not write a report.")] = False,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare close-k with linear models, trees and others on a table, and recommend one of them."""
    from closecall.table.comparison import compare as compared
    from closecall.table.contenders import libraries
    from closecall.table.report import check_packages, make_folder, page_path

    page = None if no_report else page_path(report, data)
    missing = check_packages() if page else ""
    if missing and report:  # requested explicitly, so fail before the work rather than after it
        raise ValueError(missing)
    if everyone:
        print_notes(filter(None, libraries().values()), err)

    def begin(table: Any, hints: Any) -> None:
        if page and not missing:
            make_folder(page)
        if not as_json:
            print_facts(table, out)
            for hint in hints:
                out.print(f"hint: {plain(hint)}", style="yellow")

    found = compared(
        data, target, splits=splits, rows=rows, metric=metric.replace("-", "_"), extra=with_ or (), only=words(only),
        everyone=everyone, groups=groups, time=time, loss=loss, multiclass=multiclass,
        squash=not no_squash, reading=reading_of(sep, encoding, drop, keep, numeric, nominal), seed=seed, jobs=jobs,
        arguments=sys.argv[1:], begin=begin,
        progress=partial(track, description="splits", console=err, transient=True) if err.is_terminal else None,
    )  # fmt: skip
    path = str(found.save(page)[0]) if page and not missing else ""
    if as_json:
        *others, verdict = found.records()
        for record in (*others, *([{"kind": "report", "path": path}] if path else ()), verdict):
            say(record)
    else:
        _print_comparison(found)
        if path:
            out.print(f"report: [bold]{plain(path)}[/]", soft_wrap=True)
    if missing:
        err.print(plain(missing), soft_wrap=True)


def check(
    data: Data,
    target: Target = "",
    rows: Annotated[int, typer.Option(help="Use at most this many rows, sampled by class; 0 for all.", min=0)] = 50_000,
    top: Annotated[int, typer.Option(help="Number of rows of each kind to print.", min=1)] = 10,
    output: Annotated[Path | None, typer.Option("--out", help="Also write all rows to check to this CSV file.",
                                                show_default=False)] = None,
    drop: Drop = None, keep: Keep = None, numeric: Numeric = None, nominal: Nominal = None,
    sep: Sep = "", encoding: Encoding = "", seed: Seed = 0,
    as_json: Json = False,
) -> None:  # fmt: skip
    """List table rows worth checking: doubtful labels, extreme cells, and near-duplicates with different labels."""
    from closecall.report.formats import csv_text
    from closecall.table.check import check_table
    from closecall.table.read.files import opened
    from closecall.table.report import SUSPECT, suspect_records, suspect_rows
    from closecall.table.table import read

    table = read(data, target, reading_of(sep, encoding, drop, keep, numeric, nominal))
    table = table.sample(rows, seed)
    if not as_json:
        print_facts(table, err)
    found = check_table(table, seed=seed)
    if output:
        with opened(str(output)) as file:
            file.write(csv_text([SUSPECT, *suspect_rows(found)]))
    if as_json:
        for record in suspect_records(found):
            say(record)
        return
    print_suspects(found, top)
    if output:
        out.print(plain(output), soft_wrap=True)


def print_suspects(suspects: Any, top: int = 3) -> None:
    """Print the first rows of each kind to check, the total number of such rows, and how reliable the list is."""
    from closecall.table.report import PRECISION, suspect_counts, suspect_rows

    out.print("Rows to check", style="bold")
    if len(suspects):
        rows = [(row, label, detail) for _, row, label, _, _, detail in suspect_rows(suspects, top)]
        print_grid(("row", "has", "why"), rows, left=(1, 2), overflow="fold")
    out.print(f"{plain(suspect_counts(suspects))}.{f' {PRECISION}' if len(suspects) else ''}\n")


def print_facts(table: Any, console: Console) -> None:
    from closecall.table.report import facts_of

    facts = facts_of(table)
    classes = [f"{name} ({count})" for name, count in facts["classes"].items()]
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts["columns"].items())
    console.print(f"{plain(table.name)}: {len(table.labels)} rows, columns: {kinds}", style="bold")
    console.print(f"target {plain(table.target)}: {plain(listed(classes, 6))}")
    if facts["rows_with_missing_values"]:
        console.print(f"missing values in {counted(facts['rows_with_missing_values'], 'row')} are filled in")
    print_notes(table.notes, console)
    console.print()


def _print_comparison(comparison: Any) -> None:
    """Print the ranking, small confusion matrices, the rows to check, the diagnosis and the verdict."""
    from closecall.table.content import findings, mistakes, sentence

    found = comparison.comparison
    metric, rows = found.metric, []
    for rank, result in enumerate(found.results, 1):
        mean, *interval = (f"{each:.{metric.rough}f}" for each in result.shown(metric))
        name = f"{result.title}: {found.majority}" if result.family == "majority" else result.title
        chosen = (
            "" if math.isnan(each) else f"{each:{form}}" for each, form in ((result.k, ".0f"), (result.alpha, "g"))
        )
        rows.append((rank, name[:40], mean, " - ".join(interval), *chosen))
    print_grid(("", "method", metric.label, "95 % interval", "k", "alpha"), rows, left=(1,), no_wrap=True)
    out.print(
        f"Test {metric.label} over {len(comparison.splits)} splits; k (of {found.training_rows} training rows) and "
        "alpha = 1/C are the values chosen most often.\n"
    )
    for caption, header, lines in mistakes(found)[:2] if len(found.classes) <= 5 else ():
        out.print(plain(caption), style="bold")
        print_grid(header, lines)
    out.print()
    print_suspects(comparison.rows)
    out.print("What the data shows", style="bold")
    for finding in findings(comparison.diagnosis):
        out.print(f"  {finding.case:10} {finding.value:6.1%}  {finding.reading}")
    out.print()
    out.print(f"Verdict: {plain(found.text)}.", style="bold")
    out.print(plain(sentence(found.reason)))

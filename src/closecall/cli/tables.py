"""The commands ``compare``, ``fit`` and ``predict``: arguments -> calls; results -> plain text, CSV or JSON lines."""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table as RichTable

from closecall._names import lookup
from closecall.tabular.output import opened, write_rows

from .console import Console, DataDir, Json, err, out, plain, print_notes, say, words

Data = Annotated[str, typer.Argument(help="A CSV, TSV or Parquet file (also .gz), - for standard input, or a name.")]
Target = Annotated[str, typer.Option(help="The column to predict; by default target, class, label, y or the last.")]
Drop = Annotated[list[str] | None, typer.Option(help="Leave this column out; may be repeated.")]
Keep = Annotated[list[str] | None, typer.Option(help="Use this column although it looks like an identifier.")]
Seed = Annotated[int, typer.Option(help="Of everything drawn at random.")]


def compare(
    data: Data,
    target: Target = "",
    splits: Annotated[int, typer.Option(help="Random divisions into training, validation and test part.")] = 10,
    rows: Annotated[int, typer.Option(help="Use at most this many rows, drawn by class; 0 for all.", min=0)] = 5000,
    loss: Annotated[str, typer.Option(help="Of the aggregates; the verdict is about the first.")] = "logistic,hinge",
    top_two: Annotated[bool, typer.Option(help="More than two classes: also all jointly.")] = True,
    max_iter: Annotated[int, typer.Option(help="Steps of each solve.")] = 300,
    drop: Drop = None,
    keep: Keep = None,
    seed: Seed = 0,
    report: Annotated[Path | None, typer.Option(
        help="The page or its folder; by default in closecall-compare/NAME.", show_default=False)] = None,
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no page.")] = False,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Compare every aggregate, scikit-learn's baselines and a tree on a table, and say what to use."""
    from closecall.tabular.compare import diagnosis_of, run_splits
    from closecall.tabular.conclude import conclude
    from closecall.tabular.report import Findings, as_records, check_packages, make_folder, page_path, write
    from closecall.tabular.table import read

    page = None if no_report else page_path(report, data)
    missing = check_packages() if page else ""
    if missing and report:  # asked for by name: say so before the work, not after
        raise ValueError(missing)
    losses = list(dict.fromkeys(words(loss))) or ["logistic"]
    table = read(data, target, drop=drop or (), keep=keep or (), data_dir=data_dir).sample(rows, seed)
    if page and not missing:
        make_folder(page)
    running = run_splits(table, splits, losses=losses, top_two=top_two, max_iter=max_iter, seed=seed)
    chosen = list(_progress(running, splits))
    found = Findings(table, conclude(table, chosen, losses[0]), diagnosis_of(table), sys.argv[1:])
    records = as_records(found, _facts(table))
    path = str(write(found, page, records)[0]) if page and not missing else ""
    if as_json:
        *others, verdict = records
        for record in (*others, *([{"kind": "report", "path": path}] if path else ()), verdict):
            say(record)
    else:
        _print_facts(table, out)
        _print_ranking(found.comparison, splits)
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
    out.print()
    out.print(f"Verdict: {comparison.text}.", style="bold")
    out.print(f"{comparison.reason[0].upper()}{comparison.reason[1:]}.")


def _progress(items: Iterator[Any], total: int) -> Iterator[Any]:
    """The items, with a line of progress where a person is looking."""
    if not err.is_terminal:
        yield from items
        return
    began = time.monotonic()
    with err.status(f"split 1 of {total}") as status:
        for done, item in enumerate(items, 1):
            left = (time.monotonic() - began) / done * (total - done)
            status.update(f"split {min(done + 1, total)} of {total}, about {max(1, round(left))} s left")
            yield item


def _facts(table: Any) -> dict[str, Any]:
    kinds = Counter(column.kind for column in table.columns)
    missing = int(table.frame[[column.name for column in table.columns]].isna().any(axis=1).sum())
    return {
        "name": table.name, "rows": len(table.labels), "target": table.target,
        "classes": dict(sorted(Counter(map(str, table.labels)).items())), "columns": dict(kinds),
        "rows_with_missing_values": missing, "notes": list(table.notes),
    }  # fmt: skip


def _counted(count: int, thing: str) -> str:
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"


def _print_facts(table: Any, console: Console) -> None:
    facts = _facts(table)
    classes = [f"{name} ({count})" for name, count in facts["classes"].items()]
    more = f" and {len(classes) - 6} more" if len(classes) > 6 else ""
    kinds = ", ".join(f"{count} {kind}" for kind, count in facts["columns"].items())
    console.print(f"{plain(table.name)}: {len(table.labels)} rows, columns: {kinds}", style="bold")
    console.print(f"target {plain(table.target)}: {plain(', '.join(classes[:6]))}{more}")
    if facts["rows_with_missing_values"]:
        console.print(f"missing values are filled in, in {_counted(facts['rows_with_missing_values'], 'row')}")
    print_notes(table.notes, console)
    console.print()


def _print_ranking(found: Any, splits: int) -> None:
    ranking = RichTable(box=None, pad_edge=False)
    for name in ("", "method", "loss", "accuracy", "95 % interval", "k", "alpha"):
        ranking.add_column(name, justify="left" if name in ("method", "loss") else "right", no_wrap=True)
    for rank, result in enumerate(found.results, 1):
        low, high = 100 * (result.mean - result.half_width), 100 * (result.mean + result.half_width)
        k, alpha = ("" if math.isnan(value) else f"{value:{form}}" for value, form in zip(
            (result.k, result.alpha), (".0f", "g"), strict=True))  # fmt: skip
        interval = f"{max(low, 0):.1f} - {min(high, 100):.1f}"
        ranking.add_row(str(rank), result.label, result.loss, f"{100 * result.mean:.1f}", interval, k, alpha)
    ranking.add_row("", "always the largest class", "", f"{100 * found.majority:.1f}")
    out.print(ranking)
    out.print(
        f"Test accuracy in percent over {splits} splits; k (of {found.training_rows} training rows) and alpha = 1/C as "
        "chosen most often.\n"
    )


def fit(
    data: Data,
    output: Annotated[Path, typer.Option("--out", help="The model file to write.")],
    target: Target = "",
    classifier: Annotated[str, typer.Option(help="close-k-cv, close-k, logistic or hinge.")] = "close-k-cv",
    loss: Annotated[str, typer.Option(help="Of the close-k classifiers: logistic or hinge.")] = "logistic",
    multiclass: Annotated[str, typer.Option(help="More than two classes: ovr, top_two or softmax.")] = "top_two",
    rows: Annotated[int, typer.Option(help="Learn from at most so many rows, drawn by class; 0: all.", min=0)] = 50_000,
    drop: Drop = None,
    keep: Keep = None,
    seed: Seed = 0,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Fit preprocessing and a classifier to a table and save both in one file."""
    from closecall.linear.fitting import MULTICLASS
    from closecall.losses import LOSSES
    from closecall.tabular.model import CLASSIFIERS, TableModel
    from closecall.tabular.table import check_classes, read

    # Before a large table is read.
    lookup(CLASSIFIERS, classifier, "classifier"), lookup(LOSSES, loss, "loss")
    lookup(MULTICLASS, multiclass, "multiclass")
    table = read(data, target, drop=drop or (), keep=keep or (), data_dir=data_dir).sample(rows, seed)
    check_classes(table, 2)
    model = TableModel.fit(table, classifier, loss=loss, multiclass=multiclass)
    model.save(str(output))
    fitted = model.classifier
    searched = hasattr(fitted, "alpha_")
    kind, alpha = (fitted.aggregate_, fitted.alpha_) if searched else (fitted.aggregate, fitted.alpha)
    report = getattr(fitted, "guard_report_", {}).get("reason", "")
    if as_json:
        say({"kind": "model", "path": str(output), "classifier": classifier, "aggregate": kind, "loss": fitted.loss,
              "multiclass": multiclass, "alpha": alpha,
              "k": float(fitted.k_), "why": report, "table": _facts(table)})  # fmt: skip
        return
    _print_facts(table, err)
    err.print(f"fitted {kind} with k = {fitted.k_:g}, alpha = {alpha:g}" + (f": {plain(report)}" if report else ""))
    out.print(plain(output), soft_wrap=True)


def predict(
    model: Annotated[str, typer.Argument(help="A file that closecall fit wrote.")],
    data: Data,
    output: Annotated[str, typer.Option("--out", help="The CSV file to write; - for standard output.")] = "-",
    copy: Annotated[list[str] | None, typer.Option(help="Copy this column of the data; may be repeated.")] = None,
    chunk: Annotated[int, typer.Option(help="Rows in memory at a time.", min=1)] = 50_000,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Predict the classes of a table, piece by piece, however long it is."""
    from closecall.tabular.model import TableModel
    from closecall.tabular.table import stream

    loaded, tally = TableModel.load(model), _Tally()
    try:
        with opened(output) as file:
            for first, frame in enumerate(stream(data, chunk, data_dir=data_dir)):
                if not first:
                    tally.notes = loaded.check([str(name) for name in frame.columns], copy or [])
                    _check_copied(copy or [], [str(name) for name in frame.columns])
                header, rows = tally.take(loaded, frame, copy or [])
                write_rows(file, header, rows, as_json and output == "-", not first)
    except BrokenPipeError:  # the reader has seen enough; what is left in the buffer must not raise at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if as_json:
        say({"kind": "summary", "rows": tally.rows, "accuracy": tally.accuracy, "predicted": dict(tally.predicted),
              "notes": tally.told(), "out": output})  # fmt: skip
        return
    print_notes(tally.told(), err)
    known = "" if tally.accuracy is None else f", accuracy {tally.accuracy:.1%} on the {tally.labelled} with a label"
    err.print(f"{_counted(tally.rows, 'row')} predicted{known}")


def _check_copied(copied: list[str], names: list[str]) -> None:
    from closecall.data.columns import quoted

    missing = [name for name in copied if name not in names]
    if missing:
        raise ValueError(f"--copy {missing[0]!r}: the data has no such column; its columns are {quoted(names)}")
    clash = [name for name in copied if name in ("row", "prediction", "score")]
    if clash:
        raise ValueError(f"--copy {clash[0]!r}: the predictions have a column of that name; rename it")


class _Tally:
    """What is known at the end of a stream."""

    def __init__(self) -> None:
        self.rows = self.labelled = self.right = 0
        self.notes: tuple[str, ...] = ()
        self.strange: Counter[str] = Counter()
        self.predicted: Counter[str] = Counter()

    @property
    def accuracy(self) -> float | None:
        return self.right / self.labelled if self.labelled else None

    def take(self, model: Any, frame: Any, copied: list[str]) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """The header and the rows of predictions for one piece, counted."""
        from closecall.data.columns import texts

        labels, scores = model.predict(frame, self.strange)
        self.predicted.update(labels.tolist())
        if model.target in frame.columns:
            truth = texts(frame[model.target])
            self.labelled += int(truth.notna().sum())
            self.right += int((truth.to_numpy(dtype=object) == labels.astype(object)).sum())
        begin = self.rows + 1
        self.rows += len(frame)
        extra = [texts(frame[name]).fillna("").tolist() for name in copied]
        numbered = range(begin, begin + len(frame))
        return ["row", *copied, "prediction", "score"], zip(
            numbered, *extra, labels.tolist(), scores.tolist(), strict=True
        )

    def told(self) -> list[str]:
        """Notes on columns and values that the model did not expect."""
        return [*self.notes, *(
            f"{name!r}: {_counted(count, 'value')} not seen in training, or not what the column is: taken as none"
            for name, count in sorted(self.strange.items())
        )]  # fmt: skip

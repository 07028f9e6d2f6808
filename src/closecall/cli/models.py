"""The commands ``fit`` and ``predict``: arguments -> calls; results -> plain text, CSV or JSON lines."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from closecall._names import lookup
from closecall.tabular.output import opened, write_rows

from .console import DataDir, Json, err, out, plain, print_notes, say
from .tables import (
    Data,
    Drop,
    Encoding,
    Keep,
    Nominal,
    Numeric,
    Seed,
    Sep,
    Target,
    counted,
    facts_of,
    print_facts,
    reading_of,
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
    numeric: Numeric = None,
    nominal: Nominal = None,
    sep: Sep = "",
    encoding: Encoding = "",
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
    reading = reading_of(sep, encoding, drop, keep, numeric, nominal)
    table = read(data, target, reading, data_dir=data_dir).sample(rows, seed)
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
              "k": float(fitted.k_), "why": report, "table": facts_of(table)})  # fmt: skip
        return
    print_facts(table, err)
    err.print(f"fitted {kind} with k = {fitted.k_:g}, alpha = {alpha:g}" + (f": {plain(report)}" if report else ""))
    out.print(plain(output), soft_wrap=True)


def predict(
    model: Annotated[str, typer.Argument(help="A file that closecall fit wrote.")],
    data: Data,
    output: Annotated[str, typer.Option("--out", help="The CSV file to write; - for standard output.")] = "-",
    copy: Annotated[list[str] | None, typer.Option(help="Copy this column of the data; may be repeated.")] = None,
    chunk: Annotated[int, typer.Option(help="Rows in memory at a time.", min=1)] = 50_000,
    sep: Sep = "",
    encoding: Encoding = "",
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Predict the classes of a table, piece by piece, however long it is."""
    from closecall.tabular.model import TableModel
    from closecall.tabular.table import stream

    loaded, tally = TableModel.load(model), _Tally()
    try:
        with opened(output) as file:
            for first, frame in enumerate(
                stream(data, chunk, reading_of(sep, encoding, None, None, None, None), data_dir=data_dir)
            ):
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
    err.print(f"{counted(tally.rows, 'row')} predicted{known}")


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
            f"{name!r}: {counted(count, 'value')} not seen in training, or not what the column is: taken as none"
            for name, count in sorted(self.strange.items())
        )]  # fmt: skip

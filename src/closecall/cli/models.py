"""The commands ``fit``, ``predict`` and ``explain``."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import typer

from closecall.report.formats import write_csv
from closecall.report.text import counted
from closecall.table.read.files import opened

from . import tables as t
from .console import Json, err, out, plain, print_grid, print_notes, say
from .streams import are_streamed, fit_files, tables_of
from .tables import print_facts, reading_of

ModelFile = Annotated[str, typer.Argument(help="A file written by closecall fit.")]
Trust = Annotated[list[str] | None, typer.Option(help="A type from another package to allow in the model file.")]
#: Number of coefficients that ``fit`` prints.
LARGEST = 5
#: The largest numbers of rows and of scores (rows times classes) to hold in memory at a time.
CHUNK, SCORES = 50_000, 1 << 24


def fit(
    data: t.Files,
    output: Annotated[Path, typer.Option("--out", help="The model file to write.")],
    target: t.Target = "",
    model: Annotated[str, typer.Option(help="A contender from compare: close_k, "
                                       "random_forest, atk, tilted, 'tilted(-2)', package:Class ...")] = "close_k",
    loss: t.Loss = "logistic", multiclass: t.Multiclass = "top_two", metric: t.Metric = "accuracy",
    splits: Annotated[int, typer.Option(help="Number of random splits for the estimate; 0 for none.", min=0)] = 5,
    groups: t.Groups = "", time: t.Time = "",
    rows: Annotated[int, typer.Option(help="Train on at most this many rows; 0 for all.", min=0)] = 50_000,
    drop: t.Drop = None, keep: t.Keep = None, numeric: t.Numeric = None, nominal: t.Nominal = None,
    no_squash: t.NoSquash = False, sep: t.Sep = "", encoding: t.Encoding = "", seed: t.Seed = 0,
    onnx: Annotated[Path | None, typer.Option(help="Also write the model as ONNX.", show_default=False)] = None,
    stream: Annotated[bool, typer.Option("--stream", help="Fit in passes over all rows of Parquet files; automatic for "
                                         "several files, a folder, or a table too large for memory.")] = False,
    cluster: Annotated[str | None, typer.Option(help="Address of a Dask scheduler for fitting Parquet files; 'local' "
                                                "starts workers on this machine.", show_default=False)] = None,
    jobs: Annotated[int, typer.Option(help="Number of processes that read Parquet files in passes.", min=1)] = 1,
    as_json: Json = False,
) -> None:  # fmt: skip
    """Fit preprocessing and a classifier to a table, estimate how well they predict, and save both in one file."""
    from closecall.table.deploy import check_onnx, write_onnx
    from closecall.table.divide import Order
    from closecall.table.keep import options_for
    from closecall.table.measure import METRICS
    from closecall.table.model import TableModel
    from closecall.table.table import check_classes, read
    from closecall.table.train import check_model, chosen_words, estimate, estimate_words, why_none
    from closecall.table.tuning import How

    # Wrong arguments are reported before a large table is read.
    model = check_model(model)
    how = How(loss, multiclass, metric.replace("-", "_"), squashed=not no_squash)
    reading = reading_of(sep, encoding, drop, keep, numeric, nominal)
    if onnx:
        check_onnx(model)
    if are_streamed(data, stream, cluster):
        refused = {"groups": groups, "time": time, "nominal": nominal, "onnx": onnx, "metric": how.metric != "accuracy"}
        fit_files(data, output, target, model, how, reading, cluster, jobs, as_json, refused)
        return
    table = read(data[0], target, reading)
    order, table = Order.of(table.sample(rows, seed), groups, time)
    check_classes(table, 2)
    fitted = TableModel.fit(table, model, how, order)
    table = replace(table, notes=(*table.notes, *fitted.recipe.notes(table.frame)))
    fitted.save(str(output))
    if onnx:
        write_onnx(fitted, str(onnx))
    tried = estimate(table, model, how, order, splits, seed)
    why = chosen_words(fitted.classifier, model, METRICS[how.metric])
    if as_json:
        say(_record(fitted, output, model, why, tried, table))
        return
    print_facts(table, err)
    for line in filter(None, (estimate_words(tried) if tried else why_none(table, splits, order), why)):
        err.print(plain(line), soft_wrap=True)
    if not fitted.linear and output.is_file() and (options := options_for(output)):
        err.print(plain(f"note: predict and explain need {options}"), style="yellow", soft_wrap=True)
    several = len(fitted.classifier.classes_) > 2
    largest = ", ".join(
        f"{each['name']}{' (for ' + each['class'] + ')' if several else ''} {each['coefficient']:+.3g}"
        for each in fitted.coefficients[:LARGEST]
    )
    if largest:
        err.print(plain(f"largest coefficients, per standard deviation: {largest}"), soft_wrap=True)
    out.print(plain(output), soft_wrap=True)


def _record(fitted: Any, output: Path, model: str, why: str, tried: Any, table: Any) -> dict[str, Any]:
    from closecall.table.report import facts_of
    from closecall.table.train import estimate_record

    found = fitted.classifier
    record = {
        "kind": "model", "path": str(output), "classifier": model, "setting": getattr(found, "setting_", ""),
        "why": why, "estimate": estimate_record(tried) if tried else None, "coefficients": fitted.coefficients[:100],
        "table": facts_of(table),
    }  # fmt: skip
    if not fitted.linear:
        return record
    searched = hasattr(found, "alpha_")
    kind, alpha = (found.aggregate_, found.alpha_) if searched else (found.aggregate, found.alpha)
    return record | {
        "aggregate": kind, "loss": getattr(found, "loss_", found.loss), "alpha": alpha, "k": float(found.k_),
        "multiclass": getattr(found, "multiclass_", found.multiclass),
    }  # fmt: skip


def predict(
    model: ModelFile,
    data: t.Files,
    output: Annotated[str, typer.Option("--out", help="The CSV file to write; - for standard output.")] = "-",
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add a probability column for each class.")
    ] = False,
    copy: Annotated[list[str] | None, typer.Option(help="Copy this column to the output; may be repeated.")] = None,
    trust: Trust = None, sep: t.Sep = "", encoding: t.Encoding = "",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Predict the class of every row in a table of any length."""
    from closecall.table.table import stream

    loaded, tally = _loaded(model, data, trust), _Tally(probabilities)
    chunk = max(1, min(CHUNK, SCORES // len(loaded.classifier.classes_)))
    reading = reading_of(sep, encoding)
    try:
        with opened(output) as file:
            frames = (frame for each in tables_of(data) for frame in stream(each, chunk, reading))
            for number, frame in enumerate(frames):
                header, rows = tally.take(loaded, frame, copy or [])
                if as_json and output == "-":
                    for row in rows:
                        say({"kind": "prediction", **dict(zip(header, row, strict=True))})
                else:
                    write_csv(file, rows if number else chain([header], rows))
    except BrokenPipeError:  # the reader has closed the pipe, and flushing the buffer at exit must not fail
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return
    if as_json:
        say({"kind": "summary", "rows": tally.rows, "accuracy": tally.accuracy, "learnt_from": tally.learnt,
             "predicted": dict(tally.predicted), "notes": tally.all_notes(), "out": output})  # fmt: skip
        return
    print_notes(tally.all_notes(), err)
    line = f"{counted(tally.rows, 'row')} predicted"
    if tally.labelled:
        line += f", accuracy {tally.accuracy:.1%} on {counted(tally.labelled, 'row')} with a label"
    err.print(line)


def _loaded(model: str, data: list[str], trust: list[str] | None) -> Any:
    """Load the model; raise an error if a model was passed where data is expected."""
    from closecall.table.model import TableModel
    from closecall.table.table import is_model

    swapped = [each for each in data if is_model(each)]
    if swapped and not is_model(model):
        raise ValueError(f"{swapped[0]!r} is a closecall model and {model!r} is not: swap them; the model comes first")
    return TableModel.load(model, trust or ())


class _Tally:
    """Totals collected over a stream of predictions."""

    def __init__(self, probabilities: bool) -> None:
        self.probabilities = probabilities
        self.rows = self.labelled = self.right = self.comparable = self.known = 0
        self.notes: dict[str, None] = {}
        self.strange: Counter[str] = Counter()
        self.predicted: Counter[str] = Counter()

    @property
    def accuracy(self) -> float | None:
        return self.right / self.labelled if self.labelled else None

    @property
    def learnt(self) -> float:
        """The estimated share of labelled rows that were used in training."""
        return self.known / max(self.comparable, 1)

    def take(self, model: Any, frame: Any, copied: list[str]) -> tuple[list[str], Iterator[tuple[Any, ...]]]:
        """Return the header and the prediction rows for one piece of the data; update the totals."""
        from closecall.table.read.columns import quoted, texts

        names = [str(name) for name in frame.columns]
        self.notes |= dict.fromkeys(model.check(names, copied))  # the files may have different columns
        for name in copied:
            if name not in names:
                raise ValueError(f"--copy {name!r}: the data has no such column; its columns are {quoted(names)}")
            if name in ("row", "prediction", "score"):
                raise ValueError(f"--copy {name!r}: the output already has a column with that name; rename yours")
        strange: Counter[str] = Counter()
        labels, scores = model.predict(frame, strange)
        model.check_numbers(frame, strange)
        self.strange += strange
        self.predicted.update(labels.tolist())
        if model.target in frame.columns:
            truth = texts(frame[model.target])
            known = truth.notna().to_numpy()
            self.labelled += int(known.sum())
            self.right += int((truth.to_numpy(dtype=object) == labels.astype(object)).sum())
            comparable, seen = model.learnt_from(frame[known], truth[known].to_numpy(dtype=str))
            self.comparable, self.known = self.comparable + comparable, self.known + seen
        begin = self.rows + 1
        self.rows += len(frame)
        columns = [texts(frame[name]).fillna("").tolist() for name in copied]
        columns += [labels.tolist(), scores.tolist()]
        header = ["row", *copied, "prediction", "score"]
        if self.probabilities:
            header += [f"p({name})" for name in model.classifier.classes_]
            columns += model.probabilities(frame).T.tolist()
        return header, zip(range(begin, begin + len(frame)), *columns, strict=True)

    def all_notes(self) -> list[str]:
        """Return notes on unexpected columns and values, and on rows used in training."""
        found = [
            f"{name!r}: {counted(count, 'value')} treated as missing (unknown or of a different type)"
            for name, count in sorted(self.strange.items())
        ]
        if self.learnt > 0.1:
            found.append(
                f"the model was trained on {self.learnt:.0%} of the rows with a label, so its accuracy on them says "
                "little about new rows (closecall fit printed an estimate)"
            )
        return [*self.notes, *found]


def explain(
    model: ModelFile,
    data: t.Data,
    row: Annotated[int, typer.Option(help="Row of the data to explain, counted from 1.", min=1)] = 1,
    trust: Trust = None, sep: t.Sep = "", encoding: t.Encoding = "",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Show how much each column contributes to the prediction for a row, with values in the units of the table."""
    from closecall.table.explain import explain as explained
    from closecall.table.table import stream

    loaded, begin = _loaded(model, [data], trust), 0
    for frame in stream(data, 50_000, reading_of(sep, encoding)):
        loaded.check([str(name) for name in frame.columns])
        if row <= begin + len(frame):
            head, pulls = explained(loaded, frame.iloc[row - 1 - begin :])
            break
        begin += len(frame)
    else:
        raise ValueError(f"--row {row}: the data has {counted(begin, 'row')}; rows are counted from 1")
    if as_json:
        for record in ({"kind": "prediction", "row": row, **head}, *({"kind": "pull", **each} for each in pulls)):
            say(record)
        return
    chance = "" if head["probability"] is None else f", probability {head['probability']:.1%}"
    out.print(plain(f"row {row}: {head['prediction']}{chance} (rather than {head['against']})"), style="bold")
    header = ("column", "value", "usual", "pull", "per unit", "flips at")
    rows = [
        (each["column"], each["value"][:30], each["usual"][:30], f"{each['pull']:+.3f}",
         "" if each["per_unit"] is None else f"{each['per_unit']:+.3g}", each["flips_at"] or "")
        for each in pulls
    ]  # fmt: skip
    print_grid(header, rows, left=(0, 1, 2))
    start, score = f"A typical row has a score of {head['start']:+.3f}", f"{head['score']:+.3f}"
    means = f"a score above 0 means {plain(head['prediction'])}."
    if head["adds_up"]:
        out.print(f"{start}. Adding the values in the column 'pull' gives {score}; {means}")
    else:
        out.print(f"{start}, and this row has {score}; {means} Each 'pull' is the amount by which the score would drop "
                  "if the column had its usual value. The model is not linear, so these need not add up.")  # fmt: skip

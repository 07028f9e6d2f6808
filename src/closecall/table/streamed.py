"""Fit models to Parquet files too large for memory: one pass summarises the columns, and the others fit the model.

The model and its file are the same as for a table in memory: numbers are filled in, scaled and squashed as in
:class:`closecall.table.preprocess.Preprocessor`, with the quantiles of :mod:`closecall.cluster.columns`; labels are
text.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from closecall.cluster import (
    DaskAggregateLossClassifier,
    DaskCloseKClassifier,
    DaskCloseKClassifierCV,
    ParquetSource,
    PassEvent,
)
from closecall.cluster.classifier import MAX_GATHERED
from closecall.cluster.columns import Columns, columns_of
from closecall.cluster.parquet_source import Recast, first_columns
from closecall.preprocessing import BOUND
from closecall.report.text import listed
from closecall.table.read.columns import Column, check_target, quoted, target_of, texts, without_label
from closecall.table.read.dataset import DataError, need_pandas
from closecall.table.read.sheet import check_names

from .model import TableModel
from .preprocess import Preprocessor, Step
from .tuning import How

#: The classifiers of the models that ``--model`` accepts.
STREAMED: dict[str, Callable[..., Any]] = {
    "close_k": DaskCloseKClassifierCV,
    "close-k": DaskCloseKClassifier,
    "logistic": DaskAggregateLossClassifier,
}


@dataclass(frozen=True)
class Streamed:
    """A fitted model with the number of rows in each class, the number of passes, and notes."""

    model: TableModel
    classes: dict[str, int]
    passes: int
    notes: tuple[str, ...]


def schema_of(paths: Sequence[str], target: str, drop: Collection[str]) -> tuple[str, list[str], tuple[str, ...]]:
    """Return the target, the features, and notes; a column that is missing or not numeric raises an error."""
    first, kinds = first_columns(paths)
    target, notes = target_of(need_pandas().DataFrame(columns=list(kinds)), target, first)
    check_names(drop, kinds, first)
    features = [name for name in kinds if name not in (target, *drop)]
    words = [name for name in features if not kinds[name]]
    if words:
        drops = " ".join(f"--drop {name!r}" for name in words[:8])
        raise DataError(
            f"{first!r}: the columns {quoted(words)} are not numeric, and a streamed fit needs numbers: leave "
            f"them out ({drops}), or write them as numbers"
        )
    if not features:
        raise DataError(f"{first!r} has no column besides the target {target!r}")
    return target, features, notes


def classes_of(
    labels: dict[Any, int], target: str, what: str = "table"
) -> tuple[dict[Any, int], dict[str, int], tuple[str, ...]]:
    """Return the code of each value of a target, the number of rows in each class, and notes."""
    values = list(labels)
    text = texts(need_pandas().Series(values)).tolist()
    names = {value: name for value, name in zip(values, text, strict=True) if value is not None and name == name}
    counts: dict[str, int] = dict.fromkeys(sorted(set(names.values())), 0)
    for value, name in names.items():
        counts[name] += labels[value]
    if not counts:
        raise DataError(f"{what!r}: the target {target!r} is empty in every row; choose another with --target")
    check_target(list(counts), any(isinstance(value, float) and value % 1 for value in names), target, what)
    place = {name: number for number, name in enumerate(counts)}
    notes = without_label(sum(labels.values()) - sum(counts.values()), target)
    return {value: place[name] for value, name in names.items()}, counts, notes


def fit_streamed(
    source: ParquetSource, model: str = "close_k", how: How | None = None, *, keep: Collection[str] = (),
    callback: Callable[[PassEvent], None] | None = None, max_gathered: int = MAX_GATHERED,
) -> Streamed:  # fmt: skip
    """Fit a model from :data:`STREAMED` to the numeric columns of Parquet files, read locally or by Dask workers.

    If the table has more than ``max_gathered`` entries, its rows are not gathered, and with more than two classes, each
    is fitted against the rest. ``callback`` receives a :class:`closecall.cluster.PassEvent` for every partition of
    every pass.
    """
    how = how or How()
    target = source.pieces[0].target
    found = _look(source, callback)
    codes, classes, notes = classes_of(found.labels, target, source.files[0])
    used, more = _used(found, source.features, keep)
    names = [source.features[place] for place in used]
    center, scale = found.robust if how.squashed else (found.mean, found.scale)
    bound, multiclass = BOUND if how.squashed else np.inf, how.multiclass
    single = sum(classes.values()) * len(names) > max_gathered
    recast = Recast(center[used], scale[used], codes, single=single, bound=bound)
    more = (*more, *_pulled(found, used, names, recast))
    if len(classes) > 2 and recast.single and multiclass != "ovr":
        multiclass = "ovr"
        more = (*more, "too many rows: the classes are fitted one-vs-rest (--multiclass ovr)")
    settings: dict[str, Any] = {"multiclass": multiclass, "callback": callback, "max_gathered": max_gathered}
    if STREAMED[model] is DaskCloseKClassifierCV:
        settings |= {"calibration": "sigmoid", "random_state": 0}
    fitted = STREAMED[model](loss=how.loss, **settings)
    with closing(source.recast(recast, names)) as recoded:
        fitted.fit_source(recoded)
    local = fitted.to_local()
    local.classes_ = np.array(list(classes))
    steps = tuple(Step(Column(name, "number"), float(mean)) for name, mean in zip(names, recast.mean, strict=True))
    table_model = TableModel(target, Preprocessor(steps, recast.mean, recast.scale, bound), local)
    return Streamed(table_model, classes, fitted.n_passes_ + 1, (*notes, *more))


def _pulled(found: Columns, used: Sequence[int], names: Sequence[str], recast: Recast) -> tuple[str, ...]:
    """Return a note on columns with squashed cells, with the share of these cells in the sample."""
    low, high = (np.abs(end[used] - recast.mean) / recast.scale > recast.bound for end in (found.low, found.high))
    with np.errstate(over="ignore", invalid="ignore"):
        shares = (np.abs(found.sample[:, used] - recast.mean) / recast.scale > recast.bound).mean(axis=0)
    columns = [f"{names[j]!r} ({shares[j]:.2%})" for j in np.flatnonzero(low | high).tolist()]
    if not columns:
        return ()
    beyond = f"beyond {recast.bound:g} robust deviations are squashed (--no-squash keeps them)"
    return (f"cells of {listed(columns, 5, 'and {} more columns')} {beyond}",)


def _look(source: ParquetSource, callback: Callable[[PassEvent], None] | None) -> Columns:
    """Make the first pass, which summarises the columns."""
    found, done = dict[int, Columns](), 0
    for number, columns in source.each(columns_of):
        found[number], done = columns, done + columns.rows
        if callback is not None:
            callback(PassEvent("columns", 0, len(found), source.partitions, done, source.rows))
    return reduce(add, (found[number] for number in sorted(found)))


def _used(found: Columns, names: Sequence[str], keep: Collection[str]) -> tuple[list[int], tuple[str, ...]]:
    """Return the columns used as features, and notes on the others."""
    used, notes = list[int](), list[str]()
    for place, name in enumerate(names):
        if not found.known[place]:
            notes.append(f"{name!r} is left out: it has no values")
        elif found.low[place] == found.high[place]:
            notes.append(f"{name!r} is left out: it has only one value, {found.low[place]:g}")
        elif found.rising[place] and found.rows > 2 and name not in keep:
            notes.append(
                f"{name!r} is left out: its integers number the rows, as an identifier does (use --keep to include it)"
            )
        else:
            used.append(place)
    if not used:
        raise DataError(f"there is no usable column besides the target: {'; '.join(notes)}")
    return used, tuple(notes)

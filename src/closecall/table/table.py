"""Read a table for training or prediction: a user's file, or a data set by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np

from closecall.table.read.columns import Column
from closecall.table.read.dataset import DataError
from closecall.table.read.files import expanded, suffix_of
from closecall.table.read.sheet import CHUNK, Reading, Sheet, check_names, read_file, stream_file

from . import keep


def _is_file(source: str) -> bool:
    """Return whether a source is a file or standard input rather than the name of a data set; reject models."""
    if is_model(source):
        raise DataError(f"{source!r} is a closecall model, not data; apply it with closecall predict {source} DATA")
    return source == "-" or "://" in source or bool(suffix_of(source)) or expanded(source).exists()


def is_model(source: str) -> bool:
    """Return whether a source is a saved closecall model, judging by the names in the archive."""
    path = expanded(source)
    if source == "-" or not path.is_file():
        return False
    return keep.is_skops(path) or {"header.npy", "checksum.npy"} <= keep.members_of(path)


def read(source: str, target: str = "", reading: Reading | None = None) -> Sheet:
    """Read a table to learn from, and detect its columns.

    The source is a file, ``-`` for standard input, or the name of a data set (``monk3``, ``pmlb:...``,
    ``openml:...``). If the target is empty, a column with one of the usual names is chosen, otherwise the last one.

    Examples
    --------
    >>> table = read("monk3")
    >>> table.labels.shape, [column.kind for column in table.columns][:2]
    ((554,), ['number', 'number'])
    """
    reading = reading or Reading()
    if _is_file(source):
        return read_file(source, target, reading)
    named = _named(source)
    if target and target != named.target:
        raise DataError(f"the target of the data set {source!r} is {named.target!r}, not {target!r}; omit --target")
    check_names(reading.named, [column.name for column in named.columns], source)
    used = (column for column in named.columns if column.name not in reading.drop)
    columns = tuple(replace(column, kind=reading.forced.get(column.name, column.kind)) for column in used)
    return replace(named, columns=columns)


def stream(source: str, rows: int = CHUNK, reading: Reading | None = None) -> Iterator[Any]:
    """Yield frames of at most ``rows`` rows from a file or a data set."""
    if _is_file(source):
        yield from stream_file(source, rows, reading=reading)
    else:
        frame = _named(source).frame
        yield from (frame.iloc[begin : begin + rows] for begin in range(0, len(frame), rows))


def _named(source: str) -> Sheet:
    """Return a data set with its labels as an additional column."""
    try:  # a clone of the project has the data sets of the benchmark; the installed package does not
        load = import_module("reproduction.protocol").load_dataset
    except ModuleNotFoundError:
        raise DataError(f"there is no file {source!r}") from None
    data = load(source)
    frame, target = data.frame(), "target"
    while target in data.feature_names:
        target += "_"
    frame[target] = np.array(data.classes, dtype=object)[data.y]
    kinds = ["number" if values is None else "nominal" for values in data.categories]
    columns = tuple(map(Column, data.feature_names, kinds))
    return Sheet(source, frame, target, frame[target].to_numpy(dtype=object), columns)


def check_classes(table: Sheet, least: int) -> None:
    """Raise an error if a class has fewer than ``least`` rows, or if there are more than 1000 classes."""
    classes = Counter(table.labels.astype(str).tolist())
    rare = [f"{name!r} ({classes[name]})" for name in sorted(classes) if classes[name] < least]
    if rare:
        few = f"{', '.join(rare[:5])}{', ...' if len(rare) > 5 else ''} of {table.target!r}"
        of = "the class" if len(rare) == 1 else f"{len(rare)} classes"
        advice = f"every class needs {least} or more: drop those rows or merge the classes"
        raise DataError(f"{table.name!r}: too few rows of {of} {few}; {advice}")
    if len(classes) > 1000:
        raise DataError(f"{table.name!r}: {len(classes)} classes are too many; is {table.target!r} the target?")

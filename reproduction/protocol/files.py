"""Conversion of files to pandas frames, and of frames to data sets."""

import csv
import gzip
import io
import warnings
import zlib
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from closecall._budget import LIMIT, Budget, BudgetError, Readable
from closecall._files import whole_file
from closecall._names import Array
from closecall.table.read.columns import numbers, texts
from closecall.table.read.dataset import DataError, in_order, need_pandas
from closecall.table.read.files import SEPARATORS, suffix_of
from closecall.table.read.sheet import Sheet

from .dataset import Dataset

#: The name of a column, its numbers or codes (NaN if missing), and the meaning of the codes, if any.
Column = tuple[str, Array, tuple[str, ...] | None]


def write_whole(path: Path, content: str | bytes) -> Path:
    """Create the folder for a file, and write the file completely or not at all; invalid characters are escaped."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as file:
        file.write(content if isinstance(content, bytes) else content.encode(errors="backslashreplace"))
    return path


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file that this project wrote, as dictionaries of strings."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_bytes(path: Path, limit: int = LIMIT, packed: bytes | None = None) -> bytes:
    """Return the content of a file (or of ``packed``), up to ``limit`` bytes; gzip content is unpacked."""
    try:
        with path.open("rb") if packed is None else io.BytesIO(packed) as file:
            return read_bounded(gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file, path, limit)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is truncated or not a gzip file ({error}); delete it and fetch it again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def read_bounded(file: Readable, what: object, limit: int) -> bytes:
    """Return the content of a file, or raise an error as soon as it exceeds ``limit`` bytes."""
    try:
        return Budget(limit).read(file)
    except BudgetError as error:
        raise DataError(f"{what}: {error}") from None


def read_table(path: Path, target: str, nominal: Collection[str] = (), packed: bytes | None = None) -> Any:
    """Read a CSV or TSV file into a pandas frame, with the target and the nominal columns as text."""
    pd, raw = need_pandas(), read_bytes(path, packed=packed)
    # From version 3.1 on, pandas reads every digit by default, and the option is deprecated.
    old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
    try:
        with warnings.catch_warnings():
            # pandas only warns about rows longer than the header, and drops the excess.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                io.BytesIO(raw), sep=SEPARATORS[suffix_of(path)], dtype=dict.fromkeys((target, *nominal), str),
                index_col=False, encoding="utf-8-sig", keep_default_na=False, na_values=[""], low_memory=False,
                **({"float_precision": "round_trip"} if old else {}),
            )  # fmt: skip
    except (ValueError, pd.errors.ParserWarning) as error:
        raise DataError(f"{path} is not a UTF-8 table with rows of equal length ({str(error).strip()})") from error


def from_frame(
    frame: Any, target: str, *, name: str, source: str, version: str, nominal: Collection[str] = ()
) -> Dataset:
    """Convert a pandas frame to a `Dataset`; non-numeric columns and those listed in ``nominal`` are nominal."""
    pd = need_pandas()
    if target not in frame.columns:
        shown = ", ".join(map(repr, map(str, frame.columns[:8]))) + (", ..." if frame.shape[1] > 8 else "")
        raise DataError(f"data set {name!r} has no target column {target!r}; its columns are {shown}: name the target")
    labels = frame[target]
    if labels.isna().any() or not len(labels):
        raise DataError(f"data set {name!r}: the target is missing in {labels.isna().sum()} of {len(labels)} rows")
    if labels.nunique() > max(2, len(frame) // 2):
        raise DataError(f"data set {name!r}: the {labels.nunique()} values of the target cannot be classes")

    def column(label: Any) -> Column:
        values = frame[label]
        if label in nominal or not pd.api.types.is_numeric_dtype(values):
            return str(label), *_coded(values)
        return str(label), values.to_numpy(dtype=np.float64, na_value=np.nan), None

    return _dataset(map(column, frame.columns.drop(target)), labels, name, source, version)


def from_sheet(sheet: Sheet) -> Dataset:
    """Convert a user's table to a `Dataset` of numbers and codes."""
    columns: list[Column] = []
    for column in sheet.columns:
        values = sheet.frame[column.name]
        coded = _coded(texts(values)) if column.kind == "nominal" else (numbers(values, column), None)
        columns.append((column.label, *coded))
    return _dataset(columns, need_pandas().Series(sheet.labels), sheet.name, "file", "")


def _dataset(columns: Iterable[Column], labels: Any, name: str, source: str, version: str) -> Dataset:
    y, classes = _coded(labels)
    names, values, categories = zip(*columns, strict=True)
    return Dataset(name, source, version, np.column_stack(values), y, classes, names, categories)


def _coded(column: Any) -> tuple[Array, tuple[str, ...]]:
    """Return codes (NaN if missing) and the sorted distinct values as text; integral floats are written as integers."""
    codes, values = need_pandas().factorize(column)
    words = [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in values]
    ordered = in_order(words)
    place = {word: code for code, word in enumerate(ordered)}
    return np.array([*(place[word] for word in words), np.nan])[codes], ordered

"""Read data sets from files, and write files completely or not at all."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import os
import shutil
import tempfile
import warnings
import zlib
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from closecall._budget import LIMIT, Budget, BudgetError, Readable
from closecall.table.read.columns import numbers, texts
from closecall.table.read.dataset import DataError, in_order, need_pandas
from closecall.table.read.files import MAX_HEADER, SEPARATORS, Text, check_columns, suffix_of
from closecall.table.read.parquet import read_parquet
from closecall.table.read.sheet import Sheet

from .dataset import Dataset


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of one of our own CSV files, as text by column."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def read_bytes(path: Path, limit: int = LIMIT, separator: str = "") -> bytes:
    """Return the content of a file, unpacked if it is gzip, up to ``limit`` bytes.

    With a separator, the memory for its cells is limited too.
    """
    try:
        with path.open("rb") as file:
            if not path.name.lower().endswith(".gz"):
                return read_bounded(Text(b"", file, path, Budget(limit), separator), path, limit)
            if file.read(2) != b"\x1f\x8b":
                raise DataError(f"{path} is not a gzip file (a Git LFS pointer, perhaps); fetch the file itself")
            file.seek(0)
            with gzip.GzipFile(fileobj=file) as packed:
                return read_bounded(Text(b"", packed, path, Budget(limit), separator), path, limit)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path} is truncated or damaged ({error}); delete it and fetch it again") from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def read_bounded(file: Readable, what: object, limit: int) -> bytes:
    """Return the content of a file, or raise an error as soon as it exceeds ``limit`` bytes."""
    try:
        return Budget(limit).read(file)
    except BudgetError as error:
        raise DataError(f"{what}: {error}") from None


def read_table(path: Path, target: str, nominal: Collection[str] = ()) -> Any:
    """Read a CSV, TSV or Parquet file as a pandas frame, with the target and the nominal columns as text."""
    kind = suffix_of(path)
    if not kind:
        raise DataError(f"{path}: unknown kind of file; give one of {', '.join(SEPARATORS)} (or with .gz)")
    if kind == ".parquet":
        return read_parquet(path, LIMIT)
    separator = SEPARATORS[kind]
    return parse_table(read_bytes(path, separator=separator), separator, path, target, nominal)


def parse_table(raw: bytes, separator: str, what: object, target: str, nominal: Collection[str]) -> Any:
    """Parse a table's bytes as a pandas frame, with an error for anything that pandas would silently repair."""
    pd = need_pandas()
    try:
        first = io.StringIO(raw[:MAX_HEADER].decode("utf-8-sig", errors="ignore"), newline="")
        header = next(csv.reader(first, delimiter=separator), [])
        text = {name: str for name in header if name == target or name in nominal}
        twice = [name for name, count in Counter(header).items() if count > 1]
        if twice:
            raise DataError(f"{what}: the columns {', '.join(map(repr, twice[:5]))} appear more than once; rename them")
        check_columns(len(header), what)
        # pandas reads every digit by default from 3.1 on, where the option is deprecated.
        old = tuple(map(int, pd.__version__.split(".")[:2])) < (3, 1)
        with warnings.catch_warnings():
            # pandas only warns about rows longer than the header, and drops the excess.
            warnings.simplefilter("error", pd.errors.ParserWarning)
            return pd.read_csv(
                io.BytesIO(raw), sep=separator, dtype=text, index_col=False, encoding="utf-8-sig",
                keep_default_na=False, na_values=[""], low_memory=False,
                **({"float_precision": "round_trip"} if old else {}),
            )  # fmt: skip
    except pd.errors.EmptyDataError as error:
        raise DataError(f"{what} is empty; it needs a header line and rows") from error
    except (pd.errors.ParserError, pd.errors.ParserWarning, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{what} is not a UTF-8 table with rows of equal length ({str(error).strip()})") from error


def from_frame(
    frame: Any, target: str, *, name: str, source: str, version: str, nominal: Collection[str] = ()
) -> Dataset:
    """Convert a pandas frame to a `Dataset`; columns in ``nominal`` and those without numbers are nominal."""
    pd = need_pandas()
    if target not in frame.columns:
        shown = ", ".join(map(repr, map(str, frame.columns[:8]))) + (", ..." if frame.shape[1] > 8 else "")
        raise DataError(f"data set {name!r} has no target column {target!r}; its columns are {shown}: name the target")
    if not len(frame):
        raise DataError(f"data set {name!r} has no rows")
    labels = frame[target]
    if labels.isna().any():
        row = int(np.flatnonzero(labels.isna())[0]) + 1
        raise DataError(f"data set {name!r}: the target is missing in {labels.isna().sum()} rows (the first is {row})")
    y, classes = _codes(labels, pd)
    if len(classes) > max(2, len(frame) // 2):
        raise DataError(
            f"data set {name!r}: {len(classes)} classes in {len(frame)} rows; {target!r} is not a class label"
        )
    X, categories = _columns(frame.drop(columns=target), nominal, name, pd)
    names = tuple(str(column) for column in frame.columns if column != target)
    return Dataset(name, source, version, X, y, classes, names, categories)


def _columns(
    features: Any, nominal: Collection[str], name: str, pd: Any
) -> tuple[Any, tuple[tuple[str, ...] | None, ...]]:
    """Return all columns as one float matrix, nominal ones as codes, and the categories of the nominal ones."""
    kinds = features.dtypes.items()
    is_number = np.array([c not in nominal and pd.api.types.is_numeric_dtype(kind) for c, kind in kinds], dtype=bool)
    X = np.empty(features.shape)
    X[:, is_number] = features.loc[:, is_number].to_numpy(dtype=np.float64, na_value=np.nan)
    categories: list[tuple[str, ...] | None] = [None] * X.shape[1]
    for j in np.flatnonzero(~is_number):
        column = features.iloc[:, j]
        if pd.api.types.is_datetime64_any_dtype(column) or pd.api.types.is_timedelta64_dtype(column):
            raise DataError(f"data set {name!r}: column {features.columns[j]!r} is a time; turn it into a number first")
        codes, categories[j] = _codes(column, pd)
        X[:, j] = np.where(codes < 0, np.nan, codes)
    return X, tuple(categories)


def _codes(column: Any, pd: Any) -> tuple[Any, tuple[str, ...]]:
    """Return codes (-1 is missing) and the sorted distinct values as text, whole floats as integers."""
    codes, values = pd.factorize(column)
    texts = [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in values]
    ordered = in_order(texts)
    place = {text: code for code, text in enumerate(ordered)}
    return np.array([place[text] for text in texts] + [-1])[codes], ordered


@contextmanager
def staged(final: Path) -> Iterator[Path]:
    """Yield a path to write to, which is moved to ``final`` at the end; after an error ``final`` is unchanged.

    The temporary name begins with a dot, unlike the names of data sets, so a half-written set is never read.
    """
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        room = Path(tempfile.mkdtemp(prefix=".part-", dir=final.parent))
    except OSError as error:
        raise _cannot_write(final, error) from error
    try:
        part = room / final.name
        yield part
        for file in part.iterdir() if part.is_dir() else [part]:
            with file.open("rb+") as handle:
                os.fsync(handle.fileno())
        os.replace(part, final)
    except OSError as error:
        # A folder cannot replace a full one: another process was faster, and its copy is as good.
        if not (final.is_dir() and part.is_dir()):
            raise _cannot_write(final, error) from error
    finally:
        shutil.rmtree(room, ignore_errors=True)


def _cannot_write(path: Path, error: OSError) -> DataError:
    return DataError(
        f"cannot write {path} ({error.strerror or error}); "
        "set CLOSECALL_DATA (or the data directory option) to a directory that has free space and is writable"
    )


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file's bytes."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def from_sheet(sheet: Sheet) -> Dataset:
    """Convert a user's table to a `Dataset` of numbers and codes."""
    pd, X = need_pandas(), np.empty((len(sheet.labels), len(sheet.columns)))
    categories: list[tuple[str, ...] | None] = [None] * len(sheet.columns)
    for j, column in enumerate(sheet.columns):
        values = sheet.frame[column.name]
        if column.kind == "nominal":
            codes, categories[j] = _codes(texts(values), pd)
            X[:, j] = np.where(codes < 0, np.nan, codes)
        else:
            X[:, j] = numbers(values, column)
    y, classes = _codes(pd.Series(sheet.labels), pd)
    features = tuple(column.label for column in sheet.columns)
    return Dataset(sheet.name, "file", "", X, y, classes, features, tuple(categories))

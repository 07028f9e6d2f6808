"""A data set (a matrix of numbers and codes, the class codes, and their origin) and its division into parts.

pandas is not needed: a nominal column contains codes for its ``categories`` (strings), and a missing value is NaN.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.table.read.dataset import MATRIX_BYTES, DataError, encoded, mean_of, need_pandas


def plan_of(column: Array, nominal: bool) -> tuple[float, Array | None]:
    """Return the fill value for missing cells, and the codes that get their own columns (None for numbers).

    A missing number is replaced by the mean, and a missing code by the most frequent one (the first if tied). With two
    codes, a second column would only be the complement of the first.

    Examples
    --------
    >>> fill, levels = plan_of(np.array([0.0, 2.0, 2.0, np.nan]), nominal=True)
    >>> fill, levels.tolist()
    (2.0, [2.0])
    """
    known = column[~np.isnan(column)]
    if not nominal:
        return mean_of(known), None
    levels, counts = np.unique(known, return_counts=True)
    fill = float(levels[np.argsort(-counts, kind="stable")[0]]) if len(levels) else -1.0
    return fill, levels if len(levels) > 2 else levels[1:]


PARTS = ("train", "validation", "test")


@dataclass(frozen=True, eq=False)
class Dataset:
    """A read-only classification data set: its name, source, edition and content.

    Examples
    --------
    >>> data = Dataset("two", "embedded", "1", np.array([[0.0], [1.0], [np.nan]]), np.array([0, 1, 1]),
    ...                ("no", "yes"), ("colour",), (("blue", "red"),))
    >>> data.signs().tolist()
    [-1.0, 1.0, 1.0]
    >>> [part.tolist() for part in data.encode([0, 1], [2])]
    [[[0.0], [1.0]], [[0.0]]]
    """

    name: str
    source: str  # embedded, pmlb, openml, fan8 or file
    version: str
    X: Array  # (samples, features)
    y: Array  # (samples,): codes into ``classes``
    classes: tuple[str, ...]  # the target labels in numerical or alphabetical order
    feature_names: tuple[str, ...]
    categories: tuple[tuple[str, ...] | None, ...]  # for each feature None (numeric) or the meaning of its codes

    def __post_init__(self) -> None:
        X, y = np.array(self.X, dtype=np.float64, order="C"), np.array(self.y, dtype=np.int64)
        X.flags.writeable = y.flags.writeable = False
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", y)
        fault = self._fault()
        if fault:
            raise DataError(f"data set {self.name!r}: {fault}")

    def _fault(self) -> str | None:
        if not self.X.shape[1]:
            return "it has no columns other than the target"
        infinite = [repr(self.feature_names[j]) for j in np.flatnonzero(np.isinf(self.X).any(axis=0))]
        if infinite:
            more = f" and {len(infinite) - 5} more" if len(infinite) > 5 else ""
            return f"infinite values in {', '.join(infinite[:5])}{more}; remove them or mark them as missing"
        if len(self.classes) < 2:
            return f"the target has only one class ({self.classes[0]!r}); a classifier needs two"
        # fmax and fmin ignore NaN without nanmax's warning; an all-missing column is as useless as a constant one.
        if not (np.fmax.reduce(self.X) > np.fmin.reduce(self.X)).any():
            return "every feature is constant, so there is nothing to learn; check the columns"
        return None

    @cached_property
    def checksum(self) -> str:
        """SHA-256 of the content (values, categories, labels), independent of the file and the column names."""
        digest = hashlib.sha256(json.dumps([self.X.shape, self.classes, self.categories]).encode())
        # Adding zero turns -0.0 into 0.0; all NaNs become the same one.
        digest.update(np.where(np.isnan(self.X), np.nan, self.X + 0.0).astype("<f8").tobytes())
        digest.update(self.y.astype("<i8").tobytes())
        return digest.hexdigest()

    def signs(self) -> Array:
        """Return the target (samples,) as -1.0 and +1.0, where +1.0 is the second of the two classes."""
        if len(self.classes) != 2:
            shown = ", ".join(map(repr, self.classes[:5]))
            raise DataError(
                f"data set {self.name!r} has {len(self.classes)} classes ({shown}{', ...' * (len(self.classes) > 5)}); "
                "the protocols need exactly two: choose two classes or merge classes first"
            )
        return np.where(self.y == 1, 1.0, -1.0)

    def matrix_paper(self) -> Array:
        """Return the matrix that the paper uses (samples, complete features), with nominal columns as codes."""
        complete = ~np.isnan(self.X).any(axis=0)
        if not complete.any():
            raise DataError(
                f"data set {self.name!r}: every column has missing values and the paper's protocol drops such columns; "
                "use the protocol 'sound', which imputes them"
            )
        return self.X[:, complete]

    def encode(self, train: Array | list[int], *others: Array | list[int]) -> tuple[Array, ...]:
        """Return a matrix (rows, columns) for each set of rows, one-hot encoded and imputed using the training rows.

        A missing number is replaced by the training mean, and a missing category by the most frequent one in training.
        A category that is absent from the training rows is encoded as all zeros. If there are two categories, they
        share one column; otherwise, each has its own.
        """
        parts = [self.X[np.asarray(rows)] if len(rows) else self.X[:0] for rows in (train, *others)]
        if not len(parts[0]):
            raise DataError(f"data set {self.name!r}: there are no training rows from which to learn the encoding")
        plans = [plan_of(parts[0][:, j], values is not None) for j, values in enumerate(self.categories)]
        width = sum(1 if levels is None else len(levels) for _, levels in plans)
        need = 8 * width * sum(map(len, parts))
        if need > MATRIX_BYTES:
            raise DataError(
                f"data set {self.name!r}: one-hot encoding would give {width} columns ({need / 2**30:.1f} GiB); "
                "drop nominal columns with many values (identifiers, free text)"
            )
        if not width:
            return tuple(np.empty((len(part), 0)) for part in parts)
        return tuple(np.hstack([encoded(part[:, j], *plan) for j, plan in enumerate(plans)]) for part in parts)

    def frame(self) -> Any:
        """Return the features as a pandas frame, with nominal columns as strings."""
        pd = need_pandas()
        columns = {}
        for j, (name, values) in enumerate(zip(self.feature_names, self.categories, strict=True)):
            known = ~np.isnan(self.X[:, j])
            column = self.X[:, j]
            if values is not None:
                column = np.full(len(column), None, dtype=object)
                column[known] = np.array(values, dtype=object)[self.X[known, j].astype(int)]
            columns[name] = column
        return pd.DataFrame(columns)


@dataclass(frozen=True)
class Division:
    """A divided and scaled data set: three matrices and three vectors of labels in {-1, +1}."""

    X: tuple[Array, ...]
    y: tuple[Array, ...]
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, int, int]:
        train, validation, test = (len(y) for y in self.y)
        return train, validation, test

"""Errors, the order of labels and the import of pandas, which all readers share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from closecall._budget import LIMIT

#: A larger matrix, in bytes, is refused: one-hot columns of free text would fill the memory.
MATRIX_BYTES = LIMIT


class DataError(ValueError):
    """A data set that cannot be used as it is; the message states what was found and what to do."""


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """Return the distinct labels, in numerical order if all are numbers, otherwise in alphabetical order."""
    distinct = sorted(set(labels))
    try:
        return tuple(sorted(distinct, key=float))
    except ValueError:
        return tuple(distinct)


def need_pandas() -> Any:
    """Return the module pandas, or raise an error that names the extra to install."""
    try:
        import pandas
    except ImportError as error:
        raise DataError("reading data sets needs pandas: pip install 'closecall[bench]'") from error
    return pandas

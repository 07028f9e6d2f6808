"""What all readers share: their error, and the order of labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from closecall._budget import LIMIT

#: `encode` refuses to build a matrix of more bytes than this: one-hot columns of free text would fill the memory.
MATRIX_BYTES = LIMIT


class DataError(ValueError):
    """A data set that cannot be used as it is; the message says what was found and what to do."""


class NotAtHandError(DataError):
    """A data set that is not available locally; the message says what to fetch and where to put it."""


def in_order(labels: Iterable[str]) -> tuple[str, ...]:
    """The distinct labels, by number if all are numbers and by letter otherwise.

    Examples
    --------
    >>> in_order(["10", "9", "10"]), in_order(["10", "9", "no"])
    (('9', '10'), ('10', '9', 'no'))
    """
    distinct = sorted(set(labels))
    try:
        return tuple(sorted(distinct, key=float))
    except ValueError:
        return tuple(distinct)


def need_pandas() -> Any:
    """The module pandas, or an error that names the extra to install."""
    try:
        import pandas
    except ImportError as error:
        raise DataError("reading data sets needs pandas: pip install 'closecall[bench]'") from error
    return pandas

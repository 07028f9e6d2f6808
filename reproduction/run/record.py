"""The result of a cell: every row of its grid, as counts, packed without pickle."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from closecall._arrays import ArchiveError, read_arrays
from closecall._budget import Budget
from closecall._names import Array
from reproduction.protocol.grid import ROW

from .schema import MAX_RECORD


@dataclass(frozen=True)
class Record:
    """The outcome of one cell.

    Parameters
    ----------
    key : str
        The cell's content key.
    status : str
        ``"done"`` or ``"failed"``.
    rows : array of dtype ROW
        One for each (loss, method, k, alpha); empty if the cell failed.
    sizes : tuple of int
        Examples in the training, validation and test part.
    features : int
        Columns after encoding.
    seconds : float
        Time in the worker.
    error : str
        Why it failed.
    notes : tuple of str
        Notes for the reader, such as columns that were dropped.
    compact : bool
        Whether ``rows`` holds only the chosen rows, not the whole grid.
    """

    key: str
    status: str
    rows: Array = field(default_factory=lambda: np.empty(0, ROW), compare=False)
    sizes: tuple[int, int, int] = (0, 0, 0)
    features: int = 0
    seconds: float = 0.0
    error: str = ""
    notes: tuple[str, ...] = ()
    compact: bool = False


def pack(rows: Array) -> bytes:
    """Rows as the bytes of a compressed npz: about 20 bytes per row.

    Examples
    --------
    >>> rows = np.zeros(3, ROW)
    >>> bool((unpack(pack(rows)) == rows).all())
    True
    """
    buffer = io.BytesIO()
    columns: dict[str, Any] = {name: rows[name] for name in ROW.names or ()}
    np.savez_compressed(buffer, **columns)
    return buffer.getvalue()


def unpack(data: bytes) -> Array:
    """The rows that :func:`pack` packed; never unpickles. They and their columns take ``MAX_RECORD`` bytes at most.

    A record of the largest grid has some thousand rows of 213 bytes.
    """
    budget = Budget(MAX_RECORD)
    columns = read_arrays(io.BytesIO(data), budget)
    names = ROW.names or ()
    if not {*names} <= {*columns} or not all(_is_column(columns[name], name, len(columns["k"])) for name in names):
        raise ArchiveError("it does not hold the columns of a record")
    count = len(columns["k"])
    budget.spend(count * ROW.itemsize)
    rows = np.empty(count, ROW)
    for name in names:
        rows[name] = columns[name]
    return rows


def _is_column(column: Array, name: str, count: int) -> bool:
    return column.shape == (count,) and column.dtype.kind == ROW[name].kind

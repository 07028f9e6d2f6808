"""The result of a cell: every row of its grid as counts, packed without pickle."""

import io
from dataclasses import dataclass, field

import numpy as np

from closecall._arrays import ArchiveError, read_arrays
from closecall._budget import Budget
from closecall._names import Array
from reproduction.protocol.grid import ROW

#: The maximum size of an unpacked record in bytes; a record of the largest grid has about a thousand rows of 213 bytes.
MAX_RECORD = 1 << 26


@dataclass(frozen=True)
class Record:
    """The outcome of one cell."""

    key: str  # the cell's content key
    status: str  # "done" or "failed"
    #: One for each (loss, method, k, alpha), of dtype ROW; empty if the cell failed.
    rows: Array = field(default_factory=lambda: np.empty(0, ROW), compare=False)
    sizes: tuple[int, int, int] = (0, 0, 0)  # examples in the training, validation and test part
    features: int = 0  # columns after encoding
    seconds: float = 0.0  # in the worker
    error: str = ""
    notes: tuple[str, ...] = ()  # such as the number of dropped columns


def pack(rows: Array) -> bytes:
    """Pack rows into a compressed npz file, which takes about 20 bytes per row."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **{name: rows[name] for name in ROW.names or ()})  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack(data: bytes) -> Array:
    """Return the rows that :func:`pack` packed; this uses no pickle and unpacks at most ``MAX_RECORD`` bytes."""
    budget = Budget(MAX_RECORD)
    columns = read_arrays(io.BytesIO(data), budget)
    names = ROW.names or ()
    count = len(columns.get("k", ()))
    if not {*names} <= {*columns} or any(
        columns[name].shape != (count,) or columns[name].dtype.kind != ROW[name].kind for name in names
    ):
        raise ArchiveError("it does not contain the columns of a record")
    budget.spend(count * ROW.itemsize)
    rows = np.empty(count, ROW)
    for name in names:
        rows[name] = columns[name]
    return rows

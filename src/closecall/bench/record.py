"""What a cell leaves behind: every row of its grid, in counts, packed without pickle."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from closecall._arrays import ArchiveError, read_arrays
from closecall._names import Array, lookup

#: One row of a grid. Correct predictions are kept as counts: exact, and any accuracy follows from the parts' sizes.
#: Baselines leave ``objective`` NaN, and ``loss`` empty where the baseline has its own.
ROW = np.dtype(
    [
        ("loss", "U16"),
        ("method", "U24"),
        ("k", "f8"),
        ("alpha", "f8"),
        ("train", "u4"),
        ("validation", "u4"),
        ("test", "u4"),
        ("objective", "f8"),
        ("n_iter", "u4"),
        ("converged", "?"),
    ]
)
#: A record of the largest grid has some thousand rows of 213 bytes.
MAX_UNPACKED = 1 << 26
PARTS = ("train", "validation", "test")

#: The baselines by name, with what the reader sees.
BASELINES = {
    "average_exact_intercept": "average, exact intercept",
    "logistic_regression": "LogisticRegression",
    "linear_svc": "LinearSVC",
    "tuned_threshold": "TunedThresholdClassifierCV",
}

#: Protocol -> the order in which equals on the validation part are told apart, most important first; larger wins.
TIES: dict[str, tuple[str, str]] = {"paper": ("alpha", "k"), "sound": ("k", "alpha")}


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
        What a reader should know, such as columns that were dropped.
    compact : bool
        Whether ``rows`` holds only what validation chose, not the whole grid.
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
    """Rows as the bytes of a compressed npz: about 20 bytes a row.

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
    """The rows that :func:`pack` packed; never unpickles, and unpacks no more than ``MAX_UNPACKED`` bytes."""
    columns = read_arrays(io.BytesIO(data), MAX_UNPACKED)
    names = ROW.names or ()
    if not {*names} <= {*columns} or any(columns[name].shape != columns["k"].shape for name in names):
        raise ArchiveError("it does not hold the columns of a record")
    rows = np.empty(len(columns["k"]), ROW)
    for name in names:
        rows[name] = columns[name]
    return rows


def choose(rows: Array, protocol: str) -> Array:
    """The row that validation chooses for each (loss, method).

    Most correct on the validation part; equals go to the larger alpha, then the larger k under ``paper`` (the released
    code's order), to the larger k, then the larger alpha under ``sound``.

    Parameters
    ----------
    rows : array of dtype ROW
    protocol : str

    Returns
    -------
    chosen : array of dtype ROW
        One row for each (loss, method) that occurs, sorted by name.

    Examples
    --------
    >>> rows = np.zeros(3, ROW)
    >>> rows["k"], rows["alpha"], rows["validation"] = [10, 99, 10], [1.0, 0.1, 9.0], [5, 5, 4]
    >>> choose(rows, "paper")["alpha"].tolist(), choose(rows, "sound")["alpha"].tolist()
    ([1.0], [0.1])
    """
    first, second = lookup(TIES, protocol, "protocol")
    order = np.lexsort((rows[second], rows[first], rows["validation"], rows["method"], rows["loss"]))
    ordered = rows[order]
    names = ordered[["loss", "method"]]
    last = np.append(names[1:] != names[:-1], True)[-len(ordered) :]
    return ordered[last]

"""Divide rows into training, validation and test parts: at random within each class, by groups, or by time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedGroupKFold

from closecall._names import Array
from closecall.paired import FEWEST, Units, apart
from closecall.report.text import counted
from closecall.table.read.columns import columns_of, numbers, suggestion, texts
from closecall.table.read.dataset import DataError
from closecall.table.read.sheet import Sheet
from closecall.table.splits import stratified

#: The share of the rows that precede every test part of the splits by time: the oldest rows.
HISTORY = 0.5
#: Number of splits by time within the training rows of a search.
INNER = 4
FOLDS = 5
#: Number of divisions of the groups to draw for each division that is needed.
ATTEMPTS = 5

#: The rows of the training, validation and test parts.
Parts = Sequence[Array]


@dataclass(frozen=True, eq=False)
class Order:
    """How rows are divided: at random, by groups (codes), or by times; groups and times have shape (samples,)."""

    kind: str = ""
    values: Array = field(default_factory=lambda: np.empty(0))

    @classmethod
    def of(cls, table: Sheet, groups: str = "", time: str = "") -> tuple[Order, Sheet]:
        """Return the order given by a column, and the table without that column among its features."""
        if groups and time:
            raise DataError("--groups and --time cannot be combined; use one of them")
        name, option = (groups, "--groups") if groups else (time, "--time")
        if not name:
            return cls(), table
        names = [str(column) for column in table.frame.columns if str(column) != table.target]
        if name not in names:
            raise DataError(f"{option} {name!r}: the data has no such column; {suggestion(name, names)}")
        columns = tuple(column for column in table.columns if column.name != name)
        if not columns:
            raise DataError(f"{option} {name!r} is the only usable column; nothing is left to learn from")
        note = f"{name!r} is used to divide the rows, so it is not a feature"
        table = replace(table, columns=columns, notes=(*table.notes, note))
        values = texts(table.frame[name])
        missing = int(values.isna().sum())
        if missing:
            raise DataError(f"{option} {name!r} is empty in {missing} rows; fill it in, or drop those rows")
        if groups:
            return cls("groups", np.unique(values.to_numpy(dtype=str), return_inverse=True)[1]), table
        return cls("time", _moments(table, name)), table

    def divisions(self, codes: Array, splits: int, seed: int) -> list[Parts]:
        """Return the rows of the training, validation and test parts of every split."""
        if self.kind == "time":
            return self._by_time(codes, splits)
        if self.kind == "groups":
            return self._different(codes, splits, seed)
        return [stratified(codes, np.random.default_rng([seed, split])) for split in range(splits)]

    @property
    def few(self) -> int:
        """The number of groups if it is too small to tell a gain from chance, otherwise 0."""
        count = len(np.unique(self.values)) if self.kind == "groups" else FEWEST
        return count if count < FEWEST else 0

    def units(self, samples: int) -> Units:
        """Return the groups or blocks of rows that depend on each other."""
        if self.kind == "time":
            return Units(self.values, "blocks of time", time=True)
        return Units(self.values, "groups") if self.kind == "groups" else apart(samples)

    def _different(self, codes: Array, splits: int, seed: int) -> list[Parts]:
        """Return splits of the groups, each with a different test part; if not enough of them exist, return fewer.

        Repeating a split would make the result look more certain than it is.
        """
        if self.few:
            raise DataError(f"--groups: {self.few} groups are too few to tell a gain from chance; {FEWEST} are needed")
        found: dict[bytes, Parts] = {}
        for attempt in range(ATTEMPTS * splits):
            parts = self._by_groups(codes, seed + attempt)
            found.setdefault(parts[2].tobytes(), parts)
            if len(found) == splits:
                break
        if len(found) < 2:
            raise DataError("--groups: there is only one way to split these groups; choose a column with more groups")
        return list(found.values())

    def _by_groups(self, codes: Array, seed: int) -> Parts:
        few = [int(code) for code in np.unique(codes) if len(np.unique(self.values[codes == code])) < 4]
        if few:
            advice = "use a column with more groups, or merge classes"
            raise DataError(f"--groups: every class needs 4 groups, but {len(few)} of the classes have fewer; {advice}")
        splitter = StratifiedGroupKFold(4, shuffle=True, random_state=seed)
        folds = [test for _, test in splitter.split(codes, codes, self.values)]
        parts = np.sort(np.concatenate(folds[2:])), np.sort(folds[1]), np.sort(folds[0])
        if any(len(np.unique(codes[part])) < len(np.unique(codes)) for part in parts[:2]):
            raise DataError("--groups: a class occurs in too few groups to be in every part; merge classes or groups")
        return parts

    def _by_time(self, codes: Array, splits: int) -> list[Parts]:
        """Return a split for each block of later rows; a third of the rows before the block are used for validation.

        Rows with the same time are always in the same part, because they may depend on each other.
        """
        order = np.argsort(self.values, kind="stable")
        starts = _starts(self.values[order])
        edges = [edge for edge in _edges(starts, len(order), splits) if (starts < edge).any()]
        if len(edges) <= splits:
            times = counted(len(starts) + 1, "distinct time")
            advice = f"use --splits {len(edges) - 1}" if len(edges) > 2 else "add rows with different times"
            raise DataError(f"--time: {len(order)} rows with {times} are too few for {splits} splits by time; {advice}")
        known, found = len(np.unique(codes)), list[Parts]()
        for first, last in pairwise(edges):
            (cut,) = _nearest(starts[starts < first], np.array([2 * first // 3]))
            parts = order[:cut], order[cut:first], order[first:last]
            if len(np.unique(codes[parts[0]])) < known:
                raise DataError("--time: a class is not in the earliest third of the rows, so no model can learn it")
            found.append(parts)
        return found

    def inner(self, codes: Array, rows: Array) -> tuple[Any, Array | None]:
        """Return ``cv`` and groups for a search within some rows, which must be sorted if the splits are by time."""
        if self.kind == "groups":
            groups = self.values[rows]
            fewest = min(len(np.unique(groups[codes[rows] == code])) for code in np.unique(codes[rows]))
            return StratifiedGroupKFold(max(2, min(FOLDS, fewest)), shuffle=True, random_state=0), groups
        if self.kind == "time":
            late = np.unique(codes[rows], return_index=True)[1].max()  # every class has occurred by then
            starts = _starts(self.values[rows])
            edges = _edges(starts[starts > late], len(rows), INNER)
            if len(edges) < 2:
                raise DataError(
                    "--time: no point in time has every class before it and test rows after it; "
                    "merge or drop the classes that appear late"
                )
            return [(np.arange(first), np.arange(first, last)) for first, last in pairwise(edges)], None
        return None, None


def _starts(times: Array) -> Array:
    """Return the positions in sorted times (samples,) at which a new time begins."""
    return np.flatnonzero(np.diff(times)) + 1


def _nearest(starts: Array, wanted: Array) -> list[int]:
    """Return the distinct starts nearest to the requested positions, in ascending order."""
    return np.unique([starts[np.abs(starts - place).argmin()] for place in wanted]).tolist() if len(starts) else []


def _edges(starts: Array, rows: int, blocks: int) -> list[int]:
    """Return the edges of up to ``blocks`` blocks of the later rows; each block begins where a new time begins."""
    return [*_nearest(starts, np.linspace(int(HISTORY * rows), rows, blocks + 1).astype(int)[:-1]), rows]


def _moments(table: Sheet, name: str) -> Array:
    columns, _ = columns_of(table.frame, [name], keep=[name])
    if not columns or columns[0].kind == "nominal":
        raise DataError(f"--time {name!r} contains neither numbers nor dates; write dates as 2024-12-31")
    values = numbers(table.frame[name], columns[0])
    if np.isnan(values).any():
        raise DataError(f"--time {name!r}: {int(np.isnan(values).sum())} values are not {columns[0].kind}s; fix them")
    return values

"""Turn the columns of a table into a matrix, using an encoding learnt from the training rows.

A missing number is replaced by the training median, and a missing name by the most frequent name. Each category gets
its own column, except that categories too rare to learn from share one. Columns are scaled and squashed as in
:class:`closecall.SquashingScaler`; without squashing, they are scaled by their mean and standard deviation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.preprocessing import BOUND, robust_scale, squash
from closecall.report.text import counted, listed
from closecall.table.read.columns import Column, numbers, texts
from closecall.table.read.dataset import MATRIX_BYTES, DataError, encoded, in_order, mean_of, moments

#: A name seen at least ``SEEN`` times in training gets its own column, up to ``MAX_LEVELS`` columns, because free
#: text would fill the memory. All other names share one level.
SEEN, MAX_LEVELS = 3, 1000
OTHER = "other"
#: Without squashing, the smallest scale for columns with two values, as a share of their difference; otherwise a rare
#: name would be scaled up to variance 1.
FLOOR = 0.5


@dataclass(frozen=True)
class Step:
    """How a column is encoded: the value for missing cells, and the categories that have their own columns.

    ``rare`` holds the known categories that share the last level.
    """

    column: Column
    fill: float | str
    levels: tuple[str, ...] = ()
    rare: tuple[str, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The levels, including the level shared by rare names if there are any."""
        return (*self.levels, OTHER) if self.rare else self.levels

    @property
    def first(self) -> int:
        """The first level that has a column: 1 if there are two levels (their columns are complements), otherwise 0."""
        return int(len(self.kinds) == 2)

    @property
    def width(self) -> int:
        """The number of columns in the matrix."""
        return len(self.kinds) - self.first if self.levels else 1

    @property
    def names(self) -> list[str]:
        """The names of the columns in the matrix."""
        name = self.column.label
        return [f"{name}={level}" for level in self.kinds[self.first :]] if self.levels else [name]

    @property
    def places(self) -> dict[str, int]:
        """The level of every known category."""
        return dict.fromkeys(self.rare, len(self.levels)) | {level: place for place, level in enumerate(self.levels)}


@dataclass(frozen=True, eq=False)
class Preprocessor:
    """Steps fitted to training rows, and the centre and scale (features,) of the resulting columns.

    Cells beyond ``bound`` deviations are squashed; infinity means no squashing.

    Examples
    --------
    >>> import pandas as pd
    >>> frame = pd.DataFrame({"a": ["1", None, "3"], "b": ["x", "y", "z"]})
    >>> recipe = Preprocessor.fit(frame, [Column("a", "number"), Column("b", "nominal")])
    >>> recipe.matrix(frame).shape, recipe.matrix(frame)[:, 0].round(2).tolist()
    ((3, 4), [-1.0, 0.0, 1.0])
    """

    steps: tuple[Step, ...]
    mean: Array
    scale: Array
    bound: float = BOUND

    @classmethod
    def fit(cls, frame: Any, columns: Sequence[Column], squashed: bool = True) -> Preprocessor:
        """Learn the encoding from training rows (a pandas frame)."""
        steps = tuple(_step(frame[column.name], column, squashed) for column in columns)
        width = sum(step.width for step in steps)
        X = cls(steps, np.zeros(width), np.ones(width), np.inf).matrix(frame)
        if squashed:
            for step, at in cls(steps, X, X).places():  # filled-in cells must not affect the scale
                if not step.levels:
                    X[np.isnan(numbers(frame[step.column.name], step.column)), at] = np.nan
            return cls(steps, *robust_scale(X))
        mean, scale = moments(X)
        low, high = X.min(axis=0), X.max(axis=0)
        two = ((low == X) | (high == X)).all(axis=0)
        return cls(steps, mean, np.where(two, np.maximum(scale, FLOOR * (high - low)), scale), np.inf)

    def places(self) -> list[tuple[Step, int]]:
        """Return every step with the position of its first column."""
        ends = np.cumsum([0, *(step.width for step in self.steps)]).tolist()
        return list(zip(self.steps, ends, strict=False))

    def notes(self, frame: Any) -> tuple[str, ...]:
        """Return notes on how cells and categories were treated, one line each."""
        cells = []
        for step, at in self.places():
            if not step.levels:
                with np.errstate(over="ignore"):
                    z = (numbers(frame[step.column.name], step.column) - self.mean[at]) / self.scale[at]
                count = int((np.abs(z) > self.bound).sum())
                cells += [f"{counted(count, 'cell')} of {step.column.label!r}"] if count else []
        names = [f"{counted(len(step.rare), 'name')} of {step.column.name!r}" for step in self.steps if step.rare]
        squashed = f"beyond {self.bound:g} robust deviations were squashed (--no-squash keeps them)"
        notes = {squashed: cells, f"seen fewer than {SEEN} times count as {OTHER!r}": names}
        return tuple(f"{listed(each, 5, 'and of {} more columns')} {what}" for what, each in notes.items() if each)

    @property
    def names(self) -> list[str]:
        """The names of the columns in the matrix."""
        return [name for step in self.steps for name in step.names]

    def matrix(self, frame: Any, strange: Counter[str] | None = None) -> Array:
        """Return the matrix (rows, features) of a frame; ``strange`` counts unknown values by column."""
        need = 8 * len(frame) * len(self.mean)
        if need > MATRIX_BYTES:
            raise DataError(
                f"the table expands to {len(frame)} rows x {len(self.mean)} columns, {need / 2**30:.1f} GiB; use fewer "
                "rows (--rows) or leave out columns with many values (--drop)"
            )
        X = np.empty((len(frame), len(self.mean)))
        for step, at in self.places():
            X[:, at : at + step.width], odd = _apply(frame[step.column.name], step)
            if strange is not None and odd:
                strange[step.column.name] += odd
        with np.errstate(over="ignore", invalid="ignore"):  # `finite` refuses the result if necessary
            X -= self.mean
            X /= self.scale
        return finite(squash(X, self.bound), "values")


def _step(values: Any, column: Column, squashed: bool) -> Step:
    if column.kind != "nominal":
        found = numbers(values, column)
        known = found[~np.isnan(found)]
        return Step(column, float(np.median(known)) if squashed and len(known) else mean_of(known))
    counts = texts(values).value_counts()
    seen = counts[counts >= SEEN].index[:MAX_LEVELS] if (counts >= SEEN).any() else counts.index[:MAX_LEVELS]
    levels = in_order(seen) or ("",)
    fill = in_order(counts.index[counts == counts.max()])[0] if len(counts) else ""
    return Step(column, fill, levels, tuple(name for name in in_order(counts.index) if name not in set(levels)))


def _apply(values: Any, step: Step) -> tuple[Array, int]:
    """Return the encoded columns (rows, width), and the number of values that are unreadable or unknown."""
    if not step.levels:
        found = numbers(values, step.column)
        odd = int(np.isnan(found).sum() - texts(values).isna().sum()) if values.dtype.kind in "OU" else 0
        return encoded(found, float(step.fill), None), odd
    places, new = step.places, len(step.levels) if step.rare else -1
    known = texts(values).fillna(step.fill)
    codes = known.map(places).fillna(new).to_numpy(dtype=float)
    odd = int((~known.isin(list(places))).sum())
    return encoded(codes, -1.0, np.arange(step.first, len(step.kinds))), odd


def finite(found: Array, what: str) -> Array:
    if not np.isfinite(found).all():
        raise DataError(f"{what} of some rows are not finite: correct the table, or fit the model again")
    return found

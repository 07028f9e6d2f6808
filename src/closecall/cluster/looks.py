"""The requests that a pass makes to a partition: sums of a fixed size and a few rows.

Everything is float64, in the coordinates of :class:`closecall.cluster.blocks.Frame`, a piece of the rows at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from .._names import Array
from ..linear.training import row_hashes
from ..losses import Loss, get_loss
from .blocks import Block, Frame, fold_of, uniform

#: Margins between which slopes are compared.
NEAR = 1e-4


@dataclass(frozen=True)
class LeftOut:
    """The fold that a request leaves out, and the number of folds."""

    fold: int
    folds: int


class Question(Protocol):
    """Base of requests: the class that counts as +1, the fold to leave out, and how rows are added."""

    @property
    def label(self) -> Any: ...

    @property
    def left_out(self) -> LeftOut | None:
        """The fold to leave out; None if the request covers all rows."""

    def empty(self, size: int) -> Any:
        """The result for no rows."""

    def add(self, found: Any, frame: Frame, X: Array, signs: Array, mass: Array) -> None:
        """Add some rows to the result."""


@dataclass(frozen=True)
class Look:
    """One problem's request: where to evaluate, and which rows are summed, gathered or left out.

    Parameters
    ----------
    label : object
        The class that counts as +1.
    c : array (coordinates,)
    loss : str
    threshold : float or None
        Keys are distances of the losses from it; None: minus the losses.
    low, high : float
        Rows with keys below ``low`` are summed, those up to ``high`` gathered.
    margins : (float, float)
        Rows whose margins are outside have keys above ``high``.
    share : float
        The share of these rows to gather; the gathered rows represent all of them.
    second : bool
        Whether to sum the curvature, of a loss without kinks.
    """

    label: Any
    c: Array
    loss: str
    threshold: float | None
    low: float
    high: float
    margins: tuple[float, float] = (-np.inf, np.inf)
    share: float = 1.0
    second: bool = True
    left_out: ClassVar[None] = None

    def empty(self, size: int) -> Sums:
        """The result for no rows."""
        return Sums.zero(size, self.second)

    def add(self, sums: Sums, frame: Frame, X: Array, signs: Array, mass: Array) -> None:
        """Add some rows to the result."""
        _add(sums, frame, self, X, signs, mass)


@dataclass
class Sums:
    """The result of a request; arrays by side have label -1 first.

    Parameters
    ----------
    rows : int
        The number of rows evaluated.
    mass, value : float
        Masses and weighted losses of the rows that are summed.
    heights, pulls : arrays (2,)
        The values of their tangents at margin 0, and minus their slopes, by side.
    across : array (2, coordinates)
        Minus their slopes times the rows, by side: the sum is the gradient.
    bend : array (coordinates, coordinates) or None
    errors : float
        Misclassified mass of all rows: margins of at most 0.
    flat : array (2,)
        Masses of rows in the gathering range whose loss is constant, on its lower and upper plateau.
    gathered, gathered_mass : lists of arrays (rows, coordinates) and (rows,)
    found : int
        Rows in the gathering range.
    """

    rows: int
    mass: float
    value: float
    heights: Array
    pulls: Array
    across: Array
    bend: Array | None
    errors: float
    flat: Array
    gathered: list[Array]
    gathered_mass: list[Array]
    found: int

    @classmethod
    def zero(cls, size: int, second: bool) -> Sums:
        bend = np.zeros((size, size)) if second else None
        return cls(0, 0.0, 0.0, np.zeros(2), np.zeros(2), np.zeros((2, size)), bend, 0.0, np.zeros(2), [], [], 0)

    def __add__(self, other: Sums) -> Sums:
        bend = None if self.bend is None or other.bend is None else self.bend + other.bend
        return Sums(
            self.rows + other.rows, self.mass + other.mass, self.value + other.value, self.heights + other.heights,
            self.pulls + other.pulls, self.across + other.across, bend, self.errors + other.errors,
            self.flat + other.flat, self.gathered + other.gathered, self.gathered_mass + other.gathered_mass,
            self.found + other.found,
        )  # fmt: skip

    def packed(self) -> Sums:
        """The same, with the gathered rows of all pieces in one array."""
        if not self.gathered:
            return self
        gathered, masses = [np.concatenate(self.gathered)], [np.concatenate(self.gathered_mass)]
        return replace(self, gathered=gathered, gathered_mass=masses)

    @property
    def gradient(self) -> Array:
        return np.asarray(self.across.sum(axis=0))


def look_at(frame: Frame, looks: Sequence[Question], block: Block) -> list[Any]:
    """Evaluate every request of one pass on one partition."""
    size = len(frame.mean) + frame.intercept
    found = [look.empty(size) for look in looks]
    folds = max((look.left_out.folds for look in looks if look.left_out is not None), default=0)
    with np.errstate(all="ignore"):  # non-finite results raise below
        for piece in block.pieces():
            X, y = block.X[piece], block.y[piece]
            mass = frame.masses(y, block.mass[piece])
            fold = fold_of(row_hashes(X), folds) if folds else None
            for number, look in enumerate(looks):
                signs = np.where(y == look.label, 1.0, -1.0)
                rows: Any = slice(None) if look.left_out is None else np.flatnonzero(fold != look.left_out.fold)
                look.add(found[number], frame, X[rows], signs[rows], mass[rows])
    return [each.packed() for each in found]  # few arrays travel faster than many


def _add(sums: Sums, frame: Frame, look: Look, X: Array, signs: Array, mass: Array) -> None:
    loss = get_loss(look.loss)
    if look.low == np.inf:
        rows = frame.rows(X, signs)
        margins = -(rows @ look.c)
        sums.rows += len(margins)
        sums.errors += float(mass[margins <= 0].sum())
        _sum(sums, loss, rows, signs, margins, mass)
        return
    margins = signs * frame.scores(X, look.c)
    sums.rows += len(margins)
    sums.errors += float(mass[margins <= 0].sum())
    near = np.flatnonzero((margins >= look.margins[0]) & (margins <= look.margins[1]))
    if len(near) < len(margins):
        X, margins, signs, mass = X[near], margins[near], signs[near], mass[near]
    inside, explicit = _divide(look, loss, margins)
    if loss.falls is not None and len(explicit):
        low, high = loss.falls
        below, above = margins[explicit] < low, margins[explicit] > high
        sums.flat += [mass[explicit[below]].sum(), mass[explicit[above]].sum()]
        explicit = explicit[~(below | above)]
    if len(explicit):
        sums.found += len(explicit)
        if look.share < 1:
            explicit = explicit[uniform(X[explicit]) < look.share]
        sums.gathered.append(frame.rows(X[explicit], signs[explicit]))
        sums.gathered_mass.append(mass[explicit] / look.share)
    if not len(inside):
        return
    _sum(sums, loss, frame.rows(X[inside], signs[inside]), signs[inside], margins[inside], mass[inside])


def _sum(sums: Sums, loss: Loss, rows: Array, signs: Array, margins: Array, mass: Array) -> None:
    """Add rows ``-y * z`` to the sums; the rows are modified."""
    losses, weighted = mass * loss.value(margins), -mass * loss.slope(margins)
    sums.mass += float(mass.sum())
    sums.value += float(losses.sum())
    heights, ahead = losses + weighted * margins, signs > 0
    sides = np.stack([~ahead, ahead]).astype(np.float64)
    sums.heights += sides @ heights
    sums.pulls += sides @ weighted
    sums.across += (sides * weighted) @ rows
    if sums.bend is not None:
        rows *= np.sqrt(mass * _bend(loss, margins))[:, None]
        sums.bend += rows.T @ rows


def keys_of(threshold: float | None, losses: Array) -> Array:
    """Ranking keys, small for selected examples."""
    return -losses if threshold is None else np.abs(losses - threshold)


def _bend(loss: Loss, margins: Array) -> Array:
    """The second derivative, at least 0: a central difference of the slopes."""
    return np.maximum((loss.slope(margins + NEAR) - loss.slope(margins - NEAR)) / (2 * NEAR), 0.0)


def _divide(look: Look, loss: Loss, margins: Array) -> tuple[Array, Array]:
    """Positions of the rows to sum, and of those to gather."""
    keys = keys_of(look.threshold, loss.value(margins))
    return np.flatnonzero(keys < look.low), np.flatnonzero((keys >= look.low) & (keys <= look.high))

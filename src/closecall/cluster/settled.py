"""Certified close-k over partitions: the in-memory search of :mod:`closecall.solvers.large`, evaluated in passes.

It begins on the same sample, the rows with the smallest hashes, and is solved to many digits at every ramp, so it ends
where the in-memory fit does. Rows near the boundary are gathered if there is room for them; a pass over all rows then
checks whether any is missing, and gives the certificate.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from .._names import Array
from ..linear.training import Training, arrange, row_hashes
from ..losses import get_loss
from ..objective import Problem
from ..solvers import large
from ..solvers.sample import FROM_SAMPLES
from ..solvers.stationary import Goal, Search, Seen
from ..solvers.tally import Aim, Tally, make_aim, tally
from .blocks import Frame
from .draw import Draw
from .rest import Asked, Resting
from .room import mapped

#: Rows that a sample is drawn with beyond its size, in standard deviations.
SURPLUS = 6.0
#: Rows may come to one place if so many times those of the sample would fit.
SPARE = 1.2


@dataclass
class Near:
    """The result of a pass: sums, and the rows to keep, with their signs and masses.

    Rows are sent in their own type: as float32 they take half as many bytes as ``-y * z``.
    """

    sums: Tally
    X: list[Array] = field(default_factory=list)
    signs: list[Array] = field(default_factory=list)
    mass: list[Array] = field(default_factory=list)

    def __add__(self, other: Near) -> Near:
        return Near(self.sums + other.sums, self.X + other.X, self.signs + other.signs, self.mass + other.mass)

    def seen(self, frame: Frame, keep: bool) -> Seen:
        """The result in the form the search expects; may be called once."""
        if not keep:
            return Seen(self.sums)
        rows = np.empty((sum(map(len, self.X)), len(self.sums.by_place)))
        end = len(rows)
        while self.X:  # release what has been copied
            X, signs = self.X.pop(), self.signs.pop()
            frame.rows(X, signs, rows[end - len(X) : end])
            end -= len(X)
        return Seen(self.sums, rows, np.concatenate([np.empty(0), *self.mass]))

    def packed(self) -> Near:
        """The same, with the rows of all pieces in one array."""
        if not self.X:
            return self
        X = mapped((sum(map(len, self.X)), self.X[0].shape[1]), self.X[0].dtype)
        np.concatenate(self.X, out=X)
        return Near(self.sums, [X], *([np.concatenate(each)] for each in (self.signs, self.mass)))


@dataclass(frozen=True)
class Sight:
    """One problem's request: the class that counts as +1, the loss and where to evaluate."""

    label: Any
    loss: str
    aim: Aim
    left_out: ClassVar[None] = None

    def empty(self, size: int) -> Near:
        """The result for no rows."""
        return Near(Tally.zero(size))

    def add(self, near: Near, frame: Frame, X: Array, signs: Array, mass: Array) -> None:
        """Add some rows to the result."""
        margins = signs * frame.rounded_scores(X, self.aim.c)

        def rows(some: Array) -> Array:
            return frame.rows(X[some], signs[some])

        sums = tally(get_loss(self.loss), self.aim, margins, mass, rows)
        sums.errors = float(mass[margins <= 0].sum())
        near.sums = near.sums + sums
        if self.aim.kept is not None:
            kept = np.flatnonzero((margins > self.aim.kept[0]) & (margins < self.aim.kept[1]))
            near.X.append(X[kept])
            near.signs.append(signs[kept].astype(np.int8))
            near.mass.append(mass[kept])


def serves(asked: Asked, problem: Problem, size: int) -> bool:
    """Whether the in-memory solver would search for this problem's stationary point."""
    return asked.rows >= FROM_SAMPLES and large.serves(problem, asked.selection.total, size)


def share_of_first(rows: int) -> float:
    """The share of the rows to draw for the sample of a search.

    Examples
    --------
    >>> share_of_first(1000), round(share_of_first(10**6), 4)
    (1.0, 0.064)
    """
    size = large.sample_size(rows)
    return min(1.0, float(size + SURPLUS * np.sqrt(size)) / rows)


def settled(
    asked: Asked, problem: Problem, frame: Frame, drawn: Draw, manner: large.Manner
) -> Generator[Sight, Near, Resting | None]:
    """Coroutine of one problem: a certified point, or None."""
    X, signs, mass = first_rows(asked, frame, drawn)
    total, loss = asked.selection.total, get_loss(problem.loss)
    with np.errstate(all="ignore"):  # non-finite results raise below
        begun = large.begin(X, signs, mass, problem, total, manner)
    if begun is None:
        return None
    start = frame.to_coordinates(begun.coef, begun.intercept)
    kept = make_aim(loss, start, begun.place, begun.width, keep=True).kept or (0.0, 0.0)
    margins = signs * (X @ begun.coef + begun.intercept)
    share = float(((margins > kept[0]) & (margins < kept[1])).mean())
    keep = SPARE * share * asked.rows <= asked.near
    rows = frame.rows(X, signs) * np.sqrt(mass / mass.sum())[:, None]
    search = Search(Goal(loss, asked.selection.k, asked.penalty, rows.T @ rows, manner.tol, keep))
    looking = search.run(start, begun.place, begun.width)
    try:
        aim = next(looking)
        while True:
            near = yield Sight(asked.label, problem.loss, aim)
            with np.errstate(all="ignore"):
                aim = looking.send(near.seen(frame, aim.kept is not None))
    except StopIteration as end:
        point = end.value
    if point is None or point.sums.errors > (begun.errors + large.WORSE) * total:
        return None
    return Resting(point.c, point.value(search.goal), point.gap(search.goal), point.sums.errors, True)


def first_rows(asked: Asked, frame: Frame, drawn: Draw) -> tuple[Array, Array, Array]:
    """The sample as the in-memory fit arranges it: X, labels -1 and +1, and masses."""
    block = drawn.first
    signs = np.where(block.y == asked.label, 1, -1)
    mass = frame.masses(block.y, block.mass)
    ids = np.arange(len(block))
    training = Training(block.X, (signs > 0).astype(int), mass, np.arange(2), row_hashes(block.X), ids)
    found = arrange(training, signs, copies=False)
    size = large.sample_size(asked.rows)
    return found.X[:size], found.labels[:size].astype(np.float64), found.mass[:size]

"""Folds by the hashes of the rows: independent of where a row is, with equal rows in the same fold."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._names import Array, spread_out
from ..linear.training import row_hashes
from .blocks import Block, Frame, Survey, fold_of
from .draw import Draw, draw
from .looks import LeftOut, Question
from .passes import Passes


@dataclass(frozen=True)
class Held:
    """A request about the rows outside one fold."""

    look: Question
    left_out: LeftOut

    @property
    def label(self) -> Any:
        return self.look.label

    def empty(self, size: int) -> Any:
        """The result for no rows."""
        return self.look.empty(size)

    def add(self, found: Any, frame: Frame, X: Array, signs: Array, mass: Array) -> None:
        """Add rows, which :func:`closecall.cluster.looks.look_at` has chosen."""
        self.look.add(found, frame, X, signs, mass)


def apart(way: Generator[Any, Any, Any], fold: int, folds: int) -> Generator[Any, Any, Any]:
    """Run a problem's coroutine without ever using the rows of one fold."""
    look = next(way)
    while True:
        sums = yield Held(look, LeftOut(fold, folds))
        try:
            look = way.send(sums)
        except StopIteration as end:
            return end.value


@dataclass
class Dealt:
    """The result of the second pass of a search: a sample, and rows and masses (folds, labels, 2) of each fold."""

    drawn: Draw
    counts: Array

    def outside(self, survey: Survey, frame: Frame, fold: int) -> tuple[Survey, Draw]:
        """The survey and draw of the rows outside one fold, with the full Gram matrix scaled in proportion.

        That matrix affects only the length of steps, not the solution.
        """
        left = self.counts.sum(axis=0) - self.counts[fold]
        names = frame.classes.tolist()
        for name, (rows, _) in zip(names, left.tolist(), strict=True):
            if not rows:
                raise ValueError(f"fold {fold} holds all rows of class {name!r}; use fewer folds, or drop the class")
        labels = {name: (int(rows), mass) for name, (rows, mass) in zip(names, left.tolist(), strict=True)}
        total = float(left[:, 1].sum())
        share, folds = total / survey.total, len(self.counts)
        some = replace(survey, rows=int(left[:, 0].sum()), labels=labels, total=total)
        drawn = self.drawn
        block, first = (_outside(each, fold, folds) for each in (drawn.block, drawn.first))
        return some, Draw(block, first, drawn.gram * share, drawn.pulls * share)


def _outside(block: Block, fold: int, folds: int) -> Block:
    kept = fold_of(row_hashes(block.X), folds) != fold
    return Block(block.X[kept], block.y[kept], block.mass[kept])


def deal(
    passes: Passes, frame: Frame, shares: dict[Any, float], first: float, labels: Sequence[Any], folds: int
) -> Dealt:
    """The pass that samples the rows and counts the folds."""
    found = passes.run("sample", partial(_deal, frame, shares, first, list(labels), folds))
    return Dealt(Draw.together([each.drawn for each in found]), np.sum([each.counts for each in found], axis=0))


def _deal(
    frame: Frame, shares: dict[Any, float], first: float, labels: Sequence[Any], folds: int, block: Block
) -> Dealt:
    place = fold_of(row_hashes(block.X), folds) * len(frame.classes) + np.searchsorted(frame.classes, block.y)
    size = folds * len(frame.classes)
    counts = np.stack([np.bincount(place, minlength=size), np.bincount(place, block.mass, minlength=size)], axis=-1)
    counted = counts.reshape(folds, len(frame.classes), 2).astype(np.float64)
    return Dealt(draw(frame, shares, first, labels, block), counted)


@dataclass(frozen=True)
class Contest:
    """The models under comparison: for each fold, coordinates (contenders, scores, coordinates) and the sampled rows.

    Parameters
    ----------
    models : sequence of arrays
        Models of the first folds.
    folds : int
    shares : dict
        The shares of each label's rows that were used to choose the contenders and must not judge them.
    """

    models: Sequence[Array]
    folds: int
    shares: dict[Any, float]


def judged(frame: Frame, contest: Contest, block: Block) -> Array:
    """Masses (folds, 4) of rows that no contender has seen, and their sums of squares (2, folds, 4).

    Masses of the rows on which both, only the first, only the second, or neither is right.

    If few rows of a label are left, they also count for those that chose.
    """
    found = np.zeros((2, len(contest.models), 4))
    most = min(contest.shares.values())
    for piece in block.pieces():
        X, y = block.X[piece], block.y[piece]
        hashes, limits = row_hashes(X), np.zeros(len(y))
        for label, share in contest.shares.items():
            limits[y == label] = share
        mass = np.where(spread_out(hashes) >= limits, block.mass[piece] * (1 - most) / (1 - limits), 0.0)
        mine, codes = fold_of(hashes, contest.folds), np.searchsorted(frame.classes, y)
        for fold, models in enumerate(contest.models):
            rows = np.flatnonzero((mine == fold) & (mass > 0))
            first, second = (_right(frame, X[rows], codes[rows], each) for each in models)
            for power in (1, 2):
                found[power - 1, fold] += np.bincount(2 * ~first + ~second, mass[rows] ** power, minlength=4)
    return found


def _right(frame: Frame, X: Array, codes: Array, model: Array) -> Array:
    """Whether a model (scores, coordinates) predicts the codes."""
    scores = np.stack([frame.scores(X, c) for c in model], axis=1)
    return np.asarray((scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)) == codes)

"""Folds by the hashes of the rows: independent of where a row is, with equal rows in the same fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from .._names import Array, spread_out
from ..linear.training import row_hashes
from .blocks import Block, Frame, Survey, fold_of, joined
from .passes import Passes, draw


@dataclass
class Dealt:
    """The result of the second pass of a search: a sample, and rows and masses (folds, labels, 2) of each fold."""

    block: Block
    counts: Array

    def outside(self, survey: Survey, frame: Frame, fold: int) -> tuple[Survey, Block]:
        """The survey and the sample of the rows outside one fold."""
        left = self.counts.sum(axis=0) - self.counts[fold]
        names = frame.classes.tolist()
        for name, (rows, _) in zip(names, left.tolist(), strict=True):
            if not rows:
                raise ValueError(f"fold {fold} holds all rows of class {name!r}; use fewer folds, or drop the class")
        labels = {name: (int(rows), mass) for name, (rows, mass) in zip(names, left.tolist(), strict=True)}
        some = replace(survey, rows=int(left[:, 0].sum()), labels=labels, total=float(left[:, 1].sum()))
        kept, block = fold_of(row_hashes(self.block.X), len(self.counts)) != fold, self.block
        return some, Block(block.X[kept], block.y[kept], block.mass[kept])


def deal(passes: Passes, frame: Frame, shares: dict[Any, float], folds: int) -> Dealt:
    """The pass that samples the rows and counts the folds."""
    found = passes.run("sample", partial(_deal, frame, shares, folds))
    return Dealt(joined([each.block for each in found]), np.sum([each.counts for each in found], axis=0))


def _deal(frame: Frame, shares: dict[Any, float], folds: int, block: Block) -> Dealt:
    place = fold_of(row_hashes(block.X), folds) * len(frame.classes) + np.searchsorted(frame.classes, block.y)
    size = folds * len(frame.classes)
    counts = np.stack([np.bincount(place, minlength=size), np.bincount(place, block.mass, minlength=size)], axis=-1)
    return Dealt(draw(shares, block), counts.reshape(folds, len(frame.classes), 2).astype(np.float64))


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

    If few rows of a label are left, rows that helped to choose count as well.
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

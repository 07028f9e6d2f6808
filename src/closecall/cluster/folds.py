"""Folds assigned by row hash: a row belongs to the same fold wherever it is stored, and equal rows share a fold."""

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
    """A sample, and the number of rows and the mass (folds, labels, 2) in each fold."""

    block: Block
    counts: Array

    def outside(self, survey: Survey, frame: Frame, fold: int) -> tuple[Survey, Block]:
        """Return the survey and the sample of the rows outside one fold."""
        left = self.counts.sum(axis=0) - self.counts[fold]
        labels = {}
        for name, (rows, mass) in zip(frame.classes.tolist(), left.tolist(), strict=True):
            if not rows:
                raise ValueError(f"fold {fold} holds all rows of class {name!r}; use fewer folds, or drop the class")
            labels[name] = int(rows), mass
        some = replace(survey, rows=int(left[:, 0].sum()), labels=labels, total=float(left[:, 1].sum()))
        kept, block = fold_of(row_hashes(self.block.X), len(self.counts)) != fold, self.block
        return some, Block(block.X[kept], block.y[kept], block.mass[kept])


def deal(passes: Passes, frame: Frame, shares: dict[Any, float], folds: int) -> Dealt:
    """Draw a sample and count the rows of each fold in one pass."""
    found = passes.run("sample", partial(_deal, frame, shares, folds))
    return Dealt(joined([each.block for each in found]), np.sum([each.counts for each in found], axis=0))


def _deal(frame: Frame, shares: dict[Any, float], folds: int, block: Block) -> Dealt:
    place = fold_of(row_hashes(block.X), folds) * len(frame.classes) + np.searchsorted(frame.classes, block.y)
    size = folds * len(frame.classes)
    counts = np.stack([np.bincount(place, minlength=size), np.bincount(place, block.mass, minlength=size)], axis=-1)
    return Dealt(draw(shares, block), counts.reshape(folds, len(frame.classes), 2).astype(np.float64))


def judged(frame: Frame, models: Sequence[Array], folds: int, shares: dict[Any, float], block: Block) -> Array:
    """Compare two models in each fold, on rows outside the sample that was used to choose them.

    Parameters
    ----------
    frame : Frame
    models : sequence of arrays (2, scores, coordinates)
        The coordinates of both models for the first folds.
    folds : int
    shares : dict
        The share of each label's rows that was sampled. The remaining rows represent all rows with the same label.
    block : Block

    Returns
    -------
    sums : array (2, classes, 4)
        For each class, the masses and the sums of squared masses of the rows that are predicted correctly by both
        models, only by the first, only by the second, or by neither.
    """
    found = np.zeros((2, 4 * len(frame.classes)))
    least = min(shares.values())
    for piece in block.pieces():
        X, y = block.X[piece], block.y[piece]
        hashes, limits = row_hashes(X), np.zeros(len(y))
        for label, share in shares.items():
            limits[y == label] = share
        mass = np.where(spread_out(hashes) >= limits, block.mass[piece] * (1 - least) / (1 - limits), 0.0)
        mine, codes = fold_of(hashes, folds), np.searchsorted(frame.classes, y)
        for fold, pair in enumerate(models):
            rows = np.flatnonzero((mine == fold) & (mass > 0))
            first, second = (_right(frame, X[rows], codes[rows], each) for each in pair)
            kinds = 4 * codes[rows] + 2 * ~first + ~second
            for power in (1, 2):
                found[power - 1] += np.bincount(kinds, mass[rows] ** power, minlength=found.shape[1])
    return found.reshape(2, -1, 4)


def _right(frame: Frame, X: Array, codes: Array, model: Array) -> Array:
    """Return whether a model (scores, coordinates) predicts each code correctly."""
    scores = np.stack([frame.scores(X, c) for c in model], axis=1)
    return np.asarray((scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)) == codes)

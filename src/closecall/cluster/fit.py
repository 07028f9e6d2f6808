"""Fit models to partitioned data: survey the rows, draw a sample, and let in-memory solvers request sums over all rows.

In a search, rows are assigned to folds by hash: a row belongs to the same fold wherever it is stored, and identical
rows share a fold.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from .._names import Array, spread_out
from ..aggregates import get_aggregate
from ..linear.fitting import Models, Options
from ..linear.training import class_factors, row_hashes
from ..losses import get_loss
from ..objective import Problem
from ..solvers import many
from ..solvers.certificate import counts
from ..solvers.cuts import ALL, LossCut, cut_of
from ..solvers.kernels import pull_close, pull_largest, pull_of
from ..solvers.many import Sample, shares_of
from ..solvers.newton import LARGEST_RANK
from .passes import Block, Frame, Passes, Survey, draw, fold_of, joined
from .solve import Ended, Request, Task, together

#: The number of entries in rows near the boundary that may be gathered on any machine: half a gigabyte as float64.
ROOM = 1 << 26


def near_room() -> int:
    """Return the maximum number of entries to gather near the boundary: an eighth of the memory, but at least ``ROOM``.

    Steps on gathered rows give the same result without a pass over the partitions.
    """
    limits = []
    with suppress(AttributeError, OSError, ValueError):  # not available on this system
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with suppress(OSError, ValueError):  # no container, or "max"
            limits.append(int(Path(path).read_text()))
    return max(ROOM, min(limits, default=0) // 8 // 8)


def make_frame(survey: Survey, classes: Array, class_weight: Any, *, intercept: bool, centred: bool) -> Frame:
    """Return standardised coordinates; columns are centred only if a free intercept can absorb the shift."""
    mean = survey.sums / survey.total
    variance = np.maximum(survey.squares / survey.total - (mean**2 if centred else 0.0), 0.0)
    scale = np.sqrt(variance)
    scale = np.where(scale > 1e-7 * np.maximum(np.abs(mean), 1e-30), scale, np.maximum(np.abs(mean), 1.0))
    factors = None
    if class_weight is not None:
        factors = class_factors(class_weight, classes, np.arange(len(classes)), survey.masses(classes))
        if not (factors > 0).all():
            raise ValueError("class_weight gives a class the weight 0; drop its rows, or give it a positive weight")
    return Frame(mean if centred else np.zeros_like(mean), scale, intercept, classes, factors)


def select_by(problem: Problem, total: float, size: int = 0) -> LossCut:
    """Return how a problem with mass ``total`` selects rows; raise an error if it needs all rows in one place."""
    k, m = counts(problem, total)
    loss = get_loss(problem.loss)
    if get_aggregate(problem.aggregate).is_average(k, m, total):
        if loss.convex and not loss.kinks:
            return LossCut(ALL, total, total, True)
        what = f"the average of the {problem.loss} loss, which {'has a kink' if loss.kinks else 'is not convex'},"
        advice = "use a smooth loss such as 'logistic' or 'squared_hinge'"
    elif m > 0 or pull_of(problem.aggregate) not in (pull_close, pull_largest):
        what, advice = f"aggregate={problem.aggregate!r}", "fit a sample in memory"
    else:
        cut = cut_of(problem, np.array([total]))
        if cut is not None and size <= LARGEST_RANK:
            return cut
        what = f"a selection with {size} coordinates, more than {LARGEST_RANK},"
        advice = "reduce the number of columns"
    raise ValueError(f"{what} needs all rows in one place: raise max_gathered to at least the size of X, or {advice}")


def total_mass(survey: Survey, frame: Frame) -> float:
    """Return the total mass of all rows, with the class weights applied."""
    masses = survey.masses(frame.classes)
    return float(masses.sum() if frame.factors is None else masses @ frame.factors)


def fit_passes(
    passes: Passes, survey: Survey, frame: Frame, problem: Problem, labels: Sequence[Any], options: Options,
    *, block: Block | None = None,
) -> Models:  # fmt: skip
    """Fit one score function for each label against the rest, using all partitions.

    ``block`` is the sample to start from; by default, this function draws it.
    """
    whole = False
    if block is None:
        total = total_mass(survey, frame)
        room = many.sample_sizes(survey.rows, select_by(problem, total, frame.size).k / total)[1]
        few = survey.rows < many.FROM_ROWS  # these are solved without sampling, as in memory
        shares = dict.fromkeys(survey.labels, 1.0) if few else shares_of(survey.counts, max(room, 50 * frame.size))
        block, whole = passes.draw(shares), min(shares.values()) >= 1
    works = tasks(survey, frame, problem, labels, options, block, whole, room=near_room())
    return to_models(frame, together(passes, frame, works), options.tol, passes.number)


def tasks(
    survey: Survey, frame: Frame, problem: Problem, labels: Sequence[Any], options: Options, block: Block,
    whole: bool = False, *, room: int = ROOM, fold: tuple[int, int] | None = None,
) -> list[Any]:  # fmt: skip
    """Return tasks for :func:`closecall.cluster.solve.together`, one for each label against the rest."""
    total, mass, words = total_mass(survey, frame), frame.masses(block.y, block.mass), row_hashes(block.X)
    cut, intercept = select_by(problem, total, frame.size), (options.fit_intercept, options.penalize_intercept)
    penalty, found = frame.penalty(problem.alpha, options.penalize_intercept), []
    for label in labels:
        sample = Sample(block.X, np.where(block.y == label, 1.0, -1.0), mass, words)
        request, rows = Request(label, problem.loss, fold, "", ()), room / frame.size / len(labels)
        task = Task(request, problem, cut, total, survey.rows, penalty, options.tol, rows, options.max_iter, intercept)
        found.append(partial(task.solve, frame, sample, whole))
    return found


def to_models(frame: Frame, solutions: Sequence[Ended], tol: float, passes: int) -> Models:
    """Convert the solutions for all labels of one problem to models for the original X."""
    models = [frame.to_parameters(each.c) for each in solutions]
    if not all(np.isfinite(coef).all() and np.isfinite(intercept) for coef, intercept in models):
        raise FloatingPointError("a solution is not finite; scale the features or raise alpha")
    coef, intercept = (np.array(each)[None] for each in zip(*models, strict=True))
    gap = np.array([[each.gap for each in solutions]])
    return Models(coef, intercept, np.full(gap.shape, passes), gap, gap <= tol)


@dataclass
class Dealt:
    """A sample, and the number of rows and the mass of each label in each fold (folds, labels, 2)."""

    block: Block
    counts: Array

    @cached_property
    def fold(self) -> Array:
        """The fold of each row in the sample (rows,)."""
        return fold_of(row_hashes(self.block.X), len(self.counts))

    def outside(self, survey: Survey, frame: Frame, fold: int) -> tuple[Survey, Block]:
        """Return the survey and the sample for the rows outside one fold."""
        left = self.counts.sum(axis=0) - self.counts[fold]
        labels = {}
        for name, (rows, mass) in zip(frame.classes.tolist(), left.tolist(), strict=True):
            if not rows:
                raise ValueError(f"fold {fold} holds all rows of class {name!r}; use fewer folds, or drop the class")
            labels[name] = int(rows), mass
        some = replace(survey, rows=int(left[:, 0].sum()), labels=labels, total=float(left[:, 1].sum()))
        kept, block = self.fold != fold, self.block
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
    """Compare two models on each of the first folds, using rows outside the sample on which they were chosen.

    Each element of ``models`` (2, scores, coordinates) contains both models for a fold. ``shares`` contains the share
    of each label's rows that was sampled; the remaining rows represent all rows with the same label. The result (2,
    classes, 4) contains the sums of the masses and of their squares for the rows that are predicted correctly by both
    models, only by the first, only by the second, and by neither.
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
    """Return whether a model (scores, coordinates) predicts the code of each row's label correctly."""
    scores = np.stack([frame.scores(X, c) for c in model], axis=1)
    return np.asarray((scores[:, 0] > 0 if scores.shape[1] == 1 else scores.argmax(axis=1)) == codes)

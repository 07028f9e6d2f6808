"""A fit over partitions: a survey, a sample, and the in-memory solvers, which evaluate all rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..linear.training import class_factors, row_hashes
from ..losses import get_loss
from ..objective import Problem
from ..solvers import many
from ..solvers.certificate import counts
from ..solvers.cuts import ALL, LossCut, cut_of
from ..solvers.kernels import pull_close, pull_largest, pull_of
from ..solvers.many import Sample, shares_of
from ..solvers.newton import LARGEST_RANK
from .blocks import Block, Frame, Survey
from .passes import Passes
from .room import ROOM, near_room
from .solve import Ended, Request, Task, Together


@dataclass(frozen=True)
class Manner:
    """How problems are solved: parameters of the classifier."""

    max_iter: int
    tol: float
    fit_intercept: bool
    penalize_intercept: bool


@dataclass(frozen=True)
class Fitted:
    """Linear models of a fit: coef (scores, features), the rest (scores,)."""

    coef: Array
    intercept: Array
    gap: Array


def make_frame(survey: Survey, classes: Array, class_weight: Any, *, intercept: bool, centred: bool) -> Frame:
    """Standardised coordinates; without a free intercept the origin must not move."""
    mean = survey.sums / survey.total
    variance = np.maximum(survey.squares / survey.total - (mean**2 if centred else 0.0), 0.0)
    scale = np.sqrt(variance)
    scale = np.where(scale > 1e-7 * np.maximum(np.abs(mean), 1e-30), scale, np.maximum(np.abs(mean), 1.0))
    factors = None
    if class_weight is not None:
        masses = np.array([survey.labels[name][1] for name in classes.tolist()])
        factors = class_factors(class_weight, classes, np.arange(len(classes)), masses)
        if not (factors > 0).all():
            raise ValueError("class_weight gives a class weight 0; drop its rows instead, or give it a positive weight")
    return Frame(mean if centred else np.zeros_like(mean), scale, intercept, classes, factors)


def select_by(problem: Problem, total: float, size: int = 0) -> LossCut:
    """The cut of a problem over the mass ``total``; an error if it requires all rows in one place."""
    k, m = counts(problem, total)
    loss, advice = get_loss(problem.loss), "raise max_gathered to at least the entries of X, or"
    if get_aggregate(problem.aggregate).is_average(k, m, total):
        if loss.convex and not loss.kinks:
            return LossCut(ALL, total, total, True)
    elif m > 0 or pull_of(problem.aggregate) not in (pull_close, pull_largest):
        raise ValueError(f"aggregate={problem.aggregate!r} can only be fitted in one place: {advice} fit a sample in "
                         "memory")  # fmt: skip
    else:
        cut = cut_of(problem, np.array([total]))
        if cut is not None and size <= LARGEST_RANK:
            return cut
        raise ValueError(f"{size} coordinates are more than the {LARGEST_RANK} of a selection over partitions: "
                         f"{advice} reduce the columns")  # fmt: skip
    why = "has a kink" if loss.kinks else "is not convex"
    raise ValueError(f"the average of the {problem.loss} loss, which {why}, can only be fitted in one place: {advice} "
                     "use a smooth loss such as 'logistic' or 'squared_hinge'")  # fmt: skip


def total_mass(survey: Survey, frame: Frame) -> float:
    """The total mass of all rows, multiplied by their class weights."""
    masses = np.array([survey.labels[name][1] for name in frame.classes.tolist()])
    return float(masses.sum() if frame.factors is None else masses @ frame.factors)


def shares_for(survey: Survey, frame: Frame, problem: Problem) -> dict[Any, float]:
    """The share of each label in the sample that a problem begins on: that of a fit in memory."""
    total = total_mass(survey, frame)
    room = many.sample_sizes(survey.rows, select_by(problem, total, frame.size).k / total)[1]
    if survey.rows < many.FROM_ROWS:  # what the fit in memory solves without a sample of this kind
        return dict.fromkeys(survey.labels, 1.0)
    return shares_of({name: rows for name, (rows, _) in survey.labels.items()}, max(room, 50 * frame.size))


def fit_passes(
    passes: Passes, survey: Survey, frame: Frame, problem: Problem, labels: Sequence[Any], manner: Manner,
    *, near: int | None = None,
) -> Fitted:  # fmt: skip
    """Fit one score for each label against the rest, over all partitions.

    Parameters
    ----------
    passes : Passes
    survey : Survey
        The survey of the same source.
    frame : Frame
    problem : Problem
    labels : sequence
        The classes that count as +1.
    manner : Manner
    near : int, optional
        Entries of rows near the boundary that may be gathered; by default as many as memory allows.
    """
    shares = shares_for(survey, frame, problem)
    block = passes.draw(shares)
    room = near_room() if near is None else near
    whole = min(shares.values()) >= 1
    works = tasks(survey, frame, problem, labels, manner, block, whole, room=room)
    return collect(frame, Together(passes, frame).run(works))


def tasks(
    survey: Survey, frame: Frame, problem: Problem, labels: Sequence[Any], manner: Manner, block: Block,
    whole: bool = False, *, room: int = ROOM, fold: tuple[int, int] | None = None,
) -> list[Any]:  # fmt: skip
    """The problem of each label against the rest, as tasks of :class:`closecall.cluster.solve.Together`."""
    total, mass, words = total_mass(survey, frame), frame.masses(block.y, block.mass), row_hashes(block.X)
    cut, intercept = select_by(problem, total, frame.size), (manner.fit_intercept, manner.penalize_intercept)
    penalty, found = frame.penalty(problem.alpha, manner.penalize_intercept), []
    for label in labels:
        sample = Sample(block.X, np.where(block.y == label, 1.0, -1.0), mass, words)
        request, rows = Request(label, problem.loss, fold, "", ()), room / frame.size / len(labels)
        task = Task(request, problem, cut, total, survey.rows, penalty, manner.tol, rows, manner.max_iter, intercept)
        found.append(partial(task.solve, frame, sample, whole))
    return found


def collect(frame: Frame, found: Sequence[Ended]) -> Fitted:
    """The solutions for all labels as models of the original X."""
    models = [frame.to_parameters(each.c) for each in found]
    if not all(np.isfinite(coef).all() and np.isfinite(intercept) for coef, intercept in models):
        raise FloatingPointError("a solution is not finite; scale the features or raise alpha")
    gap = np.array([each.gap for each in found])
    return Fitted(np.stack([coef for coef, _ in models]), np.array([intercept for _, intercept in models]), gap)

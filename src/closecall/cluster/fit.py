"""Fit over partitions: survey the rows, draw a sample, and let the in-memory solvers request sums over all rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from .._names import Array
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
from .blocks import Block, Frame, Survey
from .passes import Passes
from .solve import Ended, Request, Task, Together

#: Entries of rows near the boundary that may be gathered on any machine: half a gigabyte as float64.
ROOM = 1 << 26


def near_room() -> int:
    """Return how many entries of rows near the boundary may be gathered.

    The limit is an eighth of the memory, but at least ``ROOM``. Steps on gathered rows need no pass and give the same
    result.
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
        masses = np.array([survey.labels[name][1] for name in classes.tolist()])
        factors = class_factors(class_weight, classes, np.arange(len(classes)), masses)
        if not (factors > 0).all():
            raise ValueError("class_weight gives a class the weight 0; drop its rows, or give it a positive weight")
    return Frame(mean if centred else np.zeros_like(mean), scale, intercept, classes, factors)


def select_by(problem: Problem, total: float, size: int = 0) -> LossCut:
    """Return the selection of a problem for the mass ``total``; raise an error if it needs all rows in one place."""
    k, m = counts(problem, total)
    loss, advice = get_loss(problem.loss), "raise max_gathered to at least the size of X, or"
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
        raise ValueError(f"X has {size} coordinates, more than the {LARGEST_RANK} that a selection over partitions "
                         f"supports: {advice} reduce the number of columns")  # fmt: skip
    why = "has a kink" if loss.kinks else "is not convex"
    raise ValueError(f"the average of the {problem.loss} loss, which {why}, can only be fitted in one place: {advice} "
                     "use a smooth loss such as 'logistic' or 'squared_hinge'")  # fmt: skip


def total_mass(survey: Survey, frame: Frame) -> float:
    """Return the total mass of all rows, including class weights."""
    masses = np.array([survey.labels[name][1] for name in frame.classes.tolist()])
    return float(masses.sum() if frame.factors is None else masses @ frame.factors)


def shares_for(survey: Survey, frame: Frame, problem: Problem) -> dict[Any, float]:
    """Return the share of each label in the sample from which a problem starts, as in an in-memory fit."""
    total = total_mass(survey, frame)
    room = many.sample_sizes(survey.rows, select_by(problem, total, frame.size).k / total)[1]
    if survey.rows < many.FROM_ROWS:  # so few rows are solved without sampling
        return dict.fromkeys(survey.labels, 1.0)
    return shares_of({name: rows for name, (rows, _) in survey.labels.items()}, max(room, 50 * frame.size))


def fit_passes(
    passes: Passes, survey: Survey, frame: Frame, problem: Problem, labels: Sequence[Any], options: Options,
    *, block: Block | None = None, near: int | None = None,
) -> Models:  # fmt: skip
    """Fit one score for each label against the rest, over all partitions.

    ``block`` is the sample to start from; by default, this function draws it. ``near`` limits the entries of rows near
    the boundary that are gathered; by default, the limit depends on the memory.
    """
    whole = False
    if block is None:
        shares = shares_for(survey, frame, problem)
        block, whole = passes.draw(shares), min(shares.values()) >= 1
    room = near_room() if near is None else near
    works = tasks(survey, frame, problem, labels, options, block, whole, room=room)
    return to_models(frame, Together(passes, frame).run(works), options.tol, passes.number)


def tasks(
    survey: Survey, frame: Frame, problem: Problem, labels: Sequence[Any], options: Options, block: Block,
    whole: bool = False, *, room: int = ROOM, fold: tuple[int, int] | None = None,
) -> list[Any]:  # fmt: skip
    """Return one task of :class:`closecall.cluster.solve.Together` for each label against the rest."""
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

"""A fit over partitions: survey, sample, windows; or everything gathered, if it fits in one place."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.optimize import minimize

from .._names import Array
from ..aggregates import AGGREGATES, get_aggregate
from ..linear.training import class_factors
from ..losses import get_loss
from ..objective import Problem
from ..solvers.certificate import counts
from ..solvers.kernels import pull_close, pull_largest, pull_of
from ..solvers.large import Manner
from ..solvers.newton import LARGEST_RANK
from .begin import SAMPLE, shares_of, start_of
from .blocks import Frame, Survey
from .draw import Draw
from .looks import Look, Sums
from .passes import Passes
from .rest import Asked, Resting, rest, seen
from .room import ROOM, near_room
from .settled import serves, settled, share_of_first
from .walk import rows_of, walk
from .window import Selection, Window

#: What the path of a decay run begins as.
ALL = next(each.name for each in AGGREGATES.values() if each.plain)
#: Passes of an L-BFGS, for more columns than a Hessian is worth.
QUASI_PASSES = 55


@dataclass(frozen=True)
class Fitted:
    """Linear models of a fit: coef (scores, features), the rest (scores,)."""

    coef: Array
    intercept: Array
    gap: Array
    objective: Array
    errors: Array
    rests: Array


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


def select_by(problem: Problem, total: float) -> Selection:
    """The selection of a problem; an error if it requires all rows in one place."""
    aggregate, loss = get_aggregate(problem.aggregate), get_loss(problem.loss)
    k, m = counts(problem, total)
    pull = pull_of(problem.aggregate)
    if aggregate.is_average(k, m, total):
        return Selection(problem.loss, None, total, total)
    if m > 0 or pull not in (pull_close, pull_largest):
        raise ValueError(
            f"aggregate={problem.aggregate!r} can only be fitted in one place: raise max_gathered to at least the "
            "entries of X, or fit a sample in memory"
        )
    return Selection(problem.loss, loss.threshold if pull is pull_close else None, k, total)


def fit_passes(
    passes: Passes, survey: Survey, frame: Frame, problem: Problem, labels: Sequence[Any], manner: Manner,
    *, sample: int = SAMPLE, room: int = ROOM, near: int | None = None,
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
    sample, room : int
        Entries of the sample, and of rows gathered by a pass around a k-th place.
    near : int, optional
        Entries of rows near the boundary to keep; by default as many as memory allows.

    Returns
    -------
    Fitted
    """
    asked = ask(survey, frame, problem, labels, manner, room=room, near=near_room() if near is None else near)
    drawn = passes.draw(frame, *draw_for(survey, frame, asked[0], problem, sample=sample), labels)
    return fit_drawn(passes, frame, problem, asked, drawn, manner)


def ask(
    survey: Survey, frame: Frame, problem: Problem, labels: Sequence[Any], manner: Manner, *, room: int = ROOM,
    near: int = ROOM,
) -> list[Asked]:  # fmt: skip
    """The problem of each label against the rest, which share ``near``; an error if passes cannot solve it."""
    size, total = len(frame.mean) + frame.intercept, total_mass(survey, frame)
    selection = select_by(problem, total)
    penalty = np.append(problem.alpha / frame.scale**2, [problem.alpha * manner.penalize_intercept] * frame.intercept)
    _check(problem, selection, size)
    rows = max(room // size, 10 * size), near // size // len(labels)
    return [Asked(each, selection, penalty, survey.rows, manner.tol, *rows) for each in labels]


def total_mass(survey: Survey, frame: Frame) -> float:
    """The total mass of all rows, multiplied by their class weights."""
    masses = np.array([survey.labels[name][1] for name in frame.classes.tolist()])
    return float(masses.sum() if frame.factors is None else masses @ frame.factors)


def draw_for(
    survey: Survey, frame: Frame, asked: Asked, problem: Problem, *, sample: int = SAMPLE
) -> tuple[dict[Any, float], float]:
    """The share of each label that a problem begins on, and the share of rows with the smallest hashes."""
    size = len(frame.mean) + frame.intercept
    first = share_of_first(survey.rows) if serves(asked, problem, size) else 0.0
    return shares_of(survey, max(sample // size, 50 * size)), first


def fit_drawn(
    passes: Passes, frame: Frame, problem: Problem, asked: Sequence[Asked], drawn: Draw, manner: Manner
) -> Fitted:
    """Fit from the sample."""
    if len(frame.mean) + frame.intercept > LARGEST_RANK:
        starts = [start_of(each, problem, frame, drawn.block, manner) for each in asked]
        return collect(frame, [_quasi_newton(passes, frame, *each) for each in zip(asked, starts, strict=True)])
    return collect(frame, lockstep(passes, frame, ways(frame, problem, asked, drawn, manner)))


def ways(
    frame: Frame, problem: Problem, asked: Sequence[Asked], drawn: Draw, manner: Manner
) -> list[Generator[Any, Any, Resting]]:
    """One solver coroutine for each label."""
    return [_way(each, problem, frame, drawn, drawn.pulls[number], manner) for number, each in enumerate(asked)]


def _check(problem: Problem, selection: Selection, size: int) -> None:
    """Reject, with a reason, what passes cannot do exactly."""
    loss, aggregate = get_loss(problem.loss), get_aggregate(problem.aggregate)
    advice = "raise max_gathered to at least the entries of X, or"
    if size > LARGEST_RANK and not (selection.whole and loss.convex):
        raise ValueError(f"{size} coordinates are more than the {LARGEST_RANK} of a selection over partitions: "
                         f"{advice} reduce the columns")  # fmt: skip
    if loss.kinks and loss.convex and (selection.whole or aggregate.decays):
        raise ValueError(f"the average of the {problem.loss} loss, which has a kink, can only be fitted in one place: "
                         f"{advice} use a smooth loss such as 'logistic' or 'squared_hinge'")  # fmt: skip


def _way(
    asked: Asked, problem: Problem, frame: Frame, drawn: Draw, pulls: Array, manner: Manner
) -> Generator[Any, Any, Resting]:
    """The solver coroutine: averages end at their optimum, close-k at a certified point; others use Algorithm 1.

    The steps, including those for uncertified problems, start from the optimum of the average or from least squares.
    """
    if serves(asked, problem, len(asked.penalty)):
        end = yield from settled(asked, problem, frame, drawn, manner)
        if end is not None:
            return end
    loss, total = get_loss(problem.loss), asked.selection.total
    average = replace(problem, aggregate=ALL, k=None, m=None)
    root = replace(asked, selection=Selection(problem.loss, None, total, total))
    if loss.convex and (asked.selection.whole or get_aggregate(problem.aggregate).decays):
        found = yield from rest(root, start_of(root, average, frame, drawn.block, manner))
        if asked.selection.whole:
            return found
        start = found.c
    else:
        start = np.linalg.lstsq(drawn.gram, -pulls, rcond=1e-10)[0]
    return (yield from walk(asked, problem, drawn, rows_of(frame, drawn.block, asked), start, manner.max_iter))


def lockstep(passes: Passes, frame: Frame, coroutines: Sequence[Generator[Any, Any, Resting]]) -> list[Resting]:
    """Run problems together: every pass answers all pending requests."""
    waiting = {number: next(each) for number, each in enumerate(coroutines)}
    found: dict[int, Resting] = {}
    while waiting:
        answers = passes.look(frame, list(waiting.values()), "sums")
        asking = list(waiting)
        waiting = {}
        for number, sums in zip(asking, answers, strict=True):
            try:
                waiting[number] = coroutines[number].send(sums)
            except StopIteration as end:
                found[number] = end.value
    return [found[number] for number in range(len(coroutines))]


def _quasi_newton(passes: Passes, frame: Frame, asked: Asked, start: Array) -> Resting:
    """An average with too many columns for a Hessian: SciPy's L-BFGS, with one pass per evaluation."""
    looked: dict[bytes, tuple[Look, Sums]] = {}

    def objective(c: Array) -> tuple[float, Array]:
        look = Look(asked.label, c.copy(), asked.selection.loss, None, np.inf, np.inf, second=False)
        sums = passes.look(frame, [look])[0]
        looked[c.tobytes()] = look, sums
        return sums.value + 0.5 * float(asked.penalty @ c**2), sums.gradient + asked.penalty * c

    options = {"maxfun": QUASI_PASSES, "ftol": 1e-14, "gtol": 1e-9 * asked.selection.total, "maxcor": 20}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    look, sums = looked.get(found.x.tobytes()) or next(reversed(looked.values()))
    here = seen(Window(look, sums, asked.selection, asked.penalty))
    return replace(here, rests=here.gap <= asked.tol)


def collect(frame: Frame, found: Sequence[Resting]) -> Fitted:
    """The solutions for all labels as models of the original X."""
    models = [frame.to_parameters(each.c) for each in found]
    if not all(np.isfinite(coef).all() and np.isfinite(intercept) for coef, intercept in models):
        raise FloatingPointError("a solution is not finite; scale the features or raise alpha")
    return Fitted(
        np.stack([coef for coef, _ in models]), np.array([intercept for _, intercept in models]),
        *(np.array([getattr(each, name) for each in found]) for name in ("gap", "objective", "errors", "rests")),
    )  # fmt: skip

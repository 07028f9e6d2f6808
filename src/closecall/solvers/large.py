"""Close-k on many examples in one place: from a sample's answer to a stationary point of all rows."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import Loss, get_loss
from ..objective import Problem
from ..schedules import last_convex_step
from .certificate import Judged, counts
from .convex import Roots, minimize
from .kernels import pull_close, pull_of
from .newton import LARGEST_RANK
from .prepared import Prepared, prepare
from .sample import LEAST, SHARE
from .stationary import AFAR, WIDEST, Goal, Point, Search, Seen
from .steps import Rows, descend
from .tally import Aim, place_of, tally

#: Rows of a sample at most, and steps of its run at most: it only says where to begin.
MOST, SAMPLE_STEPS = 100_000, 100
#: Training errors, as a share of the mass, that a stationary point may have more than the sample's run.
WORSE = 0.01


@dataclass(frozen=True)
class Begun:
    """Where a search over all rows begins: parameters, and the errors there as a share of the sample's mass."""

    coef: Array
    intercept: float
    place: float
    errors: float


@dataclass(frozen=True)
class Manner:
    """How problems are solved: parameters of the classifier."""

    max_iter: int
    tol: float
    fit_intercept: bool
    penalize_intercept: bool


class OnePlace:
    """Rows in memory, as :class:`closecall.solvers.stationary.Search` looks at them."""

    def __init__(self, signed: Array, mass: Array) -> None:
        inside = mass > 0
        self.signed, self.mass = (signed, mass) if inside.all() else (signed[inside], mass[inside])

    def rows(self, some: Array) -> Array:
        return self.signed[some].astype(np.float64, copy=False)

    def look(self, loss: Loss, aim: Aim) -> Seen:
        """All rows once."""
        margins = -(self.signed @ aim.c.astype(self.signed.dtype))
        sums = tally(loss, aim, margins, self.mass, self.rows)
        sums.errors = float(self.mass[margins <= 0].sum())
        if aim.kept is None:
            return Seen(sums)
        near = np.flatnonzero((margins > aim.kept[0]) & (margins < aim.kept[1]))
        return Seen(sums, self.rows(near), self.mass[near])

    def drive(self, loss: Loss, looking: Generator[Aim, Seen, Point | None]) -> Point | None:
        """Run a coroutine of a search to its end."""
        try:
            aim = next(looking)
            while True:
                aim = looking.send(self.look(loss, aim))
        except StopIteration as end:
            found: Point | None = end.value
            return found


def serves(problem: Problem, total: float, rank: int) -> bool:
    """Whether a problem's stationary points are looked for this way: close-k of a smooth convex loss."""
    loss, (k, m) = get_loss(problem.loss), counts(problem, total)
    plain = get_aggregate(problem.aggregate).is_average(k, m, total)
    smooth = loss.convex and not loss.kinks
    return (
        pull_of(problem.aggregate) is pull_close and smooth and not plain and problem.alpha > 0 and rank <= LARGEST_RANK
    )


def sample_size(samples: int) -> int:
    """Rows of the sample that a search begins on.

    Examples
    --------
    >>> sample_size(10**5), sample_size(10**6), sample_size(10**8)
    (25000, 62500, 100000)
    """
    return min(max(LEAST, int(samples * SHARE)), MOST, samples)


def begin(X: Array, y: Array, mass: Array, problem: Problem, total: float, manner: Manner) -> Begun | None:
    """The answer of a sample with labels -1 and +1 to a problem over the mass ``total``, at the widest ramp.

    Where the ramp has none near, the run's own end; None where k reaches beyond the losses that are seen.
    """
    share, loss = float(mass.sum()) / total, get_loss(problem.loss)
    ready = prepare(X, y, mass[None], fit_intercept=manner.fit_intercept,
                    penalize_intercept=manner.penalize_intercept, dtype=np.float64)  # fmt: skip
    design, alpha = ready.design, problem.alpha * share
    k = counts(problem, total)[0] * share
    c = _walked(ready, problem, k, alpha, manner)
    here = OnePlace(design.signed, design.masses[0])
    place = place_of(loss, loss.value(-(design.signed @ c)), design.masses[0], k, WIDEST)
    if place is None:
        return None
    goal = Goal(loss, k, alpha * design.penalized, np.diag(design.spectrum) / float(mass.sum()), manner.tol)
    errors = float(here.mass[here.signed @ c >= 0].sum()) / float(mass.sum())
    point = here.drive(loss, Search(goal).stage(c, place, WIDEST, AFAR))
    c, place = (c, place) if point is None else (point.c, point.place)
    coef, intercept = design.to_parameters(c[None])
    return Begun(coef[0], float(intercept[0]), place, errors)


def _walked(ready: Prepared, problem: Problem, k: float, alpha: float, manner: Manner) -> Array:
    """Coordinates where the problem's own steps end, on few rows."""
    steps, fold = min(manner.max_iter, SAMPLE_STEPS), np.zeros(1, dtype=int)
    third, start = last_convex_step(steps), ready.least_squares(fold)
    how: dict[str, Any] = {"tol": manner.tol, "block_rows": 1}
    decays = get_aggregate(problem.aggregate).decays
    if decays and third > 0:
        roots = Roots([problem.loss], fold, np.array([alpha]))
        start = minimize(ready.design, roots, ready.masses, start, passes=third, snapshot=third, **how)[2]
    parts = problem.loss, problem.aggregate, 0, k, 0.0, alpha, third + 1 if decays else 1
    rows = Rows(*(np.array([part]) for part in parts))
    return np.asarray(descend(ready.design, rows, ready.masses, start, steps=steps, wide_rows=1, **how)[0][0])


@dataclass(frozen=True)
class Settled:
    """A stationary point of all rows: parameters, the certificate's gap, and the steps that it took."""

    coef: Array
    intercept: float
    gap: float
    used: int


def settle_many(
    setting: Judged, masses: Array, prepared: Prepared, problems: list[Problem], fold_of: Array, manner: Manner,
    shuffled: bool,
) -> dict[int, Settled]:  # fmt: skip
    """Certified points by the number of the problem, of those that are found in this way on many dense rows.

    ``shuffled`` says that the order of the rows means nothing, so that the first are a sample.
    """
    found: dict[int, Settled] = {}
    with np.errstate(all="ignore"):  # what comes out is looked at
        for row, problem in enumerate(problems):
            mass = masses[fold_of[row]]
            point = settle_large(setting.X, setting.y, mass, prepared, int(fold_of[row]), problem, manner, shuffled)
            if point is not None:
                found[row] = point
    return found


def nothing(features: int) -> tuple[Array, Array, Array, Array]:
    """What a sweep of no problems finds."""
    return np.empty((0, features)), np.empty(0), np.empty(0, dtype=int), np.empty(0)


def merge(
    settled: dict[int, Settled], rest: Array, coef: Array, intercept: Array, used: Array, bounds: Array,
    proven: Array | None,
) -> tuple[Array, Array, Array, Array, Array]:  # fmt: skip
    """The arrays of all problems: those that are settled, and the others, whose numbers are ``rest``."""
    rows, points = list(settled), list(settled.values())
    order = np.argsort(np.concatenate([rest, np.array(rows, dtype=int)]))
    gaps = np.full(len(rest), np.inf) if proven is None else proven
    both = (
        np.concatenate([coef, [point.coef for point in points]]),
        np.concatenate([intercept, [point.intercept for point in points]]),
        np.concatenate([used, [point.used for point in points]]),
        np.concatenate([bounds, np.zeros(len(points))]),
        np.concatenate([gaps, [point.gap for point in points]]),
    )
    return tuple(part[order] for part in both)  # type: ignore[return-value]


def settle_large(
    X: Any, y: Array, mass: Array, prepared: Prepared, fold: int, problem: Problem, manner: Manner, shuffled: bool
) -> Settled | None:
    """A certified point of one problem on many dense rows; None where none is found in this way."""
    design, loss = prepared.design, get_loss(problem.loss)
    total = float(mass.sum())
    tol = manner.tol - design.rounding
    if prepared.sample is None or tol <= 0 or not serves(problem, total, design.rank):
        return None
    size = sample_size(len(y))
    some = np.arange(size) if shuffled else np.sort(np.random.default_rng(0).choice(len(y), size, replace=False))
    some = some[mass[some] > 0]
    begun = begin(X[some], y[some], mass[some], problem, total, manner)
    if begun is None:
        return None
    metric = np.diag(design.spectrum) / total
    search = Search(Goal(loss, counts(problem, total)[0], problem.alpha * design.penalized, metric, tol))
    start = design.to_coordinates(begun.coef[None], np.array([begun.intercept]))[0]
    point = OnePlace(design.signed, design.masses[fold]).drive(loss, search.run(start, begun.place))
    if point is None or point.sums.errors > (begun.errors + WORSE) * total:
        return None
    coef, intercept = design.to_parameters(point.c[None])
    used = min(manner.max_iter, SAMPLE_STEPS) + search.steps
    return Settled(coef[0], float(intercept[0]), point.gap(replace(search.goal, tol=tol)) + design.rounding, used)

"""Close-k on many examples in memory: from the solution on a sample to a stationary point of all rows."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import Loss, get_loss
from ..objective import Problem
from ..schedules import last_convex_step
from .certificate import counts
from .convex import Roots, minimize
from .kernels import pull_close, pull_of
from .newton import LARGEST_RANK
from .prepared import prepare
from .sample import FROM_SAMPLES, SHARE
from .stationary import AFAR, NARROWING, ROUGH, WIDEST, Goal, Point, Search, Seen
from .steps import Rows, descend
from .tally import Aim, Tally, add_rows, in_cache, place_of

#: Rows of a sample at least and at most, and steps of its run at most: it only says where to begin.
LEAST, MOST, SAMPLE_STEPS = 16_000, 100_000, 60
#: Rows of the sample on which that run is made, and how many of them k is to be at least.
WALKED, CLOSE = 4096, 400
#: A sample's answer is looked for until half the squared gradient is this share of its expected noise.
NOISE = 0.1
#: Margins may be rounded by this, for rows that are so many scales from the mean: they only say what is near.
ROUNDED, FAR = 1e-3, 6.0
#: Training errors, as a share of the mass, that a stationary point may have more than the sample's run.
WORSE = 0.01


@dataclass(frozen=True)
class Begun:
    """Where a search over all rows begins: parameters, place and width, and the errors as a share of the mass."""

    coef: Array
    intercept: float
    place: float
    errors: float
    width: float = WIDEST


@dataclass(frozen=True)
class Manner:
    """How problems are solved: parameters of the classifier."""

    max_iter: int
    tol: float
    fit_intercept: bool
    penalize_intercept: bool

    @property
    def intercept(self) -> str:
        """How the intercept counts, as in a design."""
        return "none" if not self.fit_intercept else "penalized" if self.penalize_intercept else "free"


class OnePlace:
    """Rows in memory, in the form that :class:`closecall.solvers.stationary.Search` uses.

    Coordinates are those of standardised columns, the intercept last. X (samples, features) is read block by block, in
    its own type and layout, and never copied as a whole. The rows of one pass are valid until the next.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [4.0]]), np.array([-1.0, 1.0, 1.0])
    >>> rows = OnePlace(X, y, np.ones(3), *standards(X, np.ones(3), "free"), "free")
    >>> rows.to_parameters(rows.to_coordinates(np.array([2.0]), -1.0))
    (array([2.]), -1.0)
    """

    def __init__(self, X: Array, y: Array, mass: Array, mean: Array, scale: Array, intercept: str) -> None:
        self.X, self.y, self.mass, self.mean, self.scale = X, y, mass, mean, scale
        self.intercept = intercept != "none"
        self.massless, self.unit = not (mass > 0).all(), bool((mass == 1).all())
        self.room = np.empty(
            (0, self.size)
        )  # rows of one look after the other: fresh memory costs more than to fill it
        self.signs = y.astype(X.dtype)

    @property
    def size(self) -> int:
        """How many coordinates there are."""
        return len(self.mean) + self.intercept

    def to_parameters(self, c: Array) -> tuple[Array, float]:
        """Coefficients (features,) and the intercept."""
        w = c[: len(self.mean)] / self.scale
        return w, float((c[-1] if self.intercept else 0.0) - self.mean @ w)

    def to_coordinates(self, coef: Array, intercept: float) -> Array:
        """Coordinates of parameters."""
        return np.append(coef * self.scale, [intercept + coef @ self.mean] * self.intercept)

    def penalty(self, alpha: float, penalized: bool) -> Array:
        """The penalties of the coordinates."""
        return np.append(alpha / self.scale**2, [alpha * penalized] * self.intercept)

    def metric(self) -> Array:
        """The mean products of the coordinates over all rows."""
        gram = np.zeros((self.size, self.size))
        for some in in_cache(*self.X.shape):
            rows = self._rows(some) * np.sqrt(self.mass[some, None])
            gram += rows.T @ rows
        return gram / self.mass.sum()

    def margins(self, coef: Array, intercept: float) -> Array:
        """Margins of all rows (samples,): in their own type if its rounding is harmless, otherwise in float64."""
        rounding = np.finfo(self.X.dtype).eps * float(np.abs(coef) @ (np.abs(self.mean) + FAR * self.scale))
        if self.X.dtype == np.float64 or rounding <= ROUNDED:
            found = self.X @ coef.astype(self.X.dtype)
        else:
            found = np.concatenate([self.X[some].astype(np.float64) @ coef for some in in_cache(*self.X.shape)])
        found += self.X.dtype.type(intercept)
        found *= self.signs
        return np.asarray(found)

    def look(self, loss: Loss, aim: Aim) -> Seen:
        """Run one pass over all rows."""
        margins, (low, high) = self.margins(*self.to_parameters(aim.c)), aim.kept or aim.seen
        between = (margins > low) & (margins < high)
        near = np.flatnonzero(between & (self.mass > 0) if self.massless else between)
        if aim.kept is not None and len(self.room) < len(near):
            self.room = np.empty((len(near) * 9 // 8, self.size))
        rows = None if aim.kept is None else self.room[: len(near)]
        sums, masses = Tally.zero(self.size), self.mass[near]
        for some in in_cache(len(near), self.size):
            signed = self._rows(near[some], None if rows is None else rows[some])
            add_rows(sums, loss, aim, signed, masses[some])
        wrong = margins <= 0
        sums.errors = float(np.count_nonzero(wrong)) if self.unit else float(self.mass @ wrong)
        return Seen(sums, rows, None if rows is None else masses)

    def drive(self, loss: Loss, looking: Generator[Aim, Seen, Point | None]) -> Point | None:
        """Run a coroutine of a search to its end."""
        try:
            aim = next(looking)
            while True:
                aim = looking.send(self.look(loss, aim))
        except StopIteration as end:
            found: Point | None = end.value
            return found

    def _rows(self, some: Array | slice, found: Array | None = None) -> Array:
        """Rows ``-y * z`` (rows, coordinates) of some rows, into ``found`` if it is given."""
        X = self.X[some] if isinstance(some, slice) else self.X.take(some, axis=0)
        signs = -self.y[some, None]
        found = np.empty((len(X), self.size)) if found is None else found
        inner = found[:, : len(self.mean)]
        np.subtract(X, self.mean, out=inner)
        inner *= signs / self.scale
        found[:, len(self.mean) :] = signs
        return found


def standards(X: Array, mass: Array, intercept: str) -> tuple[Array, Array]:
    """Means and scales of the columns, by which coordinates are standardised; only a free intercept takes means away.

    Examples
    --------
    >>> standards(np.array([[1.0, 5.0], [3.0, 5.0]]), np.ones(2), "free")
    (array([2., 5.]), array([1., 1.]))
    """
    X = X.astype(np.float64)
    mean = mass @ X / mass.sum() if intercept == "free" else np.zeros(X.shape[1])
    scale = np.sqrt(mass @ (X - mean) ** 2 / mass.sum())
    return mean, np.where(scale > 1e-12 * np.abs(X).max(axis=0), scale, 1.0)


def serves(problem: Problem, total: float, rank: int) -> bool:
    """Whether this method applies to a problem: close-k with a smooth convex loss."""
    loss, (k, m) = get_loss(problem.loss), counts(problem, total)
    plain = get_aggregate(problem.aggregate).is_average(k, m, total)
    smooth = loss.convex and not loss.kinks
    return (
        pull_of(problem.aggregate) is pull_close and smooth and not plain and problem.alpha > 0 and rank <= LARGEST_RANK
    )


def sample_size(samples: int) -> int:
    """The number of rows in the sample on which a search begins.

    Examples
    --------
    >>> sample_size(10**5), sample_size(10**6), sample_size(10**8)
    (16000, 62500, 100000)
    """
    return min(max(LEAST, int(samples * SHARE)), MOST, samples)


def begin(X: Array, y: Array, mass: Array, problem: Problem, total: float, manner: Manner) -> Begun | None:
    """The solution of a problem over the mass ``total`` on a sample with labels -1 and +1, at a suitable ramp.

    It is first computed on a few of the sample's rows. If no ramp has one nearby, the end of the run itself; None if k
    reaches beyond the losses observed.
    """
    return _begin(X, y, mass, problem, total, manner)[0]


def _begin(
    X: Array, y: Array, mass: Array, problem: Problem, total: float, manner: Manner
) -> tuple[Begun | None, OnePlace, Goal]:
    """The starting point, the sample, and the problem scaled to the sample."""
    here, goal = _sample(X, y, mass, problem, total, manner)
    few = slice(None, None, max(1, int(len(y) / max(WALKED, CLOSE * len(y) / goal.k))))
    if abs(y[few].sum()) == len(y[few]):  # one class is too rare for so few rows
        return None, here, goal
    coef, intercept = _walked(here.X[few], y[few], mass[few], problem, total, manner)
    margins = here.margins(coef, intercept)
    errors = float(mass[margins <= 0].sum() / mass.sum())
    place, c = place_of(goal.loss, goal.loss.value(margins), mass, goal.k, WIDEST), here.to_coordinates(coef, intercept)
    if place is None:
        return None, here, goal
    # What a sample says is off by about this much: no more of it is asked.
    search, enough = Search(goal), max(NOISE * here.size / goal.k, ROUGH * goal.tol)
    point = here.drive(goal.loss, search.stage(c, place, WIDEST, AFAR, enough))
    if point is None:
        return Begun(coef, intercept, place, errors), here, goal
    narrower, width = here.drive(goal.loss, search.narrow(point, NARROWING * WIDEST, enough)), WIDEST
    if narrower is not None:
        point, width = narrower, NARROWING * WIDEST
    return Begun(*here.to_parameters(point.c), point.place, errors, width), here, goal


def _sample(X: Array, y: Array, mass: Array, problem: Problem, total: float, manner: Manner) -> tuple[OnePlace, Goal]:
    """Some rows, and the problem in proportion to them."""
    share, X = float(mass.sum()) / total, X.astype(np.float64)
    here = OnePlace(X, y, mass, *standards(X, mass, manner.intercept), manner.intercept)
    penalty = here.penalty(problem.alpha * share, manner.penalize_intercept)
    return here, Goal(get_loss(problem.loss), counts(problem, total)[0] * share, penalty, here.metric(), manner.tol)


def _walked(X: Array, y: Array, mass: Array, problem: Problem, total: float, manner: Manner) -> tuple[Array, float]:
    """Parameters at which Algorithm 1's steps end, on few rows."""
    ready = prepare(X, y, mass[None], fit_intercept=manner.fit_intercept,
                    penalize_intercept=manner.penalize_intercept, dtype=np.float64)  # fmt: skip
    share = float(mass.sum()) / total
    k, alpha = counts(problem, total)[0] * share, problem.alpha * share
    steps, fold = min(manner.max_iter, SAMPLE_STEPS), np.zeros(1, dtype=int)
    third, start = last_convex_step(steps), ready.least_squares(fold)
    how: dict[str, Any] = {"tol": manner.tol, "block_rows": 1}
    decays = get_aggregate(problem.aggregate).decays
    if decays and third > 0:
        roots = Roots([problem.loss], fold, np.array([alpha]))
        start = minimize(ready.design, roots, ready.masses, start, passes=third, snapshot=third, **how)[2]
    parts = problem.loss, problem.aggregate, 0, k, 0.0, alpha, third + 1 if decays else 1
    rows = Rows(*(np.array([part]) for part in parts))
    end = descend(ready.design, rows, ready.masses, start, steps=steps, wide_rows=1, **how)[0]
    coef, intercept = ready.design.to_parameters(end)
    return coef[0], float(intercept[0])


@dataclass(frozen=True)
class Settled:
    """A stationary point of all rows: parameters, the certificate's gap, steps, objective and misclassified mass."""

    coef: Array
    intercept: float
    gap: float
    used: int
    value: float
    errors: float


def settle_many(
    X: Any, y: Array, masses: Array, problems: list[Problem], fold_of: Array, manner: Manner, shuffled: bool
) -> dict[int, Settled]:
    """Certified points, by problem number, for those found by this method on many dense rows.

    ``shuffled`` says that the rows are in random order, so the first ones are a sample.
    """
    found: dict[int, Settled] = {}
    if sparse.issparse(X) or len(y) < FROM_SAMPLES or np.count_nonzero(masses, axis=1).min() < FROM_SAMPLES // 2:
        return found
    with np.errstate(all="ignore"):  # non-finite results raise below
        for row, problem in enumerate(problems):
            point = settle_large(X, y, masses[fold_of[row]], problem, manner, shuffled)
            if point is not None:
                found[row] = point
    return found


def nothing(features: int) -> tuple[Array, Array, Array, Array]:
    """The result of a sweep without problems."""
    return np.empty((0, features)), np.empty(0), np.empty(0, dtype=int), np.empty(0)


def merge(
    settled: dict[int, Settled], rest: Array, coef: Array, intercept: Array, used: Array, bounds: Array,
    proven: Array | None,
) -> tuple[Array, Array, Array, Array, Array]:  # fmt: skip
    """The arrays of all problems: the certified ones, and the others, numbered ``rest``."""
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


def settle_large(X: Array, y: Array, mass: Array, problem: Problem, manner: Manner, shuffled: bool) -> Settled | None:
    """A certified point of one problem on many dense rows; None if this method finds none."""
    loss, total = get_loss(problem.loss), float(mass.sum())
    if manner.tol <= 0 or not serves(problem, total, X.shape[1] + manner.fit_intercept):
        return None
    size = sample_size(len(y))
    some = np.arange(size) if shuffled else np.sort(np.random.default_rng(0).choice(len(y), size, replace=False))
    some = some[mass[some] > 0]
    begun, sample, goal = _begin(X[some], y[some], mass[some], problem, total, manner)
    if begun is None:
        return None
    here = OnePlace(X, y, mass, sample.mean, sample.scale, manner.intercept)
    penalty = here.penalty(problem.alpha, manner.penalize_intercept)
    search = Search(replace(goal, k=counts(problem, total)[0], penalty=penalty))
    start = here.to_coordinates(begun.coef, begun.intercept)
    point = here.drive(loss, search.run(start, begun.place, begun.width))
    if point is None or point.sums.errors > (begun.errors + WORSE) * total:
        return None
    used = min(manner.max_iter, SAMPLE_STEPS) + search.steps
    found = point.value(search.goal), point.sums.errors
    return Settled(*here.to_parameters(point.c), point.gap(search.goal), used, *found)

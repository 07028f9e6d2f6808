"""Follow paths of cuts for problems that select examples, choose the starts and ends of paths, and certify results.

If there are many rows, paths begin on a sample, and only their last edges are determined from all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse

from .._names import Array, spread_out
from ..losses import get_loss
from ..objective import Problem, aggregate_value
from . import many
from .cuts import CLOSE, cut_of
from .narrow import finish, hold, narrow
from .newton import LARGEST_RANK
from .path import STREAM, PathTask, averages, follow, start_masses, starts_for, walk_on
from .rows import DenseRows
from .stages import EXACT, NEAR, RAMP, STAGE, TOL, Spot, Walk

#: The number of rows above which paths begin on a sample of half as many rows.
FROM_ROWS = 12_000


@dataclass(frozen=True)
class Ends:
    """The ends of paths, one for each problem: coef has shape (problems, features), and the others (problems,).

    Gaps are NaN if they were not requested, and infinite if there is no certificate.
    """

    coef: Array
    intercept: Array
    looks: Array
    errors: Array
    gap: Array


def serves(X: Any, problem: Problem, mass: Array) -> bool:
    """Return whether a path can solve a problem with masses (samples,).

    The problem must select examples by a cut, and the rows must be dense and have few columns. If there are many rows,
    it must also be a close-k problem with a smooth loss (:mod:`closecall.solvers.many`).
    """
    if sparse.issparse(X) or X.shape[1] >= LARGEST_RANK:
        return False
    cut = cut_of(problem, mass)
    return cut is not None and (len(mass) < many.FROM_ROWS or many.serves(problem, cut, X.shape[1] + 1))


@dataclass(frozen=True)
class Engine:
    """Problems on rows X (samples, features) with labels y in {-1, +1} and masses (folds, samples).

    Close-k problems with the same loss, fold and alpha are points on one path, whose stages take at most ``stage``
    steps. Further starts use random masses, which are determined by the hashes ``words`` (samples,) of the rows. The
    end with the fewest errors is kept. The paths of other selections begin at the minimum of the average loss. By
    default, ``n_starts`` is as large as the number of rows allows. With ``rough``, the ends are only precise enough for
    the first round of a search. Standardised rows and the masses of starts are stored in ``known``, which all calls in
    a search share.
    """

    X: Array
    y: Array
    masses: Array
    words: Array
    fit_intercept: bool = True
    penalize_intercept: bool = False
    n_starts: int | None = None
    stage: int = STAGE
    threads: int = 1
    rough: bool = False
    known: dict[Any, Any] = field(default_factory=dict)

    def solve(self, problems: Sequence[Problem], fold_of: Array, tol: float | None = None) -> Ends:
        """Follow the paths of all problems, and certify their ends if ``tol`` is given."""
        if len(self.y) < many.FROM_ROWS:
            return self.paths(problems, fold_of, tol)
        found: list[Any] = []
        for problem, fold in zip(problems, fold_of, strict=True):
            cut, end = cut_of(problem, self.masses[fold]), None
            if cut is not None and many.serves(problem, cut, self.X.shape[1] + self.fit_intercept):
                end = many.solve_many(self, problem, cut, fold, tol)
            if end is None:  # rare, and slow on all rows
                end = tuple(part[0] for part in vars(self.paths([problem], np.array([fold]), tol)).values())
            found.append(end)
        return Ends(*(np.array(part) for part in zip(*found, strict=True)))

    def paths(self, problems: Sequence[Problem], fold_of: Array, tol: float | None) -> Ends:
        """Follow the paths of problems, beginning on a sample if there are many rows."""
        rows = self.rows(slice(None))
        selections = [Selection(self, rows, *each) for each in zip(problems, fold_of.tolist(), strict=True)]
        # For few rows, the end with the fewest errors is known only once its ramps are narrow.
        keep = 3 if tol is not None and len(self.y) <= 5000 else 1
        self._follow([each for each in selections if each.cut.kind == CLOSE], keep)
        found = [each.close(tol) if each.cut.kind == CLOSE else each.other(tol) for each in selections]
        c, gap, errors = (np.array(part) for part in zip(*found, strict=True))
        return Ends(*rows.to_parameters(c), np.array([each.looks for each in selections]), errors, gap)

    def rows(self, some: Any) -> DenseRows:
        """Return all rows or the rows of the sample."""
        key = isinstance(some, slice)
        if key not in self.known:
            mass = self.masses.max(axis=0)[some]
            self.known[key] = DenseRows(self.X[some], self.y[some], mass, self.fit_intercept, self.penalize_intercept)
        return self.known[key]

    def start_masses(self, some: Any, fold: int, starts: int) -> list[Array]:
        """Return the masses (samples,) for each start in a fold, for all rows or for the sample."""
        key = isinstance(some, slice), fold, starts
        if key not in self.known:
            self.known[key] = [*start_masses(self.X[some], self.masses[fold][some], self.words[some], starts)]
        return self.known[key]

    def _follow(self, selections: list[Selection], keep: int) -> None:
        """Follow the paths of close-k selections, and store in each one its best ends and number of evaluations."""
        if not selections:
            return
        some: Any = slice(None)
        if len(self.y) > FROM_ROWS:
            chance = spread_out(self.words * np.uint64(STREAM))
            some = np.sort(np.argsort(chance, kind="stable")[: FROM_ROWS // 2])
        rows, whole = self.rows(some), self.rows(slice(None))
        shares = self.masses[:, some].sum(axis=1) / self.masses.sum(axis=1)
        starts = self.n_starts or starts_for(rows.samples, len(rows.across))
        paths: dict[Any, dict[float, list[Selection]]] = {}
        for each in selections:
            share, problem = float(shares[each.fold]), each.problem
            targets = paths.setdefault((problem.loss, each.fold, problem.alpha * share), {})
            targets.setdefault(each.cut.k * share, []).append(each)
        tasks: list[PathTask] = []
        for (loss, fold, alpha), targets in paths.items():
            masses, falling = self.start_masses(some, fold, starts), np.array(sorted(targets, reverse=True))
            begin = [np.zeros(len(rows.across))] * starts
            if not get_loss(loss).convex:
                begin = averages(rows, loss, masses, alpha)
            tasks += [PathTask(loss, run, masses[0], alpha, falling, c) for run, c in zip(masses, begin, strict=True)]
        # A loose tolerance suffices while starts compete. On three PMLB sets and five alphas with one start, 1e-3 gave
        # up to 0.5 % more errors than 1e-5 with three quarters of the evaluations; 1e-2 gave up to 4 % more with two
        # fifths.
        tol = 1e-2 if self.rough else 1e-3
        ends = follow(rows, tasks, stage=self.stage, threads=self.threads, tol=tol, near=0.25)
        for path, targets in enumerate(paths.values()):
            mine, looks = zip(*ends[path * starts : (path + 1) * starts], strict=True)
            for k, spots in zip(sorted(targets, reverse=True), zip(*mine, strict=True), strict=True):
                best = ranked(spots)[:keep]
                if rows is not whole:
                    best = [replace(spot, c=whole.to_coordinates(*rows.to_parameters(spot.c))) for spot in best]
                for each in targets[k]:
                    each.ends, each.looks = best, sum(looks)


@dataclass
class Selection:
    """One problem of an engine on the rows of its fold, its best path ends, and the number of evaluations."""

    engine: Engine
    rows: DenseRows
    problem: Problem
    fold: int
    ends: list[Spot] = field(default_factory=list)
    looks: int = 0

    def __post_init__(self) -> None:
        self.mass = self.engine.masses[self.fold]
        self.cut: Any = cut_of(self.problem, self.mass)

    def walk(self, tol: float = TOL) -> Walk:
        rows = self.rows.margins(self.problem.loss, self.mass)
        return walk_on(rows, self.problem.alpha * self.rows.penalized, self.engine.stage, tol)

    def close(self, tol: float | None) -> tuple[Array, float, float]:
        """Return the end with the fewest errors (in a tie, the one with the smallest gap), its gap and its errors."""
        if tol is None:
            walk, end = self.walk(EXACT), self.ends[0]
            if not self.engine.rough:
                end, _ = walk.sharpen(end, self.cut, np.array([RAMP]), np.array([NEAR]))
            self.looks += walk.looks
            return end.c, np.nan, self.errors(end.c)
        found = [(end.c, np.inf, self.errors(end.c)) for end in self.ends]
        for end in self.ends if self.problem.alpha > 0 else []:  # otherwise nothing bounds the objective
            walk = self.walk()
            spot, gap = narrow(walk, end, self.cut, tol)
            found, self.looks = [*found, (spot.c, gap, self.errors(spot.c))], self.looks + walk.looks
        wrong = [errors for *_, errors in found]
        least = min(wrong) + many.WORSE * float(self.mass.sum())  # narrow ramps may add errors, which count first
        return min((end for end in found if end[2] <= least), key=lambda end: (end[1] > tol, end[2], end[1]))

    def other(self, tol: float | None) -> tuple[Array, float, float]:
        """Return the best end for any other selection, its gap and its errors; paths start at average-loss minima."""
        starts = self.engine.n_starts or starts_for(len(self.mass), len(self.rows.across))
        starts = 1 if self.cut.convex and not self.cut.m else starts
        masses = self.engine.start_masses(slice(None), self.fold, starts)
        ends, gap = averages(self.rows, self.problem.loss, masses, self.problem.alpha), np.nan
        if starts > 1:
            ends = [self.finished(each, many.SEARCHED)[0] for each in ends]
        values = np.array([self.value(each) for each in ends])
        end = ends[int(np.argmax(values <= (1 + 5e-7) * values.min()))]  # the first one that is equal up to rounding
        if tol is not None or starts == 1:
            end, gap = self.finished(end, tol or many.SEARCHED)
        return end, gap if tol else np.nan, self.errors(end)

    def finished(self, c: Array, tol: float) -> tuple[Array, float]:
        """Return coordinates near c, certified if possible, and their gap."""
        if self.problem.alpha == 0:  # nothing bounds the objective
            return c, np.inf
        walk = self.walk()
        found = finish(walk, c, self.cut, tol)
        self.looks += walk.looks
        return found

    def value(self, c: Array) -> float:
        """Return the objective with the aggregate's own weights."""
        margins, inside = self.rows.margins(self.problem.loss, self.mass).exact_margins(c), self.mass > 0
        penalty = 0.5 * self.problem.alpha * float((self.rows.penalized * c**2).sum())
        return aggregate_value(self.problem, margins[inside], mass=self.mass[inside]) + penalty

    def errors(self, c: Array) -> float:
        """Return the misclassified mass."""
        return float(((c @ self.rows.across >= 0)[: len(self.mass)] * self.mass).sum())

    def polish(self, c: Array, tol: float) -> tuple[Array, float]:
        """Move the end of another run to a certified point; the gap is infinite if every such point is worse."""
        if self.cut is None:
            penalty = self.problem.alpha * self.rows.penalized
            return hold(self.rows.margins(self.problem.loss, self.mass), self.problem, penalty, c, tol)
        if self.cut.kind == CLOSE:
            end, gap = self.finished(c, tol)
            worse = self.errors(end) > self.errors(c) + many.WORSE * self.mass.sum()
        else:
            average = averages(self.rows, self.problem.loss, [self.mass], self.problem.alpha)[0]
            c = min((c, average, np.zeros_like(c)), key=self.value)
            end, gap = self.finished(c, tol)
            worse = self.value(end) > (1 + many.WORSE) * self.value(c)
        return (c, np.inf) if worse else (end, gap)


def ranked(spots: Sequence[Spot]) -> list[Spot]:
    """Return the distinct ends of paths, sorted by errors and then by the value at their cut."""
    keys = np.array([(spot.errors, spot.value / max(spot.cut, 1e-300)) for spot in spots])
    # Keys are relative to the largest, because masses may have any unit and rounding must not decide the order.
    keys /= np.maximum(keys.max(axis=0), 1e-300)
    rounded = zip(np.round(keys[:, 0], 9).tolist(), np.round(keys[:, 1], 6).tolist(), strict=True)
    distinct = dict(reversed([*zip(rounded, spots, strict=True)]))  # of equal ends, the first one is kept
    return [distinct[key] for key in sorted(distinct)]


def polish(engine: Engine, problems: list[Problem], fold_of: Array, coef: Array, intercept: Array, tol: float) -> Array:
    """Move the ends of other runs to certified points in place; return their gaps (infinite if not certified)."""
    rows, gaps = engine.rows(slice(None)), np.full(len(problems), np.inf)
    ends = rows.to_coordinates(coef, intercept)
    for place, (problem, fold) in enumerate(zip(problems, fold_of.tolist(), strict=True)):
        if problem.alpha > 0:
            c, gaps[place] = Selection(engine, rows, problem, fold).polish(ends[place], tol)
            coef[place], intercept[place] = rows.to_parameters(c)
    return gaps

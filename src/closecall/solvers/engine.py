"""Selections as paths of cuts: which problems share a path, its starts, which end is kept, and its certificate.

On many rows, paths begin on a sample, and the last edges are placed on all rows. The certificate is that of
:mod:`closecall.solvers.certificate`. Its weights are the shares of a ramp so narrow that changing losses by at most
``tol`` times the objective per unit of selected mass gives exactly this selection. If the problem is convex, they are a
point of its dual, and the bound is that of the minimum.
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
from .certificate import NOTHING
from .cuts import ALL, CLOSE, LossCut, cut_of, edge_at, left_out
from .hold import hold
from .newton import LARGEST_RANK
from .path import Sharpening, Spots, Tasks, follow, sharpen
from .rows import DenseRows
from .stages import COARSE, EXACT, KINK, NEAR, RAMP, ROUGHEST, ROUGHLY, STAGE, TOL, Spot, Walk
from .starts import STREAM, start_masses, starts_for

#: From how many rows on paths begin on a sample, and how many it has.
FROM_ROWS, SAMPLED = 12_000, 6_000
#: How many ends of a fit of few rows are sharpened: which has the fewest errors then is not known before.
CANDIDATES, FEW = 3, 5000
#: What a ramp is narrowed to from level to level, about, and how near to k its mass is at the last.
NARROWING, EXACTLY = 0.2, 1e-7
#: The last ramp, as a share of the widest that certifies: the cut may still grow; and the narrowest of use.
SAFE, NARROWEST = 0.3, 1e-12
#: Turns of leaving out the largest losses and solving the rest, at most; not tuned.
TURNS = 30
#: How often ramps are narrowed further where the objective has fallen so far that they are too wide.
ROUNDS = 3
#: A certified end is kept where it misclassifies, or for other selections costs, at most this share more than the best.
#: On 25 PMLB sets (100 close-k fits) 91 % are certified instead of 64 %; training errors rise by 0.1 points, the test
#: accuracy does not change (0.03 +- 0.04).
WORSE = 0.01
#: What a search narrows the ramps of selections to that are not close ones, as a tolerance.
ROUGH = 1e-2


@dataclass(frozen=True)
class Ends:
    """Where the paths of some problems ended: coef (problems, features), the rest (problems,).

    Gaps are NaN if not requested, infinite if there is no certificate.
    """

    coef: Array
    intercept: Array
    looks: Array
    errors: Array
    gap: Array


def serves(X: Any, problem: Problem, mass: Array) -> bool:
    """Whether a path solves a problem over masses (samples,): a selection with a cut, on dense rows of few columns.

    On many rows only close selections of smooth losses, by :mod:`closecall.solvers.many`.
    """
    if sparse.issparse(X) or X.shape[1] >= LARGEST_RANK:
        return False
    cut = cut_of(problem, mass)
    return cut is not None and (len(mass) < many.FROM_ROWS or many.serves(problem, cut, X.shape[1] + 1))


@dataclass(frozen=True)
class Engine:
    """Problems on rows (samples, features) with masses (folds, samples).

    Close-k problems of one (loss, fold, alpha) are points on one path, whose stages take at most ``stage`` steps.
    Further starts use random masses; the end with the fewest errors is kept. Other selections begin at the average.

    Parameters
    ----------
    X : array (samples, features)
    y : array (samples,) in {-1, +1}
    masses : array (folds, samples)
    words : array (samples,) of uint64
        Hashes of the rows, which determine their masses in random starts.
    fit_intercept, penalize_intercept : bool
    n_starts : int or None
        None: as many as the number of rows allows.
    stage, threads : int
    rough : bool
        Whether rough ends suffice, as in a heat.
    known : dict
        Standardised rows and the masses of starts, which the calls of a search share; filled in when needed.
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
        """Follow the paths of all problems, and certify their ends if a ``tol`` is given.

        Examples
        --------
        >>> X, y = np.array([[-2.0], [-1.0], [-0.5], [0.5], [1.0], [2.0], [-9.0]]), np.array([-1, -1, -1, 1, 1, 1, 1.0])
        >>> engine = Engine(X, y, np.ones((1, 7)), np.arange(7, dtype=np.uint64))
        >>> found = engine.solve([Problem("logistic", "close", 2, 0.01)], np.zeros(1, dtype=int), 1e-4)
        >>> found.errors.tolist(), bool(found.gap[0] < 1e-4)
        ([1.0], True)
        """
        if len(self.y) < many.FROM_ROWS:
            return self.paths(problems, fold_of, tol)
        found: list[Any] = []
        for problem, fold in zip(problems, fold_of, strict=True):
            cut = cut_of(problem, self.masses[fold])
            mine = cut is not None and many.serves(problem, cut, self.X.shape[1] + self.fit_intercept)
            end = many.solve_many(self, problem, cut, fold, tol) if mine and cut is not None else None
            if end is None:  # rare: the path on all rows takes its time
                ends = self.paths([problem], np.array([fold]), tol)
                end = tuple(getattr(ends, name)[0] for name in Ends.__dataclass_fields__)
            found.append(end)
        return Ends(*(np.array(part) for part in zip(*found, strict=True)))

    def paths(self, problems: Sequence[Problem], fold_of: Array, tol: float | None) -> Ends:
        """Follow paths, from a sample of many rows."""
        rows, problems = self.rows(slice(None)), list(problems)
        c, gap = np.empty((len(problems), len(rows.across))), np.full(len(problems), np.nan)
        looks, errors = np.zeros(len(problems), dtype=int), np.empty(len(problems))
        cuts: list[Any] = [cut_of(problem, self.masses[fold]) for problem, fold in zip(problems, fold_of, strict=True)]
        kinds = [(problem.loss, cut.kind) for problem, cut in zip(problems, cuts, strict=True)]
        for loss, kind in dict.fromkeys(kinds):
            mine = np.array([place for place, each in enumerate(kinds) if each == (loss, kind)])
            some, own = [problems[place] for place in mine], [cuts[place] for place in mine]
            batch = AlikeProblems(self, rows, loss, some, own, fold_of[mine])
            found = batch.close(tol) if kind == CLOSE else batch.other(tol)
            c[mine], gap[mine], errors[mine], looks[mine] = found
        coef, intercept = rows.to_parameters(c)
        return Ends(coef, intercept, looks, errors, gap)

    def rows(self, some: Any) -> DenseRows:
        """All rows, or those of the sample."""
        key = isinstance(some, slice)
        if key not in self.known:
            mass = self.masses.max(axis=0)[some]
            self.known[key] = DenseRows(self.X[some], self.y[some], mass, self.fit_intercept, self.penalize_intercept)
        return self.known[key]

    def start_masses(self, some: Any, fold: int, starts: int) -> Array:
        """The masses of the starts of a fold (starts, samples), on all rows or the sample."""
        key = isinstance(some, slice), fold, starts
        if key not in self.known:
            self.known[key] = start_masses(self.X[some], self.masses[fold][some], self.words[some], starts)
        return self.known[key]


Found = tuple[Array, Array, Array, Array]  # coordinates, gaps, errors and looks of problems


@dataclass
class AlikeProblems:
    """Problems of one loss and kind of cut on the rows of an engine."""

    engine: Engine
    rows: DenseRows
    loss: str
    problems: list[Problem]
    cuts: list[LossCut]
    fold_of: Array

    def __post_init__(self) -> None:
        self.alpha = np.array([problem.alpha for problem in self.problems])

    def close(self, tol: float | None) -> Found:
        """Follow the paths of close selections, and keep the end with the fewest errors, then the smallest gap."""
        certifies = tol is not None
        task, of, looks = self._begin(CANDIDATES if certifies and len(self.engine.y) <= FEW else 1)
        gaps = np.full(len(of), np.nan if tol is None else np.inf)
        if not certifies and not self.engine.rough:  # otherwise its ramps place it
            task, more = self._sharpened(task, np.full((len(of), 1), RAMP), np.array([NEAR]), EXACT)
            looks += more
        found, wrong = task.coordinates, self._errors(task)
        if tol is not None:  # a narrow ramp may cost errors, which count first
            ends = [self.certified(task.take(np.array([end])), tol) for end in range(len(of))]  # each alone
            task = replace(task, coordinates=np.concatenate([one.coordinates for one, _, _ in ends]))
            np.add.at(looks, of, [more for _, more, _ in ends])
            found, wrong = np.concatenate([found, task.coordinates]), np.append(wrong, self._errors(task))
            gaps, of = np.append(gaps, [proven for _, _, proven in ends]), np.tile(of, 2)
        best = []
        for place, fold in enumerate(self.fold_of):
            least = wrong[of == place].min() + (0 if tol is None else WORSE * self.engine.masses[fold].sum())
            best.append(_first((of == place) & (wrong <= least), gaps > (tol or 0), wrong, gaps))
        return found[best], gaps[best], wrong[best], looks

    def other(self, tol: float | None) -> Found:
        """Solve other selections from the averages of all starts (one if convex); keeps the lowest objective."""
        best, gaps, errors = [], np.full(len(self.problems), np.nan), np.empty(len(self.problems))
        looks = np.zeros(len(self.problems), dtype=int)
        for place, problem in enumerate(self.problems):
            mass, cut = self.engine.masses[self.fold_of[place]], self.cuts[place]
            starts = self.engine.n_starts or starts_for(len(mass), len(self.rows.across))
            starts = 1 if cut.convex and not cut.m else starts
            kinds = self.engine.start_masses(slice(None), int(self.fold_of[place]), starts)
            ends = averages(self.rows, self.loss, kinds, problem.alpha)
            if len(ends) > 1:
                tried = [self.finished(place, each, ROUGH) for each in ends]
                looks[place], ends = sum(more for *_, more in tried), np.array([end for end, *_ in tried])
            values = np.array([self.value(place, each) for each in ends])
            end = ends[int(np.argmin(np.round(values / max(values.min(), 1e-300), 6)))]
            if tol is not None or len(ends) == 1:
                end, gaps[place], more = self.finished(place, end, tol or ROUGH)
                looks[place] += more
            best.append(end)
            errors[place] = self._errors(self.task_at(place, end))[0]
        return np.array(best), gaps if tol else np.full_like(gaps, np.nan), errors, looks

    def finished(self, place: int, c: Array, tol: float) -> tuple[Array, float, int]:
        """Certified coordinates, if any are found from c, with the gap and the number of evaluations.

        The largest losses are left out and the ramps of the rest narrowed in turn, until the same are left out; a close
        selection is left as it was if it would misclassify more.
        """
        cut, looks, best = self.cuts[place], 0, (c, np.inf)
        for _ in range(TURNS):
            task = self.task_at(place, c)
            found, more, gap = self.certified(task, tol)
            c, looks = found.coordinates[0], looks + more
            if cut.kind == CLOSE:
                worse = self._errors(found)[0] > self._errors(task)[0] + WORSE * task.masses.sum()
                return (*best, looks) if worse else (c, gap, looks)
            if not cut.m or np.allclose(self.task_at(place, c).masses, task.masses, atol=1e-9):
                return c, gap, looks
        return c, np.inf, looks

    def lowest(self, c: Array) -> Array:
        """For one problem: the given coordinates, the average or zero, whichever has the lowest objective."""
        average = averages(self.rows, self.loss, self.engine.masses, self.problems[0].alpha)[0]
        return min((c, average, np.zeros_like(c)), key=lambda each: self.value(0, each))

    def value(self, place: int, c: Array) -> float:
        """The objective of a problem, by its aggregate's own weights."""
        mass = self.engine.masses[self.fold_of[place]]
        margins = -(c[:, None] * self.rows.across).sum(axis=0)[: len(mass)]
        penalty = 0.5 * self.alpha[place] * float((self.rows.penalized * c**2).sum())
        return aggregate_value(self.problems[place], margins[mass > 0], mass=mass[mass > 0]) + penalty

    def task_at(self, place: int, c: Array) -> Sharpening:
        """One problem at given coordinates, ready for sharpening, without the largest losses there."""
        mass, loss, cut = self.engine.masses[self.fold_of[place]], get_loss(self.loss), self.cuts[place]
        losses = loss.value(-(c[:, None] * self.rows.across).sum(axis=0)[: len(mass)])
        rest = left_out(losses, mass, cut.m)
        return Sharpening(
            self.loss, rest[None], np.zeros(1, dtype=int), self.alpha[[place]], [cut], c[None],
            np.array([edge_at(cut, losses, rest, loss.threshold)]), np.empty((1, 0)), np.empty(0),
        )  # fmt: skip

    def _errors(self, task: Sharpening) -> Array:
        """The misclassified mass at every end, (ends,)."""
        wrong = (task.coordinates @ self.rows.across >= 0)[:, : len(self.engine.y)]
        return np.asarray((wrong * task.masses[task.own]).sum(axis=1))

    def _begin(self, keep: int) -> tuple[Sharpening, Array, Array]:
        """The best ends of every problem, their problems, and the evaluations; on a sample if there are many rows."""
        engine, whole, fold_of = self.engine, self.rows, self.fold_of
        some: Any = slice(None)
        if len(engine.y) > FROM_ROWS:
            chance = spread_out(engine.words * np.uint64(STREAM))
            some = np.sort(np.argsort(chance, kind="stable")[:SAMPLED])
        shares = engine.masses[:, some].sum(axis=1) / engine.masses.sum(axis=1)
        rows = engine.rows(some)
        starts = engine.n_starts or starts_for(rows.samples, len(whole.across))
        kinds = {fold: engine.start_masses(some, fold, starts) for fold in set(fold_of.tolist())}
        k, size = np.array([cut.k for cut in self.cuts]), len(self.problems)
        keep, looks = min(keep, starts), np.zeros(size, dtype=int)
        c, cut = np.empty((size, keep, whole.across.shape[0])), np.empty((size, keep))
        for paths in _alike(self.alpha * shares[fold_of], fold_of, k * shares[fold_of]):
            how: dict[str, Any] = {"stage": engine.stage, "threads": engine.threads, "near": ROUGHLY}
            how["tol"] = ROUGHEST if engine.rough else COARSE
            spots = follow(rows, _tasks(rows, self.loss, kinds, paths), **how)
            kept = _best(spots, starts)[:, :keep]
            for path, (_, _, members) in enumerate(paths):
                for target, (_, places) in enumerate(members):
                    tasks = kept[path, :, target]
                    c[places], cut[places] = spots.coordinates[tasks, target], spots.cut[tasks, target]
                    looks[places] = spots.looks.reshape(len(paths), starts)[path].sum()
        if rows is not whole:
            c = whole.to_coordinates(*rows.to_parameters(c))
        folds, own = np.unique(fold_of, return_inverse=True)
        of, flat = np.repeat(np.arange(size), keep), c.reshape(size * keep, -1)
        task = Sharpening(
            self.loss, engine.masses[folds], own[of], self.alpha[of], [self.cuts[place] for place in of], flat,
            cut.ravel(), np.empty((len(of), 0)), np.empty(0),
        )  # fmt: skip
        return task, of, looks

    def _sharpened(self, task: Sharpening, ramps: Array, near: Array, tol: float = TOL) -> tuple[Sharpening, Array]:
        """The task at the end of its ramps, the ramps reached (ends, 1), and the evaluations (ends,)."""
        spots, reached = sharpen(self.rows, replace(task, ramps=ramps, near=near), stage=self.engine.stage, tol=tol)
        done = reached > 0
        c = np.where(done[:, None], spots.coordinates[:, 0], task.coordinates)
        cut = np.where(done, spots.cut[:, 0], task.cut)
        return replace(task, coordinates=c, cut=cut, ramps=reached[:, None], near=near), spots.looks

    def certified(self, task: Sharpening, tol: float) -> tuple[Sharpening, int, float]:
        """Narrow the ramps of one problem until it is certified; returns its end, the evaluations and the gap."""
        looks, known = 0, task
        if not (task.alpha[0] > 0 and (np.isfinite(task.cut[0]) or task.cuts[0].kind == ALL)):  # nothing bounds it
            return task, 0, np.inf

        def sharpened(spot: Spot, ramps: Array, near: Array) -> tuple[Spot, float]:
            nonlocal known, looks
            known, more = self._sharpened(known, ramps[None], near)
            looks += int(more[0])
            return _spot(known), float(known.ramps[0, 0])

        walk = Walk(self.rows.margins(self.loss, task.masses[task.own[0]]), float(task.alpha[0]) * self.rows.penalized)
        gap = narrow(walk, _spot(task), task.cuts[0], tol, sharpened)[1]
        return known, looks, gap


def _spot(task: Sharpening) -> Spot:
    return Spot(task.coordinates[0], float(task.cut[0]))


def narrow(walk: Walk, spot: Spot, cut: LossCut, tol: float, sharpened: Any = None) -> tuple[Spot, float]:
    """Narrow the ramps of a spot until their shares certify it, or can be narrowed no further; the gap.

    ``sharpened`` solves a spot at a sequence of ramps to given shares of its slack, and returns the last one reached.
    """
    sharpened = sharpened or (lambda spot, ramps, near: walk.sharpen(spot, cut, ramps, near))
    ramp, gap = RAMP, np.inf
    unit = spot.cut if cut.kind == CLOSE else walk.rows.threshold
    last = SAFE * 2 * max(tol, 1e-12) * judge_spot(walk, spot, cut, RAMP)[0] / unit
    for _ in range(ROUNDS):
        if last < NARROWEST:
            break
        levels = max(1, int(np.ceil(np.log(last / ramp) / np.log(NARROWING))))
        ramps = ramp * (min(last, ramp) / ramp) ** (np.arange(1, levels + 1) / levels)
        near = 0.1 * tol if cut.convex else EXACTLY  # a bound is one, whatever the mass
        spot, reached = sharpened(spot, ramps, np.append(np.full(levels - 1, NEAR), near))
        if not reached or (not cut.convex and not np.isclose(reached, ramps[-1])):
            return spot, np.inf
        mean, gap = judge_spot(walk, spot, cut, reached)
        unit = spot.cut if cut.kind == CLOSE else unit
        if gap <= tol and (cut.convex or reached * unit <= 2 * tol * mean):
            return spot, gap
        if not np.isclose(reached, ramps[-1]):
            break
        ramp, last = reached, min(NARROWING * reached, SAFE * 2 * tol * mean / unit)
    return spot, gap if cut.convex else np.inf


def judge_spot(walk: Walk, spot: Spot, cut: LossCut, ramp: float) -> tuple[float, float]:
    """The objective at a spot for a unit of the mass inside, with the weights of a ramp held, and their gap.

    If the problem is convex, its own value counts, and weights of at most the mass k are a point of its dual.
    """
    walk.kind, walk.ramp = cut.kind, ramp
    threshold, penalty = walk.rows.threshold, 0.5 * float((walk.penalty * spot.c**2).sum())
    window = walk.window(spot.cut)
    width = min(KINK, window.width if cut.kind != ALL else ramp * threshold)
    most = cut.k if cut.convex else np.inf
    losses, held, bound = walk.rows.bound(spot.c, window, width, most, walk.penalty)
    if held <= 0:
        return threshold, 1.0
    value = (walk.rows.largest(spot.c, cut.k) if cut.convex else losses) + penalty
    gap = (value - bound) / max(value, NOTHING * threshold * held)
    return value / held, float(np.clip(gap, 0.0, 1.0)) if np.isfinite(gap) else 1.0


def _first(among: Array, *keys: Array) -> int:
    """The candidate with the smallest keys, compared in order."""
    places = np.flatnonzero(among)
    return int(places[np.lexsort([key[places] for key in reversed(keys)])[0]])


def polish(engine: Engine, problems: list[Problem], fold_of: Array, coef: Array, intercept: Array, tol: float) -> Array:
    """Move ends of other runs to certified points, in place; returns their gaps, infinite without a certificate."""
    rows, gaps = engine.rows(slice(None)), np.full(len(problems), np.inf)
    ends = rows.to_coordinates(coef, intercept)
    for place, (problem, fold) in enumerate(zip(problems, fold_of, strict=True)):
        mass, c = engine.masses[fold], ends[place]
        cut = cut_of(problem, mass)
        if problem.alpha == 0:
            continue
        if cut is None:
            c, gaps[place] = hold(rows.margins(problem.loss, mass), problem, problem.alpha * rows.penalized, c, tol)
        else:
            number = np.zeros(1, dtype=int)
            batch = AlikeProblems(
                replace(engine, masses=mass[None], known={}), rows, problem.loss, [problem], [cut], number
            )
            before = c if cut.kind == CLOSE else batch.lowest(c)
            c, gaps[place], _ = batch.finished(0, before, tol)
            if cut.kind != CLOSE and batch.value(0, c) > (1 + WORSE) * batch.value(0, before):
                c, gaps[place] = before, np.inf
        coef[place], intercept[place] = rows.to_parameters(c)
    return gaps


def averages(rows: DenseRows, loss: str, masses: Array, alpha: float) -> Array:
    """Coordinates (kinds, size) of the averages under masses (kinds, samples); of the logistic loss if not convex."""
    kinds, name = np.arange(len(masses)), loss if get_loss(loss).convex else "logistic"
    start = np.zeros((len(masses), len(rows.across)))
    tasks = Tasks(name, masses, kinds, kinds, np.full(len(masses), alpha), np.full((len(masses), 1), np.inf), start)
    return follow(rows, tasks).coordinates[:, 0]


Path = tuple[int, float, list[tuple[float, list[int]]]]


def _alike(alpha: Array, fold_of: Array, k: Array) -> list[list[Path]]:
    """Paths (fold, alpha, [(k, problems)], the largest k first), those with the same number of k together."""
    found: dict[tuple[int, float], dict[float, list[int]]] = {}
    for place, key in enumerate(zip(fold_of.tolist(), alpha.tolist(), strict=True)):
        found.setdefault(key, {}).setdefault(float(k[place]), []).append(place)
    paths: dict[int, list[Path]] = {}
    for (fold, strength), targets in found.items():
        members = sorted(targets.items(), reverse=True)
        paths.setdefault(len(members), []).append((fold, strength, members))
    return list(paths.values())


def _tasks(rows: DenseRows, loss: str, starts: dict[int, Array], paths: list[Path]) -> Tasks:
    """Every path from every start of its fold, ``starts`` (n_starts, samples): path first."""
    folds = sorted({fold for fold, _, _ in paths})
    kinds, n_starts = np.concatenate([starts[fold] for fold in folds]), len(starts[folds[0]])
    own = np.repeat([n_starts * folds.index(fold) for fold, _, _ in paths], n_starts)
    k = np.array([[k for k, _ in members] for _, _, members in paths])
    alpha = np.repeat([alpha for _, alpha, _ in paths], n_starts)
    run = own + np.tile(np.arange(n_starts), len(paths))
    tasks = Tasks(loss, kinds, run, own, alpha, np.repeat(k, n_starts, axis=0), np.zeros((len(own), len(rows.across))))
    if get_loss(loss).convex:
        return tasks
    average = Tasks("logistic", kinds, run, run, alpha, np.full((len(own), 1), np.inf), tasks.starts)
    return replace(tasks, starts=follow(rows, average).coordinates[:, 0])


def _best(spots: Spots, n_starts: int) -> Array:
    """The tasks of each path and target from best to worst, (paths, starts, targets); repeated ends come last."""
    shape = len(spots.cut) // n_starts, n_starts, -1
    errors, value = (part.reshape(shape) for part in (spots.errors, spots.value / np.maximum(spots.cut, 1e-300)))
    # As shares: masses have any unit, and rounding must not rank.
    errors, value = (
        np.round(part / np.maximum(part.max(axis=1, keepdims=True), 1e-300), digits)
        for part, digits in ((errors, 9), (value, 6))
    )
    order = np.lexsort((value, errors), axis=1)
    same = [np.diff(np.take_along_axis(part, order, axis=1), axis=1, prepend=-1.0) == 0 for part in (errors, value)]
    order = np.take_along_axis(order, np.argsort(same[0] & same[1], axis=1, kind="stable"), axis=1)
    return order + n_starts * np.arange(shape[0])[:, None, None]

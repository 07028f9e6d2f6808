"""Close-k problems as paths of cuts: which problems share a path, from which starts, which end is kept, and what it is
worth.

Many rows are begun on a sample, which says where to go; the last cut is placed on all of them, which say where to stay.
The certificate is that of :mod:`closecall.solvers.certificate`. Its weights are the shares of a ramp so narrow that no
loss would have to change by more than ``tol`` of the mean one for the selection to be these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from .._names import Array, spread_out
from ..aggregates import get_aggregate
from ..losses import Loss, get_loss
from ..objective import Problem
from .certificate import NOTHING, Judged, counts, dual_values
from .finish import Rounded
from .newton import LARGEST_RANK
from .path import Sharpening, Spots, Tasks, follow, sharpen
from .rows import Rows
from .sample import FROM_SAMPLES
from .stages import KINK, NEAR, RAMP

#: Starts at most, and rows times starts. On 23 PMLB sets of 120 to 1,700 rows ten starts had no more training
#: errors than the best of twenty runs of Algorithm 1 in 92 % of 184 problems, four in 83 %, one in 67 %.
MOST_STARTS, ROWS_STARTED = 10, 10_000
#: An odd number by which the hashes of rows become the streams of the starts' random masses, and of the sample.
STREAM = 0xD1B54A32D192ED03
#: From how many rows on paths begin on a sample, and how many it has.
FROM_ROWS, SAMPLED = 12_000, 6_000
#: Up to how many rows ramps are narrowed to certify: on more, where the cut nears T, that takes too many looks.
SHARPENED = 5000
#: What a ramp is narrowed to from level to level, about, and how near to k its mass is at the last.
NARROWING, EXACTLY = 0.2, 1e-7
#: The last ramp, as a share of the widest that certifies: the cut may still grow; and the narrowest of use.
SAFE, NARROWEST = 0.3, 1e-12


@dataclass(frozen=True)
class Ends:
    """Where the paths of some problems ended: coef (problems, features), the rest (problems,).

    Gaps are NaN where none was asked for, infinite where the last place could not be shared so far.
    """

    coef: Array
    intercept: Array
    looks: Array
    errors: Array
    gap: Array


def serves(X: Any, problem: Problem, mass: float) -> bool:
    """Whether a path solves a problem: a close selection that is no average, on dense rows that are not too many.

    On more rows :mod:`closecall.solvers.large` is faster: 0.06 s for a certified fit of 100,000 x 20, a path needs 6.
    """
    aggregate = get_aggregate(problem.aggregate)
    if sparse.issparse(X) or X.shape[1] >= LARGEST_RANK or X.shape[0] >= FROM_SAMPLES or not aggregate.close:
        return False
    return not aggregate.is_average(*counts(problem, mass), mass)


@dataclass(frozen=True)
class Close:
    """Close problems on rows (samples, features) with masses (folds, samples).

    Problems of one (loss, fold, alpha) are spots of one path, whose stages take at most ``stage`` steps. Other starts
    are drawn by ``words`` (samples,), the rows' hashes: the same for a row wherever it is. The end with the least
    misclassified mass is kept; ties go to the lowest value for its cut, a smooth count of the errors and the penalty.

    Parameters
    ----------
    X : array (samples, features)
    y : array (samples,) in {-1, +1}
    masses : array (folds, samples)
    words : array (samples,) of uint64
    fit_intercept, penalize_intercept : bool
    n_starts : int or None
        None: as many as the rows allow.
    stage, threads : int
    """

    X: Array
    y: Array
    masses: Array
    words: Array
    fit_intercept: bool = True
    penalize_intercept: bool = False
    n_starts: int | None = None
    stage: int = 100
    threads: int = 1

    def solve(self, problems: Sequence[Problem], fold_of: Array, tol: float | None = None) -> Ends:
        """Follow the paths of all problems, and certify their ends if a ``tol`` is given.

        Examples
        --------
        >>> X, y = np.array([[-2.0], [-1.0], [-0.5], [0.5], [1.0], [2.0], [-9.0]]), np.array([-1, -1, -1, 1, 1, 1, 1.0])
        >>> close = Close(X, y, np.ones((1, 7)), np.arange(7, dtype=np.uint64))
        >>> found = close.solve([Problem("logistic", "close", 2, 0.01)], np.zeros(1, dtype=int), 1e-4)
        >>> found.errors.tolist(), bool(found.gap[0] < 1e-4)
        ([1.0], True)
        """
        rows = self._rows(slice(None))
        shape = len(problems), rows.across.shape[0]
        c, gap, looks = np.empty(shape), np.empty(len(problems)), np.zeros(len(problems), dtype=int)
        for loss in dict.fromkeys(problem.loss for problem in problems):
            mine = np.array([place for place, problem in enumerate(problems) if problem.loss == loss])
            some, folds = [problems[place] for place in mine], fold_of[mine]
            task = self._begin(rows, loss, some, folds, looks, mine)
            if len(self.y) > FROM_ROWS:
                task, more = self._sharpened(rows, task, np.full((len(mine), 1), RAMP), np.array([NEAR]))
                looks[mine] += more
            c[mine], gap[mine] = task.coordinates, np.nan if tol is None else np.inf
            if tol is not None and len(self.y) <= SHARPENED:
                for place, problem in enumerate(mine):  # each as if it were alone
                    one, more, gap[problem] = self._certified(rows, task.take(np.array([place])), tol)
                    c[problem], looks[problem] = one.coordinates[0], looks[problem] + more[0]
        coef, intercept = rows.to_parameters(c)
        wrong = (c @ rows.across >= 0)[:, : len(self.y)]
        return Ends(coef, intercept, looks, (wrong * self.masses[fold_of]).sum(axis=1), gap)

    def _rows(self, some: Any) -> Rows:
        mass = self.masses.max(axis=0)[some]
        return Rows(self.X[some], self.y[some], mass, self.fit_intercept, self.penalize_intercept)

    def _begin(
        self, whole: Rows, loss: str, problems: list[Problem], fold_of: Array, looks: Array, mine: Array
    ) -> Sharpening:
        """The best spot of every problem, on a sample of many rows."""
        some: Any = slice(None)
        if len(self.y) > FROM_ROWS:
            chance = spread_out(self.words * np.uint64(STREAM))
            some = np.sort(np.argsort(chance, kind="stable")[:SAMPLED])
        masses, words = self.masses[:, some], self.words[some]
        shares = masses.sum(axis=1) / self.masses.sum(axis=1)
        rows = whole if len(words) == len(self.y) else self._rows(some)
        starts = self.n_starts or int(np.clip(ROWS_STARTED // len(words), 1, MOST_STARTS))
        noise = random_masses(words, starts)
        totals = self.masses.sum(axis=1)
        k = np.array([counts(problem, totals[fold])[0] for problem, fold in zip(problems, fold_of, strict=True)])
        alpha = np.array([problem.alpha for problem in problems])
        c, cut = np.empty((len(problems), whole.across.shape[0])), np.empty(len(problems))
        for paths in _alike(alpha * shares[fold_of], fold_of, k * shares[fold_of]):
            spots = follow(rows, _tasks(rows, loss, masses, paths, noise), stage=self.stage, threads=self.threads)
            kept = _best(spots, starts)
            for path, (_, _, members) in enumerate(paths):
                for target, (_, places) in enumerate(members):
                    task = kept[path, target]
                    c[places], cut[places] = spots.coordinates[task, target], spots.cut[task, target]
                    looks[mine[places]] += spots.looks.reshape(len(paths), starts)[path].sum()
        if rows is not whole:
            c = whole.to_coordinates(*rows.to_parameters(c))
        folds, own = np.unique(fold_of, return_inverse=True)
        return Sharpening(loss, self.masses[folds], own, alpha, k, c, cut, np.empty((len(c), 0)), np.empty(0))

    def _sharpened(self, rows: Rows, task: Sharpening, ramps: Array, near: Array) -> tuple[Sharpening, Array]:
        """The task where its ramps lead, with those reached (problems, 1), and the looks it took (problems,)."""
        given = vars(task) | {"ramps": ramps, "near": near}
        spots, reached = sharpen(rows, Sharpening(**given), stage=self.stage)
        done = reached > 0
        c = np.where(done[:, None], spots.coordinates[:, 0], task.coordinates)
        cut = np.where(done, spots.cut[:, 0], task.cut)
        return Sharpening(**given | {"coordinates": c, "cut": cut, "ramps": reached[:, None]}), spots.looks

    def _certified(self, rows: Rows, task: Sharpening, tol: float) -> tuple[Sharpening, Array, float]:
        """Narrow the ramps of one problem until their shares certify: where that ends, the looks and the gap."""
        alpha, cut, nothing = float(task.alpha[0]), float(task.cut[0]), np.zeros(1, dtype=int)
        if not (alpha > 0 and np.isfinite(cut)):  # nothing bounds the objective from below, or all losses are T
            return task, nothing, np.inf
        last = SAFE * 2 * max(tol, 1e-12) * self._held(rows, task, RAMP)[0] / cut
        if last < NARROWEST:
            return task, nothing, np.inf
        levels = max(1, int(np.ceil(np.log(last / RAMP) / np.log(NARROWING))))
        ramps = RAMP * (min(last, RAMP) / RAMP) ** (np.arange(1, levels + 1) / levels)
        found, looks = self._sharpened(rows, task, ramps[None], np.append(np.full(levels - 1, NEAR), EXACTLY))
        if not np.isclose(found.ramps[0, 0], ramps[-1]):
            return found, looks, np.inf
        mean, gap = self._held(rows, found, float(ramps[-1]))
        return found, looks, gap if ramps[-1] * found.cut[0] <= 2 * tol * mean else np.inf

    def _held(self, rows: Rows, task: Sharpening, ramp: float) -> tuple[float, float]:
        """One problem's objective for a unit of the mass inside, with the weights of a ramp held, and their gap."""
        loss, mass, cut = get_loss(task.loss), task.masses[task.own[0]], float(task.cut[0])
        # Plain sums again: the value says how narrow the ramps become.
        margins = -(task.coordinates[0][:, None] * rows.across).sum(axis=0)[: len(self.y)]
        losses, alpha = loss.value(margins), float(task.alpha[0])
        weights = ramp_weights(losses, loss, mass, float(task.k[0]), cut, ramp)
        used = np.flatnonzero(weights)
        if not used.size:
            return loss.threshold, 1.0
        pulls, points = Rounded(loss).pulls(margins[used], min(KINK, ramp * cut))
        heights, held = weights[used] * (loss.value(points) + pulls * points), weights[used]
        kind = "none" if not self.fit_intercept else "penalized" if self.penalize_intercept else "free"
        bound = dual_values(
            Judged(self.X[used], self.y[used], kind), heights[None], (held * pulls)[None], np.array([alpha])
        )
        value = float((held * losses[used]).sum() + 0.5 * alpha * (rows.penalized * task.coordinates[0] ** 2).sum())
        gap = (value - float(bound[0])) / max(value, NOTHING * loss.threshold * float(held.sum()))
        return value / float(held.sum()), float(np.clip(gap, 0.0, 1.0)) if np.isfinite(gap) else 1.0


def ramp_weights(losses: Array, loss: Loss, mass: Array, k: float, cut: float, ramp: float) -> Array:
    """Weights (samples,) of the mass k that fall along a ramp around the cut; what rounding left is on the ramp.

    Examples
    --------
    >>> logistic = get_loss("logistic")
    >>> losses = logistic.threshold + np.array([0.0, 0.1, 0.2, 0.3])
    >>> ramp_weights(losses, logistic, np.ones(4), 2.5, 0.2, 0.1).round(6).tolist()
    [1.0, 1.0, 0.5, 0.0]
    """
    far = np.abs(losses - loss.threshold)
    share = np.clip((cut + ramp * cut / 2 - far) / max(ramp * cut, 1e-300), 0, 1)
    between = mass * ((share > 0) & (share < 1))
    room = float(between.sum())
    missing = k - float((mass * share).sum())
    return mass * share if room == 0 else np.clip(mass * share + between * (missing / room), 0, mass)


def random_masses(words: Array, n_starts: int) -> Array:
    """Factors of the masses for each start (n_starts, samples): 1 for the first, exponential for the others.

    Examples
    --------
    >>> found = random_masses(np.arange(10_000, dtype=np.uint64), 3)
    >>> bool((found[0] == 1).all()), np.round(found[1:].mean(axis=1), 1).tolist()
    (True, [1.0, 1.0])
    """
    streams = [spread_out(words + np.uint64(start * STREAM % (1 << 64))) for start in range(1, n_starts)]
    return np.stack([np.ones(len(words)), *(-np.log1p(-uniform) for uniform in streams)])


Path = tuple[int, float, list[tuple[float, list[int]]]]


def _alike(alpha: Array, fold_of: Array, k: Array) -> list[list[Path]]:
    """Paths (fold, alpha, [(k, problems)], the largest k first), those with equally many k together."""
    found: dict[tuple[int, float], dict[float, list[int]]] = {}
    for place, key in enumerate(zip(fold_of.tolist(), alpha.tolist(), strict=True)):
        found.setdefault(key, {}).setdefault(float(k[place]), []).append(place)
    paths: dict[int, list[Path]] = {}
    for (fold, strength), targets in found.items():
        members = sorted(targets.items(), reverse=True)
        paths.setdefault(len(members), []).append((fold, strength, members))
    return list(paths.values())


def _tasks(rows: Rows, loss: str, masses: Array, paths: list[Path], noise: Array) -> Tasks:
    """Every path from every start: path first."""
    folds, n_starts = sorted({fold for fold, _, _ in paths}), len(noise)
    kinds = (masses[folds][:, None] * noise).reshape(-1, masses.shape[1])
    own = np.repeat([n_starts * folds.index(fold) for fold, _, _ in paths], n_starts)
    k = np.array([[k for k, _ in members] for _, _, members in paths])
    alpha = np.repeat([alpha for _, alpha, _ in paths], n_starts)
    run = own + np.tile(np.arange(n_starts), len(paths))
    tasks = Tasks(loss, kinds, run, own, alpha, np.repeat(k, n_starts, axis=0), np.zeros((len(own), len(rows.across))))
    if get_loss(loss).convex:
        return tasks
    average = Tasks("logistic", kinds, run, run, alpha, np.full((len(own), 1), np.inf), tasks.starts)
    return Tasks(**vars(tasks) | {"starts": follow(rows, average).coordinates[:, 0]})


def _best(spots: Spots, n_starts: int) -> Array:
    """Which task is kept for each path and target, (paths, targets)."""
    shape = len(spots.cut) // n_starts, n_starts, -1
    errors, value = (part.reshape(shape) for part in (spots.errors, spots.value / spots.cut))
    least = errors <= errors.min(axis=1, keepdims=True) * (1 + 1e-9)
    kept = np.where(least, value, np.inf).argmin(axis=1)
    return kept + n_starts * np.arange(shape[0])[:, None]

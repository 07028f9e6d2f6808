"""Close-k problems as paths of cuts: which problems share a path, from which starts, which end is kept, and what it is
worth.

Many rows are begun on a sample, which says where to go; the last cut is placed on all of them, which say where to stay.
The certificate is that of :mod:`closecall.solvers.certificate`. Its weights are the shares of a ramp so narrow that no
loss would have to change by more than ``tol`` of the mean one for the selection to be these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from .._names import Array, spread_out
from ..aggregates import get_aggregate
from ..losses import Loss, get_loss
from ..objective import Problem
from .certificate import NOTHING, Judged, counts, dual_values
from .finish import Rounded
from .kernels import pull_close, pull_of
from .newton import LARGEST_RANK
from .path import Sharpening, Spots, Tasks, follow, sharpen
from .rows import DenseRows
from .sample import FROM_SAMPLES
from .stages import COARSE, KINK, NEAR, RAMP, ROUGHLY

#: Starts at least and at most, rows times starts, and starts times the work of a look: rows times squared columns, of
#: which a row counts as so many more. On 23 PMLB sets of 120 to 1,700 rows ten starts had no more training errors than
#: the best of twenty runs of Algorithm 1 in 91 % of 184 problems, four in 83 %, one in 67 %.
LEAST_STARTS, MOST_STARTS, ROWS_STARTED, WORK_STARTED, OVERHEAD = 2, 10, 10_000, 1e7, 10
#: An odd number by which the hashes of rows become the streams of the starts' random masses, and of the sample.
STREAM = 0xD1B54A32D192ED03
#: From how many rows on paths begin on a sample, and how many it has.
FROM_ROWS, SAMPLED = 12_000, 6_000
#: Which share of the rows the second start has, and what the others weigh.
INNER, TINY = 0.75, 1e-6
#: How many ends of a fit are sharpened: which has the fewest errors then is not known before.
CANDIDATES = 3
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
    if pull_of(problem.aggregate) is not pull_close or sparse.issparse(X):  # one of a user's own selects in its own way
        return False
    few = X.shape[1] < LARGEST_RANK and X.shape[0] < FROM_SAMPLES
    return few and not get_aggregate(problem.aggregate).is_average(*counts(problem, mass), mass)


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
        c, gap = np.empty(shape), np.full(len(problems), np.nan)
        looks, errors = np.zeros(len(problems), dtype=int), np.empty(len(problems))
        for loss in dict.fromkeys(problem.loss for problem in problems):
            mine = np.array([place for place, problem in enumerate(problems) if problem.loss == loss])
            some, folds = [problems[place] for place in mine], fold_of[mine]
            certifies = tol is not None and len(self.y) <= SHARPENED
            task, of, looks[mine] = self._begin(rows, loss, some, folds, CANDIDATES if certifies else 1)
            gaps = np.full(len(of), np.nan if tol is None else np.inf)
            if not certifies:  # otherwise its ramps place it
                task, more = self._sharpened(rows, task, np.full((len(of), 1), RAMP), np.array([NEAR]))
                looks[mine] += more
            found, wrong = task.coordinates, self._errors(rows, task)
            if tol is not None and certifies:  # a narrow ramp may cost errors, which count first
                ends = [self._certified(rows, task.take(np.array([end])), tol) for end in range(len(of))]  # each alone
                task = replace(task, coordinates=np.concatenate([one.coordinates for one, _, _ in ends]))
                np.add.at(looks, mine[of], [int(more[0]) for _, more, _ in ends])
                found, wrong = np.concatenate([found, task.coordinates]), np.append(wrong, self._errors(rows, task))
                gaps, of = np.append(gaps, [proven for _, _, proven in ends]), np.tile(of, 2)
            for place in range(len(mine)):
                own = np.flatnonzero(of == place)
                best = own[np.lexsort((gaps[own], wrong[own]))[0]]
                c[mine[place]], gap[mine[place]], errors[mine[place]] = found[best], gaps[best], wrong[best]
        coef, intercept = rows.to_parameters(c)
        return Ends(coef, intercept, looks, errors, gap)

    def _errors(self, rows: DenseRows, task: Sharpening) -> Array:
        """The misclassified mass at every end, (ends,)."""
        wrong = (task.coordinates @ rows.across >= 0)[:, : len(self.y)]
        return np.asarray((wrong * task.masses[task.own]).sum(axis=1))

    def _rows(self, some: Any) -> DenseRows:
        mass = self.masses.max(axis=0)[some]
        return DenseRows(self.X[some], self.y[some], mass, self.fit_intercept, self.penalize_intercept)

    def _begin(
        self, whole: DenseRows, loss: str, problems: list[Problem], fold_of: Array, keep: int
    ) -> tuple[Sharpening, Array, Array]:
        """The best ends of every problem, which problem each is of, and the looks; on a sample of many rows."""
        some: Any = slice(None)
        if len(self.y) > FROM_ROWS:
            chance = spread_out(self.words * np.uint64(STREAM))
            some = np.sort(np.argsort(chance, kind="stable")[:SAMPLED])
        masses, words = self.masses[:, some], self.words[some]
        shares = masses.sum(axis=1) / self.masses.sum(axis=1)
        rows = whole if len(words) == len(self.y) else self._rows(some)
        starts = self.n_starts or starts_for(len(words), len(whole.across))
        kinds = {fold: start_masses(self.X[some], masses[fold], words, starts) for fold in set(fold_of.tolist())}
        totals = self.masses.sum(axis=1)
        k = np.array([counts(problem, totals[fold])[0] for problem, fold in zip(problems, fold_of, strict=True)])
        alpha = np.array([problem.alpha for problem in problems])
        keep, looks = min(keep, starts), np.zeros(len(problems), dtype=int)
        c, cut = np.empty((len(problems), keep, whole.across.shape[0])), np.empty((len(problems), keep))
        for paths in _alike(alpha * shares[fold_of], fold_of, k * shares[fold_of]):
            how: dict[str, Any] = {"stage": self.stage, "threads": self.threads, "tol": COARSE, "near": ROUGHLY}
            spots = follow(rows, _tasks(rows, loss, kinds, paths), **how)
            kept = _best(spots, starts)[:, :keep]
            for path, (_, _, members) in enumerate(paths):
                for target, (_, places) in enumerate(members):
                    tasks = kept[path, :, target]
                    c[places], cut[places] = spots.coordinates[tasks, target], spots.cut[tasks, target]
                    looks[places] = spots.looks.reshape(len(paths), starts)[path].sum()
        if rows is not whole:
            c = whole.to_coordinates(*rows.to_parameters(c))
        folds, own = np.unique(fold_of, return_inverse=True)
        of, flat = np.repeat(np.arange(len(problems)), keep), c.reshape(len(problems) * keep, -1)
        task = Sharpening(
            loss, self.masses[folds], own[of], alpha[of], k[of], flat, cut.ravel(), np.empty((len(of), 0)), np.empty(0)
        )
        return task, of, looks

    def _sharpened(self, rows: DenseRows, task: Sharpening, ramps: Array, near: Array) -> tuple[Sharpening, Array]:
        """The task where its ramps lead, with those reached (ends, 1), and the looks it took (ends,)."""
        given = vars(task) | {"ramps": ramps, "near": near}
        spots, reached = sharpen(rows, Sharpening(**given), stage=self.stage)
        done = reached > 0
        c = np.where(done[:, None], spots.coordinates[:, 0], task.coordinates)
        cut = np.where(done, spots.cut[:, 0], task.cut)
        return Sharpening(**given | {"coordinates": c, "cut": cut, "ramps": reached[:, None]}), spots.looks

    def _certified(self, rows: DenseRows, task: Sharpening, tol: float) -> tuple[Sharpening, Array, float]:
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

    def _held(self, rows: DenseRows, task: Sharpening, ramp: float) -> tuple[float, float]:
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


def starts_for(samples: int, size: int) -> int:
    """How many starts rows (samples, size) are worth, unless the user says.

    Examples
    --------
    >>> starts_for(500, 7), starts_for(5000, 7), starts_for(4601, 58)
    (10, 2, 2)
    """
    least = min(ROWS_STARTED // samples, int(WORK_STARTED / (samples * (size + OVERHEAD) ** 2)))
    return int(np.clip(least, LEAST_STARTS, MOST_STARTS))


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


def start_masses(X: Array, mass: Array, words: Array, n_starts: int) -> Array:
    """The masses of each start (n_starts, samples).

    The first has the masses as they are. The second leaves out the quarter of the rows that lie farthest out: outliers
    turn the average, and no descent turns back from there. The others are random with mean 1: in turn exponential,
    their squares, and one row in five alone.
    The further from 1, the further apart their ends are.

    Examples
    --------
    >>> found = start_masses(np.arange(10_000.0)[:, None], np.ones(10_000), np.arange(10_000, dtype=np.uint64), 5)
    >>> bool((found[0] == 1).all()), found[1, [0, 5000]].tolist(), np.round(found[2:].mean(axis=1), 1).tolist()
    (True, [1e-06, 1.0], [1.0, 1.0, 1.0])
    """
    factors = [np.ones(len(words))]
    if n_starts > 1:
        inside = mass > 0
        far = np.full(len(words), np.inf)
        far[inside] = outlyingness(X[inside])
        ranked = np.sort(far[inside])
        factors.append(np.where(far <= ranked[int(INNER * (len(ranked) - 1))], 1.0, TINY))
    kinds = (lambda u: -np.log1p(-u), lambda u: np.log1p(-u) ** 2 / 2, lambda u: np.where(u < 0.2, 5.0, TINY))
    for start in range(2, n_starts):
        uniform = spread_out(words + np.uint64(start * STREAM % (1 << 64)))
        factors.append(kinds[start % len(kinds)](uniform))
    return np.stack(factors) * mass


def outlyingness(X: Array) -> Array:
    """How many robust deviations each row lies from the middle, in the column where that is most (samples,).

    Examples
    --------
    >>> outlyingness(np.array([[0.0], [1.0], [2.0], [3.0], [50.0]])).tolist()
    [2.0, 1.0, 0.0, 1.0, 48.0]
    """
    far = np.abs(X - np.median(X, axis=0)).astype(np.float64)
    middle, whole = np.median(far, axis=0), far.mean(axis=0)
    unit = np.where(middle > 0, middle, np.where(whole > 0, whole, 1.0))  # most values of a column may be equal
    with np.errstate(over="ignore"):  # a column of one number and a spread of the smallest floats
        return np.asarray((far / unit).max(axis=1, initial=0.0))


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
    return Tasks(**vars(tasks) | {"starts": follow(rows, average).coordinates[:, 0]})


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

"""Close-k problems as paths of cuts: which problems share a path, from which starts, and which end is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from .._names import Array, spread_out
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..objective import Problem
from .certificate import counts
from .newton import LARGEST_RANK
from .path import Rows, Spots, Tasks, follow
from .sample import FROM_SAMPLES

#: Starts at most, and rows times starts. On 23 PMLB sets of 120 to 1,700 rows ten starts had no more training
#: errors than the best of twenty runs of Algorithm 1 in 92 % of 184 problems, four in 83 %, one in 67 %.
MOST_STARTS, ROWS_STARTED = 10, 20_000
#: An odd number by which the hashes of rows become the streams of the starts' random masses.
STREAM = 0xD1B54A32D192ED03


@dataclass(frozen=True)
class Ends:
    """Where the paths of some problems ended: coef (problems, features), the rest (problems,)."""

    coef: Array
    intercept: Array
    looks: Array
    errors: Array


def serves(X: Any, problem: Problem, mass: float) -> bool:
    """Whether a path solves a problem: a close selection that is no average, on dense rows that are not too many."""
    aggregate = get_aggregate(problem.aggregate)
    if sparse.issparse(X) or X.shape[1] >= LARGEST_RANK or X.shape[0] >= FROM_SAMPLES or not aggregate.close:
        return False
    return not aggregate.is_average(*counts(problem, mass), mass)


def solve_close(
    X: Array, y: Array, masses: Array, problems: Sequence[Problem], fold_of: Array, *, fit_intercept: bool,
    penalize_intercept: bool, words: Array | None = None, n_starts: int | None = None, stage: int = 100,
    threads: int = 1,
) -> Ends:  # fmt: skip
    """Solve close problems on rows (samples, features) with masses (folds, samples).

    Problems of one (loss, fold, alpha) are spots of one path, whose stages take at most ``stage`` steps. Other starts
    are drawn by ``words`` (samples,), the rows' hashes: the same for a row wherever it is. The end with the least
    misclassified mass is kept; ties go to the lowest value for its cut, a smooth count of the errors and the penalty.

    Examples
    --------
    >>> X, y = np.array([[-2.0], [-1.0], [-0.5], [0.5], [1.0], [2.0], [-9.0]]), np.array([-1, -1, -1, 1, 1, 1, 1.0])
    >>> found = solve_close(X, y, np.ones((1, 7)), [Problem("logistic", "close", 2, 0.01)], np.zeros(1, dtype=int),
    ...                     fit_intercept=True, penalize_intercept=False)
    >>> found.errors.tolist()
    [1.0]
    """
    rows = Rows(X, y, masses.max(axis=0), fit_intercept, penalize_intercept)
    coef, intercept = np.empty((len(problems), X.shape[1])), np.empty(len(problems))
    looks, errors = np.zeros(len(problems), dtype=int), np.empty(len(problems))
    if n_starts is None:
        n_starts = int(np.clip(ROWS_STARTED // len(y), 1, MOST_STARTS))
    noise = random_masses(np.arange(len(y), dtype=np.uint64) if words is None else words, n_starts)
    for loss in dict.fromkeys(problem.loss for problem in problems):
        mine = [place for place, problem in enumerate(problems) if problem.loss == loss]
        for group in _alike(problems, fold_of, masses, mine):
            spots = follow(rows, _tasks(rows, loss, masses, group, noise), stage=stage, threads=threads)
            kept = _best(spots, n_starts)
            for path, (_, _, members) in enumerate(group):
                for target, (_, places) in enumerate(members):
                    task = kept[path, target]
                    w, b = rows.to_parameters(spots.coordinates[task, target])
                    coef[places], intercept[places] = w, b
                    looks[places] = spots.looks.reshape(len(group), n_starts)[path].sum()
                    errors[places] = spots.errors[task, target]
    return Ends(coef, intercept, looks, errors)


def random_masses(words: Array, n_starts: int) -> Array:
    """Factors of the masses for each start (n_starts, samples): 1 for the first, exponential for the others.

    Examples
    --------
    >>> found = random_masses(np.arange(10_000, dtype=np.uint64), 3)
    >>> found[0].min() == found[0].max() == 1, np.round(found[1:].mean(axis=1), 1).tolist()
    (True, [1.0, 1.0])
    """
    streams = [spread_out(words + np.uint64(start * STREAM % (1 << 64))) for start in range(1, n_starts)]
    return np.stack([np.ones(len(words)), *(-np.log1p(-uniform) for uniform in streams)])


Path = tuple[int, float, list[tuple[float, list[int]]]]


def _alike(problems: Sequence[Problem], fold_of: Array, masses: Array, places: list[int]) -> list[list[Path]]:
    """Paths (fold, alpha, [(k, problems)], the largest k first), those with equally many k together."""
    found: dict[tuple[int, float], dict[float, list[int]]] = {}
    for place in places:
        fold, problem = int(fold_of[place]), problems[place]
        k = counts(problem, float(masses[fold].sum()))[0]
        found.setdefault((fold, problem.alpha), {}).setdefault(k, []).append(place)
    paths: dict[int, list[Path]] = {}
    for (fold, alpha), targets in found.items():
        members = sorted(targets.items(), reverse=True)
        paths.setdefault(len(members), []).append((fold, alpha, members))
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
    return Tasks(*(vars(tasks) | {"starts": follow(rows, average).coordinates[:, 0]}).values())


def _best(spots: Spots, n_starts: int) -> Array:
    """Which task is kept for each path and target, (paths, targets)."""
    shape = len(spots.cut) // n_starts, n_starts, -1
    errors, value = (part.reshape(shape) for part in (spots.errors, spots.value / spots.cut))
    least = errors <= errors.min(axis=1, keepdims=True) * (1 + 1e-9)
    kept = np.where(least, value, np.inf).argmin(axis=1)
    return kept + n_starts * np.arange(shape[0])[:, None]

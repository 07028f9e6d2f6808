"""The computation of one cell: divide, scale, solve the whole grid, and score every row on every part.

The row of the grid is chosen later, from the record (:func:`reproduction.protocol.grid.choose`), so a new question does
not need a new run.
"""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial

import numpy as np

from closecall._names import Array, lookup
from closecall.aggregates import get_aggregate
from closecall.objective import Problem
from closecall.theory import best_intercept
from reproduction.protocol import load_dataset
from reproduction.protocol.baselines import sklearn_baselines
from reproduction.protocol.beyond import STUDIES, whole
from reproduction.protocol.dataset import PARTS, Dataset, Division
from reproduction.protocol.grid import ALPHAS, EQUAL_STARTS, grid, k_grid, rows_of, score_linear
from reproduction.protocol.plan import NETWORK_RATES, NEW_STARTS, Cell, rng_for
from reproduction.protocol.protocol import get_protocol

from .record import Record


def divide(data: Dataset, cell: Cell) -> Division:
    """Split and scale a data set according to the cell's protocol."""
    if cell.model in STUDIES and STUDIES[cell.model].whole:
        return whole(data)
    protocol = get_protocol(cell.protocol)
    division = protocol.divide(data, partial(rng_for, cell), cell.contamination, cell.level)
    if min(division.sizes) == 0:
        raise ValueError(f"{len(data.y)} rows are too few to divide into three parts")
    if len(np.unique(division.y[0])) < 2:
        raise ValueError(f"the training part of split {cell.split} has only one class")
    return division


def run_cell(cell: Cell, data_dir: str | None = None) -> Record:
    """Run one cell and return its record; nothing is downloaded."""
    began = time.perf_counter()
    data = _load(cell.dataset, data_dir)
    if data.checksum != cell.checksum:
        raise ValueError(f"data set {cell.dataset!r} has changed since the run was planned; start the run again")
    division = divide(data, cell)
    rows = lookup(_MODELS, cell.model, "model")(division, cell)
    seconds = time.perf_counter() - began
    return Record(cell.key, "done", rows, division.sizes, division.X[0].shape[1], seconds, notes=division.notes)


@lru_cache(maxsize=2)  # cells are sorted by cost, so a worker's next cell mostly has the same data set
def _load(name: str, data_dir: str | None) -> Dataset:
    return load_dataset(name, data_dir, download=False)


def _linear_rows(division: Division, cell: Cell) -> Array:
    from closecall.solvers import solve

    problems, protocol = grid(division.sizes[0]), get_protocol(cell.protocol)
    solutions = solve(
        division.X[0], division.y[0], problems, max_iter=cell.max_iter, tol=protocol.tolerance,
        init=cell.start, penalize_intercept=protocol.penalize_intercept, dtype=np.float32,
    )  # fmt: skip
    rows = rows_of(problems)
    score_linear(rows, solutions.coef, solutions.intercept, division)
    rows["objective"], rows["n_iter"], rows["converged"] = solutions.objective, solutions.n_iter, solutions.converged
    average = np.array([get_aggregate(problem.aggregate).plain for problem in problems])
    moved = rows[average]  # boolean indexing copies
    intercepts = best_intercept(solutions.coef[average] @ division.X[0].T, division.y[0])[0]
    score_linear(moved, solutions.coef[average], intercepts, division)
    moved["method"], moved["objective"] = "average_exact_intercept", np.nan
    return np.concatenate([rows, moved, sklearn_baselines(division.X, division.y, ALPHAS)])


def _network_rows(division: Division, cell: Cell) -> Array:
    """Train a network for each problem; with new starts, ``average`` gets as many networks as ``close_decay``."""
    from closecall.network.grid import train_grid

    problems, new = grid(division.sizes[0]), cell.recipe >= NEW_STARTS
    own, average = len(problems), [each for each in problems if get_aggregate(each.aggregate).plain]
    if new:
        problems += average * (len(k_grid(division.sizes[0])) - 1)
    rows = rows_of(problems)
    trained = train_grid(
        division.X[0], division.y[0], problems, max_iter=cell.max_iter, learning_rate=NETWORK_RATES[cell.recipe],
        seed=new_starts(cell, problems) if new else int(rng_for(cell, "start").integers(2**31)),
        penalize_intercept=get_protocol(cell.protocol).penalize_intercept,
    )  # fmt: skip
    for part, X, y in zip(PARTS, division.X, division.y, strict=True):
        rows[part] = (trained.scores(X) * y > 0).sum(axis=1)
    rows["n_iter"], rows["objective"] = trained.n_iter, np.nan
    if not new:
        return rows
    control = rows[np.isin(rows["method"], [each.aggregate for each in average])]  # the first draw of each is average's
    control["method"] = EQUAL_STARTS
    return np.concatenate([rows[:own], control])


def new_starts(cell: Cell, problems: Sequence[Problem]) -> list[int]:
    """Return a seed for each problem's start, from a stream of its own; the n-th occurrence of a problem is draw n."""
    draws = Counter[Problem]()
    seeds = []
    for each in problems:
        name = f"start {each.loss} {each.aggregate} k={each.k} alpha={each.alpha:g} draw={draws[each]}"
        seeds.append(int(rng_for(cell, name).integers(2**31)))
        draws[each] += 1
    return seeds


_MODELS: dict[str, Callable[[Division, Cell], Array]] = {
    "linear": _linear_rows, "network": _network_rows,
    **dict.fromkeys(STUDIES, lambda division, cell: STUDIES[cell.model].rows(division, cell.max_iter)),
}  # fmt: skip

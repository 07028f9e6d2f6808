"""One cell -> one record: divide, scale, solve the whole grid, score every row on every part.

The two protocols differ in the order of things and in what may be looked at; ``paper`` does what the paper did,
``sound`` fits everything on the training part. Which row of the grid counts is chosen later, from the record
(:func:`closecall.evaluate.grid.choose`), so every question can be asked again without running again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from closecall._names import Array, lookup
from closecall.aggregates import get_aggregate
from closecall.data import Dataset, load_dataset
from closecall.data.simulate import SIMULATIONS, shares
from closecall.evaluate.baselines import exact_intercepts, sklearn_baselines
from closecall.evaluate.grid import ALPHAS, PARTS, ROW, k_grid
from closecall.objective import Problem

from .plan import Cell, rng_for
from .published import LOSSES, METHODS
from .record import Record

#: When a row may stop. ``sound`` has a convergence test. ``paper`` gives every aggregate the same number of steps; only
#: a row whose steps move its margins by less than 1e-5 of their size is not pushed on. Measured against running
#: every step (validation-chosen test errors; monk3 25 splits, phoneme 4): 1.7 times faster; close, close decay and
#: average within 0.01 points; atk and top within 0.23 on monk3, top 0.54 higher on phoneme with the logistic loss.
TOLERANCES = {"paper": 1e-5, "sound": 1e-3}
#: Relative sizes of the training, validation and test part.
SHARES = (50, 25, 25)


@dataclass(frozen=True)
class Division:
    """A data set divided and ready to be solved: three matrices and three vectors of labels in {-1, +1}."""

    X: tuple[Array, ...]
    y: tuple[Array, ...]
    notes: tuple[str, ...] = ()

    @property
    def sizes(self) -> tuple[int, int, int]:
        train, validation, test = (len(y) for y in self.y)
        return train, validation, test


def divide(data: Dataset, cell: Cell) -> Division:
    """Divide and scale a data set as the cell's protocol says.

    Parameters
    ----------
    data : Dataset
    cell : Cell

    Examples
    --------
    >>> cell = Cell("embedded", "embedded:monk3", "", 0, "linear", "sound")
    >>> division = divide(load_dataset("embedded:monk3"), cell)
    >>> division.sizes, [X.shape[1] for X in division.X]
    ((277, 139, 138), [6, 6, 6])
    """
    division = lookup(_DIVIDE, cell.protocol, "protocol")(data, cell)
    if min(division.sizes) == 0:
        raise ValueError(f"{len(data.y)} rows are too few to divide into three parts")
    if len(np.unique(division.y[0])) < 2:
        raise ValueError(f"the training part of split {cell.split} has one class only")
    return division


def _divide_paper(data: Dataset, cell: Cell) -> Division:
    """Drop columns with missing values, scale over the whole set, contaminate, divide at random."""
    X, y = data.matrix_paper(), data.signs()
    dropped = data.X.shape[1] - X.shape[1]
    X = _scaler(X)(X)
    if cell.contamination:
        X, y = _contaminate(cell, X, y, cell.level, rng_for(cell, cell.contamination))
    order = rng_for(cell, "split").permutation(len(y))
    train, validation, _ = shares(len(y), SHARES)
    parts = np.split(order, [train, train + validation])
    notes = (f"{dropped} columns with missing values dropped",) if dropped else ()
    return Division(tuple(X[part] for part in parts), tuple(y[part] for part in parts), notes)


def _divide_sound(data: Dataset, cell: Cell) -> Division:
    """Divide by class, encode by the training part, contaminate each part, scale by the training part as it then is."""
    signs = data.signs()
    rows = _stratified(signs, rng_for(cell, "split"))
    X, y = list(data.encode(*rows)), [signs[part] for part in rows]
    if cell.contamination:
        rng = rng_for(cell, cell.contamination)
        counts = shares(cell.level, [len(part) for part in rows])
        for i, count in enumerate(counts):
            X[i], y[i] = _contaminate(cell, X[i], y[i], count, rng)
    scale = _scaler(X[0])
    return Division(tuple(scale(part) for part in X), tuple(y))


_DIVIDE: dict[str, Callable[[Dataset, Cell], Division]] = {"paper": _divide_paper, "sound": _divide_sound}


def _stratified(y: Array, rng: np.random.Generator) -> list[Array]:
    """Rows of the three parts, each class divided 50/25/25 by itself; a class of one goes to the training part."""
    parts: list[list[Array]] = [[], [], []]
    for label in (-1, 1):
        members = rng.permutation(np.flatnonzero(y == label))
        train, validation, _ = shares(len(members), SHARES)
        for part, chosen in zip(parts, np.split(members, [train, train + validation]), strict=True):
            part.append(chosen)
    return [np.sort(np.concatenate(part)) for part in parts]


def _scaler(X: Array) -> Callable[[Array], Array]:
    mean, deviation = X.mean(axis=0), X.std(axis=0)
    # A constant column's deviation is rounding noise, not exactly zero: left alone, it becomes zero by its mean.
    constant = deviation <= 10 * np.finfo(float).eps * np.maximum(np.abs(mean), np.finfo(float).tiny)
    deviation = np.where(constant, 1, deviation)
    return lambda part: (part - mean) / deviation


def _contaminate(cell: Cell, X: Array, y: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    return lookup(SIMULATIONS, cell.contamination, "contamination").contaminate(X, y, count, rng)


def grid(n: int) -> list[Problem]:
    """Every (loss, method, k, alpha) of the paper's grid for n training rows.

    Examples
    --------
    >>> len(grid(277)), len(grid(2300))
    (286, 374)
    """
    return [
        Problem(loss, method, k, alpha)
        for loss in LOSSES
        for method in METHODS
        for k in (k_grid(n) if get_aggregate(method).takes else (n,))
        for alpha in ALPHAS
    ]


def run_cell(cell: Cell, data_dir: str | None = None) -> Record:
    """Run one cell from its data set's name to its record.

    Parameters
    ----------
    cell : Cell
    data_dir : str, optional
        Where data sets are kept; nothing is downloaded here.
    """
    began = time.perf_counter()
    data = _load(cell.dataset, data_dir)
    if data.checksum != cell.checksum:
        raise ValueError(f"data set {cell.dataset!r} has changed since the run was planned; start the run again")
    division = divide(data, cell)
    rows = lookup(_MODELS, cell.model, "model")(division, cell)
    seconds = time.perf_counter() - began
    return Record(cell.key, "done", rows, division.sizes, division.X[0].shape[1], seconds, notes=division.notes)


@lru_cache(maxsize=2)  # cells come sorted by cost, so a worker's next cell is mostly of the same data set
def _load(name: str, data_dir: str | None) -> Dataset:
    return load_dataset(name, data_dir, download=False)


def _linear_rows(division: Division, cell: Cell) -> Array:
    from closecall.solvers import solve

    problems = grid(division.sizes[0])
    solutions = solve(
        division.X[0],
        division.y[0],
        problems,
        max_iter=cell.max_iter,
        # Under `paper` every solve takes the same number of steps; `sound` lets any that has converged stop.
        tol=TOLERANCES[cell.protocol],
        init=_start(cell, division.X[0].shape[1]),
        penalize_intercept=cell.protocol == "paper",
        dtype=np.float32,
    )
    rows = rows_of(problems)
    score_linear(rows, solutions.coef, solutions.intercept, division)
    rows["objective"], rows["n_iter"], rows["converged"] = solutions.objective, solutions.n_iter, solutions.converged
    average = rows["method"] == "average"
    moved = rows[average]  # boolean indexing copies
    intercepts = exact_intercepts(solutions.coef[average], division.X[0], division.y[0])
    score_linear(moved, solutions.coef[average], intercepts, division)
    moved["method"], moved["objective"] = "average_exact_intercept", np.nan
    return np.concatenate([rows, moved, sklearn_baselines(division.X, division.y, ALPHAS)])


def _start(cell: Cell, features: int) -> str | tuple[Array, float]:
    """The solver's starts by name; ``random`` is standard normal, one draw for all problems of the split."""
    if cell.start != "random":
        return cell.start
    draw = rng_for(cell, "start").standard_normal(features + 1)
    return draw[1:], float(draw[0])


def rows_of(problems: list[Problem]) -> Array:
    """Empty rows that say which problem they are about."""
    rows = np.zeros(len(problems), ROW)
    for name, attribute in (("loss", "loss"), ("method", "aggregate"), ("k", "k"), ("alpha", "alpha")):
        rows[name] = [getattr(problem, attribute) for problem in problems]
    return rows


def score_linear(rows: Array, coef: Array, intercept: Array, division: Division) -> None:
    """Fill in how many examples of each part every linear classifier gets right (margin > 0).

    Parameters
    ----------
    rows : array (problems,) of dtype ROW
    coef : array (problems, features)
    intercept : array (problems,)
    division : Division
    """
    for part, X, y in zip(PARTS, division.X, division.y, strict=True):
        correct = np.zeros(len(rows), dtype=np.int64)
        # In blocks: all scores of a large part at once would take hundreds of megabytes.
        for start in range(0, len(y), 4096):
            scores = X[start : start + 4096] @ coef.T + intercept
            correct += (scores * y[start : start + 4096, None] > 0).sum(axis=0)
        rows[part] = correct


def _network_rows(division: Division, cell: Cell) -> Array:
    from .networks import correct_counts

    problems = grid(division.sizes[0])
    rows = rows_of(problems)
    correct, rows["n_iter"] = correct_counts(division.X, division.y, problems, cell)
    for part, counts in zip(PARTS, correct, strict=True):
        rows[part] = counts
    rows["objective"] = np.nan
    return rows


_MODELS: dict[str, Callable[[Division, Cell], Array]] = {"linear": _linear_rows, "network": _network_rows}

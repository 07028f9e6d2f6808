"""One choice at a time: the grids, divisions, solvers and ties that our errors and the published ones may differ by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from closecall.evaluate.grid import ALPHAS, choose, k_grid
from closecall.objective import Problem
from closecall.paper.cell import Division, grid, rows_of, score_linear
from closecall.paper.plan import Cell, rng_for
from closecall.paper.published import LOSSES, METHODS
from closecall.solvers import solve

from .common import Array, dataset
from .descent import descend

STEPS = 1000


def wide_grid(n: int) -> list[Problem]:
    """The released code's grid: alpha = 0 too, and k = 1 too."""
    ks = (1, *(k for k in k_grid(n) if k > 1))
    return [
        Problem(loss, method, k, alpha)
        for loss in LOSSES
        for method in METHODS
        for k in (ks if method != "average" else (n,))
        for alpha in (0.0, *ALPHAS)
    ]


def rescaled(parts: Division) -> Division:
    """The same division scaled by its training part: scaling twice is scaling by the training part alone."""
    mean, deviation = parts.X[0].mean(axis=0), parts.X[0].std(axis=0)
    deviation = np.where(deviation <= 1e-12, 1, deviation)
    return Division(tuple((X - mean) / deviation for X in parts.X), parts.y)


def scored(problems: Sequence[Problem], coef: Array, intercept: Array, parts: Division) -> Array:
    """Rows of the given classifiers, scored on every part."""
    rows = rows_of(list(problems))
    score_linear(rows, coef, intercept, parts)
    return rows


def solutions(parts: Division, problems: Sequence[Problem], **options: Any) -> tuple[Array, Array]:
    """Coefficients and intercepts of our solver, as the paper protocol has it but for the options."""
    paper: dict[str, Any] = {"max_iter": STEPS, "tol": 1e-5, "penalize_intercept": True, "dtype": np.float32}
    found = solve(parts.X[0], parts.y[0], problems, **(paper | options))
    return found.coef, found.intercept


def solved(parts: Division, problems: Sequence[Problem] | None = None, **options: Any) -> Array:
    """Rows of our solver, scored on every part."""
    problems = problems or grid(parts.sizes[0])
    return scored(problems, *solutions(parts, problems, **options), parts)


def descended(parts: Division, problems: Sequence[Problem], steps: int, **options: Any) -> Array:
    """Rows of the released descent, scored on every part."""
    return scored(problems, *descend(parts.X[0], parts.y[0], problems, steps=steps, **options), parts)


def released_division(name: str, split: int) -> Division:
    """The released code's division: NumPy's legacy generator seeded with the split's number shuffles the rows.

    Examples
    --------
    >>> released_division("embedded:monk3", 0).sizes
    (277, 138, 139)
    """
    data = dataset(name)
    X, y = data.matrix_paper(), data.signs()
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-5)
    order = np.arange(len(y))
    np.random.RandomState(split).shuffle(order)  # this very stream is wanted
    train = round(0.5 * len(y))
    parts = np.split(order, [train, train + round(0.25 * len(y))])
    return Division(tuple(X[part] for part in parts), tuple(y[part] for part in parts))


def choose_small(rows: Array) -> Array:
    """Equals on validation go to the smaller alpha, then the smaller k."""
    turned = rows.copy()
    turned["alpha"], turned["k"] = -rows["alpha"], -rows["k"]
    chosen = choose(turned, "paper")
    chosen["alpha"], chosen["k"] = -chosen["alpha"], -chosen["k"]
    return chosen


def random_start(name: str, split: int, features: int) -> tuple[Array, float]:
    draw = rng_for(Cell("beyond", name, "", split, "linear", "paper"), "start").standard_normal(features + 1)
    return draw[1:], float(draw[0])

"""The computation of one cell: divide, scale, solve the whole grid, and score every row on every part.

The row of the grid is chosen later, from the record (:func:`reproduction.protocol.grid.choose`), so a new question
needs no new run.
"""

import contextlib
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV
from sklearn.svm import LinearSVC

from closecall._names import Array, lookup
from closecall.aggregates import get_aggregate
from closecall.objective import Problem
from closecall.theory import best_intercept
from reproduction.protocol import load_dataset
from reproduction.protocol.beyond import STUDIES, whole
from reproduction.protocol.dataset import PARTS, Dataset, Division
from reproduction.protocol.grid import ALPHAS, EQUAL_STARTS, ROW, choose, grid, k_grid, rows_of, score_linear
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


@lru_cache(maxsize=2)  # cells are sorted by cost, so a worker's next cell usually has the same data set
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
    return np.concatenate([rows, moved, sklearn_baselines(division)])


def sklearn_baselines(division: Division) -> Array:
    """Return the rows (of dtype ROW) of the three baselines; the loss is empty because each has a loss of its own.

    ``tuned_threshold`` applies TunedThresholdClassifierCV to the LogisticRegression that validation chooses, to measure
    the benefit of moving the threshold. If cross-validation is impossible (because a class has only one row or
    predictions are constant), that LogisticRegression itself is used.
    """
    makers: dict[str, Callable[[float], Any]] = {
        "logistic_regression": lambda alpha: LogisticRegression(C=1 / alpha, max_iter=1000),
        "linear_svc": lambda alpha: LinearSVC(C=1 / alpha, random_state=0),
    }
    X, y = division.X[0], division.y[0]
    # On small sets, scikit-learn's checks would take longer than fitting its models.
    with warnings.catch_warnings(), config_context(assume_finite=True, skip_parameter_validation=True):
        # With C = 1e5, the limit on steps is reached on separable data; a user would get the same model.
        warnings.simplefilter("ignore", ConvergenceWarning)
        logistic, svc = (
            _baseline_rows(method, ALPHAS, [make(alpha).fit(X, y) for alpha in ALPHAS], division)
            for method, make in makers.items()
        )
        alpha = float(choose(logistic, "sound")["alpha"][0])
        tuned = _tuned(makers["logistic_regression"](alpha), X, y)
        return np.concatenate([logistic, svc, _baseline_rows("tuned_threshold", [alpha], [tuned], division)])


def _tuned(model: Any, X: Array, y: Array) -> Any:
    folds = min(5, int((y > 0).sum()), int((y < 0).sum()))
    # This gives the same numbers as scoring="accuracy", but ten times faster, without the metric's checks.
    scorer = make_scorer(lambda truth, predicted: float((truth == predicted).mean()))
    if folds >= 2:
        with contextlib.suppress(ValueError):  # it rejects a model with constant predictions
            return TunedThresholdClassifierCV(model, scoring=scorer, cv=folds).fit(X, y)
    return model.fit(X, y)


def _baseline_rows(method: str, alphas: Sequence[float], models: list[Any], division: Division) -> Array:
    rows = np.zeros(len(models), ROW)
    rows["method"], rows["alpha"], rows["k"] = method, alphas, division.sizes[0]
    rows["objective"], rows["converged"] = np.nan, True
    for part, X, y in zip(PARTS, division.X, division.y, strict=True):
        rows[part] = [(model.predict(X) == y).sum() for model in models]
    return rows


def _network_rows(division: Division, cell: Cell) -> Array:
    """Train a network for each problem; with new starts, ``average`` has as many networks as ``close_decay``."""
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
    """Return a seed for each problem's start, drawn from its own stream; the n-th copy of a problem uses draw n."""
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

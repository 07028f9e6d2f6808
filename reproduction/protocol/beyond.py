"""Cells for the experiments of other papers: ranked ranges and exact 0-1 minima.

``ranges``: the linear models of Hu, Ying, Wang and Lyu use stratified splits, with half of the rows for training and a
quarter each for validation and testing. ``exact``: He and Little minimise the number of training errors. All rows of
the set are standardised and used for training, validation and testing, so the setting that is best in validation has
the fewest training errors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from closecall._names import Array
from closecall.aggregates import get_aggregate
from closecall.objective import Problem
from closecall.solvers import solve
from closecall.table.read.dataset import moments
from closecall.theory import minimum_errors
from reproduction.protocol.dataset import PARTS, Dataset, Division
from reproduction.protocol.grid import rows_of, score_linear

from .published import LOSSES

#: Ranked ranges: alphas, and counts as shares of the training rows; every method with counts has ten.
RANGE_ALPHAS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e1)
RANGE_KS = tuple(tenth / 10 for tenth in range(1, 11))
RANGE_MS = (0.01, 0.02, 0.05, 0.1, 0.2)
RANGE_COUNTS: dict[str, list[tuple[float | None, float | None]]] = {
    "average": [(None, None)],
    "maximal": [(None, None)],
    "atk": [(k, None) for k in RANGE_KS],
    "ranked_range": [(k, m) for k in (0.5, 1.0) for m in RANGE_MS],
    "close_decay": [(k, None) for k in RANGE_KS],
}
#: Exact minima: counts and alphas; the plain surrogates have scikit-learn's C = 1.
EXACT_KS = (0.05, 0.1, 0.2, 0.4, 0.7)
EXACT_MS = (0.02, 0.05, 0.1, 0.2)
EXACT_ALPHAS = (0.01, 1.0)
#: The proven bound for all classifiers, and the best classifier found; neither has a loss.
BOUND, EXACT = "proven_bound", "exact_minimum"
#: Time limit in seconds for the exact minimum of a set; both sets need about one second.
SECONDS = 60.0
Rows = Callable[[Division, int], Array]


@dataclass(frozen=True)
class Study:
    """A kind of cell for an experiment of another paper."""

    places: tuple[tuple[str, str], ...]  # every (loss, method) of its record
    rows: Rows  # (division, steps) -> rows of dtype ROW
    whole: bool = False  # whether each part consists of all rows of the set


def whole(data: Dataset) -> Division:
    """Standardise all rows, and return them as the training part, the validation part and the test part."""
    X, y = np.asarray(data.X, dtype=float), data.signs()
    mean, scale = moments(X)
    return Division(((X - mean) / scale,) * 3, (y,) * 3)


def _solved(division: Division, problems: list[Problem], steps: int, dtype: type) -> tuple[Array, Array]:
    """Return the scored rows and the slopes (problems, features); k is the selected mass."""
    found = solve(division.X[0], division.y[0], problems, max_iter=steps, dtype=dtype)
    n = division.sizes[0]
    rows = rows_of(problems)
    rows["k"] = [max(1, round(selected_mass(problem, n))) for problem in problems]
    score_linear(rows, found.coef, found.intercept, division)
    rows["objective"], rows["n_iter"], rows["converged"] = found.objective, found.n_iter, found.converged
    return rows, found.coef


def selected_mass(problem: Problem, n: int) -> float:
    """Return how many of the n examples a problem's aggregate uses.

    Examples
    --------
    >>> [selected_mass(Problem("logistic", name, 20, 1.0), 100) for name in ("average", "maximal", "close")]
    [100.0, 1.0, 20.0]
    """
    aggregate = get_aggregate(problem.aggregate)
    k, m = aggregate.counts(problem.k, problem.m, float(n))
    return k - m if aggregate.takes else float(aggregate.weights(np.arange(n, dtype=float), threshold=0.0).sum())


def _range_rows(division: Division, steps: int) -> Array:
    problems = [
        Problem(loss, method, k, alpha, m)
        for loss in LOSSES
        for method, counts in RANGE_COUNTS.items()
        for k, m in counts
        for alpha in RANGE_ALPHAS
    ]
    return _solved(division, problems, steps, np.float32)[0]


def _exact_problems() -> list[Problem]:
    counted = [
        Problem("logistic", name, k, alpha) for name in ("atk", "close", "close_decay") for k in EXACT_KS
        for alpha in EXACT_ALPHAS
    ]  # fmt: skip
    trimmed = [Problem("logistic", "trimmed", None, alpha, m) for m in EXACT_MS for alpha in EXACT_ALPHAS]
    return [*(Problem(loss, "average", None, 1.0) for loss in LOSSES), *counted, *trimmed]


def _exact_rows(division: Division, steps: int) -> Array:
    """Return every contender, the exact minimum (whose search starts from the best slopes), and the proven bound."""
    rows, coef = _solved(division, _exact_problems(), steps, np.float64)
    n = division.sizes[0]
    exact = minimum_errors(division.X[0], division.y[0], time_limit=SECONDS, start=coef[int(rows["train"].argmax())])
    ends = np.zeros(2, rows.dtype)
    ends["method"], ends["k"], ends["objective"] = [EXACT, BOUND], n, np.nan
    ends["converged"] = exact.lower_bound >= exact.errors
    for part in PARTS:
        ends[part] = [n - round(exact.errors), n - round(exact.lower_bound)]
    return np.concatenate([rows, ends])


#: Model of a cell -> its study.
STUDIES: dict[str, Study] = {
    "ranges": Study(tuple((loss, method) for loss in LOSSES for method in RANGE_COUNTS), _range_rows),
    "exact": Study(
        (*dict.fromkeys((each.loss, each.aggregate) for each in _exact_problems()), ("", EXACT), ("", BOUND)),
        _exact_rows, whole=True,
    ),
}  # fmt: skip

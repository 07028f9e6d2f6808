"""The exact minimum of the 0-1 loss over linear classifiers with an intercept."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg, sparse
from scipy.optimize import linprog

from closecall._names import Array, lookup
from closecall.objective import check_data

from .cones import least_outside
from .cover import lightest_cover
from .hemisphere import densest_hemisphere
from .intercept import best_intercept

#: Directions that differ by less count as parallel. The second value is for data whose degeneracies are less exact.
TOLERANCES = (1e-9, 1e-6)
#: ``auto`` enumerates up to two features if rows ** features is at most this: half a minute at about 150 ns each.
ENUMERATION_LIMIT = 2e8
#: ``auto`` enumerates any number of features up to this: a fraction of a second, for few rows with many equal values,
#: on which splitting cones takes long.
FEW = 2e6
#: ``auto`` splits cones up to this many features, and covers conflicts beyond.
CONES_LIMIT = 5


@dataclass(frozen=True)
class ZeroOneOptimum:
    """The smallest misclassified mass, or bounds on it.

    ``errors`` is the misclassified mass of the returned classifier (``coef`` (features,), ``intercept``), counted on
    the data, and thus an upper bound. No linear classifier misclassifies less than ``lower_bound``; ``proven`` states
    whether the two are equal. The method is ``enumeration``, ``cones`` or ``milp``.
    """

    errors: float
    lower_bound: float
    proven: bool
    coef: Array
    intercept: float
    method: str


def minimum_errors(
    X: Any, y: Any, mass: Any = None, *, method: str = "auto", time_limit: float = 60.0, start: Any = None
) -> ZeroOneOptimum:
    """Find the exact minimum of the 0-1 loss over linear classifiers; misclassified means ``y * (w . x + b) <= 0``.

    Classifiers that separate examples by a relative distance below about 1e-9 are not found; floating point could
    hardly evaluate them.

    Parameters
    ----------
    X : array or sparse matrix (samples, features)
    y : array (samples,) in {-1, +1}
    mass : array (samples,), optional
        Sample weights.
    method : {"auto", "enumeration", "cones", "milp"}
        ``enumeration`` takes rows ** features steps and proves its result. ``cones`` is a branch and bound over the
        classifiers and ``milp`` covers conflicts with HiGHS; both always provide a lower bound. The first suits few
        features and any number of errors, the second many features and few errors. ``auto`` enumerates if there are few
        rows or at most two features (those that depend on others do not count), splits cones up to five features and
        covers conflicts beyond.
    time_limit : float
        Seconds for ``cones`` and ``milp``; the last step may exceed them. Enumeration has no limit.
    start : array (features,), optional
        Slopes of a classifier to start from, such as the ``coef_`` of a close-k model; a good start saves time.

    Examples
    --------
    >>> best = minimum_errors([[-2.0], [-1.0], [0.0], [1.0], [2.0]], [-1, 1, -1, 1, 1])
    >>> best.errors, best.lower_bound, best.proven, best.method
    (1.0, 1.0, True, 'enumeration')
    """
    X, y, mass = check_data(X, y, mass)
    if method != "auto":
        lookup(_METHODS, method, "method")
    if not time_limit > 0:
        raise ValueError(f"time_limit={time_limit!r} must be a positive number of seconds")
    task = _reduce(np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float), y, mass)
    if method == "auto":
        method = _choose(task)
    first = _start(task)
    if start is not None:
        first = min(first, _judge(task, _check_start(start, task.X.shape[1])), key=lambda found: found.errors)
    found, cost = _METHODS[method](task, first, time_limit)
    lower_bound = task.unavoidable + cost
    proven = found.errors <= lower_bound + 1e-9 * float(mass.sum())
    lower_bound = found.errors if proven else lower_bound
    return ZeroOneOptimum(found.errors, lower_bound, proven, found.coef, found.intercept, method)


def _choose(task: _Task) -> str:
    features = len(task.columns)
    if float(len(task.weights)) ** features <= (ENUMERATION_LIMIT if features <= 2 else FEW):
        return "enumeration"
    return "cones" if features <= CONES_LIMIT else "milp"


def _check_start(start: Any, features: int) -> Array:
    start = np.asarray(start, dtype=float).ravel()
    if start.shape != (features,) or not np.isfinite(start).all():
        raise ValueError(f"start must be {features} finite slopes, one for each feature, not of shape {start.shape}")
    return start


@dataclass(frozen=True)
class _Task:
    """A problem reduced to distinct rows and independent columns.

    ``vectors`` (rows, columns + 1) are the distinct rows with their label, z = y * (x, 1), on scaled independent
    columns. A row costs ``weights`` (rows,) beyond ``unavoidable``, the mass that equal rows of opposite labels cost
    any classifier.
    """

    X: Array
    y: Array
    mass: Array
    columns: Array
    scales: Array
    vectors: Array
    weights: Array
    unavoidable: float


@dataclass(frozen=True)
class _Found:
    errors: float
    coef: Array
    intercept: float


def _reduce(X: Array, y: Array, mass: Array) -> _Task:
    kept = mass > 0
    rows = X[kept]
    with np.errstate(over="ignore"):
        lows, spreads = rows.min(axis=0), np.ptp(rows, axis=0)
        total_mass = 4 * mass.sum()
    # Coefficients are divided by the spread: one next to the smallest float would make them infinite.
    far = np.abs(lows) > np.finfo(float).max / 4
    if far.any() or not (np.isfinite(spreads) & ((spreads == 0) | (spreads > 1e-290))).all():
        raise ValueError("a column of X spans more than the float range, or almost nothing; rescale it first")
    if not np.isfinite(total_mass):
        raise ValueError("the masses sum to more than the float range; rescale them")
    # Powers of two scale without rounding: whole numbers stay exact.
    scales = np.ldexp(1.0, np.frexp(np.where(spreads > 0, spreads, 1.0))[1] - 1)
    rows = (rows - lows) / scales + 0.0
    columns = _independent(rows)
    distinct, which = np.unique(rows[:, columns], axis=0, return_inverse=True)
    total = np.bincount(which.ravel(), mass[kept])
    net = np.bincount(which.ravel(), (mass * y)[kept])
    net = np.where(np.abs(net) > 1e-12 * total, net, 0.0)
    lifted = np.hstack([distinct, np.ones((len(distinct), 1))]) * np.sign(net)[:, None]
    decided = net != 0
    unavoidable = float((total - np.abs(net)).sum() / 2)
    return _Task(X, y, mass, columns, scales[columns], lifted[decided], np.abs(net[decided]), unavoidable)


def _independent(rows: Array) -> Array:
    """Return columns of which all others are affine functions; they suffice for all linear classifiers."""
    if rows.shape[1] == 0:
        return np.arange(0)
    triangle, order = linalg.qr(rows - rows.mean(axis=0), mode="r", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    return np.sort(order[: int((sizes > TOLERANCES[0] * max(1.0, sizes.max())).sum())])


def _evaluate(task: _Task, slopes: Array) -> _Found:
    """Return the classifier with these coefficients on the scaled columns, its best intercept and its errors."""
    coef = np.zeros(task.X.shape[1])
    coef[task.columns] = slopes / task.scales
    return _judge(task, coef)


def _judge(task: _Task, coef: Array) -> _Found:
    """Return the classifier with these coefficients, its best intercept and its errors on the data."""
    # Well above the rounding error of the scores: the errors must not depend on the last bits.
    resolution = 1e-12 * float(np.abs(task.X).max(axis=0) @ np.abs(coef))
    intercept, errors = best_intercept(task.X @ coef, task.y, task.mass, resolution=resolution)
    return _Found(errors, coef, intercept)


def _separate(vectors: Array) -> Array:
    """Return the slopes with the smallest maximum norm and ``theta . z >= 1`` for all vectors, or zeros."""
    samples, dimensions = vectors.shape
    # The variables are theta and the size of its largest coefficient; the intercept, its last entry, is not bounded.
    slopes = np.eye(dimensions + 1)[: dimensions - 1]
    size = np.eye(dimensions + 1)[-1]
    right = np.hstack([-vectors, np.zeros((samples, 1))])
    limits = np.append(-np.ones(samples), np.zeros(2 * len(slopes)))
    bounds = [(None, None)] * dimensions + [(0, None)]
    result = linprog(size, A_ub=np.vstack([right, slopes - size, -slopes - size]), b_ub=limits, bounds=bounds)
    return result.x[:-2] if result.status == 0 else np.zeros(dimensions - 1)


def _start(task: _Task) -> _Found:
    """Return a first classifier: least squares with its best intercept."""
    roots = np.sqrt(task.mass)
    rows = np.hstack([task.X[:, task.columns] / task.scales, np.ones((len(task.y), 1))])
    return _evaluate(task, np.linalg.lstsq(rows * roots[:, None], task.y * roots)[0][:-1])


def _enumerate(task: _Task, best: _Found, time_limit: float) -> tuple[_Found, float]:
    bound = 0.0
    for tolerance in TOLERANCES if task.weights.size else ():
        cost, inside = densest_hemisphere(task.vectors, task.weights, tolerance)
        bound = cost if tolerance == TOLERANCES[0] else bound
        best = min(best, _evaluate(task, _separate(task.vectors[inside])), key=lambda found: found.errors)
        # Rounding may make degenerate rows look separable: try again with more tolerance, and keep the bound.
        if best.errors <= task.unavoidable + cost + 1e-9 * float(task.mass.sum()):
            break
    return best, bound


class _Keeper:
    """Keeps the best of the classifiers that are right on given sets of rows."""

    def __init__(self, task: _Task, best: _Found) -> None:
        self.task, self.best = task, best

    def __call__(self, inside: Array) -> float:
        """Return the lowest cost so far, after trying a classifier that is right on these rows, if there is one."""
        found = _evaluate(self.task, _separate(self.task.vectors[inside]))
        self.best = min(self.best, found, key=lambda found: found.errors)
        return self.best.errors - self.task.unavoidable


def _split_cones(task: _Task, best: _Found, time_limit: float) -> tuple[_Found, float]:
    keeper = _Keeper(task, best)
    if not task.weights.size:
        return best, 0.0
    known = keeper(np.ones(len(task.weights), dtype=bool))  # separable data need no search
    slopes = keeper.best.coef[task.columns] * task.scales
    bound = least_outside(task.vectors, task.weights, best=known, time_limit=time_limit, accept=keeper, slopes=slopes)
    return keeper.best, bound


def _cover(task: _Task, best: _Found, time_limit: float) -> tuple[_Found, float]:
    keeper = _Keeper(task, best)
    bound = lightest_cover(task.vectors, task.weights, time_limit=time_limit, accept=keeper)
    return keeper.best, bound


_METHODS: dict[str, Callable[[_Task, _Found, float], tuple[_Found, float]]] = {
    "enumeration": _enumerate,
    "cones": _split_cones,
    "milp": _cover,
}

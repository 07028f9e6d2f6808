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

#: Directions that differ by less than this are parallel. The second value is for data with less exact degeneracies.
TOLERANCES = (1e-9, 1e-6)
#: ``auto`` enumerates up to two features if rows ** features is at most this: half a minute at about 150 ns each.
ENUMERATION_LIMIT = 2e8
#: ``auto`` enumerates any number of features up to this limit, which takes a fraction of a second. Splitting cones
#: would take long for few rows with many equal values.
FEW = 2e6
#: ``auto`` splits cones up to this many features; for more, it covers conflicts.
CONES_LIMIT = 5


@dataclass(frozen=True)
class ZeroOneOptimum:
    """The smallest mass that a linear classifier can misclassify, or bounds on it.

    ``errors`` is the mass misclassified by the classifier found with ``method``; ``coef`` has shape (features,). No
    linear classifier misclassifies less than ``lower_bound``; ``proven`` states whether the two are equal.
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
    """Return the smallest mass that a linear classifier can misclassify, that is, with ``y * (w . x + b) <= 0``.

    Classifiers whose relative distance from some examples is below about 1e-9 are not found.

    Parameters
    ----------
    X : array or sparse matrix (samples, features)
    y : array (samples,) in {-1, +1}
    mass : array (samples,), optional
        Sample weights.
    method : {"auto", "enumeration", "cones", "milp"}
        ``enumeration`` takes rows ** features steps and always proves its result. ``cones`` (branch and bound) is
        suited to few features and any number of errors. ``milp``, an integer program for HiGHS, is suited to many
        features and few errors. Both always provide a lower bound. ``auto`` uses ``enumeration`` if there are few rows
        or at most two features, ``cones`` for up to five features (not counting linear combinations of others), and
        otherwise ``milp``.
    time_limit : float
        The time limit of ``cones`` and ``milp`` in seconds, which the last step may exceed.
    start : array (features,), optional
        The slopes of a classifier to start from, such as the ``coef_`` of a close-k model. A good start saves time.

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
    search = _ZeroOneSearch(np.asarray(X.toarray() if sparse.issparse(X) else X, dtype=float), y, mass)
    rows, features = search.vectors.shape[0], len(search.columns)
    if method == "auto" and float(rows) ** features <= (ENUMERATION_LIMIT if features <= 2 else FEW):
        method = "enumeration"
    elif method == "auto":
        method = "cones" if features <= CONES_LIMIT else "milp"
    search.evaluate(search.least_squares())
    if start is not None:
        start = np.asarray(start, dtype=float).ravel()
        if start.shape != (features := search.X.shape[1],) or not np.isfinite(start).all():
            raise ValueError(
                f"start must be finite and have shape ({features},), one slope for each feature; "
                f"it has shape {start.shape}"
            )
        search.judge(start)
    lower_bound = search.unavoidable + (_METHODS[method](search, time_limit) if rows else 0.0)
    proven = search.errors <= lower_bound + 1e-9 * float(mass.sum())
    lower_bound = search.errors if proven else lower_bound
    return ZeroOneOptimum(search.errors, lower_bound, proven, search.coef, search.intercept, method)


class _ZeroOneSearch:
    """A problem reduced to distinct rows and independent columns, and the best classifier so far.

    ``vectors`` (rows, columns + 1) are the distinct rows with their label, z = y * (x, 1), on scaled independent
    columns. ``unavoidable`` is the mass that every classifier misclassifies because identical rows have opposite
    labels. ``weights`` (rows,) are the additional costs of misclassifying the distinct rows.
    """

    def __init__(self, X: Array, y: Array, mass: Array) -> None:
        self.X, self.y, self.mass, self.errors = X, y, mass, np.inf
        kept = mass > 0
        rows = X[kept]
        with np.errstate(over="ignore"):
            lows, spreads = rows.min(axis=0), np.ptp(rows, axis=0)
            total_mass = 4 * mass.sum()
        # Coefficients are divided by the spread: a spread next to the smallest float would make them infinite.
        huge = np.abs(lows) > np.finfo(float).max / 4
        if huge.any() or not (np.isfinite(spreads) & ((spreads == 0) | (spreads > 1e-290))).all():
            raise ValueError("a column of X spans more than the float range, or is almost constant; rescale it first")
        if not np.isfinite(total_mass):
            raise ValueError("the sum of the masses exceeds the float range; rescale them")
        # Powers of two scale without rounding: whole numbers stay exact.
        scales = np.ldexp(1.0, np.frexp(np.where(spreads > 0, spreads, 1.0))[1] - 1)
        rows = (rows - lows) / scales + 0.0
        self.columns = _independent(rows)
        self.scales = scales[self.columns]
        distinct, which = np.unique(rows[:, self.columns], axis=0, return_inverse=True)
        total = np.bincount(which.ravel(), mass[kept])
        net = np.bincount(which.ravel(), (mass * y)[kept])
        net = np.where(np.abs(net) > 1e-12 * total, net, 0.0)
        lifted = np.hstack([distinct, np.ones((len(distinct), 1))]) * np.sign(net)[:, None]
        self.vectors, self.weights = lifted[net != 0], np.abs(net[net != 0])
        self.unavoidable = float((total - np.abs(net)).sum() / 2)

    def least_squares(self) -> Array:
        """Return the least-squares slopes for the scaled columns, which are the first classifier to try."""
        roots = np.sqrt(self.mass)
        rows = np.hstack([self.X[:, self.columns] / self.scales, np.ones((len(self.y), 1))])
        return np.linalg.lstsq(rows * roots[:, None], self.y * roots)[0][:-1]

    def judge(self, coef: Array) -> None:
        """Try a classifier with these coefficients and their best intercept."""
        # Well above the rounding error of the scores: the errors must not depend on the last bits.
        resolution = 1e-12 * float(np.abs(self.X).max(axis=0) @ np.abs(coef))
        intercept, errors = best_intercept(self.X @ coef, self.y, self.mass, resolution=resolution)
        if errors < self.errors:
            self.errors, self.coef, self.intercept = errors, coef, intercept

    def evaluate(self, slopes: Array) -> None:
        """Try a classifier with these coefficients for the scaled columns."""
        coef = np.zeros(self.X.shape[1])
        coef[self.columns] = slopes / self.scales
        self.judge(coef)

    def accept(self, inside: Array) -> float:
        """Try a classifier that is correct on these rows, if there is one, and return the lowest cost so far."""
        self.evaluate(_separate(self.vectors[inside]))
        return self.errors - self.unavoidable


def _independent(rows: Array) -> Array:
    """Return a subset of columns that suffices for all linear classifiers: the others are affine functions of it."""
    if rows.shape[1] == 0:
        return np.arange(0)
    triangle, order = linalg.qr(rows - rows.mean(axis=0), mode="r", pivoting=True)
    sizes = np.abs(np.diag(triangle))
    return np.sort(order[: int((sizes > TOLERANCES[0] * max(1.0, sizes.max())).sum())])


def _separate(vectors: Array) -> Array:
    """Return the slopes with the smallest maximum norm for which all ``theta . z >= 1``, or zeros if none exist."""
    samples, dimensions = vectors.shape
    # The variables are theta and the size of its largest coefficient; the intercept, its last entry, is not bounded.
    slopes = np.eye(dimensions + 1)[: dimensions - 1]
    size = np.eye(dimensions + 1)[-1]
    right = np.hstack([-vectors, np.zeros((samples, 1))])
    limits = np.append(-np.ones(samples), np.zeros(2 * len(slopes)))
    bounds = [(None, None)] * dimensions + [(0, None)]
    result = linprog(size, A_ub=np.vstack([right, slopes - size, -slopes - size]), b_ub=limits, bounds=bounds)
    return result.x[:-2] if result.status == 0 else np.zeros(dimensions - 1)


def _enumerate(search: _ZeroOneSearch, time_limit: float) -> float:
    bound = 0.0
    for tolerance in TOLERANCES:
        cost, inside = densest_hemisphere(search.vectors, search.weights, tolerance)
        bound = cost if tolerance == TOLERANCES[0] else bound
        search.accept(inside)
        # Rounding may make degenerate rows look separable: try again with more tolerance, and keep the bound.
        if search.errors <= search.unavoidable + cost + 1e-9 * float(search.mass.sum()):
            break
    return bound


def _split_cones(search: _ZeroOneSearch, time_limit: float) -> float:
    known = search.accept(np.ones(len(search.weights), dtype=bool))  # separable data need no search
    slopes = search.coef[search.columns] * search.scales
    return least_outside(
        search.vectors, search.weights, best=known, time_limit=time_limit, accept=search.accept, slopes=slopes
    )


_METHODS: dict[str, Callable[[_ZeroOneSearch, float], float]] = {
    "enumeration": _enumerate,
    "cones": _split_cones,
    "milp": lambda search, limit: lightest_cover(
        search.vectors, search.weights, time_limit=limit, accept=search.accept
    ),
}

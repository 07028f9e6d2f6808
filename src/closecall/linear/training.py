"""The training set in a canonical order, so that the same data always give exactly the same model.

The order of summation changes the last digits of a sum, and a selection of examples can turn such a difference into a
different model. Rows are therefore sorted by a hash of their values, and equal rows are merged into one row with their
total mass. Which class is positive depends on the data, not on the names of the classes. The result therefore does not
depend on the order of the rows, on the use of weights instead of copies, or on the coding of the labels.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from .._names import Array
from ..aggregates import check_mass

#: Features and weights must be below this, and positive weights above its inverse: the solver squares and sums them.
LARGEST = 1e100
#: A hash treats values below this share of their column's largest value as zero: centring leaves such rounding errors.
NEGLIGIBLE = 1e-12


@dataclass(frozen=True)
class Training:
    """A checked training set, with only the rows that have positive mass.

    All fields except ``classes`` have one entry per row: ``codes`` are positions in ``classes``, ``hashes`` come from
    :func:`row_hashes`, and ``rows`` are the positions in the given X. The ``mass`` is the weight in training, which is
    the sample weight times the class weight. The ``weight``, used in scoring, is the sample weight alone.
    """

    X: Any
    codes: Array
    mass: Array
    classes: Array
    hashes: Array
    rows: Array
    weight: Array = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        if self.weight is None:
            object.__setattr__(self, "weight", self.mass)

    def take(self, rows: Array) -> Training:
        fields = vars(self).items()
        return Training(**{name: part if name == "classes" else part[rows] for name, part in fields})


def check_training(estimator: Any, X: Any, y: Any, sample_weight: Any, class_weight: Any) -> Training:
    """Validate the arguments of ``fit``."""
    with np.errstate(over="ignore", invalid="ignore"):  # the sum that detects NaN may overflow
        X, y = validate_data(estimator, X, y, accept_sparse="csr", dtype=[np.float64, np.float32], estimator=estimator)
    check_classification_targets(y)
    y = np.asarray(y).ravel()
    mass = np.ones(len(y)) if sample_weight is None else check_mass(sample_weight, len(y))
    rows = np.flatnonzero(mass > 0)
    if rows.size < len(y):
        X, y, mass = X[rows], y[rows], mass[rows]
    classes, codes = np.unique(y, return_inverse=True)
    if len(classes) < 2:
        raise ValueError(
            f"y contains only one class ({classes[0]!r}); a classifier needs at least two classes with positive weight"
        )
    factors = class_factors(class_weight, classes, codes, mass)
    if not (factors > 0).all():
        raise ValueError("class_weight gives a class the weight 0; drop its rows, or give it a positive weight")
    weight, mass = mass, mass * factors[codes]
    sizes = column_sizes(X)
    if sizes.max() > LARGEST:
        raise ValueError(
            f"X contains values up to {sizes.max():.1e}; scale the features (StandardScaler) to below {LARGEST:g}"
        )
    if mass.max() > LARGEST or mass.min() < 1 / LARGEST:
        raise ValueError(
            f"sample_weight (times class_weight) is outside {1 / LARGEST:g} .. {LARGEST:g}; rescale the weights"
        )
    if sizes.max() > 1e15 and X.dtype == np.float32:  # sums of squares would overflow
        X = X.astype(np.float64)
    return Training(X, codes, mass, classes, row_hashes(X, NEGLIGIBLE * sizes), rows, weight)


def column_sizes(X: Any) -> Array:
    """Return the largest absolute value of each column (features,)."""
    if sparse.issparse(X):
        return np.asarray(abs(X).max(axis=0).toarray(), dtype=np.float64).ravel()
    return np.maximum(X.max(axis=0), -X.min(axis=0)).astype(np.float64)


def class_factors(class_weight: Any, classes: Array, codes: Array, mass: Array) -> Array:
    """Return the factor of each class (classes,): 1, its value in a dict, or the ``balanced`` factor based on mass.

    Examples
    --------
    >>> class_factors("balanced", np.array(["a", "b"]), np.array([0, 0, 0, 1]), np.ones(4)).tolist()
    [0.6666666666666666, 2.0]
    """
    if class_weight is None:
        return np.ones(len(classes))
    if isinstance(class_weight, str) and class_weight == "balanced":
        return mass.sum() / (len(classes) * np.bincount(codes, mass, minlength=len(classes)))
    if not hasattr(class_weight, "get"):
        raise ValueError(f"class_weight={class_weight!r} must be 'balanced', a dict of class -> weight, or None")
    names = classes.tolist()
    unknown = [name for name in class_weight if name not in names]
    if unknown:
        raise ValueError(f"class_weight names classes that y does not contain: {unknown}; y has {names[:10]}")
    factors = np.array([float(class_weight.get(name, 1.0)) for name in names])
    if not np.isfinite(factors).all() or (factors < 0).any():
        raise ValueError(f"class_weight must be finite and >= 0, not {dict(class_weight)}")
    return factors


def row_hashes(X: Any, least: Array | None = None) -> Array:
    """Return a 64-bit hash of every row (samples,) that is the same for dense and sparse data, float32 and float64.

    Values are first rounded to float32, and absolute values up to ``least`` (features,) in a column count as zero,
    because the last bits of a scaled table depend on the processor and must not affect the order.

    Examples
    --------
    >>> X = np.array([[0.1, 1.0], [0.3 - 0.2, 1.0], [0.1, 1e-17], [0.1, 0.0]])
    >>> first, second, third, fourth = row_hashes(X, np.full(2, 1e-12))
    >>> bool(first == second), bool(third == fourth), bool(first == third)
    (True, True, False)
    """
    odd = np.random.default_rng(0).integers(1, 1 << 62, X.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashes = np.zeros(X.shape[0], dtype=np.uint64)
    least = np.zeros(X.shape[1]) if least is None else least
    if sparse.issparse(X):
        words = _mixed(X.data, least[X.indices]) * odd[X.indices]
        running = np.concatenate([[np.uint64(0)], np.cumsum(words, dtype=np.uint64)])
        hashes = running[X.indptr[1:]] - running[X.indptr[:-1]]
    else:
        for rows in row_blocks(X):
            hashes[rows] = _mixed(X[rows], least) @ odd
    return hashes ^ (hashes >> np.uint64(29))


def row_blocks(X: Any) -> list[slice]:
    """Return consecutive blocks of rows with about 65,536 entries, which fit in the cache."""
    size = max(1, (1 << 16) // max(1, X.shape[1]))
    return [slice(begin, begin + size) for begin in range(0, X.shape[0], size)]


def _mixed(values: Array, least: Array) -> Array:
    with np.errstate(over="ignore"):  # values beyond float32 have the same hash
        values = values.astype(np.float32).astype(np.float64, order="C")
    values[np.abs(values) <= least] = 0.0  # -0.0 as well: the bits of 0.0 are all 0, as for zeros that are not stored
    words = values.view(np.uint64)
    words ^= words >> np.uint64(32)
    return words


@dataclass(frozen=True)
class Arranged:
    """A training set in canonical order; rows of the same group belong to the same folds."""

    X: Any
    labels: Array
    mass: Array
    group: Array
    hashes: Array

    def take(self, rows: Array) -> Arranged:
        return Arranged(*(part[rows] for part in vars(self).values()))


def arrange(training: Training, labels: Array, group: Array | None = None) -> Arranged:
    """Sort the rows and merge those with equal (x, label, group) into one row with their total mass.

    If all masses are then whole numbers and few of them exceed 1, rows are repeated instead, which is faster. Tables of
    80,000 rows or more are exempt, because the solver draws a sample of their rows, which must not depend on the order
    of the rows.

    Examples
    --------
    >>> X = np.array([[1.0], [2.0], [1.0], [3.0]])
    >>> codes = np.array([0, 1, 0, 1])
    >>> training = Training(X, codes, np.array([1.0, 0.5, 2.5, 1.0]), np.arange(2), row_hashes(X), np.arange(4))
    >>> found = arrange(training, codes)
    >>> sorted(zip(found.X.ravel().tolist(), found.labels.tolist(), found.mass.tolist()))
    [(1.0, 0, 3.5), (2.0, 1, 0.5), (3.0, 1, 1.0)]
    """
    group = np.zeros(len(labels), dtype=int) if group is None else group
    order = np.argsort(training.hashes)
    if (training.mass == 1).all() and (np.diff(training.hashes[order]) != 0).all():
        return Arranged(_taken(training.X, order), labels[order], training.mass, group[order], training.hashes[order])
    # Equal rows are summed from the smallest mass up, which fixes the rounding of the sum.
    order = np.lexsort((training.mass, group, labels, training.hashes))
    hashes, labels, group, mass = training.hashes[order], labels[order], group[order], training.mass[order]
    same = (hashes[1:] == hashes[:-1]) & (labels[1:] == labels[:-1]) & (group[1:] == group[:-1])
    twins = np.flatnonzero(same)
    if twins.size:  # rows with equal hashes may still differ
        unequal = training.X[order[twins]] != training.X[order[twins + 1]]
        same[twins] = np.diff(unequal.indptr) == 0 if sparse.issparse(unequal) else ~unequal.any(axis=1)
    chosen = np.flatnonzero(np.append(True, ~same))
    mass = np.add.reduceat(mass, chosen)
    if len(chosen) < 80_000 and mass.sum() <= 2 * len(chosen) and (mass == np.rint(mass)).all():
        chosen = np.repeat(chosen, mass.astype(int))
        mass = np.ones(len(chosen))
    return Arranged(_taken(training.X, order[chosen]), labels[chosen], mass, group[chosen], hashes[chosen])


def _taken(X: Any, rows: Array) -> Any:
    return X[rows] if sparse.issparse(X) else X.take(rows, axis=0)  # four times as fast as indexing


def orientation(training: Training, positive: Array) -> int:
    """Return +1 if the rows ``positive`` (samples,) have the larger total mass, otherwise -1; hashes break ties."""
    mass = training.mass
    sides = [math.fsum(mass[positive]), math.fsum(mass[~positive])]
    if sides[0] == sides[1]:
        parts = training.hashes.astype(np.float64) * 2.0**-64 * mass
        sides = [math.fsum(parts[positive]), math.fsum(parts[~positive])]
    return 1 if sides[0] >= sides[1] else -1

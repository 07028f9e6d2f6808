"""Values and gradients of the training objective for a batch of problems.

A *problem* consists of a loss, an aggregate, k and alpha. Its training objective is the **sum** of the weighted losses
plus ``alpha / 2 * ||w||^2``. Alpha therefore has the same meaning for every aggregate, and ``average`` with the
logistic loss is equivalent to scikit-learn's LogisticRegression with ``C = 1 / alpha``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from scipy import sparse

from ._names import Array
from .aggregates import Aggregate, Count, check_mass, get_aggregate
from .losses import Loss, get_loss
from .schedules import Schedule, constant, decay


@dataclass(frozen=True)
class Problem:
    """A problem to be solved: a loss, an aggregate, k, alpha and m.

    Parameters
    ----------
    loss, aggregate : str
        Names in :data:`closecall.losses.LOSSES` and :data:`closecall.aggregates.AGGREGATES`.
    k : int, float or None
        How many examples the aggregate uses: a number, a fraction in (0, 1], or None for all of them.
    alpha : float
        The strength of the L2 penalty, which is at least 0.
    m : int, float or None
        How many of the largest losses ``ranked_range`` and ``trimmed`` leave out.

    Examples
    --------
    >>> Problem("hinge", "close_decay", k=10, alpha=0.1)
    Problem(loss='hinge', aggregate='close_decay', k=10, alpha=0.1, m=None)
    """

    loss: str = "logistic"
    aggregate: str = "average"
    k: Count = None
    alpha: float = 1.0
    m: Count = None

    def __post_init__(self) -> None:
        get_loss(self.loss)
        get_aggregate(self.aggregate)
        if not isinstance(self.alpha, Real) or not math.isfinite(self.alpha) or self.alpha < 0:
            raise ValueError(f"alpha={self.alpha!r} must be a finite number >= 0")

    def resolve(self, total: float, steps: int) -> tuple[Loss, Aggregate, Schedule, float]:
        """Return the loss, the aggregate, the schedule of k over ``steps`` steps, and m as a mass."""
        loss, aggregate = get_loss(self.loss), get_aggregate(self.aggregate)
        k, m = aggregate.counts(self.k, self.m, total)
        return loss, aggregate, decay(k, total, steps) if aggregate.decays else constant(k), m


def check_data(X: Any, y: Any, sample_weight: Any = None) -> tuple[Any, Array, Array]:
    """Return ``X`` (dense or CSR), the labels in {-1, +1} and the masses; invalid input raises ``ValueError``."""
    if sparse.issparse(X):
        X = sparse.csr_matrix(X) if X.format != "csr" else X
        values = X.data
    else:
        values = X = np.asarray(X)
    if X.ndim != 2:
        raise ValueError(f"X must be two-dimensional (samples, features), but has shape {X.shape}")
    if X.shape[0] == 0:
        raise ValueError("X has no rows")
    if values.dtype.kind not in "fiub":
        raise ValueError(f"X has dtype {values.dtype}; encode it as numbers first")
    if values.dtype.kind == "f" and not _all_finite(values):
        raise ValueError("X contains NaN or infinite values; impute or drop them first")
    y = np.asarray(y)
    if y.shape != (X.shape[0],):
        raise ValueError(f"y has shape {y.shape}; expected ({X.shape[0]},), one label for each row of X")
    labels = np.unique(y)
    if labels.size == 1:
        raise ValueError(f"y contains only one class ({labels[0]!r}); a classifier needs two")
    if not np.array_equal(labels, [-1, 1]):
        shown = ", ".join(repr(label) for label in labels[:5].tolist())
        raise ValueError(f"labels must be -1 and +1, but y contains {shown}{' ...' if labels.size > 5 else ''}")
    mass = np.ones(X.shape[0]) if sample_weight is None else check_mass(sample_weight, X.shape[0])
    return X, y.astype(np.float64, copy=False), mass


def _all_finite(values: Array) -> bool:
    # If the sum is finite, so is every entry, and no mask of the size of X is needed. If it overflows, all are checked.
    with np.errstate(over="ignore", invalid="ignore"):
        return bool(np.isfinite(values.sum(dtype=np.float64)) or np.isfinite(values).all())


def aggregate_value(
    problem: Problem,
    margins: Array,
    *,
    mass: Array | None = None,
    constant: float | None = None,
    k: float | None = None,
) -> float:
    """Return the aggregate loss for a vector of margins, including the paper's constant M for ``close``.

    The value of ``close`` is sum(s * l) + M * sum((c - s) * [m <= 0]) with weights s and masses c. This is the paper's
    close-k loss: an example outside the close set costs M if it is misclassified, and nothing otherwise.

    Margins and masses have shape (samples,), and the problem's alpha is ignored. ``constant`` is M (0 by default),
    which should be at least the largest loss that can occur for any of the models being compared. ``k`` is a mass that
    replaces the problem's k.

    Examples
    --------
    >>> problem = Problem("hinge", "close", k=1)
    >>> aggregate_value(problem, np.array([-2.0, 0.5, 3.0]), constant=100.0)
    100.5
    """
    margins = np.asarray(margins, dtype=float)
    if margins.ndim != 1 or margins.size == 0:
        raise ValueError(f"margins must be a non-empty vector (samples,), but have shape {margins.shape}")
    if not np.isfinite(margins).all():
        raise ValueError("the margins contain NaN or infinite values; check the scores that produced them")
    mass = np.ones(margins.size) if mass is None else check_mass(mass, margins.size)
    value, weights = _weigh(problem, margins, mass, k)
    if constant is not None and get_aggregate(problem.aggregate).close:
        value += constant * float(((mass - weights) * (margins <= 0)).sum())
    return value


def _weigh(problem: Problem, margins: Array, mass: Array, k: float | None) -> tuple[float, Array]:
    """Return the aggregate loss for margins (samples,) without the constant M, and the weights of the losses."""
    loss, aggregate, k_at, m = problem.resolve(float(mass.sum()), 1)
    losses, k = loss.value(margins), k_at(1) if k is None else k
    weights = aggregate.weigh(losses[None], mass, loss.threshold, np.asarray(k), np.asarray(m))[0]
    used = weights > 0  # an infinite loss of weight zero does not count; 0 * inf would be NaN
    return float(weights[used] @ losses[used]) + float(aggregate.above(weights[None], mass)[0]), weights


def values_and_gradients(
    problems: Sequence[Problem],
    coef: Array,
    intercept: Array,
    X: Any,
    y: Array,
    *,
    mass: Array | None = None,
    k: Sequence[float] | None = None,
    penalize_intercept: bool = False,
) -> tuple[Array, Array, Array]:
    """Return the objective values and gradients of a batch of problems.

    The values (problems,) are the sums of the weighted losses plus alpha / 2 * ||w||^2, without the constant M. The
    gradients have the same shapes as ``coef`` (problems, features) and ``intercept`` (problems,).

    ``X`` is an array or a CSR matrix (samples, features), ``y`` (samples,) is in {-1, +1}, and ``mass`` (samples,)
    contains sample weights. For a step of a decay run, ``k`` contains a mass for each problem, which replaces the
    problem's own k. With ``penalize_intercept``, alpha penalises the intercept as well as the weights.

    Examples
    --------
    >>> X, y = np.array([[-1.0], [2.0]]), np.array([-1.0, 1.0])
    >>> values, gradients, _ = values_and_gradients([Problem("hinge")], np.zeros((1, 1)), np.zeros(1), X, y)
    >>> values.tolist(), gradients.tolist()
    ([2.0], [[-3.0]])
    """
    mass = np.ones(len(y)) if mass is None else check_mass(mass, len(y))
    margins = y * (np.asarray((X @ coef.T).T) + intercept[:, None])
    values, pull = np.empty(len(problems)), np.empty_like(margins)
    for row, problem in enumerate(problems):
        values[row], weights = _weigh(problem, margins[row], mass, None if k is None else k[row])
        pull[row] = weights * np.where(weights > 0, get_loss(problem.loss).slope(margins[row]), 0) * y
    alphas = np.array([problem.alpha for problem in problems])
    values += alphas / 2 * ((coef**2).sum(axis=1) + penalize_intercept * intercept**2)
    coef_gradients = np.asarray((X.T @ pull.T).T) + alphas[:, None] * coef
    intercept_gradients = pull.sum(axis=1) + penalize_intercept * alphas * intercept
    return values, coef_gradients, intercept_gradients

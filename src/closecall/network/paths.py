"""The training tasks of a grid: checked examples without duplicates, and the paths of the networks.

A path is everything that determines the steps of a network. Problems with the same path are trained only once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import check_mass, get_aggregate
from ..objective import Problem, check_data
from ..schedules import decay, first_final_step, last_convex_step

BETAS, EPSILON = (0.9, 0.999), 1e-8  # Adam's usual constants
#: Aggregates that equal the average if they select everything, keyed by function, because users may register new names.
_ALL_IS_AVERAGE = {get_aggregate(name).weigh for name in ("atk", "close")}


@dataclass(frozen=True)
class Data:
    """Distinct examples.

    Rows have shape (samples, features). Targets (samples,) are signs as floats, or class numbers. Masses (samples,) are
    float64, or None if all of them are one. There is one output if targets are signs, otherwise one for each class.
    """

    rows: Array
    targets: Array
    mass: Array | None
    total: float
    outputs: int


def prepare(X: Any, y: Any, sample_weight: Any, classes: int | None, dtype: Any) -> Data:
    """Check and convert examples, merge identical (x, y) rows by adding their masses, and sort the rows.

    A matrix product may return slightly different scores for identical rows, which would break ties. After merging
    and sorting, the result depends neither on the order of the rows nor on whether rows are repeated or weighted.
    """
    X, y, dtype = np.asarray(X, dtype=np.float64), np.asarray(y), np.dtype(dtype)
    if classes is None:
        X, y, mass = check_data(X, y, sample_weight)
    else:
        mass = np.ones(len(X)) if sample_weight is None else check_mass(sample_weight, len(X))
    with np.errstate(over="ignore"):
        rounded = X.astype(dtype)
    if not np.isfinite(rounded).all():
        raise ValueError(f"X contains NaN, infinite values or values too large for {dtype}; impute or scale them first")
    table, inverse = np.unique(np.column_stack([rounded, y])[mass > 0], axis=0, return_inverse=True)
    with np.errstate(over="ignore"):
        mass = np.bincount(inverse.ravel(), weights=mass[mass > 0])
    low, high = np.finfo(dtype).tiny, np.finfo(dtype).max / len(mass)
    if mass.min() < low or mass.max() > high:
        raise ValueError(f"sample_weight is outside {low:.0e} .. {high:.0e}, the range of {dtype}; rescale the weights")
    return Data(
        np.ascontiguousarray(table[:, :-1], dtype=dtype),
        table[:, -1].astype(dtype if classes is None else np.int64),
        None if (mass == 1).all() else mass,
        float(mass.sum()),
        1 if classes is None else classes,
    )


@dataclass(frozen=True)
class Settings:
    """The settings shared by all networks of a grid."""

    max_iter: int
    learning_rate: float
    penalize_intercept: bool

    def rate(self, step: int) -> float:
        """Return the step size, which is constant at first and falls to zero over the last third of the run."""
        left = (self.max_iter + 1 - step) / (self.max_iter + 1 - first_final_step(self.max_iter))
        return self.learning_rate * min(1.0, left)

    def factors(self, step: int) -> tuple[float, float]:
        """Return Adam's bias corrections for the running mean (times the step size) and for the root mean square."""
        return self.rate(step) / (1 - BETAS[0] ** step), 1 / math.sqrt(1 - BETAS[1] ** step)


@dataclass(frozen=True, order=True)
class Path:
    """Everything that determines the steps of a network; problems with equal paths share a network."""

    loss: str
    aggregate: str
    m: float
    k: float
    alpha: float

    def counts(self, total: float, steps: int, span: range) -> Array:
        """Return k (len(span),), as a mass, at each step of a span in a run of ``steps`` steps."""
        k = min(self.k, total)
        if not get_aggregate(self.aggregate).decays:
            return np.full(len(span), k)
        k_at = decay(k, total, steps)
        return np.array([k_at(step) for step in span])


def path_of(problem: Problem, total: float, *, convex: bool) -> Path:
    """Return the path of a problem, either in the convex first third of a decay run or after it."""
    aggregate = get_aggregate(problem.aggregate)
    k, m = aggregate.counts(problem.k, problem.m, total)
    takes_all = k >= total or (aggregate.decays and convex)
    if aggregate.plain or (takes_all and aggregate.weigh in _ALL_IS_AVERAGE):
        return Path(problem.loss, "average", 0.0, math.inf, float(problem.alpha))
    return Path(problem.loss, problem.aggregate, m, math.inf if k >= total else k, float(problem.alpha))


def spans(problems: Sequence[Problem], total: float, steps: int) -> list[tuple[range, list[Path]]]:
    """Return spans of steps with the path of each problem: two spans if the k of any problem decays, otherwise one."""
    split = last_convex_step(steps) if any(get_aggregate(each.aggregate).decays for each in problems) else 0
    parts = [(range(1, split + 1), True), (range(split + 1, steps + 1), False)]
    return [(span, [path_of(each, total, convex=convex) for each in problems]) for span, convex in parts if span]


def blocks(paths: Sequence[Path], size: int) -> Iterator[tuple[slice, Sequence[Path]]]:
    """Divide sorted paths into blocks of at most ``size`` paths that share a loss and an aggregate."""
    begin = 0
    for _, group in groupby(paths, key=lambda path: (path.loss, path.aggregate)):
        members = list(group)
        for first in range(0, len(members), size):
            part = members[first : first + size]
            yield slice(begin + first, begin + first + len(part)), part
        begin += len(members)

"""Figure 5: examples that make a data set harder (outliers, imbalance, ambiguity).

Each function takes X (samples, features), y (samples,) of -1 and +1, the number of examples to add and a generator. It
returns X and y with the new examples after the given ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from closecall._names import Array
from closecall.table.read.dataset import DataError

Contaminate = Callable[[Array, Array, int, np.random.Generator], tuple[Array, Array]]


def outliers(X: Array, y: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Append points far beyond the other class: 10 x2 - 9 x1 with the label of x1, where x2 is from the other class.

    Labels are drawn in proportion to the classes in the data.

    Examples
    --------
    >>> X, y = outliers(np.array([[0.0], [1.0]]), np.array([-1.0, 1.0]), 1, np.random.default_rng(0))
    >>> float(X[-1, 0]) in (10.0, -9.0), float(y[-1]) == (-1.0 if X[-1, 0] > 0 else 1.0)
    (True, True)
    """
    labels = rng.choice(y, count)
    own, other = np.empty(count, dtype=int), np.empty(count, dtype=int)
    for label in (-1, 1):
        mine = labels == label
        own[mine] = rng.choice(np.flatnonzero(y == label), mine.sum())
        other[mine] = rng.choice(np.flatnonzero(y == -label), mine.sum())
    return np.concatenate([X, 10 * X[other] - 9 * X[own]]), np.concatenate([y, labels])


def imbalance(X: Array, y: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Append copies of random negatives, drawn with replacement because Figure 5 adds more of them than there are."""
    rows = rng.choice(np.flatnonzero(y == -1), count)
    return np.concatenate([X, X[rows]]), np.concatenate([y, y[rows]])


def ambiguity(X: Array, y: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Append copies of random negatives with a positive label, each negative at most once.

    Every classifier is then right on one example of each pair and wrong on the other.
    """
    negatives = np.flatnonzero(y == -1)
    if count > len(negatives):
        raise DataError(f"{count} ambiguous copies requested, but there are only {len(negatives)} negatives to copy")
    rows = rng.choice(negatives, count, replace=False)
    return np.concatenate([X, X[rows]]), np.concatenate([y, -y[rows]])


@dataclass(frozen=True)
class Simulation:
    """One panel of Figure 5: the contamination, and the number of added examples at each level."""

    contaminate: Contaminate
    levels: tuple[int, ...]


#: The three panels of Figure 5, on spambase.
SIMULATIONS: dict[str, Simulation] = {
    "outliers": Simulation(outliers, (0, 1, 2, 8, 16, 32, 64, 128, 256)),
    "imbalance": Simulation(imbalance, (0, 800, 1600, 3200, 6400, 12800)),
    "ambiguity": Simulation(ambiguity, (0, 100, 200, 400, 800)),
}

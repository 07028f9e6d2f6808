"""The paper's synthetic sets (Figure 1, Examples 1 and 2), and the examples that Figure 5 adds to make a set harder.

Labels y (samples,) are -1.0 and +1.0. The functions for Figure 5 take X (samples, features), y, the number of examples
to add and a random generator. They return X and y with the new examples (outliers, imbalance or ambiguity) appended to
the given ones.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from closecall._names import Array, lookup
from closecall.table.read.dataset import DataError

#: Figure 1 as uniform blocks along the first column: (label, count, from, to). The best boundary is 0 in all four.
FIGURE1: dict[str, tuple[tuple[int, int, float, float], ...]] = {
    "easy": ((1, 225, -1.0, -0.9), (1, 25, -0.2, 0.05), (-1, 250, 0.0, 0.1)),
    "imbalance": ((1, 20, -1.0, 0.05), (-1, 480, 0.0, 1.0)),
    "outlier": ((1, 20, -1.0, 0.0), (-1, 480, 0.0, 1.0), (-1, 1, -1.0, -1.0)),
    "ambiguous": ((1, 250, -1.0, 0.0), (-1, 250, -1.0, 1.0)),
}


def figure1(name: str, seed: int | np.random.Generator) -> tuple[Array, Array]:
    """Draw one of the four sets of Figure 1: X (samples, 2) and y, with the positives on the left.

    Only the first column is meant to be fitted; the second is uniform on [-1, 1] and spreads the points for display.
    ``outlier`` is the paper's "imbalance + outlier".

    Examples
    --------
    >>> X, y = figure1("outlier", seed=0)
    >>> X.shape, int((y > 0).sum()), float(X[-1, 0])
    ((501, 2), 20, -1.0)
    """
    blocks = lookup(FIGURE1, name, "set of Figure 1")
    rng = np.random.default_rng(seed)
    first = np.concatenate([rng.uniform(low, high, count) for _, count, low, high in blocks])
    y = np.repeat([float(label) for label, *_ in blocks], [count for _, count, *_ in blocks])
    return np.column_stack([first, rng.uniform(-1, 1, len(first))]), y


def example1(n: int, far: float) -> tuple[Array, Array]:
    """Return the paper's Example 1: n points at -1 (negative), n at +1 (positive) and two outliers on the wrong sides.

    ``far``, the paper's M, is much larger than n; the outliers are a negative at +far and a positive at -far.

    Examples
    --------
    >>> X, y = example1(2, far=100)
    >>> X.ravel().tolist(), y.tolist()
    ([-1.0, -1.0, 1.0, 1.0, 100.0, -100.0], [-1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    """
    X = np.concatenate([np.full(n, -1.0), np.full(n, 1.0), [far, -far]])
    return X[:, None], np.concatenate([np.full(n, -1.0), np.full(n, 1.0), [-1.0, 1.0]])


def example2(n: int, seed: int | np.random.Generator) -> tuple[Array, Array]:
    """Return the paper's Example 2: n negatives on [-1, 1] and n positives on [0, 1] (uniform); X has shape (2 n, 1).

    The best possible accuracy is 0.75, which is reached by predicting the positive class for x > 0 (the
    paper's text swaps the sides).
    """
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.uniform(-1, 1, n), rng.uniform(0, 1, n)])
    return X[:, None], np.repeat([-1.0, 1.0], n)


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
    """Append copies of random negatives, with replacement: Figure 5 needs more copies than there are negatives."""
    rows = rng.choice(np.flatnonzero(y == -1), count)
    return np.concatenate([X, X[rows]]), np.concatenate([y, y[rows]])


def ambiguity(X: Array, y: Array, count: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Append copies of random negatives, labelled as positive; each negative is copied at most once.

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

"""The paper's synthetic sets: those of Figure 1, and Examples 1 and 2. Labels y are -1.0 and +1.0 (samples,)."""

from __future__ import annotations

import numpy as np

from closecall._names import Array, lookup

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

    ``far`` is the paper's M, much larger than n: one negative is at +far, one positive at -far. X is (2 n + 2, 1).

    Examples
    --------
    >>> X, y = example1(2, far=100)
    >>> X.ravel().tolist(), y.tolist()
    ([-1.0, -1.0, 1.0, 1.0, 100.0, -100.0], [-1.0, -1.0, 1.0, 1.0, -1.0, 1.0])
    """
    X = np.concatenate([np.full(n, -1.0), np.full(n, 1.0), [far, -far]])
    return X[:, None], np.concatenate([np.full(n, -1.0), np.full(n, 1.0), [-1.0, 1.0]])


def example2(n: int, seed: int | np.random.Generator) -> tuple[Array, Array]:
    """Return the paper's Example 2: n negatives uniform on [-1, 1] and n positives uniform on [0, 1]; X is (2 n, 1).

    The best accuracy in the population is 0.75, reached by predicting that x > 0 is positive (the paper's text swaps
    the sides).
    """
    rng = np.random.default_rng(seed)
    X = np.concatenate([rng.uniform(-1, 1, n), rng.uniform(0, 1, n)])
    return X[:, None], np.repeat([-1.0, 1.0], n)

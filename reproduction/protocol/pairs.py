"""Pairs of methods over the data sets of a suite: gains, p-values, and the criteria by which one beats the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from closecall._names import Array, lookup
from closecall.stats import POINTS, SIGNIFICANCE, holm

from .protocol import get_protocol


@dataclass(frozen=True)
class Pair:
    """The comparison of one pair of methods over the data sets."""

    gains: Array  # (datasets,): mean accuracy of the better method minus that of the base
    p: Array  # (datasets,): from the protocol's test, Holm-adjusted over the data sets under ``sound``

    def wins(self, criterion: str) -> Array:
        """Return a mask (datasets,) of the sets on which the better method beats the base by a criterion.

        ``significant``: p < 0.05; ``points``: at least 2 percentage points; ``joint``: both, as in the abstract.
        """
        return lookup(_CRITERIA, criterion, "criterion")(self)


#: The slack of 1e-12 ensures that a gain of exactly 2 points is not lost to rounding.
_CRITERIA: dict[str, Callable[[Pair], Array]] = {
    "significant": lambda pair: (pair.p < SIGNIFICANCE) & (pair.gains > 0),
    "points": lambda pair: pair.gains >= POINTS - 1e-12,
    "joint": lambda pair: pair.wins("significant") & pair.wins("points"),
}
CRITERIA = tuple(_CRITERIA)


def compare(scores: Array, methods: tuple[str, ...], protocol: str) -> dict[tuple[str, str], Pair]:
    """Compare every ordered pair (base, better) of methods on every data set by the protocol's test.

    ``scores`` are test accuracies (datasets, methods, splits).

    Examples
    --------
    >>> scores = np.array([[[0.8, 0.7, 0.9], [0.9, 0.81, 0.99]]])
    >>> compare(scores, ("average", "close"), "sound")["average", "close"].wins("joint").tolist()
    [True]
    """
    rule = get_protocol(protocol)
    means = scores.mean(axis=-1)
    pairs: dict[tuple[str, str], Pair] = {}
    for i, base in enumerate(methods):
        for j in range(i + 1, len(methods)):
            # A single split cannot be tested: nothing is significant, but points can still be counted.
            p = rule.test(scores[:, i], scores[:, j]) if scores.shape[-1] > 1 else np.ones(len(scores))
            p = holm(p) if rule.corrected else p
            pairs[base, methods[j]] = Pair(means[:, j] - means[:, i], p)
            pairs[methods[j], base] = Pair(means[:, i] - means[:, j], p)
    return pairs


def win_fractions(pairs: Mapping[tuple[str, str], Pair], methods: Sequence[str], criterion: str) -> Array:
    """Return the paper's square table: entry (i, j) is the fraction of data sets on which method j beats method i.

    Examples
    --------
    >>> scores = np.array([[[0.8, 0.7, 0.9], [0.9, 0.81, 0.99]]])
    >>> win_fractions(compare(scores, ("average", "close"), "paper"), ("average", "close"), "points").tolist()
    [[nan, 1.0], [0.0, nan]]
    """
    rows = [[np.nan if i == j else pairs[i, j].wins(criterion).mean() for j in methods] for i in methods]
    return np.array(rows)

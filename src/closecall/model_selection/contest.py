"""Which rows judge which classifiers, and what their judgements are worth."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..paired import Gain, Units, blocks_of, in_turn, over_folds, over_tests, paired
from .folds import Pair

#: For each division and fold the members that its test rows (rows,), or the fold (1,), are asked about; 0 is none.
Asked = list[list[Array]]


@dataclass
class Folding:
    """Pairs of training and test rows, and the results: by (member, fold), the score and which rows are right."""

    pairs: list[Pair]
    seen: dict[tuple[int, int], tuple[float, Array]]

    def scores(self, members: int) -> Array:
        """Scores (members, folds)."""
        return np.array([[self.seen[member, fold][0] for fold in range(len(self.pairs))] for member in range(members)])

    def wanted(self, asked: Sequence[Array]) -> list[tuple[int, int]]:
        """The (member, fold) pairs needed for the folds' rows to judge these members."""
        found = [(fold, np.unique(places[places > 0]).tolist()) for fold, places in enumerate(asked)]
        return [(member, fold) for fold, members in found if members for member in (0, *members)]


def asked_rows(divisions: list[Folding], members: int, weights: Array, units: Units) -> Asked:
    """The challenger that each test row judges: the best on the blocks of rows before its own.

    Rows in the same part of crossing groups do not take part in that choice.
    """
    first, last = divisions[0], next(each for each in reversed(divisions) if each.pairs)
    block, sides = blocks_of([test for _, test in last.pairs], units), units.sides
    right, times = np.zeros((members - 1, len(weights))), np.zeros(len(weights))
    for fold, (_, test) in enumerate(first.pairs):
        right[:, test] += [first.seen[member, fold][1] for member in range(1, members)]
        times[test] += 1
    place, count = np.zeros(len(weights), dtype=int), block.max() + 1
    for side in np.unique(sides):
        known = np.flatnonzero((block >= 0) & (times > 0) & ((sides != side) | (sides.max() == 0)))
        share = weights[known] / times[known]
        sums = np.array([np.bincount(block[known], each[known] * share, count) for each in right])
        chosen = 1 + in_turn(sums, np.bincount(block[known], weights[known], count), gap=units.gap)
        mine = (sides == side) & (block >= 0)
        place[mine] = chosen[block[mine]]
    return [[place[test] for _, test in each.pairs] for each in divisions]


def asked_folds(divisions: list[Folding], scores: Array) -> Asked:
    """The challenger that each fold judges: the best on the folds that share no test row with it."""
    tests = [test for _, test in divisions[0].pairs]
    if len(scores) == 2:
        return [[np.ones(1, dtype=int) for _ in each.pairs] for each in divisions]
    apart = [[not np.isin(test, other).any() for other in tests] for test in tests]
    chosen = [1 + scores[1:, each].mean(axis=1).argmax() if any(each) else 0 for each in apart]
    return [[np.array([place]) for place in chosen], *([np.zeros(1, dtype=int)] * len(d.pairs) for d in divisions[1:])]


def gain_of_rows(divisions: list[Folding], asked: Asked, weights: Array, units: Units) -> Gain:
    """The mean gain over the rows, each the mean over its tests."""
    total, squares, times = np.zeros((3, len(weights)))
    for each, folds in zip(divisions, asked, strict=True):
        for fold, ((_, test), places) in enumerate(zip(each.pairs, folds, strict=True)):
            for member in np.unique(places[places > 0]):
                mine = places == member
                gains = each.seen[int(member), fold][1].astype(float) - each.seen[0, fold][1]
                total[test[mine]] += gains[mine]
                squares[test[mine]] += gains[mine] ** 2
                times[test[mine]] += 1
    gain, spread = over_tests(total, squares, times)
    return paired(gain, weights, units, spread)


def gain_of_folds(divisions: list[Folding], asked: Asked, weights: Array, units: Units) -> Gain:
    """The mean gain over the folds."""
    gains, shares = [], []
    for each, folds in zip(divisions, asked, strict=True):
        for fold, ((train, test), (member,)) in enumerate(zip(each.pairs, folds, strict=True)):
            if member:
                gains.append(each.seen[int(member), fold][0] - each.seen[0, fold][0])
                shares.append(len(test) / len(train))
    return over_folds(np.array(gains), float(np.mean(shares)) if shares else 0.0, units)

"""Which rows judge which classifiers, and how reliable their judgements are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from .._names import Array
from ..paired import Gain, Units, over_folds, over_tests, paired
from ..panel import panel_of
from .folds import Pair

Todo = list[tuple[int, int]]


@dataclass
class Folding:
    """Pairs of training and test rows, and the results: by (member, fold), the score and which rows are right."""

    pairs: list[Pair]
    seen: dict[tuple[int, int], tuple[float, Array]]

    def scores(self, members: int) -> Array:
        """Scores (members, folds)."""
        return np.array([[self.seen[member, fold][0] for fold in range(len(self.pairs))] for member in range(members)])


class RowContest:
    """Each part of the rows judges a blend of the challengers that the other parts prefer in the first division.

    Parameters
    ----------
    divisions : list of Folding
        The first chooses, and all of them judge.
    members : int
    weights : array (samples,)
    units : Units
    """

    def __init__(self, divisions: list[Folding], members: int, weights: Array, units: Units) -> None:
        last = next(each for each in reversed(divisions) if each.pairs)
        self.divisions, self.panel = divisions, panel_of([test for _, test in last.pairs], units, weights)
        self.gains = row_gains(divisions[0], range(1, members), len(weights))
        self.shares = self.panel.shares(self.gains)

    def _asked(self, test: Array) -> list[int]:
        """The challengers that some of these rows judge."""
        part = np.unique(self.panel.part[test])
        return (1 + np.flatnonzero(self.shares[part[part >= 0]].any(axis=0))).tolist()

    def todo(self, division: int) -> Todo:
        """The (member, fold) pairs of a division that judging needs."""
        found = [(fold, self._asked(test)) for fold, (_, test) in enumerate(self.divisions[division].pairs)]
        return [(member, fold) for fold, asked in found if asked for member in (0, *asked)]

    def gain(self) -> Gain:
        """The mean gain over the rows, each the mean over its tests."""
        panel, (total, squares, times) = self.panel, np.zeros((3, len(self.panel.part)))
        for division in self.divisions:
            for fold, (_, test) in enumerate(division.pairs):
                asked, shares = self._asked(test), self.shares[panel.part[test]]
                if asked:
                    mine = (panel.part[test] >= 0) & shares.any(axis=1)
                    blend = (shares.T[np.array(asked) - 1] * _fold_gains(division, fold, asked)).sum(axis=0)[mine]
                    total[test[mine]] += blend
                    squares[test[mine]] += blend**2
                    times[test[mine]] += 1
        mean, spread = over_tests(total, squares, times)
        return replace(paired(mean, panel.weights, panel.units, spread), chance=panel.chance(self.gains))


def row_gains(division: Folding, members: Iterable[int], samples: int) -> Array:
    """Gains (members, samples) over the baseline, means over the tests of a row; NaN for rows without any."""
    members = list(members)
    total, times = np.zeros((len(members), samples)), np.zeros(samples)
    for fold, (_, test) in enumerate(division.pairs):
        total[:, test] += _fold_gains(division, fold, members)
        times[test] += 1
    return total / np.where(times > 0, times, np.nan)


def _fold_gains(division: Folding, fold: int, members: list[int]) -> Array:
    right = np.array([division.seen[member, fold][1] for member in (0, *members)], dtype=float)
    return right[1:] - right[0]


class FoldContest:
    """Each fold judges the challenger that is best on the folds that share no test row with it.

    A single challenger is judged by the folds of all divisions.
    """

    def __init__(self, divisions: list[Folding], members: int, weights: Array, units: Units) -> None:
        self.divisions, self.units = divisions, units
        tests = [test for _, test in divisions[0].pairs]
        if members == 2:
            self.chosen = [[1] * len(each.pairs) for each in divisions]
            return
        scores = divisions[0].scores(members)[1:]
        apart = [[not np.isin(test, other).any() for other in tests] for test in tests]
        first = [1 + int(scores[:, each].mean(axis=1).argmax()) if any(each) else 0 for each in apart]
        self.chosen = [first, *([0] * len(each.pairs) for each in divisions[1:])]

    def todo(self, division: int) -> Todo:
        chosen = enumerate(self.chosen[division])
        return [(member, fold) for fold, place in chosen if place for member in (0, place)]

    def gain(self) -> Gain:
        """The mean gain over the folds."""
        gains, shares = [], []
        for number, each in enumerate(self.divisions):
            for fold, ((train, test), member) in enumerate(zip(each.pairs, self.chosen[number], strict=True)):
                if member:
                    gains.append(each.seen[member, fold][0] - each.seen[0, fold][0])
                    shares.append(len(test) / len(train))
        return over_folds(np.array(gains), float(np.mean(shares)) if shares else 0.0, self.units)

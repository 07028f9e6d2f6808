"""Estimate gains over the baseline without bias: no row is used both to select a challenger and to evaluate it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .._names import Array
from ..linear.splits import Pair
from ..paired import Gain, Units, over_folds, over_tests, paired
from ..panel import disjoint, panel_of

Todo = list[tuple[int, int]]


@dataclass
class Folding:
    """Pairs of training and test rows, with the score and the correctly classified rows of each member on each fold."""

    pairs: list[Pair]
    seen: dict[tuple[int, int], tuple[float, Array]]

    def scores(self, members: int) -> Array:
        """Return the scores (members, folds)."""
        return np.array([[self.seen[member, fold][0] for fold in range(len(self.pairs))] for member in range(members)])


class RowContest:
    """A contest that evaluates, on each part of the rows, a blend of the challengers selected on the other parts.

    The first division is used to select challengers, and all divisions are used to evaluate them; weights have
    shape (samples,).
    """

    def __init__(self, divisions: list[Folding], members: int, weights: Array, units: Units) -> None:
        last = next(each for each in reversed(divisions) if each.pairs)
        self.divisions, self.panel = divisions, panel_of([test for _, test in last.pairs], units, weights)
        self.right, times = np.zeros((members, len(weights))), np.zeros(len(weights))
        for fold, (_, test) in enumerate(divisions[0].pairs):
            self.right[:, test] += [divisions[0].seen[member, fold][1] for member in range(members)]
            times[test] += 1
        self.times = np.where(times > 0, times, np.nan)
        self.gains = (self.right[1:] - self.right[0]) / self.times
        self.shares = self.panel.shares(self.gains)

    def _asked(self, test: Array) -> list[int]:
        """Return the challengers to evaluate on these rows."""
        part = np.unique(self.panel.part[test])
        return (1 + np.flatnonzero(self.shares[part[part >= 0]].any(axis=0))).tolist()

    def todo(self, division: int) -> Todo:
        """Return the (member, fold) pairs of a division that the evaluation needs."""
        found = [(fold, self._asked(test)) for fold, (_, test) in enumerate(self.divisions[division].pairs)]
        return [(member, fold) for fold, asked in found if asked for member in (0, *asked)]

    def gain(self) -> Gain:
        """Return the mean gain over the baseline; the gain of a row is the mean over its tests."""
        mean, spread = self._blended(1.0)
        return replace(paired(mean, self.panel.weights, self.panel.units, spread), chance=self.panel.chance(self.gains))

    def informed(self, codes: Array, reference: bool) -> Gain:
        """Return the gain in balanced accuracy over the baseline, or over guessing, from the same tests."""
        mean, spread = self._blended(float(reference))
        outcomes = self.gains if reference else self.right[1:] / self.times
        return self.panel.informed(mean, outcomes, codes, spread, reference)

    def _blended(self, baseline: float) -> tuple[Array, Array]:
        """Return, for each row, the blend's accuracy minus ``baseline`` times the baseline's, and the spread."""
        panel, (total, squares, times) = self.panel, np.zeros((3, len(self.panel.part)))
        for division in self.divisions:
            for fold, (_, test) in enumerate(division.pairs):
                asked, shares = self._asked(test), self.shares[panel.part[test]]
                if asked:
                    mine = (panel.part[test] >= 0) & shares.any(axis=1)
                    right = np.array([division.seen[member, fold][1] for member in asked], dtype=float)
                    right -= baseline * division.seen[0, fold][1]
                    blend = (shares.T[np.array(asked) - 1] * right).sum(axis=0)[mine]
                    total[test[mine]] += blend
                    squares[test[mine]] += blend**2
                    times[test[mine]] += 1
        return over_tests(total, squares, times)


class FoldContest:
    """A contest that evaluates, on each fold, the challenger selected on folds with different test rows and groups.

    A single challenger is evaluated on the folds of all divisions.
    """

    def __init__(self, divisions: list[Folding], members: int, weights: Array, units: Units) -> None:
        self.divisions, self.units, self.challengers = divisions, units, members - 1
        if members == 2:
            self.chosen = [[1] * len(each.pairs) for each in divisions]
            return
        scores = divisions[0].scores(members)[1:]
        others = disjoint([test for _, test in divisions[0].pairs], units)
        first = [1 + int(scores[:, each].mean(axis=1).argmax()) if each.any() else 0 for each in others]
        self.chosen = [first, *([0] * len(each.pairs) for each in divisions[1:])]

    def todo(self, division: int) -> Todo:
        chosen = enumerate(self.chosen[division])
        return [(member, fold) for fold, place in chosen if place for member in (0, place)]

    def guesses(self, division: int) -> Todo:
        """Return the (member, fold) pairs of guessing, the last member, on the folds that the evaluation needs."""
        return [(self.challengers + 1, fold) for member, fold in self.todo(division) if not member]

    def informed(self, reference: bool) -> Gain:
        """Return the mean gain over guessing; gains in balanced accuracy are not used."""
        return Gain(0.0, np.inf, 0.0, 0) if reference else self.gain(self.challengers + 1)

    def gain(self, reference: int = 0) -> Gain:
        """Return the mean gain over another member, which is the baseline by default."""
        gains, shares = [], []
        for number, each in enumerate(self.divisions):
            for fold, ((train, test), member) in enumerate(zip(each.pairs, self.chosen[number], strict=True)):
                if member:
                    gains.append(each.seen[member, fold][0] - each.seen[reference, fold][0])
                    shares.append(len(test) / len(train))
        return over_folds(np.array(gains), float(np.mean(shares)) if shares else 0.0, self.units, self.challengers)

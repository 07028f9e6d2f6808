"""The race: which settings are solved on which folds, and what the guard makes of the winners.

`average` runs on every fold. The others first run a heat: every second alpha, each k, as few folds as hold five hundred
test rows, and at most a few thousand training rows. The best two of each kind then run on all folds. Measured against
the full grid on the PMLB sets, the race chooses as well with a fraction of the solves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from .fitting import Options, Parts, exact_intercepts, fit_models, scores_of
from .guard import Comparison, Setting, compare, order, paired_examples, paired_folds
from .splits import Splits
from .training import Training

HEAT_ROWS = 5000
HEAT_TESTS = 500
FINALISTS = 2
#: Standard errors beyond the guard that `average` with the exact intercept must gain over `average`.
EXACT_EXTRA = 1.0

#: (coef, intercept, fold) -> score of a model on a fold's test rows.
Scorer = Callable[[Array, Array, Array], float]


@dataclass
class Race:
    """Settings by folds: models, scores, and the choice among them.

    Parameters
    ----------
    training : Training
    splits : list of Splits
        The folds that choose, then fresh ones that only confirm.
    options : Options
    make_scorer : callable
        Training set -> ``(coef, intercept, rows) -> score``, or None for accuracy weighted by mass.
    guard : float
    """

    training: Training
    splits: list[Splits]
    options: Options
    make_scorer: Callable[[Training], Scorer | None]
    guard: float
    settings: list[Setting] = field(default_factory=list)
    models: dict[tuple[int, int, int], tuple[Array, Array]] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scorer = self.make_scorer(self.training)

    def run(self, baselines: Sequence[Sequence[Setting]], challengers: Sequence[Setting]) -> int:
        """Race the settings and return the position of the one to take."""
        kinds = [list(kind) for kind in (*baselines, challengers) if kind]
        ends = np.cumsum([0, *(len(kind) for kind in kinds)])
        self.settings = [setting for kind in kinds for setting in kind]
        groups = [np.arange(begin, end) for begin, end in pairwise(ends)]
        everywhere = 1 if self.guard > 0 and len(self.splits[0]) > 1 else len(groups)
        for group in groups[:everywhere]:
            self.solve([(int(place), fold) for place in group for fold in range(len(self.splits[0]))])
        for group in groups[everywhere:]:
            self._heat(group)
        if self.guard == 0:
            return int(self._ranked(np.concatenate(groups))[0])
        return self._guarded([int(self._ranked(group)[0]) for group in groups])

    def _heat(self, challengers: Array) -> None:
        alphas = sorted({self.settings[place].alpha for place in challengers})
        coarse = alphas[1::2] if len(alphas) > 3 else alphas
        runners = np.array([place for place in challengers if self.settings[place].alpha in coarse])
        rows, share = heat_rows(self.training, self.splits[0])
        if share == 1:
            tested = int(self.splits[0].test[0][self.splits[0].group].sum())
            folds = min(len(self.splits[0]), -(-HEAT_TESTS // tested))
            self.solve([(int(place), fold) for place in runners for fold in range(folds)])
            leaders = self._ranked(runners)[:FINALISTS]
        else:
            part = self._part(rows)
            total = float(self.training.mass.sum())
            part.settings = [_scaled(self.settings[place], share, total) for place in runners]
            part.solve([(place, 0) for place in range(len(runners))])
            leaders = runners[part._ranked(np.arange(len(runners)))[:FINALISTS]]
        self.solve([(int(place), fold) for place in leaders for fold in range(len(self.splits[0]))])

    def _part(self, rows: Array) -> Race:
        """The race of one fold on some rows only."""
        whole, split = self.training, self.splits[0]
        small = Training(whole.X[rows], whole.codes[rows], whole.mass[rows], whole.classes, whole.hashes[rows],
                         whole.rows[rows])  # fmt: skip
        tested = split.test[0][split.group[rows]].astype(int)
        masks = np.array([[True, False]])
        return Race(small, [Splits(tested, masks, ~masks)], self.options, self.make_scorer, self.guard)

    def solve(self, pairs: Sequence[tuple[int, int]], which: int = 0) -> None:
        """Solve (setting, fold) pairs of one of the splits in one batch; those solved before are skipped."""
        todo = [pair for pair in dict.fromkeys(pairs) if (which, *pair) not in self.models]
        moved = [pair for pair in todo if self.settings[pair[0]].exact_intercept]
        plain = [(self._plain(place), fold) for place, fold in moved]
        todo = [pair for pair in dict.fromkeys(plain + todo) if pair not in moved and (which, *pair) not in self.models]
        if todo:
            chosen = [self.settings[place] for place, _ in todo]
            options = replace(self.options, init=self._starts(chosen, todo))
            problems = [setting.problem for setting in chosen]
            found = fit_models(self.training, problems, options, parts=self._parts(which, todo))
            for row, pair in enumerate(todo):
                self.models[(which, *pair)] = found.coef[row], found.intercept[row]
        if moved:
            coef = np.stack([self.models[(which, *pair)][0] for pair in plain])
            intercepts = exact_intercepts(self.training, coef, self.options, parts=self._parts(which, moved))
            for row, pair in enumerate(moved):
                self.models[(which, *pair)] = coef[row], intercepts[row]

    def _parts(self, which: int, pairs: Sequence[tuple[int, int]]) -> Parts:
        split = self.splits[which]
        return Parts(split.group, split.train, np.array([fold for _, fold in pairs]))

    def _plain(self, place: int) -> int:
        """The setting whose coefficients an exact intercept moves."""
        wanted = replace(self.settings[place], exact_intercept=False)
        if wanted not in self.settings:
            self.settings.append(wanted)
        return self.settings.index(wanted)

    def _starts(self, settings: list[Setting], pairs: Sequence[tuple[int, int]]) -> Any:
        """Where the pairs start: at the `average` of their alpha and fold, if all of these have been solved."""
        place_of = {(s.loss, s.alpha): place for place, s in enumerate(self.settings) if s.kind == "average"}
        keys = [
            (0, place_of.get((setting.loss, setting.alpha), -1), min(fold, len(self.splits[0]) - 1))
            for setting, (_, fold) in zip(settings, pairs, strict=True)
        ]
        if any(key not in self.models for key in keys):
            return self.options.init
        return tuple(np.stack([self.models[key][part] for key in keys]) for part in (0, 1))

    def scores(self, which: int = 0) -> Array:
        """Scores (settings, folds); NaN where a setting did not run."""
        split = self.splits[which]
        table = np.full((len(self.settings), len(split)), np.nan)
        for fold in range(len(split)):
            rows = np.flatnonzero(split.test[fold][split.group])
            places = [place for place in range(len(self.settings)) if (which, place, fold) in self.models]
            if not places:
                continue
            if self.scorer is None:
                mass = self.training.mass[rows]
                table[places, fold] = self._hits(which, places, fold, rows) @ mass / mass.sum()
            else:
                table[places, fold] = [self.scorer(*self.models[which, place, fold], rows) for place in places]
        return table

    def _hits(self, which: int, places: Sequence[int], fold: int, rows: Array) -> Array:
        """Whether each model is right (settings, rows)."""
        models = [self.models[which, place, fold] for place in places]
        coef, intercept = (np.stack(part) for part in zip(*models, strict=True))
        return hits(self.training.X[rows], self.training.codes[rows], coef, intercept)

    def _ranked(self, places: Array) -> Array:
        """Positions from best to worst among those that ran on the most folds."""
        table = self.scores()[places]
        ran = (~np.isnan(table)).sum(axis=1)
        kept = np.flatnonzero(ran == ran.max())
        total = float(self.training.mass.sum())
        chosen = [self.settings[places[place]] for place in kept]
        masses = np.array([get_aggregate(s.aggregate).counts(s.k, None, total)[0] for s in chosen])
        return places[kept[order(chosen, np.nanmean(table[kept], axis=1), masses)]]

    def _guarded(self, winners: list[int]) -> int:
        """The first winner, unless a later one gains enough."""
        for which in range(1, len(self.splits)):
            self.solve([(place, fold) for place in winners for fold in range(len(self.splits[which]))], which)
        held = winners[0]
        for challenger in winners[1:]:
            gain, error = self._gain(challenger, held)
            # A moved threshold is tuned on the 0-1 loss itself and pays for it: measured, it needs the stricter guard.
            guard = self.guard + EXACT_EXTRA * self.settings[challenger].exact_intercept
            outcome = compare(self.settings[challenger], self.settings[held], gain, error, guard)
            self.comparisons.append(outcome)
            held = challenger if outcome.taken else held
        return held

    def _gain(self, challenger: int, held: int) -> tuple[float, float]:
        if self.scorer is not None:  # a score of a fold has no examples to pair
            tables = [self.scores(which) for which in range(len(self.splits))]
            return paired_folds(np.mean([table[challenger] - table[held] for table in tables], axis=0))
        gains, seen = np.zeros(len(self.training.mass)), np.zeros(len(self.training.mass))
        for which, split in enumerate(self.splits):
            for fold in range(len(split)):
                rows = np.flatnonzero(split.test[fold][split.group])
                first, second = self._hits(which, [challenger, held], fold, rows)
                gains[rows] += first.astype(float) - second
                seen[rows] += 1
        tested = seen > 0
        return paired_examples(gains[tested] / seen[tested], self.training.mass[tested])


def hits(X: Any, codes: Array, coef: Array, intercept: Array) -> Array:
    """Whether models with coef (settings, scores, features) predict the codes (settings, samples), in blocks."""
    right = np.empty((len(coef), len(codes)), dtype=bool)
    size = max(1, (1 << 22) // max(1, len(codes) * coef.shape[1]))
    for begin in range(0, len(coef), size):
        scores = scores_of(X, coef[begin : begin + size], intercept[begin : begin + size])
        found = (scores[:, :, 0] > 0).astype(int) if scores.shape[2] == 1 else scores.argmax(axis=2)
        right[begin : begin + size] = found == codes
    return right


def heat_rows(training: Training, split: Splits, limit: int = HEAT_ROWS) -> tuple[Array, float]:
    """Rows of the first fold for the heat, and which share of its training rows they hold.

    At most about ``limit`` training rows, of every class in proportion, drawn by their hashes; and the test rows.
    """
    trains, tests = split.train[0][split.group], split.test[0][split.group]
    share = min(1.0, limit / max(1, int(trains.sum())))
    if share == 1:
        return np.flatnonzero(trains | tests), 1.0
    by_hash = np.argsort(training.hashes * np.uint64(0x9E3779B97F4A7C15), kind="stable")
    chosen = [np.flatnonzero(tests)]
    for code in range(len(training.classes)):
        mine = by_hash[(trains & (training.codes == code))[by_hash]]
        chosen.append(mine[: max(2, int(np.ceil(share * len(mine))))])
    return np.sort(np.concatenate(chosen)), share


def _scaled(setting: Setting, share: float, total: float) -> Setting:
    """The setting for a share of the rows: alpha weighs against a sum, and a count of examples becomes a fraction."""
    k = setting.k if setting.k is None or isinstance(setting.k, float) else min(1.0, setting.k / total)
    return replace(setting, alpha=setting.alpha * share, k=k)

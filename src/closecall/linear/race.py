"""The race determines which settings are fitted on which folds and whether the guard accepts the winner.

Among hundreds of settings, the best one always looks better than it is. Therefore no row is used both to choose and to
evaluate a setting: each part of the rows is used to evaluate the settings chosen on the other parts. This applies to
the baseline and to the challengers, which form one family (:mod:`closecall.panel`). Outliers are not used to choose or
evaluate settings, because logistic regression may classify them correctly at the expense of all other rows. If there
are outliers, the challengers, which then include `average`, are also trained without them. Which rows are outliers
depends only on X, but if a class would lose more than half of its rows in a fold, no row counts as an outlier.

The `average` is fitted on every fold. All other settings first compete in a preliminary round, the *heat*. The heat
uses every second alpha, every k, one start, the smallest number of folds with five hundred test rows in total, and at
most a few thousand training rows. The best settings of each kind are then fitted, from all starts, on enough folds to
provide ten thousand test rows; unless the table is large, this requires all folds. On the PMLB data sets, the race
needs far fewer fits than the full grid and chooses equally good settings.

No model starts from parameters that were fitted to its test rows: every fit starts either cold or at the solution of a
convex problem on the same fold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from numbers import Integral
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..paired import Comparison, Gain, Units, apart, compare, over_folds, over_tests, paired
from ..panel import disjoint, panel_of
from .calibration import fit_calibrators
from .fitting import Options, Parts, codes_of, exact_intercepts, fit_models, scores_of, within
from .guard import MULTINOMIAL, Scorer, Setting, order
from .multiclass import JOINT
from .splits import Splits, heat_folds, heat_rows, outlying
from .training import Training

#: After the preliminary round: how many test rows suffice, and how many settings of each kind continue.
FINAL_TESTS, FINALISTS = 10_000, 2

Pair = tuple[int, int]


@dataclass
class Race:
    """The models and scores of all settings on the folds, and the choice among these settings.

    The first of the ``splits`` contains the folds used to choose a setting; the other splits only confirm it.
    ``scoring`` is None for accuracy. If it needs probabilities, ``calibration`` is the method that fits them.
    """

    training: Training
    splits: list[Splits]
    options: Options
    scoring: Any
    guard: float
    units: Units
    calibration: str | None = None
    settings: list[Setting] = field(default_factory=list)
    models: dict[Pair, tuple[Array, Array]] = field(default_factory=dict)
    rough: set[Pair] = field(default_factory=set)
    right: dict[Pair, Array] = field(default_factory=dict)
    points: dict[Pair, float] = field(default_factory=dict)
    marks: dict[Pair, float] = field(default_factory=dict)
    comparisons: list[Comparison] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.scorer = None if self.scoring is None else Scorer(self.scoring, self.calibration, self.training)
        self.folds = len(self.splits[0])
        self.tests = [np.flatnonzero(test[split.group]) for split in self.splits for test in split.test]
        self.finals = self.folds
        if self.guard > 0:
            self.finals = min(self.folds, max(2, -(-FINAL_TESTS // len(self.tests[0]))))
        weight = self.training.weight
        self.outliers = outlying(self.training.X, weight) if self.guard > 0 else np.zeros(len(weight), dtype=bool)
        # Rows of one group are in the same part of every split, so all solutions share one arrangement of the rows.
        group, kinds = self.outliers.astype(int), [np.arange(2)]
        for split in self.splits:
            several = split.train.shape[1]
            seen, group = np.unique(group * several + split.group, return_inverse=True)
            kinds = [kind[seen // several] for kind in kinds] + [seen % several]
        masks = [train[kind] for split, kind in zip(self.splits, kinds[1:], strict=True) for train in split.train]
        if self.outliers.any():
            inner, classes = [mask & (kinds[0] == 0) for mask in masks], len(self.training.classes)
            whole, kept = (
                np.array([np.bincount(self.training.codes, weight * mask[group], classes) for mask in each])
                for each in (masks, inner)
            )
            if (kept >= (0.5 - 1e-9) * whole).all():
                masks += inner
            else:  # the outliers may form a class, and a fold may have no mass without them
                self.outliers[:] = False
        self.judging = np.where(self.outliers, 0.0, weight)
        self.parts = Parts(group, np.array(masks), np.empty(0, dtype=int))
        self.masses = np.array([self.training.mass[mask[group]].sum() for mask in masks])
        fresh = range(self.folds, len(self.tests))
        self.judges = [*range(self.finals), *fresh]
        self.panel = panel_of([self.tests[fold] for fold in fresh or range(self.finals)], self.units, self.judging)

    def run(self, baselines: Sequence[Sequence[Setting]], challengers: Sequence[Setting]) -> int:
        """Run the race and return the position of the chosen setting."""
        kinds = [list(kind) for kind in (*baselines, challengers) if kind]
        if self.outliers.any():
            kinds = kinds[:1] + [[replace(setting, without_outliers=True) for setting in kind] for kind in kinds]
        ends = np.cumsum([0, *(len(kind) for kind in kinds)])
        self.settings = [setting for kind in kinds for setting in kind]
        groups = [np.arange(begin, end) for begin, end in pairwise(ends)]
        everywhere = 1 if self.guard > 0 and self.folds > 1 else len(groups)
        for group in groups[:everywhere]:
            self.solve([(int(place), fold) for place in group for fold in range(self.folds)])
        for group in groups[everywhere:]:
            self._heat(group)
        if self.guard == 0:
            return int(self._ranked(np.concatenate(groups))[0])
        return self._guarded(groups)

    def _heat(self, challengers: Array) -> None:
        alphas = sorted({self.settings[place].alpha for place in challengers})
        coarse = alphas[1::2] if len(alphas) > 3 else alphas
        runners = np.array([place for place in challengers if self.settings[place].alpha in coarse])
        rows, share = heat_rows(self.training, self.splits[0])
        if share == 1:
            folds = heat_folds(self.splits[0])
            self.solve([(int(place), fold) for place in runners for fold in range(folds)], rough=True)
            leaders = self._ranked(runners)[:FINALISTS]
        else:
            part = self._part(rows)
            total = float(self.training.mass.sum())
            part.settings = [_scaled(self.settings[place], share, total) for place in runners]
            part.solve([(place, 0) for place in range(len(runners))])
            leaders = runners[part._ranked(np.arange(len(runners)))[:FINALISTS]]
            self.solve([(int(place), 0) for place in leaders])
            leaders = self._ranked(leaders)[:1]
        self.solve([(int(place), fold) for place in leaders for fold in range(self.finals)])

    def _part(self, rows: Array) -> Race:
        """Return the race restricted to some rows of one fold."""
        split = self.splits[0]
        tested = split.test[0][split.group[rows]].astype(int)
        masks = np.array([[True, False]])
        options = replace(self.options, n_starts=self.options.n_starts or 1, rough=True)
        return Race(self.training.take(rows), [Splits(tested, masks, ~masks)], options, self.scoring, self.guard,
                    apart(len(rows)), self.calibration)  # fmt: skip

    def solve(self, pairs: Sequence[Pair], rough: bool = False) -> None:
        """Fit and score (setting, fold) pairs in one batch; pairs that have already been fitted are skipped.

        If ``rough`` is true, the pairs are fitted from one start, as in a heat; pairs needed later are fitted again
        from all starts.
        """
        rough = rough and self.options.n_starts is None
        known = self.models.keys() - (set() if rough else self.rough)
        todo = [pair for pair in dict.fromkeys(pairs) if pair not in known]
        self.rough = self.rough | set(todo) if rough else self.rough - set(todo)
        moved = [pair for pair in todo if self.settings[pair[0]].exact_intercept]
        plain = [(self._plain(place), fold) for place, fold in moved]
        fitted = [pair for pair in dict.fromkeys(plain + todo) if pair not in moved and pair not in known]
        for form in dict.fromkeys(self._form(place) for place, _ in fitted):
            self._fit([pair for pair in fitted if self._form(pair[0]) == form], form, rough)
        if moved:
            coef = np.stack([self.models[pair][0] for pair in plain])
            options = replace(self.options, multiclass=self._form(moved[0][0]))
            intercepts = exact_intercepts(self.training, coef, options, parts=self._parts(moved))
            for row, pair in enumerate(moved):
                self.models[pair] = coef[row], intercepts[row]
        self._score(fitted + moved)

    def _fit(self, pairs: list[Pair], form: str, rough: bool) -> None:
        """Fit pairs of the same form; multinomial logistic regression is warm-started from the next larger alpha."""
        alphas = sorted({self.settings[place].alpha for place, _ in pairs}, reverse=True)
        if all(self.settings[place].kind == MULTINOMIAL for place, _ in pairs) and len(alphas) > 1:
            for alpha in alphas:
                self._fit([pair for pair in pairs if self.settings[pair[0]].alpha == alpha], form, rough)
            return
        total, masses = float(self.training.mass.sum()), self.masses[self._parts(pairs).fold_of]
        problems = [
            within(self.settings[place].problem, mass, total) for (place, _), mass in zip(pairs, masses, strict=True)
        ]
        options = replace(self.options, init=self._starts(pairs), hint=True, multiclass=form)
        options = replace(options, n_starts=1, rough=True) if rough else options
        found = fit_models(self.training, problems, options, parts=self._parts(pairs))
        for row, pair in enumerate(pairs):
            self.models[pair] = found.coef[row], found.intercept[row]

    def _form(self, place: int) -> str:
        return self.settings[place].multiclass or self.options.multiclass

    def _parts(self, pairs: Sequence[Pair]) -> Parts:
        left = len(self.tests) if self.outliers.any() else 0
        return self.parts.of([fold + left * self.settings[place].without_outliers for place, fold in pairs])

    def _plain(self, place: int) -> int:
        """Return the position of the same setting without the exact intercept."""
        wanted = replace(self.settings[place], exact_intercept=False)
        if wanted not in self.settings:
            self.settings.append(wanted)
        return self.settings.index(wanted)

    def _starts(self, pairs: Sequence[Pair]) -> str | tuple[Array, ...]:
        """Return starting points for pairs: the `average` for the same alpha and fold if known, otherwise cold starts.

        Only runs that begin with a convex problem may start at the `average`: they reach the same solution as from a
        cold start, but sooner. The solution of other runs depends on the start, which is not available for the refit.
        """
        known = {(s.loss, s.alpha, self._form(place)): place for place, s in enumerate(self.settings)
                 if get_aggregate(s.aggregate).plain and not s.exact_intercept and not s.without_outliers}  # fmt: skip
        keys = []
        for place, fold in pairs:
            setting = self.settings[place]
            aggregate = get_aggregate(setting.aggregate)
            form = "softmax" if len(self.training.classes) > 2 else self._form(place)
            alpha = setting.alpha
            if setting.kind == MULTINOMIAL:
                alpha = min(
                    (s.alpha for s in self.settings if s.kind == MULTINOMIAL and s.alpha > alpha), default=alpha
                )
            keys.append((known.get((setting.loss, alpha, form), -1), fold))
            begins_convex = get_loss(setting.loss).convex and (aggregate.decays or aggregate.convex)
            alike = form == self._form(place) or self._form(place) in JOINT
            if not begins_convex or not alike or keys[-1] not in self.models:
                return str(self.options.init)
        return tuple(np.stack([self.models[key][part] for key in keys]) for part in (0, 1))

    def _score(self, pairs: Sequence[Pair]) -> None:
        """Score each model once on the test rows of its folds."""
        for fold in sorted({fold for _, fold in pairs}):
            mine, rows = [pair for pair in pairs if pair[1] == fold], self.tests[fold]
            if self.scorer is not None:
                for pair in mine:
                    self.marks[pair] = self.points[pair] = self.scorer(
                        *self.models[pair], rows, partial(self._calibrators, pair)
                    )
                    if not np.isfinite(self.points[pair]):
                        raise ValueError(
                            f"scoring returned {self.points[pair]} on a fold; a search needs finite scores: use "
                            "another scoring, or folds on which it is defined"
                        )
                continue
            coef, intercept = (np.stack(part) for part in zip(*(self.models[pair] for pair in mine), strict=True))
            right = hits(self.training.X[rows], self.training.codes[rows], coef, intercept)
            for points, weight in ((self.points, self.training.weight[rows]), (self.marks, self.judging[rows])):
                points |= zip(mine, (right @ (weight / (weight.sum() or 1.0))).tolist(), strict=True)
            self.right |= zip(mine, right, strict=True)

    def _calibrators(self, pair: Pair) -> list[Array]:
        """Return calibrators fitted to the test scores of other folds or, if there are none, to training scores."""
        place, fold = pair
        begin, end = (0, self.folds) if fold < self.folds else (self.folds, len(self.tests))
        others = [other for other in range(begin, end) if other != fold and (place, other) in self.models]
        pieces = [(self.tests[other], (place, other)) for other in others]
        if not pieces:
            pieces = [(np.flatnonzero(self.parts.masks[fold][self.parts.group]), pair)]
        rows = np.concatenate([rows for rows, _ in pieces])
        scores = np.concatenate([scores_of(self.training.X[rows], *self.models[key]) for rows, key in pieces])
        return fit_calibrators(str(self.calibration), scores, self.training.codes[rows], self.training.weight[rows])

    def scores(self, central: bool = False) -> Array:
        """Return scores (settings, folds) on the first folds, with or without outliers; NaN if not computed."""
        table, found = np.full((len(self.settings), len(self.tests)), np.nan), self.marks if central else self.points
        places, folds = np.array(list(found), dtype=int).reshape(-1, 2).T
        table[places, folds] = list(found.values())
        return table[:, : self.folds]

    def _ranked(self, places: Array, central: bool = True) -> Array:
        """Return the positions of the settings that were fitted on the most folds, from best to worst."""
        table = self.scores(central)[places]
        ran = (~np.isnan(table)).sum(axis=1)
        kept = places[ran == ran.max()]
        return kept[self._order(kept, np.nanmean(table[ran == ran.max()], axis=1))]

    def _order(self, places: Array, means: Array) -> Array:
        total = float(self.training.mass.sum())
        chosen = [self.settings[place] for place in places]
        return order(chosen, means, np.array([get_aggregate(s.aggregate).counts(s.k, s.m, total)[0] for s in chosen]))

    def _guarded(self, groups: list[Array]) -> int:
        """Return the winner of the first group, or the best of the other groups if its gain is large enough."""
        base = int(self._ranked(groups[0], central=False)[0])  # as LogisticRegressionCV chooses its alpha
        if len(groups) == 1:
            return base
        best = int(self._ranked(np.concatenate(groups[1:]))[0])
        gain, informed = self._gain_of_rows(groups) if self.scorer is None else (self._gain_of_folds(groups), None)
        self.comparisons.append(compare(self.settings[best], self.settings[base], gain, self.guard, informed))
        return best if self.comparisons[-1].taken else base

    def _heats(self, group: Array) -> tuple[Array, int]:
        """Return the settings of a group that were fitted, and the number of initial folds on which all of them were.

        Settings dropped after the preliminary round count as well, because these folds determined which of them
        continued. Settings with equal scores are returned in order of preference.
        """
        ran = group[~np.isnan(self.scores()[group, 0])]
        folds = min(self.finals, int((~np.isnan(self.scores()[ran])).all(axis=0).argmin()) or self.folds)
        return ran[self._order(ran, np.zeros(len(ran)))], folds

    def _outcomes(self, places: Array, folds: int) -> Array:
        """Return the fractions of correct predictions (settings, samples) on the first folds; NaN for untested rows."""
        times = np.zeros(len(self.panel.part), dtype=np.float32)
        total = np.zeros((len(places), len(times)), dtype=np.float32)
        for fold in range(folds):
            total[:, self.tests[fold]] += [self.right[int(place), fold] for place in places]
            times[self.tests[fold]] += 1
        return total / np.where(times > 0, times, np.nan)

    def _gain_of_rows(self, groups: list[Array]) -> tuple[Gain, Callable[[bool], Gain]]:
        """Return the mean gain of the blended challengers over the baseline, and a function for balanced accuracy.

        The gain of a row is the mean over all tests of that row. The function returns the gain in balanced accuracy
        over the baseline if its argument is true, and over guessing otherwise.
        """
        panel, parts = self.panel, self.panel.part
        averages, folds = self._heats(groups[0])
        known, right = np.flatnonzero(parts >= 0), self._outcomes(averages, folds)
        known = known[np.isfinite(right[0, known])]
        sums = np.stack([np.bincount(parts[known], (panel.weights * row)[known], len(panel.may)) for row in right])
        # Rounded, because rounding errors must not decide between equally good settings.
        held = np.argmax(np.round(sums @ panel.may.T / panel.weights[known].sum(), 12), axis=0)
        runs = [self._heats(group) for group in groups[1:]]
        ran, folds = np.concatenate([each for each, _ in runs]), min(folds for _, folds in runs)
        places = np.where(parts >= 0, held[parts], 0)
        outcomes = self._outcomes(ran, folds)
        gains = outcomes - self._outcomes(averages, folds)[places, np.arange(len(parts))]
        shares = panel.shares(gains)
        asked = [(part, fold) for fold in self.judges for part in np.unique(parts[self.tests[fold]]) if part >= 0]
        asked = [(part, fold) for part, fold in asked if shares[part].any()]
        wanted = [(int(averages[held[part]]), fold) for part, fold in asked]
        wanted += [(int(place), fold) for part, fold in asked for place in ran[shares[part] > 0]]
        self.solve(wanted)
        total, squares = np.zeros((2, 2, len(parts)))
        times = np.zeros(len(parts))
        for part, fold in asked:
            within = parts[self.tests[fold]] == part
            mine = self.tests[fold][within]
            right = np.array([self.right[int(place), fold][within] for place in ran[shares[part] > 0]])
            blend = shares[part][shares[part] > 0] @ right
            both = np.stack([blend - self.right[int(averages[held[part]]), fold][within], blend])
            total[:, mine] += both
            squares[:, mine] += both**2
            times[mine] += 1
        (over, blended), (spread, wider) = over_tests(total, squares, times)
        gain = replace(paired(over, panel.weights, self.units, spread), chance=panel.chance(gains))

        def informed(reference: bool) -> Gain:
            values = (over, gains, spread) if reference else (blended, outcomes, wider)
            return panel.informed(*values[:2], self.training.codes, values[2], reference)

        return gain, informed

    def _gain_of_folds(self, groups: list[Array]) -> Gain:
        """Return the mean gain over the folds; on each fold, settings chosen on :func:`disjoint` folds are compared."""
        gains, shares = list[float](), list[float]()
        kinds = [self._heats(groups[0]), self._heats(np.concatenate(groups[1:]))]
        apart = disjoint(self.tests[: self.finals], self.units)[:, : kinds[1][1]]
        for fold, others in enumerate(map(np.flatnonzero, apart)):
            if not len(others):
                continue
            means = [self.scores()[ran][:, others].mean(axis=1) for ran, _ in kinds]
            held, chosen = (
                (int(ran[self._order(ran, mean)[0]]), fold) for (ran, _), mean in zip(kinds, means, strict=True)
            )
            self.solve([held, chosen])
            gains.append(self.points[chosen] - self.points[held])
            shares.append(len(self.tests[fold]) / int(self.parts.masks[fold][self.parts.group].sum()))
        return over_folds(np.array(gains), float(np.mean(shares)) if shares else 0.0, self.units)


def hits(X: Array, codes: Array, coef: Array, intercept: Array) -> Array:
    """Return a mask (settings, samples) of correct predictions by models with coef (settings, scores, features)."""
    right = np.empty((len(coef), len(codes)), dtype=bool)
    size = max(1, (1 << 22) // max(1, len(codes) * coef.shape[1]))
    for begin in range(0, len(coef), size):
        some = slice(begin, begin + size)
        right[some] = codes_of(scores_of(X, coef[some], intercept[some])) == codes
    return right


def _scaled(setting: Setting, share: float, total: float) -> Setting:
    """Adapt a setting to a fraction of the rows: alpha is scaled like the losses, and counts become fractions."""
    k, m = (min(1.0, int(c) / total) if isinstance(c, Integral) else c for c in (setting.k, setting.m))
    return replace(setting, alpha=setting.alpha * share, k=k, m=m)

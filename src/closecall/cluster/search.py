"""Hyperparameter search over partitions.

Two contenders are chosen on a sample and compared on the remaining rows, and the winner is fitted to all rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from .._names import Array, keep, lookup
from ..aggregates import get_aggregate
from ..linear import CloseKClassifierCV
from ..linear.calibration import fit_calibrators
from ..linear.fitting import MULTICLASS, scores_of, within
from ..linear.guard import Setting, order
from ..linear.race import FINAL_TESTS
from ..linear.search import ALPHAS, KS
from ..linear.splits import FOLDS
from ..paired import GUARD, Gain, check_guard, compare, from_sums, guessing, in_balance
from ..solvers.many import shares_of
from .classifier import MAX_GATHERED, OverPartitions
from .fit import Dealt, deal, fit_passes, judged, tasks, to_models, total_mass
from .passes import Frame, Passes, PassEvent, Survey
from .solve import together


class DaskCloseKClassifierCV(OverPartitions):
    """A :class:`closecall.CloseKClassifierCV` for Dask collections.

    If a table has at most ``max_gathered`` entries, its rows are gathered and the search runs in memory, which gives
    exactly the same model as :class:`closecall.CloseKClassifierCV`. From a larger table, a sample of at most half of
    the rows is gathered. This sample is used to choose alpha for logistic regression, and alpha and k for close-k. For
    each of two folds (more if folds are small), both models are then fitted in passes to the rows outside the fold. The
    models are compared on the rows of the fold that were not in the sample. The paired gain, its standard error and the
    guard are defined as in the in-memory search. The winner is fitted to all rows. The exact intercept is never tried.

    Parameters
    ----------
    alphas, ks, loss, guard, max_iter, tol, fit_intercept, penalize_intercept, class_weight, multiclass, calibration, \
random_state
        The same as in :class:`closecall.CloseKClassifierCV`; probabilities are calibrated on out-of-fold scores for the
        sample.
    cv : int or None
        The number of folds, five by default. Rows are assigned to folds by hash, which keeps identical rows together.
    scoring : str or None
        None means accuracy. Scores other than accuracy are available only if the rows are gathered.
    max_gathered, client, callback
        The same as in :class:`DaskAggregateLossClassifier`.

    The attributes are the same as for :class:`closecall.CloseKClassifierCV`, plus ``n_passes_``. If the rows were not
    gathered, ``cv_results_`` contains the results on the sample, ``best_score_`` is the accuracy on the rows used for
    the comparison, and ``guard_report_["judged"]`` is the mass of these rows.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> X = np.concatenate([np.linspace(-2, 0, 100), np.linspace(0, 2, 100), np.linspace(-4, -3, 25)])[:, None]
    >>> y = np.repeat(["no", "yes", "yes"], [100, 100, 25])
    >>> client = Client(processes=False, dashboard_address="127.0.0.1:0")
    >>> model = DaskCloseKClassifierCV().fit(da.from_array(X, chunks=100), da.from_array(y, chunks=100))
    >>> client.close()
    >>> model.aggregate_, round(model.score(X, y), 2)
    ('close_decay', 0.88)
    """

    local = CloseKClassifierCV

    def __init__(
        self,
        *,
        alphas: Any = ALPHAS,
        ks: Any = KS,
        cv: Any = None,
        scoring: Any = None,
        guard: float | None = None,
        loss: str = "logistic",
        max_iter: int = 150,
        tol: float = 1e-3,
        fit_intercept: bool = True,
        penalize_intercept: bool = False,
        class_weight: Any = None,
        multiclass: str = "top_two",
        calibration: str | None = None,
        random_state: Any = None,
        max_gathered: int = MAX_GATHERED,
        client: Any = None,
        callback: Callable[[PassEvent], None] | None = None,
    ) -> None:
        keep(self, locals())

    def _check(self) -> None:
        lookup(MULTICLASS, self.multiclass, "multiclass")

    def _in_passes(self, passes: Passes, survey: Survey, frame: Frame, labels: list[Any]) -> None:
        folds = self._folds()
        self.n_training_mass_ = total_mass(survey, frame)
        entries = 1 << 22  # in the sample: 32 MiB as float64
        shares = shares_of(survey.counts, max(entries // frame.size, 50))
        shares = {label: min(0.5, share) for label, share in shares.items()}  # the other half is for the comparison
        dealt = deal(passes, frame, shares, folds)
        contenders = self._heat(dealt, frame)
        models = self._fold_models(passes, survey, frame, labels, dealt, contenders)
        sums = reduce(add, passes.run("judge", partial(judged, frame, models, folds, shares)))
        winner = self._decide(contenders, sums)
        chosen = contenders[winner]
        self.alpha_, self.loss_, self.aggregate_ = chosen.alpha, chosen.loss, chosen.aggregate
        self.multiclass_ = chosen.multiclass or self.multiclass
        found = fit_passes(passes, survey, frame, chosen.problem, labels, self._options, block=dealt.block)
        self._keep(found, survey, frame, chosen.problem)
        if self.calibration is not None:
            self.calibrators_ = self._calibrate(dealt, frame, [each[winner] for each in models])

    def _folds(self) -> int:
        """Return the number of folds; options that only the in-memory search supports raise an error."""
        only = "supported only for gathered rows: raise max_gathered to at least the size of X, or omit this option"
        if self.scoring not in (None, "accuracy"):
            raise ValueError(f"scoring={self.scoring!r} is {only}")
        if self.cv is not None and not isinstance(self.cv, int | np.integer):
            raise ValueError(f"cv={self.cv!r} is {only}; an integer number of folds is always supported")
        folds = FOLDS if self.cv is None else int(self.cv)
        if folds < 2:
            raise ValueError(f"cv={self.cv} must be at least 2")
        return folds

    def _heat(self, dealt: Dealt, frame: Frame) -> list[Setting]:
        """Return the best settings for logistic regression and close-k, found by an in-memory search on the sample."""
        sample = dealt.block
        tests = [dealt.fold == fold for fold in range(len(dealt.counts))]
        pairs = [(np.flatnonzero(~test), np.flatnonzero(test)) for test in tests]
        weights = None if frame.factors is None else dict(zip(frame.classes.tolist(), frame.factors, strict=True))
        inner = self.to_local().set_params(cv=pairs, refit=False, class_weight=weights, calibration=None)
        inner.fit(sample.X, sample.y, sample.mass)
        self.cv_results_ = inner.cv_results_
        many = "ovr" if len(frame.classes) > 2 else None
        settings = [
            Setting(**each | {"multiclass": many if each["multiclass"] else None, "without_outliers": False})
            for each in inner.cv_results_["params"]
        ]
        plain = settings[: len({float(alpha) for alpha in self.alphas})]  # the baselines come first
        others = [place for place, each in enumerate(settings) if each not in plain and not each.exact_intercept]
        return [self._best(settings, np.array(places)) for places in (range(len(plain)), others)]

    def _best(self, settings: Sequence[Setting], places: Array) -> Setting:
        """Return the best of the settings that were evaluated on the largest number of folds."""
        ran, means = (self.cv_results_[name][places] for name in ("n_folds", "mean_test_score"))
        kept = places[ran == ran.max()]
        total, chosen = self.n_training_mass_, [settings[place] for place in kept]
        counts = np.array([get_aggregate(each.aggregate).counts(each.k, each.m, total)[0] for each in chosen])
        return chosen[order(chosen, means[ran == ran.max()], counts)[0]]

    def _fold_models(
        self, passes: Passes, survey: Survey, frame: Frame, labels: list[Any], dealt: Dealt,
        contenders: Sequence[Setting],
    ) -> list[Array]:  # fmt: skip
        """Leave out each of the first folds in turn, and return (contenders, scores, coordinates) for each of them."""
        folds = len(dealt.counts)
        used = min(folds, max(2, -(-FINAL_TESTS // max(1, survey.rows // folds))))
        works = []
        for fold in range(used):
            some, block = dealt.outside(survey, frame, fold)
            for setting in contenders:
                problem = within(setting.problem, total_mass(some, frame), self.n_training_mass_)
                works += tasks(some, frame, problem, labels, self._options, block, fold=(fold, folds))
        ends = together(passes, frame, works)
        to_models(frame, ends, self.tol, passes.number)  # raises if a solution is not finite
        found = np.stack([end.c for end in ends])
        return list(found.reshape(used, len(contenders), len(labels), -1))

    def _decide(self, contenders: Sequence[Setting], sums: Array) -> int:
        """Return the winner (0 for logistic regression, 1 for close-k), given sums of masses and squared masses."""
        masses, squares = sums.sum(axis=1)
        both, first, second, _ = masses
        gain = from_sums(np.array([0.0, -1.0, 1.0, 0.0]), masses, squares)
        codes, weights = np.repeat(np.arange(sums.shape[1]), 4), sums[0].ravel()

        def informed(reference: bool) -> Gain:
            values = [0.0, -1.0, 1.0, 0.0] if reference else np.array([1.0, 0, 1, 0]) - guessing(codes, weights)
            found, balanced = in_balance(np.tile(values, (1, sums.shape[1])), codes, weights)
            factor = balanced / np.maximum(weights, 1e-300)
            return from_sums(np.nan_to_num(found[0]), balanced, sums[1].ravel() * factor**2)

        outcome = compare(contenders[1], contenders[0], gain, check_guard(self.guard, GUARD), informed)
        winner, total = int(outcome.taken), float(masses.sum())
        chosen = contenders[winner]
        self.best_params_ = asdict(chosen)
        names = ("loss", "aggregate", "k", "alpha", "exact_intercept")
        wanted = [self.best_params_[name] for name in names]
        known = [[each[name] for name in names] for each in self.cv_results_["params"]]
        self.best_index_ = known.index(wanted)
        self.best_score_ = float((both + (second if winner else first)) / total)
        self.guard_report_ = {
            "guard": check_guard(self.guard, GUARD), "baseline": contenders[0].peer, "fresh_folds": 0, "judged": total,
            "comparisons": [asdict(outcome)], "reason": str(outcome),
        }  # fmt: skip
        return winner

    def _calibrate(self, dealt: Dealt, frame: Frame, models: Sequence[Array]) -> list[Array]:
        """Fit calibrators to out-of-fold scores for the sample."""
        sample, codes = dealt.block, np.searchsorted(frame.classes, dealt.block.y)
        rows = [np.flatnonzero(dealt.fold == fold) for fold in range(len(models))]
        scores = [
            scores_of(sample.X[mine], *frame.to_parameters(model)) for mine, model in zip(rows, models, strict=True)
        ]
        some = np.concatenate(rows)
        return fit_calibrators(str(self.calibration), np.concatenate(scores), codes[some], sample.mass[some])

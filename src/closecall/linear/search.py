"""Classifiers that use cross-validation to choose alpha and k and to decide whether to use close-k."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from .._names import lookup
from ..aggregates import AGGREGATES, Count, resolve_count, warn_of_one
from ..families import expand
from ..losses import LOSSES
from ..paired import GUARD, STRICT, check_guard
from .base import _InMemory
from .fitting import within
from .guard import Setting, results
from .multiclass import JOINT
from .race import Race
from .splits import heat_folds, make_splits
from .training import Training

#: The paper's grid of alphas, and the k and m of the search as fractions of the training mass.
ALPHAS = tuple(float(10**power) for power in np.arange(-5.0, 6.0))
KS = (0.01, 0.1, 0.4)
MS = (0.01, 0.05, 0.2)
#: The refit may take more steps than a model in the search, by up to this many times ``max_iter``.
EXTRA = 9


@dataclass(kw_only=True, eq=False, repr=False)
class _Search(_InMemory):
    """The base class of the classifiers that search for a setting."""

    loss: str | Sequence[str] = "logistic"
    alphas: Any = ALPHAS
    ks: Any = KS
    cv: Any = None
    scoring: Any = None
    guard: float | None = None
    refit: bool = True
    max_iter: int = 150
    tol: float = 1e-3
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> Any:
        """Choose a setting for X (samples, features), dense or sparse, and y (samples,), and fit it to all rows.

        The columns are not scaled; put a StandardScaler before the classifier. ``sample_weight`` (samples,) is used in
        training and in scoring, but ``class_weight`` is used only in training.

        ``groups``, of shape (samples,) or (samples, 2), are the groups for a ``cv`` that splits by groups; any other
        ``cv`` raises an error. The standard errors are computed over groups. Two columns define crossed groups:
        ``cv`` splits the first column, and each split is divided further, so that its test rows belong to new groups of
        both kinds.
        """
        losses, aggregates = _names(self.loss, LOSSES, "loss"), _names(self.aggregate, AGGREGATES, "aggregate")
        alphas = _check_grid(self.alphas, "alphas")
        for name in aggregates:
            warn_of_one(name, *np.atleast_1d(np.asarray(self.ks, dtype=object)))
        training = self._check_fit(X, y, sample_weight)
        self.classes_ = training.classes
        self.n_training_mass_ = total = float(training.mass.sum())
        baselines, challengers = self._grid(losses, aggregates, alphas, len(training.classes) > 2)
        splits = self._splits(training, X, y, groups)
        options = self._make_options(dtype=np.float32, threads=self._threads(), certify=False)
        race = Race(training, splits, options, None if self._by_rows else self.scoring, self._guard,
                    splits[0].units(training, groups), self.calibration)  # fmt: skip
        best = race.run(baselines, challengers)
        self._report(race, best)
        if self.refit:
            chosen, folds = race.settings[best], splits[0]
            if chosen.without_outliers:
                kept = np.flatnonzero(~race.outliers)
                training, folds = training.take(kept), replace(folds, group=folds.group[kept])
                self.n_training_mass_ = float(training.mass.sum())
            self.multiclass_ = chosen.multiclass or self.multiclass
            problem = within(chosen.problem, self.n_training_mass_, total)
            self.m_ = AGGREGATES[chosen.aggregate].counts(problem.k, problem.m, self.n_training_mass_)[1]
            options = replace(
                options, multiclass=self.multiclass_, certify=True, extra_iter=EXTRA * self.max_iter,
                settle=2 * self.max_iter,
                # Large tables are fitted in float32 and only certified in float64.
                dtype=np.float32 if training.X.shape[0] * training.X.shape[1] > 1 << 18 else None,
            )  # fmt: skip
            self._fit_setting(
                training, problem, options, exact=chosen.exact_intercept,
                name=f"{type(self).__name__}, {chosen}", splits=None if self._counted else folds,
            )  # fmt: skip
        if self.verbose:
            print(f"[{type(self).__name__}] " + self.guard_report_["reason"])
        return self

    def _grid(
        self, losses: list[str], aggregates: list[str], alphas: list[float], many: bool
    ) -> tuple[list[list[Setting]], list[Setting]]:
        """Return the baselines (scikit-learn's model, then one with the exact intercept) and the challengers."""
        form = self.multiclass if many else None
        plain = [
            Setting("logistic", "average", None, alpha, multiclass="softmax" if many else None) for alpha in alphas
        ]
        moved = [Setting(loss, "average", None, alpha, multiclass=form) for loss in losses for alpha in alphas]
        baselines = [plain]
        if self.fit_intercept and not (many and self.multiclass in JOINT):
            baselines.append([replace(setting, exact_intercept=True) for setting in (moved if many else plain)])
        challengers = [
            Setting(loss, aggregate, k, alpha, m=m, multiclass=form)
            for loss in losses
            for aggregate in dict.fromkeys(("average", *aggregates))
            if aggregate in aggregates or (loss != plain[0].loss and not many)
            for k, m in self._counts(aggregate)
            for alpha in alphas
        ]
        return baselines, [setting for setting in challengers if setting not in baselines[0]]

    def _counts(self, aggregate: str) -> list[tuple[Count, Count]]:
        """Return the pairs (k, m) with m < k for an aggregate."""
        takes, total = AGGREGATES[aggregate].takes, self.n_training_mass_
        ks = _check_grid(self.ks, "ks") if "k" in takes else [None]
        ms = _check_grid(self.ms, "ms") if "m" in takes else [None]
        pairs = [(k, m) for k in ks for m in ms]
        fits = [(k, m) for k, m in pairs if resolve_count(m or 0, total, name="m", low=0) < resolve_count(k, total)]
        if not fits:
            raise ValueError(
                f"every m in ms={self.ms!r} leaves no examples with ks={self.ks!r}; {aggregate} needs m < k"
            )
        return fits

    @property
    def _by_rows(self) -> bool:
        return self.scoring in (None, "accuracy")

    @property
    def _guard(self) -> float:
        return check_guard(self.guard, GUARD if self._by_rows else STRICT)

    @property
    def _counted(self) -> bool:
        """Whether the search creates its own folds and can therefore create more of the same kind."""
        return self.cv is None or isinstance(self.cv, int | np.integer)

    def _splits(self, training: Training, X: Any, y: Any, groups: Any) -> list[Any]:
        splits = [make_splits(self.cv, training, X, y, groups)]
        # Fresh folds require that the folds are drawn here and that each row has a score: the score for a whole fold
        # must not be compared with that of a fold that shares rows with it. If the preliminary round needs few
        # folds, the others are fresh.
        if self._guard > 0 and self._by_rows and self._counted and 2 * heat_folds(splits[0]) > len(splits[0]):
            splits.append(make_splits(self.cv, training, X, y, groups, seed=1))
        return splits

    def _threads(self) -> int:
        jobs = 1 if self.n_jobs is None else int(self.n_jobs)
        if jobs == 0:
            raise ValueError("n_jobs=0 has no meaning; give a number of threads, -1 for all cores, or None for one")
        return jobs if jobs > 0 else max(1, (os.cpu_count() or 1) + 1 + jobs)

    def _report(self, race: Race, best: int) -> None:
        chosen = race.settings[best]
        self.cv_results_ = results(race.settings, race.scores())
        self.best_index_, self.best_params_ = best, asdict(chosen)
        self.best_score_ = float(self.cv_results_["mean_test_score"][best])
        self.loss_, self.aggregate_, self.alpha_ = chosen.loss, chosen.aggregate, chosen.alpha
        lines = [str(outcome) for outcome in race.comparisons] or [f"{chosen} has the best mean score of all settings"]
        self.guard_report_: dict[str, Any] = {
            "guard": self._guard,
            "baseline": race.settings[0].peer,
            "fresh_folds": sum(len(split) for split in race.splits[1:]),
            "comparisons": [asdict(outcome) for outcome in race.comparisons],
            "reason": "; ".join(lines),
        }


def _names(given: str | Sequence[str], table: Any, kind: str) -> list[str]:
    names = [given] if isinstance(given, str) else list(given)
    if not names:
        raise ValueError(f"{kind} is empty; give one or more of: {', '.join(sorted(table))}")
    names = [member for name in names for member in expand(name)]
    for name in names:
        lookup(table, name, kind)
    return names


def _check_grid(given: Any, name: str) -> list[Any]:
    values: list[Count] = list(np.atleast_1d(np.asarray(given, dtype=object)))
    if not values:
        raise ValueError(f"{name} is empty; give at least one value")
    if name == "alphas":
        for value in values:
            if not isinstance(value, int | float | np.number) or not 0 <= value < np.inf:
                raise ValueError(f"alphas contains {value!r}; every alpha must be a finite number >= 0")
        return sorted({float(value) for value in values})  # type: ignore[arg-type]
    return [value.item() if isinstance(value, np.generic) else value for value in values]


@dataclass(kw_only=True, eq=False, repr=False)
class AggregateLossClassifierCV(_Search):
    """:class:`AggregateLossClassifier` with alpha, k and, if requested, loss and aggregate chosen by cross-validation.

    The search always includes logistic regression, with and without the exact intercept, and replaces it only if the
    gain is significant. This rule is called the guard. The baseline is scikit-learn's own model (multinomial for more
    than two classes), whatever the values of ``loss`` and ``multiclass``. With a guard, outliers are not used to train,
    choose or evaluate challengers, because they favour a model whose boundary they have tilted towards themselves.
    Logistic regression without the outliers is then an additional challenger. A row is an outlier if its distance from
    the mean (in standardised columns) is more than 1.5 interquartile ranges above the upper quartile of all distances.
    Outliers are still used for the baseline and for ``cv_results_``.

    Parameters
    ----------
    loss : str or sequence of str
        One loss, or several to choose from. The baseline is logistic regression in any case; the average of another
        loss is a challenger.
    aggregate : str or sequence of str
        One aggregate, or several to choose from; `average` is always included. The name of a family, such as `tilted`,
        stands for its grid of members, `tilted(-4)` to `tilted(4)`.
    alphas : sequence of float
        The strengths of the L2 penalty to choose from.
    ks : sequence of int, float or None
        The values of k to choose from: counts or fractions of the training mass; a count that exceeds the mass of a
        fold or of the rows without outliers means the whole mass.
    ms : sequence of int or float
        How many of the largest losses to leave out; used only by `trimmed` and `ranked_range`.
    cv : int, splitter, iterable of (train, test) or None
        None means five stratified folds, or fewer if a class has fewer members; equal rows stay in the same fold. If
        ``cv`` is None or a number, small tables are also evaluated on fresh folds. If every fold is trained only on
        earlier rows, the standard errors are computed over blocks of time.
    scoring : str, callable or None
        None means accuracy. Scores other than accuracy are compared fold by fold instead of row by row; scores based on
        probabilities need a ``calibration``.
    guard : float or None
        The number of standard errors that the gain over the baseline must exceed. A smaller gain is enough if it is
        positive and the gain in balanced accuracy exceeds this number of standard errors. The balanced accuracy must
        also exceed that of guessing by two standard errors (see :mod:`closecall.paired`). None means 1 for accuracy,
        and 2 for any other ``scoring``, to which only the first condition applies. With 0, the setting with the best
        mean score in the whole grid is chosen, as in the paper.
    refit : bool
        Whether to fit the chosen setting on all rows. If False, only the results of the search are available.
    class_weight : dict, "balanced" or None
        Class weights, which multiply the sample weights in training but not in scoring. ``"balanced"`` weights are
        computed once, on all rows, because stratified folds have the same class proportions.
    max_iter, tol, solver, n_starts, fit_intercept, penalize_intercept, multiclass, calibration, random_state
        The same as in :class:`AggregateLossClassifier`.
    n_jobs : int or None
        The number of threads for the solver; -1 means all cores.
    verbose : int
        If above 0, the reason for the guard's decision is printed.

    Attributes
    ----------
    cv_results_ : dict of arrays
        All settings and their scores; NaN for folds on which a setting was not fitted.
    best_params_, best_index_, best_score_
        The chosen setting; ``best_score_`` is its mean score over the folds used to choose it.
    guard_report_ : dict
        The figures for every comparison, and the ``reason`` for the decision in words.
    n_training_mass_ : float
        The sum of the training weights, without outliers if the chosen model was trained without them; a fractional k
        is a fraction of this sum.
    alpha_, k_, m_, loss_, aggregate_, multiclass_, coef_, intercept_, classes_, support_
        The attributes of the chosen setting, fitted on all rows.
    n_iter_, gap_, converged_
        The attributes of that fit. The fit may take more than ``max_iter`` steps to find a certificate; if it finds
        none, a warning is issued.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(200, n_features=5, flip_y=0.1, random_state=0)
    >>> model = AggregateLossClassifierCV(loss=["logistic", "hinge"], alphas=[0.1, 1, 10]).fit(X, y)
    >>> model.best_params_["loss"] in ("logistic", "hinge"), len(model.guard_report_["comparisons"])
    (True, 1)
    """

    aggregate: str | Sequence[str] = "close_decay"
    ms: Any = MS


@dataclass(kw_only=True, eq=False, repr=False)
class CloseKClassifierCV(_Search):
    """Linear classifier that uses cross-validation to choose between logistic regression and close-k.

    This is :class:`AggregateLossClassifierCV` with ``aggregate="close_decay"``.

    Parameters
    ----------
    alphas, ks, cv, scoring, guard, refit, loss, max_iter, tol, solver, n_starts, fit_intercept, penalize_intercept, \
class_weight, multiclass, calibration, n_jobs, random_state, verbose
        The same as in :class:`AggregateLossClassifierCV`.

    Attributes
    ----------
    cv_results_, best_params_, best_index_, best_score_, guard_report_, alpha_, k_, loss_, aggregate_, multiclass_, \
coef_, intercept_, classes_, n_iter_, support_
        The same as in :class:`AggregateLossClassifierCV`.

    Examples
    --------
    A fifth of the positives lie on the wrong side, so the search chooses close-k:

    >>> X = np.concatenate([np.linspace(-2, 0, 100), np.linspace(0, 2, 100), np.linspace(-4, -3, 25)])[:, None]
    >>> y = np.repeat(["no", "yes", "yes"], [100, 100, 25])
    >>> model = CloseKClassifierCV().fit(X, y)
    >>> model.aggregate_, round(model.score(X, y), 2)
    ('close_decay', 0.88)
    """

    aggregate: ClassVar[str] = "close_decay"
    ms: ClassVar[tuple[None]] = (None,)
    multiclass: str = "top_two"

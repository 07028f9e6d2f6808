"""The settings of a search, their order and their scores; :mod:`closecall.paired` tests their gains."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer

from .._names import Array
from ..aggregates import Count, get_aggregate
from ..objective import Problem
from .base import LinearClassifier
from .training import Training

#: The name of the `average` of the softmax, which is scikit-learn's LogisticRegression with ``C = 1 / alpha``.
MULTINOMIAL = "multinomial logistic regression"


@dataclass(frozen=True)
class Setting:
    """One candidate of the search.

    Examples
    --------
    >>> Setting("logistic", "average", None, 1.0, True).kind
    'average + exact intercept'
    """

    loss: str
    aggregate: str
    k: Count
    alpha: float
    exact_intercept: bool = False
    m: Count = None
    multiclass: str | None = None
    without_outliers: bool = False

    @property
    def problem(self) -> Problem:
        return Problem(self.loss, self.aggregate, self.k, self.alpha, self.m)

    @property
    def kind(self) -> str:
        """The name that the guard uses, which is ``average``, ``average + exact intercept`` or the aggregate's name.

        The `average` of a softmax over several classes has its own name, because it is the model that scikit-learn
        fits.
        """
        if self.multiclass == "softmax" and get_aggregate(self.aggregate).plain:
            return MULTINOMIAL
        return self.aggregate + (" + exact intercept" if self.exact_intercept else "")

    @property
    def peer(self) -> str:
        """The usual name for the average of this loss."""
        if self.kind == MULTINOMIAL:
            return MULTINOMIAL
        return {"logistic": "logistic regression"}.get(self.loss, f"{self.loss} average")

    def __str__(self) -> str:
        counts = "".join(f"{name}={value}, " for name, value in (("k", self.k), ("m", self.m)) if value is not None)
        rows = " without outliers" if self.without_outliers else ""
        return f"{self.kind}{rows} ({counts}alpha={self.alpha:g})"


def results(settings: Sequence[Setting], table: Array) -> dict[str, Any]:
    """Return ``cv_results_`` for settings with scores (settings, folds), which are NaN where a setting was not run."""
    ran = (~np.isnan(table)).sum(axis=1)
    means, spread = np.full((2, len(table)), np.nan)
    means[ran > 0], spread[ran > 0] = np.nanmean(table[ran > 0], axis=1), np.nanstd(table[ran > 0], axis=1)
    names = ("loss", "aggregate", "k", "m", "alpha", "exact_intercept", "without_outliers")
    kinds = {"k": float, "m": float}  # None becomes NaN
    return {
        "params": [dict(vars(setting)) for setting in settings],
        **{f"param_{name}": np.array([vars(each)[name] for each in settings], kinds.get(name)) for name in names},
        "param_multiclass": np.array([setting.multiclass or "" for setting in settings]),
        "n_folds": ran,
        "mean_test_score": means,
        "std_test_score": spread,
        **{f"split{fold}_test_score": table[:, fold] for fold in range(table.shape[1])},
    }


def order(settings: Sequence[Setting], means: Array, masses: Array) -> Array:
    """Return the order of the settings, best mean score first; ties go to the larger k, then to the larger alpha.

    Examples
    --------
    >>> settings = [Setting("logistic", "close", 10, 1.0), Setting("logistic", "close", 20, 1.0)]
    >>> order(settings, np.array([0.9, 0.9]), np.array([10.0, 20.0])).tolist()
    [1, 0]
    """
    alphas = np.array([setting.alpha for setting in settings])
    # The mean of fold scores has a rounding error; scores that differ by less count as equal.
    return np.lexsort((-alphas, -masses, -np.round(means, 12)))


class _Judged(LinearClassifier):
    """The estimator that a scorer receives; it is calibrated only if the scorer needs probabilities."""

    def __init__(self, calibration: str | None = None) -> None:
        self.calibration = calibration
        self.find: Callable[[], list[Array]] = list

    def fit(self, X: Any, y: Any) -> _Judged:
        """Do nothing; the model is already fitted, but scikit-learn requires this method."""
        return self

    @property
    def calibrators_(self) -> list[Array]:  # type: ignore[override]
        return self.find()


class Scorer:
    """A scikit-learn scorer for models given as arrays; scorers that use probabilities need ``calibration``."""

    def __init__(self, scoring: Any, calibration: str | None, training: Training) -> None:
        self.training, self.shell = training, _Judged(calibration)
        self.shell.classes_, self.shell.n_features_in_ = training.classes, training.X.shape[1]
        self.scoring = get_scorer(scoring)
        self.weighs = True

    def __call__(self, coef: Array, intercept: Array, rows: Array, calibrators: Callable[[], list[Array]]) -> float:
        """Return the score on these rows, weighted if the weights differ."""
        self.shell.coef_, self.shell.intercept_, self.shell.find = coef, intercept, calibrators
        try:
            return self._scored(rows)
        except AttributeError as error:
            if self.shell.calibration is not None or "predict_proba" not in str(error):
                raise
            raise ValueError("scoring needs probabilities; set calibration='sigmoid' or 'isotonic'") from None

    def _scored(self, rows: Array) -> float:
        X, labels = self.training.X[rows], self.training.classes[self.training.codes[rows]]
        weight = self.training.weight[rows]
        if (weight == weight[0]).all():
            return float(self.scoring(self.shell, X, labels))
        if self.weighs:
            try:
                return float(self.scoring(self.shell, X, labels, sample_weight=weight))
            except TypeError:  # the callable takes no weights; any other error is raised again below
                self.weighs = False
        copies = self._copies(weight)
        return float(self.scoring(self.shell, X[copies], labels[copies]))

    def _copies(self, weight: Array) -> Array:
        """Repeat row numbers according to their weights; if weights are fractional or large, warn and repeat none."""
        if (weight == np.rint(weight)).all() and weight.sum() <= 20 * len(weight):
            return np.repeat(np.arange(len(weight)), weight.astype(int))
        warnings.warn(
            "scoring takes no sample_weight, and rows cannot be repeated because weights are fractional or large: the "
            "weights are used in training but not in the scores",
            UserWarning,
            stacklevel=2,
        )
        return np.arange(len(weight))

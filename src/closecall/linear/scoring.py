"""Apply any scikit-learn scorer to models given as arrays, with sample weights as masses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer

from .._names import Array
from .base import LinearClassifier
from .training import Training


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
    """A scikit-learn ``scoring`` applied to models given as arrays; a scorer of probabilities needs a calibration."""

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
        """Return row numbers repeated by weight; if weights are fractional or large, warn and do not repeat any."""
        if (weight == np.rint(weight)).all() and weight.sum() <= 20 * len(weight):
            return np.repeat(np.arange(len(weight)), weight.astype(int))
        warnings.warn(
            "scoring takes no sample_weight, and the weights are not whole numbers for which rows could be repeated: "
            "the weights are used in training but not in the scores",
            UserWarning,
            stacklevel=2,
        )
        return np.arange(len(weight))

"""Scores of models that are not yet estimators: any scikit-learn scorer, with sample weights as masses."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.metrics import get_scorer

from .._names import Array
from .base import LinearClassifier
from .training import Training

#: Whole weights are written out as copies for a scorer that takes none, up to this many copies of a row on average.
COPIES = 20


class _Judged(LinearClassifier):
    """What a scorer receives: one model at a time, calibrated only if the scorer needs probabilities."""

    def __init__(self, calibration: str | None = None) -> None:
        self.calibration = calibration
        self.find: Callable[[], list[Array]] = list

    def fit(self, X: Any, y: Any) -> _Judged:
        """Does nothing: the model is already fitted, but scikit-learn requires the method."""
        return self

    @property
    def calibrators_(self) -> list[Array]:  # type: ignore[override]
        return self.find()


class Scorer:
    """``scoring`` for models given as arrays.

    Parameters
    ----------
    scoring : str or callable
        As in scikit-learn.
    calibration : str or None
        How scores become probabilities, for a scorer that needs them.
    training : Training
    """

    def __init__(self, scoring: Any, calibration: str | None, training: Training) -> None:
        self.training, self.shell = training, _Judged(calibration)
        self.shell.classes_, self.shell.n_features_in_ = training.classes, training.X.shape[1]
        self.scoring = get_scorer(scoring)
        self.weighs = True

    def __call__(self, coef: Array, intercept: Array, rows: Array, calibrators: Callable[[], list[Array]]) -> float:
        """The score on these rows, weighted if the weights differ."""
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
        if (weight == weight[0]).all():  # equal ones need no weighing
            return float(self.scoring(self.shell, X, labels))
        if self.weighs:
            try:
                return float(self.scoring(self.shell, X, labels, sample_weight=weight))
            except TypeError:  # a callable that takes no weights; whatever else is wrong is raised again below
                self.weighs = False
        copies = self._copies(weight)
        return float(self.scoring(self.shell, X[copies], labels[copies]))

    def _copies(self, weight: Array) -> Array:
        """Rows repeated by their weights; if these are not whole, each row once, with a warning."""
        if (weight == np.rint(weight)).all() and weight.sum() <= COPIES * len(weight):
            return np.repeat(np.arange(len(weight)), weight.astype(int))
        warnings.warn(
            "scoring takes no sample_weight, and the weights are not whole numbers that could be written out as "
            "copies: the weights count in training, not in the scores",
            UserWarning,
            stacklevel=2,
        )
        return np.arange(len(weight))

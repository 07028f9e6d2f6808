"""The baselines from scikit-learn, fitted to the training part, with C = 1/alpha chosen on the validation part.

``tuned_threshold`` applies TunedThresholdClassifierCV to the LogisticRegression selected by validation; it measures the
benefit of moving the threshold. If cross-validation is impossible (because a class has one row or predictions are
constant), that LogisticRegression itself is used.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import TunedThresholdClassifierCV
from sklearn.svm import LinearSVC

from closecall._names import Array

from .dataset import PARTS
from .grid import ROW, choose


def sklearn_baselines(X: Sequence[Array], y: Sequence[Array], alphas: Sequence[float]) -> Array:
    """Return the rows (of dtype ROW) of the three baselines, with an empty loss, because each has a loss of its own.

    X and y hold the training, validation and test parts.
    """
    makers: dict[str, Callable[[float], Any]] = {
        "logistic_regression": lambda alpha: LogisticRegression(C=1 / alpha, max_iter=1000),
        "linear_svc": lambda alpha: LinearSVC(C=1 / alpha, random_state=0),
    }
    # On small sets scikit-learn's checks would cost more than its models.
    with warnings.catch_warnings(), config_context(assume_finite=True, skip_parameter_validation=True):
        # With C = 1e5 the limit on steps is reached on separable data; a user would get the same model.
        warnings.simplefilter("ignore", ConvergenceWarning)
        logistic, svc = (
            _rows(method, alphas, [make(alpha).fit(X[0], y[0]) for alpha in alphas], X, y)
            for method, make in makers.items()
        )
        alpha = float(choose(logistic, "sound")["alpha"][0])
        tuned = _tuned(makers["logistic_regression"](alpha), X[0], y[0])
        return np.concatenate([logistic, svc, _rows("tuned_threshold", [alpha], [tuned], X, y)])


def _tuned(model: Any, X: Array, y: Array) -> Any:
    folds = min(5, int((y > 0).sum()), int((y < 0).sum()))
    if folds >= 2:
        try:
            # The same numbers as scoring="accuracy", but ten times faster without the metric's checks.
            return TunedThresholdClassifierCV(model, scoring=make_scorer(_accuracy), cv=folds).fit(X, y)
        except ValueError:  # it rejects a model with constant predictions
            pass
    return model.fit(X, y)


def _accuracy(y: Array, predicted: Array) -> float:
    return float((y == predicted).mean())


def _rows(method: str, alphas: Sequence[float], models: list[Any], X: Sequence[Array], y: Sequence[Array]) -> Array:
    rows = np.zeros(len(models), ROW)
    rows["method"], rows["alpha"], rows["k"] = method, alphas, len(y[0])
    rows["objective"], rows["converged"] = np.nan, True
    for part, X_part, y_part in zip(PARTS, X, y, strict=True):
        rows[part] = [(model.predict(X_part) == y_part).sum() for model in models]
    return rows

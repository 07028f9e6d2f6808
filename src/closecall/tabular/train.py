"""What ``closecall fit`` can train: by the names of ``closecall compare``, all linear, all saved without pickle."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.svm import LinearSVC

from closecall._names import Array, lookup
from closecall.aggregates import AGGREGATES
from closecall.linear import AggregateLossClassifier, AggregateLossClassifierCV, CloseKClassifier
from closecall.linear.search import ALPHAS

from .contenders import CLOSE_K, SCORING, Contender, Entry, SplitData, built_in, close_k_search, entry
from .measure import Metric


@dataclass(frozen=True, eq=False)
class How:
    """How a model is trained: loss, form of many classes, metric, and what folds a search may use."""

    loss: str = "logistic"
    multiclass: str = "top_two"
    metric: str = "accuracy"
    cv: Any = None
    groups: Array | None = field(default=None, repr=False)
    calibration: str | None = "sigmoid"


def _close_k(X: Array, y: Array, how: How) -> Any:
    model = close_k_search(how.loss, how.multiclass, how.metric, how.cv, calibration=how.calibration)
    return model.fit(X, y, groups=how.groups)


def _tuned(plain: Any, loss: str, X: Array, y: Array, how: How) -> Any:
    """The average of a loss with alpha = 1/C as scikit-learn's model of it is chosen by cross-validation."""
    cv = how.cv or StratifiedKFold(max(2, min(5, int(np.unique(y, return_counts=True)[1].min()))), shuffle=True,
                                   random_state=0)  # fmt: skip
    grid = {"C": [1 / alpha for alpha in sorted(ALPHAS, reverse=True)]}
    scoring = SCORING[how.metric] if how.metric != "log_loss" or hasattr(plain, "predict_proba") else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the edges of the grid do not converge, and are not chosen for it
        search = GridSearchCV(plain, grid, cv=cv, scoring=scoring, refit=False).fit(X, y, groups=how.groups)
    alpha = 1 / search.best_params_["C"]
    form = {"logistic": "softmax"}.get(loss, "ovr")
    return AggregateLossClassifier(loss=loss, alpha=alpha, multiclass=form, calibration=how.calibration).fit(X, y)


def _aggregate(name: str, X: Array, y: Array, how: How) -> Any:
    """The best setting of an aggregate's whole grid, without a guard."""
    model = AggregateLossClassifierCV(
        loss=how.loss, aggregate=name, guard=0, cv=how.cv, scoring=SCORING[how.metric], calibration=how.calibration,
    )  # fmt: skip
    return model.fit(X, y, groups=how.groups)


def _fixed(made: Any, loss: str, X: Array, y: Array, how: How) -> Any:
    return made(loss=loss or how.loss, multiclass=how.multiclass, calibration=how.calibration).fit(X, y)


#: What ``--model`` may say -> how it is trained; the last three have no search.
MODELS: dict[str, Callable[[Array, Array, How], Any]] = {
    CLOSE_K: _close_k,
    "logistic_regression": lambda X, y, how: _tuned(LogisticRegression(max_iter=1000), "logistic", X, y, how),
    "linear_svc": lambda X, y, how: _tuned(LinearSVC(random_state=0), "squared_hinge", X, y, how),
    **{name: partial(_aggregate, name) for name in AGGREGATES},
    "close-k-cv": _close_k,
    "close-k": lambda X, y, how: _fixed(CloseKClassifier, "", X, y, how),
    "logistic": lambda X, y, how: _fixed(AggregateLossClassifier, "logistic", X, y, how),
    "hinge": lambda X, y, how: _fixed(AggregateLossClassifier, "hinge", X, y, how),
}
#: The name under which a model is tried beside others.
FITTED = "fitted"
#: What compare offers and only Python can keep: there is no file of plain numbers for it.
ELSEWHERE = ("exact_threshold", "random_forest", "gradient_boosting", "k_nn")


def check_model(name: str) -> None:
    """An error that says what to do if ``fit`` cannot save that model."""
    if name.replace("-", "_") in ELSEWHERE:
        raise ValueError(
            f"closecall fit saves linear models, which {name!r} is not; in Python, "
            "make_pipeline(TableEncoder(table.columns), ...) of closecall.tabular.deploy fits any scikit-learn "
            "classifier to the same table, and skops saves it"
        )
    lookup(MODELS, name, "model")


def train(name: str, X: Array, y: Array, how: How) -> Any:
    """A fitted classifier.

    Examples
    --------
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]] * 5), np.array([0, 0, 1, 1] * 5)
    >>> train("logistic_regression", X, y, How()).predict([[0.5]]).tolist()
    [1]
    """
    check_model(name)
    model = MODELS[name](X, y, how)
    if hasattr(model, "cv"):
        model.set_params(cv=None)  # folds of these rows are not part of a saved model
    return model


def _play(name: str, how: How, data: SplitData, metric: Metric) -> Entry:
    calibration = how.calibration if metric.probabilities else None
    inner = How(how.loss, how.multiclass, how.metric, data.cv, data.groups, calibration)
    return entry(FITTED, train(name, *data.known, inner), data, metric)


def contender(name: str, how: How) -> Contender:
    """The model as one more contender: how it does on rows that it has not seen."""
    known = built_in(how.loss, how.multiclass).get(name)
    label = known.label if known else {"close-k-cv": "close-k"}.get(name, name.replace("_", " "))
    return Contender(FITTED, label, known.what if known else "", "linear", partial(_play, name, how))

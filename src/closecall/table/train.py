"""The models that ``closecall fit`` can train, named as in ``closecall compare`` and saved without pickle."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.ensemble import VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, check_cv
from sklearn.svm import LinearSVC

from closecall._names import Array, lookup
from closecall.aggregates import AGGREGATES, get_aggregate
from closecall.families import FAMILIES, family_of
from closecall.linear import AggregateLossClassifier, AggregateLossClassifierCV, CloseKClassifier
from closecall.linear.calibration import fit_calibrators
from closecall.linear.search import ALPHAS
from closecall.model_selection import ExactThresholdClassifier

from .contenders import CLOSE_K, INSTALLED, SCORING, Contender, Entry, built_in, close_k_search, contender_of, entry
from .keep import check_skops
from .measure import METRICS, Metric, wide
from .tuning import Grid, SplitData, dozen, scores_of


@dataclass(frozen=True, eq=False)
class How:
    """How a model is trained: loss, multiclass form, metric, and what folds a search may use."""

    loss: str = "logistic"
    multiclass: str = "top_two"
    metric: str = "accuracy"
    cv: Any = None
    groups: Array | None = field(default=None, repr=False)
    calibration: str | None = "sigmoid"


def _close_k(X: Array, y: Array, how: How) -> Any:
    # Calibrated even where it is logistic regression: accuracy may choose a penalty that flattens probabilities
    # (three churn tables of the gate: quintiles off by up to 6 points, calibrated by up to 5).
    model = close_k_search(how.loss, how.multiclass, how.metric, how.cv, calibration=how.calibration)
    return model.fit(X, y, groups=how.groups)


def _pairs(X: Array, y: Array, how: How, folds: int = 5) -> list[tuple[Array, Array]]:
    """The folds of a fit: by groups or times if given, otherwise stratified."""
    fewest = int(np.unique(y, return_counts=True)[1].min())
    plain = StratifiedKFold(max(2, min(folds, fewest)), shuffle=True, random_state=0)
    return list(check_cv(how.cv or plain).split(X, y, how.groups))


def _tuned(plain: Any, loss: str, X: Array, y: Array, how: How) -> Any:
    """The average of a loss, with alpha = 1/C from a cross-validation of scikit-learn's model."""
    grid = {"C": [1 / alpha for alpha in sorted(ALPHAS, reverse=True)]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the edges of the grid do not converge, and are not chosen for it
        scoring = partial(_worth, METRICS[how.metric])
        search = GridSearchCV(plain, grid, cv=_pairs(X, y, how), scoring=scoring, refit=False).fit(X, y)
    alpha = 1 / search.best_params_["C"]
    form = {"logistic": "softmax"}.get(loss, "ovr")
    return _calibrated(AggregateLossClassifier(loss=loss, alpha=alpha, multiclass=form), X, y, how)


def _worth(metric: Metric, model: Any, X: Array, y: Array) -> float:
    """The score of a model as in `compare`, even if a fold lacks a class or the model has only scores.

    Calibrated probabilities are not available yet at this point, so accuracy is used instead.
    """
    scores, logs = scores_of(model, X, metric.least)
    counted = METRICS["accuracy"] if metric.probabilities and not logs else metric
    return float(counted.value(np.searchsorted(model.classes_, y), wide(scores)))


def _calibrated(model: Any, X: Array, y: Array, how: How) -> Any:
    """The fitted model, calibrated on the same folds as everything else, which keeps groups and times apart."""
    if how.cv is None or how.calibration is None:
        # The same table gives the same model: the folds are not redrawn.
        return model.set_params(calibration=how.calibration, random_state=0).fit(X, y)
    model.fit(X, y)
    scores = np.full((len(y), len(model.intercept_)), np.nan)
    for train, test in _pairs(X, y, how):
        scores[test] = clone(model).fit(X[train], y[train]).decision_function(X[test]).reshape(len(test), -1)
    tested = np.isfinite(scores).all(axis=1)
    codes = np.searchsorted(model.classes_, y[tested])
    model.calibrators_ = fit_calibrators(how.calibration, scores[tested], codes, np.ones(int(tested.sum())))
    return model.set_params(calibration=how.calibration)


def _moved(X: Array, y: Array, how: How) -> Any:
    """Logistic regression with its threshold (its intercept) moved if the gain is real."""
    model = _tuned(LogisticRegression(max_iter=1000), "logistic", X, y, how)
    objective = "balanced_accuracy" if how.metric == "balanced_accuracy" else "accuracy"
    plain = clone(model).set_params(calibration=None)
    judge = ExactThresholdClassifier(plain, objective=objective, cv=how.cv, n_bootstrap=0)
    judge.fit(X, y, groups=how.groups)
    shift = np.atleast_1d(judge.threshold_ if len(model.classes_) > 2 else -judge.threshold_)
    model.intercept_ = model.intercept_ + shift
    for calibrator, moved in zip(getattr(model, "calibrators_", ()), shift, strict=False):
        calibrator[1] -= calibrator[0] * moved  # probabilities are those of the scores as they were
    model.setting_ = judge.guard_report_["reason"]
    return model


def _other(name: str, X: Array, y: Array, how: How) -> Any:
    """A contender that is not linear, with the setting that does best over three folds."""
    metric, codes = METRICS[how.metric], np.unique(y, return_inverse=True)[1]
    classes = int(codes.max()) + 1
    grid = _grid_of(name)
    folds = [
        SplitData((X[train], X[test]), (codes[train], codes[test]), classes)
        for train, test in _pairs(X, codes, how, 3)[-3:]
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of settings at the edge of the grid
        found = [grid.tried(fold, metric)[0] for fold in folds]
        values = np.sum([each[: min(map(len, found))] for each in found], axis=0)
        words, model = grid.final(int(values.argmax()), len(y))
        if name == "xgboost":  # it takes codes only; this one keeps the labels
            model = VotingClassifier([(name, model)], voting="soft")
        model.fit(X, y)
    best = metric.shown(values.max() / len(folds))
    model.setting_ = f"{words}, the best of {len(values)} settings ({best:.4g} {metric.label} over {len(folds)} folds)"
    if len(values) == 1:
        model.setting_ = "with its own defaults"
    return model


def _grid_of(name: str) -> Grid:
    grid = contender_of(name, built_in("logistic", "top_two")).grid
    if grid is None:
        raise ValueError(f"{name!r} has no settings")
    return grid


def _aggregate(name: str, X: Array, y: Array, how: How) -> Any:
    """The best setting of an aggregate's whole grid, or of the dozen that a family has, without a guard."""
    # In `compare` the aggregates one by one are one class against the rest, the families as close-k is.
    names, alphas, form = ((name,), ALPHAS, "ovr") if not family_of(name) else (*dozen(name), how.multiclass)
    model = AggregateLossClassifierCV(
        loss=how.loss, aggregate=names if len(names) > 1 else name, alphas=alphas, guard=0, cv=how.cv,
        scoring=SCORING[how.metric], calibration=how.calibration, multiclass=form, random_state=0,
    )  # fmt: skip
    return model.fit(X, y, groups=how.groups)


def _fixed(made: Any, loss: str, X: Array, y: Array, how: How) -> Any:
    return _calibrated(made(loss=loss or how.loss, multiclass=how.multiclass), X, y, how)


#: What ``--model`` may say -> how it is trained, if the model is linear; the last three have no search.
MODELS: dict[str, Callable[[Array, Array, How], Any]] = {
    CLOSE_K: _close_k,
    "logistic_regression": lambda X, y, how: _tuned(LogisticRegression(max_iter=1000), "logistic", X, y, how),
    "linear_svc": lambda X, y, how: _tuned(LinearSVC(random_state=0), "squared_hinge", X, y, how),
    "exact_threshold": _moved,
    **{name: partial(_aggregate, name) for name in (*AGGREGATES, *FAMILIES)},
    "close-k-cv": _close_k,
    "close-k": lambda X, y, how: _fixed(CloseKClassifier, "", X, y, how),
    "logistic": lambda X, y, how: _fixed(AggregateLossClassifier, "logistic", X, y, how),
    "hinge": lambda X, y, how: _fixed(AggregateLossClassifier, "hinge", X, y, how),
}
#: The name under which a model is tried beside others.
FITTED = "fitted"
#: What else compare offers; it is kept with skops.
OTHERS = (*(each.name for each in built_in("logistic", "top_two").values() if each.family != "linear"), *INSTALLED)


def linear_model(name: str) -> Callable[[Array, Array, How], Any] | None:
    """How a linear model is trained: one of :data:`MODELS`, or a member of a family such as ``tilted(-2)``."""
    return MODELS.get(name) or (partial(_aggregate, name) if name in AGGREGATES else None)


def check_model(name: str) -> str:
    """The canonical name; if there is no such model, or no skops, an error says what to do."""
    if "(" in name:
        return get_aggregate(name).name
    plain = name if name in MODELS or ":" in name else name.replace("-", "_")
    if plain in OTHERS or ":" in plain:
        _grid_of(plain)
        check_skops(plain)
        return plain
    lookup(dict.fromkeys((*MODELS, *AGGREGATES, *OTHERS)), plain, "model")
    return plain


def train(name: str, X: Array, y: Array, how: How) -> Any:
    """A fitted classifier.

    Examples
    --------
    >>> X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]] * 5), np.array([0, 0, 1, 1] * 5)
    >>> train("logistic_regression", X, y, How()).predict([[0.5]]).tolist()
    [1]
    """
    name = check_model(name)
    linear = linear_model(name)
    model = linear(X, y, how) if linear else _other(name, X, y, how)
    if linear and hasattr(model, "cv"):
        model.set_params(cv=None)  # folds of these rows are not part of a saved model
    return model


def _play(name: str, how: How, data: SplitData, metric: Metric) -> Entry:
    calibration = how.calibration if metric.probabilities else None
    inner = How(how.loss, how.multiclass, how.metric, data.cv, data.groups, calibration)
    return entry(FITTED, train(name, *data.known, inner), data, metric)


def contender(name: str, how: How) -> Contender:
    """The model as one more contender, for its held-out performance."""
    name, known = check_model(name), built_in(how.loss, how.multiclass)
    if linear_model(name) and name not in known:
        label = {"close-k-cv": "close-k"}.get(name, name.replace("_", " "))
        return Contender(FITTED, label, "", "linear", partial(_play, name, how))
    found = contender_of(name, known)
    return Contender(FITTED, found.label, found.what, found.family, partial(_play, name, how))

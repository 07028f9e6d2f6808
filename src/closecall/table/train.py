"""The models that ``closecall fit`` can train, named as in ``closecall compare`` and saved without pickle."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
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
from closecall.families import FAMILIES
from closecall.linear import AggregateLossClassifier, CloseKClassifier
from closecall.linear.calibration import fit_calibrators

from .contenders import (
    CLOSE_K,
    EXACT_THRESHOLD,
    INSTALLED,
    LOGISTIC,
    Contender,
    Entry,
    built_in,
    contender_of,
    entry,
    fit_threshold,
    search_of,
)
from .keep import check_skops
from .measure import METRICS, Metric, wide
from .tuning import CS, How, SplitData, scores_of


def _searched(name: str, X: Array, y: Array, how: How) -> Any:
    # The model is calibrated even if it is logistic regression, because accuracy may choose a penalty that flattens
    # probabilities (on three churn tables, quintiles were off by up to 6 points; calibrated, by up to 5).
    return search_of(name, how).fit(X, y, groups=how.groups)


def _pairs(X: Array, y: Array, how: How, folds: int = 5) -> list[tuple[Array, Array]]:
    """Return the folds of a fit: by groups or times if given, otherwise stratified."""
    fewest = int(np.unique(y, return_counts=True)[1].min())
    plain = StratifiedKFold(max(2, min(folds, fewest)), shuffle=True, random_state=0)
    return list(check_cv(how.cv or plain).split(X, y, how.groups))


def _tuned(plain: Any, loss: str, X: Array, y: Array, how: How) -> Any:
    """Fit a model that minimises the average loss, with alpha = 1/C from a cross-validation of scikit-learn's model."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # settings at the edges of the grid do not converge
        scoring = partial(_worth, METRICS[how.metric])
        search = GridSearchCV(plain, {"C": CS}, cv=_pairs(X, y, how), scoring=scoring, refit=False).fit(X, y)
    alpha = 1 / search.best_params_["C"]
    form = {"logistic": "softmax"}.get(loss, "ovr")
    return _calibrated(AggregateLossClassifier(loss=loss, alpha=alpha, multiclass=form), X, y, how)


def _worth(metric: Metric, model: Any, X: Array, y: Array) -> float:
    """Score a model as `compare` does, even if a fold lacks a class or the model has only scores.

    Calibrated probabilities are not available yet at this point, so accuracy replaces metrics that need them.
    """
    scores, logs = scores_of(model, X, metric.least)
    counted = METRICS["accuracy"] if metric.probabilities and not logs else metric
    return counted.value(np.searchsorted(model.classes_, y), wide(scores))


def _calibrated(model: Any, X: Array, y: Array, how: How) -> Any:
    """Fit and calibrate a model on the folds of the search, which keep groups and times apart."""
    if how.cv is None or how.calibration is None:
        # A fixed seed, because the same table must give the same model.
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
    """Fit logistic regression with its threshold (its intercept) moved if the gain is significant."""
    model = _tuned(LogisticRegression(max_iter=1000), "logistic", X, y, how)
    judge = fit_threshold(clone(model).set_params(calibration=None), how.metric, X, y, how.cv, how.groups)
    shift = np.atleast_1d(judge.threshold_ if len(model.classes_) > 2 else -judge.threshold_)
    model.intercept_ = model.intercept_ + shift
    for calibrator, moved in zip(getattr(model, "calibrators_", ()), shift, strict=False):
        calibrator[1] -= calibrator[0] * moved  # the probabilities refer to the scores before the move
    model.setting_ = judge.guard_report_["reason"]
    return model


def _other(name: str, X: Array, y: Array, how: How) -> Any:
    """Fit a nonlinear contender with the setting that does best over three folds."""
    metric, codes = METRICS[how.metric], np.unique(y, return_inverse=True)[1]
    classes = int(codes.max()) + 1
    grid: Any = contender_of(name).grid
    folds = [
        SplitData((X[train], X[test]), (codes[train], codes[test]), classes)
        for train, test in _pairs(X, codes, how, 3)[-3:]
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # settings at the edges of the grid do not converge
        found = [grid.tried(fold, metric)[0] for fold in folds]
        values = np.sum([each[: min(map(len, found))] for each in found], axis=0)
        words, model = grid.final(int(values.argmax()), len(y))
        if name == "xgboost":  # XGBoost accepts only codes; the wrapper keeps the labels
            model = VotingClassifier([(name, model)], voting="soft")
        model.fit(X, y)
    best = metric.shown(values.max() / len(folds))
    model.setting_ = f"{words}, the best of {len(values)} settings ({best:.4g} {metric.label} over {len(folds)} folds)"
    if len(values) == 1:
        model.setting_ = "with its default parameters"
    return model


def _fixed(made: Any, loss: str, X: Array, y: Array, how: How) -> Any:
    return _calibrated(made(loss=loss or how.loss, multiclass=how.multiclass), X, y, how)


#: How each linear model that ``--model`` accepts is trained; the last three have fixed settings.
MODELS: dict[str, Callable[[Array, Array, How], Any]] = {
    LOGISTIC: lambda X, y, how: _tuned(LogisticRegression(max_iter=1000), "logistic", X, y, how),
    "linear_svc": lambda X, y, how: _tuned(LinearSVC(random_state=0), "squared_hinge", X, y, how),
    EXACT_THRESHOLD: _moved,
    **{name: partial(_searched, name) for name in (CLOSE_K, *AGGREGATES, *FAMILIES)},
    "close-k": lambda X, y, how: _fixed(CloseKClassifier, "", X, y, how),
    "logistic": lambda X, y, how: _fixed(AggregateLossClassifier, "logistic", X, y, how),
    "hinge": lambda X, y, how: _fixed(AggregateLossClassifier, "hinge", X, y, how),
}
#: The name of the fitted model in a comparison with others.
FITTED = "fitted"
#: The nonlinear models, which are saved with skops.
OTHERS = (*(each.name for each in built_in(How()).values() if each.family != "linear"), *INSTALLED)


def linear_model(name: str) -> Callable[[Array, Array, How], Any] | None:
    """Return the function that trains a model of :data:`MODELS` or a member of a family; None if it is not linear."""
    return MODELS.get(name) or (partial(_searched, name) if name in AGGREGATES else None)


def check_model(name: str) -> str:
    """Return the canonical name; an unknown model or a missing package raises an error that states what to do."""
    if "(" in name:
        return get_aggregate(name).name
    plain = name if name in MODELS or ":" in name else name.replace("-", "_")
    if plain in OTHERS or ":" in plain:
        contender_of(plain)
        check_skops(plain)
        return plain
    lookup(dict.fromkeys((*MODELS, *AGGREGATES, *OTHERS)), plain, "model")
    return plain


def train(name: str, X: Array, y: Array, how: How) -> Any:
    """Fit a model to X (samples, features) and labels y (samples,)."""
    linear = linear_model(name := check_model(name))
    if not linear:
        return _other(name, X, y, how)
    model = linear(X, y, how)
    if hasattr(model, "cv"):
        model.set_params(cv=None)  # folds of these rows are not part of a saved model
    return model


def _run(name: str, how: How, data: SplitData, metric: Metric) -> Entry:
    calibration = how.calibration if metric.probabilities else None
    inner = replace(how, cv=data.cv, groups=data.groups, calibration=calibration)
    return entry(FITTED, train(name, *data.known, inner), data, metric)


def contender(name: str, how: How) -> Contender:
    """Return the model as a contender, to measure its held-out performance."""
    only_fitted = linear_model(name) and name not in built_in(how)
    found = Contender(FITTED, name.replace("_", " "), "", "linear") if only_fitted else contender_of(name, how)
    return replace(found, name=FITTED, grid=None, own=partial(_run, name, how))

"""Train the models of ``closecall fit``, and estimate how well they predict; ``compare`` uses the same names."""

from __future__ import annotations

import warnings
from collections import Counter
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
from closecall.linear.base import LinearClassifier
from closecall.linear.calibration import fit_calibrators
from closecall.paired import FEWEST
from closecall.report.formats import Row
from closecall.table.read.sheet import Sheet

from .compare import LEAST, ComparePlan, run_splits
from .conclude import Conclusion, conclude
from .contenders import (
    CLOSE_K,
    EXACT_THRESHOLD,
    INSTALLED,
    LOGISTIC,
    MAJORITY,
    Contender,
    Entry,
    built_in,
    contender_of,
    entry,
    fit_threshold,
    search_of,
)
from .divide import Order
from .keep import check_skops
from .measure import METRICS, Metric, wide
from .tuning import CS, How, SplitData, scores_of


def _searched(name: str, X: Array, y: Array, how: How) -> Any:
    # The model is calibrated even if it is logistic regression, because accuracy may choose a penalty that flattens
    # probabilities (on three churn tables, quintiles were off by up to 6 points; after calibration, by up to 5).
    return search_of(name, how).fit(X, y, groups=how.groups)


def _pairs(X: Array, y: Array, how: How, folds: int = 5) -> list[tuple[Array, Array]]:
    """Return the folds for a fit: by groups or times if given, otherwise stratified."""
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
    """Score a model as ``compare`` does, even if a fold lacks a class or the model gives only scores."""
    scores, logs = scores_of(model, X, metric.least)
    if metric.probabilities and not logs:  # no calibrated probabilities are available yet
        metric = METRICS["accuracy"]
    return metric.value(np.searchsorted(model.classes_, y), wide(scores))


def _calibrated(model: Any, X: Array, y: Array, how: How) -> Any:
    """Fit and calibrate a model on the folds of the search, which respect groups and times."""
    if how.cv is None or how.calibration is None:
        # The seed is fixed, because the same table must give the same model.
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
    """Fit a nonlinear contender with the setting that does best across three folds."""
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
#: The smallest number of rows for which the splits of an estimate run in separate processes.
LARGE = 20_000
#: The nonlinear models, which are saved with skops.
OTHERS = (*(each.name for each in built_in(How()).values() if each.family != "linear"), *INSTALLED)


def linear_model(name: str) -> Callable[[Array, Array, How], Any] | None:
    """Return the function that trains a model of :data:`MODELS` or a member of a family; None if it is not linear."""
    return MODELS.get(name) or (partial(_searched, name) if name in AGGREGATES else None)


def check_model(name: str) -> str:
    """Return the canonical name of a model; an unknown name or a missing package raises an error with advice."""
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


def _contender(name: str, how: How) -> Contender:
    """Return the model as a contender, to measure its held-out performance."""

    def run(data: SplitData, metric: Metric) -> Entry:
        calibration = how.calibration if metric.probabilities else None
        inner = replace(how, cv=data.cv, groups=data.groups, calibration=calibration)
        return entry(FITTED, train(name, *data.known, inner), data, metric)

    only_fitted = linear_model(name) and name not in built_in(how)
    found = Contender(FITTED, name.replace("_", " "), "", "linear") if only_fitted else contender_of(name, how)
    return replace(found, name=FITTED, grid=None, own=run)


def estimate_words(estimate: Conclusion) -> str:
    """Return an estimate as a sentence."""
    metric, found, words = estimate.metric, estimate.found, ""
    distinct = {found[name].label: found[name] for name in (estimate.plain, FITTED)}
    for result in reversed(distinct.values()):
        mean, low, high = (f"{each:.{metric.rough}f}" for each in result.shown(metric))
        words += f"{mean} ({low} to {high}) {result.label}; "
    always = f"{metric.shown(found[MAJORITY].mean):.{metric.rough}f} always {estimate.majority!r}"
    return f"cross-validated {metric.label}, {len(found[FITTED].values)} splits, 95 % intervals: {words}{always}"


def estimate_record(estimate: Conclusion) -> Row:
    """Return an estimate as a record for JSON output."""
    metric, found = estimate.metric, estimate.found
    record: Row = {"metric": metric.name, "splits": len(found[FITTED].values)}
    for name, result in (("model", found[FITTED]), ("plain", found[estimate.plain]), ("majority", found[MAJORITY])):
        record[name] = {"label": result.label, **result.record(metric, "mean")}
    return record


def why_none(table: Sheet, splits: int, order: Order) -> str:
    """Return the reason why no estimate is possible; empty if it is possible or was not requested."""
    if splits >= 2 and order.few:
        return f"no estimate: {order.few} groups are too few to estimate an error; {FEWEST} are needed"
    rare, count = min(Counter(map(str, table.labels)).items(), key=lambda each: each[1])
    if splits < 2 or count >= LEAST:
        return ""
    return f"no estimate: the class {rare!r} has {count} rows, and {LEAST} are needed to test the model"


def estimate(table: Sheet, model: str, how: How, order: Order, splits: int, seed: int) -> Conclusion | None:
    """Evaluate a model on held-out rows, alongside logistic regression and a constant prediction of the largest class.

    Return None if no estimate was requested (fewer than two splits) or none is possible; see :func:`why_none`.
    """
    if splits < 2 or why_none(table, splits, order):
        return None
    jobs = 0 if len(table.labels) >= LARGE else 1
    plan = ComparePlan(how.loss, how.multiclass, how.metric, how.squashed, splits=splits, seed=seed, jobs=jobs)
    contenders = (_contender(model, how), contender_of(plan.plain[0]))
    return conclude(table, list(run_splits(table, plan, order, contenders)), plan, contenders, order)


def chosen_words(classifier: Any, model: str, metric: Metric) -> str:
    """Return a sentence on the chosen setting and the reason for it; ``metric`` is the one used in the search."""
    setting = getattr(classifier, "setting_", "")
    if not isinstance(classifier, LinearClassifier):
        return f"chosen: {type(classifier).__name__} as requested by --model {model}, {setting}"
    counts = f"alpha = {getattr(classifier, 'alpha_', getattr(classifier, 'alpha', 0)):g}"
    if not hasattr(classifier, "best_params_"):
        kind = classifier.aggregate.replace("_", " ")
        words = f"chosen: {kind} with the {classifier.loss} loss and {counts}, as requested by --model {model}"
        return f"{words}; {setting}" if setting else words
    # The multiclass form is left out: `chosen` names the aggregate itself.
    kind = _kind({**classifier.best_params_, "aggregate": classifier.aggregate_, "multiclass": ""})
    if classifier.k_ < classifier.n_training_mass_:
        counts = f"k = {classifier.k_:g} of {classifier.n_training_mass_:g} rows, {counts}"
    steps = classifier.guard_report_["comparisons"]
    if not steps:
        return f"chosen: {kind} with {counts}, which has the best mean score"
    won = [step for step in steps if step["taken"]]
    step = won[-1] if won else max(steps, key=lambda each: each["gain"])
    found, needed = (metric.gain(step[name]) for name in ("gain", "needed"))
    gain = f"{found:+.{metric.rough}f} {metric.unit} (a clear gain needs {needed:.{metric.rough}f})"
    reason = f"it is better than {_kind(step['reference'])}: {gain}"
    if not won:
        lost = f"{_kind(step['challenger'])} is not clearly better: {gain}"
        reason = lost if step["gain"] > 0 else "nothing else is better"
    return f"chosen: {kind} with {counts}, because {reason}"


def _kind(setting: Row) -> str:
    softmax = setting["multiclass"] == "softmax" and get_aggregate(setting["aggregate"]).plain
    name = "multinomial logistic regression" if softmax else str(setting["aggregate"]).replace("_", " ")
    details = {"exact_intercept": ", exact intercept", "without_outliers": ", without outliers"}
    return name + "".join(words for key, words in details.items() if setting[key])

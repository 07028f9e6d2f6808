"""The contenders of a comparison: the name, label and one-line description of each, and how it is tuned.

Each contender is trained on the training part, tuned on the validation part, retrained on both parts and scored on the
test part. LogisticRegression has eleven settings; the others have about as many, so that none gains an advantage by
trying more.
"""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.special import softmax
from sklearn.base import is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from closecall._names import Array
from closecall.aggregates import AGGREGATES, get_aggregate
from closecall.families import FAMILIES, family_of
from closecall.linear import AggregateLossClassifier, AggregateLossClassifierCV, CloseKClassifierCV
from closecall.linear.search import ALPHAS
from closecall.model_selection import ExactThresholdClassifier

from .measure import METRICS, Metric, sigmoids, wide
from .tuning import CS, NEIGHBOURS, ROUNDS, TRIED, Boosting, Grid, How, SplitData, dozen, imported, judged, scores_of

CLOSE_K = "close_k"
LOGISTIC = "logistic_regression"
#: LogisticRegression on columns that are scaled by their mean and standard deviation.
UNSQUASHED = "plain_logistic_regression"
EXACT_THRESHOLD = "exact_threshold"
MAJORITY = "majority"
LOGISTIC_GRID = Grid(LogisticRegression, {"C": CS}, {"max_iter": 1000}, "C={C:g}")
#: Contenders that take part by default.
USUAL = (CLOSE_K, LOGISTIC, UNSQUASHED, EXACT_THRESHOLD, "random_forest", "gradient_boosting")
#: The plain model that close-k is compared with, by loss: name, verdict and description. Other losses use the plain
#: model of the logistic loss.
PLAIN = {
    "logistic": (LOGISTIC, "logistic", "plain logistic regression"),
    "hinge": ("linear_svc", "svm", "a plain linear SVM"),
}


@dataclass(frozen=True, eq=False)
class Entry:
    """The result of one contender on one split: its value, the codes it predicted, and the setting that was chosen.

    ``scores`` (samples, classes) belong to the test rows; ``coef`` (scores, features) are the coefficients of close-k.
    """

    method: str
    loss: str
    value: float
    predicted: Array
    k: float = float("nan")
    alpha: float = float("nan")
    setting: str = ""
    scores: Any = field(default=None, repr=False)
    coef: Any = field(default=None, repr=False)


@dataclass(frozen=True)
class Contender:
    """A contender with settings to tune (``grid``), or with a function of its own that returns an :class:`Entry`.

    ``family`` is ``linear``, ``tree``, ``other`` or ``majority``.
    """

    name: str
    label: str
    what: str
    family: str
    grid: Any = None
    own: Any = None

    def run(self, data: SplitData, metric: Metric) -> Entry:
        """Return the result on the test part of a split."""
        return _tuned(self.name, self.grid, data, metric) if self.grid else self.own(data, metric)


def entry(name: str, model: Any, data: SplitData, metric: Metric, tried: Any = None, **chosen: Any) -> Entry:
    """Return the result on the test part for a model that was trained on the other two parts.

    ``tried`` is the same model trained on the training part only; it is used to map raw scores to probabilities.
    """
    calibrators = None
    if metric.probabilities and tried is not None:
        raw, logs = scores_of(tried, data.X[1])
        calibrators = None if logs else sigmoids(raw, data.y[1])
    scores = judged(model, data, 2, metric, calibrators)
    predicted = np.asarray(model.predict(data.X[2])).ravel().astype(int)
    return Entry(name, "", metric.value(data.y[2], scores), predicted, scores=scores, **chosen)


def _tuned(name: str, grid: Grid, data: SplitData, metric: Metric) -> Entry:
    """Choose the setting that is best in validation (the first if tied), fit it to both parts, and score it."""
    if name == UNSQUASHED:
        data = replace(data, X=data.plain or data.X, chosen={})
    values, kept = grid.tried(data, metric)
    words, model = grid.final(int(values.argmax()), len(data.y[0]))
    alpha = 1 / model.C if hasattr(model, "C") else getattr(model, "alpha", float("nan"))
    data.chosen[name] = alpha
    return entry(name, model.fit(*data.known), data, metric, kept, setting=words, alpha=alpha)


def search_of(name: str, how: How) -> Any:
    """Return the search that ``closecall fit`` runs for aggregates or close-k (chosen if its gain is significant)."""
    calibration = "sigmoid" if how.metric in ("log_loss", "auc") else how.calibration
    shared = {"loss": how.loss, "scoring": METRICS[how.metric].scoring, "cv": how.cv, "calibration": calibration}
    if name == CLOSE_K:
        return CloseKClassifierCV(multiclass=how.multiclass, random_state=0, **shared)
    # Single aggregates are fitted one class against the rest; families are fitted like close-k.
    names, alphas, form = (*dozen(name), how.multiclass) if family_of(name) else ((name,), ALPHAS, "ovr")
    shared |= {"aggregate": names if len(names) > 1 else name, "alphas": alphas, "multiclass": form}
    return AggregateLossClassifierCV(guard=0, random_state=0, **shared)


def _searched(name: str, how: How, data: SplitData, metric: Metric) -> Entry:
    """Return the result of a model that ``closecall fit`` trains by a search with its own folds."""
    model = search_of(name, replace(how, cv=data.cv, calibration=None)).fit(*data.known, groups=data.groups)
    share = float(model.k_ / model.n_training_mass_) * len(data.y[0])
    scores = wide(np.asarray(model.decision_function(data.X[2]), dtype=float))
    found = entry(name, model, data, metric, k=share, alpha=model.alpha_, setting=model.aggregate_)
    return replace(found, loss=how.loss, scores=scores, coef=model.coef_)


def fit_threshold(model: Any, metric: str, X: Array, y: Array, cv: Any, groups: Array | None) -> Any:
    """Fit a classifier whose threshold is moved if the gain is significant."""
    objective = "balanced_accuracy" if metric == "balanced_accuracy" else "accuracy"
    return ExactThresholdClassifier(model, objective=objective, cv=cv, n_bootstrap=0).fit(X, y, groups=groups)


def _exact_threshold(data: SplitData, metric: Metric) -> Entry:
    """Tune LogisticRegression on the validation part, and move its threshold if the gain is significant."""
    if LOGISTIC not in data.chosen:
        _tuned(LOGISTIC, LOGISTIC_GRID, data, metric)
    best = data.chosen[LOGISTIC]
    plain = LogisticRegression(C=1 / best, max_iter=1000)
    model = fit_threshold(plain, metric.name, *data.known, data.cv, data.groups)
    predicted = np.asarray(model.predict(data.X[2]))
    value = metric.value(data.y[2], (predicted[:, None] == np.arange(data.classes)).astype(float))
    moved = "moved" if model.guard_report_["taken"] else "kept"
    return Entry(EXACT_THRESHOLD, "", value, predicted, alpha=best, setting=moved)


def _largest(data: SplitData, metric: Metric) -> Entry:
    """Always predict the largest class, with the shares of the classes as probabilities."""
    counts = np.maximum(np.bincount(data.known[1], minlength=data.classes), 0.5)
    scores = np.tile(np.log(softmax(np.log(counts))), (len(data.y[2]), 1))
    return Entry(MAJORITY, "", metric.value(data.y[2], scores), scores.argmax(axis=1))


#: The contender that takes part in every comparison.
LARGEST = Contender(MAJORITY, "always the largest class", "no model: the most frequent class of the training rows",
                    "majority", own=_largest)  # fmt: skip
_TREES = "which find curves and interactions"
#: Contenders from other packages, by name; a package is imported only if its contender takes part.
INSTALLED = {
    each.name: each
    for each in (
        Contender("lightgbm", "LightGBM", f"boosted trees from another library, {_TREES}", "tree",
                  Grid("lightgbm:LGBMClassifier", {"num_leaves": (4, 12, 31), "n_estimators": ROUNDS},
                       {"random_state": 0, "verbose": -1, "n_jobs": 1})),
        Contender("xgboost", "XGBoost", f"boosted trees from another library, {_TREES}", "tree",
                  Grid("xgboost:XGBClassifier", {"max_depth": (2, 4, 6), "n_estimators": ROUNDS},
                       {"learning_rate": 0.1, "random_state": 0, "n_jobs": 1})),
        Contender("catboost", "CatBoost", f"boosted trees from another library, {_TREES}", "tree",
                  Grid("catboost:CatBoostClassifier", {"depth": (2, 4, 6), "iterations": ROUNDS},
                       {"random_seed": 0, "verbose": False, "thread_count": 1, "allow_writing_files": False})),
        Contender("ebm", "EBM", "a sum of curves, one for each column; it can be read like a linear model", "tree",
                  Grid("interpret.glassbox:ExplainableBoostingClassifier",
                       {"max_leaves": (2, 4), "max_rounds": (50, 200)},
                       {"learning_rate": 0.1, "interactions": 0, "outer_bags": 2, "random_state": 0, "n_jobs": 1})),
    )
}  # fmt: skip


def built_in(how: How) -> dict[str, Contender]:
    """Return the contenders from scikit-learn and closecall, by name."""
    found = [
        Contender(CLOSE_K, "close-k", "what `closecall fit` trains: the average loss, or close-k if its gain is clear",
                  "linear", own=partial(_searched, CLOSE_K, how)),
        Contender(LOGISTIC, "LogisticRegression", "scikit-learn's linear model with the logistic loss", "linear",
                  LOGISTIC_GRID),
        Contender(UNSQUASHED, "LogisticRegression, not squashed", "LogisticRegression on columns with variance 1",
                  "linear", LOGISTIC_GRID),
        Contender("linear_svc", "LinearSVC", "scikit-learn's linear model with the squared hinge loss", "linear",
                  Grid(LinearSVC, {"C": CS}, {"random_state": 0}, "C={C:g}")),
        Contender(EXACT_THRESHOLD, "LogisticRegression, exact threshold",
                  "LogisticRegression with its threshold moved if the gain is significant", "linear",
                  own=_exact_threshold),
        Contender("random_forest", "RandomForest", f"averaged trees, {_TREES}", "tree",
                  Grid(RandomForestClassifier, {"max_features": ("sqrt", 1, 0.7), "min_samples_leaf": (1, 3, 10, 30)},
                       {"n_estimators": TRIED, "random_state": 0},
                       "max_features={max_features}, leaves of {min_samples_leaf}")),
        Contender("gradient_boosting", "HistGradientBoosting", f"boosted trees, {_TREES}", "tree",
                  Boosting(HistGradientBoostingClassifier, {"max_leaf_nodes": (4, 12, 31), "max_iter": ROUNDS},
                           {"early_stopping": False, "random_state": 0}, "{max_leaf_nodes} leaves, {max_iter} rounds")),
        # Without a search tree, only the rows have to be saved.
        Contender("k_nn", "k nearest neighbours", "the vote of the nearest rows", "other",
                  Grid(KNeighborsClassifier, {"n_neighbors": NEIGHBOURS}, {"algorithm": "brute"},
                       "{n_neighbors} neighbours")),
        *(_family(name, how) for name in FAMILIES),
        *(Contender(name, name.replace("_", " "), "one aggregate by itself, with the best of all its settings",
                    "linear", own=partial(_searched, name, how)) for name in AGGREGATES),
    ]  # fmt: skip
    return {contender.name: contender for contender in found}


def _family(name: str, how: How) -> Contender:
    """Return a family of aggregates or one of its members."""
    family = family_of(name)
    if family is None:
        raise ValueError(f"{name!r} is not a family of aggregates; choose one of: {', '.join(FAMILIES)}")
    label = family.label if name in FAMILIES else get_aggregate(name).name
    names, alphas = dozen(name)
    fixed = {"loss": how.loss, "multiclass": how.multiclass, "tol": 1e-3}
    grid = Grid(AggregateLossClassifier, {"aggregate": names, "alpha": alphas}, fixed, "{aggregate}, alpha={alpha:g}")
    return Contender(name, label, family.what, "linear", grid)


def _class(place: str) -> Contender:
    """Return the classifier ``package:Class``, as named by the user, as a contender."""
    kind = imported(place)
    try:
        usable = is_classifier(kind())
    except TypeError as error:
        needs = f"cannot be created without parameters ({error}); wrap it in a class"
        raise ValueError(f"--with {place!r} {needs}") from error
    if not usable:
        raise ValueError(f"--with {place!r} is not a scikit-learn classifier; it needs fit and predict")
    return Contender(place, place.partition(":")[2], f"{place} with its default parameters", "other", Grid(kind))


def contender_of(name: str, how: How | None = None) -> Contender:
    """Return the contender with the given name; an unknown name raises an error that lists all names."""
    how = how or How()
    known, plain = built_in(how), name.replace("-", "_")
    if "(" in name:
        return _family(name, how)
    if plain in known:
        return known[plain]
    if ":" in name:
        return _class(name)
    if plain not in INSTALLED:
        names = ", ".join((*known, *INSTALLED))
        raise ValueError(
            f"unknown contender {name!r}; choose one of: {names}, or package:Class from an installed package"
        )
    imported(INSTALLED[plain].grid.make)
    return INSTALLED[plain]


def libraries() -> dict[str, str]:
    """Return an error message for each installed contender of :data:`INSTALLED`; the message is empty if it works."""
    found = {}
    for name, each in INSTALLED.items():
        if importlib.util.find_spec(re.split("[:.]", each.grid.make)[0]) is not None:
            try:
                imported(each.grid.make)
                found[name] = ""
            except Exception as error:  # a broken package must not end a comparison that does not need it
                found[name] = f"{name} is installed but cannot be used, so it is left out ({error})"
    return found

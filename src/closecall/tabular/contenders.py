"""Who takes part in a comparison: a name, a label and a line for each, and how each is tuned.

Everyone learns from the training part, is chosen on the validation part, learns again from both and counts on the test
part. LogisticRegression has eleven settings; the others have about as many, so that nobody wins by trying more.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from sklearn.base import is_classifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from closecall._names import Array
from closecall.linear import CloseKClassifierCV
from closecall.linear.search import ALPHAS
from closecall.model_selection import ExactThresholdClassifier

from .measure import Metric, log_probabilities, logs_of, sigmoids, wide

#: Trees of a forest while it is tuned, and of the one that counts.
TRIED, TREES = 8, 100
ROUNDS = (25, 50, 75, 100)
CLOSE_K = "close_k"
MAJORITY = "majority"


@dataclass(frozen=True, eq=False)
class SplitData:
    """One split: matrices and codes of the three parts, and what a search may divide by inside the first two."""

    X: Sequence[Array]
    y: Sequence[Array]
    classes: int
    cv: Any = None
    groups: Array | None = None

    @property
    def known(self) -> tuple[Array, Array]:
        """Training and validation part together."""
        return np.concatenate(self.X[:2]), np.concatenate(self.y[:2])


@dataclass(frozen=True, eq=False)
class Entry:
    """One contender on one split: its value, the codes it predicted, and the setting that was chosen."""

    method: str
    loss: str
    value: float
    predicted: Array
    k: float = float("nan")
    alpha: float = float("nan")
    setting: str = ""
    #: Of close-k: scores of the test rows (samples, classes), coefficients (scores, features) and their names.
    scores: Array | None = field(default=None, repr=False)
    coef: Array | None = field(default=None, repr=False)


Play = Callable[[SplitData, Metric], Entry]


@dataclass(frozen=True)
class Contender:
    """Who takes part: name, label, one line, ``linear``, ``tree`` or ``other``, and how it plays."""

    name: str
    label: str
    what: str
    family: str
    play: Play


Settings = Sequence[tuple[str, Any]]


def scores_of(model: Any, X: Array) -> tuple[Array, bool]:
    """Scores (samples, 1 or classes) of a fitted model, and whether they are logarithms of probabilities."""
    if hasattr(model, "predict_proba"):
        return logs_of(model.predict_proba(X)), True
    if hasattr(model, "decision_function"):
        scores = np.asarray(model.decision_function(X), dtype=float)
        return (scores[:, None] if scores.ndim == 1 else scores), False
    return (np.asarray(model.predict(X))[:, None] == model.classes_).astype(float), False


def judged(model: Any, data: SplitData, part: int, metric: Metric, sigmoid: tuple[Array, Array] | None = None) -> Array:
    """Scores (samples, classes) of a part as the metric wants them; ``sigmoid`` makes raw scores probabilities."""
    scores, logs = scores_of(model, data.X[part])
    if metric.probabilities and not logs:
        if sigmoid is None:
            sigmoid = sigmoids(scores[None], data.y[part])
        return log_probabilities(scores, sigmoid[0][0], sigmoid[1][0])
    return wide(scores)


def entry(name: str, model: Any, data: SplitData, metric: Metric, tried: Any = None, **chosen: Any) -> Entry:
    """What a model that has learnt from both parts does on the test part.

    ``tried`` is the same model as the validation part saw it: by it, raw scores become probabilities.
    """
    sigmoid = None
    if metric.probabilities and tried is not None:
        raw, logs = scores_of(tried, data.X[1])
        sigmoid = None if logs else sigmoids(raw[None], data.y[1])
    scores = judged(model, data, 2, metric, sigmoid)
    predicted = np.asarray(model.predict(data.X[2])).ravel().astype(int)
    return Entry(name, chosen.pop("loss", ""), float(metric.value(data.y[2], scores)), predicted, **chosen)


def _tuned(name: str, settings: Callable[[int], Settings], data: SplitData, metric: Metric) -> Entry:
    """The setting that does best on the validation part, the first of equals, fitted again on both parts."""
    best, place, kept = -np.inf, 0, None
    choices = settings(len(data.y[0]))
    for number, (_, model) in enumerate(choices if len(choices) > 1 or metric.probabilities else ()):
        fitted = model.fit(data.X[0], data.y[0])
        value = float(metric.value(data.y[1], judged(fitted, data, 1, metric)))
        if value > best:
            best, place, kept = value, number, fitted
    words, model = settings(len(data.y[0]))[place]
    if hasattr(model, "n_estimators") and model.n_estimators == TRIED:
        model.set_params(n_estimators=TREES)
    alpha = 1 / model.C if hasattr(model, "C") else float("nan")
    return entry(name, model.fit(*data.known), data, metric, kept, setting=words, alpha=alpha)


def _boosting(name: str, data: SplitData, metric: Metric) -> Entry:
    """HistGradientBoosting: every number of rounds of a fit is a setting of its own."""
    best, chosen = -np.inf, (4, ROUNDS[0])
    for leaves in (4, 12, 31):
        model = _boosted(leaves, ROUNDS[-1]).fit(data.X[0], data.y[0])
        for rounds, probabilities in enumerate(model.staged_predict_proba(data.X[1]), 1):
            if rounds in ROUNDS:
                value = float(metric.value(data.y[1], logs_of(probabilities)))
                if value > best:
                    best, chosen = value, (leaves, rounds)
    model = _boosted(*chosen).fit(*data.known)
    return entry(name, model, data, metric, setting=f"{chosen[0]} leaves, {chosen[1]} rounds")


def _boosted(leaves: int, rounds: int) -> Any:
    return HistGradientBoostingClassifier(max_leaf_nodes=leaves, max_iter=rounds, early_stopping=False, random_state=0)


def _logistic(_: int) -> Settings:
    return [(f"C={1 / a:g}", LogisticRegression(C=1 / a, max_iter=1000)) for a in sorted(ALPHAS, reverse=True)]


def _svm(_: int) -> Settings:
    return [(f"C={1 / a:g}", LinearSVC(C=1 / a, random_state=0)) for a in sorted(ALPHAS, reverse=True)]


def _forest(_: int) -> Settings:
    return [
        (f"max_features={feats}, leaves of {leaf}",
         RandomForestClassifier(TRIED, max_features=feats, min_samples_leaf=leaf, random_state=0))
        for feats, leaf in product(("sqrt", 1, 0.7), (1, 3, 10, 30))
    ]  # fmt: skip


def _neighbours(rows: int) -> Settings:
    counts = [count for count in (1, 3, 5, 7, 11, 15, 21, 31, 45, 65, 95) if count < rows] or [1]
    return [(f"{count} neighbours", KNeighborsClassifier(count)) for count in counts]


#: How our metrics are called by scikit-learn's scorers, for the searches of our classifiers.
SCORING = {"accuracy": None, "balanced_accuracy": "balanced_accuracy", "f1": "f1_macro", "log_loss": "neg_log_loss",
           "auc": "roc_auc_ovr"}  # fmt: skip


def close_k_search(loss: str, multiclass: str, metric: str, cv: Any = None, *, calibration: str | None = None) -> Any:
    """What ``closecall fit`` trains: close-k where cross-validation finds a real gain, else the average loss."""
    if metric in ("log_loss", "auc"):
        calibration = calibration or "sigmoid"
    return CloseKClassifierCV(loss=loss, multiclass=multiclass, scoring=SCORING[metric], cv=cv, calibration=calibration)


def _close_k(loss: str, multiclass: str, data: SplitData, metric: Metric) -> Entry:
    model = close_k_search(loss, multiclass, metric.name, data.cv).fit(*data.known, groups=data.groups)
    share = float(model.k_ / model.n_training_mass_) * len(data.y[0])
    scores = np.asarray(model.decision_function(data.X[2]), dtype=float)
    found = entry(CLOSE_K, model, data, metric, None, k=share, alpha=model.alpha_, setting=model.aggregate_)
    raw = wide(scores[:, None] if scores.ndim == 1 else scores)
    return replace(found, loss=loss, scores=raw, coef=model.coef_)


def _exact_threshold(data: SplitData, metric: Metric) -> Entry:
    """LogisticRegression as the validation part chooses it, its threshold moved where the gain is real."""
    best = max(ALPHAS, key=lambda a: (_valued(LogisticRegression(C=1 / a, max_iter=1000), data, metric), a))
    objective = "balanced_accuracy" if metric.name == "balanced_accuracy" else "accuracy"
    plain = LogisticRegression(C=1 / best, max_iter=1000)
    model = ExactThresholdClassifier(plain, objective=objective, cv=data.cv, n_bootstrap=0)
    model.fit(*data.known, groups=data.groups)
    predicted = np.asarray(model.predict(data.X[2]))
    value = float(metric.value(data.y[2], (predicted[:, None] == np.arange(data.classes)).astype(float)))
    moved = "moved" if model.guard_report_["taken"] else "kept"
    return Entry("exact_threshold", "", value, predicted, alpha=best, setting=moved)


def _valued(model: Any, data: SplitData, metric: Metric) -> float:
    return float(metric.value(data.y[1], judged(model.fit(data.X[0], data.y[0]), data, 1, metric)))


def _made(make: Callable[..., Any], grid: dict[str, Sequence[Any]], fixed: dict[str, Any], _: int) -> Settings:
    """Every combination of a grid."""
    return [
        (", ".join(f"{key}={value}" for key, value in zip(grid, values, strict=True)),
         make(**fixed, **dict(zip(grid, values, strict=True))))
        for values in product(*grid.values())
    ]  # fmt: skip


#: Contenders of other packages: name -> (label, where it is, what it is, grid, fixed settings).
_BOOSTING = "boosted trees of another library; finds curves and interactions"
INSTALLED: dict[str, tuple[str, str, str, dict[str, Sequence[Any]], dict[str, Any]]] = {
    "lightgbm": ("LightGBM", "lightgbm:LGBMClassifier", _BOOSTING,
                 {"num_leaves": (4, 12, 31), "n_estimators": ROUNDS}, {"random_state": 0, "verbose": -1, "n_jobs": 1}),
    "xgboost": ("XGBoost", "xgboost:XGBClassifier", _BOOSTING,
                {"max_depth": (2, 4, 6), "n_estimators": ROUNDS},
                {"learning_rate": 0.1, "random_state": 0, "n_jobs": 1}),
    "catboost": ("CatBoost", "catboost:CatBoostClassifier", _BOOSTING,
                 {"depth": (2, 4, 6), "iterations": ROUNDS},
                 {"random_seed": 0, "verbose": False, "thread_count": 1, "allow_writing_files": False}),
    "ebm": ("EBM", "interpret.glassbox:ExplainableBoostingClassifier",
            "a sum of curves, one for each column; can be read like a linear model",
            {"max_leaves": (2, 4), "max_rounds": (50, 200)},
            {"learning_rate": 0.1, "interactions": 0, "outer_bags": 2, "random_state": 0, "n_jobs": 1}),
}  # fmt: skip


def _imported(place: str) -> Any:
    """The class at ``package:Class``; only that package is imported."""
    package, _, name = place.partition(":")
    if not (package and name and all(part.isidentifier() for part in (*package.split("."), name))):
        raise ValueError(f"--with {place!r}: write package:Class, as in sklearn.naive_bayes:GaussianNB")
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise ValueError(f"--with {place!r}: {error}; install the package, or correct its name") from error
    found = getattr(module, name, None)
    if not isinstance(found, type) or not hasattr(found, "fit"):
        raise ValueError(f"--with {place!r}: {package!r} has no classifier {name!r}; correct the name")
    return found


def _named(place: str) -> Contender:
    made = _imported(place)
    try:
        model = made()
    except TypeError as error:
        raise ValueError(f"--with {place!r} cannot be made without parameters ({error}); wrap it in a class") from error
    if not is_classifier(model):
        raise ValueError(f"--with {place!r} is no classifier of scikit-learn's kind; it needs fit and predict")
    name = place.partition(":")[2]
    return Contender(place, name, f"{place} with its own defaults", "other",
                     partial(_tuned, place, partial(_made, made, {}, {})))  # fmt: skip


def _optional(name: str) -> Contender:
    label, place, what, grid, fixed = INSTALLED[name]
    return Contender(name, label, what, "tree", partial(_tuned, name, partial(_made, _imported(place), grid, fixed)))


def built_in(loss: str, multiclass: str) -> dict[str, Contender]:
    """The contenders that scikit-learn and closecall have, by name."""
    found = [
        Contender(CLOSE_K, "close-k", "what `closecall fit` trains: the average loss, or close-k where it really gains",
                  "linear", partial(_close_k, loss, multiclass)),
        Contender("logistic_regression", "LogisticRegression", "scikit-learn's linear model of the logistic loss",
                  "linear", partial(_tuned, "logistic_regression", _logistic)),
        Contender("linear_svc", "LinearSVC", "scikit-learn's linear model of the squared hinge loss", "linear",
                  partial(_tuned, "linear_svc", _svm)),
        Contender("exact_threshold", "LogisticRegression, exact threshold",
                  "its threshold moved to the fewest errors where that really gains", "linear", _exact_threshold),
        Contender("random_forest", "RandomForest", "averaged trees; finds curves and interactions", "tree",
                  partial(_tuned, "random_forest", _forest)),
        Contender("gradient_boosting", "HistGradientBoosting", "boosted trees; finds curves and interactions", "tree",
                  partial(_boosting, "gradient_boosting")),
        Contender("k_nn", "k nearest neighbours", "the vote of the nearest rows", "other",
                  partial(_tuned, "k_nn", _neighbours)),
    ]  # fmt: skip
    return {contender.name: contender for contender in found}


def peer_of(loss: str) -> str:
    """The contender that is scikit-learn's model of that loss, as far as it has one."""
    return {"hinge": "linear_svc"}.get(loss, "logistic_regression")


def line_up(
    loss: str, multiclass: str, metric: Metric, extra: Sequence[str] = (), only: Sequence[str] = ()
) -> tuple[Contender, ...]:
    """Everyone who takes part, close-k and the baselines first.

    Parameters
    ----------
    loss, multiclass : str
        Of close-k.
    metric : Metric
    extra : sequence of str
        Names of built-in contenders that are off by default, or ``package:Class``; nothing else is imported.
    only : sequence of str
        If any: just these, and those that the verdict needs.
    """
    known = built_in(loss, multiclass)
    there = [name for name, trouble in libraries().items() if not trouble]
    default = [name for name in (*known, *there) if name != "k_nn"]
    if metric.name not in ("accuracy", "balanced_accuracy"):
        default.remove("exact_threshold")  # it moves labels only
    needed = [CLOSE_K, peer_of(loss)]
    wanted = dict.fromkeys([*needed, *(only or default), *extra])
    return tuple(_of(name, known) for name in wanted if name not in AGGREGATED)


#: Words of ``only`` that stand for all aggregates, which are solved together elsewhere.
AGGREGATED = ("aggregates",)


def _of(name: str, known: dict[str, Contender]) -> Contender:
    plain = name.replace("-", "_")
    if plain in known:
        return known[plain]
    if ":" in name:
        return _named(name)
    if plain in INSTALLED:
        return _optional(plain)
    names = ", ".join((*known, *INSTALLED, *AGGREGATED))
    raise ValueError(f"unknown contender {name!r}; give one of {names}, or package:Class of an installed package")


def libraries() -> dict[str, str]:
    """The libraries of :data:`INSTALLED` that are there, and why one that is there cannot take part."""
    found = {}
    for name, (_, place, *_) in INSTALLED.items():
        if importlib.util.find_spec(place.partition(":")[0].partition(".")[0]) is not None:
            try:
                _imported(place)
                found[name] = ""
            except Exception as error:  # a broken package of the user's must not end a comparison without it
                found[name] = f"{name} is installed but cannot be used, and does not take part ({error})"
    return found


def quietly(contenders: Sequence[Contender], data: SplitData, metric: Metric) -> Iterator[Entry]:
    """Everyone's entry; what scikit-learn says about convergence at the edges of a grid is nobody's business here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for contender in contenders:
            yield contender.play(data, metric)

"""The contenders of a comparison: a name, a label and a one-line description for each, and how each is tuned.

Each one is trained on the training part, tuned on the validation part, retrained on both and scored on the test part.
LogisticRegression has eleven settings; the others have about as many, so none wins by trying more.
"""

from __future__ import annotations

import importlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import is_classifier
from sklearn.linear_model import LogisticRegression

from closecall._names import Array
from closecall.aggregates import get_aggregate
from closecall.families import FAMILIES, family_of
from closecall.linear import CloseKClassifierCV
from closecall.model_selection import ExactThresholdClassifier

from .measure import Metric, sigmoids, wide
from .tuning import GRIDS, ROUNDS, Grid, SplitData, judged, made, members, scores_of

CLOSE_K = "close_k"
#: LogisticRegression on columns that are scaled by mean and deviation.
UNSQUASHED = "plain_logistic_regression"
MAJORITY = "majority"


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
    #: Scores of the test rows (samples, classes), and of close-k the coefficients (scores, features).
    scores: Array | None = field(default=None, repr=False)
    coef: Array | None = field(default=None, repr=False)


Play = Callable[[SplitData, Metric], Entry]


@dataclass(frozen=True)
class Contender:
    """A contender: name, label, description, ``linear``, ``tree`` or ``other``, how to run it, its settings if any."""

    name: str
    label: str
    what: str
    family: str
    play: Play
    grid: Grid | None = None


def entry(name: str, model: Any, data: SplitData, metric: Metric, tried: Any = None, **chosen: Any) -> Entry:
    """The result on the test part of a model trained on both other parts.

    ``tried`` is the same model trained on the training part only, which turns raw scores into probabilities.
    """
    sigmoid = None
    if metric.probabilities and tried is not None:
        raw, logs = scores_of(tried, data.X[1])
        sigmoid = None if logs else sigmoids(raw[None], data.y[1])
    scores = judged(model, data, 2, metric, sigmoid)
    predicted = np.asarray(model.predict(data.X[2])).ravel().astype(int)
    value = float(metric.value(data.y[2], scores))
    return Entry(name, chosen.pop("loss", ""), value, predicted, scores=scores, **chosen)


def _tuned(name: str, grid: Grid, data: SplitData, metric: Metric) -> Entry:
    """The best setting on the validation part (the first if tied), fitted again on both parts."""
    if name == UNSQUASHED:
        data = replace(data, X=data.plain or data.X, chosen={})
    values, kept = grid.tried(data, metric)
    words, model = grid.final(int(values.argmax()), len(data.y[0]))
    alpha = 1 / model.C if hasattr(model, "C") else getattr(model, "alpha", float("nan"))
    data.chosen[name] = alpha
    return entry(name, model.fit(*data.known), data, metric, kept, setting=words, alpha=alpha)


#: How our metrics are called by scikit-learn's scorers, for the searches of our classifiers.
SCORING = {"accuracy": None, "balanced_accuracy": "balanced_accuracy", "f1": "f1_macro", "log_loss": "neg_log_loss",
           "auc": "roc_auc_ovr"}  # fmt: skip


def close_k_search(loss: str, multiclass: str, metric: str, cv: Any = None, *, calibration: str | None = None) -> Any:
    """The model of ``closecall fit``: close-k if cross-validation finds a real gain, otherwise the average loss."""
    if metric in ("log_loss", "auc"):
        calibration = calibration or "sigmoid"
    return CloseKClassifierCV(loss=loss, multiclass=multiclass, scoring=SCORING[metric], cv=cv, calibration=calibration,
                              random_state=0)  # fmt: skip


def _close_k(loss: str, multiclass: str, data: SplitData, metric: Metric) -> Entry:
    model = close_k_search(loss, multiclass, metric.name, data.cv).fit(*data.known, groups=data.groups)
    share = float(model.k_ / model.n_training_mass_) * len(data.y[0])
    scores = np.asarray(model.decision_function(data.X[2]), dtype=float)
    found = entry(CLOSE_K, model, data, metric, None, k=share, alpha=model.alpha_, setting=model.aggregate_)
    raw = wide(scores[:, None] if scores.ndim == 1 else scores)
    return replace(found, loss=loss, scores=raw, coef=model.coef_)


def _exact_threshold(data: SplitData, metric: Metric) -> Entry:
    """LogisticRegression tuned on the validation part, with its threshold moved if the gain is real."""
    if "logistic_regression" not in data.chosen:
        _tuned("logistic_regression", GRIDS["logistic_regression"], data, metric)
    best = data.chosen["logistic_regression"]
    objective = "balanced_accuracy" if metric.name == "balanced_accuracy" else "accuracy"
    plain = LogisticRegression(C=1 / best, max_iter=1000)
    model = ExactThresholdClassifier(plain, objective=objective, cv=data.cv, n_bootstrap=0)
    model.fit(*data.known, groups=data.groups)
    predicted = np.asarray(model.predict(data.X[2]))
    value = float(metric.value(data.y[2], (predicted[:, None] == np.arange(data.classes)).astype(float)))
    moved = "moved" if model.guard_report_["taken"] else "kept"
    return Entry("exact_threshold", "", value, predicted, alpha=best, setting=moved)


class Library(NamedTuple):
    """A contender from another package: its label, ``package:Class``, description, kind, a grid and fixed settings."""

    label: str
    place: str
    what: str
    family: str
    grid: dict[str, Sequence[Any]]
    fixed: dict[str, Any]


_BOOSTING = "boosted trees of another library; finds curves and interactions"
#: Contenders that are imported only when they take part, by name.
INSTALLED = {
    "lightgbm": Library("LightGBM", "lightgbm:LGBMClassifier", _BOOSTING, "tree",
                        {"num_leaves": (4, 12, 31), "n_estimators": ROUNDS},
                        {"random_state": 0, "verbose": -1, "n_jobs": 1}),
    "xgboost": Library("XGBoost", "xgboost:XGBClassifier", _BOOSTING, "tree",
                       {"max_depth": (2, 4, 6), "n_estimators": ROUNDS},
                       {"learning_rate": 0.1, "random_state": 0, "n_jobs": 1}),
    "catboost": Library("CatBoost", "catboost:CatBoostClassifier", _BOOSTING, "tree",
                        {"depth": (2, 4, 6), "iterations": ROUNDS},
                        {"random_seed": 0, "verbose": False, "thread_count": 1, "allow_writing_files": False}),
    "ebm": Library("EBM", "interpret.glassbox:ExplainableBoostingClassifier",
                   "a sum of curves, one for each column; can be read like a linear model", "tree",
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
    kind = _imported(place)
    try:
        model = kind()
    except TypeError as error:
        raise ValueError(
            f"--with {place!r} cannot be created without parameters ({error}); wrap it in a class"
        ) from error
    if not is_classifier(model):
        raise ValueError(f"--with {place!r} is not a scikit-learn classifier; it needs fit and predict")
    name = place.partition(":")[2]
    return _with_grid(place, name, f"{place} with its own defaults", "other", made(kind, {}, {}))


def _with_grid(name: str, label: str, what: str, family: str, grid: Grid | None = None) -> Contender:
    grid = grid or GRIDS[name]
    return Contender(name, label, what, family, partial(_tuned, name, grid), grid)


def _family(name: str, loss: str, multiclass: str) -> Contender:
    """A family of aggregates, or one of its members."""
    family = family_of(name)
    if family is None:
        raise ValueError(f"{name!r} is not a family of aggregates; choose one of: {', '.join(FAMILIES)}")
    label = family.label if name in FAMILIES else get_aggregate(name).name
    return _with_grid(name, label, family.what, "linear", members(name, loss, multiclass))


def built_in(loss: str, multiclass: str) -> dict[str, Contender]:
    """The contenders that scikit-learn and closecall have, by name."""
    found = [
        Contender(CLOSE_K, "close-k", "what `closecall fit` trains: the average loss, or close-k where it really gains",
                  "linear", partial(_close_k, loss, multiclass)),
        _with_grid("logistic_regression", "LogisticRegression", "scikit-learn's linear model of the logistic loss",
                   "linear"),
        _with_grid(UNSQUASHED, "LogisticRegression, not squashed", "the same on columns of mean 0 and variance 1",
                   "linear", GRIDS["logistic_regression"]),
        _with_grid("linear_svc", "LinearSVC", "scikit-learn's linear model of the squared hinge loss", "linear"),
        Contender("exact_threshold", "LogisticRegression, exact threshold",
                  "its threshold moved to the fewest errors where that really gains", "linear", _exact_threshold),
        _with_grid("random_forest", "RandomForest", "averaged trees; finds curves and interactions", "tree"),
        _with_grid("gradient_boosting", "HistGradientBoosting", "boosted trees; finds curves and interactions", "tree"),
        _with_grid("k_nn", "k nearest neighbours", "the vote of the nearest rows", "other"),
        *(_family(name, loss, multiclass) for name in FAMILIES),
    ]  # fmt: skip
    return {contender.name: contender for contender in found}


def peer_of(loss: str) -> str:
    """The contender that is scikit-learn's model for that loss, if there is one."""
    return {"hinge": "linear_svc"}.get(loss, "logistic_regression")


def line_up(
    loss: str, multiclass: str, metric: Metric, extra: Sequence[str] = (), only: Sequence[str] = (),
    *, everyone: bool = False, squashed: bool = True,
) -> tuple[Contender, ...]:  # fmt: skip
    """All contenders, close-k and the baselines first.

    ``extra`` names built-in contenders that are off by default, or ``package:Class``; nothing else is imported. With
    ``only``, just these take part and those that the verdict needs; with ``everyone`` all, not just the six default
    ones. If columns are not ``squashed`` there is one logistic regression, not two.
    """
    known = built_in(loss, multiclass)
    there = [name for name, trouble in libraries().items() if not trouble]
    default = [name for name in ((*known, *there) if everyone else USUAL) if squashed or name != UNSQUASHED]
    if metric.name not in ("accuracy", "balanced_accuracy"):
        default.remove("exact_threshold")  # it moves labels only
    needed = [CLOSE_K, peer_of(loss)]
    wanted = dict.fromkeys([*needed, *(only or default), *extra])
    return tuple(
        _family(name, loss, multiclass) if "(" in name else contender_of(name, known)
        for name in wanted if name not in AGGREGATED
    )  # fmt: skip


#: Take part unless others are requested.
USUAL = (CLOSE_K, "logistic_regression", UNSQUASHED, "exact_threshold", "random_forest", "gradient_boosting")
#: Words of ``only`` that stand for all aggregates, which are solved together elsewhere.
AGGREGATED = ("aggregates",)


def contender_of(name: str, known: dict[str, Contender]) -> Contender:
    """The contender of that name; an unknown name raises an error that lists all of them."""
    plain = name.replace("-", "_")
    if plain in known:
        return known[plain]
    if ":" in name:
        return _named(name)
    if plain in INSTALLED:
        found = INSTALLED[plain]
        grid = made(_imported(found.place), found.grid, found.fixed)
        return _with_grid(plain, found.label, found.what, found.family, grid)
    names = ", ".join((*known, *INSTALLED, *AGGREGATED))
    raise ValueError(f"unknown contender {name!r}; give one of {names}, or package:Class of an installed package")


def libraries() -> dict[str, str]:
    """The installed libraries of :data:`INSTALLED`, and why one of them cannot take part."""
    found = {}
    for name, each in INSTALLED.items():
        if importlib.util.find_spec(each.place.partition(":")[0].partition(".")[0]) is not None:
            try:
                _imported(each.place)
                found[name] = ""
            except Exception as error:  # a broken package of the user's must not end a comparison without it
                found[name] = f"{name} is installed but cannot be used, and does not take part ({error})"
    return found


def quietly(contenders: Sequence[Contender], data: SplitData, metric: Metric) -> Iterator[Entry]:
    """The results of all contenders; scikit-learn's convergence warnings at the edges of a grid are ignored."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for contender in contenders:
            yield contender.play(data, metric)

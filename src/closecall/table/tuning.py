"""The settings that a contender may choose from, and how well they do on held-out rows."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

from closecall._names import Array, lookup
from closecall.families import FAMILIES
from closecall.linear.calibration import probabilities
from closecall.linear.fitting import MULTICLASS
from closecall.linear.search import ALPHAS
from closecall.losses import LOSSES

from .measure import METRICS, Metric, logs_of, sigmoids, wide

#: Number of trees while a forest is tuned, and in the final forest.
TRIED, TREES = 8, 100
ROUNDS = (25, 50, 75, 100)
NEIGHBOURS = (1, 3, 5, 7, 11, 15, 21, 31, 45, 65, 95)
#: The strongest penalty comes first, because ties go to the first setting.
PENALTIES = tuple(sorted(ALPHAS, reverse=True))
CS = tuple(1 / alpha for alpha in PENALTIES)


@dataclass(frozen=True, eq=False)
class How:
    """How models are trained: loss, multiclass form, metric, squashing, and the folds that a search may use."""

    loss: str = "logistic"
    multiclass: str = "top_two"
    metric: str = "accuracy"
    squashed: bool = True
    cv: Any = None
    groups: Array | None = field(default=None, repr=False)
    calibration: str | None = "sigmoid"

    def __post_init__(self) -> None:
        lookup(LOSSES, self.loss, "loss")
        lookup(METRICS, self.metric, "metric")
        lookup(MULTICLASS, self.multiclass, "multiclass")


@dataclass(frozen=True, eq=False)
class SplitData:
    """One split: matrices and class codes of the three parts, and how a search may split the first two.

    ``plain`` holds the matrices without squashing, and ``chosen`` holds results that other contenders can reuse.
    """

    X: Sequence[Array]
    y: Sequence[Array]
    classes: int
    cv: Any = None
    groups: Array | None = None
    plain: Sequence[Array] = ()
    chosen: dict[str, float] = field(default_factory=dict)

    @property
    def known(self) -> tuple[Array, Array]:
        """The training and validation parts together."""
        return np.concatenate(self.X[:2]), np.concatenate(self.y[:2])


def scores_of(model: Any, X: Array, least: float = 1e-6) -> tuple[Array, bool]:
    """Return scores (samples, 1 or classes) from a fitted model, and whether they are log probabilities."""
    if hasattr(model, "predict_proba"):
        return logs_of(model.predict_proba(X), least), True
    if hasattr(model, "decision_function"):
        scores = np.asarray(model.decision_function(X), dtype=float)
        return (scores[:, None] if scores.ndim == 1 else scores), False
    return (np.asarray(model.predict(X)).reshape(-1, 1) == model.classes_).astype(float), False


def judged(model: Any, data: SplitData, part: int, metric: Metric, calibrators: Sequence[Array] | None = None) -> Array:
    """Return scores (samples, classes) of a part in the form that the metric needs, using ``calibrators`` if given."""
    scores, logs = scores_of(model, data.X[part], metric.least)
    if metric.probabilities and not logs:
        return logs_of(probabilities(calibrators or sigmoids(scores, data.y[part]), scores))
    return wide(scores)


def imported(place: str) -> Any:
    """Import the class named by ``package:Class``."""
    package, _, name = place.partition(":")
    if not all(part.isidentifier() for part in (*package.split("."), name)):
        raise ValueError(f"--with {place!r}: write package:Class, as in sklearn.naive_bayes:GaussianNB")
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise ValueError(f"--with {place!r}: {error}; install the package, or correct its name") from error
    found = getattr(module, name, None)
    if not isinstance(found, type) or not hasattr(found, "fit"):
        raise ValueError(f"--with {place!r}: {package!r} has no classifier {name!r}; correct the name")
    return found


@dataclass(frozen=True)
class Grid:
    """The settings of a classifier: every combination of ``choices``, in addition to the ``fixed`` parameters.

    ``make`` is the class, or ``package:Class`` to import when it is needed; ``words`` describes a setting.
    """

    make: Callable[..., Any] | str
    choices: dict[str, Sequence[Any]] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    words: str = ""

    def settings(self, rows: int) -> list[tuple[str, Any]]:
        """Return a description and an unfitted classifier for each setting that suits the number of training rows."""
        make = imported(self.make) if isinstance(self.make, str) else self.make
        words = self.words or ", ".join(f"{name}={{{name}}}" for name in self.choices)
        chosen = [dict(zip(self.choices, values, strict=True)) for values in product(*self.choices.values())]
        # A vote needs fewer neighbours than there are rows.
        allowed = [each for each in chosen if each.get("n_neighbors", 0) < rows] or chosen[:1]
        return [(words.format_map(each), make(**self.fixed, **each)) for each in allowed]

    def tried(self, data: SplitData, metric: Metric) -> tuple[Array, Any]:
        """Return the value of each setting (settings,) on the validation part, and the best fitted model."""
        choices = self.settings(len(data.y[0]))
        if len(choices) == 1 and not metric.probabilities:
            return np.zeros(1), None
        fitted = [model.fit(data.X[0], data.y[0]) for _, model in choices]
        values = np.array([metric.value(data.y[1], judged(model, data, 1, metric)) for model in fitted])
        return values, fitted[values.argmax()]

    def final(self, place: int, rows: int) -> tuple[str, Any]:
        """Return the description of a setting, and the classifier to train on all available rows."""
        words, model = self.settings(rows)[place]
        if getattr(model, "n_estimators", 0) == TRIED:
            model.set_params(n_estimators=TREES)
        return words, model


class Boosting(Grid):
    """The settings of HistGradientBoosting, for which a single fit evaluates every number of rounds."""

    def tried(self, data: SplitData, metric: Metric) -> tuple[Array, Any]:
        values, last = [], len(ROUNDS) - 1
        for _, model in self.settings(len(data.y[0]))[last :: len(ROUNDS)]:
            stages = model.fit(data.X[0], data.y[0]).staged_predict_proba(data.X[1])
            logs = [logs_of(each, metric.least) for rounds, each in enumerate(stages, 1) if rounds in ROUNDS]
            values += [metric.value(data.y[1], each) for each in logs]
        return np.array(values), None


def dozen(name: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Return the members and alphas to try for a family (4 by 3 or 6 by 2); a single member gets every alpha."""
    if name not in FAMILIES:
        return (name,), PENALTIES
    found = FAMILIES[name].grid
    return (found, (10.0, 0.1)) if len(found) <= 6 else (found[::2], (100.0, 1.0, 0.01))

"""How a contender is tuned: its settings, and their values on held-out rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import LinearSVC

from closecall._names import Array
from closecall.families import FAMILIES
from closecall.linear import AggregateLossClassifier
from closecall.linear.search import ALPHAS

from .measure import Metric, log_probabilities, logs_of, sigmoids, wide

#: Trees of a forest while it is tuned, and of the one that counts.
TRIED, TREES = 8, 100
LEAVES, ROUNDS = (4, 12, 31), (25, 50, 75, 100)
NEIGHBOURS = (1, 3, 5, 7, 11, 15, 21, 31, 45, 65, 95)

#: A setting in words, and the classifier that has it.
Settings = Sequence[tuple[str, Any]]


@dataclass(frozen=True, eq=False)
class SplitData:
    """One split: matrices and codes of the three parts, and how a search may split the first two.

    ``plain`` has the matrices without squashing, and ``chosen`` results that other contenders can use.
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
        """Training and validation part together."""
        return np.concatenate(self.X[:2]), np.concatenate(self.y[:2])


def scores_of(model: Any, X: Array, least: float = 1e-6) -> tuple[Array, bool]:
    """Scores (samples, 1 or classes) of a fitted model, and whether they are logarithms of probabilities."""
    if hasattr(model, "predict_proba"):
        return logs_of(model.predict_proba(X), least), True
    if hasattr(model, "decision_function"):
        scores = np.asarray(model.decision_function(X), dtype=float)
        return (scores[:, None] if scores.ndim == 1 else scores), False
    return (np.asarray(model.predict(X)).reshape(-1, 1) == model.classes_).astype(float), False


def judged(model: Any, data: SplitData, part: int, metric: Metric, sigmoid: tuple[Array, Array] | None = None) -> Array:
    """Scores (samples, classes) of a part in the form the metric needs; ``sigmoid`` gives probabilities."""
    scores, logs = scores_of(model, data.X[part], metric.least)
    if metric.probabilities and not logs:
        if sigmoid is None:
            sigmoid = sigmoids(scores[None], data.y[part])
        return log_probabilities(scores, sigmoid[0][0], sigmoid[1][0])
    return wide(scores)


@dataclass(frozen=True)
class Grid:
    """The settings of a contender, for the given number of training rows."""

    settings: Callable[[int], Settings]

    def tried(self, data: SplitData, metric: Metric) -> tuple[Array, Any]:
        """The value of each setting (settings,) on the validation part, and the best fitted model."""
        choices = self.settings(len(data.y[0]))
        if len(choices) == 1 and not metric.probabilities:
            return np.zeros(1), None
        values, best, kept = np.empty(len(choices)), -np.inf, None
        for place, (_, model) in enumerate(choices):
            fitted = model.fit(data.X[0], data.y[0])
            values[place] = metric.value(data.y[1], judged(fitted, data, 1, metric))
            if values[place] > best:
                best, kept = values[place], fitted
        return values, kept

    def final(self, place: int, rows: int) -> tuple[str, Any]:
        """A setting in words, and the classifier to train on all available rows."""
        words, model = self.settings(rows)[place]
        if hasattr(model, "n_estimators") and model.n_estimators == TRIED:
            model.set_params(n_estimators=TREES)
        return words, model


class Boosting(Grid):
    """HistGradientBoosting: every number of rounds is a separate setting."""

    def tried(self, data: SplitData, metric: Metric) -> tuple[Array, Any]:
        values = np.empty((len(LEAVES), len(ROUNDS)))
        for place, leaves in enumerate(LEAVES):
            model = _boosted(leaves, ROUNDS[-1]).fit(data.X[0], data.y[0])
            for rounds, probabilities in enumerate(model.staged_predict_proba(data.X[1]), 1):
                if rounds in ROUNDS:
                    values[place, ROUNDS.index(rounds)] = metric.value(data.y[1], logs_of(probabilities, metric.least))
        return values.ravel(), None


def _boosted(leaves: int, rounds: int) -> Any:
    return HistGradientBoostingClassifier(max_leaf_nodes=leaves, max_iter=rounds, early_stopping=False, random_state=0)


def _boosting(_: int) -> Settings:
    return [(f"{leaves} leaves, {rounds} rounds", _boosted(leaves, rounds)) for leaves in LEAVES for rounds in ROUNDS]


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
    """Nearest neighbours without a search tree, so only the rows are saved."""
    counts = [count for count in NEIGHBOURS if count < rows] or [1]
    return [(f"{count} neighbours", KNeighborsClassifier(count, algorithm="brute")) for count in counts]


def _made(make: Callable[..., Any], grid: dict[str, Sequence[Any]], fixed: dict[str, Any], _: int) -> Settings:
    """Every combination of a grid."""
    return [
        (", ".join(f"{key}={value}" for key, value in zip(grid, values, strict=True)),
         make(**fixed, **dict(zip(grid, values, strict=True))))
        for values in product(*grid.values())
    ]  # fmt: skip


def made(make: Callable[..., Any], grid: dict[str, Sequence[Any]], fixed: dict[str, Any]) -> Grid:
    """The grid of a class of any package."""
    return Grid(partial(_made, make, grid, fixed))


def dozen(name: str) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """Members and alphas to try for a family (four by three or six by two); for a single member, every alpha.

    Examples
    --------
    >>> dozen("tilted")
    (('tilted(-4)', 'tilted(-1)', 'tilted(0.5)', 'tilted(2)'), (100.0, 1.0, 0.01))
    """
    if name not in FAMILIES:
        return (name,), tuple(sorted(ALPHAS, reverse=True))
    found = FAMILIES[name].grid
    return (found, (10.0, 0.1)) if len(found) <= 6 else (found[::2], (100.0, 1.0, 0.01))


def _members(name: str, loss: str, multiclass: str, _: int) -> Settings:
    names, alphas = dozen(name)
    return [
        (f"{member}, alpha={alpha:g}",
         AggregateLossClassifier(loss=loss, aggregate=member, alpha=alpha, multiclass=multiclass, tol=1e-3))
        for member in names for alpha in alphas
    ]  # fmt: skip


def members(name: str, loss: str, multiclass: str) -> Grid:
    """The grid of a family of aggregates, or of one of its members.

    Examples
    --------
    >>> [len(members(name, "logistic", "ovr").settings(9)) for name in (*FAMILIES, "tilted(-2)")]
    [12, 12, 12, 11]
    """
    return Grid(partial(_members, name, loss, multiclass))


#: The grids of scikit-learn's classifiers, by the contender's name.
GRIDS = {
    "logistic_regression": Grid(_logistic), "linear_svc": Grid(_svm), "random_forest": Grid(_forest),
    "gradient_boosting": Boosting(_boosting), "k_nn": Grid(_neighbours),
}  # fmt: skip

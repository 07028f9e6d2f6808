"""Metrics: accuracy, balanced accuracy, F1, log loss and AUC.

Scores have shape (samples, classes), and the class with the largest score is predicted. With two classes, the
first score of a sample is 0. Higher values are better, so log loss is negated until it is displayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from closecall._names import Array
from closecall.linear.calibration import fit_calibrators


def wide(scores: Array) -> Array:
    """Return scores (samples, classes); single scores, (samples,) or (samples, 1), become two columns."""
    return scores if scores.ndim == 2 and scores.shape[1] > 1 else np.column_stack([np.zeros(len(scores)), scores])


def confusion(truth: Array, predicted: Array, classes: int) -> Array:
    """Count predictions (samples,) in a matrix (true classes, predicted classes)."""
    return np.bincount(truth * classes + predicted, minlength=classes**2).reshape(classes, classes)


def _accuracy(truth: Array, scores: Array) -> float:
    return float((scores.argmax(axis=1) == truth).mean())


def _balanced(truth: Array, scores: Array) -> float:
    table = confusion(truth, scores.argmax(axis=1), scores.shape[1])
    there = table.sum(axis=1) > 0
    return float((np.diagonal(table)[there] / table.sum(axis=1)[there]).mean())


def _f1(truth: Array, scores: Array) -> float:
    table = confusion(truth, scores.argmax(axis=1), scores.shape[1])
    return float((2 * np.diagonal(table) / np.maximum(table.sum(axis=1) + table.sum(axis=0), 1)).mean())


def _auc(truth: Array, scores: Array) -> float:
    """Return the probability that a member of a class outscores a non-member, averaged over the classes present."""
    columns = {1: scores[:, 1] - scores[:, 0]} if scores.shape[1] == 2 else {c: scores[:, c] for c in np.unique(truth)}
    found = []
    for code, values in columns.items():
        mine = truth == code
        count = mine.sum()
        above = rankdata(values)[mine].sum() - count * (count + 1) / 2
        found.append(above / max(count * (len(truth) - count), 1))
    return float(np.mean(found))


def _log_loss(truth: Array, scores: Array) -> float:
    """Return the mean log probability of the true class; scores are log probabilities."""
    return float(scores[np.arange(len(truth)), truth].mean())


@dataclass(frozen=True)
class Metric:
    """A metric: how predictions are scored and displayed.

    ``value`` takes codes of the true classes (samples,) and scores (samples, classes); higher is better. ``factor``
    converts a value to the displayed one, and ``unit`` is the unit of differences. ``probabilities`` states whether
    scores must be log probabilities, and ``scoring`` is scikit-learn's name for the metric.
    """

    name: str
    label: str
    value: Callable[[Array, Array], float]
    factor: float = 100.0
    unit: str = "points"
    probabilities: bool = False
    scoring: str | None = None

    @property
    def least(self) -> float:
        """The smallest probability used, which keeps log loss finite and lets AUC rank small probabilities."""
        return 1e-6 if self.probabilities else 1e-300

    @property
    def rough(self) -> int:
        """The number of decimals to use in a sentence."""
        return 1 if self.factor == 100 else 3

    def shown(self, value: float) -> float:
        """Return a value in the displayed units."""
        return self.factor * value

    def plain(self, value: float) -> float:
        """Return a value for JSON output: a share, or the log loss."""
        return value if self.factor > 0 else -value

    def gain(self, value: float) -> float:
        """Return a difference in the displayed units; higher is better."""
        return abs(self.factor) * value


METRICS = {
    each.name: each
    for each in (
        Metric("accuracy", "accuracy (%)", _accuracy),
        Metric("balanced_accuracy", "balanced accuracy (%)", _balanced, scoring="balanced_accuracy"),
        Metric("f1", "F1, mean over the classes (%)", _f1, scoring="f1_macro"),
        Metric("log_loss", "log loss", _log_loss, -1.0, "nats", True, "neg_log_loss"),
        Metric("auc", "AUC (%)", _auc, scoring="roc_auc_ovr"),
    )
}


def sigmoids(scores: Array, truth: Array) -> list[Array]:
    """Return sigmoids (Platt scaling) fitted to scores (samples, 1 or classes) and the true class codes (samples,)."""
    return fit_calibrators("sigmoid", scores, truth, np.ones(len(truth)))


def logs_of(probabilities: Array, least: float = 1e-6) -> Array:
    """Return the logarithms of a model's probabilities, bounded from below."""
    return np.log(np.clip(probabilities, least, 1.0))

"""Metrics: accuracy, balanced accuracy, F1, log loss, AUC; for one model or a batch of them.

A model's scores are (samples, classes), and the largest wins; with two classes they are (0, score). Higher values are
better, so log loss is negative until it is displayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit, softmax
from scipy.stats import rankdata

from closecall._names import Array

_STEPS = 60  # Newton's, of a sigmoid; it takes about ten
_TINY = 1e-12


def wide(scores: Array) -> Array:
    """Scores (..., samples, classes): a single column (..., samples, 1) becomes two; others are returned unchanged.

    Examples
    --------
    >>> wide(np.array([[-1.0], [2.0]])).argmax(axis=-1).tolist()
    [0, 1]
    """
    return scores if scores.shape[-1] > 1 else np.concatenate([np.zeros_like(scores), scores], axis=-1)


def confusion(truth: Array, predicted: Array, classes: int) -> Array:
    """Counts (..., classes, classes) of predictions (..., samples): rows are true classes.

    Examples
    --------
    >>> confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2).tolist()
    [[1, 1], [0, 1]]
    """
    hit = predicted[..., None] == np.arange(classes)
    rows = [hit[..., truth == code, :].sum(axis=-2) for code in range(classes)]
    return np.stack(rows, axis=-2)


def _accuracy(truth: Array, scores: Array) -> Array:
    return (scores.argmax(axis=-1) == truth).mean(axis=-1)


def _balanced(truth: Array, scores: Array) -> Array:
    table = confusion(truth, scores.argmax(axis=-1), scores.shape[-1])
    there = np.bincount(truth, minlength=scores.shape[-1]) > 0
    recalls = np.diagonal(table, axis1=-2, axis2=-1) / np.maximum(table.sum(axis=-1), 1)
    return recalls[..., there].mean(axis=-1)


def _f1(truth: Array, scores: Array) -> Array:
    table = confusion(truth, scores.argmax(axis=-1), scores.shape[-1])
    right = np.diagonal(table, axis1=-2, axis2=-1)
    return (2 * right / np.maximum(table.sum(axis=-1) + table.sum(axis=-2), 1)).mean(axis=-1)


def _auc(truth: Array, scores: Array) -> Array:
    """The probability that a member of a class scores above a non-member: the mean over the classes present."""
    columns = [1] if scores.shape[-1] == 2 else [c for c in range(scores.shape[-1]) if (truth == c).any()]
    found = []
    for code in columns:
        mine = truth == code
        value = scores[..., code] - scores[..., 0] if scores.shape[-1] == 2 else scores[..., code]
        ranks, count = rankdata(value, axis=-1), mine.sum()
        pairs = max(count * (len(truth) - count), 1)
        found.append((ranks[..., mine].sum(axis=-1) - count * (count + 1) / 2) / pairs)
    return np.mean(found, axis=0)


def _log_loss(truth: Array, scores: Array) -> Array:
    """Scores are logarithms of probabilities here."""
    return np.take_along_axis(scores, np.broadcast_to(truth[:, None], (*scores.shape[:-1], 1)), -1)[..., 0].mean(-1)


@dataclass(frozen=True)
class Metric:
    """A metric: how predictions are scored and displayed.

    ``value`` takes codes of the true classes (samples,) and scores (..., samples, classes), and returns values (...);
    higher is better. ``factor`` converts a value to the one displayed, with ``digits`` decimals and differences in
    ``unit``; ``probabilities``: whether scores must be log probabilities; ``scoring`` is scikit-learn's name of the
    metric.
    """

    name: str
    label: str
    value: Callable[[Array, Array], Array]
    factor: float = 100.0
    unit: str = "points"
    probabilities: bool = False
    digits: int = 2
    scoring: str | None = None

    @property
    def least(self) -> float:
        """The smallest probability used: log loss stays finite, and AUC still ranks small ones."""
        return 1e-6 if self.probabilities else 1e-300

    @property
    def rough(self) -> int:
        """Digits in a sentence."""
        return 1 if self.factor == 100 else 3

    def shown(self, value: float) -> float:
        """A value in the units shown to the reader."""
        return self.factor * value

    def plain(self, value: float) -> float:
        """A value for programs: a share, or the log loss."""
        return value if self.factor > 0 else -value

    def gain(self, value: float) -> float:
        """A difference of values in the units shown to the reader: higher is better."""
        return abs(self.factor) * value

    def interval(self, mean: float, half_width: float) -> tuple[float, float]:
        """The ends of an interval in the units shown to the reader, clipped to possible values."""
        low, high = sorted(self.shown(mean + sign * half_width) for sign in (-1, 1))
        return max(low, 0.0), min(high, 100.0) if self.factor == 100 else high

    def record(self, mean: float, half_width: float) -> dict[str, float]:
        """The ends of an interval for programs."""
        low, high = sorted(self.plain(mean + sign * half_width) for sign in (-1, 1))
        return {"low": low, "high": high}


METRICS = {
    each.name: each
    for each in (
        Metric("accuracy", "accuracy (%)", _accuracy),
        Metric("balanced_accuracy", "balanced accuracy (%)", _balanced, scoring="balanced_accuracy"),
        Metric("f1", "F1, mean over the classes (%)", _f1, scoring="f1_macro"),
        Metric("log_loss", "log loss", _log_loss, -1.0, "nats", True, 4, "neg_log_loss"),
        Metric("auc", "AUC (%)", _auc, scoring="roc_auc_ovr"),
    )
}


def sigmoids(scores: Array, truth: Array) -> tuple[Array, Array]:
    """Platt's slope and offset (problems, columns) of scores (problems, samples, columns), by Newton steps.

    There is one column for two classes, else one for each; ``truth`` (samples,) are codes, and his smoothed targets
    keep separable scores finite.

    Examples
    --------
    >>> slope, offset = sigmoids(np.array([[[-2.0], [-1.0], [1.0], [2.0]]]), np.array([0, 0, 1, 1]))
    >>> bool(slope[0, 0] > 0), bool(abs(offset[0, 0]) < 1e-6)
    (True, True)
    """
    columns = [1] if scores.shape[-1] == 1 else range(scores.shape[-1])
    positive = np.stack([truth == code for code in columns], axis=-1)
    up, down = positive.sum(axis=0), (~positive).sum(axis=0)
    target = np.where(positive, (up + 1) / (up + 2), 1 / (down + 2))
    spread = np.maximum(np.sqrt((scores**2).mean(axis=1)), _TINY)
    z = scores / spread[:, None]
    slope, offset = np.zeros((2, *spread.shape))
    for _ in range(_STEPS):
        chance = expit(slope[:, None] * z + offset[:, None])
        error, weight = chance - target, np.maximum(chance * (1 - chance), _TINY)
        a, b, c = (weight * z * z).sum(1) + 1e-6, (weight * z).sum(1), weight.sum(1) + 1e-6
        g, h = (error * z).sum(1) + 1e-6 * slope, error.sum(1)
        det = np.maximum(a * c - b * b, _TINY)
        # A step of Newton's may leave the region in which its model holds; a bounded one gets there.
        step = np.clip((c * g - b * h) / det, -2, 2), np.clip((a * h - b * g) / det, -2, 2)
        slope, offset = slope - step[0], offset - step[1]
        if max(np.abs(step[0]).max(), np.abs(step[1]).max()) < 1e-9:
            break
    return slope / spread, offset


def log_probabilities(scores: Array, slope: Array, offset: Array) -> Array:
    """Logarithms of probabilities (..., samples, classes) from raw scores and their sigmoids."""
    chance = np.clip(expit(slope[..., None, :] * scores + offset[..., None, :]), _TINY, 1 - _TINY)
    if chance.shape[-1] == 1:
        chance = np.concatenate([1 - chance, chance], axis=-1)
    return np.log(chance / chance.sum(axis=-1, keepdims=True))


def logs_of(probabilities: Array, least: float = 1e-6) -> Array:
    """Logarithms of a model's own probabilities, kept away from minus infinity."""
    return np.log(np.clip(probabilities, least, 1.0))


def prior_scores(counts: Array, samples: int) -> Array:
    """Scores (samples, classes) of always predicting the largest class, as logarithms of the class shares.

    Examples
    --------
    >>> prior_scores(np.array([3, 1]), 2).argmax(axis=1).tolist()
    [0, 0]
    """
    shares = softmax(np.log(np.maximum(counts, 0.5)))
    return np.tile(np.log(shares), (samples, 1))

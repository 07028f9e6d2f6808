"""Metrics for one model or a batch: accuracy, balanced accuracy, F1, log loss and AUC.

Scores are (samples, classes), and the class with the largest score is predicted; with two classes they are (0, score).
Higher values are better, so log loss is negative until it is displayed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.special import expit
from scipy.stats import rankdata

from closecall._names import Array

_STEPS = 60  # of Newton's method; about ten are enough
_TINY = 1e-12


def wide(scores: Array) -> Array:
    """Return scores (..., samples, classes); a single column (..., samples, 1) becomes two."""
    return scores if scores.shape[-1] > 1 else np.concatenate([np.zeros_like(scores), scores], axis=-1)


def confusion(truth: Array, predicted: Array, classes: int) -> Array:
    """Count predictions (..., samples) as (..., true classes, predicted classes)."""
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
    """Return the probability that a member of a class scores above a non-member, averaged over the classes present."""
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
    """Return the mean log probability of the true class; scores are log probabilities."""
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
        """The smallest probability used, which keeps log loss finite and lets AUC rank small ones."""
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

    def interval(self, mean: float, half_width: float) -> tuple[float, float]:
        """Return the ends of an interval in the displayed units, clipped to possible values."""
        low, high = sorted(self.shown(mean + sign * half_width) for sign in (-1, 1))
        return max(low, 0.0), min(high, 100.0) if self.factor == 100 else high

    def record(self, mean: float, half_width: float) -> dict[str, float]:
        """Return the ends of an interval for JSON output."""
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
    """Return Platt's slope and offset (problems, columns) for scores (problems, samples, columns), by Newton's method.

    There is one column for two classes, otherwise one for each class; ``truth`` (samples,) holds codes. Platt's
    smoothed targets keep the slope finite if the scores separate the classes.
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
        # A full Newton step may diverge, so its length is bounded.
        step = np.clip((c * g - b * h) / det, -2, 2), np.clip((a * h - b * g) / det, -2, 2)
        slope, offset = slope - step[0], offset - step[1]
        if max(np.abs(step[0]).max(), np.abs(step[1]).max()) < 1e-9:
            break
    return slope / spread, offset


def log_probabilities(scores: Array, slope: Array, offset: Array) -> Array:
    """Return log probabilities (..., samples, classes) of raw scores and their sigmoids."""
    chance = np.clip(expit(slope[..., None, :] * scores + offset[..., None, :]), _TINY, 1 - _TINY)
    if chance.shape[-1] == 1:
        chance = np.concatenate([1 - chance, chance], axis=-1)
    return np.log(chance / chance.sum(axis=-1, keepdims=True))


def logs_of(probabilities: Array, least: float = 1e-6) -> Array:
    """Return the logarithms of a model's probabilities, bounded from below."""
    return np.log(np.clip(probabilities, least, 1.0))

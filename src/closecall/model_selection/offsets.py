"""Offsets added to scores: the resulting predictions and costs, and the offsets with the lowest cost."""

from __future__ import annotations

import numpy as np

from .._names import Array
from ..theory.intercept import best_cuts

_SWEEPS = 50  # passes over the classes; each lowers the cost, and a few are enough
_PLACES = np.arange(1, 20) / 20  # quantiles of the scores that are tried as thresholds under the null hypothesis


def predicted(scores: Array, offsets: Array) -> Array:
    """Return the codes (samples,) of the predicted classes."""
    moved = scores + offsets
    return (moved[:, 0] > 0).astype(int) if scores.shape[1] == 1 else moved.argmax(axis=1)


def cut_points(scores: Array, costs: Array, masses: Array) -> Array:
    """Return, for each row of masses, the offset (problems,) that minimises the cost when added to the scores."""
    saved = costs[:, 0] - costs[:, 1]  # saved by predicting the positive class; its sign is a label, its size a weight
    labels = np.where(saved >= 0, 1.0, -1.0)
    weights = np.abs(saved) * np.atleast_2d(masses)
    weights = weights + (weights.sum(axis=1, keepdims=True) == 0)  # without any weight, every position is equally good
    return -best_cuts(np.broadcast_to(scores, weights.shape), labels, weights, np.zeros((len(weights), 1)))


def best_offsets(
    scores: Array, costs: Array, weights: Array, *, start: Array | None = None, sweeps: int = _SWEEPS
) -> Array:
    """Return the offsets that minimise the cost when they are added to the scores.

    With one score, the result is exact; with more scores, each offset in turn is moved to its exact optimum.

    Scores have shape (samples, 1) or (samples, classes), costs of each prediction (samples, classes), weights
    (samples,) and ``start`` (classes,). ``sweeps`` is the maximum number of passes over the classes.

    Examples
    --------
    >>> best_offsets(np.array([[0.2], [0.4], [0.9]]), np.array([[0, 1], [1, 0], [1, 0]]), np.ones(3)).round(3).tolist()
    [-0.3]
    """
    if scores.shape[1] == 1:
        return cut_points(scores[:, 0], costs, weights)
    offsets = np.zeros(scores.shape[1]) if start is None else start.copy()
    rows = np.arange(len(scores))
    lowest = float(weights @ costs[rows, predicted(scores, offsets)])
    for _ in range(sweeps):
        before = lowest
        for code in range(scores.shape[1]):
            rest = scores + offsets
            rest[:, code] = -np.inf
            rival = rest.argmax(axis=1)
            lead = scores[:, code] - rest[rows, rival]
            trial = offsets.copy()
            trial[code] = cut_points(lead, np.column_stack([costs[rows, rival], costs[:, code]]), weights)[0]
            cost = float(weights @ costs[rows, predicted(scores, trial)])
            if cost < lowest - 1e-12 * abs(lowest):
                offsets, lowest = trial, cost
        if lowest >= before:
            break
    return offsets - offsets.mean()


def saved(scores: Array, costs: Array, offsets: Array) -> Array:
    """Return the cost (samples,) that is saved on each row when offsets are added to the scores."""
    rows, before = np.arange(len(scores)), predicted(scores, np.zeros_like(offsets))
    return costs[rows, before] - costs[rows, predicted(scores, offsets)]


def moves(scores: Array) -> Array:
    """Return the offsets (moves, scores) to simulate under the null hypothesis: quantiles of each score."""
    seen = scores[np.isfinite(scores).all(axis=1)]
    if scores.shape[1] == 1:
        return -np.quantile(seen, _PLACES, axis=0)
    leads = [seen[:, code] - np.delete(seen, code, axis=1).max(axis=1) for code in range(seen.shape[1])]
    return np.concatenate(
        [-np.quantile(lead, _PLACES)[:, None] * np.eye(len(leads))[c] for c, lead in enumerate(leads)]
    )

"""The training steps of a network in NumPy: the fallback for :mod:`.compiled`, and its reference in tests.

It supports every loss and aggregate, including those that a user adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from .data import Data
from .layers import Shape, backward, forward
from .paths import BETAS, EPSILON, Path, Settings


class TwinWalker:
    """A trainer that handles one network at a time, like :class:`closecall.network.compiled.CompiledWalker`."""

    def __init__(self, data: Data, shape: Shape, settings: Settings) -> None:
        self.data, self.shape, self.settings = data, shape, settings
        self.seen = np.ones((shape.layers[2][1], len(data.rows)), dtype=data.rows.dtype)
        self.seen[: shape.features] = data.rows.T
        self.penalized = shape.penalized(settings.penalize_intercept).astype(data.rows.dtype)
        self.gradient = np.empty(shape.size, dtype=data.rows.dtype)

    def network(self, weights: Array, mean: Array, square: Array, path: Path) -> Callable[[range], None]:
        """Return a function that trains a network for a span of steps, and changes its three vectors (size,)."""
        layers, slopes = self.shape.split(weights), self.shape.split(self.gradient)
        decay = self.gradient.dtype.type(path.alpha) * self.penalized

        def walk(span: range) -> None:
            for step, k in zip(span, path.counts(self.data.total, self.settings.max_iter, span), strict=True):
                pulls = pull(forward(layers, self.seen), self.data, path, k)
                busy = (pulls != 0).any(axis=0)
                few = 2 * np.count_nonzero(busy) <= busy.size
                backward(layers, self.seen[:, busy] if few else self.seen, pulls[:, busy] if few else pulls, slopes)
                gradient = self.gradient + decay * weights
                mean[:] += (1 - BETAS[0]) * (gradient - mean)
                square[:] = BETAS[1] * square + (1 - BETAS[1]) * np.square(gradient)
                rate, correction = self.settings.factors(step)
                weights[:] -= rate * mean / (np.sqrt(square) * correction + EPSILON)

        return walk


def pull(scores: Array, data: Data, path: Path, k: float) -> Array:
    """Return the derivatives (outputs, samples) of the aggregate loss with respect to the scores."""
    loss, aggregate = get_loss(path.loss), get_aggregate(path.aggregate)
    margins, second = margins_of(scores, data)
    losses = loss.value(margins.astype(np.float64))
    mass = np.ones(losses.size) if data.mass is None else data.mass
    weights = aggregate.weigh(losses[None], mass, loss.threshold, np.asarray(k), np.asarray(path.m))[0]
    by_margins = (weights * np.where(weights != 0, loss.slope(margins), 0)).astype(scores.dtype)
    if second is None:
        return (by_margins * data.targets)[None]
    places, out = np.arange(losses.size), np.zeros_like(scores)
    out[data.targets, places], out[second, places] = by_margins, -by_margins
    return out


def margins_of(scores: Array, data: Data) -> tuple[Array, Array | None]:
    """Return the margins (samples,) of scores (outputs, samples) and, for several outputs, the best wrong classes."""
    if data.outputs == 1:
        return scores[0] * data.targets, None
    places = np.arange(scores.shape[1])
    others = scores.copy()
    others[data.targets, places] = -math.inf
    second = others.argmax(axis=0)
    return scores[data.targets, places] - scores[second, places], second

"""The paper's network as one vector of weights: its shape, its random start, its scores and its training in NumPy.

The network has two hidden ReLU layers of h units with skip connections: the input of the second layer is [x, 1, h1],
and the input of the output layer is [x, 1, h1, h2]. The weights of a layer form a matrix (units, inputs). All three
matrices are stored in one vector, so a step of gradient descent needs only a few vector operations. Activations have
shape (units, samples).

:class:`TwinWalker` is the fallback for :mod:`.compiled`, and its reference in tests. It supports every loss and
aggregate, including those that a user adds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from .paths import BETAS, EPSILON, Data, Path, Settings

WIDE = 2**22  # the number of activations held at a time, to limit memory use


@dataclass(frozen=True)
class Shape:
    """The numbers of features, units in each hidden layer, and outputs.

    Examples
    --------
    >>> shape = Shape(features=6, hidden=4, outputs=1)
    >>> shape.layers, shape.size
    (((4, 7), (4, 11), (1, 15)), 87)
    """

    features: int
    hidden: int
    outputs: int

    @property
    def layers(self) -> tuple[tuple[int, int], ...]:
        """The shape (units, inputs) of each layer; the inputs include a constant 1 for the intercept."""
        seen = (self.features + 1 + layer * self.hidden for layer in range(3))
        return tuple(zip((self.hidden, self.hidden, self.outputs), seen, strict=True))

    @property
    def size(self) -> int:
        """The number of weights in a network."""
        return sum(units * seen for units, seen in self.layers)

    def split(self, values: Array) -> list[Array]:
        """Split vectors (..., size) into a matrix (..., units, inputs) for each layer; the matrices are views."""
        ends = np.cumsum([units * seen for units, seen in self.layers])[:-1]
        parts = np.split(values, ends, axis=-1)
        return [part.reshape(*values.shape[:-1], *each) for part, each in zip(parts, self.layers, strict=True)]

    def penalized(self, intercepts: bool) -> Array:
        """Return a vector (size,) with ones for penalised weights and zeros for the others."""
        mask = np.ones(self.size)
        if not intercepts:
            for layer in self.split(mask):
                layer[:, self.features] = 0
        return mask


@dataclass(frozen=True)
class Parameters:
    """The weights (rows, shape.size) of many networks of the same shape."""

    shape: Shape
    values: Array


def start(shape: Shape, seed: int) -> Parameters:
    """Return one random network whose weights are uniform within +-1/sqrt(fan-in), as in torch's linear layers."""
    features, hidden, outputs = shape.features, shape.hidden, shape.outputs
    rng = np.random.default_rng(seed)
    fans = np.repeat([features, features + hidden, features + 2 * hidden], [hidden, hidden, outputs])
    bounds = (1 / np.sqrt(np.maximum(fans, 1)))[:, None]
    on_inputs = bounds * rng.uniform(-1, 1, (2 * hidden + outputs, features + 1))
    on_first = bounds[hidden:] * rng.uniform(-1, 1, (hidden + outputs, hidden))
    on_second = bounds[2 * hidden :] * rng.uniform(-1, 1, (outputs, hidden))
    values = np.empty(shape.size)
    first, second, last = shape.split(values)
    first[:] = on_inputs[:hidden]
    second[:] = np.hstack([on_inputs[hidden : 2 * hidden], on_first[:hidden]])
    last[:] = np.hstack([on_inputs[2 * hidden :], on_first[hidden:], on_second])
    return Parameters(shape, values[None])


def forward(layers: list[Array], seen: Array) -> Array:
    """Return the scores (outputs, samples) of one network, given as the layers that :meth:`Shape.split` returns.

    ``seen`` (features + 1 + 2h, samples) contains the inputs and a row of ones; h1 and h2 are written below them.
    """
    for layer in layers[:2]:
        units, width = layer.shape
        hidden = np.matmul(layer, seen[:width], out=seen[width : width + units])
        np.maximum(hidden, 0, out=hidden)
    return layers[2] @ seen


def backward(layers: list[Array], seen: Array, pulls: Array, out: list[Array]) -> None:
    """Write the gradients of the loss to ``out``, given ``pulls``, its derivatives with respect to the scores."""
    inputs, hidden = layers[0].shape[1], layers[0].shape[0]
    np.matmul(pulls, seen.T, out=out[2])
    by_second = (layers[2][:, inputs + hidden :].T @ pulls) * (seen[inputs + hidden :] > 0)
    np.matmul(by_second, seen[: inputs + hidden].T, out=out[1])
    by_first = layers[2][:, inputs : inputs + hidden].T @ pulls + layers[1][:, inputs:].T @ by_second
    np.matmul(by_first * (seen[inputs : inputs + hidden] > 0), seen[:inputs].T, out=out[0])


def scores_of(parameters: Parameters, X: Array) -> Array:
    """Return scores (rows, outputs, samples) of inputs X (samples, features), in the dtype of the parameters."""
    shape, dtype = parameters.shape, parameters.values.dtype
    scores = np.empty((len(parameters.values), shape.outputs, len(X)), dtype=dtype)
    height = shape.layers[2][1]
    size = max(1, WIDE // height)
    for begin in range(0, len(X), size):
        part = slice(begin, begin + size)
        seen = np.empty((height, len(X[part])), dtype=dtype)
        seen[: shape.features], seen[shape.features] = X[part].T, 1
        for row, values in enumerate(parameters.values):
            scores[row, :, part] = forward(shape.split(values), seen)
    return scores


class TwinWalker:
    """A trainer that handles one network at a time, like :class:`closecall.network.compiled.CompiledWalker`."""

    def __init__(self, data: Data, shape: Shape, settings: Settings) -> None:
        self.data, self.shape, self.settings = data, shape, settings
        self.seen = np.ones((shape.layers[2][1], len(data.rows)), dtype=data.rows.dtype)
        self.seen[: shape.features] = data.rows.T
        self.penalized = shape.penalized(settings.penalize_intercept).astype(data.rows.dtype)
        self.gradient = np.empty(shape.size, dtype=data.rows.dtype)

    def network(self, weights: Array, mean: Array, square: Array, path: Path) -> Callable[[range], None]:
        """Return a function that trains a network for a span of steps, updating its three vectors (size,)."""
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

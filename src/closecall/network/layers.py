"""The paper's network as one vector of weights: the shape of networks, their random start and their scores.

The network has two hidden ReLU layers of h units with skip connections: the input of the second layer is [x, 1, h1],
and the input of the output layer is [x, 1, h1, h2]. The weights of a layer form a matrix (units, inputs). All three
matrices are stored in one vector, so a step of gradient descent needs only a few vector operations. Activations have
shape (units, samples).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._names import Array

WIDE = 2**22  # activations at a time, to bound the memory


@dataclass(frozen=True)
class Shape:
    """The numbers of features, of units in each hidden layer and of outputs.

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
    """Return one random network, with weights uniform within 1/sqrt(fan-in) as in torch's linear layers.

    Examples
    --------
    >>> start(Shape(features=6, hidden=4, outputs=1), seed=0).values.shape
    (1, 87)
    """
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

    ``seen`` (features + 1 + 2h, samples) contains the inputs and a row of ones; h1 and h2 are written to the rows below
    them.
    """
    for layer in layers[:2]:
        units, width = layer.shape
        hidden = np.matmul(layer, seen[:width], out=seen[width : width + units])
        np.maximum(hidden, 0, out=hidden)
    return layers[2] @ seen


def backward(layers: list[Array], seen: Array, pulls: Array, out: list[Array]) -> None:
    """Write the gradients of the weights to ``out``, given ``pulls``, the derivatives with respect to the scores."""
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

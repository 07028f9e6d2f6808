"""The paper's network as arrays: many networks of one shape, forward and backward, written out by hand.

Two hidden ReLU layers of h units with skip connections: the second layer's input is [x, h1], the output's [x, h1, h2].
Nothing is concatenated: a layer with two inputs is the sum of two products, and everything multiplied by x is in one
matrix. A step is then three products forward and five backward for all rows together.

Arrays are (rows, units, samples): configurations first, samples last.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from closecall.network import layers as network

WIDE = 2**22  # activations at a time when only scores are wanted


class Weights(NamedTuple):
    """The weights of many networks. With h hidden units and o outputs:

    ``on_inputs`` (rows, 2h + o, features + 1) multiplies x (last column: intercepts), for both layers and the output;
    ``on_first`` (rows, h + o, h) multiplies h1; ``on_second`` (rows, o, h) multiplies h2.
    """

    on_inputs: Tensor
    on_first: Tensor
    on_second: Tensor

    def rows(self, index: Any) -> Weights:
        """The networks at these rows (a view for a slice, a copy for a list)."""
        return Weights(*(each[index] for each in self))

    def to(self, **options: Any) -> Weights:
        """The same on another device or in another dtype."""
        return Weights(*(each.to(**options) for each in self))

    @property
    def hidden(self) -> int:
        """h, the units of a hidden layer."""
        return self.on_second.shape[2]


def start(features: int, hidden: int, outputs: int, seed: int) -> Weights:
    """One random start, (1, ...): uniform within 1/sqrt(fan-in), as in torch's linear layers.

    Examples
    --------
    >>> [tuple(each.shape) for each in start(features=6, hidden=4, outputs=1, seed=0)]
    [(1, 9, 7), (1, 5, 4), (1, 1, 4)]
    """
    return weights_of(network.start(network.Shape(features, hidden, outputs), seed))


def weights_of(given: network.Parameters) -> Weights:
    """NumPy networks as tensors."""
    return Weights(*map(torch.from_numpy, (given.on_inputs, given.on_first, given.on_second)))


def forward(parameters: Weights, inputs: Tensor, out: Tensor | None = None) -> Tensor:
    """Activations (rows, 2h + o, samples): h1, h2, then the scores.

    Parameters
    ----------
    parameters : Weights
    inputs : tensor (features + 1, samples) or (rows, features + 1, samples)
        Shared by all networks, or one each.
    out : tensor (rows, 2h + o, samples), optional
        Where to put them.

    Examples
    --------
    >>> parameters = start(features=2, hidden=2, outputs=1, seed=0)
    >>> forward(parameters, torch.ones(3, 5, dtype=torch.float64)).shape
    torch.Size([1, 5, 5])
    """
    on_inputs, on_first, on_second = parameters
    hidden = parameters.hidden
    if inputs.ndim == 3:
        acts = torch.bmm(on_inputs, inputs)
    else:  # one product for all networks
        flat = None if out is None else out.view(-1, inputs.shape[1])
        acts = torch.mm(on_inputs.reshape(-1, len(inputs)), inputs, out=flat).view(*on_inputs.shape[:2], -1)
    first = acts[:, :hidden].relu_()
    acts[:, hidden:].baddbmm_(on_first, first)
    second = acts[:, hidden : 2 * hidden].relu_()
    acts[:, 2 * hidden :].baddbmm_(on_second, second)
    return acts


def backward(parameters: Weights, inputs: Tensor, acts: Tensor, pulls: Tensor, out: Tensor | None = None) -> Weights:
    """Gradients of the parameters.

    Parameters
    ----------
    parameters : Weights
    inputs, acts
        The input and output of :func:`forward`.
    pulls : tensor (rows, o, samples)
        The derivatives with respect to the scores.
    out : tensor (rows, 2h + o, samples), optional
        A buffer for the derivatives with respect to all units.
    """
    _, on_first, on_second = parameters
    hidden = parameters.hidden
    by_units = torch.empty_like(acts) if out is None else out
    by_units[:, 2 * hidden :] = pulls
    first, second = acts[:, :hidden], acts[:, hidden : 2 * hidden]
    by_second = pulls @ second.mT
    torch.bmm(on_second.mT, pulls, out=by_units[:, hidden : 2 * hidden])
    by_units[:, hidden : 2 * hidden].mul_(second.sign())  # the ReLU's slope: its output is 0 or positive
    by_first = by_units[:, hidden:] @ first.mT
    torch.bmm(on_first.mT, by_units[:, hidden:], out=by_units[:, :hidden])
    by_units[:, :hidden].mul_(first.sign())
    flat = by_units if inputs.ndim == 3 else by_units.view(-1, inputs.shape[1])
    return Weights((flat @ inputs.mT).view_as(parameters.on_inputs), by_first, by_second)


def scores_of(parameters: Weights, inputs: Tensor) -> Tensor:
    """Scores (rows, outputs, samples) of inputs (features + 1, samples), a block of samples at a time."""
    width = max(1, WIDE // parameters.on_inputs[:, :, 0].numel())
    parts = [forward(parameters, part)[:, 2 * parameters.hidden :] for part in inputs.split(width, dim=1)]
    return torch.cat([part.clone() for part in parts], dim=2)


class ResidualMLP(nn.Module):  # type: ignore[misc]
    """One of these networks as a plain module, for any training loop.

    Parameters
    ----------
    features : int
    hidden : int, optional
        Units of each hidden layer; as many as features by default, as in the paper.
    outputs : int
        One logit for two classes, else one for each class.

    Examples
    --------
    >>> ResidualMLP(6)(torch.zeros(3, 6)).shape
    torch.Size([3, 1])
    """

    def __init__(self, features: int, hidden: int | None = None, outputs: int = 1) -> None:
        super().__init__()
        hidden = features if hidden is None else hidden
        self.first = nn.Linear(features, hidden)
        self.second = nn.Linear(features + hidden, hidden)
        self.output = nn.Linear(features + 2 * hidden, outputs)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (samples, outputs) of inputs (samples, features)."""
        seen = torch.cat([inputs, torch.relu(self.first(inputs))], dim=1)
        seen = torch.cat([seen, torch.relu(self.second(seen))], dim=1)
        return self.output(seen)

    @classmethod
    def of(cls, parameters: Weights | network.Parameters, row: int = 0) -> ResidualMLP:
        """A module equivalent to the network in row ``row`` of the parameters."""
        given = (parameters.on_inputs, parameters.on_first, parameters.on_second)
        on_inputs, on_first, on_second = (torch.as_tensor(each[row]).detach() for each in given)
        outputs, hidden = on_second.shape
        module = cls(on_inputs.shape[1] - 1, hidden, outputs).to(on_inputs)
        seen = {
            module.first: (on_inputs[:hidden],),
            module.second: (on_inputs[hidden : 2 * hidden], on_first[:hidden]),
            module.output: (on_inputs[2 * hidden :], on_first[hidden:], on_second),
        }
        with torch.no_grad():
            for layer, (by_inputs, *by_hidden) in seen.items():
                layer.weight.copy_(torch.cat([by_inputs[:, :-1], *by_hidden], dim=1))
                layer.bias.copy_(by_inputs[:, -1])
        return module

"""The network of :mod:`closecall.network.layers` in torch, as a plain module or as many networks of the same shape."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from closecall.network.layers import Parameters, Shape


def scores_of(shape: Shape, values: Tensor, inputs: Tensor) -> Tensor:
    """Return the scores (rows, outputs, samples) of networks with parameters (rows, size).

    The inputs have shape (features + 1, samples), with ones in the last row.
    """
    seen = inputs.expand(len(values), -1, -1)
    first, second, output = (
        part.view(len(values), units, width)
        for part, (units, width) in zip(values.split([u * w for u, w in shape.layers], 1), shape.layers, strict=True)
    )
    for layer in (first, second):
        seen = torch.cat([seen, (layer @ seen).relu()], dim=1)
    return output @ seen


class ResidualMLP(nn.Module):  # type: ignore[misc]
    """The paper's network as a plain module, for any training loop.

    Each hidden layer has ``hidden`` units; the default is the number of features, as in the paper. Use one output for
    two classes, otherwise one for each class.

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
        """Return the logits (samples, outputs) for inputs (samples, features)."""
        seen = torch.cat([inputs, torch.relu(self.first(inputs))], dim=1)
        seen = torch.cat([seen, torch.relu(self.second(seen))], dim=1)
        return self.output(seen)

    @classmethod
    def of(cls, parameters: Parameters, row: int = 0) -> ResidualMLP:
        """Return the network in row ``row`` of the parameters as a module."""
        shape, values = parameters.shape, torch.as_tensor(parameters.values[row])
        module = cls(shape.features, shape.hidden, shape.outputs).to(values)
        layers = (module.first, module.second, module.output)
        with torch.no_grad():
            for layer, given in zip(layers, shape.split(parameters.values[row]), strict=True):
                matrix = torch.as_tensor(given)
                layer.weight.copy_(torch.cat([matrix[:, : shape.features], matrix[:, shape.features + 1 :]], dim=1))
                layer.bias.copy_(matrix[:, shape.features])
        return module

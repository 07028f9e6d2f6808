"""The paper's network for a whole grid of problems on any torch device, one block of networks at a time.

On a CPU :mod:`closecall.network` is several times faster; this is the path for accelerators.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from closecall._names import Array
from closecall.network import grid
from closecall.network.data import Data
from closecall.network.grid import NetworkGrid, Tick
from closecall.network.layers import Parameters
from closecall.network.paths import Path, Settings, blocks
from closecall.objective import Problem

from .descent import Descent, Tensors, Watch, walk
from .layers import Weights, weights_of

CPU_BLOCK, LARGE_BLOCK = 2**18, 2**26  # activations of a block: what a core's cache holds, what fills an accelerator


def tensors(data: Data, device: Any) -> Tensors:
    """Examples on a torch device."""
    inputs = torch.as_tensor(np.vstack([data.rows.T, np.ones(len(data.rows), data.rows.dtype)]), device=device)
    mass = None if data.mass is None else torch.as_tensor(data.mass, dtype=inputs.dtype, device=device)
    return Tensors(inputs, torch.as_tensor(data.targets, device=device), mass, data.total, data.outputs)


def train_grid(
    X: Any,
    y: Any,
    problems: Sequence[Problem],
    *,
    device: Any = "cpu",
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> NetworkGrid:
    """Train one network for each problem, as :func:`closecall.network.train_grid` does, on a torch device.

    Parameters
    ----------
    X : array (samples, features)
    y : array (samples,)
    problems : sequence of Problem
    device : str or torch.device
    dtype : torch.dtype
    options : dict
        As for :func:`closecall.network.train_grid`. With ``validation`` a block of networks stops when none of them
        has improved for ``patience`` steps.

    Returns
    -------
    grid : NetworkGrid

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> y = np.array([-1, 1, 1, -1])
    >>> found = train_grid(X, y, [Problem(alpha=1e-3), Problem("hinge", "close_decay", k=3, alpha=1e-3)], hidden=8)
    >>> np.sign(found.scores(X)).astype(int).tolist()
    [[-1, 1, 1, -1], [-1, 1, 1, -1]]
    """
    trainer, dtype = partial(TorchTrainer, device=device), str(dtype).removeprefix("torch.")
    with torch.no_grad():
        return grid.train_grid(X, y, problems, dtype=dtype, trainer=trainer, **options)


class TorchTrainer:
    """Blocks of networks that share loss and aggregate, on a device; see :class:`closecall.network.grid.Trainer`."""

    def __init__(
        self,
        data: Data,
        held: Data | None,
        begin: Parameters,
        settings: Settings,
        patience: int,
        tick: Tick,
        *,
        device: Any,
    ) -> None:
        self.data, self.held = tensors(data, device), None if held is None else tensors(held, device)
        self.shape, self.settings, self.patience, self.tick = begin.shape, settings, patience, tick
        weights = weights_of(begin).to(device=device, dtype=self.data.inputs.dtype)
        zeros = Weights(*(torch.zeros_like(each) for each in weights))
        self.state = Descent(weights, zeros, zeros)

    def pick(self, rows: Sequence[int]) -> None:
        """Continue with these networks."""
        self.state = self.state.rows(rows)

    def train(self, paths: Sequence[Path], span: range, *, watched: bool) -> list[int]:
        """Take every block of rows through the span, in place; returns how many steps each row has taken."""
        state, inputs = self.state, self.data.inputs
        room = CPU_BLOCK if inputs.device.type == "cpu" else LARGE_BLOCK
        size = max(1, room // (state.parameters.on_inputs.shape[1] * inputs.shape[1]))
        steps: list[int] = []
        for where, block in blocks(paths, size):
            watch = Watch(self.held, len(block), self.patience) if watched and self.held is not None else None
            steps += [walk(state.rows(where), block, span, self.data, self.settings, watch, self.tick)] * len(block)
            if watch is not None and watch.kept is not None:
                for mine, kept in zip(state.parameters, watch.kept, strict=True):
                    mine[where] = kept
        return steps

    def weights(self) -> Array:
        """The current networks, (rows, size)."""
        return Parameters.joined(self.shape, *(each.cpu().numpy() for each in self.state.parameters)).values

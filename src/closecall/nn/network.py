"""Train the paper's network for a grid of problems on any torch device, one block of networks at a time.

This module is for accelerators; on a CPU, :mod:`closecall.network` is several times faster.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from closecall._names import Array
from closecall.aggregates import get_aggregate
from closecall.losses import get_loss
from closecall.network import grid
from closecall.network.classifier import ACCELERATED
from closecall.network.grid import KernelTrainer, NetworkGrid
from closecall.network.paths import BETAS, EPSILON, Data, Path, blocks
from closecall.objective import Problem
from closecall.schedules import first_final_step

from .forms import MARGIN_LOSSES
from .functional import WEIGH
from .layers import scores_of
from .selection import Selector, count_dtype

CPU_BLOCK, LARGE_BLOCK = 2**18, 2**26  # activations of a block that fit in a core's cache, or fill an accelerator


def train_grid(
    X: Any,
    y: Any,
    problems: Sequence[Problem],
    *,
    device: Any = "cpu",
    dtype: torch.dtype = torch.float32,
    **options: Any,
) -> NetworkGrid:
    """Train one network for each problem on a torch device, with the options of :func:`closecall.network.train_grid`.

    Early stopping ends a block when all of its networks have stopped improving.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> y = np.array([-1, 1, 1, -1])
    >>> found = train_grid(X, y, [Problem(alpha=1e-3), Problem("hinge", "close_decay", k=3, alpha=1e-3)], hidden=8)
    >>> np.sign(found.scores(X)).astype(int).tolist()
    [[-1, 1, 1, -1], [-1, 1, 1, -1]]
    """
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise ValueError(f"device={device!r} is not available: {error}; device='cpu' always works") from error
    trainer, dtype = partial(TorchTrainer, device=device), str(dtype).removeprefix("torch.")
    return grid.train_grid(X, y, problems, dtype=dtype, trainer=trainer, **options)


ACCELERATED["torch"] = train_grid  # lets the classifiers of closecall.network use torch devices


class Tensors(Data):
    """Examples on a device; ``rows`` contains the inputs (features + 1, samples) and, in its last row, ones."""

    rows: Tensor
    targets: Tensor

    @classmethod
    def of(cls, data: Data, device: Any) -> Tensors:
        """Copy examples to a torch device."""
        inputs = torch.as_tensor(np.vstack([data.rows.T, np.ones(len(data.rows), data.rows.dtype)]), device=device)
        mass = None if data.mass is None else torch.as_tensor(data.mass, dtype=inputs.dtype, device=device)
        return cls(inputs, torch.as_tensor(data.targets, device=device), mass, data.total, data.outputs)

    def margins(self, scores: Tensor) -> Tensor:
        """Convert scores (rows, outputs, samples) to margins (rows, samples): top-two margins for several outputs."""
        if self.outputs == 1:
            return scores[:, 0] * self.targets
        chosen = self.targets.expand(len(scores), 1, -1)
        others = scores.scatter(1, chosen, -math.inf)
        return (scores.gather(1, chosen) - others.max(dim=1, keepdim=True).values)[:, 0]

    def column(self, values: Any) -> Tensor:
        """Convert counts (rows,) to a column (rows, 1) in the dtype used for counts."""
        return torch.tensor(values, dtype=count_dtype(self.rows.device), device=self.rows.device)[:, None]


class TorchTrainer(KernelTrainer):
    """A trainer for networks on a device; the networks of a block share a loss and an aggregate."""

    def __init__(self, *given: Any, device: Any) -> None:
        super().__init__(*given)
        self.data, self.held = (None if each is None else Tensors.of(each, device) for each in (self.data, self.held))
        self.state = [torch.as_tensor(each).to(self.data.rows) for each in self.state]
        penalized = self.shape.penalized(self.settings.penalize_intercept)
        self.penalized = torch.as_tensor(penalized).to(self.data.rows)

    def train(self, paths: Sequence[Path], span: range, *, watched: bool) -> list[int]:
        """Train every block of networks for a range of steps, and return the last step of each network."""
        inputs = self.data.rows
        room = CPU_BLOCK if inputs.device.type == "cpu" else LARGE_BLOCK
        size = max(1, room // ((2 * self.shape.hidden + self.shape.outputs) * inputs.shape[1]))
        steps: list[int] = []
        for where, block in blocks(paths, size):
            watch = Watch(self, len(block)) if watched and self.held is not None else None
            steps += [self._descend([each[where] for each in self.state], block, span, watch)] * len(block)
            if watch is not None and watch.kept is not None:
                self.state[0][where] = watch.kept
        return steps

    def weights(self) -> Array:
        """Return the weights (rows, size) of the current networks."""
        return np.asarray(self.state[0].cpu())

    def _descend(self, state: Sequence[Tensor], paths: Sequence[Path], span: range, watch: Watch | None) -> int:
        """Train, in place, networks that share a loss and an aggregate for a range of steps; return the last step."""
        data, settings = self.data, self.settings
        loss, aggregate = get_loss(paths[0].loss), get_aggregate(paths[0].aggregate)
        alphas = data.rows.new_tensor([[path.alpha] for path in paths]) * self.penalized
        counts = np.array([path.counts(data.total, settings.max_iter, span) for path in paths])
        m = data.column([path.m for path in paths])
        select = Selector(None if data.mass is None else data.mass.expand(len(paths), -1))
        values, mean, square = state
        for step, ks in zip(span, counts.T, strict=True):
            leaf = values.detach().requires_grad_()
            losses = MARGIN_LOSSES[loss.name](data.margins(scores_of(self.shape, leaf, data.rows)))
            fixed = losses.detach()
            chosen = WEIGH[paths[0].aggregate](select, fixed, (fixed - loss.threshold).abs(), data.column(ks), m)
            (gradient,) = torch.autograd.grad((chosen * losses).sum(), leaf)
            gradient = gradient + alphas * values
            mean.lerp_(gradient, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            rate, correction = settings.factors(step)
            values.addcdiv_(mean, square.sqrt().mul_(correction).add_(EPSILON), value=-rate)
            self.tick(len(paths))
            waits = aggregate.decays and step < first_final_step(settings.max_iter)
            if watch is not None and not waits and watch.look(values):
                break
        return step


class Watch:
    """Early stopping, which keeps for each network the parameters that perform best on the validation data."""

    def __init__(self, trainer: TorchTrainer, rows: int) -> None:
        self.data, self.shape, self.patience = trainer.held, trainer.shape, trainer.patience
        self.best = torch.full((rows,), -1.0)
        self.stale = torch.zeros(rows, dtype=torch.int64)
        self.kept: Tensor | None = None

    def look(self, values: Tensor) -> bool:
        """Compare the networks with the best so far; return True if none has improved for ``patience`` steps."""
        right = self.data.margins(scores_of(self.shape, values, self.data.rows)) > 0
        mass = torch.ones_like(self.data.targets) if self.data.mass is None else self.data.mass
        found = (right * mass).sum(dim=1).double().cpu()
        better = found > self.best
        self.kept = values.clone() if self.kept is None else self.kept
        self.kept[better] = values[better]
        self.best = torch.where(better, found, self.best)
        self.stale = torch.where(better, 0, self.stale + 1)
        return bool((self.stale >= self.patience).all())

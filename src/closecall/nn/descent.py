"""Descent of a block of networks with one loss and aggregate: forward, selection, backward, Adam."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from closecall._names import Array
from closecall.aggregates import get_aggregate
from closecall.losses import get_loss
from closecall.network.paths import BETAS, EPSILON, Path, Settings, counts
from closecall.schedules import first_final_step

from .forms import MARGIN_LOSSES, MARGIN_SLOPES
from .functional import WEIGH
from .layers import Weights, backward, forward, scores_of
from .selection import Selector, count_dtype


@dataclass(frozen=True)
class Tensors:
    """Examples as tensors, on their device.

    Weights
    ----------
    inputs : tensor (features + 1, samples)
        The last row is ones.
    targets : tensor (samples,)
        Signs, or class numbers.
    mass : tensor (samples,) or None
        None if all are one.
    total : float
        The mass of all examples.
    outputs : int
        One, or the number of classes.
    """

    inputs: Tensor
    targets: Tensor
    mass: Tensor | None
    total: float
    outputs: int

    @cached_property
    def rows(self) -> Tensor:
        """The inputs as rows (samples, features + 1), from which a few can be picked."""
        return self.inputs.T.contiguous()

    def margins(self, scores: Tensor) -> tuple[Tensor, Tensor | None]:
        """Margins (rows, samples) of scores (rows, outputs, samples), and with classes the best other class."""
        if self.outputs == 1:
            return scores[:, 0] * self.targets, None
        chosen = self.targets.expand(len(scores), 1, -1)
        other = scores.scatter(1, chosen, -math.inf).max(dim=1, keepdim=True)
        return (scores.gather(1, chosen) - other.values)[:, 0], other.indices

    def spread(self, pulls: Tensor, second: Tensor | None) -> Tensor:
        """Turn derivatives w.r.t. the margins (rows, samples) into those w.r.t. the scores (rows, outputs, samples)."""
        if second is None:
            return (pulls * self.targets)[:, None]
        out = pulls.new_zeros(len(pulls), self.outputs, pulls.shape[1])
        out.scatter_(1, self.targets.expand(len(pulls), 1, -1), pulls[:, None])
        return out.scatter_(1, second, -pulls[:, None])


def selector_of(data: Tensors, rows: int) -> Selector:
    """The selector for this many networks on the same data; small whole masses become copies."""
    if data.mass is None:
        return Selector(None)
    mass = data.mass.cpu().numpy()
    few = bool((mass == np.round(mass)).all()) and data.total <= 4 * mass.size
    copies = np.repeat(np.arange(mass.size), mass.astype(int)) if few else None
    return Selector(data.mass.expand(rows, -1), copies)


class Descent(NamedTuple):
    """Networks in training: parameters, and Adam's running mean and mean square of the gradients."""

    parameters: Weights
    mean: Weights
    square: Weights

    def rows(self, index: Any) -> Descent:
        """The networks at these rows."""
        return Descent(*(each.rows(index) for each in self))

    def descend(self, gradients: Weights, step: int, rate: float) -> None:
        """One step of Adam (Kingma & Ba 2015), in place."""
        correction = math.sqrt(1 - BETAS[1] ** step)
        for value, mean, square, gradient in zip(*self, gradients, strict=True):
            mean.lerp_(gradient, 1 - BETAS[0])
            square.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
            scale = square.sqrt().div_(correction).add_(EPSILON)
            value.addcdiv_(mean, scale, value=-rate / (1 - BETAS[0] ** step))


def pull(scores: Tensor, data: Tensors, select: Selector, loss: str, aggregate: str, k: Tensor, m: Tensor) -> Tensor:
    """Derivatives (rows, outputs, samples) of one loss's aggregates w.r.t. the scores; k and m are (rows, 1)."""
    margins, second = data.margins(scores)
    known = get_loss(loss)
    losses = MARGIN_LOSSES[known.name](margins)
    weights = WEIGH[aggregate](select, losses, (losses - known.threshold).abs(), k, m)
    return data.spread(weights * MARGIN_SLOPES[known.name](margins), second)


class Watch:
    """Early stopping: remembers each row's best parameters on the validation data."""

    def __init__(self, data: Tensors, rows: int, patience: int) -> None:
        self.data, self.patience = data, patience
        self.best = torch.full((rows,), -1.0)
        self.stale = torch.zeros(rows, dtype=torch.int64)
        self.kept: Weights | None = None

    def look(self, parameters: Weights) -> bool:
        """Compare with the best so far; True if no row has improved within the patience."""
        right = self.data.margins(scores_of(parameters, self.data.inputs))[0] > 0
        mass = torch.ones_like(self.data.targets) if self.data.mass is None else self.data.mass
        found = (right * mass).sum(dim=1).double().cpu()
        better = found > self.best
        if self.kept is None:
            self.kept = Weights(*(each.clone() for each in parameters))
        for kept, current in zip(self.kept, parameters, strict=True):
            kept[better] = current[better]
        self.best = torch.where(better, found, self.best)
        self.stale = torch.where(better, 0, self.stale + 1)
        return bool((self.stale >= self.patience).all())


def slopes(parameters: Weights, data: Tensors, acts: Tensor, pulls: Tensor, out: Tensor) -> Weights:
    """Gradients of the parameters, with a backward pass through only those examples that carry weight in some network.

    With k close calls among n examples, all others have derivative zero. If at most a third remain, it is cheaper to
    gather them, (rows, features + 1, some), and to run forward and backward on these.
    """
    busy = (pulls != 0).any(dim=1)
    most = int(busy.sum(dim=1).max())
    if 3 * most >= busy.shape[1]:
        return backward(parameters, data.inputs, acts, pulls, out)
    places = busy.to(pulls.dtype).topk(max(most, 1), dim=1, sorted=False).indices
    inputs = data.rows[places].mT
    some = pulls.gather(2, places[:, None].expand(-1, pulls.shape[1], -1))
    return backward(parameters, inputs, forward(parameters, inputs), some)


def walk(
    state: Descent,
    paths: Sequence[Path],
    span: range,
    data: Tensors,
    settings: Settings,
    watch: Watch | None,
    tick: Callable[[int], int],
) -> int:
    """Take a block of rows of one loss and aggregate through a span of steps, in place; the last step taken."""
    loss, aggregate = paths[0].loss, paths[0].aggregate
    shape = (*state.parameters.on_inputs.shape[:2], data.inputs.shape[1])
    acts, room = (torch.empty(shape, dtype=data.inputs.dtype, device=data.inputs.device) for _ in range(2))
    alphas = data.inputs.new_tensor([path.alpha for path in paths])[:, None, None]
    penalized = None if settings.penalize_intercept else -1
    k_at, m = counts(paths, data.total, settings.max_iter)
    select = selector_of(data, len(paths))

    def column(values: Array) -> Tensor:
        return torch.as_tensor(values, dtype=count_dtype(data.inputs.device), device=data.inputs.device)

    outputs = slice(2 * state.parameters.hidden, None)
    for step in span:
        forward(state.parameters, data.inputs, out=acts)
        pulls = pull(acts[:, outputs], data, select, loss, aggregate, column(k_at(step)), column(m))
        gradients = slopes(state.parameters, data, acts, pulls, room)
        gradients.on_inputs[..., :penalized] += alphas * state.parameters.on_inputs[..., :penalized]
        gradients.on_first.addcmul_(alphas, state.parameters.on_first)
        gradients.on_second.addcmul_(alphas, state.parameters.on_second)
        state.descend(gradients, step, settings.rate(step))
        tick(len(paths))
        waits = get_aggregate(aggregate).decays and step < first_final_step(settings.max_iter)
        if watch is not None and not waits and watch.look(state.parameters):
            break
    return step

"""Mini-batches for :mod:`.contamination`: the paper's network in torch, close-k by the batch or by a memory.

A run costs as much as a whole grid of full batches, so every method has one setting, fixed before the first run.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from closecall.nn import AverageLoss, CloseKLoss, CountSchedule, KDecay, ResidualMLP, TrimmedLoss
from reproduction.protocol.splits import Division

from .contamination import BASE, CLOSE, MEMORY, STOPPED

BATCH, STEPS, RATE, DECAY, LOOK = 64, 400, 0.01, 1e-4, 20
SHARE, TRIM, SMOOTHING, EXPONENT = 0.5, 0.2, 0.2, 0.7


class _Generalised(nn.Module):
    """(1 - p^q) / q of one logit, averaged."""

    def forward(self, logits: Tensor, signs: Tensor) -> Tensor:
        return ((1 - torch.exp(EXPONENT * logsigmoid(logits * signs))) / EXPONENT).mean()


def settings(samples: int) -> Iterator[tuple[str, Any, Any]]:
    """Method, loss and its schedule."""
    yield BASE, AverageLoss("logistic"), None
    for method, options in ((CLOSE, {}), (MEMORY, {"memory": "global", "data_size": samples})):
        close = CloseKLoss("logistic", k=SHARE, **options)
        yield method, close, KDecay(close, STEPS)
    trimmed = TrimmedLoss("logistic", m=TRIM)
    yield "trimmed", trimmed, CountSchedule(trimmed, STEPS, count="m", until=1 / 3)
    yield "label smoothing", AverageLoss("logistic", label_smoothing=SMOOTHING), None
    yield "generalised CE", _Generalised(), None


def train(parts: Division, seed: int) -> Iterator[tuple[str, int, int]]:
    """Method and how many are right on validation and test; all have the same first weights and the same batches."""
    torch.set_num_threads(1)
    X, y = ([torch.as_tensor(each, dtype=torch.float32) for each in group] for group in (parts.X, parts.y))
    for method, loss, schedule in settings(len(y[0])):
        torch.manual_seed(seed)
        model = ResidualMLP(X[0].shape[1])
        best = _walk(model, loss, schedule, X, y, seed)
        yield method, *(_right(model, X[part], y[part]) for part in (1, 2))
        if method == BASE:  # the same run, where validation was best
            model.load_state_dict(best)
            yield STOPPED, *(_right(model, X[part], y[part]) for part in (1, 2))


def _walk(model: nn.Module, loss: Any, schedule: Any, X: list[Tensor], y: list[Tensor], seed: int) -> dict[str, Any]:
    """Train in place; the weights at which most of the validation part was right."""
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE, weight_decay=DECAY)
    generator, most, best = torch.Generator().manual_seed(seed), -1, {}
    for step in range(1, STEPS + 1):
        rows = torch.randint(len(y[0]), (BATCH,), generator=generator)
        optimizer.zero_grad()
        loss(model(X[0][rows])[:, 0], y[0][rows]).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
        if step % LOOK == 0 and (found := _right(model, X[1], y[1])) > most:
            most, best = found, copy.deepcopy(model.state_dict())
    return best


@torch.no_grad()
def _right(model: nn.Module, X: Tensor, y: Tensor) -> int:
    return int((model(X)[:, 0] * y > 0).sum())

"""Losses on logits, as modules: individual losses, then a reducer. The inputs are logits, always."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from .losses import check_loss, logit_losses
from .reducers import Average, AverageTopK, CloseK, Maximal, RankedRange, Reducer, TopK, Trimmed


class AggregateLoss(nn.Module):  # type: ignore[misc]
    """A loss on logits: individual losses, then a reducer.

    Parameters
    ----------
    reducer : Reducer
    loss : str
        ``"logistic"``, ``"hinge"`` or another loss of the core on the (top-two) margin, ``"cross_entropy"`` or
        ``"crammer_singer"``; see :func:`closecall.nn.losses.logit_losses`.
    ignore_index : int, optional
        Targets of this value weigh nothing.

    Examples
    --------
    >>> loss = AggregateLoss(Maximal(), "hinge")
    >>> loss(torch.tensor([0.5, -2.0]), torch.tensor([1, 1])).item()
    3.0
    """

    def __init__(self, reducer: Reducer, loss: str = "logistic", *, ignore_index: int | None = None) -> None:
        super().__init__()
        check_loss(loss)
        self.reducer, self.loss, self.ignore_index = reducer, loss, ignore_index

    def forward(self, logits: Tensor, targets: Tensor, *, mass: Tensor | None = None) -> Tensor:
        """Logits (samples, ...) or (samples, classes, ...) and targets (samples, ...) -> one number."""
        if self.ignore_index is not None:
            counted = targets != self.ignore_index
            mass = counted.to(torch.float32) if mass is None else mass * counted
            targets = torch.where(counted, targets, torch.ones_like(targets))  # 1 is valid in every coding
        found = logit_losses(self.loss, logits, targets)
        return self.reducer(found.losses, mass=mass, closeness=found.closeness)

    def extra_repr(self) -> str:
        """The settings, for ``repr``."""
        return f"loss={self.loss!r}"


class _NamedLoss(AggregateLoss):
    reducer_class: ClassVar[type[Reducer]]

    def __init__(self, loss: str = "logistic", *, ignore_index: int | None = None, **settings: Any) -> None:
        super().__init__(self.reducer_class(**settings), loss, ignore_index=ignore_index)


class CloseKLoss(_NamedLoss):
    """The k close calls; ``CloseKLoss(loss, k=..., **settings of CloseK)``.

    Examples
    --------
    >>> loss = CloseKLoss("cross_entropy", k=0.5)
    >>> logits = torch.tensor([[4.0, 0.0, 1.0], [0.0, 0.1, -9.0]])
    >>> round(loss(logits, torch.tensor([0, 1])).item(), 4)
    0.6445
    """

    reducer_class = CloseK


class AverageTopKLoss(_NamedLoss):
    """The k largest losses; ``AverageTopKLoss(loss, k=...)``."""

    reducer_class = AverageTopK


class TopKLoss(_NamedLoss):
    """The k-th largest loss; ``TopKLoss(loss, k=...)``."""

    reducer_class = TopK


class MaximalLoss(_NamedLoss):
    """The largest loss; ``MaximalLoss(loss)``."""

    reducer_class = Maximal


class AverageLoss(_NamedLoss):
    """Every loss; ``AverageLoss(loss)``."""

    reducer_class = Average


class RankedRangeLoss(_NamedLoss):
    """The losses ranked m+1 to k; ``RankedRangeLoss(loss, k=..., m=...)``."""

    reducer_class = RankedRange


class TrimmedLoss(_NamedLoss):
    """All but the m largest losses; ``TrimmedLoss(loss, m=...)``."""

    reducer_class = Trimmed

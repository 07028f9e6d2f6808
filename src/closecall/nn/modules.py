"""Losses on logits, as modules: individual losses, then a reducer. The inputs are logits, always."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from . import reducers
from .losses import check_loss, logit_losses


class AggregateLoss(nn.Module):  # type: ignore[misc]
    """A loss on logits: individual losses, then a reducer.

    Parameters
    ----------
    reducer : Reducer
    loss : str
        ``"logistic"``, ``"hinge"`` or another loss of the core on the (top-two) margin, ``"cross_entropy"``,
        ``"binary_cross_entropy"``, ``"generalized_cross_entropy"`` or ``"crammer_singer"``; see
        :func:`closecall.nn.losses.logit_losses`.
    ignore_index : int, optional
        Targets of this value are not there: they are not ranked, not counted, and their logits may be anything, NaN
        included. A batch of nothing else has loss 0 and gradient 0.
    weight : tensor (classes,), optional
        Factors of the losses by class, as in torch's ``reduction="none"``: the mean divides by how many are taken. For
        weights that count as examples give ``mass`` to the call.
    pos_weight : tensor, optional
        Factor of the positives' losses, with one logit for each target.
    label_smoothing : float
        As in torch's cross-entropy. Neither this nor the weights have a say in what is a close call: the margin has.

    Examples
    --------
    >>> loss = AggregateLoss(reducers.Maximal(), "hinge")
    >>> loss(torch.tensor([0.5, -2.0]), torch.tensor([1, 1])).item()
    3.0
    """

    weight: Tensor | None
    pos_weight: Tensor | None

    def __init__(
        self,
        reducer: reducers.Reducer,
        loss: str = "logistic",
        *,
        ignore_index: int | None = None,
        weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        check_loss(loss)
        if not 0 <= label_smoothing <= 1:
            raise ValueError(f"label_smoothing={label_smoothing!r} must lie in [0, 1]")
        self.reducer, self.loss, self.ignore_index, self.label_smoothing = reducer, loss, ignore_index, label_smoothing
        for name, given in (("weight", weight), ("pos_weight", pos_weight)):
            self.register_buffer(name, None if given is None else torch.as_tensor(given))

    def forward(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        mass: Tensor | None = None,
        mask: Tensor | None = None,
        positives: Tensor | None = None,
    ) -> Tensor:
        """Logits (samples, ...) or (samples, classes, ...) and targets (samples, ...) -> one number.

        ``mass`` are sample weights and ``mask`` says what counts, both of the losses' shape. ``positives`` are for
        :class:`HardNegatives`; by default all targets but 0, the background.
        """
        if self.ignore_index is not None:
            counted = targets != self.ignore_index
            mask = counted if mask is None else mask & counted
            targets = torch.where(counted, targets, torch.ones_like(targets))  # 1 is valid in every coding
        if mask is not None:  # nothing of what does not count may reach a gradient, not even times zero
            classes = -1 if logits.shape == (*mask.shape, 1) else 1
            shown = mask if logits.ndim == mask.ndim else mask.unsqueeze(classes)
            logits = torch.where(shown, logits, torch.zeros_like(logits))
        options = {"weight": self.weight, "pos_weight": self.pos_weight, "label_smoothing": self.label_smoothing}
        found = logit_losses(self.loss, logits, targets, **options)  # type: ignore[arg-type]
        if isinstance(self.reducer, reducers.HardNegatives):
            positives = targets > 0 if positives is None else positives
            return self.reducer(found.losses, mass=mass, mask=mask, positives=positives)
        return self.reducer(found.losses, mass=mass, closeness=found.closeness, mask=mask)

    def extra_repr(self) -> str:
        """The settings, for ``repr``."""
        shown = {"loss": self.loss, "ignore_index": self.ignore_index, "label_smoothing": self.label_smoothing}
        shown |= {name: getattr(self, name) for name in ("weight", "pos_weight") if getattr(self, name) is not None}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


class _NamedLoss(AggregateLoss):
    reducer_class: ClassVar[type[reducers.Reducer]]

    def __init__(
        self,
        loss: str = "logistic",
        *,
        ignore_index: int | None = None,
        weight: Tensor | None = None,
        pos_weight: Tensor | None = None,
        label_smoothing: float = 0.0,
        **settings: Any,
    ) -> None:
        super().__init__(
            self.reducer_class(**settings),
            loss,
            ignore_index=ignore_index,
            weight=weight,
            pos_weight=pos_weight,
            label_smoothing=label_smoothing,
        )


class CloseKLoss(_NamedLoss):
    """The k close calls; ``CloseKLoss(loss, k=..., **settings of CloseK)``.

    Examples
    --------
    >>> loss = CloseKLoss("cross_entropy", k=0.5)
    >>> logits = torch.tensor([[4.0, 0.0, 1.0], [0.0, 0.1, -9.0]])
    >>> round(loss(logits, torch.tensor([0, 1])).item(), 4)
    0.6445
    """

    reducer_class = reducers.CloseK


class AverageTopKLoss(_NamedLoss):
    """The k largest losses; ``AverageTopKLoss(loss, k=...)``."""

    reducer_class = reducers.AverageTopK


class TopKLoss(_NamedLoss):
    """The k-th largest loss; ``TopKLoss(loss, k=...)``."""

    reducer_class = reducers.TopK


class MaximalLoss(_NamedLoss):
    """The largest loss; ``MaximalLoss(loss)``."""

    reducer_class = reducers.Maximal


class AverageLoss(_NamedLoss):
    """Every loss; ``AverageLoss(loss)``."""

    reducer_class = reducers.Average


class RankedRangeLoss(_NamedLoss):
    """The losses ranked m+1 to k; ``RankedRangeLoss(loss, k=..., m=...)``."""

    reducer_class = reducers.RankedRange


class TrimmedLoss(_NamedLoss):
    """All but the m largest losses; ``TrimmedLoss(loss, m=...)``."""

    reducer_class = reducers.Trimmed


class HardNegativesLoss(_NamedLoss):
    """Positives and their hardest negatives; ``HardNegativesLoss(loss, ratio=3)``."""

    reducer_class = reducers.HardNegatives


class SpectrumLoss(_NamedLoss):
    """A member of a family of aggregates; ``SpectrumLoss(loss, name="human(0.4,0.3)")``."""

    reducer_class = reducers.Spectrum


class TiltedLoss(_NamedLoss):
    """The tilted loss; ``TiltedLoss(loss, t=...)``."""

    reducer_class = reducers.Tilted

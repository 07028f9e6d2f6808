"""Losses on logits as modules: individual losses followed by a reducer. The inputs are always logits."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from . import reducers
from .base import Reducer
from .close import CloseK
from .forms import LossOptions
from .losses import arranged, weighted_losses
from .selection import require


class AggregateLoss(nn.Module):  # type: ignore[misc]
    """A loss on logits: individual losses followed by a reducer.

    Parameters
    ----------
    reducer : Reducer
    loss : str
        A name in the table of :func:`closecall.nn.losses.logit_losses`.
    ignore_index : int, optional
        Targets with this value do not count, and their logits may have any value, even NaN. If all targets are ignored,
        the loss and the gradient are 0. As in torch, a negative value has no effect on targets that are probabilities.
    weight, pos_weight, label_smoothing, gamma, alpha, q
        The same as in :func:`closecall.nn.losses.logit_losses`. As in torch's cross-entropy, the mean is the sum of the
        losses divided by the sum of the weights of the selected targets, or by their number if they are class
        probabilities. (If the weights of a smooth reducer change with the losses, a correct gradient requires division
        by the mean weight of all targets instead.) Close calls depend only on the margin. To weight the examples in the
        selection as well, pass ``mass`` to the call.

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
        reducer: Reducer,
        loss: str = "log_loss",
        *,
        ignore_index: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.reducer, self.loss, self.ignore_index = reducer, loss, ignore_index
        for name, given in LossOptions(**options)._asdict().items():
            if name in ("weight", "pos_weight"):
                self.register_buffer(name, None if given is None else _as_factors(name, given))
            else:
                setattr(self, name, given)
        self.options().check(loss)

    def options(self) -> LossOptions:
        """Return the options of the loss."""
        return LossOptions(*(getattr(self, name) for name in LossOptions._fields))

    def forward(
        self,
        logits: Tensor,
        targets: Tensor,
        *,
        mass: Tensor | None = None,
        mask: Tensor | None = None,
        positives: Tensor | None = None,
    ) -> Tensor:
        """Reduce logits (samples, ...) or (samples, classes, ...) and targets (samples, ...) to one number.

        ``mass`` holds sample weights and ``mask`` marks the examples that count; both have the shape of the losses.
        ``positives`` is used by :class:`HardNegatives`; by default, it marks all targets except 0, the background.
        """
        logits, soft = arranged(self.loss, logits, targets)
        mask = self._counted(logits, targets, mask, soft)
        if mask is not None:  # masked logits must not reach the gradient: zero times NaN is NaN
            shown = mask if logits.ndim == mask.ndim else mask.unsqueeze(1)
            logits = torch.where(shown, logits, torch.zeros_like(logits))
            # 1 is a valid target in every encoding.
            targets = torch.where(shown if soft else mask, targets, torch.ones_like(targets))
        losses, closeness, divisor = weighted_losses(self.loss, logits, targets, soft, self.options())
        given = {"mass": mass, "mask": mask} | ({} if divisor is None else {"divisor": divisor})
        if isinstance(self.reducer, reducers.HardNegatives):
            return self.reducer(losses, positives=targets > 0 if positives is None else positives, **given)
        return self.reducer(losses, closeness=closeness, **given)

    def _counted(self, logits: Tensor, targets: Tensor, mask: Tensor | None, soft: bool) -> Tensor | None:
        ignored = self.ignore_index
        if ignored is None or (soft and ignored < 0):
            return mask
        if soft:
            raise ValueError(
                f"ignore_index={ignored} is a class, but these targets are probabilities; use mask= instead"
            )
        if logits.shape == targets.shape and ignored in (-1, 0, 1):
            raise ValueError(
                f"with one logit for each target, ignore_index={ignored} may be one of the two classes (0 and 1, or -1 "
                "and +1), and that class would be ignored; choose another number, or pass mask= to the call"
            )
        counted = targets != ignored
        return counted if mask is None else mask & counted

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        shown = {"loss": self.loss, "ignore_index": self.ignore_index, "label_smoothing": self.label_smoothing}
        shown |= {name: value for name, value in self.options()._asdict().items() if value is not None}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def _as_factors(name: str, given: Any) -> Tensor:
    # Class weights in floating point; each call converts them to the precision of the losses.
    factors = torch.as_tensor(given)
    if factors.is_complex():
        raise TypeError(f"{name} must be real numbers, not {factors.dtype}")
    factors = factors if factors.is_floating_point() else factors.to(torch.get_default_dtype())
    require((torch.isfinite(factors) & (factors >= 0)).all(), f"{name} must be finite and not negative, got {given}")
    return factors


class _NamedLoss(AggregateLoss):
    reducer_class: ClassVar[type[Reducer]]

    def __init_subclass__(cls, reducer: type[Reducer] | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        if reducer is not None:  # a user's own subclass keeps the reducer
            cls.reducer_class = reducer

    def __init__(self, loss: str = "log_loss", **settings: Any) -> None:
        own = {name: settings.pop(name) for name in ("ignore_index", *LossOptions._fields) if name in settings}
        super().__init__(self.reducer_class(**settings), loss, **own)


class CloseKLoss(_NamedLoss, reducer=CloseK):
    """The average loss of the k close calls: ``CloseKLoss(loss, k=..., **settings of CloseK)``.

    Examples
    --------
    >>> loss = CloseKLoss("cross_entropy", k=0.5)
    >>> logits = torch.tensor([[4.0, 0.0, 1.0], [0.0, 0.1, -9.0]])
    >>> round(loss(logits, torch.tensor([0, 1])).item(), 4)
    0.6445
    """


class AverageTopKLoss(_NamedLoss, reducer=reducers.AverageTopK):
    """The average of the k largest losses: ``AverageTopKLoss(loss, k=...)``."""


class TopKLoss(_NamedLoss, reducer=reducers.TopK):
    """The k-th largest loss: ``TopKLoss(loss, k=...)``."""


class MaximalLoss(_NamedLoss, reducer=reducers.Maximal):
    """The largest loss: ``MaximalLoss(loss)``."""


class AverageLoss(_NamedLoss, reducer=reducers.Average):
    """The average of all losses: ``AverageLoss(loss)``."""


class RankedRangeLoss(_NamedLoss, reducer=reducers.RankedRange):
    """The average of the losses ranked m+1 to k: ``RankedRangeLoss(loss, k=..., m=...)``."""


class TrimmedLoss(_NamedLoss, reducer=reducers.Trimmed):
    """The average of all but the m largest losses: ``TrimmedLoss(loss, m=...)``."""


class HardNegativesLoss(_NamedLoss, reducer=reducers.HardNegatives):
    """The loss of the positives and the hardest negatives: ``HardNegativesLoss(loss, ratio=3)``."""


class SpectrumLoss(_NamedLoss, reducer=reducers.Spectrum):
    """An aggregate from one of the families: ``SpectrumLoss(loss, name="human(0.4,0.3)")``."""


class TiltedLoss(_NamedLoss, reducer=reducers.Tilted):
    """The tilted loss: ``TiltedLoss(loss, t=...)``."""

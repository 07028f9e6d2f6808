"""skorch: a classifier that predicts proper probabilities, and a callback for schedules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..schedule import KDecay

try:
    from skorch import NeuralNetClassifier
    from skorch.callbacks import Callback
    from skorch.dataset import get_len
except ImportError:
    NeuralNetClassifier = Callback = None

NEEDED = 'needs skorch: pip install "closecall[integrations]"'


def probabilities(logits: Tensor) -> Tensor:
    """Convert logits (samples, classes), (samples, 1) or (samples,) to probabilities (samples, classes).

    Examples
    --------
    >>> probabilities(torch.tensor([0.0, 0.0])).tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    if logits.ndim > 1 and logits.shape[1] > 1:
        return logits.softmax(dim=1)
    positive = logits.reshape(len(logits)).sigmoid()
    return torch.stack([1 - positive, positive], dim=1)


def accumulated(net: Any) -> int:
    """Return the number of batches that a net with skorch's ``AccelerateMixin`` accumulates for each step."""
    return getattr(getattr(net, "accelerator", None), "gradient_accumulation_steps", 1)


def has_stepped(net: Any) -> bool:
    """Return whether the optimiser has stepped after the last batch."""
    return getattr(getattr(net, "accelerator", None), "sync_gradients", True)


class AggregateNetClassifier(NeuralNetClassifier or object):  # type: ignore[misc]
    """skorch's classifier for losses on logits: ``AggregateNetClassifier(Module, criterion=CloseKLoss, ...)``.

    skorch converts outputs to probabilities only for torch's own losses. This class also converts the logits (one for
    each class, or a single one) that the losses of :mod:`closecall.nn` expect.

    If batches are accumulated with ``AccelerateMixin`` (``class Net(AccelerateMixin, AggregateNetClassifier)``), skorch
    loses the gradients of all but the last batch of a step; this class clears them after the step instead.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if NeuralNetClassifier is None:
            raise ImportError(f"AggregateNetClassifier {NEEDED}")
        super().__init__(*args, **kwargs)

    def _zero_grad_optimizer(self, set_to_none: bool | None = None) -> None:
        if accumulated(self) <= 1:
            super()._zero_grad_optimizer(set_to_none)

    def on_batch_end(self, net: Any, batch: Any = None, training: bool = False, **kwargs: Any) -> None:
        """Clear accumulated gradients once the optimiser has stepped."""
        super().on_batch_end(net, batch=batch, training=training, **kwargs)
        if training and accumulated(self) > 1 and has_stepped(self):
            super()._zero_grad_optimizer()

    def _get_predict_nonlinearity(self) -> Callable[[Any], Any]:
        if self.predict_nonlinearity != "auto":
            return super()._get_predict_nonlinearity()
        return probabilities


class SkorchSchedule(Callback or object):  # type: ignore[misc]
    """A callback that creates a schedule for the criterion's reducer when a fit begins, and advances it.

    Parameters
    ----------
    make : callable
        ``(criterion, total_steps) -> schedule``; by default the paper's decay.
    per : {"epoch", "batch"}
        What counts as a step; batches accumulated for one optimiser step count as one step.
    """

    def __init__(self, make: Callable[[Any, int], Any] = KDecay, per: str = "epoch") -> None:
        if Callback is None:
            raise ImportError(f"SkorchSchedule {NEEDED}")
        if per not in ("epoch", "batch"):
            raise ValueError(f"per={per!r} is not known; choose 'epoch' or 'batch'")
        self.make, self.per = make, per

    def on_train_begin(self, net: Any, X: Any = None, y: Any = None, **kwargs: Any) -> None:
        """Create a schedule for a new criterion; another ``partial_fit`` continues with the existing schedule."""
        schedules = net.criterion_.reducer.schedules
        if schedules:
            self.schedule_ = next(iter(schedules.values()))
            return
        batches = 1
        if self.per == "batch":
            batches = 1 if net.batch_size == -1 else -(-get_len(X) // net.batch_size)
            batches = -(-batches // accumulated(net))
        self.schedule_ = self.make(net.criterion_, net.max_epochs * batches)

    def on_batch_end(self, net: Any, training: bool = False, **kwargs: Any) -> None:
        """Advance once the optimiser has stepped, if steps are batches."""
        if self.per == "batch" and training and has_stepped(net):
            self.schedule_.step()

    def on_epoch_end(self, net: Any, **kwargs: Any) -> None:
        """Advance at the end of an epoch, if steps are epochs."""
        if self.per == "epoch":
            self.schedule_.step()

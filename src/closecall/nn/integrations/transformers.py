"""Hugging Face's Trainer: a ``compute_loss_func`` that accumulates correctly, and a callback for schedules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..modules import AggregateLoss

try:
    from transformers import TrainerCallback
except ImportError:
    TrainerCallback = None

#: The file in a checkpoint that contains the state of the loss.
STATE = "closecall_loss.pt"


class TrainerLoss:
    """A loss on logits as the Trainer's ``compute_loss_func``.

    Instead of dividing such a loss by the number of accumulated batches, the Trainer passes the total number of
    targets in them, ``num_items_in_batch``. The mean of a batch is therefore weighted by its share of the targets.

    Use ``ignore_index=-100`` for padded targets, and ``shift=True`` if targets are the next tokens, as in causal
    language models; a ``group`` needs ``average_tokens_across_devices=False``.

    Examples
    --------
    >>> from closecall.nn import AverageLoss
    >>> loss = TrainerLoss(AverageLoss("cross_entropy"))
    >>> logits, labels = torch.zeros(4, 2), torch.tensor([0, 1, 1, 0])
    >>> round(loss({"logits": logits}, labels, num_items_in_batch=16).item(), 4)
    0.1733
    """

    def __init__(self, loss: AggregateLoss, *, shift: bool = False) -> None:
        if loss.reducer.reduction == "none":
            raise ValueError("the Trainer needs a single number; use reduction='mean' or 'sum'")
        self.loss, self.shift = loss, shift

    def __call__(self, outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
        """Return the loss for logits (samples, classes) or (samples, length, classes) and labels (samples, ...)."""
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        self.loss.to(logits.device)
        if self.shift:
            logits, labels = logits[:, :-1], labels[:, 1:]
        if logits.ndim == labels.ndim + 1 and logits.ndim > 2:
            logits = logits.movedim(-1, 1)
        value = self.loss(logits, labels)
        if num_items_in_batch is None or self.loss.reducer.reduction == "sum":
            return value
        ignored = self.loss.ignore_index
        items = labels.numel() if ignored is None else (labels != ignored).sum()
        return value * (items / num_items_in_batch)


class TrainerSchedule(TrainerCallback or object):  # type: ignore[misc]
    """A callback that advances a schedule once per optimiser step and checkpoints the reducer's state.

    The weight selected in the last batch is logged under the name ``log``, unless ``log`` is None.
    """

    def __init__(self, schedule: Any, *, log: str | None = "k") -> None:
        if TrainerCallback is None:
            raise ImportError('TrainerSchedule needs transformers: pip install "closecall[integrations]"')
        super().__init__()
        self.schedule, self.log = schedule, log

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore the position and, if the checkpoint contains it, the memory."""
        path = Path(args.output_dir) / f"checkpoint-{state.global_step}" / STATE
        if state.global_step and path.exists():
            self.schedule.reducer.load_state_dict(torch.load(path, weights_only=True))
        self.schedule.move_to(state.global_step)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Advance the schedule after each optimiser step."""
        self.schedule.step()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save the reducer's state in the checkpoint's folder."""
        if state.is_world_process_zero:
            path = Path(args.output_dir) / f"checkpoint-{state.global_step}" / STATE
            torch.save(self.schedule.reducer.state_dict(), path)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        """Log the selected weight alongside the loss."""
        taken = self.schedule.reducer.last_k
        if self.log and logs is not None and taken is not None and "loss" in logs:
            logs[self.log] = float(taken)
            if state.log_history:
                state.log_history[-1][self.log] = float(taken)

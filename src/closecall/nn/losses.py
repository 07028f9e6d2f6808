"""Individual losses of logits: scores and targets -> losses, and how close each example is to the boundary.

Every loss of the core is a function of the margin; here the margin comes from logits. With one logit an example it is
``y * z``; with a logit for each class it is the *top-two margin* ``z_y - max of the other scores``, positive exactly
where the prediction is right, so that ``l(0)`` stays the boundary for any number of classes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from closecall._names import lookup
from closecall.losses import FOCAL_GAMMA, get_loss

from .selection import require

#: Margins -> losses, for every loss of the core. The relus have the core's slopes at the kinks, which clamp has not.
MARGIN_LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": lambda margins: -F.logsigmoid(margins),
    "hinge": lambda margins: F.relu(1 - margins),
    "squared_hinge": lambda margins: F.relu(1 - margins).square(),
    "ramp": lambda margins: 2 - F.relu(2 - F.relu(1 - margins)),
    "modified_huber": lambda margins: torch.where(
        margins >= -1, F.relu(1 - margins.clamp(min=-1)).square(), -4 * margins
    ),
    "focal": lambda margins: torch.sigmoid(-margins) ** FOCAL_GAMMA * -F.logsigmoid(margins),
}
#: Margins -> derivatives of those losses by the margin.
MARGIN_SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "logistic": lambda margins: -torch.sigmoid(-margins),
    "hinge": lambda margins: -(margins < 1).to(margins.dtype),
    "squared_hinge": lambda margins: -2 * F.relu(1 - margins),
    "ramp": lambda margins: -(margins.abs() < 1).to(margins.dtype),
    "modified_huber": lambda margins: -2 * (1 - margins).clamp(0, 2),
    "focal": lambda margins: (
        torch.sigmoid(-margins) ** FOCAL_GAMMA
        * (FOCAL_GAMMA * torch.sigmoid(margins) * F.logsigmoid(margins) - torch.sigmoid(-margins))
    ),
}
#: Names that only make sense with a logit for each class, and the margin loss that says how close a call is.
CLASS_LOSSES = {"cross_entropy": "logistic", "crammer_singer": "hinge"}


class LogitLosses(NamedTuple):
    """Losses, and which of them are close calls; both (samples, ...)."""

    losses: Tensor
    closeness: Tensor  # how far from the boundary, without gradient


def check_loss(name: str) -> None:
    """Raise a ``ValueError`` that lists the allowed names unless ``name`` is one of them."""
    lookup(dict.fromkeys([*MARGIN_LOSSES, *CLASS_LOSSES]), name, "loss")


def margins(logits: Tensor, targets: Tensor) -> Tensor:
    """Margins of logits, positive where the prediction is right.

    Parameters
    ----------
    logits : tensor (samples, ...) or (samples, classes, ...)
        One logit for each target, or one for each class in dimension 1, as in torch's ``cross_entropy``.
    targets : tensor (samples, ...)
        With one logit: 0 and 1, or -1 and +1. With classes: integers 0..classes-1.

    Returns
    -------
    margins : tensor (samples, ...)

    Examples
    --------
    >>> margins(torch.tensor([0.5, -2.0]), torch.tensor([1, 0])).tolist()
    [0.5, 2.0]
    >>> margins(torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([2])).tolist()
    [-2.0]
    """
    if logits.shape == (*targets.shape, 1):
        logits = logits.squeeze(-1)
    if logits.shape == targets.shape:
        return logits * _signs(targets).to(logits.dtype)
    chosen = _class_targets(logits, targets).unsqueeze(1)
    others = logits.scatter(1, chosen, -math.inf).amax(dim=1)
    return logits.gather(1, chosen).squeeze(1) - others


def logit_losses(name: str, logits: Tensor, targets: Tensor) -> LogitLosses:
    """Losses of logits by name: a margin loss of the core, ``"cross_entropy"`` or ``"crammer_singer"``.

    Cross-entropy is torch's; its value on the boundary depends on the other classes, so its close calls are told by
    the logistic loss of the top-two margin (with two classes the same thing). ``"crammer_singer"`` is the hinge loss
    of the top-two margin.

    Examples
    --------
    >>> logit_losses("crammer_singer", torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([2])).losses.tolist()
    [3.0]
    """
    check_loss(name)
    if name in CLASS_LOSSES and logits.ndim != targets.ndim + 1:
        raise ValueError(
            f"{name!r} needs logits (samples, classes, ...) and targets (samples, ...), "
            f"got shapes {tuple(logits.shape)} and {tuple(targets.shape)}"
        )
    if name == "cross_entropy":
        losses = F.cross_entropy(logits, _class_targets(logits, targets), reduction="none")
        ranked = MARGIN_LOSSES["logistic"](margins(logits.detach(), targets))
    else:
        losses = MARGIN_LOSSES[CLASS_LOSSES.get(name, name)](margins(logits, targets))
        ranked = losses.detach()
    return LogitLosses(losses, (ranked - get_loss(CLASS_LOSSES.get(name, name)).threshold).abs())


def _signs(targets: Tensor) -> Tensor:
    zero, minus = targets == 0, targets == -1
    valid = (zero | minus | (targets == 1)).all() & ~(zero.any() & minus.any())
    require(valid, "binary targets must be 0 and 1, or -1 and +1; for classes give logits (samples, classes)")
    return torch.where(targets > 0, 1, -1)


def _class_targets(logits: Tensor, targets: Tensor) -> Tensor:
    if logits.ndim != targets.ndim + 1 or logits.shape[:1] + logits.shape[2:] != targets.shape:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} do not fit targets of shape {tuple(targets.shape)}: "
            "they need the same shape (one logit each) or one more dimension 1, the classes"
        )
    classes = logits.shape[1]
    if classes < 2:
        raise ValueError("one class only; with a single logit for each example drop dimension 1")
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise TypeError(f"class targets must be integers 0..{classes - 1}, not {targets.dtype}")
    valid = ((targets >= 0) & (targets < classes)).all()
    require(valid, f"targets lie outside the {classes} classes: they must be integers 0..{classes - 1}")
    return targets.long()

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
from closecall.losses import FOCAL_GAMMA, GCE_Q, get_loss

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
    "sigmoid": lambda margins: torch.sigmoid(-margins),
    "generalized_ce": lambda margins: -torch.expm1(GCE_Q * F.logsigmoid(margins)) / GCE_Q,
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
    "sigmoid": lambda margins: -torch.sigmoid(margins) * torch.sigmoid(-margins),
    "generalized_ce": lambda margins: -torch.exp(GCE_Q * F.logsigmoid(margins)) * torch.sigmoid(-margins),
}
#: Torch's own losses on logits, and the margin loss that says how close a call is under them.
OWN_LOSSES = {
    "cross_entropy": "logistic",
    "generalized_cross_entropy": "logistic",
    "crammer_singer": "hinge",
    "binary_cross_entropy": "logistic",
}
#: Those of them that need a logit for each class.
CLASS_LOSSES = ("cross_entropy", "generalized_cross_entropy", "crammer_singer")


class LogitLosses(NamedTuple):
    """Losses, and which of them are close calls; both (samples, ...)."""

    losses: Tensor
    closeness: Tensor  # how far from the boundary, without gradient


def check_loss(name: str) -> None:
    """Raise a ``ValueError`` that lists the allowed names unless ``name`` is one of them."""
    lookup(dict.fromkeys([*MARGIN_LOSSES, *OWN_LOSSES]), name, "loss")


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


def logit_losses(
    name: str,
    logits: Tensor,
    targets: Tensor,
    *,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    label_smoothing: float = 0.0,
) -> LogitLosses:
    """Losses of logits by name, and how close each call is.

    The name is a margin loss of the core, or ``"cross_entropy"``, ``"generalized_cross_entropy"``,
    ``"crammer_singer"`` (the hinge loss of the top-two margin) or ``"binary_cross_entropy"`` (torch's, with logits).
    Cross-entropy's value on the boundary depends on the other classes, and weights and smoothing move that of any
    loss, so close calls are found by the margin alone: by its logistic loss (with two classes the same thing), or for
    the other losses by their own, before any weight.

    Parameters
    ----------
    name : str
    logits : tensor (samples, ...) or (samples, classes, ...)
    targets : tensor (samples, ...)
        As in :func:`margins`. Cross-entropy also takes probabilities (samples, classes, ...), binary cross-entropy
        probabilities (samples, ...); the likeliest class is then the one the margin is of.
    weight : tensor (classes,), optional
        Factors of the losses, by class; with one logit (2,), of the negatives and the positives.
    pos_weight : tensor, optional
        Factor of the positives' losses, with one logit for each target.
    label_smoothing : float
        As in torch's cross-entropy; with one logit, that of two classes.

    Examples
    --------
    >>> logit_losses("crammer_singer", torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([2])).losses.tolist()
    [3.0]
    """
    check_loss(name)
    if logits.shape == (*targets.shape, 1):
        logits = logits.squeeze(-1)
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()  # margins of half-precision logits would be tied, and their losses rounded
    one_logit = logits.shape == targets.shape
    soft = one_logit and name == "cross_entropy" and logits.ndim > 1 and targets.is_floating_point()
    if name in CLASS_LOSSES and not soft and logits.ndim != targets.ndim + 1:
        raise ValueError(
            f"{name!r} needs logits (samples, classes, ...) and targets (samples, ...), "
            f"got shapes {tuple(logits.shape)} and {tuple(targets.shape)}"
        )
    hard = _hard(name, targets, soft)
    found = margins(logits.detach(), hard)
    ranking = OWN_LOSSES.get(name, name)
    closeness = (MARGIN_LOSSES[ranking](found) - get_loss(ranking).threshold).abs()
    if name == "cross_entropy":
        _refuse(name, pos_weight=pos_weight)
        given = targets.to(logits.dtype) if soft else hard.long()
        losses = F.cross_entropy(logits, given, weight, reduction="none", label_smoothing=label_smoothing)
        return LogitLosses(losses, closeness)
    if one_logit:
        losses = _one_logit(name, logits, targets, label_smoothing)
        return LogitLosses(_weighted(losses, hard, weight, pos_weight), closeness)
    _refuse(name, pos_weight=pos_weight, label_smoothing=label_smoothing or None)
    if name == "generalized_cross_entropy":
        own = logits.gather(1, hard.long().unsqueeze(1)).squeeze(1)
        losses = -torch.expm1(GCE_Q * (own - logits.logsumexp(dim=1))) / GCE_Q
    else:
        losses = MARGIN_LOSSES[ranking](margins(logits, hard))
    return LogitLosses(losses if weight is None else losses * weight[hard.long()], closeness)


def _hard(name: str, targets: Tensor, soft: bool) -> Tensor:
    # The class that the margin is of.
    if soft:
        return targets.argmax(dim=1)
    if name != "binary_cross_entropy":
        return targets
    valid = ((targets >= 0) & (targets <= 1)).all()
    require(valid, "targets of binary cross-entropy must lie in [0, 1]; for classes give logits (samples, classes)")
    return (targets >= 0.5).to(torch.int64)


def _one_logit(name: str, logits: Tensor, targets: Tensor, label_smoothing: float) -> Tensor:
    if name == "binary_cross_entropy":
        given = targets.to(logits.dtype)
        given = given * (1 - label_smoothing) + label_smoothing / 2
        return F.binary_cross_entropy_with_logits(logits, given, reduction="none")
    found = margins(logits, targets)
    losses = MARGIN_LOSSES[name](found)
    if label_smoothing:
        losses = (1 - label_smoothing / 2) * losses + label_smoothing / 2 * MARGIN_LOSSES[name](-found)
    return losses


def _weighted(losses: Tensor, targets: Tensor, weight: Tensor | None, pos_weight: Tensor | None) -> Tensor:
    positive = targets > 0
    if weight is not None:
        if weight.shape != (2,):
            raise ValueError(f"with one logit weight needs shape (2,), one for each class, not {tuple(weight.shape)}")
        losses = losses * torch.where(positive, weight[1], weight[0])
    if pos_weight is not None:
        losses = torch.where(positive, losses * pos_weight, losses)
    return losses


def _refuse(name: str, **given: object) -> None:
    for option, value in given.items():
        if value is not None:
            raise ValueError(f"{name!r} with a logit for each class takes no {option}")


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

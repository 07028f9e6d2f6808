"""Individual losses on logits, and the distance of each example from the boundary.

Every loss in the core is a function of the margin; this module computes the margin from logits. With one logit per
example, it is ``y * z``; with a logit for each class, it is ``z_y`` minus a summary of the other logits. If the summary
is their *maximum*, the result is the top-two margin, which is positive if and only if the prediction is correct, so
``l(0)`` is the loss on the boundary for any number of classes. If the summary is the logarithm of the sum of their
exponentials, the result is the margin of the softmax: cross-entropy is the logistic loss of that margin.
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .forms import FORMS, TOP_TWO, Form, LossOptions
from .selection import require


class LogitLosses(NamedTuple):
    """The loss of each example and its distance from the boundary, both of shape (samples, ...)."""

    losses: Tensor
    closeness: Tensor  # without gradient


#: Losses, closeness, and the contribution of each loss to the mean's divisor (1 each if None).
Weighted = tuple[Tensor, Tensor, Tensor | None]


def squeezed(logits: Tensor, targets: Tensor) -> Tensor:
    """Reshape single logits to the shape of the targets; return logits with a class dimension unchanged."""
    for dim in (-1, 1) if logits.ndim == targets.ndim + 1 > 1 else ():
        if logits.shape[dim] == 1 and logits.squeeze(dim).shape == targets.shape:
            return logits.squeeze(dim)
    return logits


def arranged(name: str, logits: Tensor, targets: Tensor) -> tuple[Tensor, bool]:
    """Return :func:`squeezed` logits, and whether targets are class probabilities."""
    takes = FORMS[name].probabilities and FORMS[name].classes
    soft = bool(takes) and logits.shape == targets.shape and logits.ndim > 1 and targets.is_floating_point()
    return logits if soft else squeezed(logits, targets), soft


def margins(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the margins of logits, which are positive where the prediction is correct.

    Parameters
    ----------
    logits : tensor (samples, ...) or (samples, classes, ...)
        One logit for each target, or one for each class in dimension 1, as in torch's ``cross_entropy``. A single logit
        may have an additional dimension of size 1, as dimension 1 or as the last one.
    targets : tensor (samples, ...)
        With one logit, targets are 0 and 1, or -1 and +1. With a logit for each class, they are integers 0..classes-1.

    Examples
    --------
    >>> margins(torch.tensor([0.5, -2.0]), torch.tensor([1, 0])).tolist()
    [0.5, 2.0]
    >>> margins(torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([2])).tolist()
    [-2.0]
    """
    logits = squeezed(logits, targets)
    if logits.shape == targets.shape:
        return logits * _signs(targets).to(logits.dtype)
    return _class_margins(logits, targets, "top_two")


def _class_margins(logits: Tensor, targets: Tensor, kind: str | None) -> Tensor:
    chosen = _class_targets(logits, targets).unsqueeze(1)
    others = logits.scatter(1, chosen, -math.inf)
    return logits.gather(1, chosen).squeeze(1) - (others.logsumexp(1) if kind == "softmax" else others.amax(1))


def logit_losses(
    name: str,
    logits: Tensor,
    targets: Tensor,
    *,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    label_smoothing: float = 0.0,
    gamma: float | None = None,
    alpha: float | None = None,
    q: float | None = None,
) -> LogitLosses:
    """Return the named loss of each example, and the example's distance from the boundary.

    | name | with one logit | with a logit for each class |
    |---|---|---|
    | ``log_loss`` | torch's BCE with logits | torch's cross-entropy |
    | ``binary_cross_entropy`` | the same; targets may be probabilities | refused |
    | ``cross_entropy`` | refused | torch's; targets may be probabilities |
    | ``generalized_cross_entropy`` | (1 - p^q) / q | the same for the softmax |
    | ``focal``, ``softmax_focal`` | ``focal`` | ``softmax_focal``: (1 - p)^gamma times the log loss |
    | ``crammer_singer`` | refused | hinge loss of the top-two margin |
    | ``top_two_logistic``, ``top_two_focal``, ... | refused | any margin loss of the top-two margin |
    | ``hinge``, ``squared_hinge``, ``ramp``, ``modified_huber``, ``sigmoid`` | of the margin | of the top-two margin |

    With a logit for each class, ``logistic`` and ``focal`` still refer to the top-two margin; a warning names the
    alternatives. On the boundary, the value of a softmax loss depends on the other classes, and class weights and label
    smoothing change the value of any loss. Close calls are therefore determined only by the margin loss of the
    (top-two) margin, before any weights are applied.

    Parameters
    ----------
    name : str
    logits, targets : tensor
        The same as in :func:`margins`. Cross-entropy also accepts probabilities (samples, classes, ...) and binary
        cross-entropy accepts probabilities (samples, ...); the margin is then that of the most probable class.
    weight : tensor (classes,), optional
        One factor for the losses of each class; with one logit, two factors, for negatives and positives.
    pos_weight : tensor, optional
        A factor for the losses of positives, if there is one logit for each target.
    label_smoothing : float
        The same as in torch's cross-entropy; a single logit counts as two classes.
    gamma : float, optional
        The exponent of the focal loss, 2 by default.
    alpha : float, optional
        With one logit, the focal loss's factor for positives; 1 - alpha is the factor for negatives.
    q : float, optional
        The exponent of the generalised cross-entropy, 0.7 by default: near 0, the loss approaches the log loss; at 1,
        it equals the probability of an error.

    Examples
    --------
    >>> logit_losses("crammer_singer", torch.tensor([[1.0, 4.0, 2.0]]), torch.tensor([2])).losses.tolist()
    [3.0]
    """
    options = LossOptions(weight, pos_weight, label_smoothing, gamma, alpha, q)
    options.check(name)
    logits, soft = arranged(name, logits, targets)
    return LogitLosses(*weighted_losses(name, logits, targets, soft, options)[:2])


def weighted_losses(name: str, logits: Tensor, targets: Tensor, soft: bool, options: LossOptions) -> Weighted:
    """Return the losses of :func:`arranged` logits, their closeness, and the terms of a weighted mean's divisor.

    As in torch, these terms are the weights of the targets' classes, or 1 if targets are class probabilities.
    """
    if logits.dtype not in (torch.float32, torch.float64):
        logits = logits.float()  # in half precision, margins would be tied and losses rounded
    one_logit = not soft and logits.shape == targets.shape
    form = _form(name, one_logit, logits, targets)
    if one_logit:
        return _one_logit(form, logits, targets, options)
    refused = {"pos_weight": options.pos_weight, "alpha": options.alpha}
    refused |= {} if form.native else {"label_smoothing": options.label_smoothing or None}
    for option, value in refused.items():
        if value is not None:
            raise ValueError(f"{name!r} with a logit for each class takes no {option}")
    hard = targets.argmax(dim=1) if soft else _class_targets(logits, targets)
    loss, threshold = options.margin_loss(form.margin)
    closeness = (loss(margins(logits.detach(), hard)) - threshold).abs()
    weight = _as_weight(options.weight, logits, logits.shape[1])
    if form.native:
        given, smoothing = targets.to(logits.dtype) if soft else hard, options.label_smoothing
        losses = F.cross_entropy(logits, given, weight, reduction="none", label_smoothing=smoothing)
        return losses, closeness, None if soft or weight is None else weight[hard]
    losses = loss(_class_margins(logits, hard, form.classes))
    factors = None if weight is None else weight[hard]
    return losses if factors is None else losses * factors, closeness, factors


def _form(name: str, one_logit: bool, logits: Tensor, targets: Tensor) -> Form:
    # The definition of a named loss for logits of this kind; a deprecated name causes a warning.
    form = FORMS[name]
    if not (form.one if one_logit else form.classes):
        shapes = "the targets' shape" if form.one else "shape (samples, classes, ...) and targets (samples, ...)"
        raise ValueError(
            f"{name!r} needs logits of {shapes}, got shapes {tuple(logits.shape)} and {tuple(targets.shape)}"
        )
    if (form.old if one_logit else form.reads_as) and not torch.compiler.is_compiling():
        kept = form.margin if one_logit else f"{TOP_TWO}{form.margin}"
        other = "" if one_logit else f", or {form.reads_as!r} for the loss of the softmax"
        warnings.warn(
            f"the loss {name!r} {'' if one_logit else 'with a logit for each class '}is now called {kept!r}; use that "
            f"name{other}; the old name will stop working",
            FutureWarning,
            stacklevel=4,
        )
    return form


def _one_logit(form: Form, logits: Tensor, targets: Tensor, options: LossOptions) -> Weighted:
    loss, threshold = options.margin_loss(form.margin)
    chances = None
    if form.probabilities:
        valid = ((targets >= 0) & (targets <= 1)).all()
        require(valid, "binary cross-entropy targets must lie in [0, 1]; for classes, pass logits (samples, classes)")
        chances, targets = targets.to(logits.dtype), (targets >= 0.5).to(torch.int64)
    found, positive = margins(logits, targets), targets > 0
    closeness = (loss(found.detach()) - threshold).abs()
    if chances is None and options.label_smoothing:
        chances = positive.to(logits.dtype)
    weight = _as_weight(options.weight, logits, 2)
    divisor = None if weight is None else _between(weight[0], weight[1], positive if chances is None else chances)
    factors = _factors(weight, options, logits.dtype)
    if chances is None:
        losses = loss(found) if factors is None else loss(found) * _between(*factors, positive)
        return losses, closeness, divisor
    chances = chances * (1 - options.label_smoothing) + options.label_smoothing / 2
    if weight is None and form.native:
        positives = None if factors is None else factors[1]
        losses = F.binary_cross_entropy_with_logits(logits, chances, reduction="none", pos_weight=positives)
    else:
        negatives, positives = factors or (1.0, 1.0)
        losses = chances * positives * loss(logits) + (1 - chances) * negatives * loss(-logits)
    return losses, closeness, divisor


def _factors(weight: Tensor | None, options: LossOptions, dtype: torch.dtype) -> tuple[Any, Any] | None:
    # The factors of the losses of negatives and positives.
    if weight is None and options.pos_weight is None and options.alpha is None:
        return None
    negatives, positives = (1.0, 1.0) if weight is None else weight
    if options.alpha is not None:
        negatives, positives = negatives * (1 - options.alpha), positives * options.alpha
    return negatives, positives if options.pos_weight is None else positives * options.pos_weight.to(dtype)


def _between(negatives: Any, positives: Any, share: Tensor) -> Tensor:
    if share.dtype == torch.bool:
        return torch.where(share, positives, negatives)
    return share * positives + (1 - share) * negatives


def _as_weight(weight: Tensor | None, logits: Tensor, classes: int) -> Tensor | None:
    if weight is not None and weight.shape != (classes,):
        raise ValueError(f"weight needs shape ({classes},), one value for each class, not {tuple(weight.shape)}")
    return None if weight is None else weight.to(logits.dtype)


def _signs(targets: Tensor) -> Tensor:
    zero, minus = targets == 0, targets == -1
    valid = (zero | minus | (targets == 1)).all() & ~(zero.any() & minus.any())
    other = "for probabilities, use the loss 'binary_cross_entropy'; for classes, pass logits (samples, classes)"
    require(valid, f"binary targets must be 0 and 1, or -1 and +1; {other}")
    return torch.where(targets > 0, 1, -1)


def _class_targets(logits: Tensor, targets: Tensor) -> Tensor:
    if logits.ndim != targets.ndim + 1 or logits.shape[:1] + logits.shape[2:] != targets.shape:
        raise ValueError(
            f"logits of shape {tuple(logits.shape)} do not match targets of shape {tuple(targets.shape)}: "
            "they need the same shape (one logit for each target), or the classes in an additional dimension 1"
        )
    classes = logits.shape[1]
    if classes < 2:
        raise ValueError("there is only one class; with a single logit per example, drop dimension 1")
    if targets.is_floating_point() or targets.dtype == torch.bool:
        raise TypeError(f"class targets must be integers 0..{classes - 1}, not {targets.dtype}")
    valid = ((targets >= 0) & (targets < classes)).all()
    require(valid, f"targets lie outside the {classes} classes: they must be integers 0..{classes - 1}")
    return targets.long()

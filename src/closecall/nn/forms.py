"""The individual losses on logits: their names, definitions and options."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from closecall._names import lookup
from closecall.losses import FOCAL_GAMMA, GCE_Q, get_loss


def focal(margins: Tensor, gamma: float = FOCAL_GAMMA) -> Tensor:
    """Return the logistic loss times p^gamma, where p is the probability of an error."""
    return torch.exp(gamma * F.logsigmoid(-margins)) * -F.logsigmoid(margins)


def generalized_cross_entropy(margins: Tensor, q: float = GCE_Q) -> Tensor:
    """Return (1 - p^q) / q, where p is the probability of a correct prediction."""
    return -torch.expm1(q * F.logsigmoid(margins)) / q


#: Margins -> losses, for every loss of the core. At the kinks, relu has the slopes of the core; clamp does not.
MARGIN_LOSSES: dict[str, Callable[..., Tensor]] = {
    "logistic": lambda margins: -F.logsigmoid(margins),
    "hinge": lambda margins: F.relu(1 - margins),
    "squared_hinge": lambda margins: F.relu(1 - margins).square(),
    "ramp": lambda margins: 2 - F.relu(2 - F.relu(1 - margins)),
    "modified_huber": lambda margins: torch.where(
        margins >= -1, F.relu(1 - margins.clamp(min=-1)).square(), -4 * margins
    ),
    "focal": focal,
    "sigmoid": lambda margins: torch.sigmoid(-margins),
    "generalized_cross_entropy": generalized_cross_entropy,
}
#: Losses with a parameter: its name, and the loss on the boundary as a function of this parameter.
NUMBERS: dict[str, tuple[str, Callable[[float], float]]] = {
    "focal": ("gamma", lambda gamma: math.log(2) / 2**gamma),
    "generalized_cross_entropy": ("q", lambda q: (1 - 2**-q) / q),
}


class Form(NamedTuple):
    """The definition of a named loss."""

    margin: str  # the margin loss
    one: bool = True  # whether it takes one logit for each target
    classes: str | None = "top_two"  # the margin if each class has a logit: "softmax", "top_two" or None (not allowed)
    native: bool = False  # whether torch has it
    probabilities: bool = False  # whether targets may be probabilities
    reads_as: str | None = None  # with a logit for each class, the name suggests this loss but means the top-two margin
    old: bool = False  # a deprecated name


TOP_TWO = "top_two_"
#: Every loss by name. With a logit for each class, the margin losses whose names suggest a loss of the softmax
#: have names with the prefix ``top_two_``.
FORMS: dict[str, Form] = {
    **{name: Form(name) for name in MARGIN_LOSSES},
    **{f"{TOP_TWO}{name}": Form(name, one=False) for name in MARGIN_LOSSES},
    "logistic": Form("logistic", reads_as="cross_entropy"),
    "focal": Form("focal", reads_as="softmax_focal"),
    "log_loss": Form("logistic", classes="softmax", native=True),
    "cross_entropy": Form("logistic", one=False, classes="softmax", native=True, probabilities=True),
    "binary_cross_entropy": Form("logistic", classes=None, native=True, probabilities=True),
    "softmax_focal": Form("focal", one=False, classes="softmax"),
    "generalized_cross_entropy": Form("generalized_cross_entropy", classes="softmax"),
    "generalized_ce": Form("generalized_cross_entropy", reads_as="generalized_cross_entropy", old=True),
    "crammer_singer": Form("hinge", one=False),
}


class LossOptions(NamedTuple):
    """The options of a loss, as explained in :func:`logit_losses`."""

    weight: Tensor | None = None
    pos_weight: Tensor | None = None
    label_smoothing: float = 0.0
    gamma: float | None = None
    alpha: float | None = None
    q: float | None = None

    def check(self, name: str) -> None:
        """Raise ``ValueError`` for an unknown name or for options that do not apply to it."""
        form = lookup(FORMS, name, "loss")
        if not 0 <= self.label_smoothing <= 1:
            raise ValueError(f"label_smoothing={self.label_smoothing!r} must lie in [0, 1]")
        for option, margin, low, high in (
            ("gamma", "focal", 0.0, sys.float_info.max),
            ("alpha", "focal", 0.0, 1.0),
            ("q", "generalized_cross_entropy", sys.float_info.min, 1.0),
        ):
            value = getattr(self, option)
            if value is not None and form.margin != margin:
                raise ValueError(f"{name!r} takes no {option}; it is an option of {margin}")
            if value is not None and not low <= value <= high:
                raise ValueError(f"{option}={value!r} must lie between {low:g} and {high:g}")

    def margin_loss(self, name: str) -> tuple[Callable[[Tensor], Tensor], float]:
        """Return the named margin loss with its parameter applied, and its value at the boundary."""
        option, threshold = NUMBERS.get(name, ("", None))
        number = getattr(self, option) if option else None
        if threshold is None or number is None:
            return MARGIN_LOSSES[name], get_loss(name).threshold
        return partial(MARGIN_LOSSES[name], **{option: number}), threshold(number)

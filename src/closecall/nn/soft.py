"""Soft selection: weights that change smoothly with the losses, for a smooth objective.

The sum of the k largest losses is the maximum of ``w . l`` over weights that lie between 0 and the mass and sum to k.
Adding the entropy of the weights, times the temperature, makes the maximum a smooth convex function of the losses. Its
gradient is the vector of weights

    w_i = mass_i * sigmoid((l_i - nu) / temperature),    with nu such that the weights sum to k,

and its value exceeds ``w . l`` by the entropy term, so value and gradient are consistent. As the temperature falls, the
value tends to that of the hard aggregate; the difference is at most ``n * log(2) * temperature``. Ranges and trimmed
losses are differences of such maxima. Close calls have the fixed weights ``sigmoid((nu - closeness) / temperature)``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .selection import Selector

Value = Callable[[Tensor], Tensor]


class Chosen(NamedTuple):
    """Weights (rows, samples).

    If the weights are the gradient of a smooth value, ``offset`` (rows, 1) is the amount by which the value exceeds
    ``weights . losses`` on this process, and ``value``, if known, maps losses (rows, samples) to the value.
    """

    weights: Tensor
    offset: Tensor | None = None
    value: Value | None = None


def soft_take(select: Selector, scores: Tensor, wanted: Tensor, temperature: float) -> tuple[Tensor, Tensor, Value]:
    """Return soft weights (rows, samples) that favour the largest scores and sum to ``wanted`` (rows, 1)."""
    mass = torch.ones_like(scores) if select.mass is None else select.mass
    exact, mass = scores.to(wanted.dtype), mass.to(wanted.dtype)
    span = 40 * temperature  # beyond the ends: a sigmoid of -40 selects less than one in exp(40) examples
    low, high = (-select.highest(-exact) - span), select.highest(exact) + span
    for _ in range(60):  # halvings, down to the last bit of a float64
        middle = (low + high) / 2
        enough = select.sums(mass * torch.sigmoid((exact - middle) / temperature)) >= wanted
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    share = torch.sigmoid((exact - (low + high) / 2) / temperature)
    none, every = wanted <= 0, wanted >= select.totals(scores)
    share = torch.where(every, 1.0, torch.where(none, 0.0, share))
    entropy = -(torch.xlogy(share, share) + torch.xlogy(1 - share, 1 - share))
    value = partial(_soft_value, mass=mass, wanted=wanted, level=(low + high) / 2, temperature=temperature)
    return (mass * share).to(scores.dtype), temperature * (mass * entropy).sum(dim=1, keepdim=True), value


def _soft_value(losses: Tensor, mass: Tensor, wanted: Tensor, level: Tensor, temperature: float) -> Tensor:
    # The dual, mass * temperature * softplus((l - nu) / temperature) + k * nu, has its minimum at nu. A Newton step
    # from there changes nothing, but gives nu the derivative with respect to the losses that second derivatives need.
    total = mass.sum(dim=1, keepdim=True)
    none, every = wanted <= 0, wanted >= total
    wanted = torch.where(none | every, total / 2, wanted)
    scaled = (losses - level) / temperature
    share = torch.sigmoid(scaled)
    stiffness = (mass * share * torch.sigmoid(-scaled)).sum(dim=1, keepdim=True) / temperature
    excess = (mass * share).sum(dim=1, keepdim=True) - wanted
    level = level + torch.where(none | every, 0.0, excess) / torch.where(stiffness > 0, stiffness, 1.0)
    above = -temperature * F.logsigmoid((level - losses) / temperature)
    value = (mass * above).sum(dim=1, keepdim=True) + wanted * level
    whole = (mass * losses).sum(dim=1, keepdim=True)
    return torch.where(every, whole, torch.where(none, 0.0, value))


def _soft_range(select: Selector, losses: Tensor, k: Tensor, m: Tensor, temperature: float) -> Chosen:
    outer, above, upper = soft_take(select, losses, k, temperature)
    inner, below, lower = soft_take(select, losses, m, temperature)
    return Chosen(outer - inner, above - below, lambda losses: upper(losses) - lower(losses))


#: Aggregates with a soft form, as functions of (selector, losses, closeness, k, m, temperature); k and m have shape
#: (rows, 1).
SOFT: dict[str, Callable[..., Chosen]] = {
    "close": lambda select, losses, closeness, k, m, t: Chosen(soft_take(select, -closeness, k, t)[0]),
    "close_decay": lambda select, losses, closeness, k, m, t: Chosen(soft_take(select, -closeness, k, t)[0]),
    "atk": lambda select, losses, closeness, k, m, t: Chosen(*soft_take(select, losses, k, t)),
    "ranked_range": lambda select, losses, closeness, k, m, t: _soft_range(select, losses, k, m, t),
    "trimmed": lambda select, losses, closeness, k, m, t: _soft_range(
        select, losses, torch.full_like(k, math.inf), m, t
    ),
}


def tilt(select: Selector, losses: Tensor, t: float) -> Chosen:
    """Return the weights (rows, samples) of the tilted loss, which sum to the mass.

    The value is n / t * log(mean(exp(t * loss))) (Li et al. 2021), and n times the mean if t = 0. The weights,
    n * softmax(t * loss) weighted by mass, are its gradient.
    """
    total = select.totals(losses)
    mass = torch.ones_like(losses) if select.mass is None else select.mass
    exact, mass = losses.to(total.dtype), mass.to(total.dtype)
    smooth = partial(_tilted_value, mass=mass, total=total, t=t)
    if t == 0:
        return Chosen(mass.to(losses.dtype), torch.zeros_like(total), smooth)
    counted = torch.where(mass > 0, t * exact, -math.inf)
    peak = select.highest(counted)
    peak = torch.where(torch.isfinite(peak), peak, 0.0)
    raw = mass * torch.exp(torch.where(mass > 0, t * exact - peak, 0.0))
    amount = select.sums(raw)
    some = torch.where(amount > 0, amount, 1.0)
    weights = total * raw / some
    ones = torch.where(total > 0, total, 1.0)
    value = total * (peak + torch.log(some / ones)) / t
    # Each process adds a share of the difference in proportion to its weights; the shares sum to the value.
    here = (raw / some).sum(dim=1, keepdim=True)
    return Chosen(weights.to(losses.dtype), value * here - (weights * exact).sum(dim=1, keepdim=True), smooth)


def _tilted_value(losses: Tensor, mass: Tensor, total: Tensor, t: float) -> Tensor:
    if t == 0:
        return (mass * losses).sum(dim=1, keepdim=True)
    some = torch.where(total > 0, total, 1.0)
    tilted = torch.where(mass > 0, t * losses + mass.log(), torch.where(total > 0, -math.inf, 0.0))
    return total * (tilted.logsumexp(dim=1, keepdim=True) - some.log()) / t


def weighted(losses: Tensor, weights: Tensor) -> Tensor:
    """Return weighted losses; a loss with weight zero contributes nothing, even if it is infinite."""
    return torch.where(weights != 0, losses, torch.zeros_like(losses)) * weights


class _Once(torch.autograd.Function):  # type: ignore[misc]
    """The value of a smooth aggregate that has only first derivatives, because its weights are constants."""

    @staticmethod
    def forward(ctx: Any, losses: Tensor, weights: Tensor, offset: Tensor) -> Tensor:
        ctx.save_for_backward(losses, weights)
        return weighted(losses, weights).sum() + offset.sum().to(weights.dtype)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        losses, weights = ctx.saved_tensors
        return _Refused.apply(gradient * weights, losses), None, None


class _Refused(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, gradient: Tensor, losses: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        raise RuntimeError(
            "superquantiles, and smooth selections across a group of processes, have no second derivatives; Tilted and "
            "temperature= support them within one process"
        )


def smooth_value(found: Chosen, losses: Tensor, mass: Tensor | None, alone: bool) -> Tensor:
    """Return the value of a smooth aggregate of losses (rows, samples), with second derivatives if possible."""
    assert found.offset is not None
    if found.value is None or not alone:
        return _Once.apply(losses, found.weights, found.offset)
    if mass is not None:
        losses = torch.where(mass > 0, losses, torch.zeros_like(losses))
    return found.value(losses.to(found.offset.dtype)).sum().to(losses.dtype)

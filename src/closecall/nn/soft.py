"""Soft selection: weights that change smoothly with the losses, for those who need a smooth loss.

The k largest losses are the maximum of ``w . l`` over weights between 0 and the mass that sum to k. Adding temperature
times the weights' entropy makes that maximum a smooth convex function of the losses; its gradient is the weights

    w_i = mass_i * sigmoid((l_i - nu) / temperature),    nu such that they sum to k,

and its value exceeds ``w . l`` by the entropy, so value and gradient belong together. It tends to the hard aggregate
as the temperature falls, within ``n * log(2) * temperature``. Ranges and trimmed losses are differences of such maxima.
The close calls take ``sigmoid((nu - closeness) / temperature)`` with the weights held fixed, as the hard ones do.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .selection import Selector

HALVINGS = 60  # of an interval that holds nu: to the last bit of a float64
FAR = 40.0  # temperatures beyond the ends at which nobody, or everybody, is taken: exp(40) examples


def soft_take(select: Selector, scores: Tensor, wanted: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Soft weights of the largest scores (rows, samples) that sum to ``wanted`` (rows, 1), and their entropy term.

    Examples
    --------
    >>> weights, _ = soft_take(Selector(None), torch.tensor([[0.0, 1.0, 2.0]]), torch.tensor([[1.0]]).double(), 0.1)
    >>> [round(weight, 3) for weight in weights[0].tolist()]
    [0.0, 0.007, 0.993]
    """
    mass = torch.ones_like(scores) if select.mass is None else select.mass
    exact, mass = scores.to(wanted.dtype), mass.to(wanted.dtype)
    span = FAR * temperature
    low, high = (-select.highest(-exact) - span), select.highest(exact) + span
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        enough = select.sums(mass * torch.sigmoid((exact - middle) / temperature)) >= wanted
        low, high = torch.where(enough, middle, low), torch.where(enough, high, middle)
    share = torch.sigmoid((exact - (low + high) / 2) / temperature)
    none, every = wanted <= 0, wanted >= select.totals(scores)
    share = torch.where(every, 1.0, torch.where(none, 0.0, share))
    entropy = -(torch.xlogy(share, share) + torch.xlogy(1 - share, 1 - share))
    return (mass * share).to(scores.dtype), temperature * (mass * entropy).sum(dim=1, keepdim=True)


Soft = tuple[Tensor, Tensor | None]


def _soft_close(select: Selector, losses: Tensor, closeness: Tensor, k: Tensor, m: Tensor, temperature: float) -> Soft:
    return soft_take(select, -closeness, k, temperature)[0], None


def _soft_atk(select: Selector, losses: Tensor, closeness: Tensor, k: Tensor, m: Tensor, temperature: float) -> Soft:
    return soft_take(select, losses, k, temperature)


def _soft_range(select: Selector, losses: Tensor, closeness: Tensor, k: Tensor, m: Tensor, temperature: float) -> Soft:
    outer, above = soft_take(select, losses, k, temperature)
    inner, below = soft_take(select, losses, m, temperature)
    return outer - inner, above - below


def _soft_trim(select: Selector, losses: Tensor, closeness: Tensor, k: Tensor, m: Tensor, temperature: float) -> Soft:
    return _soft_range(select, losses, closeness, torch.full_like(k, math.inf), m, temperature)


#: Aggregates that have a soft form: its weights (rows, samples), and what its value adds, (rows, 1); k and m (rows, 1).
SOFT = {
    "close": _soft_close, "close_decay": _soft_close, "atk": _soft_atk, "ranked_range": _soft_range,
    "trimmed": _soft_trim,
}  # fmt: skip


def tilt(select: Selector, losses: Tensor, t: float) -> tuple[Tensor, Tensor]:
    """Weights (rows, samples) of the tilted loss, summing to the mass, and what the value adds to them, (rows, 1).

    The value is n / t * log(mean(exp(t * loss))) (Li et al. 2021): n times the mean at t = 0, the largest loss as t
    grows, the smallest as it falls. Its gradient is the weights, n * softmax(t * loss) by mass.

    Examples
    --------
    >>> weights, offset = tilt(Selector(None), torch.tensor([[0.0, 1.0]]), 2.0)
    >>> [round(weight, 3) for weight in weights[0].tolist()]
    [0.238, 1.762]
    """
    total = select.totals(losses)
    mass = torch.ones_like(losses) if select.mass is None else select.mass
    exact, mass = losses.to(total.dtype), mass.to(total.dtype)
    if t == 0:
        return mass.to(losses.dtype), torch.zeros_like(total)
    counted = torch.where(mass > 0, t * exact, -math.inf)
    peak = select.highest(counted)
    peak = torch.where(torch.isfinite(peak), peak, 0.0)
    raw = mass * torch.exp(torch.where(mass > 0, t * exact - peak, 0.0))
    amount = select.sums(raw)
    some = torch.where(amount > 0, amount, 1.0)
    weights = total * raw / some
    ones = torch.where(total > 0, total, 1.0)
    value = total * (peak + torch.log(some / ones)) / t
    # Each process adds its own part of the difference, in proportion to its weights: the parts sum to the value.
    here = (raw / some).sum(dim=1, keepdim=True)
    return weights.to(losses.dtype), value * here - (weights * exact).sum(dim=1, keepdim=True)

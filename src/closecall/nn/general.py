"""The general path for compiled code, vmap, accelerators and several processes; it uses only tensor operations.

On an accelerator, the code never reads the values of a tensor, so nothing waits for the device. A NaN loss, which
raises an error on the CPU, makes the value and the gradient NaN on an accelerator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from closecall._names import lookup
from closecall.aggregates import Count, get_aggregate, resolve_count

from .distributed import GroupSelector, join, largest, resolve_group
from .plan import UNKNOWN_THRESHOLD, ZERO_MASS, Batch, Layout, Outcome, Plan, layout_of
from .schedule import decayed
from .selection import NOT_FINITE, Selector, count_dtype, require
from .soft import SOFT, Chosen, smooth_value, weighted

Weigh = Callable[[Selector, Tensor, Tensor, Tensor, Tensor], Tensor]


def _top(select: Selector, losses: Tensor, closeness: Tensor, k: Tensor, m: Tensor) -> Tensor:
    # As in the core, select the unit of mass that ends where the tied group of the k-th largest loss ends.
    cut = select.cut(-losses, k)
    end = (cut.inside + cut.tied).clamp(min=1.0)
    apart = select.take(-losses, end) - select.take(-losses, end - 1.0)
    # A group of mass 1 or more gets the whole unit; beyond 1 / eps, the difference above is lost to rounding.
    group = (-losses == cut.edge) / cut.tied.clamp(min=1.0)
    own = (group if select.mass is None else group * select.mass).to(losses.dtype)
    return torch.where(cut.tied >= 1.0, own, apart)


#: The weights of each core aggregate: (selector, losses, closeness, k, m) -> (rows, samples). The shape of k
#: and m is (rows, 1).
WEIGH: dict[str, Weigh] = {
    "average": lambda select, losses, closeness, k, m: select.everything(losses),
    "maximal": lambda select, losses, closeness, k, m: select.take(-losses, torch.ones_like(k)),
    "top": _top,
    "atk": lambda select, losses, closeness, k, m: select.take(-losses, k),
    "close": lambda select, losses, closeness, k, m: select.take(closeness, k),
    "close_decay": lambda select, losses, closeness, k, m: select.take(closeness, k),
    "ranked_range": lambda select, losses, closeness, k, m: select.take(-losses, k) - select.take(-losses, m),
    "trimmed": lambda select, losses, closeness, k, m: select.everything(losses) - select.take(-losses, m),
}


class RankedRows(NamedTuple):
    """A batch as detached tensors (rows, samples); masked examples have zero mass, loss and closeness."""

    losses: Tensor
    closeness: Tensor | None
    mass: Tensor | None
    poison: Tensor | None  # a scalar that propagates NaN: NaN if a loss that counts is NaN, otherwise 1
    positives: Any  # as in Batch


def reduce_generally(plan: Plan, batch: Batch, weigher: Any = None) -> Outcome:
    """Reduce a batch; ``weigher(plan, select, rows) -> Chosen`` replaces the weights of the aggregate."""
    layout = layout_of(batch.losses.shape, plan.dim)
    found, rows, sums, edge = choose(plan, batch, weigher)
    if plan.reduction == "none" or found.offset is None:
        counted = weighted(batch.losses, layout.from_rows(found.weights))
        if plan.reduction == "none":
            return Outcome(counted, sums[0], edge)
        value = counted.sum()
    else:
        value = smooth_value(found, layout.to_rows(batch.losses), rows.mass, plan.group is None)
        value = value if rows.poison is None else value * rows.poison
    joined = torch.cat([value[None], sums])
    value, taken, by = joined if plan.group is None else join(joined, resolve_group(plan.group))
    if plan.reduction == "mean":
        value = value / torch.where(by > 0, by, torch.ones_like(by)).detach()
    return Outcome(value, taken.detach(), edge)


@torch.no_grad()  # type: ignore[untyped-decorator]
def choose(plan: Plan, batch: Batch, weigher: Any = None) -> tuple[Chosen, RankedRows, Tensor, Tensor]:
    """Return the weights of a batch, its rows, the sums from :func:`sums_of` and the edge of each row (rows,)."""
    layout = layout_of(batch.losses.shape, plan.dim)
    rows, strict = rows_of(plan, batch, layout), plan.nonfinite == "raise"
    group = None if plan.group is None else GroupSelector(rows.mass, group=resolve_group(plan.group))
    select = Selector(rows.mass, refuse="nan" if strict else "")
    if group is not None and 0 in layout.ranked:  # dimension 0 is the batch: the processes share its rows
        select = group
    infinite = strict if group is None else group.check(rows.losses, strict, batch.mask is None)
    if strict and group is None:
        require(~torch.isnan(rows.losses).any(), NOT_FINITE)
    found = (weigher or weigh_named)(plan, select, rows)
    if infinite:  # only selected losses matter; ``infinite`` is the same on all processes of a group
        taken = (torch.isinf(rows.losses) & (found.weights != 0)).any()
        require(~(taken if group is None else largest(taken.to(torch.int32), group.group).bool()), NOT_FINITE)
    if rows.poison is not None:
        found = found._replace(weights=found.weights * rows.poison)
    divisor = None if batch.divisor is None else layout.to_rows(batch.divisor)
    return found, rows, sums_of(found, rows.mass, divisor, group), edges(plan, select, rows, found.weights)


def sums_of(found: Chosen, mass: Tensor | None, divisor: Tensor | None, group: GroupSelector | None) -> Tensor:
    """Return the selected weight and the mean's divisor (the sum of the selected divisors) on this process."""
    exact = found.weights.to(count_dtype(found.weights.device))
    taken = exact.sum()
    if divisor is None:
        by = taken
    elif found.offset is None:
        by = (exact * divisor).sum()
    else:  # weights that change with the losses: a correct gradient requires a constant mean divisor
        whole = torch.ones_like(exact) if mass is None else mass.to(exact.dtype)
        parts = torch.stack([(whole * divisor).sum(), whole.sum()])
        over, under = parts if group is None else join(parts, group.group)
        by = taken * over / torch.where(under > 0, under, 1.0)
    return torch.stack([taken, by]).to(found.weights.dtype)


def rows_of(plan: Plan, batch: Batch, layout: Layout) -> RankedRows:
    """Arrange a batch in rows; masked and dropped losses get a mass of zero."""
    losses = layout.to_rows(batch.losses.detach())
    mass = None if batch.mass is None else layout.to_rows(batch.mass.detach()).to(losses.dtype)
    closeness = None if batch.closeness is None else layout.to_rows(batch.closeness.detach()).to(losses.dtype)
    if mass is not None and batch.mask is None and plan.group is None:
        require((mass > 0).any(), ZERO_MASS)
    counts = None if batch.mask is None else layout.to_rows(batch.mask)
    if plan.nonfinite == "drop":
        finite = torch.isfinite(losses)
        counts = finite if counts is None else counts & finite
    if counts is not None:
        none = torch.zeros_like(losses)
        losses = torch.where(counts, losses, none)
        closeness = None if closeness is None else torch.where(counts, closeness, none)
        mass = counts.to(losses.dtype) if mass is None else torch.where(counts, mass, none)
    if closeness is None and plan.is_close:
        if plan.threshold is None:
            raise ValueError(UNKNOWN_THRESHOLD)
        closeness = (losses - plan.threshold).abs()
    elif closeness is not None:  # only keys are checked for NaN, so a NaN loss must make its key NaN
        closeness = torch.where(torch.isnan(losses), losses, closeness)
    nan = torch.isnan(losses).any()
    poison = None if plan.nonfinite == "drop" else torch.where(nan, math.nan, 1.0).to(losses.dtype)
    positives = None if batch.positives is None else layout.to_rows(batch.positives)
    return RankedRows(losses, closeness, mass, poison, positives)


def weigh_named(plan: Plan, select: Selector, rows: RankedRows) -> Chosen:
    """Return the weights of a core aggregate, hard or soft."""
    weigh = lookup(WEIGH, plan.name, "aggregate")
    k, m = masses(plan, select, rows)
    keys = rows.losses if rows.closeness is None else rows.closeness
    if plan.temperature is not None:
        return SOFT[plan.name](select, rows.losses, keys, k, m, plan.temperature)
    return Chosen(weigh(select, rows.losses, keys, k, m))


def masses(plan: Plan, select: Selector, rows: RankedRows) -> tuple[Tensor, Tensor]:
    """Return ``k`` and ``m`` as masses (rows, 1); k is infinite where it reaches the total."""
    takes, total = get_aggregate(plan.name).takes, select.totals(rows.losses)
    k = mass_of(plan.k if "k" in takes else None, total, 1)
    m = mass_of(0 if plan.m is None or "m" not in takes else plan.m, total, 0)
    if plan.remaining is not None:
        parts = plan.remaining.reshape(-1, 2)
        k = decayed(k, mass_of(plan.starts[0], total, 1), parts[0])
        if parts.shape[0] > 1:
            m = decayed(m, mass_of(plan.starts[1], total, 0), parts[1])
    if plan.min_loss is not None:
        hard = (rows.losses > plan.min_loss).to(rows.losses.dtype)
        above = select.sums(hard if rows.mass is None else hard * rows.mass)
        k = torch.minimum(k, torch.maximum(mass_of(plan.min_kept, total, 0), above))
    m = torch.minimum(m, k)  # nothing is left of a batch smaller than m
    return k.masked_fill(k >= total, math.inf), m


def mass_of(count: Count, total: Tensor, low: int) -> Tensor:
    """Convert a count to masses (rows, 1) that do not exceed the total."""
    if count is None or isinstance(count, float):
        return total * resolve_count(count, 1.0, low=low)
    return total.clamp(max=resolve_count(count, math.inf, low=low))


def edges(plan: Plan, select: Selector, rows: RankedRows, weights: Tensor) -> Tensor:
    """Return the last selected loss (or, for close-k, closeness) of each row (rows,), across all processes."""
    smallest = plan.takes_smallest
    keys = rows.closeness if plan.is_close and rows.closeness is not None else rows.losses
    if not keys.shape[1]:
        keys = weights = keys.new_zeros(keys.shape[0], 1)
    last = torch.where(weights > 0, keys if smallest else -keys, -math.inf).amax(dim=1)
    if isinstance(select, GroupSelector):
        last = largest(last, select.group)
    last = last.masked_fill(last == -math.inf, math.nan)
    return last if smallest else -last

"""The quick path, for eager code on the CPU: NumPy selects the examples, and torch weights their losses.

For batches of 64 to 4096 examples, it takes a tenth as long as the tensor operations in :mod:`closecall.nn.general`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from closecall._names import Array
from closecall.aggregates import get_aggregate

from .plan import UNKNOWN_THRESHOLD, ZERO_MASS, Batch, Layout, Outcome, Plan, layout_of, limited
from .selection import BAD_MASS, NEGATIVE_MASS, NOT_FINITE, Taken, refuse_keys, take_row


class Row(NamedTuple):
    """The data of one selection: arrays (samples,) without masked examples, and counts as masses."""

    losses: Array
    closeness: Any  # an array for close-k, which needs it
    mass: Array | None
    total: float
    k: float
    m: float


def _top(row: Row) -> Taken:
    keys = -row.losses
    edge = take_row(keys, row.k, row.mass, row.total).edge
    group = keys == edge
    own = np.ones_like(keys) if row.mass is None else row.mass
    tied = float(own[group].sum(dtype=float))
    if tied >= 1:
        return Taken((group * own / tied).astype(keys.dtype), 1.0, edge)
    end = max(float((own * (keys <= edge)).sum(dtype=float)), 1.0)
    apart = take_row(keys, end, row.mass, row.total).weights - take_row(keys, end - 1.0, row.mass, row.total).weights
    return Taken(apart, min(1.0, row.total), edge)


def _ranked_range(row: Row) -> Taken:
    outer = take_row(-row.losses, row.k, row.mass, row.total)
    inner = take_row(-row.losses, min(row.m, row.k), row.mass, row.total)
    return Taken(outer.weights - inner.weights, outer.mass - inner.mass, outer.edge)


#: The selection of each core aggregate; the edge is that of the negated losses if the largest are selected.
TAKE: dict[str, Callable[[Row], Taken]] = {
    "average": lambda row: take_row(-row.losses, math.inf, row.mass, row.total),
    "maximal": lambda row: take_row(-row.losses, 1.0, row.mass, row.total),
    "top": _top,
    "atk": lambda row: take_row(-row.losses, row.k, row.mass, row.total),
    "close": lambda row: take_row(row.closeness, row.k, row.mass, row.total),
    "close_decay": lambda row: take_row(row.closeness, row.k, row.mass, row.total),
    "ranked_range": _ranked_range,
    "trimmed": lambda row: take_row(row.losses, row.total - row.m, row.mass, row.total),
}


def reduce_quickly(plan: Plan, batch: Batch) -> Outcome | None:
    """Reduce a batch if values can be read without waiting and this path is faster; otherwise return None."""
    found = _choose(plan, batch)
    if found is None:
        return None
    weights, taken, edges, losses = found
    if plan.reduction == "none":
        return Outcome(losses * torch.from_numpy(weights), taken, edges)
    if plan.reduction == "mean":
        by = taken if batch.divisor is None else float(np.vdot(weights, batch.divisor.detach().numpy().astype(float)))
        weights /= by if by > 0 else 1.0
    flat = losses if losses.ndim == 1 else losses.reshape(-1)  # a view adds a node to the graph
    return Outcome(torch.dot(flat, torch.from_numpy(weights.reshape(-1))), taken, edges)


def weigh_quickly(plan: Plan, batch: Batch) -> Tensor | None:
    """Return the weights in the shape of the losses, or None if :func:`reduce_quickly` does not apply."""
    found = _choose(plan, batch)
    return None if found is None else torch.from_numpy(found[0])


def mean_quickly(plan: Plan, batch: Batch) -> Outcome | None:
    """Return the average of unweighted losses, as fast as torch's mean, or None if anything needs to be checked."""
    given = plan.group, batch.mass, batch.mask, batch.divisor
    if not get_aggregate(plan.name).plain or any(each is not None for each in given):
        return None
    losses = batch.losses
    if plan.reduction == "none" or losses.dtype not in (torch.float32, torch.float64) or not losses.numel():
        return None
    value = losses.mean() if plan.reduction == "mean" else losses.sum()
    found = Outcome(value, float(losses.numel()), math.nan)
    if plan.nonfinite == "propagate":
        return found
    if not losses.is_cpu or torch.compiler.is_compiling():
        return None if plan.nonfinite == "drop" else found
    try:
        return found if math.isfinite(value.item()) else None
    except RuntimeError:  # values cannot be read under vmap
        return None


def _choose(plan: Plan, batch: Batch) -> tuple[Array, float, Any, Tensor] | None:
    # Weights with the shape of the losses, their sum, the edge of each row, and losses that are zero where masked.
    losses = batch.losses
    if plan.group is not None or plan.temperature is not None or not losses.is_cpu or torch.compiler.is_compiling():
        return None
    layout = layout_of(losses.shape, plan.dim)
    if plan.name not in TAKE or (layout.rows > 16 and layout.samples < 1024):  # many short rows are faster together
        return None
    try:
        arrays: list[Any] = [None if each is None else each.detach().numpy() for each in batch]
    except (RuntimeError, TypeError):  # values cannot be read under vmap and torch.func.grad; NumPy has no bfloat16
        return None
    values, mass, closeness, mask = arrays[:4]
    mass = None if mass is None else _mass(mass, values.dtype, mask)
    bad = _not_finite(values, mask)
    if bad is not None and plan.nonfinite == "drop":
        mask = ~bad if mask is None else mask & ~bad
    elif bad is not None and np.isnan(values[bad]).any():
        if plan.nonfinite == "raise":
            raise ValueError(NOT_FINITE)
        return np.full_like(values, np.nan), math.nan, np.full(layout.rows, np.nan), losses
    closeness = _closeness(plan, values, closeness, mask) if plan.is_close else None
    edges: Any
    if layout.rows == 1 and mask is None:  # the usual case, without the loop
        rows = (None if each is None else layout.to_rows(each)[0] for each in (values, closeness, mass))
        found, taken, edges = _one(plan, *rows)
        weights = layout.from_rows(found[None])
    else:
        weights, taken, edges = _each_row(plan, layout, (values, closeness, mass, mask))
    if bad is not None or mask is not None:
        if bad is not None and plan.nonfinite == "raise" and (weights[bad] != 0).any():
            raise ValueError(NOT_FINITE)
        losses = losses.masked_fill(torch.from_numpy(weights == 0), 0.0)  # zero times infinity is NaN
    return weights, taken, edges, losses


def _not_finite(values: Array, mask: Array | None) -> Array | None:
    # Where losses that count are NaN or infinite, or None. A sum of squares is finite only if every loss is.
    if math.isfinite(np.vdot(values, values)):
        return None
    bad = ~np.isfinite(values) if mask is None else mask & ~np.isfinite(values)
    return bad if bad.any() else None


def _each_row(plan: Plan, layout: Layout, arrays: tuple[Any, ...]) -> tuple[Array, float, Array]:
    tables = [None if each is None else layout.to_rows(each) for each in arrays]
    weights, edges, taken = np.zeros_like(tables[0]), [], 0.0
    for place in range(len(weights)):
        rows = [None if each is None else each[place] for each in tables]
        counts = rows[3]
        if counts is not None:
            rows = [None if each is None else each[counts] for each in rows]
        found, part, edge = _one(plan, *rows[:3])
        weights[place, slice(None) if counts is None else counts] = found
        taken += part
        edges.append(edge)
    return np.ascontiguousarray(layout.from_rows(weights)), taken, np.array(edges)


def _one(plan: Plan, losses: Any, closeness: Any, mass: Any) -> tuple[Array, float, float]:
    if not losses.size:
        return losses, 0.0, math.nan
    total = losses.size if mass is None else float(mass.sum(dtype=float))
    k, m = _counts(plan, losses, mass, total)
    found = TAKE[plan.name](Row(losses, closeness, mass, total, k, m))
    return found.weights, found.mass, found.edge if plan.takes_smallest else -found.edge


def _counts(plan: Plan, losses: Array, mass: Array | None, total: float) -> tuple[float, float]:
    k, m = plan.counts(total)
    if m >= k and isinstance(plan.k, int) and isinstance(plan.m, float):
        raise ValueError(f"m={plan.m!r} leaves no examples: it must be below k={k:g}")
    if plan.min_loss is not None:
        hard = losses > plan.min_loss
        above = float(np.count_nonzero(hard)) if mass is None else float(mass[hard].sum(dtype=float))
        k = min(k, max(limited(plan.min_kept, total, 0), above))
    return k, m


def _mass(mass: Array, dtype: np.dtype, mask: Array | None) -> Array:
    total = mass.sum(dtype=float)
    if not np.isfinite(total) and not np.isfinite(mass).all():
        raise ValueError(BAD_MASS)
    if mass.size and mass.min() < 0:
        raise ValueError(NEGATIVE_MASS)
    if total == 0 and mask is None:
        raise ValueError(ZERO_MASS)
    return mass.astype(dtype, copy=False)


def _closeness(plan: Plan, values: Array, closeness: Array | None, mask: Array | None) -> Array:
    if closeness is None:
        if plan.threshold is None:
            raise ValueError(UNKNOWN_THRESHOLD)
        return np.abs(values - values.dtype.type(plan.threshold))
    refuse_keys(closeness if mask is None else closeness[mask], "nan")
    return closeness.astype(values.dtype, copy=False)

"""Reducers as modules: each turns per-example losses into one number.

All of them also accept ``dim``, ``nonfinite``, ``reduction`` and ``group`` (see :class:`closecall.nn.Reducer`). Those
with a ``temperature`` (see :mod:`closecall.nn.soft`) can make their selection soft. :class:`closecall.nn.CloseK` is in
:mod:`closecall.nn.close`.

Examples
--------
>>> losses = torch.tensor([1.0, 3.0, 2.0])
>>> [reducer(losses).item() for reducer in (Average(), Maximal(), TopK(k=2), RankedRange(k=2, m=1), Trimmed(m=1))]
[2.0, 3.0, 2.0, 2.0, 1.5]
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from closecall.aggregates import Count, get_aggregate, resolve_count

from .base import Reducer
from .distributed import GroupSelector, gather
from .general import RankedRows, mass_of
from .plan import Batch, Plan
from .selection import Selector
from .soft import Chosen, tilt


class Average(Reducer):
    """The average of all losses."""

    aggregate = "average"


class Maximal(Reducer):
    """The largest loss."""

    aggregate = "maximal"


class TopK(Reducer):
    """The k-th largest loss."""

    aggregate = "top"


class AverageTopK(Reducer):
    """The k largest losses (Fan et al. 2017), or all above a threshold: online hard example mining.

    Parameters
    ----------
    k : int, float or None
        The maximum number of losses: a count, a fraction of the batch, or None for all.
    min_loss : float, optional
        Select only losses above this value, but at least ``min_kept`` of them. A probability threshold p, as used in
        semantic segmentation, corresponds to ``min_loss=-log(p)``.
    min_kept : int, float or None
        A count, or a fraction of the batch.

    Examples
    --------
    >>> AverageTopK(min_loss=2.5, min_kept=2)(torch.tensor([1.0, 3.0, 2.0])).item()
    2.5
    """

    aggregate = "atk"
    more: ClassVar[dict[str, Any]] = {"min_loss": None, "min_kept": 1, "temperature": None}


class RankedRange(Reducer):
    """The losses ranked m+1 to k, largest first (Hu et al. 2020)."""

    aggregate = "ranked_range"
    more: ClassVar[dict[str, Any]] = {"temperature": None}


class Trimmed(Reducer):
    """All but the m largest losses."""

    aggregate = "trimmed"
    more: ClassVar[dict[str, Any]] = {"temperature": None}


class HardNegatives(Reducer):
    """All positives, and ``ratio`` times as many negatives: those with the largest losses (3:1 mining).

    Single-shot detectors (Liu et al. 2016) divide the sum by the number of positives: pass ``reduction="sum"`` and
    divide by ``positives.sum()``.

    Parameters
    ----------
    ratio : float
        Number of negatives for each positive.
    min_kept : int, float or None
        Minimum number of negatives, for batches with few or no positives: a count, or a fraction of the batch.
    dim : int or tuple of int, optional
        ``dim=1`` selects image by image from losses (images, anchors).

    Examples
    --------
    >>> losses, positives = torch.tensor([0.1, 5.0, 3.0, 2.0]), torch.tensor([True, False, False, False])
    >>> HardNegatives(ratio=2).weights(losses, positives=positives).tolist()
    [1.0, 1.0, 1.0, 0.0]
    """

    aggregate = "hard_negatives"
    takes = ()
    own = ("ratio", "min_kept")

    def __init__(self, ratio: float = 3.0, *, min_kept: Count = 0, **options: Any) -> None:
        if not 0 <= ratio < math.inf:
            raise ValueError(f"ratio={ratio!r} must be a number >= 0 (negatives per positive)")
        resolve_count(min_kept, math.inf, name="min_kept", low=0)
        super().__init__(**options)
        self.ratio, self.min_kept = ratio, min_kept

    def forward(self, losses: Tensor, *, positives: Tensor, **given: Any) -> Tensor:  # type: ignore[override]
        """Reduce losses like any other reducer; the boolean ``positives`` marks examples that are always kept."""
        return self.reduce(Batch(losses, positives=positives, **given))

    def weights(self, losses: Tensor, *, positives: Tensor, **given: Any) -> Tensor:  # type: ignore[override]
        """Return the weights that :meth:`forward` gives to the losses; they have the same shape as the losses."""
        return self.weigh(Batch(losses, positives=positives, **given))

    def weigher(self, plan: Plan, select: Selector, rows: RankedRows) -> Chosen:
        """Return the weights of the positives and of the negatives with the largest losses."""
        kept = rows.positives.to(rows.losses.dtype)
        mass = torch.ones_like(rows.losses) if rows.mass is None else rows.mass
        negatives = replace(select, mass=mass * (1 - kept))
        there = negatives.totals(rows.losses)
        least = mass_of(self.min_kept, select.totals(rows.losses), 0)
        wanted = torch.maximum(self.ratio * select.sums(mass * kept), least)
        wanted = torch.where(wanted >= there, math.inf, wanted)
        return Chosen(mass * kept + negatives.take(-rows.losses, wanted))


class Tilted(Reducer):
    """The tilted loss log(mean(exp(t * losses))) / t (Li et al. 2021), whose weights are proportional to exp(t * loss).

    With t > 0, large losses count more. With t < 0, large losses count less, which suits data with outliers. With
    t = 0, the loss is the average. The sum is n times the mean.

    Examples
    --------
    >>> round(Tilted(t=1.0)(torch.tensor([0.0, 1.0])).item(), 4)
    0.6201
    """

    aggregate = "tilted"
    takes = ()
    own = ("t",)

    def __init__(self, t: float = 1.0, **options: Any) -> None:
        if not math.isfinite(t):
            raise ValueError(f"t={t!r} must be a finite number; use Maximal for the limit t -> inf")
        super().__init__(**options)
        self.t = t

    def weigher(self, plan: Plan, select: Selector, rows: RankedRows) -> Chosen:
        """Return the weights, which are the gradient of the tilted loss; ``closeness`` is ignored."""
        return tilt(select, rows.losses, self.t)


class Spectrum(Reducer):
    """A member of a family of aggregates (:mod:`closecall.families`), or any core aggregate without counts.

    The weights are computed in NumPy: tensors on an accelerator are copied to the CPU and back, which requires waiting
    for the device. Tracing raises an error. For a group of processes, the joint batch is gathered.

    Parameters
    ----------
    name : str
        A name such as ``"human(0.4,0.3)"`` or ``"superquantile(0.9,0.1)"``, or the name of an aggregate that was made
        with :func:`closecall.aggregates.spectrum` and added to ``AGGREGATES``.

    Examples
    --------
    >>> weights = Spectrum("human(0.4,0.3)").weights(torch.tensor([0.1, 1.0, 4.0]))
    >>> [round(weight, 2) for weight in weights.tolist()]
    [1.12, 0.39, 1.49]
    """

    takes = ()

    def __init__(self, name: str, **options: Any) -> None:
        known = get_aggregate(name)
        if known.takes or known.close:
            raise ValueError(f"{name!r} takes {' and '.join(known.takes)}; it has its own reducer")
        self.aggregate = name  # type: ignore[misc]
        super().__init__(**options)

    def weigher(self, plan: Plan, select: Selector, rows: RankedRows) -> Chosen:
        """Return the weights that the core aggregate gives to the losses; ``closeness`` is ignored."""
        losses = rows.losses
        mass = torch.ones_like(losses) if rows.mass is None else rows.mass
        start, samples = 0, losses.shape[1]
        if isinstance(select, GroupSelector):
            (losses, start), (mass, _) = gather(losses, select.group), gather(mass, select.group)
        try:
            values, masses = (each.double().cpu().numpy() for each in (losses, mass))
        except RuntimeError:
            raise ValueError(
                f"{plan.name!r} is computed by NumPy; it cannot be traced by torch.compile or vmap"
            ) from None
        aggregate, weights = get_aggregate(plan.name), np.zeros_like(values)
        excess = np.zeros(len(values))
        for row in np.flatnonzero(masses.sum(axis=1) > 0):
            weights[row] = aggregate.weigh(values[row][None], masses[row], np.nan, np.zeros(1), np.zeros(1))[0]
            excess[row] = aggregate.above(weights[row][None], masses[row])[0]
        own = weights[:, start : start + samples]
        kind = {"dtype": rows.losses.dtype, "device": rows.losses.device}
        if aggregate.excess is None:
            return Chosen(torch.tensor(own, **kind))
        # Each process adds a share of the excess in proportion to its weights; the shares sum to the whole.
        part = own.sum(axis=1) / np.maximum(weights.sum(axis=1), np.finfo(float).tiny)
        return Chosen(torch.tensor(own, **kind), torch.tensor(excess * part, **kind)[:, None])

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        return f"{self.aggregate!r}, {super().extra_repr()}"

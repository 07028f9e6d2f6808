"""Reducers beyond the core's aggregates: hard negatives by ratio, and the tilted loss."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from closecall.aggregates import Count, resolve_count

from . import functional
from .base import Reducer
from .general import RankedRows, mass_of
from .plan import Batch, Plan, layout_of
from .selection import Selector
from .soft import Chosen, tilt


class HardNegatives(Reducer):
    """All positives and, for each of them, the ``ratio`` negatives with the largest losses: 3:1 mining.

    The convention of single-shot detectors (Liu et al. 2016). These divide by the number of positives: use
    ``reduction="sum"`` and divide by ``positives.sum()``.

    Parameters
    ----------
    ratio : float
        Negatives for each positive.
    min_kept : int, float or None
        Minimum number of negatives, for example if there are no positives: a count, or a fraction of the batch.
    dim, nonfinite, reduction, group
        As for every :class:`Reducer`; ``dim=1`` mines image by image in losses (images, anchors).

    Examples
    --------
    >>> losses, positives = torch.tensor([0.1, 5.0, 3.0, 2.0]), torch.tensor([True, False, False, False])
    >>> HardNegatives(ratio=2).weights(losses, positives=positives).tolist()
    [1.0, 1.0, 1.0, 0.0]
    """

    aggregate = "hard_negatives"
    takes = ()

    def __init__(self, ratio: float = 3.0, *, min_kept: Count = 0, **options: Any) -> None:
        if not 0 <= ratio < math.inf:
            raise ValueError(f"ratio={ratio!r} must be a number >= 0, the negatives for each positive")
        resolve_count(min_kept, math.inf, name="min_kept", low=0)
        super().__init__(**options)
        self.ratio, self.min_kept = ratio, min_kept

    def forward(  # type: ignore[override]
        self, losses: Tensor, *, positives: Tensor, **given: Any
    ) -> Tensor:
        """Reduce losses; the boolean ``positives`` marks those that are always kept. Otherwise as for every reducer."""
        found = functional.reduce(self.plan(), Batch(losses, **given), self._keeping(losses, positives))
        self._last = found[1:]
        return found.value

    def weights(self, losses: Tensor, *, positives: Tensor, **given: Any) -> Tensor:  # type: ignore[override]
        """The weights that :meth:`forward` gives to the losses, in their shape."""
        return functional.weigh(self.plan(), Batch(losses, **given), self._keeping(losses, positives))

    def _keeping(self, losses: Tensor, positives: Tensor) -> Any:
        if positives.dtype != torch.bool or positives.shape != losses.shape:
            raise ValueError(
                f"positives must be boolean and of the losses' shape {tuple(losses.shape)}, "
                f"not {positives.dtype} of shape {tuple(positives.shape)}"
            )

        def weigh(plan: Plan, select: Selector, rows: RankedRows) -> Chosen:
            kept = layout_of(losses.shape, plan.dim).to_rows(positives).to(rows.losses.dtype)
            mass = torch.ones_like(rows.losses) if rows.mass is None else rows.mass
            negatives = type(select)(**{**vars(select), "mass": mass * (1 - kept)})
            there = negatives.totals(rows.losses)
            least = mass_of(self.min_kept, select.totals(rows.losses), 0)
            wanted = torch.maximum(self.ratio * select.sums(mass * kept), least)
            wanted = torch.where(wanted >= there, math.inf, wanted)
            return Chosen(mass * kept + negatives.take(-rows.losses, wanted))

        return weigh

    def extra_repr(self) -> str:
        """The settings, for ``repr``."""
        return f"ratio={self.ratio!r}, min_kept={self.min_kept!r}, {super().extra_repr()}"


class Tilted(Reducer):
    """The tilted loss log(mean(exp(t * losses))) / t (Li et al. 2021): every loss counts, by exp(t * loss).

    Parameters
    ----------
    t : float
        Above 0 large losses count more, up to the largest alone; below 0 they count less, which suits outliers; 0 is
        the average.
    dim, nonfinite, reduction, group
        As for every :class:`Reducer`. The sum is n times the mean.

    Examples
    --------
    >>> round(Tilted(t=1.0)(torch.tensor([0.0, 1.0])).item(), 4)
    0.6201
    """

    aggregate = "tilted"
    takes = ()

    def __init__(self, t: float = 1.0, **options: Any) -> None:
        if not math.isfinite(t):
            raise ValueError(f"t={t!r} must be a finite number; use Maximal for the limit t -> inf")
        super().__init__(**options)
        self.t = t

    def weigher(self, plan: Plan, select: Selector, rows: RankedRows) -> Chosen:
        """Weights of all losses in proportion to exp(t * loss); ``closeness`` is ignored."""
        return tilt(select, rows.losses, self.t)

    def extra_repr(self) -> str:
        """The settings, for ``repr``."""
        return f"t={self.t!r}, {super().extra_repr()}"

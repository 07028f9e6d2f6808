"""Members of the core's families in torch: any of them by name, with weights computed by the core.

The weights need values, so tensors of an accelerator are copied to the CPU and back, which waits for the device, and
traced code (``torch.compile``, ``vmap``) raises an error. Over a group the joint batch is gathered.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from closecall.aggregates import get_aggregate

from .base import Reducer
from .distributed import GroupSelector, gather
from .general import RankedRows
from .plan import Plan
from .selection import Selector
from .soft import Chosen


class Spectrum(Reducer):
    """A member of a family of the core (:mod:`closecall.families`), or any core aggregate without counts.

    Parameters
    ----------
    name : str
        Such as ``"human(0.4,0.3)"`` or ``"superquantile(0.9,0.1)"``; an aggregate made by
        :func:`closecall.aggregates.spectrum` is used by its name in ``AGGREGATES``.
    dim, nonfinite, reduction, group
        As for every :class:`Reducer`. Tensors of an accelerator are copied to the CPU and back.

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
        """Weights computed by the core's own definition, and its excess; ``closeness`` is ignored."""
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
        # Each process adds its part of the excess in proportion to its weights: the parts sum to the whole.
        part = own.sum(axis=1) / np.maximum(weights.sum(axis=1), np.finfo(float).tiny)
        return Chosen(torch.tensor(own, **kind), torch.tensor(excess * part, **kind)[:, None])

    def extra_repr(self) -> str:
        """The settings, for ``repr``."""
        return f"{self.aggregate!r}, {super().extra_repr()}"

"""Aggregates as functions that reduce per-example losses of any shape to one number with a gradient.

The value is ``weights . losses`` with the weights of :mod:`closecall.aggregates`, which are chosen without a gradient
and held fixed. The paper's constant M does not affect the gradient and is left out of the value. Losses in half
precision are converted to float32. A count greater than the batch size means the whole batch. On the CPU, a NaN loss
raises an error, even under ``torch.compile`` and ``vmap``. On accelerators, where a check would have to wait for the
device, a NaN loss makes the value NaN.

Examples
--------
>>> import torch
>>> losses = torch.tensor([9.0, 1.0, 2.0, 3.0])
>>> [each(losses).item() for each in (average, maximal)]
[3.75, 9.0]
>>> [each(losses, 2).item() for each in (top_k, average_top_k, trimmed)]
[3.0, 6.0, 1.5]
>>> ranked_range(losses, k=3, m=1).item(), close_k(losses, k=2, threshold=1.2).item()
(2.5, 1.5)
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from closecall.aggregates import Count

from .general import WEIGH, choose, reduce_generally
from .plan import Batch, Outcome, Plan, check_batch, layout_of
from .quick import mean_quickly, reduce_quickly, weigh_quickly

__all__ = [
    "LOG2",
    "WEIGH",
    "aggregate",
    "average",
    "average_top_k",
    "close_k",
    "maximal",
    "ranked_range",
    "top_k",
    "trimmed",
    "weights",
]

LOG2 = math.log(2)


def reduce(plan: Plan, batch: Batch, weigher: Any = None) -> Outcome:
    """Reduce a batch by the fastest possible path; reducers and the functions below call this function."""
    batch = check_batch(batch, allow_empty=plan.group is not None)
    found = None if weigher else mean_quickly(plan, batch) or reduce_quickly(plan, batch)
    return found or reduce_generally(plan, batch, weigher)


def weigh(plan: Plan, batch: Batch, weigher: Any = None) -> Tensor:
    """Return the weights that a plan gives to the losses of a batch, with the same shape as the losses."""
    batch = check_batch(batch, allow_empty=plan.group is not None)
    found = None if weigher else weigh_quickly(plan, batch)
    if found is not None:
        return found
    return layout_of(batch.losses.shape, plan.dim).from_rows(choose(plan, batch, weigher)[0].weights)


def aggregate(
    name: str,
    losses: Tensor,
    *,
    k: Count = None,
    m: Count = None,
    threshold: float | None = None,
    closeness: Tensor | None = None,
    mass: Tensor | None = None,
    mask: Tensor | None = None,
    dim: int | tuple[int, ...] | None = None,
    min_loss: float | None = None,
    min_kept: Count = 1,
    temperature: float | None = None,
    nonfinite: str = "raise",
    reduction: str = "mean",
    group: Any = None,
    remaining: Tensor | None = None,
) -> Tensor:
    """Reduce losses with a named aggregate; the functions below call this one with their own parameters.

    Parameters
    ----------
    name : str
        A name in :data:`closecall.aggregates.AGGREGATES`.
    losses : tensor of any shape
    k, m : int, float or None
        Counts of examples, fractions of their total mass, or None, which means all for ``k`` and none for ``m``.
    threshold : float, optional
        T, the loss on the decision boundary (:class:`closecall.nn.CloseK`); close aggregates need T or ``closeness``.
    closeness : tensor of the losses' shape, optional
        The distance of each example from the boundary, used instead of ``abs(losses - threshold)`` for losses without a
        constant T, such as cross-entropy with more than two classes (:func:`closecall.nn.losses.logit_losses`).
    mass : tensor of the losses' shape, optional
        Sample weights: an example with mass 2 counts as two examples.
    mask : boolean tensor of the losses' shape, optional
        Which examples count. All other examples, such as ignored pixels or padding, may have any loss, even NaN. If no
        example counts, the value is 0.
    dim : int or tuple of int, optional
        The dimensions along which examples are ranked; each position in the other dimensions has its own selection.
        For example, ``dim=(1, 2)`` selects image by image from losses (images, height, width). The mean is taken over
        all selections.
    min_loss, min_kept : float; int, float or None
        For ``"atk"``: select the losses above ``min_loss``, but at least ``min_kept`` and at most ``k`` of them.
    temperature : float, optional
        The width of a soft selection (:mod:`closecall.nn.soft`); by default the selection is hard.
    nonfinite : {"raise", "propagate", "drop"}
        How to treat NaN losses and selected infinite losses: raise an error, propagate them to the value and the
        gradient (as GradScaler requires), or treat them as masked. An infinite loss that is not selected has no effect.
    reduction : {"mean", "sum", "none"}
        The mean is the sum divided by the total weight: k for ``close`` and ``atk``, n for ``average``, 1 for ``top``.
        ``"none"`` returns the weighted losses with their shape unchanged; for a group, only those of this process are
        returned, unscaled.
    group : process group or "world", optional
        The processes whose joint batch is used for the selection (:mod:`closecall.nn.distributed`).
    remaining : tensor (2,), optional
        The position of a schedule such as :class:`closecall.nn.KDecay`.

    Examples
    --------
    >>> import torch
    >>> aggregate("atk", torch.tensor([0.25, 2.0, 0.75]), k=2, reduction="sum").item()
    2.75
    """
    plan = Plan(name, k, m, threshold, min_loss, min_kept, temperature, dim, nonfinite, reduction, group, remaining)
    plan.check()
    return reduce(plan, Batch(losses, mass, closeness, mask)).value


def weights(
    name: str,
    losses: Tensor,
    *,
    closeness: Tensor | None = None,
    mass: Tensor | None = None,
    mask: Tensor | None = None,
    **settings: Any,
) -> Tensor:
    """Return the weights that :func:`aggregate` gives to the losses, with the same shape and without a gradient."""
    plan = Plan(name, **{"reduction": "sum"} | settings)
    plan.check()
    return weigh(plan, Batch(losses, mass, closeness, mask))


def average(losses: Tensor, **options: Any) -> Tensor:
    """Return the mean or the sum of all losses, weighted by mass. The options are the same as for :func:`aggregate`."""
    return aggregate("average", losses, **options)


def maximal(losses: Tensor, **options: Any) -> Tensor:
    """Return the largest loss; tied losses share the gradient. The options are the same as for :func:`aggregate`."""
    return aggregate("maximal", losses, **options)


def top_k(losses: Tensor, k: Count, **options: Any) -> Tensor:
    """Return the k-th largest loss. The options are the same as for :func:`aggregate`."""
    return aggregate("top", losses, k=k, **options)


def average_top_k(losses: Tensor, k: Count, **options: Any) -> Tensor:
    """Average the k largest losses (Fan et al. 2017). The options are the same as for :func:`aggregate`."""
    return aggregate("atk", losses, k=k, **options)


def close_k(losses: Tensor, k: Count, threshold: float | None = None, **options: Any) -> Tensor:
    """Average the losses of the k close calls. The options are the same as for :func:`aggregate`."""
    return aggregate("close", losses, k=k, threshold=threshold, **options)


def ranked_range(losses: Tensor, k: Count, m: Count, **options: Any) -> Tensor:
    """Average the losses ranked m+1 to k (Hu et al. 2020). The options are the same as for :func:`aggregate`."""
    return aggregate("ranked_range", losses, k=k, m=m, **options)


def trimmed(losses: Tensor, m: Count, **options: Any) -> Tensor:
    """Average all but the m largest losses. The options are the same as for :func:`aggregate`."""
    return aggregate("trimmed", losses, m=m, **options)

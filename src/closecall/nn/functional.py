"""Aggregates of per-example losses, as functions: losses of any shape -> one number with a gradient.

Each is ``weights . losses`` with the weights of :mod:`closecall.aggregates`, chosen without gradient and held fixed.
The paper's constant M adds nothing to a gradient and is left out of the value.

Losses of any shape (a segmentation map, say) are one batch of examples. Half precision selects, sums and returns
float32. Bad values raise under ``torch.compile`` and ``vmap`` too, except that there a count ``k`` above the total
of given sample weights takes all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from closecall._names import lookup
from closecall.aggregates import Count, get_aggregate, resolve_count

from .distributed import GroupSelector, join, resolve_group
from .schedule import decayed
from .selection import Selector, count_dtype

LOG2 = math.log(2)

Weigh = Callable[[Selector, Tensor, Tensor, Tensor, Tensor], Tensor]


def _top(select: Selector, losses: Tensor, closeness: Tensor, k: Tensor, m: Tensor) -> Tensor:
    # As in the core: the unit of mass that ends where the tied group of the k-th largest loss ends.
    cut = select.cut(-losses, k)
    end = (cut.inside + cut.tied).clamp(min=1.0)
    apart = select.take(-losses, end) - select.take(-losses, end - 1.0)
    # A group of at least 1 has the unit to itself: without the difference, which is rounded away beyond 1 / eps.
    group = (-losses == cut.edge) / cut.tied.clamp(min=1.0)
    own = (group if select.mass is None else group * select.mass).to(losses.dtype)
    return torch.where(cut.tied >= 1.0, own, apart)


#: (selector, losses, closeness, k, m) -> weights: all (rows, samples), k and m (rows, 1). One for each core aggregate.
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


def aggregate(
    name: str,
    losses: Tensor,
    *,
    k: Count = None,
    m: Count = None,
    threshold: float = LOG2,
    closeness: Tensor | None = None,
    mass: Tensor | None = None,
    reduction: str = "mean",
    group: Any = None,
    remaining: Tensor | None = None,
) -> Tensor:
    """Aggregate losses by the name of the aggregate; the functions below are this one with their parameters named.

    Parameters
    ----------
    name : str
        A name in :data:`closecall.aggregates.AGGREGATES`.
    losses : tensor of any shape
        One loss for each example.
    k, m : int, float or None
        Counts of examples, fractions of their mass, or None: all for ``k``, none for ``m``.
    threshold : float
        T, the loss on the decision boundary; only the close aggregates look at it. log 2 belongs to the logistic loss
        and to two-class cross-entropy, 1 to the hinge loss.
    closeness : tensor of the losses' shape, optional
        How far each example is from the boundary, instead of ``abs(losses - threshold)``: for losses without a
        constant T, such as cross-entropy with more than two classes (:func:`closecall.nn.losses.logit_losses`).
    mass : tensor of the losses' shape, optional
        Sample weights: an example of mass 2 is two examples.
    reduction : {"mean", "sum"}
        The mean divides by the total weight: k for ``close`` and ``atk``, n for ``average``, 1 for ``top``.
    group : process group or "world", optional
        Select over the joined batch of these processes (:mod:`closecall.nn.distributed`).
    remaining : tensor (2,), optional
        Where :class:`closecall.nn.KDecay` stands.

    Returns
    -------
    value : scalar tensor

    Examples
    --------
    >>> losses = torch.tensor([0.1, 2.0, 0.7])
    >>> aggregate("atk", losses, k=2, reduction="sum").item()
    2.700000047683716
    """
    check_reduction(reduction)
    rows = as_rows(losses, allow_empty=group is not None)
    chosen = _weigh(
        name, rows, k, m, threshold, like_rows(closeness, losses), like_rows(mass, losses), group, remaining
    )
    return reduce_rows(rows, chosen, chosen.sum(), reduction, group)


def check_reduction(reduction: str) -> None:
    """Raise ``ValueError`` unless the reduction is known."""
    if reduction not in ("mean", "sum"):
        raise ValueError(f"reduction={reduction!r} is not known; choose 'mean' or 'sum'")


def reduce_rows(rows: Tensor, chosen: Tensor, taken: Tensor, reduction: str, group: Any) -> Tensor:
    """Weights ``chosen`` times losses ``rows``, both (1, samples), summed; the mean divides by the scalar ``taken``."""
    sums = torch.stack([(chosen * rows).sum(), taken])
    value, taken = sums if group is None else join(sums, resolve_group(group))
    return value / taken if reduction == "mean" else value


def weights(
    name: str,
    losses: Tensor,
    *,
    k: Count = None,
    m: Count = None,
    threshold: float = LOG2,
    closeness: Tensor | None = None,
    mass: Tensor | None = None,
    group: Any = None,
    remaining: Tensor | None = None,
) -> Tensor:
    """The weights :func:`aggregate` gives to the losses, in their shape and without gradient.

    Examples
    --------
    >>> weights("close", torch.tensor([[0.1, 2.0], [0.7, 0.2]]), k=2).tolist()
    [[0.0, 0.0], [1.0, 1.0]]
    """
    rows = as_rows(losses, allow_empty=group is not None)
    chosen = _weigh(
        name, rows, k, m, threshold, like_rows(closeness, losses), like_rows(mass, losses), group, remaining
    )
    return chosen.reshape(losses.shape)


def as_rows(losses: Tensor, *, allow_empty: bool = False) -> Tensor:
    """Losses of any shape as one row (1, samples) of at least float32; what is not a batch of floats raises."""
    if not isinstance(losses, Tensor):
        raise TypeError(f"losses must be a tensor, not {type(losses).__name__}")
    if not losses.is_floating_point():
        raise TypeError(
            f"losses must be floating point, not {losses.dtype}; per-example losses come from reduction='none'"
        )
    if losses.numel() == 0 and not allow_empty:
        raise ValueError(f"there are no losses to aggregate: the batch has shape {tuple(losses.shape)}")
    rows = losses.reshape(1, -1)
    return rows if rows.dtype in (torch.float32, torch.float64) else rows.float()


def like_rows(values: Tensor | None, losses: Tensor) -> Tensor | None:
    """Masses or closenesses as :func:`as_rows` gives the losses; another shape than the losses' raises."""
    if values is None:
        return None
    if values.shape != losses.shape:
        raise ValueError(
            f"mass and closeness need one value for each loss: got shape {tuple(values.shape)} "
            f"for losses of shape {tuple(losses.shape)}"
        )
    dtype = losses.dtype if losses.dtype in (torch.float32, torch.float64) else torch.float32
    return values.detach().reshape(1, -1).to(dtype)


def make_selector(mass: Tensor | None, group: Any) -> Selector:
    """The selector within this process, or over a group of them."""
    return Selector(mass) if group is None else GroupSelector(mass, group=resolve_group(group))


def _weigh(
    name: str,
    rows: Tensor,
    k: Count,
    m: Count,
    threshold: float,
    closeness: Tensor | None,
    mass: Tensor | None,
    group: Any,
    remaining: Tensor | None,
) -> Tensor:
    weigh = lookup(WEIGH, name, "aggregate")
    with torch.no_grad():
        rows = rows.detach()
        select = make_selector(mass, group)
        k_mass, m_mass = masses(name, k, m, select.total(rows), rows.device, remaining)
        # Only keys are checked for NaN; adding nothing of the losses to given ones makes them show it.
        keys = (rows - threshold).abs() if closeness is None else closeness + 0 * rows
        return weigh(select, rows, keys, k_mass, m_mass)


def masses(
    name: str, k: Count, m: Count, total: float | Tensor, device: torch.device, remaining: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """``k`` and ``m`` as masses (1, 1), k infinite where it reaches the total (then all is taken, bit for bit)."""
    known, options = get_aggregate(name), {"dtype": count_dtype(device), "device": device}
    if isinstance(total, Tensor):  # a number that cannot be read: under compile or vmap, with sample weights
        counts = (k if "k" in known.takes else None, 1), (m if "m" in known.takes else 0, 0)
        n, k_mass, m_mass = total.reshape(1, 1), *(_unread(count, total, low) for count, low in counts)
    else:
        n, k_mass, m_mass = (torch.full((1, 1), each, **options) for each in (total, *known.counts(k, m, total)))
    if remaining is not None:
        k_mass = decayed(k_mass, n, remaining)
    return k_mass.masked_fill(k_mass >= n, math.inf), m_mass


def _unread(count: Count, total: Tensor, low: int) -> Tensor:
    if count is None or isinstance(count, float):
        return (total * resolve_count(count, 1.0, low=low)).reshape(1, 1)
    return torch.full_like(total, resolve_count(count, math.inf, low=low)).reshape(1, 1)


def average(losses: Tensor, *, mass: Tensor | None = None, reduction: str = "mean", group: Any = None) -> Tensor:
    """Every loss counts: the mean, or the sum, by mass.

    Examples
    --------
    >>> average(torch.tensor([1.0, 2.0]), mass=torch.tensor([1.0, 3.0])).item()
    1.75
    """
    return aggregate("average", losses, mass=mass, reduction=reduction, group=group)


def maximal(losses: Tensor, *, mass: Tensor | None = None, reduction: str = "mean", group: Any = None) -> Tensor:
    """The largest loss; equal ones share the gradient.

    Examples
    --------
    >>> maximal(torch.tensor([1.0, 2.0])).item()
    2.0
    """
    return aggregate("maximal", losses, mass=mass, reduction=reduction, group=group)


def top_k(
    losses: Tensor, k: Count, *, mass: Tensor | None = None, reduction: str = "mean", group: Any = None
) -> Tensor:
    """The k-th largest loss alone.

    Examples
    --------
    >>> top_k(torch.tensor([3.0, 1.0, 2.0]), 2).item()
    2.0
    """
    return aggregate("top", losses, k=k, mass=mass, reduction=reduction, group=group)


def average_top_k(
    losses: Tensor, k: Count, *, mass: Tensor | None = None, reduction: str = "mean", group: Any = None
) -> Tensor:
    """The k largest losses (Fan et al. 2017).

    Examples
    --------
    >>> average_top_k(torch.tensor([3.0, 1.0, 2.0]), 2).item()
    2.5
    """
    return aggregate("atk", losses, k=k, mass=mass, reduction=reduction, group=group)


def close_k(
    losses: Tensor,
    k: Count,
    threshold: float = LOG2,
    *,
    closeness: Tensor | None = None,
    mass: Tensor | None = None,
    reduction: str = "mean",
    group: Any = None,
) -> Tensor:
    """The k losses nearest the threshold: the close calls.

    Examples
    --------
    >>> close_k(torch.tensor([3.0, 0.5, 1.25]), 2, threshold=1.0, reduction="sum").item()
    1.75
    """
    return aggregate(
        "close",
        losses,
        k=k,
        threshold=threshold,
        closeness=closeness,
        mass=mass,
        reduction=reduction,
        group=group,
    )


def ranked_range(
    losses: Tensor, k: Count, m: Count, *, mass: Tensor | None = None, reduction: str = "mean", group: Any = None
) -> Tensor:
    """The losses ranked m+1 to k from the largest down (Hu et al. 2020).

    Examples
    --------
    >>> ranked_range(torch.tensor([9.0, 1.0, 2.0, 3.0]), 3, 1, reduction="sum").item()
    5.0
    """
    return aggregate("ranked_range", losses, k=k, m=m, mass=mass, reduction=reduction, group=group)


def trimmed(
    losses: Tensor, m: Count, *, mass: Tensor | None = None, reduction: str = "mean", group: Any = None
) -> Tensor:
    """All but the m largest losses.

    Examples
    --------
    >>> trimmed(torch.tensor([9.0, 1.0, 2.0, 3.0]), 1, reduction="mean").item()
    2.0
    """
    return aggregate("trimmed", losses, m=m, mass=mass, reduction=reduction, group=group)

"""Reducers: per-example losses -> one number, as modules that remember the settings of the functions."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from closecall.aggregates import Count, get_aggregate, resolve_count

from . import functional
from .functional import LOG2, as_rows, check_reduction, like_rows, make_selector, masses, reduce_rows
from .memory import KeyMemory
from .selection import NOT_FINITE, require, weigh


class Reducer(nn.Module):  # type: ignore[misc]
    """What all reducers share: per-example losses of any shape -> one number.

    Parameters
    ----------
    k, m : int, float or None
        Counts of examples in a batch, fractions of it, or None (all for ``k``, none for ``m``), where the reducer
        takes them.
    reduction : {"mean", "sum"}
        The mean divides by the total weight (k for close-k).
    group : process group or "world", optional
        Select over the joined batch of these processes; see :mod:`closecall.nn.distributed`.
    """

    aggregate: ClassVar[str]
    remaining: Tensor

    def __init__(self, k: Count = None, m: Count = None, *, reduction: str = "mean", group: Any = None) -> None:
        super().__init__()
        for name, given in (("k", k), ("m", m)):
            if given is not None and name not in self.takes:
                raise TypeError(f"{type(self).__name__} takes no {name}, but {name}={given!r} was given")
        check_reduction(reduction)
        self.k, self.m, self.reduction, self.group = k, m, reduction, group
        self.resolve(2**60)  # settings that fit no batch fail here, not in the first one
        # KDecay's position; its state_dict saves it, so that a reducer's checkpoint is the same with and without it.
        self.register_buffer("remaining", torch.tensor([0, 1]), persistent=False)
        self.decays = False

    @property
    def takes(self) -> tuple[str, ...]:
        """Which of the counts k and m this reducer looks at."""
        return get_aggregate(self.aggregate).takes

    def resolve(self, total: float) -> tuple[float, float]:
        """The final k and m in a batch of ``total`` examples (or total sample weight)."""
        return get_aggregate(self.aggregate).counts(self.k, self.m, total)

    def settings(self) -> dict[str, Any]:
        """The keyword arguments of :func:`closecall.nn.functional.weights`."""
        return {"k": self.k, "m": self.m, "group": self.group, "remaining": self.remaining if self.decays else None}

    def forward(self, losses: Tensor, *, mass: Tensor | None = None, closeness: Tensor | None = None) -> Tensor:
        """Reduce losses; ``mass`` are sample weights, ``closeness`` distances from the boundary, of the same shape."""
        return functional.aggregate(
            self.aggregate, losses, mass=mass, closeness=closeness, reduction=self.reduction, **self.settings()
        )

    def weights(self, losses: Tensor, *, mass: Tensor | None = None, closeness: Tensor | None = None) -> Tensor:
        """The weights that :meth:`forward` gives to the losses, in their shape."""
        return functional.weights(self.aggregate, losses, mass=mass, closeness=closeness, **self.settings())

    def extra_repr(self) -> str:
        """The settings, for ``repr``."""
        shown = {name: getattr(self, name) for name in (*self.takes, "reduction")}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


class Average(Reducer):
    """Every loss counts.

    Examples
    --------
    >>> Average()(torch.tensor([1.0, 3.0])).item()
    2.0
    """

    aggregate = "average"


class Maximal(Reducer):
    """The largest loss.

    Examples
    --------
    >>> Maximal()(torch.tensor([1.0, 3.0])).item()
    3.0
    """

    aggregate = "maximal"


class TopK(Reducer):
    """The k-th largest loss alone.

    Examples
    --------
    >>> TopK(k=2)(torch.tensor([1.0, 3.0, 2.0])).item()
    2.0
    """

    aggregate = "top"


class AverageTopK(Reducer):
    """The k largest losses (Fan et al. 2017).

    Examples
    --------
    >>> AverageTopK(k=2)(torch.tensor([1.0, 3.0, 2.0])).item()
    2.5
    """

    aggregate = "atk"


class RankedRange(Reducer):
    """The losses ranked m+1 to k from the largest down (Hu et al. 2020).

    Examples
    --------
    >>> RankedRange(k=2, m=1)(torch.tensor([1.0, 3.0, 2.0])).item()
    2.0
    """

    aggregate = "ranked_range"


class Trimmed(Reducer):
    """All but the m largest losses.

    Examples
    --------
    >>> Trimmed(m=1)(torch.tensor([1.0, 3.0, 2.0])).item()
    1.5
    """

    aggregate = "trimmed"


class CloseK(Reducer):
    """The k losses nearest the threshold: the close calls.

    Parameters
    ----------
    k : int, float or None
        How many: a count in each batch, a fraction of it, or None for all.
    threshold : float
        T, the loss on the decision boundary: log 2 for logistic loss and two-class cross-entropy, 1 for hinge.
        With more classes give ``closeness`` to the call, or use :class:`CloseKLoss`.
    reduction, group
        As for every :class:`Reducer`.
    memory : None or "global"
        With ``"global"``, k is a share of the data, not of the batch: in training, a batch is ranked among the last
        ``memory_size`` examples (:mod:`closecall.nn.memory`), and the mean divides by the weight to be expected.
    memory_size : int
        How many examples are remembered; ``data_size`` if that is less. A batch larger than this is ranked by itself.
    data_size : int, optional
        How many examples an epoch has; needed for a count ``k`` with ``memory="global"``.

    Examples
    --------
    >>> logits, targets = torch.tensor([[2.0, 0.0], [0.1, 0.0]]), torch.tensor([0, 0])
    >>> losses = nn.functional.cross_entropy(logits, targets, reduction="none")
    >>> CloseK(k=1).weights(losses).tolist()
    [0.0, 1.0]
    """

    aggregate = "close"

    def __init__(
        self,
        k: Count = None,
        *,
        threshold: float = LOG2,
        reduction: str = "mean",
        group: Any = None,
        memory: str | None = None,
        memory_size: int = 1024,
        data_size: int | None = None,
    ) -> None:
        super().__init__(k, reduction=reduction, group=group)
        if memory not in (None, "global"):
            raise ValueError(f"memory={memory!r} is not known; choose None or 'global'")
        if memory and isinstance(k, int) and data_size is None:
            raise ValueError(f"with memory='global' k={k} counts examples of the data; give data_size, or a fraction k")
        self.threshold, self.data_size = threshold, data_size
        self.memory = KeyMemory(min(memory_size, data_size or memory_size)) if memory else None

    def settings(self) -> dict[str, Any]:
        """The keyword arguments of :func:`closecall.nn.functional.weights`."""
        return {**super().settings(), "threshold": self.threshold}

    def forward(self, losses: Tensor, *, mass: Tensor | None = None, closeness: Tensor | None = None) -> Tensor:
        """Reduce losses; ``mass`` are sample weights, ``closeness`` distances from the boundary, of the same shape."""
        if self.memory is None:
            return super().forward(losses, mass=mass, closeness=closeness)
        rows = as_rows(losses, allow_empty=self.group is not None)
        chosen, expected = self._rank(rows, like_rows(mass, losses), like_rows(closeness, losses), self.training)
        return reduce_rows(rows, chosen, expected, self.reduction, self.group)

    def weights(self, losses: Tensor, *, mass: Tensor | None = None, closeness: Tensor | None = None) -> Tensor:
        """The weights that :meth:`forward` gives to the losses, in their shape; the memory is left as it is."""
        if self.memory is None:
            return super().weights(losses, mass=mass, closeness=closeness)
        rows = as_rows(losses, allow_empty=self.group is not None)
        return self._rank(rows, like_rows(mass, losses), like_rows(closeness, losses), False)[0].reshape(losses.shape)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _rank(
        self, rows: Tensor, mass: Tensor | None, closeness: Tensor | None, remember: bool
    ) -> tuple[Tensor, Tensor]:
        # Weights (1, samples) of a batch among the remembered keys, and the total weight to be expected of it.
        assert self.memory is not None
        keys = ((rows - self.threshold).abs() if closeness is None else closeness + 0 * rows).to(self.memory.keys.dtype)
        mass = torch.ones_like(keys) if mass is None else mass.to(keys.dtype)
        if self.group is None:  # a bad batch must not enter the memory; over a group, no process may leave alone
            require(torch.isfinite(keys).all(), NOT_FINITE)
        else:
            make_selector(mass, self.group).total(keys)
        pool, pool_mass = self.memory.pool(keys, mass, remember)
        select = make_selector(pool_mass, self.group)
        total = select.total(pool)
        share = resolve_count(self.k, self.data_size or 1) / (self.data_size or 1)
        k, _ = masses("close", share, None, total, pool.device, self.remaining if self.decays else None)
        chosen = weigh(keys, mass, select.cut(pool, k), k)
        expected = (k / total).clamp(max=1.0) * mass.sum(dtype=k.dtype)
        return chosen.to(rows.dtype), expected.reshape(()).to(rows.dtype)

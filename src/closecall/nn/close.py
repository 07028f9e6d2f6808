"""CloseK: the reducer that selects the close calls, within a batch or among recent examples."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from closecall.aggregates import Count, resolve_count

from .base import Reducer
from .distributed import GroupSelector, gather, join, resolve_group
from .general import mass_of, rows_of
from .plan import Batch, Layout, Plan, check_batch, layout_of
from .schedule import decayed
from .selection import NOT_FINITE, Selector, require, weigh
from .soft import weighted


class Keys(NamedTuple):
    """Keys of examples, their masses and their contributions to the mean's divisor, each of shape (1, samples)."""

    keys: Tensor
    mass: Tensor
    divisor: Tensor


class KeyMemory(nn.Module):  # type: ignore[misc]
    """A ring buffer of the latest keys ``abs(l - T)`` with their masses and divisors, saved in the state dict.

    Every batch has a closest ten percent, even a batch of 32 easy examples, none of which a selection from the full
    data would include. Therefore the reducer selects the examples of a batch whose keys are below the k-th smallest key
    *of the ring*. If the parameters are constant and the ring holds one epoch, the result is exactly the full-batch
    selection. While the parameters change, older keys are out of date: a ring of 16 to 32 batches agreed best with the
    full-batch selection (benchmarks/torch_loss.py at commit d8b6b613). For a group of processes, the ring holds the
    joint batches and is the same on every process, so any process may save it.

    Empty slots have a mass of zero. Converting a model to half precision does not convert this memory.
    """

    keys: Tensor
    mass: Tensor
    divisor: Tensor
    position: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"memory_size={size!r} must be a whole number >= 1")
        for name in Keys._fields:
            self.register_buffer(name, torch.zeros(1, size))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before = {name: getattr(self, name) for name in Keys._fields}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new = getattr(self, name)
            if new.dtype not in (torch.float32, torch.float64):
                setattr(self, name, old.to(new.device))
        return self

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        if f"{prefix}keys" in state_dict:  # older states have no divisors, because all were 1
            state_dict.setdefault(f"{prefix}divisor", torch.ones_like(self.divisor))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def remember(self, new: Keys) -> None:
        """Replace the oldest keys with new ones."""
        size = self.keys.shape[1]
        samples = min(new.keys.shape[1], size)
        if samples == size:
            self.position.zero_()
        places = (self.position + torch.arange(samples, device=self.position.device)) % size
        for name, values in new._asdict().items():
            getattr(self, name)[:, places] = values[:, -size:]
        self.position.copy_((self.position + samples) % size)

    def pool(self, new: Keys, remember: bool) -> Keys:
        """Return the keys among which a batch is ranked: the ring, with the batch inserted or appended."""
        ring, samples = Keys(self.keys, self.mass, self.divisor), new.keys.shape[1]
        if not remember:
            return Keys(*(torch.cat(pair, dim=1) for pair in zip(ring, new, strict=True)))
        self.remember(new)
        if samples <= self.keys.shape[1]:
            return ring
        if not torch.compiler.is_compiling():
            warnings.warn(
                f"a batch of {samples} examples exceeds memory_size={self.keys.shape[1]}: it is ranked on its own "
                "and the memory has no effect; set memory_size to 16 to 32 batches, or use memory=None",
                stacklevel=2,
            )
        return new

    def extra_repr(self) -> str:
        """Return the size for ``repr``."""
        return f"size={self.keys.shape[1]}"


class CloseK(Reducer):
    """The k losses nearest the threshold: the close calls. The other options apply to every :class:`Reducer`.

    Parameters
    ----------
    k : int, float or None
        The number of close calls in a batch, a fraction of the batch, or None for all.
    threshold : float, optional
        T, the loss on the decision boundary: ``math.log(2)`` for the logistic loss, BCE with logits and two-class
        cross-entropy, and 1 for the hinge loss. T cannot be inferred from the losses; without it, pass ``closeness``
        to the call, or use :class:`CloseKLoss`, which computes it from the logits.
    temperature : float, optional
        The width of a soft selection (:mod:`closecall.nn.soft`); by default the selection is hard.
    memory : None or "global"
        With ``"global"``, k refers to the full data instead of the batch: each batch is ranked among the last
        ``memory_size`` examples (:class:`KeyMemory`), and the mean is divided by the expected weight. A batch is
        remembered only in training mode with gradients enabled; validation does not change the memory.
    memory_size : int
        Number of examples to remember, across all processes in a group; at most ``data_size``. A batch larger than
        ``memory_size`` is ranked on its own, with a warning.
    data_size : int, optional
        Number of examples in an epoch; required if ``k`` is a count and ``memory="global"``.

    Examples
    --------
    >>> import math
    >>> logits, targets = torch.tensor([[2.0, 0.0], [0.1, 0.0]]), torch.tensor([0, 0])
    >>> losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    >>> CloseK(k=1, threshold=math.log(2)).weights(losses).tolist()
    [0.0, 1.0]
    """

    aggregate = "close"
    more: ClassVar[dict[str, Any]] = {"threshold": None, "temperature": None}

    def __init__(
        self,
        k: Count = None,
        *,
        threshold: float | None = None,
        temperature: float | None = None,
        memory: str | None = None,
        memory_size: int = 1024,
        data_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(k, threshold=threshold, temperature=temperature, **options)
        if memory not in (None, "global"):
            raise ValueError(f"memory={memory!r} is not known; choose None or 'global'")
        if memory and isinstance(k, int) and data_size is None:
            raise ValueError(f"with memory='global', k={k} refers to the full data; pass data_size or a fractional k")
        if memory and (self.dim is not None or temperature is not None):
            raise ValueError("memory='global' uses a hard selection among all examples: omit dim and temperature")
        self.data_size = data_size
        self.memory = KeyMemory(min(memory_size, data_size or memory_size)) if memory else None

    def reduce(self, batch: Batch) -> Tensor:
        """Reduce a batch, ranked on its own or among recent examples."""
        if self.memory is None:
            return super().reduce(batch)
        batch = check_batch(batch, allow_empty=self.group is not None)
        # Validation data, seen in evaluation mode or without gradients, are not part of the training data.
        chosen, expected = self._rank(batch, self.training and torch.is_grad_enabled())
        counted = weighted(batch.losses, chosen)
        if self.reduction == "none":
            return counted
        value = counted.sum() if self.group is None else join(counted.sum(), resolve_group(self.group))
        return value / torch.where(expected > 0, expected, 1.0) if self.reduction == "mean" else value

    def weigh(self, batch: Batch) -> Tensor:
        """Return the weights of a batch; the memory does not change."""
        if self.memory is None:
            return super().weigh(batch)
        return self._rank(check_batch(batch, allow_empty=self.group is not None), False)[0]

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _rank(self, batch: Batch, remember: bool) -> tuple[Tensor, Tensor]:
        # The weights of a batch among the remembered keys, with the shape of the losses, and its expected divisor.
        assert self.memory is not None
        plan, layout, start = self.plan(), layout_of(batch.losses.shape, None), 0
        new, poison = self._keys(plan, batch, layout)
        if self.group is not None:
            rows, start = gather(torch.cat(new), resolve_group(self.group))
            new = Keys(*rows.split(1))
        pool = self.memory.pool(new, remember)
        select = Selector(pool.mass, refuse="")
        total = select.totals(pool.keys)
        k = mass_of(resolve_count(self.k, self.data_size or 1) / (self.data_size or 1), total, 1)
        if plan.remaining is not None:
            k = decayed(k, mass_of(plan.starts[0], total, 1), plan.remaining[0])
        wanted = k.masked_fill(k >= total, torch.inf)
        cut = select.cut(pool.keys, wanted)
        chosen = weigh(new.keys, new.mass, cut, wanted)
        expected = k if batch.divisor is None else select.sums(weigh(*pool[:2], cut, wanted) * pool.divisor)
        expected = expected / total.clamp(min=torch.finfo(k.dtype).tiny) * new.mass.sum(dtype=k.dtype)
        self._last = (chosen.sum(), cut.edge)
        own = chosen[:, start : start + batch.losses.numel()] * poison
        dtype = batch.losses.dtype
        return layout.from_rows(own).to(dtype), expected.reshape(()).to(dtype)

    def _keys(self, plan: Plan, batch: Batch, layout: Layout) -> tuple[Keys, Tensor]:
        # Keys that may enter the memory: keys that are not finite raise an error or get a mass of zero.
        rows = rows_of(plan, batch, layout)
        assert self.memory is not None
        assert rows.closeness is not None
        keys = rows.closeness.to(self.memory.keys.dtype)
        mass = torch.ones_like(keys) if rows.mass is None else rows.mass.to(keys.dtype)
        divisor = torch.ones_like(keys) if batch.divisor is None else layout.to_rows(batch.divisor).to(keys.dtype)
        strict = plan.nonfinite == "raise"
        if self.group is None:
            require(torch.isfinite(keys).all() | (not strict), NOT_FINITE)
        else:  # all processes must raise the error together
            GroupSelector(mass, group=resolve_group(self.group)).check(keys, strict, batch.mask is None)
        good = torch.isfinite(keys)
        poison = torch.ones_like(keys[:, :1]) if rows.poison is None else rows.poison.to(keys.dtype)
        return Keys(torch.where(good, keys, 0.0), torch.where(good, mass, 0.0), divisor), poison

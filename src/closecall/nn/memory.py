"""KeyMemory: the closeness of recent examples, which ranks a mini-batch within the data, not within itself.

Even a batch of 32 easy examples has a closest ten percent, none of which would be selected from the full data. The
memory is a ring of the last keys ``abs(l - T)``; a batch selects what lies below the k-th place *of the ring*. If the
parameters are constant and the ring holds one epoch, this is exactly the full-batch selection; while they change, the
older keys lag behind. A ring of 16 to 32 batches agreed best with the full-batch selection in our runs
(benchmarks/torch_loss.py prints the table). Over a group of processes the ring holds the joint batches and is the same
on every process, so any of them may save it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class Keys(NamedTuple):
    """Keys of examples, their masses and their contributions to the mean's divisor, all (1, samples)."""

    keys: Tensor
    mass: Tensor
    divisor: Tensor


class KeyMemory(nn.Module):  # type: ignore[misc]
    """A ring of keys, their masses and divisors, saved with the state dict.

    Keys are ranked in float32 or better: converting a model to half precision does not change its memory.

    Parameters
    ----------
    size : int
        How many keys it holds. Slots not yet filled have mass zero.

    Examples
    --------
    >>> memory = KeyMemory(3)
    >>> for key in (5.0, 6.0, 7.0, 8.0):
    ...     memory.remember(Keys(torch.tensor([[key]]), torch.ones(1, 1), torch.ones(1, 1)))
    >>> memory.keys[0].tolist()
    [8.0, 6.0, 7.0]
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
        if f"{prefix}keys" in state_dict:  # what was saved before there were divisors has none but 1
            state_dict.setdefault(f"{prefix}divisor", torch.ones_like(self.divisor))
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def remember(self, new: Keys) -> None:
        """Replace the oldest keys."""
        size = self.keys.shape[1]
        samples = min(new.keys.shape[1], size)
        if samples == size:
            self.position.zero_()
        places = (self.position + torch.arange(samples, device=self.position.device)) % size
        for name, values in new._asdict().items():
            getattr(self, name)[:, places] = values[:, -size:]
        self.position.copy_((self.position + samples) % size)

    def pool(self, new: Keys, remember: bool) -> Keys:
        """The keys among which a batch is ranked: the ring with the batch inserted, or alongside it."""
        ring, samples = Keys(self.keys, self.mass, self.divisor), new.keys.shape[1]
        if not remember:
            return Keys(*(torch.cat(pair, dim=1) for pair in zip(ring, new, strict=True)))
        self.remember(new)
        if samples <= self.keys.shape[1]:
            return ring
        if not torch.compiler.is_compiling():
            warnings.warn(
                f"a batch of {samples} examples exceeds memory_size={self.keys.shape[1]}: it is ranked by itself "
                "and the memory has no effect; give a memory_size of 16 to 32 batches, or leave memory=None",
                stacklevel=2,
            )
        return new

    def extra_repr(self) -> str:
        """The size, for ``repr``."""
        return f"size={self.keys.shape[1]}"

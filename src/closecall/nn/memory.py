"""KeyMemory: the closeness of the examples seen lately, so that a mini-batch is ranked among the data, not itself.

A batch of 32 in which everything is easy still has its closest ten percent, which the full data would not take. The
memory is a ring of the last keys ``abs(l - T)``; a batch selects what lies below the k-th place *of the ring*. Where
the parameters stand still and the ring holds one epoch, that is exactly the full-batch selection; while they move, the
older keys are out of date by as much as the parameters moved within the ring's span. A ring of 16 to 32 batches agreed
best with the full-batch selection in our runs (benchmarks/torch_loss.py prints the table).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn


class KeyMemory(nn.Module):  # type: ignore[misc]
    """A ring of keys and their masses, saved with the state dict.

    Keys are ranked in float32 or better: a model that is turned to half precision leaves its memory as it is.

    Parameters
    ----------
    size : int
        How many keys it holds. Slots not yet filled have mass zero.

    Examples
    --------
    >>> memory = KeyMemory(3)
    >>> for key in (5.0, 6.0, 7.0, 8.0):
    ...     memory.remember(torch.tensor([[key]]), torch.ones(1, 1))
    >>> memory.keys[0].tolist()
    [8.0, 6.0, 7.0]
    """

    keys: Tensor
    mass: Tensor
    position: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise ValueError(f"memory_size={size!r} must be a whole number >= 1")
        self.register_buffer("keys", torch.zeros(1, size))
        self.register_buffer("mass", torch.zeros(1, size))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        before = {name: getattr(self, name) for name in ("keys", "mass")}
        super()._apply(fn, recurse)
        for name, old in before.items():
            new = getattr(self, name)
            if new.dtype not in (torch.float32, torch.float64):
                setattr(self, name, old.to(new.device))
        return self

    def remember(self, keys: Tensor, mass: Tensor) -> None:
        """Put keys and masses (1, samples) in the place of the oldest ones."""
        size = self.keys.shape[1]
        keys, mass = keys[:, -size:], mass[:, -size:]
        samples = keys.shape[1]
        if samples == size:
            self.position.zero_()
        places = (self.position + torch.arange(samples, device=self.position.device)) % size
        self.keys[:, places] = keys
        self.mass[:, places] = mass
        self.position.copy_((self.position + samples) % size)

    def pool(self, keys: Tensor, mass: Tensor, remember: bool) -> tuple[Tensor, Tensor]:
        """Keys and masses (1, ...) to rank a batch among: the ring with the batch put in, or beside it."""
        if not remember:
            return torch.cat([self.keys, keys], dim=1), torch.cat([self.mass, mass], dim=1)
        self.remember(keys, mass)
        if keys.shape[1] <= self.keys.shape[1]:
            return self.keys, self.mass
        if not torch.compiler.is_compiling():
            warnings.warn(
                f"a batch of {keys.shape[1]} examples exceeds memory_size={self.keys.shape[1]}: it is ranked by itself "
                "and the memory has no effect; give a memory_size of 16 to 32 batches, or leave memory=None",
                stacklevel=2,
            )
        return keys, mass

    def extra_repr(self) -> str:
        """The size, for ``repr``."""
        return f"size={self.keys.shape[1]}"

"""Selection over the joint batch of all processes, without gathering the losses.

The k-th key is found digit by digit. The bits of a key are arranged to sort like the original floats and divided into
digits of 11 bits: three digits for float32 and six for float64. For each digit, every process sums the mass of its keys
for each value of the digit, ``all_reduce`` adds up these sums (16 kB per row, regardless of the batch size), and the
value that contains the k-th key is kept. Counts are exact, so the cut is exact too.

**Gradients.** DistributedDataParallel averages the gradients of W processes. On each process, the loss has the value of
the joint batch and W times the gradient of that process's examples, so the average of these gradients is the gradient
of the joint batch. (If you sum gradients instead of averaging them, divide by W.)

Every process must call the reducer at every step; a process with an empty batch calls it with an empty tensor. If
``dim=`` includes dimension 0 (the batch), the processes share the rows. Otherwise, each row belongs to one process, as
in a separate selection for each image, and only the mean is shared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .selection import BAD_MASS, NEGATIVE_MASS, NOT_FINITE, Cut, Selector, almost

DIGIT = 11


def resolve_group(group: Any) -> Any:
    """Return the default process group for ``"world"``; any other value must already be a group."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "selection across processes needs torch.distributed: call torch.distributed.init_process_group first, "
            "or leave group=None to select within this process"
        )
    return dist.group.WORLD if group == "world" else group


def ordered_bits(keys: Tensor) -> Tensor:
    """Convert floats to integers that sort in the same order: float32 to int32, float64 to int64."""
    keys = keys + 0.0  # -0.0 and 0.0 are the same key
    dtype = torch.int32 if keys.dtype == torch.float32 else torch.int64
    bits = keys.view(dtype)
    return torch.where(bits < 0, bits ^ torch.iinfo(dtype).max, bits)


@dataclass(frozen=True)
class GroupSelector(Selector):
    """A selector for rows distributed across a group of processes; ``mass`` contains only this process's masses."""

    group: Any = None

    def check(self, losses: Tensor, strict: bool, needs_mass: bool) -> bool:
        """Return whether any loss is infinite; a bad value raises an error on every process, so no process hangs.

        On accelerators, no value is read and no error is raised.
        """
        mass = torch.ones_like(losses) if self.mass is None else self.mass
        bad = torch.isnan(losses), torch.isinf(losses), ~torch.isfinite(mass), mass < 0
        flags = (each.sum() for each in bad)
        facts = torch.stack([mass.nan_to_num().sum(dtype=torch.float32), *flags]).to(torch.float32)
        dist.all_reduce(facts, group=self.group)
        if facts.device.type != "cpu":
            return False
        total, nan, infinite_losses, infinite, negative = facts.tolist()
        problems = {
            NOT_FINITE: strict and nan,
            BAD_MASS: infinite,
            NEGATIVE_MASS: negative,
            "there are no losses with a positive weight on any process": needs_mass and total == 0,
        }
        for message, found in problems.items():
            if found:
                raise ValueError(message)
        return bool(strict and infinite_losses)

    def totals(self, rows: Tensor) -> Tensor:
        """Return the mass (rows, 1) of each joint row."""
        return self.sums(torch.ones_like(rows) if self.mass is None else self.mass)

    def sums(self, values: Tensor) -> Tensor:
        """Return the sums (rows, 1) of the values (rows, samples) on all processes."""
        part = super().sums(values)
        dist.all_reduce(part, group=self.group)
        return part

    def highest(self, values: Tensor) -> Tensor:
        """Return the largest value (rows, 1) of each joint row."""
        return largest(super().highest(values), self.group)

    def everything(self, keys: Tensor) -> Tensor:
        """Return all masses; :meth:`check` has already checked the values, so no communication is needed."""
        return torch.ones_like(keys) if self.mass is None else self.mass

    def cut(self, keys: Tensor, wanted: Tensor) -> Cut:
        """Return the cut of the joint rows at the masses ``wanted`` (rows, 1), which is the same on every process."""
        bits = ordered_bits(keys)
        width = left = torch.iinfo(bits.dtype).bits
        mass = torch.ones_like(keys, dtype=wanted.dtype) if self.mass is None else self.mass.to(wanted.dtype)
        samples = torch.full_like(wanted[:1], float(keys.shape[1]))
        dist.all_reduce(samples, group=self.group)
        target = wanted * almost(samples, torch.finfo(wanted.dtype).eps)
        inside, tied = torch.zeros_like(wanted), torch.zeros_like(wanted)
        found = torch.zeros_like(wanted, dtype=torch.int64)
        while left:
            first, size = left == width, min(DIGIT, left)
            left -= size
            digits = (bits >> left).to(torch.int64) & (2**size - 1)
            if first:
                digits = digits ^ 2 ** (size - 1)  # the sign bit, inverted because negative numbers come first
            counts = mass.new_zeros(keys.shape[0], 2**size).scatter_add_(1, digits, mass)
            dist.all_reduce(counts, group=self.group)
            cumulative = inside + counts.cumsum(1)
            # Beyond the end (through rounding, or if everything is wanted), use the last digit that has mass.
            reached, ended = cumulative < target, cumulative < cumulative[:, -1:]
            digit = torch.minimum(reached.sum(1, keepdim=True), ended.sum(1, keepdim=True))
            tied = counts.gather(1, digit)
            inside = torch.cat([inside, cumulative[:, :-1]], dim=1).gather(1, digit)
            found = (found << size) | digit
            mass = mass * (digits == digit)
        kind = torch.iinfo(bits.dtype)
        bits = found.to(bits.dtype) ^ kind.min
        return Cut(torch.where(bits < 0, bits ^ kind.max, bits).view(keys.dtype), inside, tied)


def largest(values: Tensor, group: Any) -> Tensor:
    """Return the elementwise maximum across all processes."""
    joined = values.clone()
    dist.all_reduce(joined, op=dist.ReduceOp.MAX, group=group)
    return joined


def gather(values: Tensor, group: Any) -> tuple[Tensor, int]:
    """Concatenate the values (rows, samples) of all processes; also return the index of this process's first sample."""
    world, rank = dist.get_world_size(group), dist.get_rank(group)
    counts = [torch.zeros(1, dtype=torch.int64, device=values.device) for _ in range(world)]
    dist.all_gather(counts, torch.tensor([values.shape[1]], device=values.device), group=group)
    sizes = [int(count) for count in counts]
    padded = values.new_zeros(values.shape[0], max(sizes))
    padded[:, : values.shape[1]] = values
    parts = [torch.empty_like(padded) for _ in range(world)]
    dist.all_gather(parts, padded, group=group)
    return torch.cat([part[:, :size] for part, size in zip(parts, sizes, strict=True)], dim=1), sum(sizes[:rank])


class _Join(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, part: Tensor, group: Any) -> Tensor:
        ctx.world = dist.get_world_size(group)
        joined = part.clone()
        dist.all_reduce(joined, group=group)
        return joined

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return ctx.world * gradient, None


def join(part: Tensor, group: Any) -> Tensor:
    """Return the sum across all processes, with W times this process's gradient (see "Gradients" above)."""
    return _Join.apply(part, group)

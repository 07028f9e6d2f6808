"""Selection over the joined batch of all processes, without gathering the losses.

The k-th key is found digit by digit: a key's bits, arranged so that integers sort like the floats they came from, are
cut into digits of 11 bits, three for float32 and at most six for float64. For each digit every process counts the
mass of its keys under each value, ``all_reduce`` adds the counts up, and the value in which the k-th place falls is
kept: a bisection with 2048 branches, 16 kB a round whatever the batch size. Counts are exact, and so is the cut.

**Gradients.** DistributedDataParallel averages the gradients of W processes. The loss returned on each process has
the joined batch's value and W times the gradient of that process's part, so that the average is the joined batch's
gradient. (Where gradients are summed by hand instead of averaged, divide by W.)

Every process has to call the reducer in every step; a process whose batch is empty calls it with an empty tensor.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from .selection import NOT_FINITE, Cut, Selector, almost, count_dtype, weigh

DIGIT = 11


def resolve_group(group: Any) -> Any:
    """Turn ``"world"`` into the default process group; anything else is a group already."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "selection over processes needs torch.distributed: call torch.distributed.init_process_group first, "
            "or leave group=None to select within this process"
        )
    return dist.group.WORLD if group == "world" else group


def ordered_bits(keys: Tensor) -> Tensor:
    """Integers that sort like the floats; float32 gives int32, float64 int64.

    Examples
    --------
    >>> ordered_bits(torch.tensor([-2.0, -0.0, 0.0, 1.0])).tolist()
    [-1073741825, 0, 0, 1065353216]
    """
    keys = keys + 0.0  # -0.0 and 0.0 are one key
    dtype = torch.int32 if keys.dtype == torch.float32 else torch.int64
    bits = keys.view(dtype)
    return torch.where(bits < 0, bits ^ torch.iinfo(dtype).max, bits)


@dataclass(frozen=True)
class GroupSelector(Selector):
    """A selector whose keys are one row spread over the processes of a group.

    Parameters
    ----------
    mass : tensor (1, samples) or None
        The sample weights of this process's keys.
    group : process group
    """

    group: Any = None

    def total(self, losses: Tensor) -> float:
        """The mass of the joined batch; bad values anywhere raise here on every process: none is left waiting."""
        mass = torch.ones_like(losses) if self.mass is None else self.mass
        flags = (~torch.isfinite(losses)).sum(), (~torch.isfinite(mass)).sum(), (mass < 0).sum()
        dtype = count_dtype(losses.device)
        facts = torch.stack([mass.nan_to_num().sum(dtype=dtype), *flags]).to(dtype)
        dist.all_reduce(facts, group=self.group)
        total, infinite_losses, infinite, negative = facts.tolist()
        problems = {
            NOT_FINITE: infinite_losses,
            "sample weights contain NaN or infinite values": infinite,
            "sample weights contain negative values; weights are masses and must be >= 0": negative,
            "there are no losses with a positive weight on any process": total == 0,
        }
        for message, found in problems.items():
            if found:
                raise ValueError(message)
        return total

    def take(self, keys: Tensor, wanted: Tensor) -> Tensor:
        """Weights (1, samples) of this process's keys among the smallest of the joined row; ties share."""
        return weigh(keys, self.mass, self.cut(keys, wanted), wanted)

    def everything(self, keys: Tensor) -> Tensor:
        """All of the mass; :meth:`total` has looked at the values already, so there is nothing to ask the others."""
        return torch.ones_like(keys) if self.mass is None else self.mass

    def cut(self, keys: Tensor, wanted: Tensor) -> Cut:
        """The cut of the joined row at the mass wanted (1, 1), the same on every process."""
        bits, target = ordered_bits(keys[0]), wanted[0, 0]
        mass = torch.ones_like(target).expand(bits.shape) if self.mass is None else self.mass[0].to(wanted.dtype)
        inside, tied, found = torch.zeros_like(target), torch.zeros_like(target), 0
        width = left = torch.iinfo(bits.dtype).bits
        while left:
            first, size = left == width, min(DIGIT, left)
            left -= size
            digits = (bits >> left).to(torch.int64) & (2**size - 1)
            if first:
                digits = digits ^ 2 ** (size - 1)  # the sign bit: negative numbers come first
            counts = torch.zeros(2**size + 1, dtype=wanted.dtype, device=keys.device).index_add_(0, digits, mass)
            counts[-1] = len(bits)
            dist.all_reduce(counts, group=self.group)
            counts, samples = counts[:-1], counts[-1]
            target = target * almost(samples, wanted.dtype) if first else target
            cumulative = inside + counts.cumsum(0)
            # Past the end (all is wanted, or rounding) the last digit that has mass, as in one process.
            digit = min(int((cumulative < target).sum()), int((cumulative < cumulative[-1]).sum()))
            inside, tied = cumulative[digit - 1] if digit else inside, counts[digit]
            found = (found << size) | digit
            bits, mass = bits[digits == digit], mass[digits == digit]
            if width - left == 2 * DIGIT < left:  # float64: after two digits mostly one key is left
                low, high = self._ends(bits)
                if low >= high:
                    found, left = high + 2 ** (width - 1), 0
        return Cut(_key_of(found - 2 ** (width - 1), bits.dtype, keys), inside.reshape(1, 1), tied.reshape(1, 1))

    def _ends(self, bits: Tensor) -> tuple[int, int]:
        # The smallest and the largest of the processes' integers.
        limit = torch.iinfo(bits.dtype).max
        ends = [-int(bits.min()), int(bits.max())] if len(bits) else [-limit, -limit]
        both = torch.tensor(ends, dtype=torch.int64, device=bits.device)
        dist.all_reduce(both, op=dist.ReduceOp.MAX, group=self.group)
        return -int(both[0]), int(both[1])


def _key_of(ordered: int, dtype: torch.dtype, like: Tensor) -> Tensor:
    # The float (1, 1) that ordered_bits turned into this integer.
    bits = ordered ^ torch.iinfo(dtype).max if ordered < 0 else ordered
    return torch.tensor([[bits]], dtype=dtype, device=like.device).view(like.dtype)


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
    """The sum of all processes' parts, with W times this part's gradient (see the module's note on gradients)."""
    return _Join.apply(part, group)

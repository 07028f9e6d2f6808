"""Selection: keys -> the weights of the smallest ones, exactly as the NumPy core does it.

A selection is a *cut*: the key at the k-th place, the mass before it and the mass tied with it. The cut is one custom
operator, so ``torch.compile`` and ``vmap`` have the fast path of eager code and its check for NaN. Other ways to find
the cut (over processes, over a memory) give the same three numbers and reuse everything below.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from closecall._names import Array

LONG = 4096  # beyond this many keys, halving beats sorting
NOT_FINITE = "the losses contain NaN or infinite values; check the scores that produced them"


class Cut(NamedTuple):
    """Where the smallest keys end; each a tensor (rows, 1)."""

    edge: Tensor  # the key at the k-th place
    inside: Tensor  # the mass of the keys below it
    tied: Tensor  # the mass of the keys equal to it


def almost(samples: int | Tensor, dtype: torch.dtype) -> float | Tensor:
    """The factor by which a sum of so many masses may fall short of k by rounding alone, as in the core."""
    return 1 - 4 * samples * torch.finfo(dtype).eps


def count_dtype(device: torch.device) -> torch.dtype:
    """The dtype in which masses are counted: float64 wherever the device has it, for float32 stops at 2**24."""
    return torch.float32 if device.type == "mps" else torch.float64


@torch.library.custom_op("closecall::cut", mutates_args=())  # type: ignore[untyped-decorator]
def _cut(keys: Tensor, mass: Tensor | None, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # keys (rows, samples), mass (rows, samples) or None, wanted (rows, 1). Here values are real even under compile
    # and vmap, so this is where they are checked. A sum is finite only if every key is; overflow asks a second time.
    if not torch.isfinite(keys.sum()) and not torch.isfinite(keys).all():
        raise ValueError(NOT_FINITE)
    if mass is not None:
        check_mass(mass)
    if keys.device.type == "cpu":
        rows = cut_numpy(keys.numpy(), None if mass is None else mass.numpy(), wanted.numpy())
        return tuple(torch.from_numpy(row) for row in rows)
    return cut_sorted(keys, mass, wanted)


@_cut.register_fake  # type: ignore[untyped-decorator]
def _(keys: Tensor, mass: Tensor | None, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return keys.new_empty(wanted.shape), torch.empty_like(wanted), torch.empty_like(wanted)


@_cut.register_vmap  # type: ignore[untyped-decorator]
def _(info: Any, in_dims: Any, keys: Tensor, mass: Tensor | None, wanted: Tensor) -> tuple[Any, Any]:
    def rows(tensor: Tensor, dim: int | None) -> Tensor:
        front = tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        return front.reshape(-1, front.shape[-1])

    flat = _cut(rows(keys, in_dims[0]), None if mass is None else rows(mass, in_dims[1]), rows(wanted, in_dims[2]))
    return tuple(each.reshape(info.batch_size, -1, 1) for each in flat), (0, 0, 0)


def require(valid: Tensor, message: str) -> None:
    """Raise ``ValueError(message)`` unless valid; a value that cannot be read (compile, vmap) is not looked at."""
    if torch.compiler.is_compiling():
        return
    try:
        good = bool(valid)
    except RuntimeError:  # vmap does not let a value out
        return
    if not good:
        raise ValueError(message)


def check_mass(mass: Tensor) -> None:
    """Raise ``ValueError`` if masses are negative, NaN or infinite, or if a row has none above zero."""
    require(torch.isfinite(mass).all(), "sample weights contain NaN or infinite values")
    require((mass >= 0).all(), "sample weights contain negative values; weights are masses and must be >= 0")
    require((mass > 0).any(dim=-1).all(), "sample weights are zero everywhere; at least one must be positive")


def cut_numpy(
    keys: Array, mass: Array | None, wanted: Array, copies: Array | None = None
) -> tuple[Array, Array, Array]:
    """The cut on the CPU, where np.partition is several times faster than torch's sort, topk and kthvalue.

    Parameters
    ----------
    keys : array (rows, samples)
    mass : array (rows, samples) or None
    wanted : array (rows, 1)
    copies : array of int, optional
        For small whole masses: each sample's number as often as its mass says. Then weights need no sorting either.

    Returns
    -------
    edge, inside, tied : array (rows, 1)
    """
    if mass is not None and copies is None:
        edge = _weighted_edge(keys, mass, wanted)
    else:
        edge = _edge(keys if copies is None else keys[:, copies], wanted)
    parts = keys < edge, keys == edge
    if mass is None:
        sums = (np.count_nonzero(part, axis=1) for part in parts)
    else:
        sums = (np.einsum("ij,ij->i", mass, part, dtype=wanted.dtype) for part in parts)
    inside, tied = (each.astype(wanted.dtype)[:, None] for each in sums)
    return edge, inside, tied


def _edge(keys: Array, wanted: Array) -> Array:
    place = np.clip(np.ceil(wanted[:, 0]) - 1, 0, keys.shape[1] - 1).astype(np.intp)
    edge = np.empty((len(keys), 1), dtype=keys.dtype)
    for where in set(place.tolist()):  # rows of a grid share few different k
        chosen = place == where
        some = keys if chosen.all() else keys[chosen]
        edge[chosen, 0] = np.partition(some, where, axis=1)[:, where]
    return edge


def _weighted_edge(keys: Array, mass: Array, wanted: Array) -> Array:
    if keys.shape[1] <= LONG:
        return _edge_by_sorting(keys, mass, wanted)
    return np.array([[_edge_by_halving(*row)] for row in zip(keys, mass, wanted[:, 0], strict=True)])


def _edge_by_sorting(keys: Array, mass: Array, wanted: Array) -> Array:
    order = np.argsort(keys, axis=1)
    cumulative = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1, dtype=wanted.dtype)
    # Past the end (rounding, or more wanted than there is) the k-th place is the last key that has mass.
    reach = np.minimum(wanted, cumulative[:, -1:])
    place = (cumulative < reach).sum(axis=1, keepdims=True)
    return np.take_along_axis(keys, np.take_along_axis(order, place, axis=1), axis=1)


def _edge_by_halving(keys: Array, mass: Array, target: float) -> Any:
    # One long row: keep the half around the median in which the target lies, until sorting is cheap.
    if target >= mass.sum(dtype=float):
        return keys[mass > 0].max()
    while keys.size > LONG:
        middle = np.partition(keys, keys.size // 2)[keys.size // 2]
        low, tied = keys < middle, keys == middle
        below, until = (mass * low).sum(dtype=float), (mass * (low | tied)).sum(dtype=float)
        if target <= below and low.any():
            keys, mass = np.compress(low, keys), np.compress(low, mass)  # twice as fast as indexing with a mask
        elif target <= until:
            return middle
        else:
            high = keys > middle
            keys, mass, target = np.compress(high, keys), np.compress(high, mass), target - until
    return _edge_by_sorting(keys[None], mass[None], np.array([[target]]))[0, 0]


def cut_sorted(keys: Tensor, mass: Tensor | None, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same as :func:`cut_numpy` in torch, for accelerators, where sorting is fast and a copy to the host is not."""
    mass = torch.ones_like(keys) if mass is None else mass
    ordered, order = keys.sort(dim=1)
    cumulative = mass.gather(1, order).cumsum(dim=1, dtype=wanted.dtype)
    place = torch.minimum((cumulative < wanted).sum(1), (cumulative < cumulative[:, -1:]).sum(1))[:, None]
    edge = ordered.gather(1, place)
    inside = (mass * (keys < edge)).sum(dim=1, keepdim=True, dtype=wanted.dtype)
    return edge, inside, (mass * (keys == edge)).sum(dim=1, keepdim=True, dtype=wanted.dtype)


@dataclass(frozen=True)
class Selector:
    """Takes the smallest keys of each row, by mass.

    Parameters
    ----------
    mass : tensor (rows, samples) or None
        Sample weights; one each if None.
    copies : array of int, optional
        For small whole masses that are the same in all rows, see :func:`cut_numpy`.

    Examples
    --------
    >>> keys = torch.tensor([[3.0, 1.0, 1.0, 0.0]])
    >>> Selector(None).take(keys, torch.tensor([[2.0]], dtype=torch.float64)).tolist()
    [[0.0, 0.5, 0.5, 1.0]]
    """

    mass: Tensor | None
    copies: Array | None = None

    def total(self, keys: Tensor) -> float | Tensor:
        """The mass of a row, as a number where it can be read (not under compile or vmap)."""
        if self.mass is None:
            return keys.shape[-1]
        total = self.mass.sum(dim=-1, dtype=count_dtype(keys.device))
        if torch.compiler.is_compiling():
            return total
        try:
            number = float(total)
        except RuntimeError:  # vmap does not let a value out
            return total
        check_mass(self.mass)
        return number

    def cut(self, keys: Tensor, wanted: Tensor) -> Cut:
        """The cut of each row of keys (rows, samples) at the mass wanted (rows, 1)."""
        return Cut(*_cut(keys, self.mass, wanted * almost(keys.shape[1], wanted.dtype)))

    def everything(self, keys: Tensor) -> Tensor:
        """All of the mass (rows, samples), bit for bit, after the same checks as any other selection."""
        return self.take(keys, torch.full((len(keys), 1), math.inf, dtype=count_dtype(keys.device), device=keys.device))

    def take(self, keys: Tensor, wanted: Tensor) -> Tensor:
        """Weights (rows, samples) of the smallest keys, summing to ``wanted`` (rows, 1); ties share."""
        arrays = _arrays(keys, self.mass, wanted)
        if arrays is None:
            return weigh(keys, self.mass, self.cut(keys, wanted), wanted)
        return torch.from_numpy(_take_numpy(*arrays, self.copies))


def _arrays(keys: Tensor, mass: Tensor | None, wanted: Tensor) -> tuple[Array, Array | None, Array] | None:
    # The tensors as arrays, where that is possible without a copy: eager code on the CPU.
    if torch.compiler.is_compiling() or keys.device.type != "cpu":
        return None
    try:
        return keys.numpy(), None if mass is None else mass.numpy(), wanted.numpy()
    except RuntimeError:  # vmap and torch.func.grad do not let a value out
        return None


def _take_numpy(keys: Array, mass: Array | None, wanted: Array, copies: Array | None) -> Array:
    # What cut and weigh do, in a third of the calls: at usual batch sizes it is calls that cost.
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(keys.sum())
    if not finite and not np.isfinite(keys).all():
        raise ValueError(NOT_FINITE)
    reach = wanted * almost(keys.shape[1], torch.float64)
    edge, inside, tied = cut_numpy(keys, mass, reach, copies)
    share = np.clip((wanted - inside) / np.where(tied > 0, tied, 1), 0, 1)
    weights = (keys < edge).astype(keys.dtype)
    np.copyto(weights, share.astype(keys.dtype), where=keys == edge)
    return weights if mass is None else weights * mass


def weigh(keys: Tensor, mass: Tensor | None, cut: Cut, wanted: Tensor) -> Tensor:
    """Weights (rows, samples): the mass before the cut, what remains shared among the tied, nothing after."""
    tied = torch.where(cut.tied > 0, cut.tied, torch.ones_like(cut.tied))
    share = ((wanted - cut.inside) / tied).clamp(0, 1).to(keys.dtype)
    weights = torch.where(keys < cut.edge, 1.0, torch.where(keys == cut.edge, share, 0.0)).to(keys.dtype)
    return weights if mass is None else weights * mass

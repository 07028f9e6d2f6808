"""Selection of the smallest keys, with the same weights as in the NumPy core.

A selection is a *cut*: the k-th smallest key, the mass below it and the mass tied with it. The cut is a single
operator, so on the CPU it uses NumPy's partition and checks for NaN even under ``torch.compile`` and ``vmap``.
``np.partition`` is many times faster than torch's sort, topk and kthvalue. At the usual batch sizes, the number of
calls dominates the cost, and a NumPy call is cheaper than a torch call. Across several processes, only the cut is
computed differently. On an accelerator, the code never reads the values of a tensor, so nothing waits for the device.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from closecall._names import Array

NOT_FINITE = (
    "the losses contain NaN or infinite values; check the scores that produced them, or choose nonfinite='propagate' "
    "(for GradScaler) or nonfinite='drop'"
)
BAD_MASS = "sample weights contain NaN or infinite values"
NEGATIVE_MASS = "sample weights contain negative values; weights are masses and must be >= 0"


class Cut(NamedTuple):
    """The cut above the smallest keys; each tensor has shape (rows, 1)."""

    edge: Tensor  # the k-th smallest key
    inside: Tensor  # the mass of the keys below it
    tied: Tensor  # the mass of the keys equal to it


def count_dtype(device: torch.device) -> torch.dtype:
    """Return the dtype for sums of masses: float64 if the device supports it, as float32 counts only up to 2**24."""
    return torch.float32 if device.type == "mps" else torch.float64


def _cut(keys: Tensor, mass: Tensor | None, wanted: Tensor, refuse: str) -> tuple[Tensor, Tensor, Tensor]:
    # Keys and masses have shape (rows, samples), and wanted has shape (rows, 1). On the CPU, this function sees actual
    # values even under torch.compile and vmap, so it checks them.
    if keys.device.type != "cpu":
        return cut_sorted(keys, mass, wanted)
    refuse_keys(keys.numpy(), refuse)
    if mass is not None:
        check_mass(mass)
    if not keys.shape[1]:
        return keys.new_zeros(wanted.shape), torch.zeros_like(wanted), torch.zeros_like(wanted)
    rows = cut_rows(keys.numpy(), None if mass is None else mass.numpy(), wanted.numpy())
    return tuple(torch.from_numpy(row) for row in rows)


def _fake_cut(keys: Tensor, mass: Tensor | None, wanted: Tensor, refuse: str) -> tuple[Tensor, Tensor, Tensor]:
    return keys.new_empty(wanted.shape), torch.empty_like(wanted), torch.empty_like(wanted)


def _vmap_cut(
    info: Any, in_dims: Any, keys: Tensor, mass: Tensor | None, wanted: Tensor, refuse: str
) -> tuple[Any, Any]:
    def rows(tensor: Tensor, dim: int | None) -> Tensor:
        front = tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
        return front.reshape(-1, front.shape[-1])

    masses = None if mass is None else rows(mass, in_dims[1])
    flat = torch.ops.closecall.cut(rows(keys, in_dims[0]), masses, rows(wanted, in_dims[2]), refuse)
    return tuple(each.reshape(info.batch_size, -1, 1) for each in flat), (0, 0, 0)


# Registered by hand: torch.library.custom_op would import the compiler at its first call, which takes over a second.
_LIBRARY = torch.library.Library("closecall", "DEF")
_LIBRARY.define("cut(Tensor keys, Tensor? mass, Tensor wanted, str refuse) -> (Tensor, Tensor, Tensor)")
_LIBRARY.impl("cut", _cut, "CompositeExplicitAutograd")
torch.library.register_fake("closecall::cut", _fake_cut, lib=_LIBRARY)
torch.library.register_vmap("closecall::cut", _vmap_cut, lib=_LIBRARY)


def require(valid: Tensor, message: str) -> None:
    """Raise ``ValueError(message)`` unless ``valid``; on accelerators and in traced code, nothing is checked."""
    if valid.device.type != "cpu" or torch.compiler.is_compiling():
        return
    try:
        good = bool(valid)
    except RuntimeError:  # values cannot be read under vmap
        return
    if not good:
        raise ValueError(message)


def check_mass(mass: Tensor) -> None:
    """Raise ``ValueError`` if masses are negative, NaN or infinite."""
    require(torch.isfinite(mass).all(), BAD_MASS)
    require((mass >= 0).all(), NEGATIVE_MASS)


def refuse_keys(keys: Array, refuse: str) -> None:
    """Raise ``ValueError`` for NaN (``"nan"``) or any non-finite key (``"nonfinite"``); with ``""``, check nothing."""
    if not refuse:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        finite = np.isfinite(keys.sum())  # a finite sum has finite terms; after an overflow each key is checked
    if not finite and (np.isnan(keys).any() if refuse == "nan" else not np.isfinite(keys).all()):
        raise ValueError(NOT_FINITE)


def cut_sorted(keys: Tensor, mass: Tensor | None, wanted: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Compute :func:`cut_rows` on accelerators, which sort quickly but copy slowly."""
    mass = torch.ones_like(keys) if mass is None else mass
    ordered, order = keys.sort(dim=1)
    cumulative = mass.gather(1, order).cumsum(dim=1, dtype=wanted.dtype)
    place = torch.minimum((cumulative < wanted).sum(1), (cumulative < cumulative[:, -1:]).sum(1))[:, None]
    edge = ordered.gather(1, place)
    inside = (mass * (keys < edge)).sum(dim=1, keepdim=True, dtype=wanted.dtype)
    return edge, inside, (mass * (keys == edge)).sum(dim=1, keepdim=True, dtype=wanted.dtype)


class Taken(NamedTuple):
    """The selection of the smallest keys in one row."""

    weights: Array  # (samples,), in the dtype of the keys
    mass: float  # the sum of the weights
    edge: float  # the largest selected key; NaN if nothing is selected


def almost(samples: Any, epsilon: float = 2.0**-52) -> Any:
    """Return the fraction of k that a sum of this many masses must reach; it allows for rounding, as in the core."""
    return 1 - 4 * samples * epsilon


def take_row(keys: Array, wanted: float, mass: Array | None, total: float) -> Taken:
    """Select the smallest keys (samples,) with a combined mass of ``wanted``; tied keys share the remainder."""
    if wanted >= total * almost(keys.size):
        whole = np.ones_like(keys) if mass is None else mass.astype(keys.dtype)
        real = keys if mass is None else keys[mass > 0]
        return Taken(whole, total, float(real.max()) if real.size else np.nan)
    if wanted <= 0:
        return Taken(np.zeros_like(keys), 0.0, np.nan)
    if mass is None:
        place = max(int(np.ceil(wanted * almost(keys.size))) - 1, 0)
        edge = np.partition(keys, place)[place]
    else:
        edge = _weighted_edges(keys[None], mass[None], np.array([[wanted * almost(keys.size)]]))[0, 0]
    weights = (keys < edge).astype(keys.dtype) if mass is None else (mass * (keys < edge)).astype(keys.dtype)
    tied = keys == edge
    theirs = 1.0 if mass is None else mass[tied]
    left = wanted - float(weights.sum(dtype=float))
    share = float(np.count_nonzero(tied) if mass is None else mass[tied].sum(dtype=float))
    weights[tied] = theirs * min(max(left / share, 0.0), 1.0) if share > 0 else 0.0
    return Taken(weights, wanted, float(edge))


def cut_rows(keys: Array, mass: Array | None, wanted: Array) -> tuple[Array, Array, Array]:
    """Return the cut of each row of keys (rows, samples) at the mass ``wanted`` (rows, 1), as arrays (rows, 1).

    A cut consists of the k-th smallest key, the mass below it and the mass tied with it.
    """
    edge = _edges(keys, wanted) if mass is None else _weighted_edges(keys, mass, wanted)
    parts = keys < edge, keys == edge
    if mass is None:
        sums = (np.count_nonzero(part, axis=1) for part in parts)
    else:
        sums = (np.einsum("ij,ij->i", mass, part, dtype=wanted.dtype) for part in parts)
    inside, tied = (each.astype(wanted.dtype)[:, None] for each in sums)
    return edge, inside, tied


def _edges(keys: Array, wanted: Array) -> Array:
    place = np.clip(np.ceil(wanted[:, 0]) - 1, 0, keys.shape[1] - 1).astype(np.intp)
    edge = np.empty((len(keys), 1), dtype=keys.dtype)
    for where in set(place.tolist()):  # the rows of a grid have few distinct values of k
        chosen = place == where
        some = keys if chosen.all() else keys[chosen]
        edge[chosen, 0] = np.partition(some, where, axis=1)[:, where]
    return edge


def _weighted_edges(keys: Array, mass: Array, wanted: Array) -> Array:
    order = np.argsort(keys, axis=1)
    cumulative = np.cumsum(np.take_along_axis(mass, order, axis=1), axis=1, dtype=wanted.dtype)
    # Beyond the end (through rounding, or if more than the total is wanted), the cut is at the last key with mass.
    reach = np.minimum(wanted, cumulative[:, -1:])
    place = (cumulative < reach).sum(axis=1, keepdims=True)
    return np.take_along_axis(keys, np.take_along_axis(order, place, axis=1), axis=1)


@dataclass(frozen=True)
class Selector:
    """A selector of the smallest keys in each row, with masses (rows, samples); None means that each mass is 1.

    ``refuse`` states which keys raise an error: ``"nonfinite"``, ``"nan"`` or none (``""``). NaN is never selected.
    """

    mass: Tensor | None
    refuse: str = "nonfinite"

    def totals(self, rows: Tensor) -> Tensor:
        """Return the mass (rows, 1) of each row."""
        dtype = count_dtype(rows.device)
        if self.mass is None:
            return torch.full((rows.shape[0], 1), float(rows.shape[1]), dtype=dtype, device=rows.device)
        return self.sums(self.mass)

    def sums(self, values: Tensor) -> Tensor:
        """Return the sums (rows, 1) of values (rows, samples), in the dtype used for counts."""
        return values.sum(dim=1, keepdim=True, dtype=count_dtype(values.device))

    def highest(self, values: Tensor) -> Tensor:
        """Return the largest value (rows, 1) of each row."""
        if not values.shape[1]:
            return values.new_full((values.shape[0], 1), -math.inf)
        return values.amax(dim=1, keepdim=True)

    def cut(self, keys: Tensor, wanted: Tensor) -> Cut:
        """Return the cut of each row of keys (rows, samples) at the mass ``wanted`` (rows, 1)."""
        reach = wanted * almost(keys.shape[1], torch.finfo(wanted.dtype).eps)
        return Cut(*torch.ops.closecall.cut(keys, self.mass, reach, self.refuse))

    def everything(self, keys: Tensor) -> Tensor:
        """Return all masses (rows, samples) unchanged, after the same checks as in any other selection."""
        return self.take(keys, torch.full((len(keys), 1), math.inf, dtype=count_dtype(keys.device), device=keys.device))

    def take(self, keys: Tensor, wanted: Tensor) -> Tensor:
        """Return weights (rows, samples) that select the smallest keys and sum to ``wanted`` (rows, 1)."""
        return weigh(keys, self.mass, self.cut(keys, wanted), wanted)


def weigh(keys: Tensor, mass: Tensor | None, cut: Cut, wanted: Tensor) -> Tensor:
    """Return weights (rows, samples): all mass below the cut, the remainder shared among ties, and nothing above."""
    tied = torch.where(cut.tied > 0, cut.tied, torch.ones_like(cut.tied))
    share = ((wanted - cut.inside) / tied).clamp(0, 1).to(keys.dtype)
    weights = torch.where(keys < cut.edge, 1.0, torch.where(keys == cut.edge, share, 0.0)).to(keys.dtype)
    return weights if mass is None else weights * mass

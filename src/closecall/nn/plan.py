"""Plan: the settings of a reduction as one object, with the checks and layouts that all implementations share."""

from __future__ import annotations

import math
from functools import lru_cache
from numbers import Integral
from typing import Any, NamedTuple

import torch
from torch import Tensor

from closecall._names import lookup
from closecall.aggregates import AGGREGATES, Count, get_aggregate, resolve_count
from closecall.schedules import between

from .soft import SOFT

UNKNOWN_THRESHOLD = (
    "which losses are close calls depends on T, the loss on the decision boundary, which cannot be inferred: "
    "pass threshold=math.log(2) for the logistic loss, BCE with logits or two-class cross-entropy, threshold=1.0 for "
    "the hinge loss, closeness= for anything else (more classes, weighted or smoothed losses), or logits to CloseKLoss"
)
#: Reducers whose weights are not those of a core aggregate.
OWN_WEIGHTS = ("tilted", "hard_negatives")
ZERO_MASS = "sample weights are zero everywhere; at least one must be positive (mask= may exclude all examples)"


class Plan(NamedTuple):
    """The settings of a reduction, as explained in :func:`closecall.nn.functional.aggregate`."""

    name: str
    k: Count = None
    m: Count = None
    threshold: float | None = None
    min_loss: float | None = None
    min_kept: Count = 1
    temperature: float | None = None
    dim: int | tuple[int, ...] | None = None
    nonfinite: str = "raise"
    reduction: str = "mean"
    group: Any = None
    remaining: Tensor | None = None  # the fraction of the way from the starts to k, or to k and m: (2,) or (2, 2)
    starts: tuple[Count, Count] = (None, 0)

    def check(self) -> None:
        """Raise ``ValueError`` or ``TypeError`` for settings that no batch could satisfy."""
        check = _check if torch.compiler.is_compiling() else _check_once
        check(self.name, self.k, self.m, self.min_loss, self.min_kept, self.temperature, self.nonfinite)
        if self.reduction not in ("mean", "sum", "none"):
            raise ValueError(f"reduction={self.reduction!r} is not known; choose one of: mean, sum, none")

    def counts(self, total: float) -> tuple[float, float]:
        """Return k and m as masses, at the current step of their schedules, for a given total mass."""
        takes = () if self.name in OWN_WEIGHTS else get_aggregate(self.name).takes
        k = limited(self.k, total, 1) if "k" in takes else float(total)
        m = limited(0 if self.m is None else self.m, total, 0) if "m" in takes else 0.0
        if self.remaining is not None:
            parts = self.remaining.reshape(-1, 2).tolist()
            k = between(limited(self.starts[0], total, 1), k, *parts[0])
            if len(parts) > 1:
                m = between(limited(self.starts[1], total, 0), m, *parts[1])
        return k, m

    @property
    def is_close(self) -> bool:
        """Whether the aggregate ranks examples by closeness."""
        known = AGGREGATES.get(self.name)  # None for members of families, whose creation a compiler cannot trace
        return known is not None and known.close

    @property
    def takes_smallest(self) -> bool:
        """Whether the aggregate selects the smallest values of closeness or of the losses (all but the m largest)."""
        known = AGGREGATES.get(self.name)
        return known is not None and (known.close or known.takes == ("m",))


def _check(
    name: str, k: Count, m: Count, min_loss: float | None, min_kept: Count, temperature: float | None, nonfinite: str
) -> None:
    if name not in OWN_WEIGHTS:
        known = get_aggregate(name)
        if "k" in known.takes:
            resolve_count(k, math.inf)
        # Checked for a batch large enough for any count; a count combined with a fraction may suit only some batches.
        mixed = "m" in known.takes and isinstance(k, Integral) != isinstance(0 if m is None else m, Integral)
        known.counts(None if mixed else k, m, 2**60)
    lookup(dict.fromkeys(("raise", "propagate", "drop")), nonfinite, "nonfinite")
    resolve_count(min_kept, math.inf, name="min_kept", low=0)
    largest = name in AGGREGATES and AGGREGATES[name].convex and "k" in AGGREGATES[name].takes
    if min_loss is not None and not (largest and math.isfinite(min_loss)):
        raise ValueError(f"min_loss={min_loss!r} must be a number and applies only to the k largest losses (atk)")
    if temperature is not None and name not in SOFT:
        raise ValueError(f"{name!r} has no smooth form; only atk, close, ranked_range and trimmed take a temperature")
    if temperature is not None and not 0 < temperature < math.inf:
        raise ValueError(f"temperature={temperature!r} must be a positive number")


_check_once = lru_cache(maxsize=256)(_check)  # saves a few microseconds per step


@lru_cache(maxsize=256, typed=True)  # saves a few microseconds per step
def limited(count: Count, total: float, low: int) -> float:
    """Convert a count to a mass no larger than the total: a batch smaller than k is used in full."""
    if count is None or isinstance(count, float):
        return resolve_count(count, total, low=low)
    return min(resolve_count(count, math.inf, low=low), float(total))


class Batch(NamedTuple):
    """Losses with a gradient, and other tensors of the same shape, such as masses."""

    losses: Tensor
    mass: Tensor | None = None
    closeness: Tensor | None = None
    mask: Tensor | None = None
    divisor: Tensor | None = None  # the contribution of each loss to the mean's divisor; 1 each if None
    positives: Tensor | None = None  # the examples that HardNegatives always keeps


def check_batch(batch: Batch, *, allow_empty: bool = False) -> Batch:
    """Check a batch of losses, and return it with the losses in float32 or float64."""
    losses = batch.losses
    if not isinstance(losses, Tensor):
        raise TypeError(f"losses must be a tensor, not {type(losses).__name__}")
    if not losses.is_floating_point():
        raise TypeError(
            f"losses must be floating point, not {losses.dtype}; per-example losses come from reduction='none'"
        )
    if losses.ndim == 0:
        raise ValueError(
            "the loss is a single number, so there is nothing to select from: compute one loss per example, with "
            "reduction='none' in torch's losses (a batch of one has shape (1,))"
        )
    if losses.numel() == 0 and not allow_empty:
        raise ValueError(f"there are no losses to aggregate: the batch has shape {tuple(losses.shape)}")
    for name, values in batch._asdict().items():
        if values is not None and values.shape != losses.shape:
            shapes = f"got shape {tuple(values.shape)} for losses of shape {tuple(losses.shape)}"
            raise ValueError(f"{name} needs one value for each loss: {shapes}")
    if batch.positives is not None and batch.positives.dtype != torch.bool:
        raise ValueError(f"positives must be boolean, not {batch.positives.dtype}")
    if batch.mask is not None and batch.mask.dtype != torch.bool:
        raise TypeError(
            f"mask must be boolean (True for examples that count), not {batch.mask.dtype}; pass sample weights as mass="
        )
    return batch if losses.dtype in (torch.float32, torch.float64) else batch._replace(losses=losses.float())


class Layout(NamedTuple):
    """The arrangement of losses of a given shape in rows (rows, samples), with one row for each selection."""

    kept: tuple[int, ...]  # dimensions that index the rows
    ranked: tuple[int, ...]  # dimensions along which examples are ranked
    rows: int
    samples: int
    shape: tuple[int, ...]

    def to_rows(self, values: Any) -> Any:
        """Rearrange a tensor or an array from the shape of the losses to (rows, samples)."""
        if self.kept:
            order = (*self.kept, *self.ranked)
            values = values.permute(order) if isinstance(values, Tensor) else values.transpose(order)
        return values.reshape(self.rows, self.samples)

    def from_rows(self, values: Any) -> Any:
        """Rearrange a tensor or an array from (rows, samples) to the shape of the losses."""
        if not self.kept:
            return values.reshape(self.shape)
        order = (*self.kept, *self.ranked)
        values = values.reshape([self.shape[each] for each in order])
        back = sorted(range(len(order)), key=order.__getitem__)
        return values.permute(back) if isinstance(values, Tensor) else values.transpose(back)


def layout_of(shape: Any, dim: int | tuple[int, ...] | None) -> Layout:
    """Return the layout of losses for a selection along ``dim``, or over all dimensions."""
    shape = tuple(shape)
    if dim is None:
        return Layout((), tuple(range(len(shape))), 1, math.prod(shape), shape)
    given = (dim,) if isinstance(dim, int) else tuple(dim)
    if not given or any(not -len(shape) <= each < len(shape) for each in given):
        raise ValueError(f"dim={dim!r} does not fit losses of shape {shape}")
    ranked = tuple(sorted({each % len(shape) for each in given}))
    kept = tuple(each for each in range(len(shape)) if each not in ranked)
    return Layout(kept, ranked, math.prod([shape[i] for i in kept]), math.prod([shape[i] for i in ranked]), shape)


class Outcome(NamedTuple):
    """The result of a reduction."""

    value: Tensor
    taken: Any  # the total weight: a number, or a tensor that was not read
    edge: Any  # the loss (for close-k the closeness) at which the selection of each row ends

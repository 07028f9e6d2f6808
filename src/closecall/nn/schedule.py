"""Schedules that change the counts k and m during a run, as torch's schedulers change the learning rate.

A schedule determines what fraction of the way from a count's initial value to its final value *remains*. The reducer
stores this fraction as a tensor, so a compiled step need not be recompiled when the count changes. The reducer also
stores the position in its ``state_dict``, so a checkpoint of the model is enough to resume a run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from closecall._names import lookup
from closecall.aggregates import Count


def decayed(end: Tensor, start: Tensor, remaining: Tensor) -> Tensor:
    """Compute :func:`closecall.schedules.between` with tensors, for counts (rows, 1) and two integers (2,)."""
    over, under = remaining.to(end.device)
    gap = start - end
    product = gap.round().to(torch.int64) * over
    quotient = torch.div(product, under, rounding_mode="floor")
    twice_rest = 2 * (product - quotient * under)
    up = (twice_rest > under) | ((twice_rest == under) & (quotient % 2 == 1))  # rounds halves to even
    whole = (start == start.floor()) & (end == end.floor())
    way = torch.where(whole, end + quotient + up, end + gap * over / under)
    return torch.where(over == under, start, torch.where(over == 0, end, way))


#: Completed fraction of the way -> remaining fraction.
SHAPES: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1 - done,
    "cosine": lambda done: (1 + math.cos(math.pi * done)) / 2,
}


class CountSchedule:
    """A schedule that moves a reducer's k or m from an initial value to the reducer's own value over a run.

    Call :meth:`step` after each step of the optimiser, or after each epoch. The position is part of the reducer's
    ``state_dict``; ``total_steps`` is not, so a resumed run may be longer or shorter.

    Parameters
    ----------
    reducer : Reducer or AggregateLoss
        The schedule ends at its k or m, which is a count, a fraction or None.
    total_steps : int
        Number of steps in the run. After that, the count keeps its final value.
    count : {"k", "m"}
    shape : {"linear", "cosine", "steps"} or callable
        A callable maps the completed fraction of the way (0 to 1) to the remaining fraction (1 to 0).
    start : int, float or None
        The initial count; None means all examples for k and none for m.
    warmup, until : float
        The fractions of the run at which the count begins to change and at which it reaches its final value.
    milestones : sequence of float, optional
        With ``shape="steps"``: the points in the run, as fractions, at which the count changes in equal steps.

    Examples
    --------
    >>> from closecall.nn import Trimmed
    >>> # A forget rate that rises during the first half of ten epochs.
    >>> schedule = CountSchedule(Trimmed(m=0.2), total_steps=10, count="m", until=0.5)
    >>> schedule.step()
    >>> round(schedule.count_at(100), 6)
    8.0
    """

    def __init__(
        self,
        reducer: Any,
        total_steps: int,
        *,
        count: str = "k",
        shape: str | Callable[[float], float] = "linear",
        start: Count = None,
        warmup: float = 0.0,
        until: float = 1.0,
        milestones: Sequence[float] | None = None,
    ) -> None:
        reducer = getattr(reducer, "reducer", reducer)
        if not isinstance(getattr(reducer, "remaining", None), Tensor) or count not in reducer.takes:
            example = "CloseK(k=0.1)" if count == "k" else "Trimmed(m=0.1)"
            needs = f"{type(self).__name__} needs a reducer that has a {count}"
            raise TypeError(f"{needs}, such as {example}, not {reducer!r}")
        if isinstance(total_steps, bool) or not isinstance(total_steps, int) or total_steps < 1:
            raise ValueError(f"total_steps={total_steps!r} must be a whole number >= 1")
        if not 0 <= warmup <= until <= 1:
            raise ValueError(f"warmup={warmup!r} and until={until!r} must satisfy 0 <= warmup <= until <= 1")
        if (shape == "steps") != (milestones is not None):
            raise ValueError("milestones are required with shape='steps' and not allowed otherwise")
        self.shape = shape if callable(shape) or shape == "steps" else lookup(SHAPES, shape, "shape")
        self.milestones = sorted(milestones) if milestones is not None else []
        self.reducer, self.total_steps, self.count = reducer, total_steps, count
        self.start, self.warmup, self.until = start, warmup, until
        reducer.attach(self)

    @property
    def last_step(self) -> int:
        """The number of completed steps."""
        return int(getattr(self.reducer, f"{self.count}_step"))

    def step(self) -> None:
        """Advance to the next step."""
        self.move_to(self.last_step + 1)

    def move_to(self, step: int) -> None:
        """Move to the position after this many steps, and update the reducer's count."""
        getattr(self.reducer, f"{self.count}_step").fill_(step)
        over, under = self.remaining()
        row = 0 if self.count == "k" else 1
        self.reducer.remaining[row].copy_(torch.tensor([over, under]))

    def remaining(self) -> tuple[int, int]:
        """Return the fraction that remains at the next step, as a numerator and a denominator."""
        done = min(self.last_step + 1, self.total_steps) / self.total_steps
        if self.shape == "steps":
            return sum(done <= each for each in self.milestones), max(len(self.milestones), 1)
        assert callable(self.shape)
        if done >= self.until:
            return 0, 1
        if done <= self.warmup:
            return 1, 1
        left = self.shape((done - self.warmup) / (self.until - self.warmup))
        return round(2**30 * min(max(left, 0.0), 1.0)), 2**30

    def count_at(self, total: float) -> float:
        """Return the count at the next step for a batch of ``total`` examples (or total sample weight)."""
        return float(self.reducer.counts(total)[0 if self.count == "k" else 1])

    def state_dict(self) -> dict[str, int]:
        """Return the position and the length of the schedule; the state of the reducer also contains the position."""
        return {"last_step": self.last_step, "total_steps": self.total_steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume from a saved position; the length of the schedule does not change."""
        missing = {"last_step", "total_steps"} - set(state)
        if missing:
            raise ValueError(f"this is not a {type(self).__name__} state: {', '.join(sorted(missing))} missing")
        self.move_to(state["last_step"])


class KDecay(CountSchedule):
    """A schedule that lowers a reducer's k from the whole batch to the reducer's own k, as in the paper's Algorithm 1.

    In the first third of the steps, all examples are selected; in the second, k falls linearly; then k is constant.

    Examples
    --------
    >>> from closecall.nn import CloseK
    >>> schedule = KDecay(CloseK(k=10), total_steps=9)
    >>> for _ in range(4):
    ...     schedule.step()
    >>> schedule.k_at(100)
    40.0
    """

    def __init__(self, reducer: Any, total_steps: int) -> None:
        super().__init__(reducer, total_steps, warmup=1 / 3, until=2 / 3)

    def remaining(self) -> tuple[int, int]:
        """Return the exact fraction of the way from n to k* that remains; in Algorithm 1, (2E - 3i) / E at step i."""
        over = 2 * self.total_steps - 3 * (self.last_step + 1)
        return min(max(over, 0), self.total_steps), self.total_steps

    def k_at(self, total: float) -> float:
        """Return the k at the next step for a batch of ``total`` examples (or total sample weight)."""
        return self.count_at(total)

"""KDecay: the paper's Algorithm 1 as a scheduler, like torch's learning-rate schedulers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from closecall.schedules import decay


def decayed(k: Tensor, n: Tensor, remaining: Tensor) -> Tensor:
    """Algorithm 1's k, given how much of the way from n down to k* remains.

    Equal to :func:`closecall.schedules.decay`, rounding included, but made of tensor operations: a compiled step is
    not compiled again when k changes, and n may be the weight of a batch that is not known before.

    Parameters
    ----------
    k, n : tensor (rows, 1)
        The final k and the total mass, as floats.
    remaining : tensor (2,)
        Numerator and denominator, as integers, of the part of n - k* that is still taken.

    Examples
    --------
    >>> decayed(torch.tensor([[10.0]]), torch.tensor([[100.0]]), torch.tensor([1, 4])).item()
    32.0
    """
    over, under = remaining.to(k.device)
    gap = n - k
    product = gap.round().to(torch.int64) * over
    quotient = product // under
    twice_rest = 2 * (product - quotient * under)
    up = (twice_rest > under) | ((twice_rest == under) & (quotient % 2 == 1))  # halves to even
    whole = (n == n.floor()) & (k == k.floor())
    between = torch.where(whole, k + quotient + up, k + gap * over / under)
    return torch.where(over == under, n, between)


class KDecay:
    """Let a reducer's k fall from the whole batch to its own k as in Algorithm 1.

    For a third of the steps everything is taken, in the second third k falls linearly, then it stays. A step is
    whatever lies between two calls of :meth:`step`: an optimiser step or an epoch. Call it after the optimiser's.

    Parameters
    ----------
    reducer : Reducer or AggregateLoss
        With a k that decays towards the one it was made with: an int (a count in each batch), a fraction or None.
    total_steps : int
        E, how many steps the run has. Later steps keep the final k.

    Examples
    --------
    >>> from closecall.nn import CloseK
    >>> reducer = CloseK(k=10)
    >>> schedule = KDecay(reducer, total_steps=9)
    >>> ks = []
    >>> for step in range(9):
    ...     ks.append(schedule.k_at(100))
    ...     schedule.step()
    >>> ks
    [100.0, 100.0, 100.0, 70.0, 40.0, 10.0, 10.0, 10.0, 10.0]
    """

    def __init__(self, reducer: Any, total_steps: int) -> None:
        reducer = getattr(reducer, "reducer", reducer)
        if not isinstance(getattr(reducer, "remaining", None), Tensor) or "k" not in reducer.takes:
            raise TypeError(f"KDecay needs a reducer that has a k, such as CloseK(k=0.1), not {reducer!r}")
        if isinstance(total_steps, bool) or not isinstance(total_steps, int) or total_steps < 1:
            raise ValueError(f"total_steps={total_steps!r} must be a whole number >= 1")
        self.reducer = reducer
        self.reducer.decays = True
        self.total_steps = total_steps
        self.last_step = 0
        self._apply()

    def step(self) -> None:
        """Go on to the next step."""
        self.last_step += 1
        self._apply()

    def k_at(self, total: float) -> float:
        """The k of the step that comes next, in a batch of ``total`` examples (or total sample weight)."""
        k_star = self.reducer.resolve(total)[0]
        return decay(k_star, total, self.total_steps)(min(self.last_step + 1, self.total_steps))

    def state_dict(self) -> dict[str, int]:
        """What to save: the position and the length."""
        return {"last_step": self.last_step, "total_steps": self.total_steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Take up a saved state; the reducer's k follows at once."""
        missing = {"last_step", "total_steps"} - set(state)
        if missing:
            raise ValueError(f"this is not a KDecay state: {', '.join(sorted(missing))} missing")
        self.last_step, self.total_steps = state["last_step"], state["total_steps"]
        self._apply()

    def _apply(self) -> None:
        # Algorithm 1 counts steps from 1; 2E - 3i over E, kept within [0, 1], is what remains of n - k*.
        over = 2 * self.total_steps - 3 * (self.last_step + 1)
        over = min(max(over, 0), self.total_steps)
        self.reducer.remaining.copy_(torch.tensor([over, self.total_steps]))

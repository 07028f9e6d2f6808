"""Accelerate: a schedule that advances with each step of the optimiser."""

from __future__ import annotations

from typing import Any


class AcceleratedSchedule:
    """A schedule whose :meth:`step` has an effect only if the optimiser has stepped with synchronised gradients.

    Call :meth:`step` in every iteration, as for a scheduler returned by ``accelerator.prepare``. Register both the
    schedule and the reducer, which may have a memory, with ``accelerator.register_for_checkpointing``.
    """

    def __init__(self, schedule: Any, accelerator: Any) -> None:
        if not hasattr(accelerator, "sync_gradients"):
            raise TypeError(f"accelerator={accelerator!r} is not an accelerate.Accelerator")
        self.schedule, self.accelerator = schedule, accelerator

    def step(self) -> None:
        """Advance to the next step if the optimiser has stepped."""
        if self.accelerator.sync_gradients and not self.accelerator.optimizer_step_was_skipped:
            self.schedule.step()

    def state_dict(self) -> dict[str, int]:
        """Return the state of the schedule."""
        return dict(self.schedule.state_dict())

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Resume from a saved position."""
        self.schedule.load_state_dict(state)

"""Lightning: a callback that advances the schedules of a module's reducers and logs their counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback
except ImportError:
    Callback = None


class LightningSchedule(Callback or object):  # type: ignore[misc]
    """A callback that advances a schedule once per optimiser step, not per batch, and logs the reducer's k.

    Make the reducer part of the module (``self.loss = CloseKLoss(...)``): its position and memory are then part of
    Lightning's checkpoint, and ``ckpt_path=`` restores both.

    Parameters
    ----------
    make : callable
        ``(trainer, module) -> schedule``, called when training begins and the number of steps is known:
        ``lambda trainer, module: KDecay(module.loss, trainer.estimated_stepping_batches)``.
    log : str or None
        The name under which ``last_k`` is logged; ``last_threshold`` gets the suffix ``_threshold``. If None, nothing
        is logged.
    """

    def __init__(self, make: Callable[[Any, Any], Any], *, log: str | None = "k") -> None:
        if Callback is None:
            raise ImportError('LightningSchedule needs Lightning: pip install "closecall[integrations]"')
        super().__init__()
        self.make, self.name, self.schedule, self._seen = make, log, None, 0

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
        """Create the schedule, starting at the position saved in the checkpoint, if any."""
        self.schedule = self.make(trainer, pl_module)

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Record the optimiser step at which training starts or resumes."""
        self._seen = trainer.global_step

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Log k, and advance the schedule if the optimiser has stepped."""
        assert self.schedule is not None
        reducer = self.schedule.reducer
        if self.name and reducer.last_k is not None:
            pl_module.log(self.name, float(reducer.last_k))
            edge = reducer.last_threshold
            if isinstance(edge, float) and edge == edge:
                pl_module.log(f"{self.name}_threshold", edge)
        if trainer.global_step > self._seen:
            self._seen = trainer.global_step
            self.schedule.step()

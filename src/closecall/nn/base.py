"""The base class of all reducers: a module that stores the settings of a reduction and its schedules."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from closecall.aggregates import Count, get_aggregate

from . import functional
from .plan import Batch, Plan


class Reducer(nn.Module):  # type: ignore[misc]
    """The base class of all reducers, which turn per-example losses of any shape into one number.

    Parameters
    ----------
    k, m : int, float or None
        Counts of examples in a batch, fractions of the batch, or None (all examples for ``k``, none for ``m``), if the
        reducer uses them. If a batch is smaller than the count, all of its examples are used.
    dim, nonfinite, reduction, group
        The same as in :func:`closecall.nn.functional.aggregate`.
    """

    aggregate: ClassVar[str]
    #: Additional settings and their defaults, named as in :class:`closecall.nn.plan.Plan`.
    more: ClassVar[dict[str, Any]] = {}
    #: The names of settings that the plan does not contain, for ``repr``.
    own: ClassVar[tuple[str, ...]] = ()
    remaining: Tensor

    def __init__(
        self,
        k: Count = None,
        m: Count = None,
        *,
        dim: int | tuple[int, ...] | None = None,
        nonfinite: str = "raise",
        reduction: str = "mean",
        group: Any = None,
        **more: Any,
    ) -> None:
        super().__init__()
        unknown = set(more) - set(self.more)
        if unknown:
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}")
        for name, default in self.more.items():
            setattr(self, name, more.get(name, default))
        for name, given in (("k", k), ("m", m)):
            if given is not None and name not in self.takes:
                raise TypeError(f"{type(self).__name__} takes no {name}, but {name}={given!r} was given")
        self.k, self.m, self.dim, self.nonfinite, self.reduction, self.group = k, m, dim, nonfinite, reduction, group
        # The remaining fractions for the schedules of k and m; they follow from the positions, which are saved.
        self.register_buffer("remaining", torch.tensor([[0, 1], [0, 1]]), persistent=False)
        self.schedules: dict[str, Any] = {}
        self._resumed: dict[str, int] = {}
        self._last: tuple[Any, Any] = (None, None)
        if "m" in self.takes:
            get_aggregate(self.aggregate).counts(k, m, 2**60)
        self.plan().check()  # settings that no batch could satisfy fail here, not at the first batch

    @property
    def takes(self) -> tuple[str, ...]:
        """The names of the counts (k and m) that this reducer uses."""
        return get_aggregate(self.aggregate).takes

    @property
    def decays(self) -> bool:
        """Whether a schedule changes one of the counts."""
        return bool(self.schedules)

    def plan(self) -> Plan:
        """Return the settings as one object."""
        settings = {name: getattr(self, name) for name in self.more}
        if self.schedules:
            k, m = (self.schedules[name].start if name in self.schedules else None for name in ("k", "m"))
            settings |= {"remaining": self.remaining, "starts": (k, 0 if m is None else m)}
        common = {"dim": self.dim, "nonfinite": self.nonfinite, "reduction": self.reduction, "group": self.group}
        return Plan(self.aggregate, self.k, self.m, **common, **settings)

    def resolve(self, total: float) -> tuple[float, float]:
        """Return the final k and m for a batch of ``total`` examples (or total sample weight)."""
        return self.plan()._replace(remaining=None).counts(total)

    def counts(self, total: float) -> tuple[float, float]:
        """Return k and m for the next call on a batch of ``total`` examples, according to the schedules."""
        return self.plan().counts(total)

    def forward(
        self,
        losses: Tensor,
        *,
        mass: Tensor | None = None,
        closeness: Tensor | None = None,
        mask: Tensor | None = None,
        divisor: Tensor | None = None,
    ) -> Tensor:
        """Reduce losses.

        All arguments have the shape of the losses: sample weights ``mass``, distances from the boundary ``closeness``,
        the boolean ``mask`` and, for weighted losses, ``divisor``, the contribution of each loss to the mean's divisor.
        """
        return self.reduce(Batch(losses, mass, closeness, mask, divisor))

    def weights(self, losses: Tensor, **given: Any) -> Tensor:
        """Return the weights that :meth:`forward` applies for the same arguments; they have the shape of the losses."""
        return self.weigh(Batch(losses, **given))

    #: ``(plan, select, rows) -> Chosen``, for reducers whose weights are not those of a core aggregate.
    weigher: Any = None

    def reduce(self, batch: Batch) -> Tensor:
        """Implement :meth:`forward`; subclasses override this method."""
        found = functional.reduce(self.plan(), batch, self.weigher)
        self.__dict__["_last"] = found[1:]  # nn.Module's own __setattr__ is slow
        return found.value

    def weigh(self, batch: Batch) -> Tensor:
        """Implement :meth:`weights`; subclasses override this method."""
        return functional.weigh(self.plan(), batch, self.weigher)

    @property
    def last_k(self) -> Any:
        """The total weight selected in the last call, across all processes in a group, for logging."""
        return _number(self._last[0])

    @property
    def last_threshold(self) -> Any:
        """The loss (closeness for close-k) at which the last selection ended, or one value for each selection."""
        return _number(self._last[1])

    def attach(self, schedule: Any) -> None:
        """Attach a schedule to one of the counts, starting at the position saved in the loaded state, if any."""
        name = schedule.count
        self.register_buffer(f"{name}_step", torch.zeros((), dtype=torch.int64, device=self.remaining.device))
        self.schedules[name] = schedule
        schedule.move_to(self._resumed.pop(name, 0))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any, **kwargs: Any) -> None:
        for name in ("k", "m"):
            key = f"{prefix}{name}_step"
            if name not in self.schedules and key in state_dict:  # the schedule may be attached later
                self._resumed[name] = int(state_dict.pop(key))
            elif name in self.schedules and key not in state_dict:  # saved before there was a schedule
                state_dict[key] = getattr(self, f"{name}_step")
        super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)
        for schedule in self.schedules.values():
            schedule.move_to(schedule.last_step)

    def extra_repr(self) -> str:
        """Return the settings for ``repr``."""
        names = (*self.own, *self.takes, *self.more, "dim", "nonfinite", "reduction")
        shown = {name: getattr(self, name) for name in names}
        shown |= {} if self.group is None else {"group": self.group}
        shown |= {f"{name}_schedule": type(each).__name__ for name, each in self.schedules.items()}
        return ", ".join(f"{name}={value!r}" for name, value in shown.items())


def _number(value: Any) -> Any:
    # One number becomes a float; None and several numbers are returned unchanged.
    if value is None or isinstance(value, float):
        return value
    value = torch.as_tensor(value)
    return float(value) if value.numel() == 1 else value

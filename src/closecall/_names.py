"""What many modules need: the array type, the look-up of a name in a table, how estimators keep their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from numpy.typing import NDArray

Array = NDArray[Any]
T = TypeVar("T")


def lookup(table: Mapping[str, T], name: str, kind: str) -> T:
    """Return ``table[name]``, or raise a ``ValueError`` that lists the allowed names."""
    try:
        return table[name]
    except (KeyError, TypeError):
        raise ValueError(f"unknown {kind} {name!r}; choose one of: {', '.join(sorted(table))}") from None


def keep(estimator: object, arguments: Mapping[str, Any]) -> None:
    """Keep every argument of an ``__init__`` under its own name, as scikit-learn asks: ``keep(self, locals())``."""
    for name, value in arguments.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)

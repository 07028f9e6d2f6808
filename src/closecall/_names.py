"""Two things every module needs: the array type and the look-up of a name in a table."""

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

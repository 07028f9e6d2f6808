"""Shared helpers for array types, lookup by name, estimator arguments and hashes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import numpy as np
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
    """Store every argument of an ``__init__`` under its own name, as scikit-learn requires."""
    for name, value in arguments.items():
        if name not in ("self", "__class__"):
            setattr(estimator, name, value)


def spread_out(words: Array) -> Array:
    """Map hashes to numbers in [0, 1)."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):  # the final mixing of splitmix64
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(((words ^ (words >> np.uint64(31))) >> np.uint64(11)).astype(np.float64) * 2.0**-53)

"""How many rows may be gathered in one place, given the memory that this process may use."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any

import numpy as np

from .._names import Array

#: Entries of gathered rows around a k-th place.
ROOM = 1 << 26
#: The share of the memory that rows near the boundary may take, as float64.
SHARE = 1 / 8
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_here() -> int:
    """Memory of this machine, or of the container of this process, in bytes; 0 if unknown.

    Examples
    --------
    >>> memory_here() >= 0
    True
    """
    found = []
    try:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):  # not on this system
        return 0
    for path in _LIMITS:
        try:
            found.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no container, or "max"
            continue
    return min(found)


def mapped(shape: tuple[int, ...], kind: np.dtype[Any]) -> Array:
    """An array in its own memory mapping, which is returned to the system when freed; a heap may keep it.

    Examples
    --------
    >>> mapped((0, 3), np.dtype(np.float32)).shape, mapped((2, 3), np.dtype(np.float64)).sum()
    ((0, 3), np.float64(0.0))
    """
    size = int(np.prod(shape)) * kind.itemsize
    return np.ndarray(shape, kind, buffer=mmap.mmap(-1, size) if size else None)


def near_room() -> int:
    """How many entries of rows near the boundary may be kept, so that steps need no pass and give the same result."""
    return max(ROOM, int(SHARE * memory_here()) // 8)

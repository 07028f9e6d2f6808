"""How many rows may be gathered in one place, given the memory that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

#: Entries of gathered rows at least.
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


def near_room() -> int:
    """How many entries of rows near the boundary may be kept; steps then need no pass and give the same result."""
    return max(ROOM, int(SHARE * memory_here()) // 8)

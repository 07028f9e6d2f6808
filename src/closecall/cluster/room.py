"""How many rows may come to one place: by the memory that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

#: Entries of gathered rows around a k-th place.
ROOM = 1 << 26
#: The share of the memory that rows near the boundary may take, as float64.
SHARE = 1 / 8
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def memory_here() -> int:
    """Bytes of this machine, or of the container that this process is in; 0 where nobody says.

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
    """Entries of rows near the boundary that may be kept: steps on them need no pass, and end where passes would."""
    return max(ROOM, int(SHARE * memory_here()) // 8)

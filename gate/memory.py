"""How much memory a piece of code takes at its peak, with an end before it takes all."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

#: What the interpreter's libraries may reserve beside what they use.
_RESERVED = 3 << 30


def _status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Fail if the block takes more than ``size`` bytes beyond what the process has; far beyond, memory is refused."""
    clear = Path("/proc/self/clear_refs")
    if not clear.exists():
        pytest.skip("peak memory is measured on Linux")
    clear.write_text("5")  # the peak is what there is now
    before, limits = _status("VmRSS"), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_status("VmSize") + size + _RESERVED, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    taken = _status("VmHWM") - before
    assert taken <= size, f"{taken / 2**20:.0f} MiB where {size / 2**20:.0f} are the most"

"""What this process and all that descend from it cost: processor time, and memory where what is shared counts once."""

from __future__ import annotations

import os
import re
import threading
import time
from pathlib import Path


def family() -> list[int]:
    """This process and all that descend from it."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
        except OSError:  # it has ended
            continue
    found = [os.getpid()]
    for process in found:
        found += parents.get(process, [])
    return found


def seconds() -> float:
    """Processor time of the family, and of those members that have ended."""
    ticks = 0
    for process in family():
        try:
            ticks += sum(map(int, Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:15]))
        except OSError:
            continue
    return ticks / os.sysconf("SC_CLK_TCK")


def held() -> float:
    """Gigabytes that the family holds now: what is shared counts once."""
    size = 0
    for process in family():
        try:
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
        except OSError:
            continue
        size += int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])  # type: ignore[index]
    return size / 2**20


class Peak(threading.Thread):
    """The largest sum of memory while it runs, and the processor time that it took to look."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.own, self.ended = 0.0, 0.0, threading.Event()

    def run(self) -> None:
        ended = False
        while not ended:  # the last look is at the end
            ended = self.ended.wait(0.25)
            self.most = max(self.most, held())
            self.own = time.thread_time()

    def __enter__(self) -> Peak:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()

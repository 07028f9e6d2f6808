"""What all benchmarks share: times taken in turns, and what this process and its descendants cost."""

from __future__ import annotations

import os
import re
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

# BLAS reads its number of threads when NumPy is imported, which comes after this.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

Work = Callable[[], object]


def turns(
    works: Mapping[str, Work], repeats: int, clock: Callable[[], float] = time.process_time, warm: bool = False
) -> dict[str, list[float]]:
    """Seconds of each, in turns, so that a busy moment hits all of them; of the processor unless said otherwise."""
    times: dict[str, list[float]] = {name: [] for name in works}
    for work in works.values() if warm else ():
        work()
    for _ in range(repeats):
        for name, work in works.items():
            begin = time.process_time()
            work()
            times[name].append(time.process_time() - begin)
    return times


def show(title: str, times: Mapping[str, list[float]], unit: float = 1e3, name: str = "ms") -> None:
    """The best and the median of each, and the median of the paired ratios to the first."""
    first = next(iter(times.values()))
    print(f"\n{title}\n{'':34} {'best ' + name:>12} {'median ' + name:>12} {'ratio to first':>15}")
    for what, values in times.items():
        ratio = statistics.median(mine / theirs for mine, theirs in zip(values, first, strict=True))
        print(
            f"{what:34} {unit * min(values):12.3f} {unit * statistics.median(values):12.3f} {ratio:15.3f}", flush=True
        )


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


def _summed(file: str, value: Callable[[str], int]) -> int:
    total = 0
    for process in family():
        try:
            total += value(Path(f"/proc/{process}/{file}").read_text())
        except OSError:
            continue
    return total


def seconds() -> float:
    """Processor time of the family, and of those members that have ended."""
    ticks = _summed("stat", lambda text: sum(map(int, text.rpartition(")")[2].split()[11:15])))
    return ticks / os.sysconf("SC_CLK_TCK")


def held() -> float:
    """Gigabytes that the family holds now: what is shared counts once."""
    return _summed("smaps_rollup", lambda text: int(re.search(r"^Pss:\s+(\d+)", text, re.M)[1])) / 2**20  # type: ignore[index]


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

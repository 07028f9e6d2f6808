"""Shared code of the benchmarks: paired timings, and the processor time and memory of a process and its children."""

from __future__ import annotations

import contextlib
import os
import statistics
import threading
import time
from collections.abc import Callable, Mapping

import psutil

# BLAS reads its number of threads when NumPy is imported, which benchmarks do after this module.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")
#: Name -> how many times it solves the problem, and the function that does.
Works = Mapping[str, tuple[int, Callable[[], object]]]


def race(title: str, works: Works, rounds: int) -> None:
    """Print the processor time per problem in milliseconds, and the median of the paired ratios to the first entry.

    The candidates are timed alternately, so that other load on the machine affects all of them.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, (count, work) in works.items():
            begin = time.process_time()
            work()
            times[name].append(1e3 * (time.process_time() - begin) / count)
    first = next(iter(times.values()))
    print(f"\n{title}\n{'':34} {'best ms':>12} {'median ms':>12} {'ratio to first':>15}")
    for name, values in times.items():
        ratio = statistics.median(mine / theirs for mine, theirs in zip(values, first, strict=True))
        print(f"{name:34} {min(values):12.4f} {statistics.median(values):12.4f} {ratio:15.3f}", flush=True)


def _summed(value: Callable[[psutil.Process], float]) -> float:
    """Sum a value over this process and all its descendants."""
    this, total = psutil.Process(), 0.0
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.Error):  # it has ended
            total += value(process)
    return total


def seconds() -> float:
    """Return the processor time of this process and its descendants, including those that have ended."""
    return _summed(lambda process: sum(process.cpu_times()[:4]))


class Peak(threading.Thread):
    """The peak memory (PSS, in GB) of this process and its descendants, and the time spent on measuring it."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.most, self.own, self.ended = 0.0, 0.0, threading.Event()

    def run(self) -> None:
        ended = False
        while not ended:  # measures once more at the end
            ended = self.ended.wait(0.25)
            self.most = max(self.most, _summed(lambda process: process.memory_full_info().pss) / 2**30)
            self.own = time.thread_time()

    def __enter__(self) -> Peak:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.join()

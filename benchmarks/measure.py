"""Paired timings, shared by the benchmarks."""

import os
import statistics
import time
from collections.abc import Callable, Mapping

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

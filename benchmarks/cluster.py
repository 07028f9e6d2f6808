"""What a fit over partitions costs: passes, seconds, bytes that come home, memory, by rows; and a model of more rows.

    python benchmarks/cluster.py --rows 100000 1000000 --folder /tmp/rows
    python benchmarks/cluster.py --rows 10000000 100000000 --folder /tmp/rows --processes 2

Rows of 20 float32 columns with outliers are written as Parquet once for each size and streamed from there. Seconds are
of the processor, in all processes together, so that other work does not count.
"""

from __future__ import annotations

import argparse
import os
import pickle
import resource
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from closecall.cluster import DaskAggregateLossClassifier, DaskCloseKClassifier, ParquetSource

COLUMNS = 20
FILE_ROWS = 5_000_000


def write(folder: Path, rows: int) -> Path:
    """A folder of Parquet files with so many rows; what is there already is kept."""
    import pyarrow
    import pyarrow.parquet

    there = folder / f"{rows}"
    there.mkdir(parents=True, exist_ok=True)
    weights = np.random.default_rng(0).normal(size=COLUMNS)
    for number, begin in enumerate(range(0, rows, FILE_ROWS)):
        path = there / f"{number:04d}.parquet"
        if path.exists():
            continue
        with pyarrow.parquet.ParquetWriter(path.with_suffix(".part"), _schema(pyarrow), compression="none",
                                           use_dictionary=False) as file:  # fmt: skip
            for piece in range(begin, min(begin + FILE_ROWS, rows), 1 << 19):
                size = min(1 << 19, begin + FILE_ROWS - piece, rows - piece)
                rng = np.random.default_rng([number, piece])
                X = rng.normal(size=(size, COLUMNS)).astype(np.float32)
                y = (X @ weights + 2 * rng.logistic(size=size) > 0.5).astype(np.int8)
                wrong = rng.random(size) < 0.03
                X[wrong] *= 3
                y[wrong] = (X[wrong] @ weights < 0.5).astype(np.int8)
                file.write_table(pyarrow.table([*X.T.copy(), y], schema=_schema(pyarrow)))
        os.replace(path.with_suffix(".part"), path)
    return there


def _schema(pyarrow: Any) -> Any:
    columns = [(f"x{number}", pyarrow.float32()) for number in range(COLUMNS)]
    return pyarrow.schema([*columns, ("label", pyarrow.int8())])


class Counted:
    """A source that counts tasks and the bytes of what they send home."""

    def __init__(self, inner: ParquetSource) -> None:
        self.inner, self.partitions, self.tasks, self.bytes = inner, inner.partitions, 0, 0

    def run(self, task: Callable[[Any], Any]) -> Iterator[tuple[int, Any]]:
        for number, found in self.inner.run(task):
            self.tasks += 1
            self.bytes += len(pickle.dumps(found, protocol=5))
            yield number, found


def seconds() -> float:
    """Processor time of this process and of those it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak() -> float:
    """Gigabytes: the largest size of this process, and as much as the largest child for each child."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return own / 2**20


def measure(folder: Path, rows: int, processes: int, close: bool) -> dict[str, float]:
    """One fit, in numbers."""
    source = Counted(ParquetSource(str(folder), "label", processes=processes))
    kind: Any = DaskCloseKClassifier if close else DaskAggregateLossClassifier
    began, wall = seconds(), time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # selections of this size seldom hold a certificate
        model = kind(max_gathered=0).fit_source(source)
    source.inner.close()  # its processes are counted when they have ended
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 2**20
    return {
        "rows": rows, "passes": model.n_passes_, "tasks": source.tasks, "cpu": seconds() - began,
        "wall": time.perf_counter() - wall, "bytes": source.bytes, "gap": float(model.gap_.max()),
        "peak": peak() + (processes if processes > 1 else 0) * children,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--only", choices=["average", "close-k"])
    given = parser.parse_args()
    print("| Fit | Rows | Passes | Tasks | CPU s | ns a row and pass | MB home a pass | Peak GB | Gap |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    found: dict[str, dict[str, float]] = {}
    for rows in given.rows:
        folder = write(given.folder, rows)
        for name in [given.only] if given.only else ["average", "close-k"]:
            cost = found[name] = measure(folder, rows, given.processes, name == "close-k")
            print(
                f"| {name} | {rows:,} | {cost['passes']:.0f} | {cost['tasks']:.0f} | {cost['cpu']:.1f} | "
                f"{1e9 * cost['cpu'] / rows / cost['passes']:.0f} | {cost['bytes'] / cost['passes'] / 1e6:.2f} | "
                f"{cost['peak']:.2f} | {cost['gap']:.1e} |", flush=True,
            )  # fmt: skip
    for name, cost in found.items():
        # A model, not a measurement: work in proportion to rows, what comes home in proportion to the partitions.
        each = cost["cpu"] / cost["rows"] * 1e9 / 100
        home = cost["bytes"] / cost["tasks"] * 100 / 1e6
        print(f"{name}: 1e9 rows on 100 workers would take about {each:.0f} s of each and send home {home:.1f} MB "
              f"a pass from 100 partitions, {home * 8 / 1e3:.2f} s at 1 Gbit/s")  # fmt: skip


if __name__ == "__main__":
    main()

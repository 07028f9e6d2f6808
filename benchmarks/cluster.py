r"""The cost of a fit over partitions by number of rows and workers: passes, tasks, seconds, bytes returned, memory.

    python benchmarks/cluster.py --rows 100000 1000000 --folder /tmp/rows --workers 1 2
    python benchmarks/cluster.py --rows 10000000 100000000 --folder /tmp/rows --how parquet --workers 1 --fit close-k \
        --scratch /tmp

Rows of 20 float32 columns with outliers are written as Parquet once for each size. Seconds are the processor time of
all processes, so other load does not count. Memory is the largest total over all processes (PSS), measured four times a
second; the time for measuring it is not counted. Each fit replaces its line in docs/assets/cluster.csv.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import os
import pickle
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from measure import Peak, seconds

from closecall.cluster import DaskAggregateLossClassifier, DaskCloseKClassifier, ParquetSource

COLUMNS = 20
FILE_ROWS = 5_000_000
COSTS = Path(__file__).parent.parent / "docs" / "assets" / "cluster.csv"
HEADER = ("how", "workers", "fit", "rows", "passes", "tasks", "cpu", "wall", "bytes", "peak", "gap", "alpha")


def draw(seed: Any, rows: int, outliers: float, far: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of two overlapping classes; outliers are ``far`` times as far from the centre, on the wrong side."""
    weights, rng = np.random.default_rng(0).normal(size=COLUMNS).astype(np.float32), np.random.default_rng(seed)
    X = rng.standard_normal((rows, COLUMNS), dtype=np.float32)
    y = (X @ weights + 2 * rng.logistic(size=rows) > 0.5).astype(np.int8)
    wrong = rng.random(rows) < outliers
    X[wrong] *= np.float32(far)
    y[wrong] = (X[wrong] @ weights < 0.5).astype(np.int8)
    return X, y


def write(folder: Path, rows: int) -> Path:
    """Write a folder of Parquet files with the given number of rows in total; existing files are kept."""
    import pyarrow
    import pyarrow.parquet

    there = folder / f"{rows}"
    there.mkdir(parents=True, exist_ok=True)
    schema = pyarrow.schema(
        [*((f"x{number}", pyarrow.float32()) for number in range(COLUMNS)), ("label", pyarrow.int8())]
    )
    for number, begin in enumerate(range(0, rows, FILE_ROWS)):
        path = there / f"{number:04d}.parquet"
        if path.exists():
            continue
        part = path.with_suffix(".part")
        with pyarrow.parquet.ParquetWriter(part, schema, compression="none", use_dictionary=False) as file:
            for piece in range(begin, min(begin + FILE_ROWS, rows), 1 << 19):
                size = min(1 << 19, begin + FILE_ROWS - piece, rows - piece)
                X, y = draw([number, piece], size, 0.03)
                file.write_table(pyarrow.table([*X.T.copy(), y], schema=schema))
        os.replace(part, path)
    return there


class Counted:
    """A source that counts its tasks and the bytes of their results."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.partitions, self.tasks, self.bytes = inner, inner.partitions, 0, 0

    def run(self, task: Callable[[Any], Any]) -> Iterator[tuple[int, Any]]:
        for number, found in self.inner.run(task):
            buffers: list[pickle.PickleBuffer] = []  # arrays are counted, not copied
            self.bytes += len(pickle.dumps(found, protocol=5, buffer_callback=buffers.append))
            self.bytes += sum(buffer.raw().nbytes for buffer in buffers)
            self.tasks += 1
            yield number, found


def measure(source: Any, close: bool, rows: int, alpha: float) -> dict[str, Any]:
    """Measure one fit."""
    counted, began, wall = Counted(source), seconds(), time.perf_counter()

    def tell(event: Any) -> None:
        if event.partitions_done == event.partitions and rows >= 10_000_000:
            print(f"  pass {event.number} ({event.phase}), {seconds() - began:.0f} s", flush=True)

    kind: Any = DaskCloseKClassifier if close else DaskAggregateLossClassifier
    with warnings.catch_warnings(), Peak() as memory:
        warnings.simplefilter("ignore")  # the gap shows a lack of convergence
        model = kind(max_gathered=0, callback=tell, alpha=alpha).fit_source(counted)
    cpu, wall = seconds() - began - memory.own, time.perf_counter() - wall
    return {
        "fit": "close-k" if close else "average", "rows": rows, "passes": model.n_passes_, "tasks": counted.tasks,
        "cpu": round(cpu, 2), "wall": round(wall, 2), "bytes": counted.bytes,
        "peak": round(memory.most, 3), "gap": f"{float(model.gap_.max()):.1e}", "alpha": alpha,
    }  # fmt: skip


def run(folder: Path, rows: int, how: str, workers: int, close: bool, scratch: str, alpha: float) -> dict[str, Any]:
    """Measure one fit, which is either streamed or run on Dask workers."""
    about = {"how": how, "workers": workers}
    if how == "parquet":
        source = ParquetSource(str(folder), "label", processes=workers, scratch=scratch)
        try:
            return about | measure(source, close, rows, alpha)
        finally:
            source.close()
    from closecall.cluster.connect import connected
    from closecall.cluster.dask_source import DaskParquetSource

    with connected("", workers) as client:
        return about | measure(DaskParquetSource(str(folder), "label", client=client), close, rows, alpha)


def keep(found: dict[str, Any]) -> None:
    """Replace the line of the CSV file that describes the same fit."""
    same = ("how", "workers", "fit", "rows", "alpha")
    lines = list(csv.DictReader(COSTS.read_text().splitlines()))
    new = {name: str(found[name]) for name in HEADER}
    lines = [line for line in lines if any(line[name] != new[name] for name in same)] + [new]
    lines.sort(key=lambda line: (line["how"], int(line["workers"]), line["fit"], int(line["rows"])))
    with COSTS.open("w", newline="") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--folder", type=Path, default=Path("rows"))
    parser.add_argument("--how", choices=["parquet", "dask"], nargs="+", default=["parquet", "dask"])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--fit", choices=["average", "close-k"], nargs="+", default=["average", "close-k"])
    parser.add_argument("--alpha", type=float, default=1.0)
    parser.add_argument("--scratch", default="")
    given = parser.parse_args()
    for rows, how, workers, fit in itertools.product(given.rows, given.how, given.workers, given.fit):
        found = run(write(given.folder, rows), rows, how, workers, fit == "close-k", given.scratch, given.alpha)
        print(", ".join(f"{name} {found[name]}" for name in HEADER), flush=True)
        keep(found)


if __name__ == "__main__":
    main()

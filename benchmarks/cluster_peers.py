"""Close-k beside dask-ml's LogisticRegression: one Dask array, two workers, some rows far out with the wrong label.

    python benchmarks/cluster_peers.py --rows 10000000

It needs dask-ml, which no extra has: `pip install dask-ml` beside `closecall[dask,bench]`. Seconds and memory are
those of benchmarks/cluster.py; the rows are on the workers before a fit begins. Accuracy is on 200,000 rows that
nothing was done to. Each fit replaces its line of docs/assets/cluster_peers.csv; benchmarks/cluster.py --page shows it.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from cluster import COLUMNS, draw
from processes import Peak, seconds

from closecall.cluster import DaskAggregateLossClassifier, DaskCloseKClassifier
from closecall.cluster.connect import connected

WORKERS, PARTITION, TESTED = 2, 1 << 19, 200_000
FITS = ("average", "close-k", "close-k, tol 1e-3", "dask-ml newton", "dask-ml lbfgs")
HEADER = ("rows", "outliers", "far", "fit", "passes", "cpu", "wall", "peak", "gap", "accuracy")
KEPT = Path(__file__).parent.parent / "docs" / "assets" / "cluster_peers.csv"


def model_of(name: str) -> Any:
    """An estimator with the settings that it has by itself, or with a certificate of 1e-3 as the search asks for."""
    if name == "average":
        return DaskAggregateLossClassifier(max_gathered=0)
    if name.startswith("close-k"):
        return DaskCloseKClassifier(max_gathered=0, tol=1e-3 if name.endswith("1e-3") else 1e-4)
    from dask_ml.linear_model import LogisticRegression

    return LogisticRegression(solver=name.removeprefix("dask-ml "))


def rows_on(client: Any, rows: int, outliers: float, far: float) -> tuple[Any, Any]:
    """X and y as Dask arrays whose partitions are on the workers."""
    import dask.array as da
    from dask import delayed
    from distributed import wait

    sizes = [min(PARTITION, rows - begin) for begin in range(0, rows, PARTITION)]
    parts = [delayed(draw, nout=2)([number, 7], size, outliers, far) for number, size in enumerate(sizes)]
    both = list(zip(parts, sizes, strict=True))
    X = da.concatenate([da.from_delayed(part[0], (size, COLUMNS), np.float32) for part, size in both])
    y = da.concatenate([da.from_delayed(part[1], (size,), np.int8) for part, size in both])
    X, y = client.persist([X, y])
    wait([X, y])
    return X, y


def measure(name: str, X: Any, y: Any, tested: tuple[np.ndarray, np.ndarray]) -> dict[str, Any]:
    """One fit, in numbers; dask-ml counts no passes, and certifies nothing."""
    began, wall, model = seconds(), time.perf_counter(), model_of(name)
    with warnings.catch_warnings(), Peak() as memory:
        warnings.simplefilter("ignore")  # what did not settle is seen by its gap
        model.fit(X, y)
    cpu, wall = seconds() - began - memory.own, time.perf_counter() - wall
    coef, intercept = np.ravel(model.coef_), float(np.ravel(model.intercept_)[0])
    right = float(((tested[0] @ coef + intercept > 0) == tested[1]).mean())
    gap = f"{float(model.gap_.max()):.1e}" if hasattr(model, "gap_") else ""
    return {
        "fit": name, "passes": getattr(model, "n_passes_", ""), "cpu": round(cpu, 2), "wall": round(wall, 2),
        "peak": round(memory.most, 3), "gap": gap, "accuracy": round(right, 5),
    }  # fmt: skip


def keep(found: dict[str, Any]) -> None:
    """Put a line into the file in place of the one of the same fit."""
    same = ("rows", "outliers", "far", "fit")
    lines = list(csv.DictReader(KEPT.read_text().splitlines())) if KEPT.exists() else []
    new = {name: str(found[name]) for name in HEADER}
    lines = [line for line in lines if any(line[name] != new[name] for name in same)] + [new]
    lines.sort(key=lambda line: (int(line["rows"]), float(line["outliers"]), FITS.index(line["fit"])))
    with KEPT.open("w", newline="") as file:
        writer = csv.DictWriter(file, HEADER, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--outliers", type=float, default=0.05, help="share of the rows")
    parser.add_argument("--far", type=float, default=10.0, help="how many times as far out they are")
    parser.add_argument("--fit", choices=FITS, nargs="+", default=FITS)
    given = parser.parse_args()
    with connected("", WORKERS) as client:
        X, y = rows_on(client, given.rows, given.outliers, given.far)
        tested = draw(b"test"[0], TESTED, 0.0)
        for name in given.fit:
            about = {"rows": given.rows, "outliers": given.outliers, "far": given.far}
            found = about | measure(name, X, y, tested)
            print(", ".join(f"{each} {found[each]}" for each in HEADER), flush=True)
            keep(found)


if __name__ == "__main__":
    main()

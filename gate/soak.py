"""Print what load does to closecall; the exit code is 1 if a figure is not as docs/robustness.md promises.

python -m gate.soak --cells 20000         # small cells through local processes and Dask: memory and files
python -m gate.soak --rows 10000000       # rows through fit and predict: time and peak memory
python -m gate.soak --short               # a little of both, in about half a minute of one core
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from closecall import CloseKClassifier
from closecall.objective import Problem
from closecall.solvers.batched import solve
from gate.fault_helpers import children
from reproduction.protocol.grid import ROW
from reproduction.protocol.plan import Cell, Task, rng_for
from reproduction.run.engines import Engine, Local
from reproduction.run.record import Record
from reproduction.run.run import drive
from reproduction.run.store import Store
from reproduction.tests.helpers import Cluster

ENGINES: dict[str, Engine] = {"local": Local(2), "dask": Cluster()}
#: Cells of a long run. A short run has hardly warmed up, so its slope says nothing and it may grow more.
LONG = 5000
#: Allowed growth in KB: for 1000 cells, beyond three standard errors; and in all, so that no leak hides in steps.
SLOPE, GROWTH, WARM_GROWTH = 50.0, 5000, 65536


def small_cell(cell: Cell) -> Record:
    """Solve two problems on forty rows."""
    began, rng = time.perf_counter(), rng_for(cell, "soak")
    X = rng.normal(size=(40, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] + rng.normal(size=40) > 0, 1, -1)
    y[:2] = -1, 1
    found = solve(X, y, [Problem(alpha=1.0), Problem("logistic", "close_decay", k=10, alpha=1.0)], max_iter=12)
    rows = np.zeros(2, ROW)
    rows["method"], rows["train"], rows["objective"] = ["average", "close_decay"], 40 - found.errors, found.objective
    return Record(cell.key, "done", rows, (40, 0, 0), 3, time.perf_counter() - began)


def resident(pid: int) -> float:
    """Return the memory of a process in KB; 0 if it has ended."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * resource.getpagesize() / 1024


def slope_of(cells: np.ndarray, memory: np.ndarray) -> tuple[float, float]:
    """Return the slope for 1000 cells after the first fifth, by Theil and Sen, and its standard error."""
    # Memory grows in steps that stay, such as a table that is enlarged once; a regression line would see a slope.
    fifth = len(cells) // 5
    x = np.array([part.mean() for part in np.array_split(cells[fifth:], 20)]) / 1000
    y = np.array([part.mean() for part in np.array_split(memory[fifth:], 20)])
    slope, _, low, high = stats.theilslopes(y, x, 0.95)
    return float(slope), float(high - low) / 3.92


@dataclass(frozen=True)
class Load:
    """The effects of a run; slopes are (slope, standard error) in KB for 1000 cells, ``grown`` is in KB."""

    cells: int
    stored: int
    slopes: dict[str, tuple[float, float]]
    grown: float
    files: tuple[int, int]
    processes: tuple[int, int]

    def wrong(self) -> Iterator[str]:
        if self.stored != self.cells:
            yield f"{self.stored} of {self.cells} cells are in the store"
        if self.files[1] > self.files[0] or self.processes[1] > self.processes[0]:
            yield "files or processes are left"
        for name, (slope, error) in self.slopes.items():
            if self.cells >= LONG and slope - 3 * error > SLOPE:
                yield f"the memory of the {name} grows by {slope:.0f} KB for 1000 cells"
        if self.grown > (GROWTH if self.cells >= LONG else WARM_GROWTH):
            yield f"the memory grew by {self.grown:.0f} KB"


def open_files_and_processes() -> tuple[int, int]:
    return len(os.listdir("/proc/self/fd")), len(children(os.getpid()))


def run_cells(name: str, count: int) -> bool:
    """Run small cells into a store and print what this did to memory, files and processes."""
    tasks = [Task(Cell("none", "soak", "0", split, "linear", "sound"), 1.0) for split in range(count + 4)]
    samples, busy, done = [], 0.0, 0
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite", write=True) as store:
        list(drive(tasks[:4], store, ENGINES[name], small_cell, {}))  # what the first use keeps is not a leak
        before = open_files_and_processes()
        began, every, own = time.perf_counter(), max(count // 400, 1), time.process_time()
        for event in drive(tasks[4:], store, ENGINES[name], small_cell, {}):
            busy += event.seconds
            done += event.kind == "done"
            if event.kind == "done" and done % every == 0:
                samples.append((done, resident(os.getpid()), sum(map(resident, children(os.getpid())))))
        seconds, own = time.perf_counter() - began, time.process_time() - own
        time.sleep(0.5)
        stored, after = len(store.done()) - 4, open_files_and_processes()
    cells, *memory = np.array(samples).T
    slopes = {part: slope_of(cells, each) for part, each in zip(("driver", "workers"), memory, strict=True)}
    grown = max(float(each[-20:].mean() - each[len(each) // 5 :][:20].mean()) for each in memory)
    load = Load(count, stored, slopes, grown, *zip(before, after, strict=True))
    each, work = 1000 * seconds / count, 1000 * busy / count / 2
    print(f"{count} cells on {name}: {seconds:.0f} s")
    print(f"  per cell {each:.2f} ms: {work:.2f} ms of work on one of 2 workers, {each - work:.2f} ms of overhead")
    print(f"  processor time of the driver per cell: {1000 * own / count:.2f} ms")
    for part, (slope, error) in slopes.items():
        print(f"  memory of the {part}: {slope:+.1f} +- {error:.1f} KB for 1000 cells")
    print(f"  largest growth {grown:+.0f} KB; open files {load.files}, processes {load.processes} (before, after)")
    print("".join(f"  WRONG: {text}\n" for text in load.wrong()), end="")
    return not [*load.wrong()]


def fit_rows(rows: int, features: int = 5) -> None:
    """Fit and predict this many rows and print time and peak memory; run it in its own process."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features), dtype=np.float32)
    scores = X @ rng.standard_normal(features, dtype=np.float32)
    y = (scores + rng.standard_normal(rows, dtype=np.float32) > 0).astype(int)
    del scores
    base, began = peak(), time.perf_counter()
    model = CloseKClassifier().fit(X, y)
    fitted, high = time.perf_counter() - began, peak()
    began = time.perf_counter()
    right = float((model.predict(X) == y).mean())
    print(f"{rows} rows x {features}, {X.nbytes / 1e6:.0f} MB: fit {fitted:.1f} s, peak {high:.0f} MB "
          f"({base:.0f} MB before it); predict {time.perf_counter() - began:.1f} s, peak {peak():.0f} MB; "
          f"{100 * right:.1f} % right, {int(np.max(model.n_iter_))} steps")  # fmt: skip
    if not np.isfinite(model.coef_).all() or right < 0.7:
        raise SystemExit("the predictions are wrong")


def peak() -> float:
    """Return the peak memory of this process in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def write_table(path: Path, rows: int) -> None:
    rng = np.random.default_rng(rows)
    with path.open("w") as file:
        file.write("a,b,c,label\n")
        for begin in range(0, rows, 100_000):
            X = rng.normal(size=(min(100_000, rows - begin), 3)).round(4)
            labels = np.where(X.sum(axis=1) + rng.normal(size=len(X)) > 0, "yes", "no")
            file.writelines(f"{a},{b},{c},{name}\n" for (a, b, c), name in zip(X, labels, strict=True))


def stream_rows(sizes: tuple[int, ...]) -> bool:
    """Run `closecall predict` on CSV files of growing length: the peak memory must not grow with them."""
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        table, model, target = Path(folder) / "t.csv", f"{folder}/model.npz", Path(folder) / "predicted.csv"
        write_table(table, 2000)
        _closecall("fit", str(table), "--out", model, "--target", "label", "--model", "close-k")
        for size in sizes:
            write_table(table, size)
            high, seconds = _closecall("predict", model, str(table), "--out", str(target))
            with target.open() as file:
                lines = sum(1 for _ in file) - 1
            print(f"closecall predict, {size} rows of CSV: {seconds:.1f} s, peak {high:.0f} MB, {lines} predictions")
            peaks.append(high)
            if lines != size:
                return False
    return peaks[-1] < peaks[0] + 40  # MB: twenty thousand rows at a time, however many there are


def _closecall(*arguments: str) -> tuple[float, float]:
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "closecall", *arguments], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"closecall {arguments[0]} ended with {process.returncode}")
    return usage.ru_maxrss / 1024, time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cells", type=int, default=0, help="how many small cells to run on each engine")
    parser.add_argument("--rows", type=int, default=0, help="how many rows to fit")
    parser.add_argument("--engines", default="local,dask", help="for --cells")
    parser.add_argument("--short", action="store_true", help="a little of everything")
    given = parser.parse_args()
    good = True
    cells = {"local": 400, "dask": 150} if given.short else dict.fromkeys(given.engines.split(","), given.cells)
    for engine, count in cells.items():
        good &= not count or run_cells(engine, count)
    rows = 100_000 if given.short else given.rows
    if rows:
        alone = f"from gate.soak import fit_rows; fit_rows({rows})"  # another process, for its peak memory
        good &= not subprocess.run([sys.executable, "-c", alone], check=False).returncode
        good &= stream_rows((20_000, 60_000) if given.short else (20_000, 1_000_000))
    print("as promised" if good else "NOT AS PROMISED")
    raise SystemExit(not good)


if __name__ == "__main__":
    main()

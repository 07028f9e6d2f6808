"""The load forms of the soak: many small cells through an engine; many rows through fit and predict."""

import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import stats

from gate.fault_helpers import children
from reproduction.protocol.grid import ROW
from reproduction.protocol.plan import Cell, Task, rng_for
from reproduction.run.engines import Engine, Local
from reproduction.run.record import Record
from reproduction.run.run import drive
from reproduction.run.store import Store
from reproduction.tests.helpers import Cluster

ENGINES: dict[str, Engine] = {"local": Local(2), "dask": Cluster()}
#: Growth that is allowed for 1000 cells, in KB, when three standard errors are granted to it.
SLOPE = 50.0
#: Growth in all that is allowed after the first fifth, in KB, so that no leak hides in steps. A short run has hardly
#: left its warming up and is allowed more.
GROWTH, WARM_GROWTH = 5000, 65536


def small_cell(cell: Cell) -> Record:
    """A real solve, as small as they come: two problems on forty rows."""
    from closecall.objective import Problem
    from closecall.solvers.batched import solve

    began, rng = time.perf_counter(), rng_for(cell, "soak")
    X = rng.normal(size=(40, 3))
    y = np.where(X @ [1.0, -1.0, 0.5] + rng.normal(size=40) > 0, 1, -1)
    y[:2] = -1, 1
    found = solve(X, y, [Problem(alpha=1.0), Problem("logistic", "close_decay", k=10, alpha=1.0)], max_iter=12)
    rows = np.zeros(2, ROW)
    rows["method"], rows["train"], rows["objective"] = ["average", "close_decay"], 40 - found.errors, found.objective
    return Record(cell.key, "done", rows, (40, 0, 0), 3, time.perf_counter() - began)


def resident(pid: int) -> float:
    """KB of a process that are in memory; 0 if it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0.0
    return pages * resource.getpagesize() / 1024


@dataclass(frozen=True)
class Load:
    """What a load did to the machine; memory is (slope, standard error) in KB for 1000 cells, and growth in KB."""

    engine: str
    cells: int
    seconds: float
    busy: float
    own: float
    driver: tuple[float, float]
    workers: tuple[float, float]
    grown: float
    files: tuple[int, int]
    processes: tuple[int, int]
    stored: int

    def wrong(self) -> list[str]:
        found = []
        if self.stored != self.cells:
            found.append(f"{self.stored} of {self.cells} cells are in the store")
        if self.files[1] > self.files[0] or self.processes[1] > self.processes[0]:
            found.append("files or processes are left")
        if self.cells >= 5000:
            for name, (slope, error) in (("driver", self.driver), ("workers", self.workers)):
                if slope - 3 * error > SLOPE:
                    found.append(f"the memory of the {name} grows by {slope:.0f} KB for 1000 cells")
        if self.grown > (GROWTH if self.cells >= 5000 else WARM_GROWTH):
            found.append(f"the memory grew by {self.grown:.0f} KB")
        return found


def slope_of(cells: np.ndarray, memory: np.ndarray) -> tuple[float, float]:
    """Slope for 1000 cells after the first fifth, and its standard error.

    Memory moves in steps that stay, a table that is made larger once, so neighbouring samples are no independent
    evidence and a line through all of them would take one step for a slope. What is asked for is the steady growth: the
    median of the slopes between the means of twenty blocks (Theil and Sen).
    """
    fifth = len(cells) // 5
    x = np.array([part.mean() for part in np.array_split(cells[fifth:], 20)]) / 1000
    y = np.array([part.mean() for part in np.array_split(memory[fifth:], 20)])
    slope, _, low, high = stats.theilslopes(y, x, 0.95)
    return float(slope), float(high - low) / 3.92


def run_cells(name: str, count: int) -> Load:
    """Drive so many small cells into a store, looking at memory, files and processes."""
    engine, me = ENGINES[name], os.getpid()
    tasks = [Task(Cell("none", "soak", "0", split, "linear", "sound"), 1.0) for split in range(count + 4)]
    samples: list[tuple[int, float, float]] = []
    busy, done = 0.0, 0
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.sqlite", write=True) as store:
        list(drive(tasks[:4], store, engine, small_cell, {}))  # what the first use leaves for good is not a leak
        before = len(os.listdir("/proc/self/fd")), len(children(me))
        began, every, own = time.perf_counter(), max(count // 400, 1), time.process_time()
        for event in drive(tasks[4:], store, engine, small_cell, {}):
            busy += event.seconds
            if event.kind == "done":
                done += 1
                if done % every == 0:
                    workers = [resident(pid) for pid in children(me)]
                    samples.append((done, resident(me), sum(workers)))
                if done % 1000 == 0:
                    print("  {} cells: driver {:.0f} KB, workers {:.0f} KB".format(*samples[-1]), flush=True)
        seconds, own = time.perf_counter() - began, time.process_time() - own
        time.sleep(0.5)
        after = len(os.listdir("/proc/self/fd")), len(children(me))
        stored = len(store.done()) - 4
    cells, driver, workers_ = np.array(samples).T
    grown = max(float(part[-20:].mean() - part[len(part) // 5 :][:20].mean()) for part in (driver, workers_))
    return Load(
        name, count, seconds, busy, own, slope_of(cells, driver), slope_of(cells, workers_), grown,
        (before[0], after[0]), (before[1], after[1]), stored,
    )  # fmt: skip


def report(load: Load) -> bool:
    """Print the figures; True if nothing is wrong with them."""
    each, work, own = (1000 * part / load.cells for part in (load.seconds, load.busy, load.own))
    print(f"{load.cells} cells on {load.engine}: {load.seconds:.0f} s, {load.cells / load.seconds:.0f} cells/s")
    print(
        f"  per cell: {each:.2f} ms, of which {work / 2:.2f} ms are its own work on one of 2 workers, so "
        f"{each - work / 2:.2f} ms overhead; processor time of the driver {own:.2f} ms"
    )
    for name, (slope, error) in (("driver", load.driver), ("workers", load.workers)):
        print(f"  memory of the {name}: {slope:+.1f} +- {error:.1f} KB for 1000 cells")
    print(f"  memory of the one that grew more, after the first fifth: {load.grown:+.0f} KB in all")
    print(f"  open files {load.files[0]} before, {load.files[1]} after; "
          f"processes {load.processes[0]} before, {load.processes[1]} after; in the store {load.stored}")  # fmt: skip
    print("".join(f"  WRONG: {text}\n" for text in load.wrong()), end="")
    return not load.wrong()


def fit_rows(rows: int, features: int = 5) -> None:
    """Fit and predict so many rows in this process and print what it took; run it in a process of its own."""
    from closecall import CloseKClassifier

    rng = np.random.default_rng(0)
    X = rng.standard_normal((rows, features), dtype=np.float32)
    scores = X @ rng.standard_normal(features, dtype=np.float32)
    y = (scores + rng.standard_normal(rows, dtype=np.float32) > 0).astype(int)
    del scores
    base, began = peak(), time.perf_counter()
    model = CloseKClassifier().fit(X, y)
    fitted, high = time.perf_counter() - began, peak()
    began = time.perf_counter()
    predicted = model.predict(X)
    took = time.perf_counter() - began
    right = float((predicted == y).mean())
    print(f"{rows} rows x {features}, {X.nbytes / 1e6:.0f} MB: fit {fitted:.1f} s, peak {high:.0f} MB "
          f"({base:.0f} MB before it); predict {took:.1f} s, peak {peak():.0f} MB; {100 * right:.1f} % right, "
          f"{int(np.max(model.n_iter_))} steps")  # fmt: skip
    if predicted.shape != y.shape or not np.isfinite(model.coef_).all() or right < 0.7:
        raise SystemExit("the predictions are wrong")


def peak() -> float:
    """MB that this process had in memory at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def stream_rows(sizes: tuple[int, ...]) -> bool:
    """`closecall predict` on CSV files of growing length: the peak memory must not grow with them."""
    peaks = []
    with tempfile.TemporaryDirectory() as folder:
        for size in (2000, *sizes):
            rng, path = np.random.default_rng(size), Path(folder) / f"{size}.csv"
            with path.open("w") as file:
                file.write("a,b,c,label\n")
                for begin in range(0, size, 100_000):
                    X = rng.normal(size=(min(100_000, size - begin), 3)).round(4)
                    labels = np.where(X.sum(axis=1) + rng.normal(size=len(X)) > 0, "yes", "no")
                    file.writelines(f"{a},{b},{c},{name}\n" for (a, b, c), name in zip(X, labels, strict=True))
        model = f"{folder}/model.npz"
        _closecall("fit", f"{folder}/2000.csv", "--out", model, "--target", "label", "--model", "close-k")
        for size in sizes:
            target = Path(folder) / "predicted.csv"
            high, seconds = _closecall("predict", model, f"{folder}/{size}.csv", "--out", str(target))
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

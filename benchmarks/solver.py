"""How fast the batched solver is, against a plain torch loop and scikit-learn, and what bounds it.

    CLOSECALL_DATA=... python benchmarks/solver.py [--ratio] [--million] [--growth --plots DIR] ... (see --help)

Without a part's name all parts run, one after the other (about an hour on two cores). Both sides of a ratio are timed
in one run, turn by turn, in wall and in processor time; on a busy machine trust the latter. BLAS has one thread.
"""

# ruff: noqa: E402 - BLAS reads its number of threads when NumPy is imported
from __future__ import annotations

import argparse
import os
import re
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(variable, "1")

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from closecall.losses import get_loss
from closecall.objective import Problem
from closecall.schedules import decay
from closecall.solvers import solve
from reproduction.protocol import load_dataset
from reproduction.run.cell import grid

ALPHAS = [float(alpha) for alpha in 10.0 ** np.arange(-5, 6)]
LOSSES, AGGREGATES = ("logistic", "hinge"), ("average", "top", "atk", "close", "close_decay")
SETS = ("monk3", "phoneme", "spambase", "adult")
STEPS = 1000


# --- problems and data


def split(name: str, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Train, validation and test part (50/25/25), scaled as the paper does."""
    data = load_dataset(name if name == "monk3" else f"pmlb:{name}", download=False)
    X, y = StandardScaler().fit_transform(data.X).astype(np.float32), data.signs()
    order, n = np.random.default_rng(seed).permutation(len(y)), len(y)
    return [(X[part], y[part]) for part in np.split(order, [n // 2, n // 2 + n // 4])]


def million(n: int, d: int = 28) -> tuple[np.ndarray, np.ndarray]:
    """A noisy boundary that is not quite linear, and 2 % wrong labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    scores = X @ (rng.normal(size=d) / np.sqrt(d)).astype(np.float32) + 0.5 * np.abs(X[:, 0]) - 0.3
    y = np.where(scores + 0.7 * rng.standard_normal(n, dtype=np.float32) > 0, 1.0, -1.0)
    y[: n // 50] *= -1
    return X, y


# --- measuring


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall seconds, processor seconds and the result."""
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return time.perf_counter() - wall, time.process_time() - cpu, result


def memory(field: str = "VmHWM") -> float:
    """Megabytes: the peak (VmHWM) or the present size (VmRSS) of this process."""
    found = re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) / 1024 if found else float("nan")


def forget_peak() -> float:
    """Let the peak begin anew; the present size in megabytes."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def gemm_rate(rows: int, n: int, d: int) -> float:
    """GFLOP/s of a float32 product (rows, d) x (d, n) on one core, the best of several."""
    rng = np.random.default_rng(0)
    A, B = rng.random((rows, d), dtype=np.float32), rng.random((d, n), dtype=np.float32)
    repeat = max(1, int(2e8 / (2 * rows * n * d)))
    best = min(timed(lambda: [A @ B for _ in range(repeat)])[1] for _ in range(5))
    return 2 * rows * n * d * repeat / best / 1e9


# --- one split's grid, against a torch loop


def torch_problem(X: Any, y: Any, item: Problem, steps: int = STEPS, rate: float = 1e-3) -> None:
    """What people write: one problem, autograd, a sort at every step."""
    import torch

    n, d = X.shape
    w, b = torch.zeros(d, requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([w, b], lr=rate / n, momentum=0.9)
    threshold = get_loss(item.loss).threshold
    k_at = decay(item.k or n, n, steps) if item.aggregate == "close_decay" else lambda step: item.k or n
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        margins, k = y * (X @ w + b), int(k_at(step))
        losses = torch.nn.functional.softplus(-margins) if item.loss == "logistic" else torch.relu(1 - margins)
        if item.aggregate == "average":
            value = losses.sum()
        elif item.aggregate == "atk":
            value = torch.sort(losses, descending=True)[0][:k].sum()
        elif item.aggregate == "top":
            value = torch.sort(losses, descending=True)[0][k - 1]
        else:
            value = losses[torch.sort((losses - threshold).abs())[1][:k]].sum()
        (value + item.alpha / 2 * (w @ w)).backward()
        optimizer.step()


def torch_sample(name: str, seed: int) -> tuple[float, float, int]:
    """Seconds (wall, processor) of one problem of each (loss, aggregate), and how many they were."""
    import torch

    torch.set_num_threads(1)
    X, y = split(name, seed)[0]
    some = [Problem(loss, each, min(100, len(y)), 1.0) for loss in LOSSES for each in AGGREGATES]
    X, y = torch.from_numpy(X), torch.from_numpy(y.astype(np.float32))
    torch_problem(X, y, some[0], steps=20)  # warm
    return (*timed(lambda: [torch_problem(X, y, item) for item in some])[:2], len(some))


def our_grid(name: str, seed: int, threads: int = 1) -> tuple[float, float, int, float]:
    X, y = split(name, seed)[0]
    problems = grid(len(y))
    before = forget_peak()
    work = timed(lambda: solve(X, y, problems, max_iter=STEPS, penalize_intercept=True, threads=threads))
    return *work[:2], len(problems), memory() - before


def sklearn_averages(name: str, seed: int) -> tuple[float, float, int]:
    X, y = split(name, seed)[0]

    def fit() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # LinearSVC does not converge at large C, and says so
            for alpha in ALPHAS:
                LogisticRegression(C=1 / alpha, max_iter=STEPS).fit(X, y)
                LinearSVC(C=1 / alpha, loss="hinge", max_iter=STEPS).fit(X, y)

    return (*timed(fit)[:2], 2 * len(ALPHAS))


def our_averages(name: str, seed: int) -> tuple[float, float, int]:
    X, y = split(name, seed)[0]
    problems = [Problem(loss, alpha=alpha) for loss in LOSSES for alpha in ALPHAS]
    return (*timed(lambda: solve(X, y, problems, max_iter=STEPS))[:2], len(problems))


def row_steps(name: str) -> tuple[int, int, int]:
    """How many steps of single problems a grid really takes (shared and saved ones left out), n and d."""
    X, y = split(name, 0)[0]
    taken: list[int] = []
    solve(X, y, grid(len(y)), penalize_intercept=True, callback=lambda event: taken.append(event.active))
    return sum(taken), len(y), X.shape[1] + 1


def ratio(names: Sequence[str] = SETS, rounds: int = 2) -> None:
    """The full grid of one split: two torch processes, two of ours, turn by turn; and the averages against peers."""
    print(f"one core's float32 GEMM peak {gemm_rate(1024, 1024, 1024):.0f} GFLOP/s")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:

        def pair(task: Callable[..., Any], name: str) -> tuple[float, float, float, float]:
            """Milliseconds for a problem on two cores (wall) and on one (processor), seconds, peak MB."""
            wall, _, found = timed(lambda: list(pool.map(task, [name] * 2, range(2))))
            busiest = max(each[0] for each in found)  # loading and warming are left out
            problems = sum(each[2] for each in found)
            extra = max((each[3] for each in found if len(each) > 3), default=0.0)
            return 1e3 * busiest / problems, 1e3 * sum(each[1] for each in found) / problems, wall, extra

        for name in names:
            list(pool.map(our_grid, [name] * 2, range(2)))  # warm caches and imports
            turns = [
                [pair(task, name) for task in (torch_sample, our_grid, sklearn_averages, our_averages)]
                for _ in range(rounds)
            ]
            torch_ms, ours_ms, peer_ms, mine_ms = np.median(np.array(turns), axis=0)
            threaded = our_grid(name, 0, threads=2)
            steps, n, d = row_steps(name)
            cpu = ours_ms[1] * len(grid(n)) / 1e3
            rate = gemm_rate(max(1, (1 << 19) // (4 * n)), n, d)
            print(
                f"\n{name}: {n} x {d - 1}, {len(grid(n))} problems; torch timed on a sample of 10 problems a process\n"
                f"  torch loop, two processes   {torch_ms[0]:9.2f} ms/problem wall {torch_ms[1]:9.2f} processor\n"
                f"  ours, two processes         {ours_ms[0]:9.3f} ms/problem wall {ours_ms[1]:9.3f} processor, "
                f"one grid {cpu:.2f} s, {ours_ms[3]:.0f} MB more\n"
                f"  ours, threads=2             {1e3 * threaded[0] / len(grid(n)):9.3f} ms/problem wall\n"
                f"  ratio                       {torch_ms[0] / ours_ms[0]:9.0f} by wall, "
                f"{torch_ms[1] / ours_ms[1]:.0f} by processor time\n"
                f"  averages: scikit-learn {peer_ms[1]:.2f}, ours {mine_ms[1]:.2f} ms/problem processor "
                f"({peer_ms[1] / mine_ms[1]:.1f} times)\n"
                f"  {steps} steps really taken: {1e9 * cpu / (steps * n):.1f} ns per (example x problem x step), of "
                f"which products {4 * d / rate:.1f} at {rate:.0f} GFLOP/s"
            )


# --- one large problem


def one_large(n: int, full: bool = True) -> None:
    """A close-decay fit against scikit-learn's logistic regression, turn by turn."""
    X, y = million(n)
    item = Problem("logistic", "close_decay", n // 1000, 1.0)
    before = forget_peak()
    mine = [timed(lambda: solve(X, y, [item], max_iter=150))]
    extra = (memory() - before) * 2**20 / X.nbytes
    peer = [timed(lambda: LogisticRegression(tol=1e-4).fit(X, y))]
    for _ in range(2 if full else 0):
        mine.append(timed(lambda: solve(X, y, [item], max_iter=150)))
        peer.append(timed(lambda: LogisticRegression(tol=1e-4).fit(X, y)))
    (wall, cpu), (peer_wall, peer_cpu) = (np.min([turn[:2] for turn in turns], axis=0) for turns in (mine, peer))
    error = 100 * mine[0][2].errors[0] / n
    print(
        f"\n{n:,} x 28 float32, close_decay k*=n/1000: {wall:.2f} s wall, {cpu:.2f} processor; LogisticRegression "
        f"{peer_wall:.2f}, {peer_cpu:.2f}: {wall / peer_wall:.1f} times by wall, {cpu / peer_cpu:.1f} by processor "
        f"time; {extra:.2f} times X's memory beyond X; training error {error:.3f} %"
    )
    if full:
        longer = 100 * solve(X, y, [item], max_iter=STEPS).errors[0] / n
        print(f"  1000 steps: {longer:.3f} %, difference {error - longer:+.3f} points")


def sparse_fit(n: int = 20_000, d: int = 100_000, density: float = 0.001) -> None:
    """Text-like sparse data, ten problems at once."""
    from scipy import sparse

    rng, each = np.random.default_rng(0), int(d * density)
    places = np.arange(n).repeat(each), rng.integers(0, d, n * each)
    X = sparse.csr_matrix((rng.random(n * each, dtype=np.float32), places), shape=(n, d))
    y = np.where(X @ rng.normal(size=d) > 0, 1.0, -1.0)
    problems = [Problem(loss, name, None if name == "average" else 100, 0.1) for loss in LOSSES for name in AGGREGATES]
    wall, cpu, found = timed(lambda: solve(X, y, problems, max_iter=150))
    print(
        f"\nCSR {n:,} x {d:,}, {density:.1%}: {len(problems)} problems in {wall:.1f} s ({cpu:.1f} processor), peak "
        f"{memory():.0f} MB in all; training errors {np.round(100 * found.errors / n, 1).tolist()} %"
    )


# --- growth


def growth(plots: Path | None) -> None:
    """Seconds against n, d, k and the number of problems; one fifth of the grid's kinds, 100 steps, none leaves."""
    lines: dict[str, list[tuple[float, float]]] = {"n": [], "d": [], "k": [], "problems": []}

    def run(what: str, at: float, n: int, d: int, k: int, count: int) -> None:
        X, y = million(n, d)
        problems = [Problem("logistic", "close", k, alpha) for alpha in np.geomspace(0.1, 10, count)]
        cpu = timed(lambda: solve(X, y, problems, max_iter=100, tol=0))[1]
        lines[what].append((at, cpu))
        cost = 1e9 * cpu / (100 * n * count)
        print(f"  {what}={at:>10,.0f}: {cpu:8.3f} s, {cost:6.2f} ns per (example x problem x step)")

    for n in (1_000, 10_000, 100_000, 1_000_000, 10_000_000):
        run("n", n, n, 28, n // 10, 1)
    for d in (2, 10, 50, 200, 1000):
        run("d", d, 5_000, d, 500, 8)
    for k in (10, 100, 1_000, 5_000, 9_999):
        run("k", k, 10_000, 28, k, 8)
    for count in (1, 4, 16, 64, 256):
        run("problems", count, 2_000, 28, 200, count)
    if plots is None:
        return
    from matplotlib.figure import Figure

    plots.mkdir(parents=True, exist_ok=True)
    for what, points in lines.items():
        axes = (figure := Figure(figsize=(4, 3), layout="constrained")).subplots()
        axes.loglog(*zip(*points, strict=True), marker="o")
        axes.set(xlabel=what, ylabel="processor seconds, 100 steps", title=f"growth with {what}")
        figure.savefig(plots / f"growth_{what}.png", dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parts: dict[str, Callable[[], None]] = {
        "ratio": lambda: ratio(given.sets),
        "million": lambda: one_large(1_000_000),
        "ten-million": lambda: one_large(10_000_000, full=False),
        "sparse": sparse_fit,
        "growth": lambda: growth(given.plots),
    }
    for name in parts:
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--plots", type=Path, help="a directory for the growth plots")
    parser.add_argument("--sets", nargs="+", default=SETS, help="data sets of --ratio")
    given = parser.parse_args()
    for name in [name for name in parts if getattr(given, name.replace("-", "_"))] or list(parts):
        parts[name]()


if __name__ == "__main__":
    main()

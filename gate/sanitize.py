"""The C kernels under the address and undefined-behaviour sanitizers: random calls and complete solves.

    python -m gate.sanitize --times 100

The package is copied, its kernels are compiled with the sanitizers, and another process, which loads the library of the
sanitizers first, runs the cases. A report ends that process; it is printed, and the exit code is 1. All cases are drawn
from ``--seed``; use ``--first`` to repeat later ones.
"""

import argparse
import ctypes
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from closecall.aggregates import AGGREGATES
from closecall.network import compiled as network_kernel
from closecall.network.grid import train_grid
from closecall.objective import Problem
from closecall.solvers import compiled, path, solve
from closecall.solvers.design import Design
from closecall.solvers.engine import Engine
from closecall.solvers.kernels import make_mass

ROOT = Path(__file__).parents[1]
KERNELS = ("solvers/pull.c", "solvers/path.c", "network/kernel.c")
#: ``__clang__``: without variants for other processors, which have the same source and take a minute to compile. The
#: network's wide vectors have another source, which ``CHOSEN_CLONES`` includes.
WIDE = ["-DCHOSEN_CLONES"] if platform.machine() in ("x86_64", "AMD64") else []
FLAGS = ["-O0", "-g1", "-D__clang__", *WIDE, "-fPIC", "-shared", "-fno-omit-frame-pointer",
         "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]  # fmt: skip
STARTS = ("least_squares", "zeros", "given", "given each")
_SIZES = (1, 2, 3, 7, 16, 31, 63, 64, 65, 127, 128, 129, 200, 700)


def _values(rng: np.random.Generator, rows: int, samples: int, dtype: Any) -> Any:
    """Return negative margins: ordinary, tied, constant, huge, tiny or infinite."""
    values = rng.standard_normal((rows, samples)) * rng.choice([1e-30, 0.01, 1, 30, 1e4, 1e30], (rows, 1))
    kind = rng.integers(5)
    if kind == 0:
        values = np.round(values * 2) / 2
    elif kind == 1:
        values[:] = values[:, :1]
    elif kind == 2:
        values[rng.random(values.shape) < 0.1] = rng.choice([np.inf, -np.inf, 0.0, -0.0, 5e-324, 88.8, -88.8])
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _mass(rng: np.random.Generator, samples: int, general: bool) -> Any:
    mass = rng.random(samples)
    kind = rng.integers(3 if general else 2)
    found = [np.ones(samples), (mass < 0.7) * 1.0, np.ceil(4 * mass) / 2 * rng.choice([1e-8, 1, 1e8])][kind]
    found[rng.integers(samples)] = max(found.max(), 1.0)
    return found


def call(number: int, seed: int) -> None:
    """Call the solver's kernel with several rows of any losses, aggregates and folds."""
    rng = np.random.default_rng([seed, number, 1])
    samples, rows = int(rng.choice(_SIZES)), int(rng.integers(1, 6))
    dtype = np.float32 if rng.random() < 0.5 else np.float64
    aggregate = [str(name) for name in rng.choice(["average", "maximal", "atk", "top", "close"], rows)]
    folds = rng.integers(0, 2, rows)
    masses = [_mass(rng, samples, "top" not in aggregate) for _ in range(2)]
    columns = np.zeros((2, samples), dtype=dtype).T  # not contiguous, so that C computes only pulls
    design = Design(columns, np.ones(2), np.ones(2), np.stack(masses), None, None, "none")
    puller = compiled.Puller(design, [make_mass(mass, dtype) for mass in masses], rows)
    codes = compiled.codes(rng.choice(["logistic", "hinge"], rows), np.array(aggregate), folds)
    total = np.array([masses[fold].sum() for fold in folds])
    k = np.minimum(np.maximum(total * rng.choice([1e-6, 0.01, 0.3, 0.5, 0.99, 1.0], rows), 1e-12), total)
    if rng.random() < 0.5:
        k = np.minimum(np.ceil(k), total)
    hints = rng.standard_normal((rows, 3)) * rng.choice([0.0, 1.0, 1e6])
    hints[rng.random(rows) < 0.4, 2] = -1.0
    bound = compiled.BoundPull(puller, codes, hints)
    for _ in range(2):  # the second call uses the hints of the first
        bound.values[:] = _values(rng, rows, samples, dtype)
        bound.pull(k)


def solution(number: int, seed: int) -> None:
    """Solve a batch of several aggregates and losses on random data; the starts take turns."""
    rng = np.random.default_rng([seed, number, 2])
    n, d = int(rng.integers(4, 80)), int(rng.integers(1, 7))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-3, 4, d)
    X = np.round(X) if rng.random() < 0.2 else X
    X = X.astype(np.float32) if rng.random() < 0.5 else X
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    y[:4] = [-1, 1, -1, 1]
    names = list(rng.choice(sorted(AGGREGATES), 4))
    problems = [
        Problem(str(rng.choice(["logistic", "hinge"])), str(name), k=float(rng.uniform(0.6, 1)), m=0.1,
                alpha=float(10.0 ** rng.integers(-5, 3)))
        for name in names
    ]  # fmt: skip
    start = STARTS[number % len(STARTS)]
    init: Any = start
    if start.startswith("given"):
        shape = (len(problems), d) if start == "given each" else (d,)
        init = rng.standard_normal(shape), rng.standard_normal(shape[:-1])
    folds = np.ones((2, n))
    folds[0, 4 : 4 + n // 4] = 0
    weight = rng.choice([0.5, 1.0, 2.0], n) if rng.random() < 0.4 else None
    solve(X, y, problems, max_iter=int(rng.integers(3, 30)), init=init, folds=folds, fold_of=rng.integers(0, 2, 4),
          sample_weight=weight, fit_intercept=bool(rng.random() < 0.8),
          penalize_intercept=bool(rng.random() < 0.3))  # fmt: skip


def network(number: int, seed: int) -> None:
    """Train a small grid of networks with two or more classes, with or without masses, by wide or narrow vectors."""
    rng = np.random.default_rng([seed, number, 3])
    ctypes.c_int32.in_dll(network_kernel.LIBRARY, "network_held").value = 8 << number % 2
    n, d, classes = int(rng.integers(4, 150)), int(rng.integers(1, 20)), int(rng.integers(2, 5))
    X = rng.standard_normal((n, d)).astype(np.float32)
    y = rng.integers(0, classes, n)
    y[:4] = np.arange(4) % classes
    y = np.where(y == 0, -1, 1) if classes == 2 else y
    names = ["average", "close", "close_decay", "atk", "top", "maximal", "ranked_range", "trimmed"]
    problems = [
        Problem(str(rng.choice(["logistic", "hinge"])), name, k=float(rng.uniform(0.6, 1)), m=0.1, alpha=0.1)
        for name in rng.choice(names, 3)
    ]
    weight = rng.choice([0.5, 1.0, 2.0], n) if rng.random() < 0.4 else None
    train_grid(X, y, problems, max_iter=int(rng.integers(3, 12)), seed=number, sample_weight=weight,
               classes=None if classes == 2 else classes, hidden=int(rng.integers(1, 12)))  # fmt: skip


def paths(number: int, seed: int) -> None:
    """Solve close problems along paths on any rows: tied, constant, huge, without mass, or only two of them."""
    rng = np.random.default_rng([seed, number, 4])
    n, d = int(rng.choice([2, 3, 7, 8, 9, 40, 255, 256, 257, 300])), int(rng.integers(1, 9))
    X = rng.standard_normal((n, d)) * 10.0 ** rng.integers(-8, 9, d)
    X = np.round(X) if rng.random() < 0.3 else X
    X[:, int(rng.integers(d))] *= rng.choice([0.0, 1.0])
    y = np.where(rng.random(n) < 0.5, -1.0, 1.0)
    masses = np.stack([_mass(rng, n, True), np.ones(n)])
    words = rng.integers(0, 1 << 63, n).astype(np.uint64)
    alphas = rng.choice([0.0, 1e-8, 1e-3, 1.0, 1e5], 3)
    problems = [
        Problem(str(rng.choice(["logistic", "hinge"])), "close", float(rng.uniform(0.01, 0.99)), float(alpha))
        for alpha in alphas
    ]
    close = Engine(X, y, masses, words, bool(rng.random() < 0.8), bool(rng.random() < 0.3), 2, int(rng.integers(1, 60)))
    found = close.solve(problems, rng.integers(0, 2, 3), 1e-4)
    if not np.isfinite(found.coef).all():
        raise SystemExit(f"paths {number} of seed {seed}: numbers are not finite")


def planted() -> None:
    """Call the kernel with rows that are longer than its buffers, which the sanitizer must report."""
    column = np.zeros((5, 1))
    design = Design(column, np.ones(1), np.ones(1), np.ones((1, 5)), None, None, "none")
    puller = compiled.Puller(design, [make_mass(np.ones(5), np.float64)], 1)
    codes = compiled.codes(np.array(["logistic"]), np.array(["close"]), np.zeros(1))
    puller.margins = np.random.default_rng(0).standard_normal((1, 50))
    compiled.BoundPull(puller, codes, np.full((1, 3), -1.0)).pull(np.array([20.0]))


def run_cases(times: int, first: int, seed: int) -> None:
    """Run the cases in the process with the sanitizers and print how many there were."""
    place = os.environ["CLOSECALL_SANITIZED"]
    for module in (compiled, path, network_kernel):
        if not str(module.__file__).startswith(place) or module.LIBRARY is None:
            raise SystemExit(f"{module.__file__} is not the sanitized copy in {place}, or has no kernel")
    warnings.simplefilter("ignore")
    for case, count in ((call, 50 * times), (solution, 6 * times), (network, times), (paths, 6 * times)):
        refused, begun = 0, time.perf_counter()
        for number in range(first, first + count):
            try:
                case(number, seed)
            except (ValueError, FloatingPointError):  # other tests check the messages
                refused += 1
        took = time.perf_counter() - begun
        print(f"{case.__name__}: {count} without a report, {refused} of them refused, {took:.0f} s", flush=True)


def runtime() -> str:
    """Return the path of the sanitizer's library, or an empty string if the compiler has none."""
    if shutil.which("cc") is None:
        return ""
    found = subprocess.run(["cc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False).stdout
    path = Path(found.strip())
    return str(path.resolve()) if path.is_absolute() and path.exists() else ""


def build(folder: Path) -> Path:
    """Copy the package with sanitized kernels into ``folder``; return the folder."""
    shutil.copytree(
        ROOT / "src" / "closecall", folder / "closecall", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    for name in KERNELS:
        source = folder / "closecall" / name
        target = source.with_name(f"_{source.stem}.so")
        subprocess.run(["cc", *FLAGS, "-o", str(target), str(source), "-lm"], check=True)
    return folder


def run(place: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Run the cases with the kernels from :func:`build` in another process."""
    environment = {
        **os.environ, "LD_PRELOAD": runtime(), "PYTHONPATH": os.pathsep.join([str(place), str(ROOT)]),
        "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "UBSAN_OPTIONS": "print_stacktrace=1",
        "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "CLOSECALL_SANITIZED": str(place),
    }  # fmt: skip
    command = [sys.executable, "-m", "gate.sanitize", "--inside", *map(str, arguments)]
    return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="50 calls, 6 solves, a grid of networks and 6 paths each")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    if not runtime():
        print("the C compiler has no address sanitizer; nothing was run")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        done = run(build(Path(folder)), given.times, given.first, given.seed)
    print(done.stdout, done.stderr[-6000:], sep="\n")
    return int(done.returncode != 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sys.exit(planted() if sys.argv[2:] == ["planted"] else run_cases(*map(int, sys.argv[2:])))
    sys.exit(main())

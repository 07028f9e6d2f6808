"""Faults and load of fits over partitions: workers killed and schedulers lost at random, and what many fits leave.

    python -m gate.soak_cluster --faults 100 --fits 300

Every fault strikes at a random partition of a random pass. A killed worker must cost nothing but time: the model is
that of the undisturbed fit, bit for bit. A lost scheduler must be a ClusterError. After many fits on one cluster no
task may be left on the scheduler and the driver's memory may not grow.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import os
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import dask.array as da
import distributed
import numpy as np

from closecall.cluster import ClusterError, DaskCloseKClassifier, PassEvent
from closecall.cluster.blocks import make_block
from closecall.cluster.passes import InMemory
from gate.soak_load import resident, slope_of

WORKERS, PARTS = 3, 5
#: KB by which the driver may grow for each fit, beyond three standard errors.
SLOPE = 5.0
SETTINGS: dict[str, Any] = {"k": 0.3, "max_iter": 12, "tol": 0.9, "max_gathered": 0}


def work(address: str) -> None:
    """One worker in this process, without a nanny."""

    async def live() -> None:
        async with distributed.Worker(address, nthreads=1, dashboard=False, silence_logs=50) as worker:
            await worker.finished()

    asyncio.run(live())


def table(seed: int, rows: int = 500) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 3))
    return X, (X @ [1.0, -0.5, 0.2] + rng.normal(size=rows) > 0.2).astype(int)


def undisturbed(X: np.ndarray, y: np.ndarray) -> Any:
    """The same passes in this process."""
    parts = np.array_split(np.arange(len(y)), PARTS)
    return DaskCloseKClassifier(**SETTINGS).fit_source(InMemory([make_block(X[part], y[part]) for part in parts]))


def collections(X: np.ndarray, y: np.ndarray) -> tuple[Any, Any]:
    sizes = tuple(len(part) for part in np.array_split(np.arange(len(y)), PARTS))
    return da.from_array(X, (sizes, 3)), da.from_array(y, (sizes,))


@dataclass
class Cluster:
    """A scheduler in this process, and workers in processes of their own that may be killed."""

    processes: list[Any] = field(default_factory=list)

    def __enter__(self) -> Cluster:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(["closecall.cluster", "distributed"])
        self.inner = distributed.LocalCluster(
            n_workers=0, processes=False, protocol="tcp", host="127.0.0.1", dashboard_address="127.0.0.1:0",
            silence_logs=50,
        )  # fmt: skip
        self.client = distributed.Client(self.inner)
        self.fill()
        return self

    def fill(self) -> None:
        """As many workers as there should be."""
        self.processes = [process for process in self.processes if process.is_alive()]
        while len(self.processes) < WORKERS:
            process = self.context.Process(target=work, args=(self.inner.scheduler_address,), daemon=True)
            process.start()
            self.processes.append(process)
        end = time.monotonic() + 120
        while len(self.client.nthreads()) != WORKERS and time.monotonic() < end:
            time.sleep(0.05)

    def kill(self, number: int) -> None:
        os.kill(self.processes[number % len(self.processes)].pid, signal.SIGKILL)

    def tasks(self) -> int:
        """How many the scheduler still knows, once it had a moment to forget."""
        end = time.monotonic() + 10
        while (left := len(self.inner.scheduler.tasks)) and time.monotonic() < end:
            time.sleep(0.05)
        return left

    def __exit__(self, *_: object) -> None:
        self.client.close()
        self.inner.close()
        for process in self.processes:
            process.kill()
            process.join()


def strike(cluster: Cluster, rng: np.random.Generator) -> tuple[str, str]:
    """One fit with a worker killed somewhere in it: what happened, and what is wrong with it."""
    X, y = table(int(rng.integers(1000)))
    expected, seen = undisturbed(X, y), 0
    when, who = int(rng.integers(1, PARTS * expected.n_passes_)), int(rng.integers(WORKERS))
    phase = ""

    def listen(event: PassEvent) -> None:
        nonlocal seen, phase
        seen += 1
        if seen == when:
            phase = event.phase
            cluster.kill(who)

    model = DaskCloseKClassifier(client=cluster.client, callback=listen, **SETTINGS).fit(*collections(X, y))
    same = np.array_equal(model.coef_, expected.coef_) and model.n_passes_ == expected.n_passes_
    cluster.fill()
    return f"worker killed, {phase}", "" if same else "the model differs"


def lose(rng: np.random.Generator) -> tuple[str, str]:
    """One fit whose scheduler goes away."""
    X, y = table(int(rng.integers(1000)))
    when, seen = int(rng.integers(1, 3 * PARTS)), 0
    inner = distributed.LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0", silence_logs=50)
    client = distributed.Client(inner)

    def leave(_: PassEvent) -> None:
        nonlocal seen
        seen += 1
        if seen == when:
            inner.close()

    try:
        DaskCloseKClassifier(client=client, callback=leave, **SETTINGS).fit(*collections(X, y))
    except ClusterError as error:
        said = "call fit again" in str(error) or "lost a partition" in str(error)
        return "scheduler lost", "" if said else str(error)
    finally:
        client.close()
        inner.close()
    return "scheduler lost", "no error"


def soak(faults: int, fits: int, seed: int = 0) -> tuple[Counter[str], list[str]]:
    """Counts of what was done, and what was not as promised."""
    rng, done, wrong = np.random.default_rng(seed), Counter[str](), list[str]()
    with Cluster() as cluster:
        for _ in range(faults):
            what, bad = strike(cluster, rng)
            done[what] += 1
            wrong += [f"{what}: {bad}"] if bad else []
        sizes = []
        X, y = collections(*table(0))
        for _ in range(fits):
            DaskCloseKClassifier(client=cluster.client, **SETTINGS).fit(X, y)
            sizes.append(resident(os.getpid()))
        done["fits"] += fits
        left = cluster.tasks()
        wrong += [f"{left} tasks are left on the scheduler"] if left else []
    if fits >= 50:
        begin = fits // 5
        slope, error = slope_of(np.arange(begin, fits), np.array(sizes[begin:], dtype=float))
        if slope / 1000 > SLOPE + 3 * error / 1000:
            wrong.append(f"the driver grows by {slope / 1000:.1f} KB a fit")
    for _ in range(max(1, faults // 5)):
        what, bad = lose(rng)
        done[what] += 1
        wrong += [f"{what}: {bad}"] if bad else []
    return done, wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--fits", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    done, wrong = soak(given.faults, given.fits, given.seed)
    for what, count in sorted(done.items()):
        print(f"{what}: {count}")
    for line in wrong:
        print(f"WRONG: {line}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()

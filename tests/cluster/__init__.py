"""Fits over partitions: closecall.cluster."""

from typing import Any

import numpy as np

from closecall.cluster.passes import InMemory, make_block


def table(seed: int, samples: int = 400, features: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return columns with different scales, labels 0 and 1 (some of them wrong), and integer weights."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, features)) * [1.0, 10.0, 0.1, 1.0][:features] + [0.0, 100.0, 0.0, -1.0][:features]
    score = rng.normal(size=features) @ ((X - X.mean(axis=0)) / X.std(axis=0)).T + 0.3
    y = (score + rng.logistic(size=samples) > 0).astype(int)
    y[rng.random(samples) < 0.05] ^= 1
    return X, y, rng.integers(1, 4, samples).astype(float)


def workers(count: int) -> Any:
    """Start a Dask cluster at a loopback address whose workers are threads of this process."""
    import distributed

    return distributed.LocalCluster(
        n_workers=count, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
        dashboard_address="127.0.0.1:0", silence_logs=50,
    )  # fmt: skip


def partitions(X: Any, y: Any, mass: Any, seed: int = 0, parts: int = 4, *, shuffled: bool = True) -> InMemory:
    """Return uneven partitions of the rows, one of them empty."""
    rng = np.random.default_rng(seed)
    ends = np.sort(rng.integers(0, len(y), parts))
    chosen = np.split(rng.permutation(len(y)) if shuffled else np.arange(len(y)), [*ends, ends[-1]])
    return InMemory([make_block(X[part], y[part], mass[part]) for part in chosen])

"""The descent of the paper's released experiments, for its networks: momentum, and a rate that halves.

``src/closecall/network/released.h``, which takes the steps, describes the parts of the authors' code
(github.com/bryan-he/closek, ``experiments``) that affect the result. Two differences: examples that are tied at the
k-th place share it here, and draws are our own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from closecall.aggregates import get_aggregate
from closecall.network import compiled
from closecall.network.data import prepare
from closecall.network.grid import NetworkGrid
from closecall.network.layers import Parameters, Shape, start
from closecall.network.paths import Settings, path_of
from closecall.objective import Problem

from .common import Array


def k_released(step: int, k: float, n: float, steps: int) -> float:
    """k of close decay at a step counted from zero.

    Examples
    --------
    >>> [k_released(step, 10, 100, 9) for step in (0, 2, 3, 5, 6, 8)]
    [100, 100, 100, 40, 10, 10]
    """
    if step < steps // 3:
        return n
    return k + round((n - k) * (2 * steps // 3 - step) / steps * 3) if step < 2 * steps // 3 else k


def train_released(X: Array, y: Array, problems: Sequence[Problem], seeds: Sequence[int], steps: int) -> NetworkGrid:
    """One network for each problem, each started from its own seed.

    Parameters
    ----------
    X : array (samples, features)
    y : array (samples,) in {-1, +1}
    problems : sequence of Problem
        With losses and aggregates that the compiled kernel supports.
    seeds : sequence of int
    steps : int
        The maximum number of steps of a network; all but decay runs end early when they hardly move.

    Returns
    -------
    grid : NetworkGrid
    """
    if compiled.LIBRARY is None:
        raise RuntimeError("the released descent needs the compiled kernel: install closecall with a C compiler")
    data, walk = prepare(X, y, None, None, np.float32), compiled.LIBRARY.network_descend
    walk.restype = ctypes.c_int64
    walk.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p, ctypes.c_int32]
    shape = Shape(X.shape[1], X.shape[1], 1)
    walker = compiled.CompiledWalker(data, shape, Settings(steps, 1.0, True))
    weights = np.concatenate([start(shape, seed).values for seed in seeds]).astype(np.float32)
    taken = []
    for problem, values in zip(problems, weights, strict=True):
        path, decays = path_of(problem, data.total, convex=False), get_aggregate(problem.aggregate).decays
        k = min(path.k, data.total)
        counts = np.array([k_released(step, k, data.total, steps) if decays else k for step in range(steps)], float)
        network = walker.network(values, np.zeros_like(values), np.zeros_like(values), path)
        job, state = ctypes.addressof(walker.job), ctypes.addressof(network.state)
        taken.append(walk(job, state, steps, counts.ctypes.data, int(decays)))
    return NetworkGrid(tuple(problems), Parameters(shape, np.nan_to_num(weights)), np.array(taken))

"""The time of the batched solver for each problem in the grid of one split, compared with scikit-learn.

CLOSECALL_DATA=... python benchmarks/solver.py [monk3 phoneme spambase adult]
"""

from __future__ import annotations

import sys
import warnings
from functools import partial

import numpy as np
from measure import race
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from closecall.objective import Problem
from closecall.solvers import solve
from reproduction.protocol import load_dataset
from reproduction.protocol.grid import ALPHAS
from reproduction.protocol.published import LOSSES
from reproduction.run.cell import grid

STEPS = 1000


def half(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the training part of a split, scaled as in the paper."""
    data = load_dataset(name if name == "monk3" else f"pmlb:{name}", download=False)
    part = np.random.default_rng(0).permutation(len(data.y))[: len(data.y) // 2]
    return StandardScaler().fit_transform(data.X).astype(np.float32)[part], data.signs()[part]


def peers(X: np.ndarray, y: np.ndarray) -> None:
    for alpha in ALPHAS:
        LogisticRegression(C=1 / alpha, max_iter=STEPS).fit(X, y)
        LinearSVC(C=1 / alpha, loss="hinge", max_iter=STEPS).fit(X, y)


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # LinearSVC does not converge with a large C
    averages = [Problem(loss, alpha=alpha) for loss in LOSSES for alpha in ALPHAS]
    for name in sys.argv[1:] or ("monk3", "phoneme", "spambase", "adult"):
        X, y = half(name)
        problems, solved = grid(len(y)), partial(solve, X, y, max_iter=STEPS)
        works = {
            "grid": (len(problems), partial(solved, problems, penalize_intercept=True)),
            "averages": (len(averages), partial(solved, averages)),
            "scikit-learn's averages": (len(averages), partial(peers, X, y)),
        }
        race(f"{name}: {X.shape[0]} x {X.shape[1]}, {len(problems)} problems", works, 3)

"""The time per problem of the grid of one split: linear models, and networks with the option --network.

    CLOSECALL_DATA=... python benchmarks/solver.py [--network] [monk3 phoneme spambase adult]

Linear models are compared with scikit-learn's; networks are trained by compiled code and by torch, for 30 steps.
"""

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
from reproduction.protocol.grid import ALPHAS, grid
from reproduction.protocol.published import LOSSES

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
    names = [word for word in sys.argv[1:] if word != "--network"]
    for name in names or ("monk3", "phoneme", "spambase", "adult"):
        X, y = half(name)
        problems, solved = grid(len(y)), partial(solve, X, y, max_iter=STEPS)
        works = {
            "grid": (len(problems), partial(solved, problems, penalize_intercept=True)),
            "averages": (len(averages), partial(solved, averages)),
            "scikit-learn's averages": (len(averages), partial(peers, X, y)),
        }
        if "--network" in sys.argv:
            import torch

            from closecall import network, nn

            torch.set_num_threads(1)
            trainers = {"kernel": network.train_grid, "torch blocks": nn.train_grid}
            works = {what: (len(problems), partial(t, X, y, problems, max_iter=30)) for what, t in trainers.items()}
        race(f"{name}: {X.shape[0]} x {X.shape[1]}, {len(problems)} problems", works, 3)

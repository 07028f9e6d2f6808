"""Generated tables, clean and contaminated, on which guards are chosen."""

from __future__ import annotations

import numpy as np
from sklearn.datasets import make_circles, make_classification, make_moons

from .common import Array

TESTS = 3000
TROUBLES = ("clean", "far rows", "one class flipped", "flipped")


def generated(seed: int) -> tuple[Array, Array, Array, Array]:
    """Return 120 to 600 training rows (contaminated in three out of four tables) and 3000 test rows, with labels."""
    rng = np.random.default_rng([seed, TESTS])
    rows, trouble = int(rng.choice([120, 200, 350, 600])), TROUBLES[seed % 4]
    total, seeds = rows + TESTS, int(rng.integers(1 << 31))
    if seed % 3 == 0:
        X, y = make_moons(total, noise=rng.uniform(0.1, 0.45), random_state=seeds)
    elif seed % 3 == 1:
        X, y = make_circles(total, noise=rng.uniform(0.05, 0.3), factor=0.5, random_state=seeds)
        X = np.column_stack([X, rng.normal(size=(total, 3))])
    else:
        X, y = make_classification(
            total, int(rng.choice([5, 10, 25])), n_informative=3, n_redundant=1, flip_y=0.02, random_state=seeds,
            n_clusters_per_class=int(rng.integers(1, 3)), class_sep=rng.uniform(0.5, 1.5),
            weights=[rng.uniform(0.3, 0.7)],
        )  # fmt: skip
    X, y = X / X.std(axis=0), y.copy()
    known = np.arange(rows)
    if trouble == "far rows":
        far = known[rng.random(rows) < 0.05]
        X[far] *= 8
        y[far] = 1 - y[far]
    elif trouble != "clean":
        among = known if trouble == "flipped" else known[y[:rows] == 1]
        y[among] = np.where(rng.random(len(among)) < (0.2 if trouble == "flipped" else 0.3), 1 - y[among], y[among])
    return X[:rows], y[:rows], X[rows:], y[rows:]

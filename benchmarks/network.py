"""The training time of the paper's network per problem of a grid: compiled code, and torch one block at a time.

python benchmarks/network.py [STEPS]
"""

import sys
from functools import partial

import numpy as np
from measure import race

from closecall.network import train_grid
from closecall.nn import train_grid as train_blocks
from reproduction.run.cell import grid

#: Training rows and features of half of the data set.
SIZES = {"monk3": (277, 6), "between": (500, 20), "spambase": (2300, 57)}

if __name__ == "__main__":
    import torch

    torch.set_num_threads(1)
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    for name, (samples, features) in SIZES.items():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(samples, features))
        y = np.where(X[:, 0] + rng.normal(size=samples) > 0, 1, -1)
        problems = grid(samples)
        trainers = {"kernel": train_grid, "torch blocks": train_blocks}
        works = {what: (len(problems), partial(t, X, y, problems, max_iter=steps)) for what, t in trainers.items()}
        race(f"{name}: {samples} x {features}, {len(problems)} problems, {steps} steps, 1 thread", works, 5)

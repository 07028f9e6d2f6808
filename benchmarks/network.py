"""The paper's network: the compiled grid compared with torch in blocks, in processor time.

    python benchmarks/network.py [--steps 30] [--rounds 5]

Prints microseconds for each problem and step of the paper's grid of one split, with both losses.
"""

from __future__ import annotations

import argparse
from functools import partial

import numpy as np
import torch
from measure import show, turns

from closecall.network import train_grid
from closecall.nn import train_grid as train_blocks
from reproduction.run.cell import grid

#: Training rows and features of half of the data set.
SIZES = {"monk3": (277, 6), "between": (500, 20), "spambase": (2300, 57)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name, (samples, features) in SIZES.items():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(samples, features))
        y = np.where(X[:, 0] + rng.normal(size=samples) > 0, 1, -1)
        problems, square = grid(samples), rng.random((2000, 2000), dtype=np.float32)
        for train in (train_grid, train_blocks):
            train(X, y, problems[:3], max_iter=3)
        works = {
            "kernel": partial(train_grid, X, y, problems, max_iter=given.steps),
            "torch blocks": partial(train_blocks, X, y, problems, max_iter=given.steps),
            "one product of 2000 x 2000": partial(np.dot, square, square),
        }
        title = f"{name}: {samples} x {features}, {len(problems)} problems, {given.steps} steps, 1 thread"
        show(title, turns(works, given.rounds), 1e6 / len(problems) / given.steps, "µs")


if __name__ == "__main__":
    main()

"""The paper's network: the compiled grid against torch in blocks and one at a time, and whether their errors agree.

    python benchmarks/network.py speed [--steps 30] [--rounds 5] [--plain]
    python benchmarks/network.py agreement --data DIRECTORY [--names ...] [--splits 25] [--steps 200]

DIRECTORY holds the data sets as ``closecall data`` keeps them.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from closecall import Problem
from closecall.network import train_grid
from closecall.network.layers import Shape
from closecall.nn import ResidualMLP, train_grid as train_blocks
from closecall.nn.forms import MARGIN_LOSSES
from reproduction.protocol import load_dataset
from reproduction.protocol.grid import choose, rows_of
from reproduction.protocol.plan import NETWORK_RATES, NETWORK_STEPS, Cell
from reproduction.protocol.splits import PARTS, Division
from reproduction.run.cell import divide, grid

#: Training rows and features of half of the data set.
SIZES = {"monk3": (277, 6), "between": (500, 20), "spambase": (2300, 57)}


def plain_loop(X: np.ndarray, y: np.ndarray, problem: Problem, steps: int) -> None:
    """What people write: one network, autograd, concatenations, a full sort in each step."""
    torch.manual_seed(0)
    model = ResidualMLP(X.shape[1])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    inputs, signs = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    loss, aggregate, k_at, _ = problem.resolve(len(X), steps)
    weights = [layer.weight for layer in (model.first, model.second, model.output)]
    for step in range(1, steps + 1):
        losses = MARGIN_LOSSES[problem.loss](signs * model(inputs)[:, 0])
        k = round(k_at(step))
        if aggregate.name == "average":
            value = losses.sum()
        elif aggregate.name == "top":
            value = losses.sort(descending=True).values[k - 1]
        elif aggregate.name == "atk":
            value = losses.sort(descending=True).values[:k].sum()
        else:
            value = losses[(losses.detach() - loss.threshold).abs().sort().indices[:k]].sum()
        value = value + problem.alpha / 2 * sum(weight.square().sum() for weight in weights)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()


def seconds(function: Any, *arguments: Any, **options: Any) -> float:
    """CPU seconds of a call: with one thread the honest measure on a machine that has other work."""
    begin = time.process_time()
    function(*arguments, **options)
    return time.process_time() - begin


def sgemm_rate(size: int = 384, repeats: int = 10) -> float:
    """Operations a second of NumPy's product of two square float32 matrices."""
    one, two = np.random.default_rng(0).normal(size=(2, size, size)).astype(np.float32)
    one @ two
    return repeats * 2 * size**3 / seconds(lambda: [one @ two for _ in range(repeats)])


def operations(samples: int, features: int) -> float:
    """Of one step of one network where every example pulls: forward, and twice that but for the inputs backward."""
    weights = Shape(features, features, 1).size
    return 2 * samples * (2 * weights + features * features + 2 * features)


def speed(steps: int, rounds: int, plain: bool) -> None:
    """Microseconds per problem and step; in each round all ways take turns, so that they see the same load."""
    print(
        f"the paper's grid of one split, both losses, {steps} steps, 1 thread, {rounds} rounds: median (least) CPU µs"
    )
    for name, (samples, features) in SIZES.items():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(samples, features))
        y = np.where(X[:, 0] + rng.normal(size=samples) > 0, 1, -1)
        problems = grid(samples)
        some = problems[:: max(1, len(problems) // 6)] if plain else []
        for train in (train_grid, train_blocks):
            train(X, y, problems[:3], max_iter=3)
        times: dict[str, list[float]] = {"kernel": [], "torch blocks": [], "plain loop": [], "sgemm": []}
        for _ in range(rounds):
            each = 1e6 / len(problems) / steps
            times["sgemm"].append(1e6 * operations(samples, features) / sgemm_rate())
            times["kernel"].append(each * seconds(train_grid, X, y, problems, max_iter=steps))
            times["torch blocks"].append(each * seconds(train_blocks, X, y, problems, max_iter=steps))
            times["kernel"].append(each * seconds(train_grid, X, y, problems, max_iter=steps))
            times["plain loop"] += [1e6 * seconds(plain_loop, X, y, problem, steps) / steps for problem in some]
        print(f"\n{name}: {samples} x {features}, {len(problems)} problems")
        pairs = np.array(times["kernel"]).reshape(-1, 2).mean(axis=1)
        ratio = np.median(np.array(times["torch blocks"]) / pairs)
        dense = operations(samples, features) / 1e6
        notes = {
            "kernel": f"{ratio:.1f} times faster than torch blocks, median of rounds",
            "sgemm": f"a dense pass at sgemm's rate, {dense / np.median(times['sgemm']) * 1e3:.0f} GFlop/s",
        }
        for way, values in times.items():
            if values:
                print(f"  {way:14} {np.median(values):9.2f} ({min(values):9.2f})   {notes.get(way, '')}")


def errors(parts: Division, steps: int, seed: int, train: Any) -> dict[tuple[str, str], float]:
    """Test error (%) of each (loss, aggregate), alpha and k chosen on the validation part."""
    problems = grid(parts.sizes[0])
    rows = rows_of(problems)
    rate = max(NETWORK_RATES.values())
    trained = train(parts.X[0], parts.y[0], problems, max_iter=steps, seed=seed, learning_rate=rate)
    for part, X, y in zip(PARTS, parts.X, parts.y, strict=True):
        rows[part] = (trained.scores(X) * y > 0).sum(axis=1)
    return {(row["loss"], row["method"]): 100 * (1 - row["test"] / parts.sizes[2]) for row in choose(rows, "sound")}


def agreement(directory: Path, names: list[str], splits: int, steps: int) -> None:
    """Chosen test errors of the kernel and of torch in blocks, on the same splits from the same starts."""
    for name in names:
        data = load_dataset(f"pmlb:{name}", directory, download=False)
        cells = [Cell("pmlb94", data.name, data.checksum, split, "network", "sound") for split in range(splits)]
        divided = [divide(data, cell) for cell in cells]
        both = [
            [errors(parts, steps, seed, train) for seed, parts in enumerate(divided)]
            for train in (train_grid, train_blocks)
        ]
        ours, theirs = (np.array([list(row.values()) for row in rows]) for rows in both)
        gaps = ours.mean(axis=0) - theirs.mean(axis=0)
        noise = (ours - theirs).std(axis=0, ddof=1) / math.sqrt(splits)
        worst = int(np.abs(gaps).argmax())
        print(
            f"{name}, {splits} splits, {steps} steps: kernel {ours.mean():.2f} %, torch {theirs.mean():.2f} %, "
            f"difference {gaps.mean():+.3f}; largest of {len(gaps)} {gaps[worst]:+.2f} ± {noise[worst]:.2f} "
            f"({' '.join(list(both[0][0])[worst])})",
            flush=True,
        )


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("speed", "agreement"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--names", nargs="+", default=["monk3", "phoneme"])
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--plain", action="store_true", help="time the plain loop too")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "speed":
        speed(given.steps or 30, given.rounds, given.plain)
    elif given.data is None:
        parser.error(f"{given.what} needs --data")
    else:
        agreement(given.data, given.names, given.splits, given.steps or NETWORK_STEPS)


if __name__ == "__main__":
    main()

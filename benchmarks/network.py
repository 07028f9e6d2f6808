"""The paper's network: a grid in one batch against one problem at a time, and its errors on real data.

    python benchmarks/network.py speed [--steps 30]
    python benchmarks/network.py accuracy --data DIRECTORY [--names monk3 phoneme] [--splits 5] [--steps 300]

DIRECTORY holds PMLB's files as pmlb/NAME/NAME.tsv.gz.
"""

from __future__ import annotations

import argparse
import gzip
import math
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from closecall import Problem, get_aggregate
from closecall.nn import ResidualMLP, train_grid
from closecall.nn.losses import MARGIN_LOSSES

AGGREGATES = ("close", "close_decay", "atk", "average", "top")
#: Training rows and features of half of the data set.
SIZES = {"monk3": (277, 6), "spambase": (2300, 57)}


def grid_of(samples: int, losses: tuple[str, ...] = ("logistic",)) -> list[Problem]:
    """The paper's grid: eleven alphas, k in {10, 100, ..., n}."""
    ks = sorted({10**power for power in range(1, int(math.log10(samples)) + 1)} | {samples})
    return [
        Problem(loss, aggregate, k if get_aggregate(aggregate).takes else None, 10.0**power)
        for loss in losses
        for aggregate in AGGREGATES
        for k in (ks if get_aggregate(aggregate).takes else [samples])
        for power in range(-5, 6)
    ]


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


def speed(steps: int) -> None:
    """Milliseconds for 1000 steps of a problem; the ways take turns so that all see the same load of the machine."""
    print(f"full logistic grid of one split, {steps} steps, 1 thread; CPU ms per problem for 1000 steps")
    for name, (samples, features) in SIZES.items():
        rng = np.random.default_rng(0)
        X = rng.normal(size=(samples, features))
        y = np.where(X[:, 0] + rng.normal(size=samples) > 0, 1, -1)
        problems = grid_of(samples)
        some = problems[:: max(1, len(problems) // 12)]
        train_grid(X, y, some[:2], max_iter=3)
        plain_loop(X, y, some[0], 3)
        times: dict[str, list[float]] = {"plain loop": [], "one at a time": [], "one batch": []}
        for problem in some:
            times["plain loop"].append(seconds(plain_loop, X, y, problem, steps))
            times["one at a time"].append(seconds(train_grid, X, y, [problem], max_iter=steps))
            if problem in some[:: max(1, len(some) // 3)]:
                batch = seconds(train_grid, X, y, problems, max_iter=steps)
                times["one batch"].append(batch / len(problems))
        print(f"\n{name}: {samples} x {features}, {len(problems)} problems")
        batched = float(np.mean(times["one batch"]))
        for way, values in times.items():
            mean = float(np.mean(values))
            print(f"  {way:14} {1e6 * mean / steps:9.2f} ms   batched is {mean / batched:6.1f} times faster")


def read(directory: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels in {-1, +1} of a PMLB file."""
    with gzip.open(directory / "pmlb" / name / f"{name}.tsv.gz", "rt") as file:
        columns = file.readline().rstrip("\n").split("\t")
        table = np.loadtxt(file, delimiter="\t")
    target = table[:, columns.index("target")]
    return np.delete(table, columns.index("target"), axis=1), np.where(target == target.max(), 1, -1)


def errors_of_split(X: np.ndarray, y: np.ndarray, seed: int, steps: int, loss: str) -> dict[str, float]:
    """Test error of each aggregate; alpha and k are chosen on the validation part, equals go to the larger k."""
    X, X_rest, y, y_rest = train_test_split(X, y, test_size=0.5, stratify=y, random_state=seed)
    parts = train_test_split(X_rest, y_rest, test_size=0.5, stratify=y_rest, random_state=seed)
    scaler = StandardScaler().fit(X)
    problems = grid_of(len(X), (loss,))
    grid = train_grid(scaler.transform(X), y, problems, max_iter=steps, seed=seed)
    held, test = (
        ((grid.scores(scaler.transform(rows)) > 0) == (labels > 0)).mean(axis=1)
        for rows, labels in (parts[::2], parts[1::2])
    )

    def rank(index: int) -> tuple[float, float, float]:
        return held[index], problems[index].k or len(X), problems[index].alpha

    return {
        name: 1 - test[max((row for row, each in enumerate(problems) if each.aggregate == name), key=rank)]
        for name in AGGREGATES
    }


def accuracy(directory: Path, names: list[str], splits: int, steps: int) -> None:
    """Mean test errors and their standard errors; the paired difference of close decay to average."""
    for name in names:
        X, y = read(directory, name)
        for loss in ("logistic", "hinge"):
            begin = time.perf_counter()
            rows = [errors_of_split(X, y, seed, steps, loss) for seed in range(splits)]
            errors = {each: 100 * np.array([row[each] for row in rows]) for each in AGGREGATES}
            root = math.sqrt(splits)
            cells = (f"{each} {values.mean():.2f} ± {values.std(ddof=1) / root:.2f}" for each, values in errors.items())
            gain = errors["close_decay"] - errors["average"]
            print(
                f"{name} {loss}, {splits} splits, {steps} steps, {time.perf_counter() - begin:.0f} s: "
                + ", ".join(cells)
            )
            print(f"    close decay - average: {gain.mean():+.2f} ± {gain.std(ddof=1) / root:.2f} points", flush=True)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("speed", "accuracy"))
    parser.add_argument("--steps", type=int)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--names", nargs="+", default=["monk3", "phoneme"])
    parser.add_argument("--splits", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.what == "speed":
        speed(given.steps or 30)
    elif given.data is None:
        parser.error("accuracy needs --data")
    else:
        accuracy(given.data, given.names, given.splits, given.steps or 300)


if __name__ == "__main__":
    main()

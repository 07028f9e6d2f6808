"""The speed of the batched solver, compared with a plain torch loop and scikit-learn.

    CLOSECALL_DATA=... python benchmarks/solver.py [--sets monk3 phoneme spambase adult] [--million] [--rounds 3]

Prints processor milliseconds for each problem: the full grid of one split and one problem of each kind in a torch loop,
the averages and scikit-learn's LogisticRegression and LinearSVC. With ``--million``: one close-decay fit of
1,000,000 x 28.
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from measure import show, turns
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from closecall.losses import get_loss
from closecall.objective import Problem
from closecall.schedules import decay
from closecall.solvers import solve
from reproduction.protocol import load_dataset
from reproduction.protocol.grid import ALPHAS
from reproduction.protocol.published import LOSSES, METHODS
from reproduction.run.cell import grid

STEPS = 1000


def half(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the training part, scaled as in the paper."""
    data = load_dataset(name if name == "monk3" else f"pmlb:{name}", download=False)
    part = np.random.default_rng(0).permutation(len(data.y))[: len(data.y) // 2]
    return StandardScaler().fit_transform(data.X).astype(np.float32)[part], data.signs()[part]


def torch_problem(X: np.ndarray, y: np.ndarray, item: Problem, rate: float = 1e-3) -> None:
    """Solve one problem in the obvious way, with autograd and a sort at every step."""
    import torch

    torch.set_num_threads(1)
    inputs, signs, n = torch.from_numpy(X), torch.from_numpy(y.astype(np.float32)), len(y)
    w, b = torch.zeros(X.shape[1], requires_grad=True), torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([w, b], lr=rate / n, momentum=0.9)
    threshold = get_loss(item.loss).threshold
    k_at = decay(item.k or n, n, STEPS) if item.aggregate == "close_decay" else lambda step: item.k or n
    for step in range(1, STEPS + 1):
        optimizer.zero_grad()
        margins, k = signs * (inputs @ w + b), int(k_at(step))
        losses = torch.nn.functional.softplus(-margins) if item.loss == "logistic" else torch.relu(1 - margins)
        if item.aggregate == "average":
            value = losses.sum()
        elif item.aggregate == "atk":
            value = torch.sort(losses, descending=True)[0][:k].sum()
        elif item.aggregate == "top":
            value = torch.sort(losses, descending=True)[0][k - 1]
        else:
            value = losses[torch.sort((losses - threshold).abs())[1][:k]].sum()
        (value + item.alpha / 2 * (w @ w)).backward()
        optimizer.step()


def peers(X: np.ndarray, y: np.ndarray) -> None:
    for alpha in ALPHAS:
        LogisticRegression(C=1 / alpha, max_iter=STEPS).fit(X, y)
        LinearSVC(C=1 / alpha, loss="hinge", max_iter=STEPS).fit(X, y)


def ratios(name: str, rounds: int) -> None:
    X, y = half(name)
    problems, some = grid(len(y)), [Problem(loss, each, min(100, len(y)), 1.0) for loss in LOSSES for each in METHODS]
    averages = [Problem(loss, alpha=alpha) for loss in LOSSES for alpha in ALPHAS]
    works = {
        "grid": (len(problems), lambda: solve(X, y, problems, max_iter=STEPS, penalize_intercept=True)),
        "torch loop": (len(some), lambda: [torch_problem(X, y, item) for item in some]),
        "averages": (len(averages), lambda: solve(X, y, averages, max_iter=STEPS)),
        "scikit-learn's averages": (len(averages), lambda: peers(X, y)),
    }
    times = turns({what: work for what, (_, work) in works.items()}, rounds)
    each = {what: [spent / works[what][0] for spent in found] for what, found in times.items()}
    show(f"{name}: {X.shape[0]} x {X.shape[1]}, {len(problems)} problems; for each problem", each)


def million(rounds: int, n: int = 1_000_000, d: int = 28) -> None:
    """Time a fit to a noisy boundary that is not quite linear, with 2 % wrong labels."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    scores = X @ (rng.normal(size=d) / np.sqrt(d)).astype(np.float32) + 0.5 * np.abs(X[:, 0]) - 0.3
    y = np.where(scores + 0.7 * rng.standard_normal(n, dtype=np.float32) > 0, 1.0, -1.0)
    y[: n // 50] *= -1
    item = Problem("logistic", "close_decay", n // 1000, 1.0)
    works = {
        "LogisticRegression": lambda: LogisticRegression(tol=1e-4).fit(X, y),
        "close decay, k* = n/1000": lambda: solve(X, y, [item], max_iter=150),
    }
    show(f"{n:,} x {d} float32", turns(works, rounds), 1, "s")
    print(f"training error {100 * solve(X, y, [item], max_iter=150).errors[0] / n:.3f} %")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="*", default=["monk3", "phoneme", "spambase", "adult"])
    parser.add_argument("--million", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # LinearSVC does not converge with a large C
    for name in () if given.million else given.sets:
        ratios(name, given.rounds)
    if given.million:
        million(given.rounds)


if __name__ == "__main__":
    main()

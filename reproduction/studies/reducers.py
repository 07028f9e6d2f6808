"""Which reducer when: what each gains and loses against the mean, on generated data, in ten seeds.

Its page is a table in docs/guide/reducers.md. The settings of the methods were fixed before the first run and are the
same for all cases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.stats import t as student
from torch import Tensor, nn

from closecall.nn import (
    AggregateLoss,
    AverageLoss,
    AverageTopKLoss,
    CloseKLoss,
    CountSchedule,
    KDecay,
    TiltedLoss,
    TrimmedLoss,
)

from .common import ROOT, Experiment, Row, Settings, lines_of, resume

PAGE = ROOT / "docs" / "guide" / "reducers.md"
BEGIN, END = "<!-- torch-reducers: begin -->\n", "<!-- torch-reducers: end -->"
CE = "cross_entropy"


class Generated(NamedTuple):
    """A case in one seed."""

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    model: nn.Module
    score: Callable[[Tensor, Tensor], float]
    batch: int
    steps: int
    rate: float


def accuracy(predicted: Tensor, targets: Tensor) -> float:
    """Share of right predictions."""
    return float((predicted == targets).float().mean())


def balanced(predicted: Tensor, targets: Tensor) -> float:
    """Mean of the classes' accuracies."""
    return float(np.mean([accuracy(predicted[targets == each], targets[targets == each]) for each in targets.unique()]))


def rare_iou(predicted: Tensor, targets: Tensor) -> float:
    """Intersection over union of class 1."""
    both, either = (predicted == 1) & (targets == 1), (predicted == 1) | (targets == 1)
    return float(both.sum() / either.sum().clamp(min=1))


def blobs(generator: torch.Generator, count: int, shares: list[float], spread: float) -> tuple[Tensor, Tensor]:
    """Classes around corners of a cube in ten dimensions, a third of them noise."""
    targets = torch.multinomial(torch.tensor(shares), count, replacement=True, generator=generator)
    centers = torch.zeros(len(shares), 10)
    for each in range(len(shares)):
        centers[each, each : each + 6] = 1.0
    return centers[targets] + spread * torch.randn(count, 10, generator=generator), targets


def perceptron(outputs: int) -> nn.Module:
    """Two layers, wide enough to learn noise by heart."""
    return nn.Sequential(nn.Linear(10, 128), nn.ReLU(), nn.Linear(128, outputs))


def clean(seed: int) -> Generated:
    """Three classes that overlap; nothing is wrong with them."""
    generator = torch.Generator().manual_seed(seed)
    train, test = blobs(generator, 600, [1.0] * 3, 0.8), blobs(generator, 4000, [1.0] * 3, 0.8)
    return Generated(train, test, perceptron(3), accuracy, 100, 600, 3e-3)


def noise(seed: int) -> Generated:
    """The same with 30 % of the training labels drawn at random."""
    data = clean(seed)
    generator = torch.Generator().manual_seed(seed + 1000)
    inputs, targets = data.train
    wrong = torch.rand(len(targets), generator=generator) < 0.3
    drawn = torch.randint(3, (len(targets),), generator=generator)
    return data._replace(train=(inputs, torch.where(wrong, drawn, targets)))


def imbalance(seed: int) -> Generated:
    """One example in fifty is of the second class; the test set is scored class by class."""
    generator = torch.Generator().manual_seed(seed)
    train, test = blobs(generator, 3000, [0.98, 0.02], 0.7), blobs(generator, 4000, [0.5, 0.5], 0.7)
    return Generated(train, test, perceptron(2), balanced, 100, 600, 3e-3)


def outliers(seed: int) -> Generated:
    """A linear model; 8 % of the training examples lie far on the wrong side."""
    generator = torch.Generator().manual_seed(seed)
    (inputs, targets), test = blobs(generator, 1000, [1.0] * 2, 0.8), blobs(generator, 4000, [1.0] * 2, 0.8)
    far = torch.rand(len(targets), generator=generator) < 0.08
    inputs = torch.where(far[:, None], -20 * (inputs - 0.5), inputs)
    return Generated((inputs, targets), test, nn.Linear(10, 2), accuracy, 100, 600, 1e-2)


def pixels(seed: int) -> Generated:
    """Images with a few small discs: about one pixel in a hundred is of the second class."""
    generator = torch.Generator().manual_seed(seed)
    model = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 2, 5, padding=2))
    return Generated(discs(generator, 48), discs(generator, 32), model, rare_iou, 8, 240, 1e-2)


def discs(generator: torch.Generator, count: int, size: int = 32) -> tuple[Tensor, Tensor]:
    """Images (count, 1, size, size) and their pixels' classes."""
    rows, columns = torch.meshgrid(torch.arange(size), torch.arange(size), indexing="ij")
    targets = torch.zeros(count, size, size, dtype=torch.int64)
    for image in targets:
        for row, column in torch.randint(3, size - 3, (2, 2), generator=generator).tolist():
            image[(rows - row) ** 2 + (columns - column) ** 2 <= 2] = 1
    return targets[:, None] + 0.6 * torch.randn(count, 1, size, size, generator=generator), targets


CASES = {"clean": clean, "label noise": noise, "imbalance": imbalance, "outliers": outliers, "rare pixels": pixels}
#: Name -> (loss given the training targets and the number of steps, its schedule if any).
Made = tuple[AggregateLoss, Any]


def with_decay(loss: AggregateLoss, steps: int) -> Made:
    """Algorithm 1."""
    return loss, KDecay(loss, steps)


def forgetting(loss: AggregateLoss, steps: int) -> Made:
    """A forget rate that rises over the first third."""
    return loss, CountSchedule(loss, steps, count="m", until=1 / 3)


def class_weights(targets: Tensor) -> Tensor:
    """Inverse frequencies, 1 on average over the examples."""
    counts = torch.bincount(targets.flatten()).float()
    return counts.sum() / (len(counts) * counts)


METHODS: dict[str, Callable[[Tensor, int], Made]] = {
    "mean": lambda targets, steps: (AverageLoss(CE), None),
    "mean, class weights": lambda targets, steps: (AverageLoss(CE, weight=class_weights(targets)), None),
    "largest 30 %": lambda targets, steps: (AverageTopKLoss(CE, k=0.3), None),
    "OHEM, p < 0.7": lambda targets, steps: (AverageTopKLoss(CE, min_loss=-math.log(0.7), min_kept=0.05), None),
    "close decay, 50 %": lambda targets, steps: with_decay(CloseKLoss(CE, k=0.5), steps),
    "trimmed, 30 %": lambda targets, steps: forgetting(TrimmedLoss(CE, m=0.3), steps),
    "tilted, t = 1": lambda targets, steps: (TiltedLoss(CE, t=1.0), None),
    "tilted, t = -1": lambda targets, steps: (TiltedLoss(CE, t=-1.0), None),
    "generalised CE": lambda targets, steps: (AverageLoss("generalized_cross_entropy"), None),
}


def score(case: str, method: str, seed: int) -> float:
    """Train one model and score it on the test data."""
    torch.manual_seed(seed)
    data = CASES[case](seed)
    loss, schedule = METHODS[method](data.train[1], data.steps)
    optimizer = torch.optim.Adam(data.model.parameters(), lr=data.rate)
    generator, (inputs, targets) = torch.Generator().manual_seed(seed + 7), data.train
    for _ in range(data.steps):
        rows = torch.randint(len(targets), (data.batch,), generator=generator)
        optimizer.zero_grad()
        loss(data.model(inputs[rows]), targets[rows]).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
    with torch.no_grad():
        return data.score(data.model(data.test[0]).argmax(dim=1), data.test[1])


def run_one(key: Row) -> Row:
    torch.set_num_threads(1)
    return {"score": round(score(key["case"], key["method"], key["seed"]), 5)}


def run(settings: Settings) -> None:
    cases = [case for case in CASES if not settings.sets or case in settings.sets]
    keys = [
        {"case": case, "method": method, "seed": seed}
        for seed in range(settings.splits)
        for case in cases
        for method in METHODS
    ]
    resume(settings, "reducers", keys, run_one)


def table(settings: Settings) -> list[Row]:
    return lines_of(settings, "reducers")


def differences(rows: list[Row]) -> str:
    """Markdown: the mean's score, and every method's paired difference to it with its 95 % interval, in points."""
    found = {(row["case"], row["method"], int(row["seed"])): row["score"] for row in rows}
    cases = [case for case in CASES if any(key[0] == case for key in found)]
    lines = ["| | " + " | ".join(cases) + " |", "|---" * (len(cases) + 1) + "|"]
    for method in METHODS:
        cells = []
        for case in cases:
            base = {key[2]: value for key, value in found.items() if key[:2] == (case, "mean")}
            mine = [100 * (found[case, method, seed] - base[seed]) for seed in base if (case, method, seed) in found]
            if method == "mean":
                cells.append(f"{100 * np.mean(list(base.values())):.1f} %")
            else:
                half = student.ppf(0.975, len(mine) - 1) * np.std(mine, ddof=1) / math.sqrt(len(mine))
                shown = f"{np.mean(mine):+.1f} ± {half:.1f}"
                cells.append(f"**{shown}**" if abs(np.mean(mine)) > half else shown)
        lines.append(f"| {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def page(rows: list[Row], figure: Path) -> str:
    """The guide's page with its table."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + differences(rows) + END + rest.partition(END)[2]


EXPERIMENT = Experiment("reducers", run, table, page, file="../guide/reducers.md")

"""Close-k in a plain PyTorch loop: one line for the loss and one for the schedule.

A linear model is trained on two blobs with outliers, the paper's second difficult case. The outliers tilt the boundary
of the mean; close-k uses them while k is large and drops them as k falls.
"""

import torch
from torch import Tensor, nn

from closecall.nn import AverageLoss, CloseKLoss, KDecay

STEPS = 300


def make_data(seed: int, outliers: int) -> tuple[Tensor, Tensor]:
    """Return two blobs along a line, with positive outliers far on the negative side."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.arange(400) % 2
    inputs = torch.randn(400, 2, generator=generator) + 2.0 * (2 * targets[:, None] - 1)
    inputs[1 : 2 * outliers : 2] = -40.0
    return inputs, targets


def train(loss: CloseKLoss | AverageLoss, decays: bool) -> float:
    """Train a linear model, and return its accuracy on clean test data."""
    torch.manual_seed(0)
    inputs, targets = make_data(seed=0, outliers=24)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = KDecay(loss, total_steps=STEPS) if decays else None
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(model(inputs)[:, 0], targets).backward()
        optimizer.step()
        if schedule is not None:
            schedule.step()
    inputs, targets = make_data(seed=1, outliers=0)
    return float(((model(inputs)[:, 0] > 0) == (targets > 0)).float().mean())


def main() -> dict[str, float]:
    """Return the test accuracies."""
    return {
        "mean": train(AverageLoss(), decays=False),
        "close decay, k = 50 %": train(CloseKLoss(k=0.5), decays=True),
    }


if __name__ == "__main__":
    for name, accuracy in main().items():
        print(f"{name:24} {100 * accuracy:.1f} %")

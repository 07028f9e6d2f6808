"""Imbalanced images and a small CNN: a comparison of the mean and close-k.

The data are synthetic colour images in CIFAR's layout (3 x 16 x 16): four kinds of stripes in noise, each half as
frequent as the previous one. The program prints the accuracy over all test images and over those of the rarest kind;
the test set is balanced.

On these images, close-k gains nothing over the mean; the example shows how to use close-k and what to watch for.
Close-k drops examples far on the wrong side of the boundary, so a rare class must be learned in the first third of the
steps, before k falls. With NOISE = 0.8 this time is too short for three of the four seeds tried, and close-k gives up
the rarest class.
"""

import torch
from torch import Tensor, nn

from closecall.nn import AverageLoss, CloseKLoss, KDecay

SIZE, EPOCHS, BATCH, NOISE = 16, 9, 64, 0.6


def make_images(counts: list[int], seed: int) -> tuple[Tensor, Tensor]:
    """Return images of stripes in four directions, with random phase and colour, in noise."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.repeat_interleave(torch.arange(4), torch.tensor(counts))
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    directions = torch.stack([rows, columns, rows + columns, rows - columns]).float()
    phases = 6.28 * torch.rand(len(targets), 1, 1, generator=generator)
    colours = torch.rand(len(targets), 3, 1, 1, generator=generator)
    stripes = torch.sin(directions[targets] + phases)[:, None] * colours
    return stripes + NOISE * torch.randn(len(targets), 3, SIZE, SIZE, generator=generator), targets


def make_model() -> nn.Module:
    """Return a network of two convolutions, each followed by pooling, and one linear layer."""
    return nn.Sequential(
        nn.Conv2d(3, 12, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(96, 4),
    )


def train(loss: CloseKLoss | AverageLoss, seed: int = 0) -> tuple[float, float]:
    """Train, and return the accuracy over all test images and over the rarest class."""
    torch.manual_seed(seed)
    inputs, targets = make_images([640, 320, 160, 80], seed)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    batches = -(-len(targets) // BATCH)
    schedule = KDecay(loss, EPOCHS * batches) if isinstance(loss, CloseKLoss) else None
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(targets)).split(BATCH):
            optimizer.zero_grad()
            loss(model(inputs[rows]), targets[rows]).backward()
            optimizer.step()
            if schedule is not None:
                schedule.step()
    inputs, targets = make_images([100] * 4, seed + 1000)
    with torch.no_grad():
        right = (model(inputs).argmax(dim=1) == targets).float()
    return float(right.mean()), float(right[targets == 3].mean())


def main() -> dict[str, tuple[float, float]]:
    """Return the test accuracies of both losses, over all classes and over the rarest."""
    return {
        "mean": train(AverageLoss("cross_entropy")),
        "close decay, k = 60 %": train(CloseKLoss("cross_entropy", k=0.6, memory="global")),
    }


if __name__ == "__main__":
    for name, (overall, rarest) in main().items():
        print(f"{name:24} all {100 * overall:.1f} %   rarest class {100 * rarest:.1f} %")

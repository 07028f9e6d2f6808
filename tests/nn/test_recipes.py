"""Common conventions, written by hand, against the reducers that replace them: values and gradients."""

import math
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from closecall import nn  # noqa: E402
from tests.nn.test_as_torch import same  # noqa: E402

F = torch.nn.functional
IGNORED = 255


def segmentation(seed: int) -> tuple[Any, Any]:
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(3, 5, 16, 20, generator=generator, dtype=torch.float64)
    targets = torch.randint(5, (3, 16, 20), generator=generator)
    targets[torch.rand(3, 16, 20, generator=generator) < 0.2] = IGNORED
    return logits, targets


def ohem(logits: Any, targets: Any, chance: float, least: int, by_image: bool = False) -> Any:
    """Average the pixels whose class has less than this probability; if there are too few, the worst pixels."""
    losses, chosen = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none"), []
    for part, labels in zip(losses, targets, strict=True) if by_image else [(losses, targets)]:
        counted = part[labels != IGNORED]
        hard = counted[counted > -math.log(chance)]
        chosen.append(hard if len(hard) >= least else counted.topk(min(least, len(counted))).values)
    return torch.cat(chosen).mean()


def single_shot(logits: Any, targets: Any) -> Any:
    """Sum the losses of all positives and three negatives for each, divided by the number of positives."""
    total, found = 0.0, 0
    for anchors, labels in zip(logits, targets, strict=True):
        losses = F.cross_entropy(anchors.T, labels, reduction="none")
        positive = labels > 0
        rank = losses.detach().masked_fill(positive, -math.inf).argsort(descending=True)
        negative = rank[: min(3 * int(positive.sum()), int((~positive).sum()))]
        total = total + losses[positive].sum() + losses[negative].sum()
        found += int(positive.sum())
    return total / max(found, 1)


def hard(chance: float, least: int, **options: Any) -> Any:
    options |= {"min_loss": -math.log(chance), "min_kept": least, "ignore_index": IGNORED}
    return nn.AverageTopKLoss("cross_entropy", **options)


@pytest.mark.parametrize("seed", range(5))
def test_conventions_of_segmentation(seed: int) -> None:
    logits, targets = segmentation(seed)
    for chance, least in ((0.7, 50), (0.001, 200), (0.001, 100_000), (0.9999, 1)):
        same(hard(chance, least), partial(ohem, chance=chance, least=least), logits, targets)
    for chance, least in ((0.7, 20), (0.0005, 60)):
        same(hard(chance, least, dim=(1, 2)), partial(ohem, chance=chance, least=least, by_image=True), logits, targets)


@pytest.mark.parametrize("seed", range(5))
def test_single_shot_mining(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    loss = nn.HardNegativesLoss("cross_entropy", ratio=3, dim=1, reduction="sum")
    for rate in (0.02, 0.1, 0.4):
        logits = torch.randn(4, 6, 100, generator=generator, dtype=torch.float64)
        targets = torch.randint(1, 6, (4, 100), generator=generator)
        targets[torch.rand(4, 100, generator=generator) > rate] = 0
        same(
            lambda leaf, targets: loss(leaf, targets) / (targets > 0).sum().clamp(min=1),
            lambda leaf, targets: single_shot(leaf, targets) + 0 * leaf.sum(),
            logits,
            targets,
        )

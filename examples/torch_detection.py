"""Object detection: hard negative mining with three negatives for each positive.

The generated images have a few bright or dark spots. Every fourth pixel is an anchor; its class is that of the spot on
which it lies, or background. The mean over all anchors is dominated by background. ``HardNegatives`` keeps every
positive and three times as many of the hardest negatives, image by image, and divides by the number of positives, as
single-shot detectors do. The program prints the share of spots found with the right class and the false alarms per
image.

With ``--processes 2`` the batches are divided between two processes, with the same result.
"""

import argparse
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from closecall.nn import HardNegatives, logit_losses

SIZE, IMAGES, BATCH, STEPS, STRIDE = 32, 64, 8, 80, 4


def make_images(seed: int) -> tuple[Tensor, Tensor]:
    """Return images (images, 1, size, size) and classes (images, anchors): 0 is background, 1 bright and 2 dark."""
    generator = torch.Generator().manual_seed(seed)
    inputs = 0.5 * torch.randn(IMAGES, 1, SIZE, SIZE, generator=generator)
    cells = SIZE // STRIDE
    targets = torch.zeros(IMAGES, cells, cells, dtype=torch.int64)
    for image, anchors in zip(inputs, targets, strict=True):
        for row, column in torch.randint(cells, (2, 2), generator=generator).tolist():
            kind = int(torch.randint(1, 3, (), generator=generator))
            spot = slice(STRIDE * row + 1, STRIDE * row + 3), slice(STRIDE * column + 1, STRIDE * column + 3)
            image[0][spot] += 1.0 if kind == 1 else -1.0
            anchors[row, column] = kind
    return inputs, targets.flatten(1)


def total(positives: Tensor, group: Any) -> Tensor:
    """Return the number of positives in the joint batch."""
    found = positives.sum().float()
    if group is not None:
        dist.all_reduce(found)
    return found.clamp(min=1)


def train(mined: bool, group: Any, rank: int, world: int) -> tuple[float, float]:
    """Train, and return the share of spots found in new images and the false alarms per image."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 12, 3, padding=1), nn.ReLU(), nn.Conv2d(12, 3, STRIDE, stride=STRIDE), nn.Flatten(2)
    )
    network = model if group is None else nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    ratio = 3.0 if mined else float(SIZE * SIZE)  # with a ratio this large every negative is kept
    reducer = HardNegatives(ratio, dim=1, reduction="sum" if mined else "mean", group=group)
    (inputs, targets), generator = make_images(seed=0), torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        rows = torch.randint(IMAGES, (BATCH,), generator=generator).tensor_split(world)[rank]
        positives = targets[rows] > 0
        value = reducer(logit_losses("cross_entropy", network(inputs[rows]), targets[rows]).losses, positives=positives)
        optimizer.zero_grad()
        (value / total(positives, group) if mined else value).backward()
        optimizer.step()
    inputs, targets = make_images(seed=1000)
    with torch.no_grad():
        predicted = model(inputs).argmax(dim=1)
    spots = targets > 0
    return float((predicted == targets)[spots].float().mean()), float((predicted > 0)[~spots].sum() / IMAGES)


def work(rank: int, world: int, folder: str) -> None:
    """Train in one of several processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    results = main("world", rank, world)
    if rank == 0:
        show(results)
    dist.destroy_process_group()


def main(group: Any = None, rank: int = 0, world: int = 1) -> dict[str, tuple[float, float]]:
    """Return the share of spots found and the false alarms, both with the mean and with mining."""
    return {name: train(mined, group, rank, world) for name, mined in (("mean", False), ("mined 3:1", True))}


def show(results: dict[str, tuple[float, float]]) -> None:
    """Print the results."""
    for name, (found, alarms) in results.items():
        print(f"{name:12} found {100 * found:.2f} %   false alarms {alarms:.3f} per image")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=1)
    processes = parser.parse_args().processes
    if processes == 1:
        show(main())
    else:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, args=(processes, folder), nprocs=processes)

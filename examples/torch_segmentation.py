"""Segmentation of rare pixels: a comparison of online hard example mining in each image with the mean.

The generated images contain small discs in noise, about one pixel in a hundred; the borders of the images are not
labelled. A pixel is hard if the probability of its true class is below 0.7; at least 32 pixels per image count as hard.
This rule is usually implemented by hand; here, unlabelled pixels are also left out of the ranking. The program prints
the intersection over union of the rare class.

With ``--processes 2`` the batches are divided between two processes, with the same result.
"""

import argparse
import math
import tempfile
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from closecall.nn import AggregateLoss, AverageLoss, AverageTopKLoss

SIZE, IMAGES, BATCH, STEPS, IGNORED = 32, 64, 8, 80, 255


def make_images(seed: int) -> tuple[Tensor, Tensor]:
    """Return images (images, 1, size, size) and the classes of their pixels; the outermost pixels have no label."""
    generator = torch.Generator().manual_seed(seed)
    rows, columns = torch.meshgrid(torch.arange(SIZE), torch.arange(SIZE), indexing="ij")
    targets = torch.zeros(IMAGES, SIZE, SIZE, dtype=torch.int64)
    for image in targets:
        for row, column in torch.randint(3, SIZE - 3, (2, 2), generator=generator).tolist():
            image[(rows - row) ** 2 + (columns - column) ** 2 <= 2] = 1
    inputs = targets[:, None] + 0.5 * torch.randn(IMAGES, 1, SIZE, SIZE, generator=generator)
    edge = torch.ones(SIZE, SIZE, dtype=torch.bool)
    edge[1:-1, 1:-1] = False
    return inputs, targets.masked_fill(edge, IGNORED)


def losses(group: Any) -> dict[str, AggregateLoss]:
    """Return the two losses; in a group of processes, both select and average over the joint batch."""
    return {
        "mean": AverageLoss("cross_entropy", ignore_index=IGNORED, group=group),
        "hard pixels by image": AverageTopKLoss(
            "cross_entropy", min_loss=-math.log(0.7), min_kept=32, dim=(1, 2), ignore_index=IGNORED, group=group
        ),
    }


def train(loss: AggregateLoss, group: Any, rank: int, world: int) -> float:
    """Train, and return the intersection over union of the discs in new images."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 2, 5, padding=2))
    network = model if group is None else nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    (inputs, targets), generator = make_images(seed=0), torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        rows = torch.randint(IMAGES, (BATCH,), generator=generator).tensor_split(world)[rank]
        optimizer.zero_grad()
        loss(network(inputs[rows]), targets[rows]).backward()
        optimizer.step()
    inputs, targets = make_images(seed=1000)
    with torch.no_grad():
        found, there = model(inputs).argmax(dim=1) == 1, targets == 1
    found &= targets != IGNORED
    return float((found & there).sum() / (found | there).sum())


def work(rank: int, world: int, folder: str) -> None:
    """Train in one of several processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world)
    results = main("world", rank, world)
    if rank == 0:
        show(results)
    dist.destroy_process_group()


def main(group: Any = None, rank: int = 0, world: int = 1) -> dict[str, float]:
    """Return the intersection over union for each loss."""
    return {name: train(loss, group, rank, world) for name, loss in losses(group).items()}


def show(results: dict[str, float]) -> None:
    """Print the results."""
    for name, value in results.items():
        print(f"{name:24} IoU {100 * value:.2f} %")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=1)
    processes = parser.parse_args().processes
    if processes == 1:
        show(main())
    else:
        with tempfile.TemporaryDirectory() as folder:
            torch.multiprocessing.spawn(work, args=(processes, folder), nprocs=processes)

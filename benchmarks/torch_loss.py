"""The cost of close-k in PyTorch, and how well mini-batches with a memory agree with the full batch.

python benchmarks/torch_loss.py [ROUNDS]
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from measure import race
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from closecall.nn import Average, AverageTopK, CloseK, functional

LOG2 = functional.LOG2


def forward_and_backward(size: int, rounds: int) -> None:
    """Time the value and gradient of torch's mean, a hand-written topk and our reducers, for ``size`` losses."""
    generator = torch.Generator().manual_seed(0)
    losses = (-torch.log(torch.rand(size, generator=generator))).requires_grad_()
    mass = torch.rand(size, generator=generator) + 0.5
    k = size // 10
    largest, close, average = AverageTopK(k), CloseK(k, threshold=LOG2), Average()

    def both(reduce: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def run() -> None:
            losses.grad = None
            reduce(losses).backward()

        return run

    def close_by_hand(values: Tensor) -> Tensor:
        return values[(values.detach() - LOG2).abs().topk(k, largest=False).indices].mean()

    candidates: dict[str, Callable[[], object]] = {
        "largest, topk by hand": both(lambda values: values.topk(k).values.mean()),
        "close, topk by hand": both(close_by_hand),
        "torch.mean": both(lambda values: values.mean()),
        "Average": both(average),
        "AverageTopK": both(largest),
        "AverageTopK, mass": both(lambda values: largest(values, mass=mass)),
        "CloseK": both(close),
        "CloseK, mass": both(lambda values: close(values, mass=mass)),
    }
    for run in candidates.values():
        run()
    works = {name: (1, run) for name, run in candidates.items()}
    race(f"forward and backward, {k:,} of {size:,} losses (float32, CPU)", works, rounds * (1 if size > 10_000 else 40))


def agreement(memory_size: int | None, learning_rate: float, batch: int, samples: int = 2048) -> float:
    """Return the Jaccard index between the selections in mini-batches and those from all data, over three epochs."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(samples, 10, generator=generator)
    targets = (inputs[:, 0] + 0.7 * torch.randn(samples, generator=generator) > 0).float()
    torch.manual_seed(0)
    model = nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=learning_rate)
    full = CloseK(0.1, threshold=LOG2)
    memory = {} if memory_size is None else {"memory": "global", "memory_size": memory_size}
    reducer = CloseK(0.1, threshold=LOG2, **memory)  # type: ignore[arg-type]
    both = torch.zeros(2)
    for epoch in range(4):
        for rows in torch.randperm(samples, generator=generator).split(batch):
            with torch.no_grad():
                all_losses = binary_cross_entropy_with_logits(model(inputs)[:, 0], targets, reduction="none")
            losses = binary_cross_entropy_with_logits(model(inputs[rows])[:, 0], targets[rows], reduction="none")
            ours, theirs = reducer.weights(losses) > 0, full.weights(all_losses)[rows] > 0
            if epoch:
                both += torch.tensor([(ours & theirs).sum(), (ours | theirs).sum()])
            optimizer.zero_grad()
            reducer(losses).backward()
            optimizer.step()
    return float(both[0] / both[1])


def memory_table() -> None:
    """Print the agreement with the full-batch selection, by memory size, batch size and learning rate."""
    sizes = (None, 128, 512, 1024, 2048, 8192)
    print("\nagreement (Jaccard) with full-batch selection, 2048 examples, k = 10 %; columns: memory_size")
    print(f"{'batch':>6} {'lr':>5} " + " ".join(f"{'none' if size is None else size:>7}" for size in sizes))
    for batch in (32, 128):
        for rate in (0.02, 0.1, 0.3):
            values = (agreement(size, rate, batch) for size in sizes)
            print(f"{batch:6} {rate:5.2f} " + " ".join(f"{value:7.3f}" for value in values))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread, processor time")
    for size in (64, 1024, 100_000, 1_000_000):
        forward_and_backward(size, int(sys.argv[1]) if len(sys.argv) > 1 else 15)
    memory_table()

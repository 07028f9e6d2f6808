"""The cost of close-k in PyTorch: ``python benchmarks/torch_loss.py [ROUNDS]``."""

import sys
from collections.abc import Callable

import torch
from measure import race
from torch import Tensor

from closecall.nn import Average, AverageTopK, CloseK, functional

LOG2 = functional.LOG2


def forward_and_backward(size: int, rounds: int) -> None:
    """Time the value and gradient of torch's mean, a hand-written topk and our reducers, for ``size`` losses."""
    generator = torch.Generator().manual_seed(0)
    losses = (-torch.log(torch.rand(size, generator=generator))).requires_grad_()
    mass = torch.rand(size, generator=generator) + 0.5
    k = size // 10
    largest, close = AverageTopK(k), CloseK(k, threshold=LOG2)

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
        "Average": both(Average()),
        "AverageTopK": both(largest),
        "AverageTopK, mass": both(lambda values: largest(values, mass=mass)),
        "CloseK": both(close),
        "CloseK, mass": both(lambda values: close(values, mass=mass)),
    }
    for run in candidates.values():
        run()
    works = {name: (1, run) for name, run in candidates.items()}
    race(f"forward and backward, {k:,} of {size:,} losses (float32, CPU)", works, rounds * (1 if size > 10_000 else 40))


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"torch {torch.__version__}, 1 thread, processor time")
    for size in (64, 1024, 100_000, 1_000_000):
        forward_and_backward(size, int(sys.argv[1]) if len(sys.argv) > 1 else 15)

"""What close-k costs in PyTorch, side by side in one run: the selection, a training step, and the memory's agreement.

python benchmarks/torch_loss.py [--repeats 15] [--threads 1]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from closecall.nn import CloseK, CloseKLoss, functional

LOG2 = functional.LOG2


def interleaved(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Seconds of each function, taking turns so that a busy moment of the machine hits all of them.

    With one thread it is CPU time, which other work on the machine disturbs least.
    """
    clock = time.process_time if torch.get_num_threads() == 1 else time.perf_counter
    times: dict[str, list[float]] = {name: [] for name in functions}
    for function in functions.values():
        function()
    for _ in range(repeats):
        for name, function in functions.items():
            begin = clock()
            function()
            times[name].append(clock() - begin)
    return times


def show(title: str, times: dict[str, list[float]]) -> None:
    """Best and median milliseconds, and the median of the paired ratios to the first."""
    first = next(iter(times.values()))
    print(f"\n{title}\n{'':34} {'best ms':>9} {'median ms':>10} {'ratio to first':>15}")
    for name, values in times.items():
        ratio = statistics.median(mine / theirs for mine, theirs in zip(values, first, strict=True))
        print(f"{name:34} {1e3 * min(values):9.2f} {1e3 * statistics.median(values):10.2f} {ratio:15.3f}")


def selection(size: int, repeats: int) -> None:
    """Weights of the close calls among ``size`` losses; what people write first, then ours."""
    losses = -torch.log(torch.rand(size, generator=torch.Generator().manual_seed(0)))
    mass = torch.randint(1, 4, (size,), generator=torch.Generator().manual_seed(1)).float()
    k = size // 10

    def sort_and_mask() -> Tensor:
        chosen = (losses - LOG2).abs().sort().indices[:k]
        return torch.zeros_like(losses).index_fill_(0, chosen, 1.0)

    def topk_and_mask() -> Tensor:
        chosen = (losses - LOG2).abs().topk(k, largest=False).indices
        return torch.zeros_like(losses).index_fill_(0, chosen, 1.0)

    def kthvalue() -> Tensor:
        keys = (losses - LOG2).abs()
        return (keys <= keys.kthvalue(k).values).to(losses.dtype)

    candidates: dict[str, Callable[[], object]] = {
        "torch.sort and mask": sort_and_mask,
        "torch.topk and mask": topk_and_mask,
        "torch.kthvalue and compare": kthvalue,
        "closecall, ties share": lambda: functional.weights("close", losses, k=k, threshold=LOG2),
        "closecall, with sample weights": lambda: functional.weights("close", losses, k=k, mass=mass, threshold=LOG2),
    }
    times = interleaved(candidates, repeats)
    show(f"selection of {k:,} of {size:,} losses (float32, CPU)", times)
    faster = statistics.median(times["torch.sort and mask"]) / statistics.median(times["closecall, ties share"])
    print(f"closecall is {faster:.1f} times faster than sort and mask")


def training_step(repeats: int) -> None:
    """One step of a 784-512-512-10 network at batch 8192, with the mean and with close-k."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    inputs, targets = torch.randn(8192, 784), torch.randint(10, (8192,))
    reducer, loss = CloseK(k=0.1, threshold=LOG2), CloseKLoss("cross_entropy", k=0.1)

    def step(value_of: Callable[[Tensor], Tensor]) -> Callable[[], None]:
        def run() -> None:
            optimizer.zero_grad()
            value_of(model(inputs)).backward()
            optimizer.step()

        return run

    candidates: dict[str, Callable[[], object]] = {
        "mean": step(lambda logits: cross_entropy(logits, targets)),
        "CloseK(k=0.1)": step(lambda logits: reducer(cross_entropy(logits, targets, reduction="none"))),
        "CloseKLoss('cross_entropy', k=0.1)": step(lambda logits: loss(logits, targets)),
    }
    show("training step, 784-512-512-10, batch 8192", interleaved(candidates, repeats))


def agreement(memory_size: int | None, learning_rate: float, batch: int, samples: int = 2048) -> float:
    """Jaccard index between what mini-batches select and what the full data would, over three epochs."""
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
    """Agreement with the full-batch selection by memory size, batch size and step size."""
    sizes = (None, 128, 512, 1024, 2048, 8192)
    print("\nagreement (Jaccard) with full-batch selection, 2048 examples, k = 10 %; columns: memory_size")
    print(f"{'batch':>6} {'lr':>5} " + " ".join(f"{'none' if size is None else size:>7}" for size in sizes))
    for batch in (32, 128):
        for rate in (0.02, 0.1, 0.3):
            values = (agreement(size, rate, batch) for size in sizes)
            print(f"{batch:6} {rate:5.2f} " + " ".join(f"{value:7.3f}" for value in values))


def main() -> None:
    """Run everything and print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    print(f"torch {torch.__version__}, {given.threads} thread(s), {'CPU' if given.threads == 1 else 'wall'} time")
    for size in (10_000, 1_000_000):
        selection(size, given.repeats)
    training_step(given.repeats)
    memory_table()


if __name__ == "__main__":
    main()

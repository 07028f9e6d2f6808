"""Selection over processes with gloo, against one process with the joint batch."""

import contextlib
import math
import multiprocessing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

import torch.distributed as dist  # noqa: E402
import torch.multiprocessing as mp  # noqa: E402

from closecall import nn  # noqa: E402
from closecall.aggregates import AGGREGATES, spectrum  # noqa: E402
from closecall.nn.distributed import ordered_bits  # noqa: E402

if not dist.is_available() or not dist.is_gloo_available():
    pytest.skip("this PyTorch has no gloo backend", allow_module_level=True)

LOG2 = math.log(2)
OWN, WEIGHT = "my_spectrum", torch.linspace(0.2, 3.0, 5)
#: Every reducer and option: name -> what makes it, given the group. Losses are (samples, 6), or 5 classes on a line.
OPTIONS: dict[str, Any] = {
    "average": lambda group: nn.Average(group=group),
    "maximal": lambda group: nn.Maximal(group=group),
    "top": lambda group: nn.TopK(k=4, group=group),
    "atk": lambda group: nn.AverageTopK(k=0.37, group=group),
    "ranked_range": lambda group: nn.RankedRange(k=0.5, m=2, group=group),
    "trimmed": lambda group: nn.Trimmed(m=3, group=group),
    "close": lambda group: nn.CloseK(k=7, reduction="sum", threshold=LOG2, group=group),
    "close_decay": lambda group: nn.CloseK(k=0.2, threshold=LOG2, group=group),
    "close remembered": lambda group: nn.CloseK(k=0.2, memory="global", memory_size=400, threshold=LOG2, group=group),
    "each sample": lambda group: nn.AverageTopK(k=2, dim=1, group=group),
    "each column": lambda group: nn.AverageTopK(k=0.3, dim=0, group=group),
    "each column close": lambda group: nn.CloseK(k=4, threshold=LOG2, dim=0, reduction="sum", group=group),
    "min_loss": lambda group: nn.AverageTopK(min_loss=0.8, min_kept=5, group=group),
    "min_kept": lambda group: nn.AverageTopK(min_loss=90.0, min_kept=0.1, group=group),
    "min_loss each sample": lambda group: nn.AverageTopK(min_loss=0.8, min_kept=2, dim=1, group=group),
    "3:1": lambda group: nn.HardNegatives(3, group=group),
    "3:1 each sample": lambda group: nn.HardNegatives(1, min_kept=1, dim=1, group=group),
    "tilted": lambda group: nn.Tilted(1.5, group=group),
    "tilted down": lambda group: nn.Tilted(-2.0, reduction="sum", group=group),
    "tilted each column": lambda group: nn.Tilted(1.5, dim=0, group=group),
    "human": lambda group: nn.Spectrum("human(0.4,0.3)", group=group),
    "superquantile each column": lambda group: nn.Spectrum("superquantile(0.6,0.2)", dim=0, group=group),
    "own spectrum": lambda group: nn.Spectrum(OWN, group=group),
    "soft atk": lambda group: nn.AverageTopK(k=0.2, temperature=0.1, group=group),
    "soft close": lambda group: nn.CloseK(k=0.2, threshold=LOG2, temperature=0.1, group=group),
    "soft trimmed each column": lambda group: nn.Trimmed(m=3, temperature=0.1, dim=0, group=group),
    "drop": lambda group: nn.AverageTopK(k=0.2, nonfinite="drop", group=group),
    "dropped by rank": lambda group: nn.Trimmed(m=40, group=group),
    "propagate": lambda group: nn.Trimmed(m=40, nonfinite="propagate", group=group),
    "cosine": lambda group: nn.AverageTopK(k=7, group=group),
    "rising m": lambda group: nn.Trimmed(m=0.4, group=group),
    "logits": lambda group: nn.CloseKLoss("cross_entropy", k=0.3, ignore_index=9, label_smoothing=0.1, group=group),
    "weighted logits": lambda group: nn.CloseKLoss("cross_entropy", k=0.3, ignore_index=9, weight=WEIGHT, group=group),
    "weighted logits remembered": lambda group: nn.CloseKLoss(
        k=0.3, memory="global", memory_size=300, ignore_index=9, weight=WEIGHT, group=group
    ),
    "weighted tilted logits": lambda group: nn.TiltedLoss(t=0.7, ignore_index=9, weight=WEIGHT, group=group),
}


@contextlib.contextmanager
def own_spectrum() -> Iterator[None]:
    """Register a user's spectrum among the aggregates, and remove it again."""
    AGGREGATES[OWN] = spectrum(OWN, lambda u: np.minimum(u / 0.4, 1.0), convex=True)
    yield
    del AGGREGATES[OWN]


@own_spectrum()
def option(name: str, world: int, rank: int | None = None, group: Any = None) -> tuple[list[float], Any]:
    """Return values and gradients of one option on random batches, as one of several processes or alone."""
    reducer, values, gradients = OPTIONS[name](group), [], []
    schedule = {"cosine": {"shape": "cosine"}, "rising m": {"count": "m"}, "close_decay": {"until": 0.7}}.get(name)
    moving = None if schedule is None else nn.CountSchedule(reducer, 4, **schedule)  # type: ignore[arg-type]
    for step in range(6):
        generator = torch.Generator().manual_seed(step)
        parts, dtype = sizes(world, step + 1), (torch.float32, torch.float64)[step % 2]
        shape = (sum(parts), 6)
        inputs = torch.randn(*shape, 5, generator=generator, dtype=dtype)
        targets, mask = torch.randint(5, shape, generator=generator), torch.rand(shape, generator=generator) < 0.8
        mask[: parts[0]] &= step != 4  # no example counts on the first process
        mask &= step != 5  # or on any process
        weight = torch.linspace(0.5, 1.5, 5, dtype=dtype, requires_grad=True)
        # Losses are computed once for the joint batch and then divided: losses of a slice may differ in the last bit,
        # which would break ties. There are no ties among logits, whose losses the module computes.
        if "logits" in name:
            given = (inputs * weight).movedim(-1, 1), targets.where(mask, 9)
        else:
            losses = torch.nn.functional.softplus((inputs.round(decimals=1) * weight).sum(dim=-1))
            if name in ("drop", "dropped by rank", "propagate"):
                losses = losses.masked_fill((inputs[..., 0] > 1.9) & mask, math.inf)
            given = losses, mask, targets == 0, (1 + targets) / 2
        if rank is not None:
            given = tuple(each.split(parts)[rank] for each in given)
        if "logits" in name:
            value = reducer(*given)
        else:
            more = {"positives": given[2]} if isinstance(reducer, nn.HardNegatives) else {}
            value = reducer(given[0], mask=given[1], mass=given[3] if step % 3 else None, **more)
        (gradient,) = torch.autograd.grad(value, weight)
        if group is not None:  # what DistributedDataParallel does
            dist.all_reduce(gradient, group=group)
            gradient /= world
        values.append(value.item())
        gradients.append(gradient.double())
        if moving is not None:
            moving.step()
    return values, torch.stack(gradients)


def sizes(world: int, step: int) -> list[int]:
    """Return uneven parts of the joint batch, some of them empty."""
    return [0 if step % 5 == 3 and rank == step % world else 8 + 5 * rank + (step + rank) % 4 for rank in range(world)]


def work(rank: int, folder: str) -> None:
    """Run all options and errors in groups of two and three processes, as one of three processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=3)
    found: dict[str, Any] = {}
    for world, group in ((2, dist.new_group([0, 1])), (3, dist.group.WORLD)):
        if rank < world:
            found.update({f"{name} {world}": option(name, world, rank, group) for name in OPTIONS})
    for bad in (math.nan, math.inf):
        try:
            nn.AverageTopK(k=1, group="world")(torch.tensor([1.0, bad if rank == 0 else 2.0]))
        except ValueError as error:
            found[f"error {bad}"] = str(error)
    losses = torch.rand(4, requires_grad=True)
    (slope,) = torch.autograd.grad(nn.Tilted(1.0, group="world")(losses), losses, create_graph=True)
    try:
        torch.autograd.grad(slope.sum(), losses)
    except RuntimeError as error:
        found["error second"] = str(error)
    memory = nn.CloseK(k=0.5, memory="global", memory_size=8, threshold=0.0, group="world")
    for step in range(3):
        memory(torch.arange(rank + 1, dtype=torch.float32) + 10 * rank + 100 * step)
    found["memory"] = memory.memory.keys[0].tolist()
    torch.save(found, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("gloo")
    multiprocessing.set_forkserver_preload(["closecall.nn"])  # PyTorch is imported once, not in each process
    mp.start_processes(work, args=(str(folder),), nprocs=3, start_method="forkserver")
    return [torch.load(folder / f"{rank}.pt", weights_only=True) for rank in range(3)]


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("name", OPTIONS)
def test_options_over_several_processes_are_those_of_one(name: str, world: int, found: list[dict[str, Any]]) -> None:
    values, gradients = option(name, world)
    assert math.isfinite(sum(values))
    assert values[-1] == 0
    assert gradients[:4].abs().sum() > 0
    for each in found[:world]:
        their_values, their_gradients = each[f"{name} {world}"]
        assert their_values == pytest.approx(values, rel=1e-6, abs=1e-6)
        torch.testing.assert_close(their_gradients, gradients, rtol=1e-6, atol=1e-6)


def test_what_is_wrong_on_one_process_raises_on_all(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert "NaN" in each["error nan"]
        assert "infinite" in each["error inf"]
        assert "no second derivatives" in each["error second"]


def test_every_process_remembers_the_last_examples_of_all(found: list[dict[str, Any]]) -> None:
    # The processes have one, two and three examples in each step; their memories are equal, so any one may save it.
    for each in found:
        assert sorted(each["memory"]) == [121, 122, 200, 210, 211, 220, 221, 222]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_ordered_bits_sort_like_floats(dtype: Any) -> None:
    values = torch.tensor([-math.inf, -1e30, -2.0, -1e-42, -0.0, 0.0, 1e-42, 2.0, 1e30, math.inf], dtype=dtype)
    bits = ordered_bits(values)
    assert bits[4] == bits[5]
    assert (bits.diff()[[0, 1, 2, 3, 5, 6, 7, 8]] > 0).all()


def test_without_a_process_group_the_message_says_what_to_call() -> None:
    with pytest.raises(RuntimeError, match="init_process_group"):
        nn.CloseK(k=1, threshold=LOG2, group="world")(torch.rand(3))

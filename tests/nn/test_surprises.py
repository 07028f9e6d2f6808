"""Behaviour of the reducers that once surprised users, because it was wrong or an error."""

import math
import subprocess
import sys
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from torch.nn.functional import binary_cross_entropy_with_logits  # noqa: E402

from closecall import nn  # noqa: E402
from tests.nn.test_modules import REDUCERS  # noqa: E402

LOG2 = math.log(2)
EVERY = REDUCERS | {"tilted": nn.Tilted(1.0), "human": nn.Spectrum("human(0.4,0.3)")}


def seeded(seed: int = 0) -> Any:
    return torch.Generator().manual_seed(seed)


def closest(distances: Any, k: int) -> set[int]:
    return set(distances.argsort()[:k].tolist())


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_close_calls_of_ten_classes_are_those_of_the_top_two_margin(smoothing: float, weighted: bool) -> None:
    logits = torch.randn(200, 10, generator=seeded(), requires_grad=True)
    targets = torch.randint(10, (200,), generator=seeded(1))
    weight = torch.linspace(0.1, 5, 10) if weighted else None
    nn.CloseKLoss("cross_entropy", k=20, weight=weight, label_smoothing=smoothing)(logits, targets).backward()
    others = logits.detach().clone()
    others[torch.arange(200), targets] = -math.inf
    margin = logits.detach()[torch.arange(200), targets] - others.amax(dim=1)
    expected = closest((torch.log1p(torch.exp(-margin)) - LOG2).abs(), 20)
    assert set(logits.grad.abs().sum(dim=1).nonzero().ravel().tolist()) == expected


@pytest.mark.parametrize("loss", ["binary_cross_entropy", "logistic"])
def test_pos_weight_does_not_move_the_boundary(loss: str) -> None:
    logits = (3 * torch.randn(300, generator=seeded())).requires_grad_()
    targets = (torch.rand(300, generator=seeded(1)) < 0.3).float()
    value = nn.CloseKLoss(loss, k=30, pos_weight=torch.tensor(9.0))(logits, targets)
    value.backward()
    margin = logits.detach() * (2 * targets - 1)
    expected = closest((torch.log1p(torch.exp(-margin)) - LOG2).abs(), 30)
    assert set(logits.grad.nonzero().ravel().tolist()) == expected
    losses = binary_cross_entropy_with_logits(logits, targets, pos_weight=torch.tensor(9.0), reduction="none")
    assert value.item() == pytest.approx(losses[sorted(expected)].mean().item(), rel=1e-6)


@pytest.mark.parametrize("name", [name for name in EVERY if name != "close"])
def test_a_batch_of_nothing_but_ignored_pixels_has_loss_and_gradient_zero(name: str) -> None:
    logits = torch.randn(2, 3, 4, 4, generator=seeded(), requires_grad=True)
    value = nn.AggregateLoss(EVERY[name], "cross_entropy", ignore_index=255)(logits, torch.full((2, 4, 4), 255))
    value.backward()
    assert value.item() == 0
    assert torch.equal(logits.grad, torch.zeros_like(logits))


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_an_ignored_pixel_holds_does_not_matter(name: str, bad: float) -> None:
    clean, targets = torch.randn(2, 3, 4, 4, generator=seeded()), torch.randint(3, (2, 4, 4), generator=seeded(1))
    targets[0, :2] = -1
    loss = nn.AggregateLoss(EVERY[name], "cross_entropy", ignore_index=-1)
    spoilt = torch.where((targets == -1)[:, None], bad, clean).requires_grad_()
    value = loss(spoilt, targets)
    value.backward()
    assert value.item() == loss(clean, targets).item()
    assert torch.isfinite(spoilt.grad).all()


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_gradscaler_run_goes_on_after_a_loss_that_is_not_finite(bad: float) -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    reducer = nn.AverageTopK(0.5, nonfinite="propagate")
    before = model.weight.detach().clone()
    for step in range(2):
        losses = model(torch.randn(8, 3, generator=seeded(step)))[:, 0].square()
        losses = losses * torch.where(torch.arange(8) == 2, bad if step == 0 else 1.0, 1.0)
        optimizer.zero_grad()
        scaler.scale(reducer(losses)).backward()
        scaler.step(optimizer)
        scaler.update()
        if step == 0:
            assert torch.equal(model.weight, before)
            assert scaler.get_scale() == 2.0
    assert not torch.equal(model.weight, before)
    assert torch.isfinite(model.weight).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_a_last_batch_smaller_than_k_is_taken_whole(weighted: bool) -> None:
    losses = torch.rand(5, generator=seeded())
    mass = torch.ones(5) if weighted else None
    for reducer in (nn.CloseK(8, threshold=0.5), nn.AverageTopK(8), nn.RankedRange(8, 0)):
        for run in (reducer, torch.compile(reducer, backend="aot_eager", fullgraph=True)):
            assert run(losses, mass=mass).item() == pytest.approx(losses.mean().item(), rel=1e-6)
        torch._dynamo.reset()
    assert nn.TopK(8)(losses, mass=mass).item() == losses.min().item()
    assert nn.Trimmed(m=8)(losses, mass=mass).item() == 0


def test_the_memory_of_a_bfloat16_model_stays_exact() -> None:
    losses = torch.rand(40, generator=seeded())
    plain = nn.CloseK(0.2, threshold=0.5, memory="global", memory_size=64)
    half = nn.CloseK(0.2, threshold=0.5, memory="global", memory_size=64).bfloat16()
    assert half.memory.keys.dtype == torch.float32
    assert half(losses.bfloat16()).item() == plain(losses.bfloat16()).item()
    assert torch.equal(half.memory.keys, plain.memory.keys)


def test_a_checkpoint_of_the_model_is_enough_to_resume_a_schedule() -> None:
    def make() -> tuple[Any, Any]:
        model = torch.nn.ModuleDict({"net": torch.nn.Linear(2, 1), "loss": nn.CloseKLoss("logistic", k=3)})
        return model, nn.KDecay(model["loss"], 12)

    model, schedule = make()
    for _ in range(6):
        schedule.step()
    checkpoint = {name: value.clone() for name, value in model.state_dict().items()}
    second, resumed = make()
    second.load_state_dict(checkpoint)
    assert resumed.last_step == 6
    assert resumed.k_at(30) == schedule.k_at(30) < 30
    losses = torch.rand(30, generator=seeded())
    weights = [each["loss"].reducer.weights(losses, closeness=losses).tolist() for each in (model, second)]
    assert weights[0] == weights[1]
    late = nn.CloseKLoss("logistic", k=3)  # the schedule is attached after the state is loaded
    late.load_state_dict({name.removeprefix("loss."): each for name, each in checkpoint.items() if "loss" in name})
    assert nn.KDecay(late, 12).k_at(30) == schedule.k_at(30)
    old = {name: value for name, value in checkpoint.items() if "step" not in name}  # saved without steps
    second.load_state_dict(old)


def test_the_length_of_a_run_may_change_when_it_is_resumed() -> None:
    first = nn.KDecay(nn.CloseK(3, threshold=0.5), 12)
    for _ in range(6):
        first.step()
    longer = nn.KDecay(nn.CloseK(3, threshold=0.5), 99)
    longer.load_state_dict(first.state_dict())
    assert (longer.last_step, longer.total_steps) == (6, 99)
    assert longer.k_at(30) == 30


def test_the_first_selection_does_not_import_the_compiler() -> None:
    code = (
        "import sys, torch, closecall.nn as nn; before = set(sys.modules); "
        "nn.TopK(2)(torch.rand(9, requires_grad=True)).backward(); nn.CloseK(2, threshold=1.0)(torch.rand(9)); "
        "print(sorted(name for name in set(sys.modules) - before if 'dynamo' in name or 'inductor' in name))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"


def test_average_is_the_mean_and_nothing_else() -> None:
    losses = torch.rand(9, requires_grad=True)
    assert nn.Average()(losses).grad_fn.name() == losses.mean().grad_fn.name()
    assert nn.Average(reduction="sum")(losses).grad_fn.name() == losses.sum().grad_fn.name()

"""Reducers, losses on logits, KDecay and the global memory."""

import itertools
import math
from typing import Any

import pytest

from closecall.schedules import decay

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from closecall import nn  # noqa: E402
from closecall.nn import functional  # noqa: E402

LOG2 = math.log(2)
#: One reducer of each kind; other test files use them too.
REDUCERS = {
    "average": nn.Average(),
    "maximal": nn.Maximal(),
    "top": nn.TopK(3),
    "atk": nn.AverageTopK(0.3),
    "close": nn.CloseK(5, threshold=0.5),
    "ranked_range": nn.RankedRange(6, 2),
    "trimmed": nn.Trimmed(m=0.2),
}


def random_losses(*shape: int, seed: int = 0, **options: Any) -> Any:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), **options)


@pytest.mark.parametrize(
    ("made", "name", "counts"),
    [
        (nn.CloseKLoss, "close", {"k": 6}),
        (nn.AverageTopKLoss, "atk", {"k": 0.5}),
        (nn.TopKLoss, "top", {"k": 2}),
        (nn.MaximalLoss, "maximal", {}),
        (nn.AverageLoss, "average", {}),
        (nn.RankedRangeLoss, "ranked_range", {"k": 9, "m": 4}),
        (nn.TrimmedLoss, "trimmed", {"m": 0.25}),
    ],
)
def test_losses_on_logits(made: Any, name: str, counts: dict[str, Any]) -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(12, 3, 2, requires_grad=True), torch.randint(3, (12, 2))
    for loss in ("log_loss", "hinge", "top_two_focal", "softmax_focal", "cross_entropy", "generalized_cross_entropy"):
        module = made(loss, **counts)
        found = nn.logit_losses(loss, logits, targets)
        assert module(logits, targets) == functional.aggregate(name, found.losses, closeness=found.closeness, **counts)
        assert f"loss='{loss}'" in repr(module)
        (gradient,) = torch.autograd.grad(module(logits, targets), logits)
        assert gradient.abs().sum() > 0


ROWS, THREE = torch.linspace(0, 1, 12).reshape(3, 4), torch.tensor([0, 1, 2])
BAD: list[tuple[Any, str]] = [
    (lambda: nn.Average(3), "Average takes no k"),
    (lambda: nn.CloseK(1.5), r"k=1\.5 is not a fraction"),
    (lambda: nn.CloseKLoss("hinge", k=-1), "k=-1 is too small"),
    (lambda: nn.RankedRange(3, 4), "m=4 leaves no examples"),
    (lambda: nn.Maximal(reduction="median"), "reduction='median'"),
    (lambda: nn.CloseKLoss("square", k=1), "choose one of"),
    (lambda: nn.CloseK(0.1, memory="local"), "memory='local'"),
    (lambda: nn.CloseK(5, memory="global"), "pass data_size"),
    (lambda: nn.KDecay(nn.CloseK(3), 12).load_state_dict({"last_step": 1}), "total_steps missing"),
    (lambda: nn.KDecay(nn.Average(), 5), "has a k"),
    (lambda: nn.KDecay(nn.CloseK(3), 0), "total_steps=0"),
    (lambda: nn.CountSchedule(nn.AverageTopK(3), 5, count="m"), "has a m"),
    (lambda: nn.CountSchedule(nn.AverageTopK(3), 5, warmup=0.8, until=0.2), "must satisfy 0 <= warmup"),
    (lambda: nn.CountSchedule(nn.AverageTopK(3), 5, shape="steps"), "milestones are required"),
    (lambda: nn.CountSchedule(nn.AverageTopK(3), 5, shape="square"), "choose one of"),
    (lambda: nn.CloseK(k=0.1)(ROWS), r"threshold=math.log\(2\).*closeness.*CloseKLoss"),
    (lambda: functional.close_k(ROWS, 0.1), "threshold"),
    *((lambda made=made: made(torch.tensor(0.7)), "reduction='none'") for made in REDUCERS.values()),
    (lambda: nn.Average()(ROWS, mask=torch.ones(3, 4)), "mask must be boolean"),
    (lambda: nn.AverageTopK(1, dim=3)(ROWS), r"dim=3 does not fit losses of shape \(3, 4\)"),
    (lambda: nn.AverageTopK(1, nonfinite="ignore"), "nonfinite"),
    (lambda: nn.AverageTopK(1, temperature=0.0), "temperature=0"),
    (lambda: nn.Maximal(temperature=0.1), "Maximal has no setting temperature"),
    (lambda: nn.AverageTopK(min_loss=math.nan), "min_loss=nan"),
    (lambda: nn.CloseK(0.1, dim=1, memory="global"), "omit dim and temperature"),
    (lambda: nn.HardNegatives()(ROWS, positives=torch.ones(3, 4)), "positives must be boolean"),
    (lambda: nn.AverageLoss("cross_entropy", pos_weight=torch.tensor(2.0))(ROWS, THREE), "takes no pos_weight"),
    (lambda: nn.AverageLoss("hinge", weight=torch.ones(3))(ROWS[:, 0], THREE > 0), r"weight needs shape \(2,\)"),
    (lambda: nn.AverageLoss("binary_cross_entropy")(ROWS[:, 0], THREE / 1.0), r"lie in \[0, 1\]"),
]


def test_bad_settings_are_explained() -> None:
    for call, message in BAD:
        with pytest.raises((ValueError, TypeError), match=message):
            call()


@pytest.mark.parametrize("size", [5, 8])
def test_kdecay_is_algorithm_1(size: int) -> None:
    losses = random_losses(size, dtype=torch.float64)
    for k, total_steps in itertools.product([1, 2, 5, 0.35, None], range(1, 14)):
        reducer = nn.CloseK(k, threshold=LOG2)
        schedule = nn.KDecay(reducer, total_steps)
        k_star = reducer.resolve(size)[0]
        for step in range(1, total_steps + 3):
            expected = decay(k_star, size, total_steps)(min(step, total_steps))
            assert schedule.k_at(size) == expected
            assert reducer.weights(losses).sum().item() == pytest.approx(expected, abs=1e-12)
            schedule.step()


SHAPES: dict[str, Any] = {
    "linear": (lambda u: 1 - u, {"shape": "linear"}),
    "cosine": (lambda u: (1 + math.cos(math.pi * u)) / 2, {"shape": "cosine"}),
    "own": (lambda u: (1 - u) ** 3, {"shape": lambda u: (1 - u) ** 3}),
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("warmup", "until"), [(0.0, 1.0), (0.25, 0.75), (0.5, 0.5)])
@pytest.mark.parametrize("count", ["k", "m"])
@pytest.mark.parametrize("start", [None, 40, 0.6])
def test_a_count_follows_its_formula(shape: str, warmup: float, until: float, count: str, start: Any) -> None:
    remains, options = SHAPES[shape]
    reducer = nn.AverageTopK(0.13) if count == "k" else nn.Trimmed(m=0.13)
    schedule = nn.CountSchedule(reducer, 20, count=count, start=start, warmup=warmup, until=until, **options)
    losses = torch.rand(77, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    first = {None: 77 if count == "k" else 0, 40: 40, 0.6: 0.6 * 77}[start]
    last = 0.13 * 77
    for step in range(1, 24):
        done = min(step, 20) / 20
        part = 1.0 if done <= warmup else remains((done - warmup) / (until - warmup)) if done < until else 0.0
        part = 0.0 if done >= until else part
        expected = last + (first - last) * part
        assert schedule.count_at(77) == pytest.approx(expected, abs=1e-6)
        taken = reducer.weights(losses).sum().item()
        assert taken == pytest.approx(expected if count == "k" else 77 - expected, abs=1e-6)
        schedule.step()


def test_steps_and_two_counts_at_once() -> None:
    reducer = nn.RankedRange(20, 10)
    k = nn.CountSchedule(reducer, 10, shape="steps", milestones=[0.3, 0.6], start=100)
    m = nn.CountSchedule(reducer, 10, count="m", until=0.5)
    losses = torch.rand(100, generator=torch.Generator().manual_seed(0))
    seen = []
    for _ in range(10):
        seen.append((k.count_at(100), m.count_at(100)))
        assert reducer.weights(losses).sum().item() == pytest.approx(seen[-1][0] - seen[-1][1])
        assert torch.compile(reducer, backend="eager")(losses).item() == pytest.approx(reducer(losses).item(), rel=1e-5)
        k.step()
        m.step()
    torch._dynamo.reset()
    assert [each[0] for each in seen] == [100.0] * 3 + [60.0] * 3 + [20.0] * 4
    assert [each[1] for each in seen] == [2.0, 4.0, 6.0, 8.0] + [10.0] * 6
    assert set(reducer.state_dict()) == {"k_step", "m_step"}
    assert "k_schedule='CountSchedule'" in repr(reducer)


def test_a_compiled_step_is_not_compiled_again_as_k_decays() -> None:
    reducer = nn.CloseK(0.1, threshold=LOG2)
    schedule = nn.KDecay(reducer, 30)
    graphs = []

    def count(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(reducer, fullgraph=True, dynamic=True, backend=count)
    for step in range(30):
        losses = random_losses(100 + step)
        torch.testing.assert_close(compiled(losses), reducer(losses))
        schedule.step()
    assert len(graphs) == 1
    torch._dynamo.reset()


def test_memory_of_one_epoch_is_the_full_batch_selection() -> None:
    losses = 2 * random_losses(96, dtype=torch.float64)
    full = nn.CloseK(0.25, threshold=LOG2).weights(losses)
    for k in (0.25, 24):
        reducer = nn.CloseK(k, memory="global", data_size=96, threshold=LOG2).double()
        total = 0.0
        for epoch in range(2):
            for batch in losses.split(16):
                value = reducer(batch)
                total += epoch * value.item() / 6
        assert torch.equal(torch.cat([reducer.weights(batch) for batch in losses.split(16)]) > 0, full > 0)
        # The mean over the batches of an epoch is the mean of the full batch: each divides by the expected weight.
        assert total == pytest.approx((full * losses).sum().item() / 24, rel=1e-9)


def test_memory_is_saved_and_left_alone_in_evaluation() -> None:
    reducer = nn.CloseK(0.2, memory="global", memory_size=64, threshold=LOG2)
    for seed in range(3):
        reducer(random_losses(16, seed=seed))
    state = {name: value.clone() for name, value in reducer.state_dict().items()}
    assert set(state) == {"memory.keys", "memory.mass", "memory.divisor", "memory.position"}
    batch = random_losses(16, seed=9)
    without = {name: value for name, value in state.items() if "divisor" not in name}  # as older versions saved it
    for given in (state, without):
        other = nn.CloseK(0.2, memory="global", memory_size=64, threshold=LOG2)
        other.load_state_dict(given)
        for divisor in (None, torch.ones(16)):
            assert torch.equal(other.eval()(batch, divisor=divisor), reducer.eval()(batch))
    assert all(torch.equal(value, state[name]) for name, value in reducer.state_dict().items())
    with pytest.raises(ValueError, match="NaN"):
        reducer.train()(torch.tensor([math.nan]))
    assert all(torch.equal(value, state[name]) for name, value in reducer.state_dict().items())


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_nothing_is_remembered_without_gradients(without: Any) -> None:
    """A validation loop may leave the loss in training mode, as a Trainer always does."""
    seen, shown = random_losses(48), 9 + random_losses(48, seed=1)
    remembering, spoilt = (nn.CloseK(0.2, memory="global", memory_size=64, threshold=LOG2) for _ in range(2))
    for batch, other in zip(seen.split(16), shown.split(16), strict=True):
        values = remembering(batch), spoilt(batch)
        assert values[0] == values[1]
        with without():
            looked = spoilt(other)
        assert looked == remembering.eval()(other)
        remembering.train()
    assert torch.equal(remembering.memory.keys, spoilt.memory.keys)
    assert torch.equal(remembering.memory.position, spoilt.memory.position)


def test_a_batch_larger_than_the_memory_is_ranked_by_itself() -> None:
    losses = random_losses(65)
    reducer = nn.CloseK(0.2, memory="global", memory_size=64, threshold=LOG2)
    reducer(random_losses(10, seed=1))
    with pytest.warns(UserWarning, match="a batch of 65 examples exceeds memory_size=64"):
        value = reducer(losses)
    torch.testing.assert_close(value, nn.CloseK(0.2, threshold=LOG2)(losses))
    assert torch.equal(reducer.memory.keys[0], (losses[1:] - math.log(2)).abs())


def test_memory_counts_mass_and_decays() -> None:
    losses, mass = random_losses(40), torch.randint(0, 3, (40,), generator=torch.Generator().manual_seed(1)).float()
    reducer = nn.CloseK(0.2, memory="global", data_size=40, threshold=LOG2)
    schedule = nn.KDecay(reducer, 9)
    reducer(losses, mass=mass)
    assert torch.equal(reducer.memory.mass[0], mass)
    for _ in range(8):
        schedule.step()
    twice = nn.CloseK(0.2, threshold=LOG2).weights(losses, mass=mass)
    torch.testing.assert_close(reducer(losses, mass=mass), (twice * losses).sum() / twice.sum())

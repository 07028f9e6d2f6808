"""Reducers, losses on logits, KDecay and the global memory."""

from __future__ import annotations

import math
from typing import Any

import pytest

from closecall.schedules import decay

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from closecall import nn  # noqa: E402
from closecall.nn import functional  # noqa: E402

LOG2 = math.log(2)
#: One of each kind; tests of other files ask for them here.
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


@pytest.mark.parametrize("name", REDUCERS)
def test_a_reducer_is_its_function(name: str) -> None:
    reducer, losses, mass = REDUCERS[name], random_losses(4, 5), random_losses(4, 5, seed=1) + 0.5
    more = {"k": reducer.k, "m": reducer.m, "threshold": 0.5, "mass": mass}
    assert reducer(losses, mass=mass) == functional.aggregate(name, losses, **more)
    assert torch.equal(reducer.weights(losses, mass=mass), functional.weights(name, losses, **more))
    assert "reduction='mean'" in repr(reducer)


def test_the_one_liner() -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(40, 2, requires_grad=True), torch.randint(2, (40,))
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    nn.CloseK(k=0.1, threshold=LOG2)(losses).backward()
    assert (logits.grad.abs().sum(dim=1) > 0).sum() == 4


@pytest.mark.parametrize(
    "loss", ["log_loss", "hinge", "top_two_focal", "softmax_focal", "cross_entropy", "generalized_cross_entropy"]
)
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
def test_losses_on_logits(made: Any, name: str, counts: dict[str, Any], loss: str) -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(12, 3, 2, requires_grad=True), torch.randint(3, (12, 2))
    module = made(loss, **counts)
    found = nn.logit_losses(loss, logits, targets)
    expected = functional.aggregate(name, found.losses, closeness=found.closeness, **counts)
    assert module(logits, targets) == expected
    assert f"loss='{loss}'" in repr(module)
    module(logits, targets).backward()
    assert logits.grad.abs().sum() > 0


def test_close_calls_of_many_classes_are_near_ties_not_middling_losses() -> None:
    # Ten classes: the first example is a near tie of all (loss log 10), the second is right with loss near log 2.
    logits = torch.zeros(2, 10)
    logits[0, 0], logits[1, 0] = 0.01, 2.2
    targets = torch.tensor([0, 0])
    losses = torch.nn.functional.cross_entropy(logits, targets, reduction="none")
    assert nn.CloseK(1, threshold=LOG2).weights(losses).tolist() == [0.0, 1.0]
    assert nn.CloseKLoss("cross_entropy", k=1)(logits, targets) == losses[0]


def test_ignored_targets_weigh_nothing() -> None:
    torch.manual_seed(0)
    logits, targets = torch.randn(5, 3, 4, 4), torch.randint(3, (5, 4, 4))
    targets[:, 0] = -100
    kept = targets != -100
    module = nn.CloseKLoss("cross_entropy", k=0.5, ignore_index=-100)
    expected = nn.CloseKLoss("cross_entropy", k=0.5)(logits.movedim(1, -1)[kept], targets[kept])
    torch.testing.assert_close(module(logits, targets), expected)
    torch.testing.assert_close(module(logits, targets, mass=torch.full((5, 4, 4), 2.0)), expected)


def test_bad_settings_are_explained() -> None:
    with pytest.raises(TypeError, match="Average takes no k"):
        nn.Average(3)
    with pytest.raises(ValueError, match=r"k=1\.5 is not a fraction"):
        nn.CloseK(1.5)
    with pytest.raises(ValueError, match="k=-1 is too small"):
        nn.CloseKLoss("hinge", k=-1)
    with pytest.raises(ValueError, match="m=4 leaves nothing"):
        nn.RankedRange(3, 4)
    with pytest.raises(ValueError, match="reduction='median'"):
        nn.Maximal(reduction="median")
    with pytest.raises(ValueError, match="choose one of"):
        nn.CloseKLoss("square", k=1)
    with pytest.raises(ValueError, match="memory='local'"):
        nn.CloseK(0.1, memory="local")
    with pytest.raises(ValueError, match="give data_size"):
        nn.CloseK(5, memory="global")


@pytest.mark.parametrize("k", [1, 2, 5, 0.35, None])
@pytest.mark.parametrize("size", [5, 8])
def test_kdecay_is_algorithm_1(k: Any, size: int) -> None:
    losses = random_losses(size, dtype=torch.float64)
    for total_steps in range(1, 14):
        reducer = nn.CloseK(k, threshold=LOG2)
        schedule = nn.KDecay(reducer, total_steps)
        k_star = reducer.resolve(size)[0]
        for step in range(1, total_steps + 3):
            expected = decay(k_star, size, total_steps)(min(step, total_steps))
            assert schedule.k_at(size) == expected
            assert reducer.weights(losses).sum().item() == pytest.approx(expected, abs=1e-12)
            schedule.step()


def test_kdecay_saves_and_loads() -> None:
    losses = random_losses(30)
    first = nn.KDecay(nn.CloseK(3, threshold=LOG2), 12)
    for _ in range(6):
        first.step()
    second = nn.KDecay(nn.CloseK(3, threshold=LOG2), 12)
    second.load_state_dict(first.state_dict())
    assert torch.equal(first.reducer.weights(losses), second.reducer.weights(losses))
    assert second.k_at(30) == first.k_at(30) < 30
    with pytest.raises(ValueError, match="total_steps missing"):
        second.load_state_dict({"last_step": 1})
    with pytest.raises(TypeError, match="has a k"):
        nn.KDecay(nn.Average(), 5)
    with pytest.raises(ValueError, match="total_steps=0"):
        nn.KDecay(nn.CloseK(3, threshold=LOG2), 0)


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
        # The mean over an epoch's batches is the full batch's mean: each divides by the weight to be expected.
        assert total == pytest.approx((full * losses).sum().item() / 24, rel=1e-9)


def test_memory_is_saved_and_left_alone_in_evaluation() -> None:
    reducer = nn.CloseK(0.2, memory="global", memory_size=64, threshold=LOG2)
    for seed in range(3):
        reducer(random_losses(16, seed=seed))
    state = {name: value.clone() for name, value in reducer.state_dict().items()}
    assert set(state) == {"memory.keys", "memory.mass", "memory.divisor", "memory.position"}
    other = nn.CloseK(0.2, memory="global", memory_size=64, threshold=LOG2)
    other.load_state_dict(state)
    batch = random_losses(16, seed=9)
    assert torch.equal(other.eval()(batch), reducer.eval()(batch))
    assert all(torch.equal(value, state[name]) for name, value in reducer.state_dict().items())
    with pytest.raises(ValueError, match="NaN"):
        reducer.train()(torch.tensor([math.nan]))
    assert all(torch.equal(value, state[name]) for name, value in reducer.state_dict().items())


@pytest.mark.parametrize("without", [torch.no_grad, torch.inference_mode])
def test_nothing_is_remembered_without_gradients(without: Any) -> None:
    """A validation loop that forgets to put the loss in evaluation mode, as a Trainer cannot but do."""
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


def test_a_memory_that_was_saved_without_divisors_is_read() -> None:
    reducer = nn.CloseK(0.2, memory="global", memory_size=64, threshold=LOG2)
    reducer(random_losses(16))
    old = {name: value for name, value in reducer.state_dict().items() if "divisor" not in name}
    other = nn.CloseK(0.2, memory="global", memory_size=64, threshold=LOG2)
    other.load_state_dict(old)
    batch = random_losses(16, seed=1)
    for divisor in (None, torch.ones(16)):
        assert other.eval()(batch, divisor=divisor) == reducer.eval()(batch)


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


def test_memory_agrees_with_the_full_batch_while_training() -> None:
    """Agreement of the selected sets (Jaccard index) with the full data's selection, along a run of mini-batches."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(2048, 10, generator=generator)
    targets = (inputs[:, 0] + 0.7 * torch.randn(2048, generator=generator) > 0).float()
    torch.manual_seed(0)
    model = torch.nn.Linear(10, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    reducer = nn.CloseK(0.1, memory="global", threshold=LOG2)
    batchwise, scores = nn.CloseK(0.1, threshold=LOG2), []

    def losses_of(rows: Any) -> Any:
        return torch.nn.functional.binary_cross_entropy_with_logits(
            model(inputs[rows])[:, 0], targets[rows], reduction="none"
        )

    for epoch in range(4):
        order = torch.randperm(2048, generator=generator)
        for rows in order.split(32):
            losses = losses_of(rows)
            with torch.no_grad():
                full = nn.CloseK(0.1, threshold=LOG2).weights(losses_of(torch.arange(2048)))[rows] > 0
            if epoch > 0:
                sets = [each.weights(losses) > 0 for each in (reducer, batchwise)]
                scores.append([((each & full).sum(), (each | full).sum()) for each in sets])
            optimizer.zero_grad()
            reducer(losses).backward()
            optimizer.step()
    both = torch.tensor(scores).sum(dim=0)
    with_memory, without = (both[:, 0] / both[:, 1]).tolist()
    print(f"agreement with the full batch: {with_memory:.3f} with memory, {without:.3f} batch by batch")
    assert with_memory > 0.85
    assert with_memory > without + 0.1

"""The options of reducers against the core and slow definitions, on random input and on every path."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import expit, logsumexp

from closecall.aggregates import get_aggregate, take_smallest

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from closecall import nn  # noqa: E402
from closecall.nn import general, plan, quick  # noqa: E402
from tests.nn.test_as_torch import same  # noqa: E402


def as_mass(count: Any, total: float, default: float) -> float:
    if count is None:
        return default
    return min(count, total) if isinstance(count, int) else count * total


def slow_row(name: str, losses: Any, mass: Any, k: Any, m: Any, threshold: Any, least: Any, kept: Any) -> np.ndarray:
    """Return the weights of one selection by the core, with the rules for counts that only reducers have."""
    total = mass.sum()
    k, m = as_mass(k, total, total), as_mass(m, total, 0.0)
    if least is not None:
        k = min(k, max(as_mass(kept, total, 0.0), mass[losses > least].sum()))
    return get_aggregate(name).weigh(losses[None], mass, threshold, np.asarray(k), np.asarray(min(m, k)))[0]


def slow_weights(name: str, losses: Any, mass: Any, mask: Any, dim: Any, **options: Any) -> np.ndarray:
    """Return weights by plain loops, with one selection for each position in the dimensions that are not ranked."""
    settings = [options.get(each) for each in ("k", "m", "threshold", "min_loss", "min_kept")]
    mass = (np.ones(losses.shape) if mass is None else mass) * (np.ones(losses.shape) if mask is None else mask)
    ranked = range(losses.ndim) if dim is None else [each % losses.ndim for each in np.atleast_1d(dim)]
    sizes = [1 if axis in ranked else losses.shape[axis] for axis in range(losses.ndim)]
    weights = np.zeros(losses.shape)
    for place in itertools.product(*(range(size) for size in sizes)):
        where = tuple(slice(None) if axis in ranked else place[axis] for axis in range(losses.ndim))
        row = slow_row(name, losses[where].ravel(), mass[where].ravel(), *settings)
        weights[where] = row.reshape(losses[where].shape)
    return weights


CASES = {
    "average": [{}],
    "maximal": [{}],
    "top": [{"k": 3}, {"k": 0.4}],
    "atk": [{"k": 4}, {"k": 0.3}, {"min_loss": 1.4, "min_kept": 3}, {"min_loss": 1.9, "min_kept": 0.25, "k": 0.5}],
    "close": [{"k": 3, "threshold": 0.8}, {"k": 0.4, "threshold": 1.1}],
    "ranked_range": [{"k": 0.6, "m": 0.2}, {"k": 7, "m": 2}],
    "trimmed": [{"m": 2}, {"m": 0.3}],
}
KINDS = nn.Average, nn.Maximal, nn.TopK, nn.AverageTopK, nn.CloseK, nn.RankedRange, nn.Trimmed
MADE: dict[str, Any] = {each.aggregate: each for each in KINDS}


def draw(rng: Any, shape: Any) -> tuple[Any, Any, Any]:
    losses = np.round(rng.uniform(0, 2, shape), 1)
    mass = rng.integers(1, 4, shape) / 2 if rng.random() < 0.5 else None
    mask = rng.random(shape) < 0.7 if rng.random() < 0.6 else None
    return losses, mass, mask


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("forced", ["as it comes", "general"])
def test_random_batches_agree_with_plain_loops(name: str, forced: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if forced == "general":
        monkeypatch.setattr("closecall.nn.functional.reduce_quickly", lambda plan, batch: None)
        monkeypatch.setattr("closecall.nn.functional.mean_quickly", lambda plan, batch: None)
    rng = np.random.default_rng(0)
    for number in range(60):
        shape = tuple(rng.integers(1, 6, rng.integers(1, 4)))
        if number % 10 == 9:
            shape = (20, 3)  # many short rows
        dim: Any = None
        if rng.random() < 0.6:
            dim = tuple(int(axis) for axis in rng.permutation(len(shape))[: rng.integers(1, len(shape) + 1)])
            dim = dim[0] - len(shape) if len(dim) == 1 else dim
        losses, mass, mask = draw(rng, shape)
        options = CASES[name][number % len(CASES[name])]
        expected = slow_weights(name, losses, mass, mask, dim, **options)
        leaf = torch.tensor(losses, requires_grad=True)
        given = {
            "mass": None if mass is None else torch.tensor(mass),
            "mask": None if mask is None else torch.tensor(mask),
        }
        for reduction in ("sum", "mean", "none"):
            reducer = MADE[name](**options, dim=dim, reduction=reduction)
            value = reducer(leaf, **given)
            if reduction == "none":
                np.testing.assert_allclose(value.detach(), expected * losses, atol=1e-9)
                continue
            scale = 1.0 if reduction == "sum" or expected.sum() == 0 else 1 / expected.sum()
            assert value.item() == pytest.approx(scale * (expected * losses).sum(), abs=1e-9)
            (gradient,) = torch.autograd.grad(value, leaf)
            np.testing.assert_allclose(gradient, scale * expected, atol=1e-9)
            assert float(reducer.last_k) == pytest.approx(expected.sum(), abs=1e-9)
        np.testing.assert_allclose(MADE[name](**options, dim=dim).weights(leaf, **given), expected, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_the_two_paths_agree_on_long_rows_with_masses(name: str) -> None:
    rng = np.random.default_rng(1)
    options = CASES[name][-1]
    for size, digits in ((5000, 2), (30_000, 9), (9000, 0)):
        losses = torch.tensor(np.round(rng.exponential(size=size), digits), requires_grad=True)
        mass = torch.tensor(rng.uniform(0.1, 3, size))
        settings, batch = plan.Plan(name, **options), plan.Batch(losses, mass, None, None)
        fast, slow = quick.reduce_quickly(settings, batch), general.reduce_generally(settings, batch)
        assert fast is not None
        assert fast.value.item() == pytest.approx(slow.value.item(), rel=1e-12)
        for one, two in zip(*(torch.autograd.grad(each.value, losses) for each in (fast, slow)), strict=True):
            torch.testing.assert_close(one, two, atol=1e-15, rtol=1e-9)
        assert float(fast.taken) == pytest.approx(float(slow.taken), rel=1e-9)
        if name != "average":
            assert float(fast.edge) == pytest.approx(float(slow.edge[0]), rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_losses_that_are_not_finite(name: str) -> None:
    rng = np.random.default_rng(2)
    for number in range(30):
        losses, mass, _ = draw(rng, (12,))
        losses[rng.integers(12)] = [math.inf, math.nan][number % 2]
        options = CASES[name][number % len(CASES[name])]
        finite = np.isfinite(losses)
        leaf = torch.tensor(losses, requires_grad=True)
        given = {"mass": None if mass is None else torch.tensor(mass)}
        clean = np.where(finite, losses, 0.0)
        dropped = MADE[name](**options, nonfinite="drop", reduction="sum")(leaf, **given)
        expected = slow_weights(name, clean, mass, finite, None, **options)
        assert dropped.item() == pytest.approx((expected * clean).sum(), abs=1e-9)
        shown = MADE[name](**options, nonfinite="propagate", reduction="sum")(leaf, **given)
        (gradient,) = torch.autograd.grad(shown, leaf)
        taken = slow_weights(name, losses, mass, None, None, **options)[~finite].sum() > 0 if number % 2 == 0 else True
        assert math.isfinite(shown.item()) != bool(taken)
        if number % 2 and name != "average":
            assert torch.isnan(gradient).all()  # GradScaler checks the gradients
        if taken:
            with pytest.raises(ValueError, match="NaN or infinite"):
                MADE[name](**options)(leaf, **given)
        else:
            assert MADE[name](**options, reduction="sum")(leaf, **given).item() == shown.item()


def test_hard_negatives_image_by_image() -> None:
    rng = np.random.default_rng(3)
    for number in range(40):
        losses = np.round(rng.uniform(0, 2, (3, 14)), 1)
        positives = rng.random((3, 14)) < [0.1, 0.3, 0.0][number % 3]
        mask = rng.random((3, 14)) < 0.8 if number % 2 else np.ones((3, 14), bool)
        expected, least = np.zeros((3, 14)), [0, 2][number % 2]
        for row in range(3):
            wanted = max(3 * (positives & mask)[row].sum(), least)
            negative = ((~positives & mask)[row]).astype(float)
            expected[row] = (positives & mask)[row] + take_smallest(-losses[None, row], negative, wanted)[0]
        leaf = torch.tensor(losses, requires_grad=True)
        reducer = nn.HardNegatives(3, min_kept=least, dim=1, reduction="sum")
        value = reducer(leaf, positives=torch.tensor(positives), mask=torch.tensor(mask))
        assert value.item() == pytest.approx((expected * losses).sum(), abs=1e-9)
        np.testing.assert_allclose(torch.autograd.grad(value, leaf)[0], expected, atol=1e-9)


def single_shot(logits: Any, targets: Any) -> Any:
    """Sum the losses of all positives and three negatives for each, divided by the number of positives."""
    total, found = 0.0, 0
    for anchors, labels in zip(logits, targets, strict=True):
        losses = torch.nn.functional.cross_entropy(anchors.T, labels, reduction="none")
        positive = labels > 0
        rank = losses.detach().masked_fill(positive, -math.inf).argsort(descending=True)
        negative = rank[: min(3 * int(positive.sum()), int((~positive).sum()))]
        total = total + losses[positive].sum() + losses[negative].sum()
        found += int(positive.sum())
    return total / max(found, 1)


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


@pytest.mark.parametrize("t", [-3.0, -0.1, 0.0, 0.5, 40.0])
def test_tilted_is_its_formula(t: float) -> None:
    rng = np.random.default_rng(4)
    losses, mass = 30 * rng.random((5, 7)), rng.uniform(0.5, 2, (5, 7))
    leaf = torch.tensor(losses, requires_grad=True)
    reducer = nn.Tilted(t, dim=1)
    value = reducer(leaf, mass=torch.tensor(mass))
    total = mass.sum(axis=1)
    rows = (losses * mass).sum(axis=1) / total if t == 0 else logsumexp(t * losses, axis=1, b=mass / total[:, None]) / t
    assert value.item() == pytest.approx((rows * total).sum() / total.sum(), rel=1e-9)
    assert torch.autograd.gradcheck(lambda each: reducer(each, mass=torch.tensor(mass)), (leaf,))


@pytest.mark.parametrize("name", ["atk", "ranked_range", "trimmed"])
def test_soft_aggregates_are_smooth_and_tend_to_the_hard_ones(name: str) -> None:
    options = {"atk": {"k": 0.3}, "ranked_range": {"k": 9, "m": 3}, "trimmed": {"m": 4}}[name]
    losses = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    mass = torch.rand(20, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) + 0.5
    for given in (None, mass):
        soft = MADE[name](**options, temperature=0.2)
        assert torch.autograd.gradcheck(lambda leaf, soft=soft, given=given: soft(leaf, mass=given), (losses,))
        hard = MADE[name](**options)
        sharp = MADE[name](**options, temperature=1e-6)
        assert sharp(losses, mass=given).item() == pytest.approx(hard(losses, mass=given).item(), abs=1e-5)


def test_soft_weights_solve_their_equation() -> None:
    losses = np.random.default_rng(5).exponential(size=40)
    level = brentq(lambda nu: expit((losses - nu) / 0.3).sum() - 6, -50, 50)
    np.testing.assert_allclose(
        nn.AverageTopK(6, temperature=0.3).weights(torch.tensor(losses)), expit((losses - level) / 0.3), atol=1e-9
    )
    closeness = np.abs(losses - 0.7)
    level = brentq(lambda nu: expit((nu - closeness) / 0.3).sum() - 6, -50, 50)
    np.testing.assert_allclose(
        nn.CloseK(6, threshold=0.7, temperature=0.3).weights(torch.tensor(losses)),
        expit((level - closeness) / 0.3),
        atol=1e-9,
    )


ALL = {
    "average": nn.Average(),
    "maximal": nn.Maximal(),
    "top": nn.TopK(3, dim=1),
    "atk": nn.AverageTopK(0.5, min_loss=0.7, min_kept=2),
    "close": nn.CloseK(4, threshold=0.7, dim=1),
    "close drop": nn.CloseK(4, threshold=0.7, nonfinite="drop"),
    "ranked_range": nn.RankedRange(6, 2, nonfinite="propagate"),
    "trimmed": nn.Trimmed(m=0.2, temperature=0.1),
    "tilted": nn.Tilted(2.0),
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("weighted", [False, True])
def test_no_value_is_read_on_an_accelerator(name: str, weighted: bool) -> None:
    # Tensors of the meta device have no values: reading a value, or branching on it, raises an error.
    losses = torch.empty(4, 9, device="meta", requires_grad=True)
    options = {"mass": torch.empty(4, 9, device="meta")} if weighted else {}
    value = ALL[name].to("meta")(losses, mask=torch.empty(4, 9, dtype=torch.bool, device="meta"), **options)
    value.backward()
    assert losses.grad.shape == (4, 9)
    ALL[name].remaining = torch.tensor([[0, 1], [0, 1]])


def test_the_losses_on_logits_read_no_value_on_an_accelerator() -> None:
    logits = torch.empty(4, 5, 6, device="meta", requires_grad=True)
    targets = torch.empty(4, 6, dtype=torch.int64, device="meta")
    for loss in (nn.CloseKLoss("cross_entropy", k=0.1, ignore_index=9), nn.HardNegativesLoss("cross_entropy", dim=1)):
        loss.to("meta")(logits, targets).backward()


@pytest.mark.parametrize("name", ALL)
def test_options_compile_in_one_graph(name: str) -> None:
    # aot_eager traces, functionalises and splits forward and backward like the default backend, without a C compiler.
    compiled = torch.compile(ALL[name], fullgraph=True, dynamic=True, backend="aot_eager")
    for size in (9, 13):
        losses, mass, kept = torch.rand(3, 4, size, generator=torch.Generator().manual_seed(size))
        losses.requires_grad_()
        options = {"mask": kept < 0.8, "mass": mass + 0.5}
        ours, theirs = compiled(losses, **options), ALL[name](losses, **options)
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(*(torch.autograd.grad(each.square(), losses)[0] for each in (ours, theirs)))
    torch._dynamo.reset()


@pytest.mark.parametrize("name", ALL)
def test_the_repr_says_everything(name: str) -> None:
    reducer = ALL[name]
    assert repr(eval(repr(reducer), vars(nn))) == repr(reducer)

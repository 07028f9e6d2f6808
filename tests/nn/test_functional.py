"""closecall.nn.functional against the NumPy core, and under torch's transformations."""

import contextlib
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from closecall.aggregates import AGGREGATES, get_aggregate
from closecall.losses import LOSSES

torch = pytest.importorskip("torch", reason='needs PyTorch: pip install "closecall[torch]"')

from closecall import nn  # noqa: E402
from closecall.nn import functional, logit_losses, margins  # noqa: E402
from closecall.nn.forms import MARGIN_LOSSES  # noqa: E402
from closecall.nn.selection import cut_rows, cut_sorted  # noqa: E402
from tests.family_twins import MEMBERS, member_weights  # noqa: E402
from tests.network.test_network import COUNTS  # noqa: E402

THRESHOLD = 0.7


def reduced(name: str, **more: Any) -> Any:
    return lambda losses, mass=None: functional.aggregate(
        name, losses, mass=mass, threshold=THRESHOLD, **COUNTS[name], **more
    )


@st.composite
def batches(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray | None, dict[str, Any]]:
    """Return losses with many ties, masses that are multiples of a half or absent, and suitable counts."""
    size = draw(st.integers(1, 20))
    value = st.one_of(st.integers(0, 4).map(lambda v: v / 2), st.floats(0, 50))
    losses = np.array(draw(st.lists(value, min_size=size, max_size=size)))
    halves = st.lists(st.integers(0, 5), min_size=size, max_size=size)
    mass = draw(st.none() | halves.map(lambda v: np.array(v) / 2 + (np.arange(size) == 0)))
    total = size if mass is None else mass.sum()
    k = draw(st.one_of(st.none(), st.integers(1, int(total)), st.floats(0.01, 1)))
    m = draw(st.one_of(st.none(), st.floats(0, 0.9), st.integers(0, int(total))))
    return losses, mass, {"k": k, "m": m}


@pytest.mark.parametrize("name", AGGREGATES)
@settings(max_examples=40)
@given(batch=batches())
def test_values_and_gradients_are_those_of_the_core(name: str, batch: Any) -> None:
    losses, mass, counts = batch
    core = AGGREGATES[name]
    leaf = torch.tensor(losses, requires_grad=True)
    weights = None if mass is None else torch.tensor(mass)
    try:
        expected = core.weights(losses, threshold=THRESHOLD, mass=mass, **counts)
    except ValueError as error:  # m leaves no examples: the same message, unless only this batch is too small
        small = isinstance(counts["m"], int) and not isinstance(counts["k"], int)
        with contextlib.nullcontext() if small else pytest.raises(ValueError, match=str(error)[:12]):
            assert functional.aggregate(name, leaf, threshold=THRESHOLD, mass=weights, **counts).item() == 0
        return
    value = functional.aggregate(name, leaf, threshold=THRESHOLD, mass=weights, reduction="sum", **counts)
    np.testing.assert_allclose(value.item(), expected @ losses, rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(value, leaf)
    np.testing.assert_allclose(gradient.numpy(), expected, atol=1e-12)
    mean = functional.aggregate(name, leaf, threshold=THRESHOLD, mass=weights, reduction="mean", **counts)
    np.testing.assert_allclose(mean.item() * expected.sum(), value.item(), rtol=1e-9, atol=1e-300)


def test_all_of_it_is_the_mass_bit_for_bit() -> None:
    mass = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    losses = torch.rand(1000, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert torch.equal(functional.weights("close", losses, k=1.0, mass=mass, threshold=THRESHOLD), mass)
    assert torch.equal(functional.weights("average", losses, mass=mass), mass)


@pytest.mark.parametrize("weighted", [False, True])
def test_the_cut_on_an_accelerator_is_the_cut_on_the_cpu(weighted: bool) -> None:
    # The torch version of the cut is what other devices run; here it is run on the CPU.
    rng = np.random.default_rng(0)
    keys = rng.integers(0, 9, (40, 25)) / 4
    mass = rng.integers(0, 3, (40, 25)) + 0.5 if weighted else None
    wanted = rng.uniform(0, 25, (40, 1))
    ours = cut_rows(keys, mass, wanted)
    other = cut_sorted(torch.tensor(keys), None if mass is None else torch.tensor(mass), torch.tensor(wanted))
    for one, two in zip(ours, other, strict=True):
        np.testing.assert_array_equal(one, two.numpy())


NAN = torch.tensor([[1.0, 2.0], [math.nan, 1.0]])
LOGITS, FIVE = torch.linspace(-1, 2, 12).reshape(4, 3), torch.linspace(0, 1, 5)
BAD: list[tuple[Any, str]] = [
    (lambda: functional.close_k(FIVE, 0, 1.0), "k=0 is too small"),
    (lambda: functional.close_k(FIVE, 1.5), r"k=1\.5 is not a fraction"),
    (lambda: functional.close_k(torch.empty(0), 1), "no losses"),
    (lambda: functional.close_k(torch.tensor([1.0, math.inf]), 1, closeness=torch.zeros(2)), "NaN or infinite"),
    (lambda: functional.close_k(torch.tensor([1.0, math.nan]), 1, closeness=torch.zeros(2)), "NaN or infinite"),
    (lambda: torch.func.vmap(lambda row: functional.close_k(row, 1, 1.0))(NAN), "NaN"),
    (lambda: functional.close_k(torch.tensor([1, 2]), 1), r"floating point, not torch\.int64"),
    (lambda: functional.close_k([1.0], 1), "tensor, not list"),  # type: ignore[arg-type]
    (lambda: functional.close_k(FIVE, 1, reduction="median"), "reduction='median'"),
    (lambda: functional.close_k(FIVE, 1, mass=torch.ones(4)), "one value for each loss"),
    (lambda: functional.close_k(FIVE, 0.5, threshold=1.0, mass=torch.full((5,), -1.0)), "negative"),
    (lambda: functional.close_k(FIVE, 0.5, threshold=1.0, mass=torch.full((5,), math.nan)), "NaN"),
    (lambda: functional.close_k(FIVE, 0.5, threshold=1.0, mass=torch.zeros(5)), "zero everywhere"),
    (lambda: functional.aggregate("median", FIVE), "choose one of: atk, average"),
    (lambda: logit_losses("cross_entropy", LOGITS, torch.tensor([0, 1, 2, 3])), "outside the 3 classes"),
    (lambda: logit_losses("cross_entropy", LOGITS, torch.rand(4)), "must be integers"),
    (lambda: margins(LOGITS, torch.tensor([0, 1, 2])), "do not match"),
    (lambda: margins(LOGITS[:, 0], torch.tensor([0, 1, 2, 1])), r"0 and 1, or -1 and \+1"),
    (lambda: margins(LOGITS[:, 0], torch.tensor([0, 1, -1, 1])), r"0 and 1, or -1 and \+1"),
    (lambda: logit_losses("cross_entropy", LOGITS[:, 0], torch.tensor([0, 1, 1, 1])), "needs logits"),
    (lambda: logit_losses("square", LOGITS, torch.tensor([0, 1, 2, 1])), "choose one of"),
]


def test_bad_input_is_explained() -> None:
    for call, message in BAD:
        with pytest.raises((ValueError, TypeError), match=message):
            call()
    assert functional.close_k(torch.tensor([1.0, math.inf]), 1, 1.0).item() == 1.0  # the infinite loss is not selected


@pytest.mark.parametrize("name", AGGREGATES)
def test_vmap_is_a_loop(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    losses, mass = torch.rand(6, 20, generator=generator), torch.rand(6, 20, generator=generator) + 0.5
    function = reduced(name)
    torch.testing.assert_close(torch.func.vmap(function)(losses), torch.stack([function(row) for row in losses]))
    both = torch.stack([function(*rows) for rows in zip(losses, mass, strict=True)])
    torch.testing.assert_close(torch.func.vmap(function)(losses, mass), both)
    gradients = torch.func.vmap(torch.func.grad(function), in_dims=(1, None))(losses.T, mass[0])
    for row, gradient in zip(losses, gradients, strict=True):
        torch.testing.assert_close(gradient, torch.func.grad(function)(row, mass[0]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", AGGREGATES)
def test_half_precision_selects_in_float32(name: str, dtype: Any) -> None:
    losses = (4 * torch.rand(3000, generator=torch.Generator().manual_seed(0))).to(dtype).requires_grad_()
    value = reduced(name, reduction="sum")(losses)
    assert value.dtype == torch.float32
    exact = reduced(name, reduction="sum")(losses.detach().double())
    assert value.item() == pytest.approx(exact.item(), rel=1e-5)
    value.backward()
    assert losses.grad.dtype == dtype


@pytest.mark.parametrize("name", LOSSES)
def test_individual_losses_are_those_of_the_core(name: str) -> None:
    points = torch.tensor([-1e4, -30.0, -2.5, -1.0, -0.3, 0.0, 0.7, 1.0, 4.0, 30.0, 1e4], dtype=torch.float64)
    points.requires_grad_()
    values = MARGIN_LOSSES[name](points)
    np.testing.assert_allclose(values.detach(), LOSSES[name].value(points.detach().numpy()), rtol=1e-12)
    (slopes,) = torch.autograd.grad(values.sum(), points)
    slow = LOSSES[name].slope(points.detach().numpy())
    np.testing.assert_allclose(slopes, slow, rtol=1e-10, atol=1e-16)  # a saturated sigmoid has no correct digits


def test_margins_are_positive_where_the_prediction_is_right() -> None:
    maps = torch.randn(2, 4, 3, 3, generator=torch.Generator().manual_seed(0))
    targets = torch.randint(4, (2, 3, 3), generator=torch.Generator().manual_seed(0))
    assert torch.equal(margins(maps, targets) > 0, maps.argmax(dim=1) == targets)
    for labels in (torch.tensor([1, 0, 0]), torch.tensor([1.0, -1.0, -1.0])):
        assert margins(torch.tensor([[0.5], [-2.0], [3.0]]), labels).tolist() == [0.5, 2.0, -3.0]
    for shape in ((2, 1, 3, 3), (2, 3, 3, 1)):  # a single logit may have a dimension of its own
        assert torch.equal(margins(maps[:, 0].reshape(shape), targets > 1), margins(maps[:, 0], targets > 1))


def test_two_classes_are_the_binary_case() -> None:
    logits = torch.randn(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    targets = torch.randint(2, (50,), generator=torch.Generator().manual_seed(1))
    difference = logits[:, 1] - logits[:, 0]
    same = ((name, name) for name in ("hinge", "log_loss", "generalized_cross_entropy"))
    for classes, binary in (("cross_entropy", "logistic"), ("crammer_singer", "hinge"), *same):
        ours, theirs = logit_losses(classes, logits, targets), logit_losses(binary, difference, targets)
        torch.testing.assert_close(ours.losses, theirs.losses)
        torch.testing.assert_close(ours.closeness, theirs.closeness)


@pytest.mark.parametrize("name", MEMBERS)
def test_members_of_families_have_the_weights_and_values_of_the_definition(name: str) -> None:
    rng = np.random.default_rng(2)
    losses, mass = rng.integers(0, 9, 14) / 4, rng.integers(0, 4, 14).astype(float)
    expected = np.array(member_weights(name, [*map(Fraction, losses)], [*map(Fraction, mass)]), dtype=float)
    reducer = nn.Spectrum(name, reduction="sum")
    given = torch.tensor(losses, requires_grad=True)
    np.testing.assert_allclose(reducer.weights(given, mass=torch.tensor(mass)), expected, atol=1e-12)
    value = reducer(given, mass=torch.tensor(mass))
    (gradient,) = torch.autograd.grad(value, given)
    np.testing.assert_allclose(gradient, expected, atol=1e-12)
    excess = get_aggregate(name).above(expected[None], mass)[0]  # the gradient belongs to the value: test_families
    assert value.item() == pytest.approx(expected @ losses + excess, abs=1e-9)


def test_the_tilted_member_is_the_tilted_reducer() -> None:
    losses = torch.rand(3, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for options in ({}, {"dim": 1}, {"reduction": "sum"}):
        member, own = nn.Spectrum("tilted(1.5)", **options), nn.Tilted(1.5, **options)
        assert member(losses).item() == pytest.approx(own(losses).item(), rel=1e-12)
        torch.testing.assert_close(member.weights(losses), own.weights(losses))


def test_what_takes_counts_or_is_unknown_is_refused() -> None:
    for name, message in (("atk", "takes k"), ("tilted", "is a family"), ("nobody(1)", "unknown aggregate")):
        with pytest.raises(ValueError, match=message):
            nn.Spectrum(name)
    assert repr(nn.Spectrum("human(0.4,0.3)")).startswith("Spectrum('human(0.4,0.3)'")
    assert get_aggregate("human(0.4,0.3)").takes == ()

"""Members of families as reducers: weights as in the core, and consistent values and gradients."""

from fractions import Fraction

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the extra closecall[torch]")

from closecall import nn  # noqa: E402
from closecall.aggregates import get_aggregate  # noqa: E402

from ..family_twins import MEMBERS, member_weights  # noqa: E402


@pytest.mark.parametrize("name", MEMBERS)
def test_weights_and_values_are_those_of_the_definition(name: str) -> None:
    rng = np.random.default_rng(2)
    losses, mass = rng.integers(0, 9, 14) / 4, rng.integers(0, 4, 14).astype(float)
    expected = np.array(member_weights(name, [*map(Fraction, losses)], [*map(Fraction, mass)]), dtype=float)
    reducer = nn.Spectrum(name, reduction="sum")
    given = torch.tensor(losses, requires_grad=True)
    np.testing.assert_allclose(reducer.weights(given, mass=torch.tensor(mass)), expected, atol=1e-12)
    value = reducer(given, mass=torch.tensor(mass))
    (gradient,) = torch.autograd.grad(value, given)
    np.testing.assert_allclose(gradient, expected, atol=1e-12)
    # The gradient belongs to the value: by differences, one loss at a time where it has mass.
    for place in np.flatnonzero(mass)[:4]:
        ends = []
        for sign in (1, -1):
            moved = torch.tensor(losses + sign * 1e-6 * np.eye(14)[place] + 1e-3 * np.arange(14))
            ends.append(reducer(moved, mass=torch.tensor(mass)).item())
        middle = torch.tensor(losses + 1e-3 * np.arange(14))
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(
            float(reducer.weights(middle, mass=torch.tensor(mass))[place]), abs=1e-4
        )


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

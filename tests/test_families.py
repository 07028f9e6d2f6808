"""Families of aggregates: their limits, values and names."""

import numpy as np
import pytest
from hypothesis import given

from closecall.aggregates import AGGREGATES, get_aggregate, spectrum
from closecall.families import FAMILIES, expand

from .family_twins import MEMBERS
from .test_aggregates import Case, assert_same, cases


@given(case=cases())
def test_spectra_include_the_ranked_aggregates(case: Case) -> None:
    """Piecewise linear spectra are `average`, the superquantile (`atk` of a fraction) and ranges, up to scale."""
    losses, mass, total = np.array(case.losses, dtype=float), np.array(case.masses, dtype=float), float(case.total)
    k, m = float(case.k_mass) / total, float(case.m_mass) / total
    average = spectrum("all", lambda u: u).weights(losses, mass=mass)
    assert_same(average, mass)
    tail = spectrum("tail", lambda u: np.minimum(u / k, 1.0)).weights(losses, mass=mass)
    np.testing.assert_allclose(k * tail, case.weights("atk"), atol=1e-10 * total)
    middle = spectrum("range", lambda u: np.clip((u - m) / (k - m), 0, 1)).weights(losses, mass=mass)
    np.testing.assert_allclose((k - m) * middle, case.weights("ranked_range"), atol=1e-10 * total)


@pytest.mark.parametrize("name", [name for name in MEMBERS if get_aggregate(name).excess])
def test_weights_with_an_excess_are_the_gradient_of_the_value(name: str) -> None:
    losses = np.random.default_rng(1).uniform(0, 3, size=(1, 7))
    mass = np.array([1.0, 2, 0.5, 1, 3, 1, 1])
    aggregate = get_aggregate(name)

    def value(at: np.ndarray) -> float:
        weights = aggregate.weights(at, mass=mass)
        return float((weights * at).sum() + aggregate.excess(weights, mass)[0])

    step = 1e-6
    for i, weight in enumerate(aggregate.weights(losses, mass=mass)[0]):
        nudge = step * np.eye(7)[i]
        assert (value(losses + nudge) - value(losses - nudge)) / (2 * step) == pytest.approx(weight, abs=1e-6)


def test_tilting_goes_from_the_smallest_loss_to_the_largest() -> None:
    losses = np.array([0.2, 1.0, 3.0])
    assert_same(get_aggregate("tilted(0)").weights(losses), np.ones(3))
    for t, place in ((60, 2), (-60, 0)):
        assert_same(get_aggregate(f"tilted({t})").weights(losses), 3 * np.eye(3)[place])


def test_a_family_is_its_members() -> None:
    for name, family in FAMILIES.items():
        assert expand(name) == family.grid
        assert name not in AGGREGATES
        assert all(member in AGGREGATES and get_aggregate(member).name == member for member in family.grid)
        with pytest.raises(ValueError, match=f"{name}.*is a family.*name a member"):
            get_aggregate(name)
    for name, message in (
        ("tilted(nan)", "t=nan must be a finite number"),
        ("tilted()", "not a valid aggregate"),
        ("tilted(1,2)", "not a valid aggregate"),
        ("tilted(x)", "not a valid aggregate"),
        ("superquantile(1,1)", r"level=1.0 must be a share"),
        ("superquantile(0.5,0)", "use `atk`"),
        ("human(2,0)", "turn=2.0 must be in"),
        ("tilted(2", "unknown aggregate"),
        ("nobody(2)", "unknown aggregate"),
    ):
        with pytest.raises(ValueError, match=message):
            get_aggregate(name)

"""Slow twins of the families of aggregates, from their definitions and in fractions where these are rational."""

import math
from collections.abc import Sequence
from fractions import Fraction
from operator import le, lt

#: Members of every family, for tests of the laws and of the solvers.
MEMBERS = ["tilted(1.5)", "tilted(-2)", "superquantile(0.75,0.5)", "human(0.4,0.3)"]


def member_weights(name: str, losses: Sequence[Fraction], masses: Sequence[Fraction]) -> list[Fraction]:
    """Twins of the families, from their definitions: one example, one group or one level at a time."""
    total = sum(masses)
    family, numbers = name.rstrip(")").split("(")
    first, *others = (Fraction(float(number)) for number in numbers.split(","))
    if family == "tilted":
        peak = max(first * loss for loss, mass in zip(losses, masses, strict=True) if mass)
        raw = [
            mass * Fraction(math.exp(first * loss - peak)) if mass else 0
            for loss, mass in zip(losses, masses, strict=True)
        ]
        return [total * part / sum(raw) for part in raw]
    if family == "superquantile":
        return level_weights(losses, masses, 1 / (1 - first), others[0])
    density: dict[Fraction, Fraction] = {}
    for loss in set(losses):
        smaller, upto = (
            sum(m for other, m in zip(losses, masses, strict=True) if test(other, loss)) for test in (lt, le)
        )
        low, high = (polynomial(Fraction(part) / total, first, others[0]) for part in (smaller, upto))
        density[loss] = total * (high - low) / ((upto - smaller) or 1)
    return [mass * density[loss] for loss, mass in zip(losses, masses, strict=True)]


def polynomial(F: Fraction, a: Fraction, b: Fraction) -> Fraction:
    """Leqi et al.'s weighting of the distribution function."""
    return 3 * (1 - b) / (a**2 - a + 1) * (F**3 - (a + 1) * F**2 + a * F) + F


def level_weights(
    losses: Sequence[Fraction], masses: Sequence[Fraction], most: Fraction, width: Fraction
) -> list[Fraction]:
    """The sum of the shares is linear in the level between the places where a share reaches 0 or the most."""

    def shares(level: Fraction) -> list[Fraction]:
        return [max(Fraction(0), min(most, 1 + (loss - level) / width)) for loss in losses]

    def sum_at(level: Fraction) -> Fraction:
        return sum((mass * share for mass, share in zip(masses, shares(level), strict=True)), Fraction(0))

    total = sum(masses, Fraction(0))
    places = sorted({loss + width * (1 - end) for loss in losses for end in (Fraction(0), most)})
    low = max((place for place in places if sum_at(place) >= total), default=places[0])
    high = min((place for place in places if sum_at(place) <= total), default=places[-1])
    above, below = sum_at(low), sum_at(high)
    level = low if above == below else low + (above - total) / (above - below) * (high - low)
    return [mass * share for mass, share in zip(masses, shares(level), strict=True)]

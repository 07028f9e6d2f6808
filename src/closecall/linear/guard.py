"""The guard: leave plain `average` only for a gain that is real.

Among hundreds of settings the best one always looks better than it is. It is therefore compared with the reference
example by example, on the folds that chose it *and* on fresh folds that did not, and is taken only if its mean gain
exceeds ``guard`` standard errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..aggregates import Count
from ..objective import Problem


@dataclass(frozen=True)
class Setting:
    """One candidate of the search.

    Examples
    --------
    >>> Setting("logistic", "average", None, 1.0, True).kind
    'average + exact intercept'
    """

    loss: str
    aggregate: str
    k: Count
    alpha: float
    exact_intercept: bool = False

    @property
    def problem(self) -> Problem:
        return Problem(self.loss, self.aggregate, self.k, self.alpha)

    @property
    def kind(self) -> str:
        """What the guard tells apart: ``average``, ``average + exact intercept``, or the aggregate's name."""
        return self.aggregate + (" + exact intercept" if self.exact_intercept else "")


@dataclass(frozen=True)
class Comparison:
    """A challenger against the setting that holds the place."""

    challenger: Setting
    reference: Setting
    gain: float
    standard_error: float
    needed: float
    taken: bool

    def __str__(self) -> str:
        verdict = "taken" if self.taken else "left"
        return (
            f"{self.challenger.kind} (k={self.challenger.k}, alpha={self.challenger.alpha:g}) against "
            f"{self.reference.kind} (alpha={self.reference.alpha:g}): gain {100 * self.gain:+.2f} points, "
            f"standard error {100 * self.standard_error:.2f}, needed {100 * self.needed:.2f}: {verdict}"
        )


def paired_examples(gains: Array, mass: Array) -> tuple[float, float]:
    """Mean gain over the examples and its standard error; a mass counts as that many examples.

    Parameters
    ----------
    gains : array (samples,)
        +1 where only the challenger is right, -1 where only the reference is; means over repeated folds.
    mass : array (samples,)

    Examples
    --------
    >>> gain, error = paired_examples(np.array([1.0, 0.0, 0.0, 0.0, -1.0, 1.0]), np.ones(6))
    >>> round(gain, 3), round(error, 3)
    (0.167, 0.281)
    """
    total = float(mass.sum())
    mean = float(mass @ gains) / total
    return mean, float(np.sqrt(mass @ (gains - mean) ** 2 / total / total))


def paired_folds(gains: Array) -> tuple[float, float]:
    """Mean gain over the folds and its standard error; infinite for a single fold.

    Examples
    --------
    >>> gain, error = paired_folds(np.array([0.1, 0.0, 0.2]))
    >>> round(gain, 3), round(error, 3)
    (0.1, 0.058)
    """
    error = float(gains.std(ddof=1) / np.sqrt(len(gains))) if len(gains) > 1 else np.inf
    return float(gains.mean()), error


def compare(challenger: Setting, reference: Setting, gain: float, error: float, guard: float) -> Comparison:
    """Whether the challenger takes the place: its gain must be positive and above ``guard`` standard errors."""
    needed = guard * error if guard > 0 else 0.0
    return Comparison(challenger, reference, gain, error, needed, gain > max(needed, 1e-12))


def order(settings: Sequence[Setting], means: Array, masses: Array) -> Array:
    """Positions from best to worst mean score; equals go to the larger k, then to the larger alpha.

    Examples
    --------
    >>> settings = [Setting("logistic", "close", 10, 1.0), Setting("logistic", "close", 20, 1.0)]
    >>> order(settings, np.array([0.9, 0.9]), np.array([10.0, 20.0])).tolist()
    [1, 0]
    """
    alphas = np.array([setting.alpha for setting in settings])
    # A mean of fold scores carries rounding; scores that differ by less are equal.
    return np.lexsort((-alphas, -masses, -np.round(means, 12)))

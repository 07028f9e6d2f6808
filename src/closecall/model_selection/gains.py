"""Paired gains with their standard errors, and the verdict on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..linear.guard import paired_examples


@dataclass(frozen=True)
class Verdict:
    """A challenger against the one that holds the place."""

    challenger: str
    reference: str
    gain: float
    standard_error: float
    needed: float
    taken: bool

    def __str__(self) -> str:
        kept = f"{self.challenger} is taken" if self.taken else f"{self.reference} is kept"
        return (
            f"{self.challenger} against {self.reference}: gain {100 * self.gain:+.2f} points, standard error "
            f"{100 * self.standard_error:.2f}, needed {100 * self.needed:.2f}: {kept}"
        )


def corrected_folds(gains: Array, share: float) -> tuple[float, float]:
    """Mean gain over folds and its standard error, corrected for overlapping training sets (Nadeau & Bengio 2003).

    Parameters
    ----------
    gains : array (folds,)
    share : float
        Test rows for each training row.

    Examples
    --------
    >>> gain, error = corrected_folds(np.array([0.1, 0.0, 0.2]), 0.25)
    >>> round(gain, 3), round(error, 4)
    (0.1, 0.0764)
    """
    if len(gains) < 2:
        return float(gains.mean()), np.inf
    return float(gains.mean()), float(gains.std(ddof=1) * np.sqrt(1 / len(gains) + share))


def verdict(challenger: str, reference: str, gain: float, error: float, guard: float) -> Verdict:
    """Whether the challenger takes the place: its gain must be positive and above ``guard`` standard errors.

    Examples
    --------
    >>> str(verdict("forest", "baseline", 0.02, 0.01, 1.5))
    'forest against baseline: gain +2.00 points, standard error 1.00, needed 1.50: forest is taken'
    """
    needed = guard * error if guard > 0 else 0.0
    return Verdict(challenger, reference, gain, error, needed, bool(gain > max(needed, 1e-12)))


__all__ = ["Verdict", "corrected_folds", "paired_examples", "verdict"]

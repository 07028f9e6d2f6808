"""What the driver knows after a pass: the rows around the k-th place, and sums over all other selected rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..aggregates import take_smallest
from ..losses import get_loss
from ..solvers.certificate import NOTHING
from ..solvers.stationary import held_bound
from .looks import Look, Sums, keys_of


@dataclass(frozen=True)
class Selection:
    """The mass ``k`` of ``total`` with the smallest keys: minus the losses, or their distances from ``threshold``."""

    loss: str
    threshold: float | None
    k: float
    total: float

    @property
    def whole(self) -> bool:
        """Whether everything is selected."""
        return self.k >= self.total * (1 - 1e-12)


class Window:
    """The problem at the coordinates of a pass, with its selection there.

    Rows with a constant loss are all tied; only their mass is known.

    Parameters
    ----------
    look : Look
    sums : Sums
        The result of the pass.
    selection : Selection
    penalty : array (coordinates,)

    Attributes
    ----------
    missing : float
        The mass between the window and the k-th example: positive if that lies above it, 0 if it is inside.
    edge : float
        The key of the k-th example.
    """

    def __init__(self, look: Look, sums: Sums, selection: Selection, penalty: Array) -> None:
        self.c, self.sums, self.selection, self.penalty = look.c, sums, selection, penalty
        self.loss = get_loss(selection.loss)
        ends = self.loss.falls or (-np.inf, np.inf)
        flats = np.clip([ends[0] - 1, ends[1] + 1], -1e9, 1e9)
        self.rows = np.concatenate([*sums.gathered, np.zeros((2, len(look.c)))])
        self.margins = np.append(-(self.rows[:-2] @ look.c), flats)
        mass = np.concatenate([*sums.gathered_mass, sums.flat])
        left, there = selection.k - sums.mass, float(mass.sum())
        self.missing = left - there if left > there + 1e-9 * selection.k else min(left, 0.0)
        if selection.whole:
            self.missing = 0.0
        self.losses = self.loss.value(self.margins)
        keys = keys_of(selection.threshold, self.losses)
        self.weights, self.edge = np.zeros(len(mass)), look.low
        if left > 0 and not self.missing and there > 0:
            self.weights = take_smallest(keys[None], mass, min(left, there))[0]
            self.edge = float(keys[self.weights > 0].max(initial=-np.inf))

    @property
    def gradient(self) -> Array:
        """Gradient of the selected losses, (coordinates,)."""
        return np.asarray(self.sums.gradient - (self.weights * self.loss.slope(self.margins)) @ self.rows)

    def certificate(self) -> tuple[float, float]:
        """Objective and gap, by the tangents at the margins as in :mod:`closecall.solvers.certificate`."""
        sums, pull = self.sums, -self.weights * self.loss.slope(self.margins)
        heights = self.weights * self.losses + pull * self.margins
        sides = self.rows[:, -1] < 0
        tops = sums.heights + np.array([heights[~sides].sum(), heights[sides].sum()])
        along = sums.pulls + np.array([pull[~sides].sum(), pull[sides].sum()])
        across = sums.across + np.stack([pull[~sides] @ self.rows[~sides], pull[sides] @ self.rows[sides]])
        value = sums.value + float(self.weights @ self.losses + 0.5 * self.penalty @ self.c**2)
        bound = held_bound(tops, along, across, self.penalty)
        gap = (value - bound) / max(value, NOTHING * self.loss.threshold * self.selection.k)
        return value, float(np.clip(gap, 0.0, 1.0)) if np.isfinite(gap) else 1.0

"""The soft selection: weights that fall along a ramp around the k-th place, and the gradient they give.

Around the k-th place the weight of an example falls along a ramp of some *width* in the losses, from the whole mass to
nothing, and the weights still sum to k. The gradient is then a continuous function of the parameters, and its
derivative is known: examples on a ramp exchange weight as their losses move. For `atk` and `maximal` this is
Nesterov's smoothing of a maximum. Whose zeros are looked for is in :mod:`closecall.solvers.settle`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from .._names import Array
from ..losses import Loss


@dataclass(frozen=True)
class Choice:
    """How an aggregate selects: the examples between two masses, by their losses or their distance from T.

    Parameters
    ----------
    mass : array (samples,)
        Positive.
    bounds : callable
        Keys (samples,) -> the masses, counted from the smallest key, between which examples are taken.
    threshold : float or None
        T if the keys are distances from it; None: the largest losses come first.
    convex : bool
    plain : callable, optional
        Losses -> weights of an aggregate that selects in a way of its own: such weights have no ramp.
    paths : int, optional
        How many starts are worth trying.
    """

    mass: Array
    bounds: Callable[[Array], tuple[float, float]]
    threshold: float | None
    convex: bool
    plain: Callable[[Array], Array] | None = None
    paths: int | None = None
    unit: bool = field(init=False)
    total: float = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit", bool((self.mass == 1).all()))
        object.__setattr__(self, "total", float(self.mass.sum()))

    def keys(self, losses: Array) -> Array:
        """Small for selected examples."""
        return -losses if self.threshold is None else np.abs(losses - self.threshold)

    def turns(self, losses: Array) -> Array:
        """How the key changes with the loss: -1 or 1."""
        return np.full(len(losses), -1.0) if self.threshold is None else np.sign(losses - self.threshold)


class Surface(Protocol):
    """The losses of a problem as functions of its coordinates; see :mod:`closecall.solvers.finish`."""

    choice: Choice
    penalty: Array
    loss: Loss
    spread: Array  # (coordinates,): how much the margins move, as a mean square, for each coordinate's square

    def see(self, c: Array, width: float) -> Any:
        """Whatever the methods below need; ``losses`` (samples,) are its losses, kinks rounded over the width."""

    def gradients(self, view: Any, rows: Array) -> Array:
        """Of the losses of some rows, (rows, coordinates)."""

    def pull(self, view: Any, rows: Array, weights: Array) -> Array:
        """The sum of these gradients, (coordinates,), with weights (rows,)."""

    def bend(self, view: Any, rows: Array, weights: Array) -> Array:
        """The curvature of the weighted losses, (coordinates, coordinates); positive semidefinite."""

    def gap(self, c: Array, view: Any, weights: Array, touch: Any) -> float:
        """The certificate for weights (samples,) held as they are, by the tangents at what ``touch`` sees."""


@dataclass
class Ramp:
    """The examples that share a place: +1 or -1 as they enter the weights, their positions and the ramp's middle."""

    sign: float
    rows: Array
    edge: float


def soft_smallest(choice: Choice, keys: Array, k: float, width: float) -> tuple[Array, Array, float]:
    """Weights of the mass ``k`` with the smallest keys, which fall along a ramp; who is on it, and its middle.

    Examples
    --------
    >>> choice = Choice(np.ones(4), lambda keys: (0.0, 2.0), None, True)
    >>> weights, rows, edge = soft_smallest(choice, np.array([0.0, 1.0, 1.2, 5.0]), 2.0, 0.4)
    >>> weights.round(6).tolist(), rows.tolist(), round(edge, 6)
    ([1.0, 0.75, 0.25, 0.0], [1, 2], 1.1)
    """
    mass, none = choice.mass, np.empty(0, dtype=np.intp)
    if k <= 0:
        return np.zeros(len(keys)), none, 0.0
    if k >= choice.total * (1 - 1e-12):
        return mass.copy(), none, 0.0
    hard = _edge(choice, keys, k)
    near = np.flatnonzero(np.abs(keys - hard) <= width)
    weights = np.where(keys < hard, mass, 0.0)
    base, places, share = float(weights.sum() - weights[near].sum()), keys[near], mass[near]
    # As the middle moves up, what is taken grows piece by piece in proportion to the mass on the ramp.
    ends = np.concatenate([places - width / 2, places + width / 2])
    order = np.argsort(ends)
    ends, rises = ends[order], np.cumsum(np.concatenate([share, -share])[order]) / width
    taken = base + np.concatenate([[0.0], np.cumsum(rises[:-1] * np.diff(ends))])
    place = min(max(int(np.searchsorted(taken, k)), 1), len(ends) - 1)
    edge = float(ends[place - 1] + (k - taken[place - 1]) / max(rises[place - 1], 1e-300))
    fraction = np.minimum(np.maximum(0.5 + (edge - places) / width, 0.0), 1.0)
    weights[near] = share * fraction
    return weights, near[(fraction > 0) & (fraction < 1)], edge


def _edge(choice: Choice, keys: Array, k: float) -> float:
    """The key at which the mass reaches k."""
    if choice.unit:
        place = min(int(np.ceil(k - 1e-9)), len(keys)) - 1
        return float(np.partition(keys, place)[place])
    order = np.argsort(keys)
    place = int(np.searchsorted(np.cumsum(choice.mass[order]), k * (1 - 1e-12)))
    return float(keys[order[min(place, len(keys) - 1)]])


class SoftSpot:
    """A point, its soft weights at a width and its gradient."""

    def __init__(self, surface: Surface, c: Array, width: float) -> None:
        self.surface, self.c, self.width = surface, c, width
        self.view = surface.see(c, width)
        choice, losses = surface.choice, self.view.losses
        self.ramps: list[Ramp] = []
        self.gap = np.inf
        if choice.plain is not None:
            self.weights = choice.plain(losses)
        else:
            self.keys = choice.keys(losses)
            self.weights = self._taken(choice)
        self._sum()

    def _taken(self, choice: Choice) -> Array:
        low, high = choice.bounds(self.keys)
        weights, rows, edge = soft_smallest(choice, self.keys, high, self.width)
        self.ramps.append(Ramp(1.0, rows, edge))
        if low > 1e-9:
            fewer, rows, edge = soft_smallest(choice, self.keys, low, self.width)
            self.ramps.append(Ramp(-1.0, rows, edge))
            weights = np.maximum(weights - fewer, 0.0)
        return weights

    def _sum(self) -> None:
        self.used = np.flatnonzero(self.weights)
        weights, shrink = self.weights[self.used], self.surface.penalty * self.c
        self.gradient = self.surface.pull(self.view, self.used, weights) + shrink
        self.value = float(weights @ self.view.losses[self.used] + 0.5 * (shrink @ self.c))
        # What Newton's steps minimise where it exists: the maximum over the weights, smoothed.
        self.smooth = self.value - self.width / 2 * float(weights @ (weights / self.surface.choice.mass[self.used] - 1))

    def narrowed(self, width: float) -> tuple[Array, Array]:
        """Where this zero of the gradient is expected at another width: the same examples share, as before.

        Also the curvature here. The spot's own weights change.
        """
        mass, old = self.surface.choice.mass, self.width
        for ramp in self.ramps:
            if ramp.rows.size > 1:
                offset, share = ramp.edge - self.keys[ramp.rows], mass[ramp.rows]
                change = offset * (1 / width - 1 / old)
                change -= (share @ change) / share.sum()
                self.weights[ramp.rows] += ramp.sign * share * change
        self.width = width
        self._sum()
        held, whole = self.matrices()
        return self.c - solve_or_nan(whole, self.gradient), held

    def matrices(self) -> tuple[Array, Array]:
        """The curvature with the weights held, and the gradient's derivative, in which they move."""
        held = self.surface.bend(self.view, self.used, np.maximum(self.weights[self.used], 0.0))
        held[np.diag_indices(len(held))] += self.surface.penalty + 1e-10 * np.trace(held) / len(held) + 1e-12
        whole = held.copy()
        for ramp in self.ramps:
            if ramp.rows.size > 1:
                each, share = self.surface.gradients(self.view, ramp.rows), self.surface.choice.mass[ramp.rows]
                turned = (share * self.surface.choice.turns(self.view.losses[ramp.rows]))[:, None] * each
                apart = np.outer(share @ each, turned.sum(axis=0)) / share.sum() - each.T @ turned
                whole += ramp.sign / self.width * apart
        return held, whole


def solve_or_nan(matrix: Array, right: Array) -> Array:
    """The solution (coordinates,) of a general system; NaN where there is none."""
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return np.full(len(right), np.nan)

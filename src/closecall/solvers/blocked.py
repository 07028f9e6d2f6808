"""Many rows, read in blocks that stay in the cache; sums over blocks or machines are simply added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from scipy.optimize import brentq

from .._names import Array
from ..losses import Loss, get_loss
from .cuts import LookSums, LossWindow, Rounded, Sums
from .newton import LARGEST_RANK
from .rows import ROUNDED, Margins, Standard, TangentSums, in_cache

SEEN = 0.01  # the smallest width of a ramp for which rows near the window are gathered

Ramp = tuple[float, float]  # place and width


@dataclass(frozen=True)
class FlowSums(TangentSums):
    """Sums over rows, weighted by a ramp, and the derivatives of these sums.

    ``gradient`` (coordinates,) is the gradient of the weighted losses, and ``moved`` (coordinates, coordinates) is the
    part of its derivative that is due to the changing weights. ``by_place`` and ``mass_by_place`` are the derivatives
    of the gradient and of the mass with respect to the place, and ``mass_by_c`` (coordinates,) is the derivative of the
    mass with respect to the coordinates. ``errors`` is the misclassified mass.
    """

    gradient: Array
    moved: Array
    by_place: Array
    mass_by_c: Array
    mass_by_place: float
    errors: float


@dataclass(frozen=True)
class NearRows(Sums):
    """Rows near a window, with their signs and masses."""

    X: list[Array]
    signs: list[Array]
    mass: list[Array]


@dataclass(frozen=True)
class KeySums(Sums):
    """The total mass and loss of the rows with keys below a band, and the losses and masses of the rows in the band."""

    below: float
    value: float
    losses: list[Array]
    mass: list[Array]


@dataclass
class ManyRows:
    """Rows X (samples, features) with the loss ``name``, which are read in blocks and never copied as a whole.

    The signs (samples,) are -1 or +1.
    """

    X: Array
    signs: Array
    mass: Array
    standard: Standard
    name: str

    def __post_init__(self) -> None:
        self.loss: Loss = get_loss(self.name)
        self.threshold = self.loss.threshold
        self.known: tuple[bytes, Array] = b"", np.empty(0)
        self.held: Array | None = None

    @cached_property
    def massless(self) -> bool:
        return not bool((self.mass > 0).all())

    @cached_property
    def unit(self) -> bool:
        return bool((self.mass == 1).all())

    def margins(self, c: Array) -> Array:
        """Return margins (samples,) in the precision of X, and keep them until other coordinates are requested."""
        if self.known[0] != c.tobytes():
            margins = self.standard.scores(self.X, c) * self.signs if self.held is None else -(self.held @ c)
            self.known = c.tobytes(), margins
        return self.known[1]

    def losses(self, c: Array) -> Array:
        """Return the losses (samples,) at margins in the precision of X."""
        return self.loss.value(self.margins(c).astype(np.float64))

    def errors(self, margins: Array) -> float:
        wrong = margins <= 0
        return float(np.count_nonzero(wrong)) if self.unit else float(self.mass @ wrong)

    def between(self, margins: Array, low: float, high: float) -> Array:
        """Return the indices of the rows with positive mass and margins between two bounds."""
        inside = (margins > low) & (margins < high)
        return np.flatnonzero(inside & (self.mass > 0) if self.massless else inside)

    def near(self, c: Array, low: float, high: float) -> Array:
        """Return the indices of the rows whose losses at c may lie between two levels."""
        bounds = margin_at(self.loss, high) - ROUNDED, margin_at(self.loss, low) + ROUNDED
        return self.between(self.margins(c), *bounds)

    def blocks(self, some: Array) -> Iterator[Margins]:
        """Yield the selected rows in at least one block, which may be empty."""
        for part in in_cache(len(some), self.standard.size):
            rows: Any = part if len(some) == len(self.signs) else some[part]
            X = self.X[rows] if isinstance(rows, slice) else self.X.take(rows, axis=0)
            yield Margins(self.standard.signed(X, self.signs[rows]).T, self.name, self.mass[rows])

    def hold(self, room: Array | None = None) -> None:
        """Store the standardised rows ``-y * z`` (samples, coordinates) for many passes, in ``room`` if they fit."""
        if room is None or len(room) < len(self.X):  # fresh memory costs more than filling it
            room = np.empty((len(self.X) * 9 // 8, self.standard.size))
        self.held = room[: len(self.X)]
        for some in in_cache(*self.held.shape):
            self.standard.signed(self.X[some], self.signs[some], self.held[some])

    def look(self, c: Array, window: LossWindow, width: float) -> LookSums:
        """Return the sums that a stage needs; each row outside the window costs only one product."""
        margins, (low, high) = self.margins(c), _levels(window, width)
        found = reduce(add, (rows.look(c, window, width) for rows in self.blocks(self.near(c, low, high))))
        below = margin_at(self.loss, high) - ROUNDED
        beyond = float(self.mass[margins <= below].sum()) * (window.high - window.low) if np.isfinite(below) else 0.0
        return replace(found, value=found.value + beyond, errors=self.errors(margins))

    def tangents(self, c: Array, window: LossWindow, width: float) -> TangentSums:
        """Return the sums of tangents to the losses at c, weighted by a window."""

        def sums(rows: Margins) -> TangentSums:
            view = rows.see(c, width)
            return rows.tangent_sums(view, rows.mass * window.parts(view.losses)[0], len(c) <= LARGEST_RANK)

        return reduce(add, map(sums, self.blocks(self.near(c, *_levels(window, width)))))

    def flow(self, c: Array, ramp: Ramp, touch: Array | None) -> FlowSums:
        """Return sums of the losses at c, weighted by a ramp; tangents touch at ``touch`` (by default, c)."""
        parts: Any
        if self.held is not None:
            parts = ((self.held[some], self.mass[some]) for some in in_cache(*self.held.shape))
            reach, wrong = margins_of(self.loss, ramp), 0.0
        else:
            near = self.near(c, *_reach(self.threshold, ramp))
            parts = ((rows.across.T, rows.mass) for rows in self.blocks(near))
            reach, wrong = (-np.inf, np.inf), self.errors(self.margins(c))
        sums = reduce(add, (_flow(self.loss, signed, mass, c, ramp, reach, touch) for signed, mass in parts))
        return replace(sums, errors=wrong)

    def gather(self, c: Array, low: float, high: float) -> NearRows:
        """Return the rows with margins between two bounds."""
        near = self.between(self.margins(c), low, high)
        return NearRows([self.X.take(near, axis=0)], [self.signs[near]], [self.mass[near]])

    def keys(self, c: Array, threshold: float | None, low: float, high: float) -> KeySums:
        """Return sums over the rows with keys below ``low``, and the rows with keys from ``low`` to ``high``.

        Keys are the distances of losses from the threshold or, if there is no threshold, the negated losses.
        """
        levels = (-high, np.inf) if threshold is None else (threshold - high, threshold + high)

        def sums(rows: Margins) -> KeySums:
            losses = rows.loss.value(-(c @ rows.across))
            keys = -losses if threshold is None else np.abs(losses - threshold)
            under, band = keys < low, (keys >= low) & (keys <= high)
            below, value = float(rows.mass[under].sum()), float(rows.mass[under] @ losses[under])
            return KeySums(below, value, [losses[band]], [rows.mass[band]])

        return reduce(add, map(sums, self.blocks(self.near(c, *levels))))


def _levels(window: LossWindow, width: float) -> tuple[float, float]:
    return window.low - window.width / 2 - width, window.high + window.width / 2 + width


def _reach(threshold: float, ramp: Ramp) -> tuple[float, float]:
    """Return the range of losses with positive weight on a ramp."""
    edge, width = np.exp(-ramp[0]), ramp[1]
    return edge * np.exp(-width / (2 * threshold)), 2 * threshold - edge + width / 2


def margins_of(loss: Loss, ramp: Ramp) -> tuple[float, float]:
    """Return a range that contains all margins with positive weight on a ramp."""
    low, high = _reach(loss.threshold, (ramp[0], max(ramp[1], SEEN)))
    return margin_at(loss, high), margin_at(loss, low)


def _flow(loss: Loss, signed: Array, mass: Array, c: Array, ramp: Ramp, reach: Ramp, touch: Array | None) -> FlowSums:
    """Return the sums over those rows of a block ``-y * z`` (rows, coordinates) that lie inside ``reach``."""
    margins = -(signed @ c)
    seen = np.flatnonzero((margins > reach[0]) & (margins < reach[1]))
    if len(seen) < len(margins):
        signed, mass, margins = signed.take(seen, axis=0), mass[seen], margins[seen]
    losses, slopes = loss.value(margins), loss.slope(margins)
    shares, by_loss, by_place = ramp_parts(loss.threshold, ramp, losses)
    held, on = mass * np.clip(shares, 0.0, 1.0), np.flatnonzero((shares > 0) & (shares < 1))
    bends = loss.bend(slopes) if loss.bend is not None else Rounded(loss).bend(margins, 4e-4)
    scaled = signed * np.sqrt(held * bends)[:, None]
    values, pulls, points = losses, -held * slopes, margins
    gradient = across = pulls @ signed
    if touch is not None:
        points = -(signed @ touch)
        values, pulls = loss.value(points), -held * loss.slope(points)
        across = pulls @ signed
    ahead, heights = signed[:, -1] < 0, held * values + pulls * points
    part = (pulls * ahead) @ signed
    sides: Any = [np.array([float(each @ ~ahead), float(each @ ahead)]) for each in (heights, pulls)]
    each, change = slopes[on, None] * signed.take(on, axis=0), mass[on] * by_loss[on]
    parts: Any = (
        float(held @ losses), float(held.sum()), np.append(sides[0], 0.0), sides[1], np.stack([across - part, part]),
        scaled.T @ scaled, gradient, (each * change[:, None]).T @ each, -((mass[on] * by_place[on]) @ each),
        -(change @ each), float(mass[on] @ by_place[on]), 0.0,
    )  # fmt: skip
    return FlowSums(*parts)


def ramp_parts(threshold: float, ramp: Ramp, losses: Array) -> tuple[Array, Array, Array]:
    """Return the unclipped shares of losses (samples,) and the derivatives with respect to the loss and the place."""
    (place, width), wrong = ramp, losses >= threshold
    edge, small = np.exp(-place), np.maximum(np.where(wrong, threshold, losses), 1e-300)
    shares = 0.5 + np.where(wrong, 2 * threshold - edge - losses, threshold * (np.log(small) + place)) / width
    by_loss = np.where(wrong, -1.0, threshold / small) / width
    return shares, by_loss, np.where(wrong, edge, threshold) / width


def margin_at(loss: Loss, level: float) -> float:
    """Return the margin at which a decreasing loss equals ``level``, or infinity if there is none.

    Examples
    --------
    >>> round(margin_at(get_loss("logistic"), np.log1p(np.exp(-2.0))), 9), margin_at(get_loss("hinge"), -1.0)
    (2.0, inf)
    """
    if loss.inverse is not None:
        return loss.inverse(level)
    ends = loss.value(np.array([-1e9, 1e9]))
    if not ends[1] < level < ends[0]:
        return np.inf if level <= ends[1] else -np.inf
    return float(brentq(lambda margin: float(loss.value(np.array([margin]))[0]) - level, -1e9, 1e9, rtol=1e-9))

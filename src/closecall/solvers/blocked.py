"""Many rows, read in blocks that stay in cache: every sum is additive, so sums from several places are simply added."""

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
from .cuts import LookSums, LossWindow
from .newton import LARGEST_RANK
from .rows import Margins, Rounded

SEEN = 0.01  # ramps count as at least this wide where rows near the window are gathered
_BLOCK = 1 << 16  # entries of rows that are worked on at a time: they stay in cache
ROUNDED, FAR = 1e-3, 6.0  # margins in single precision may be off by this, of rows so many scales from the mean


@dataclass(frozen=True)
class Standard:
    """Coordinates of standardised columns, the intercept last: mean and scale (features,)."""

    mean: Array
    scale: Array
    intercept: bool

    @property
    def size(self) -> int:
        return len(self.mean) + self.intercept

    def to_parameters(self, c: Array) -> tuple[Array, float]:
        """Coefficients (features,) and the intercept for the original rows."""
        coef = c[: len(self.mean)] / self.scale
        return coef, float(c[-1] - self.mean @ coef) if self.intercept else 0.0

    def to_coordinates(self, coef: Array, intercept: float) -> Array:
        """The inverse of :meth:`to_parameters`."""
        return np.append(coef * self.scale, [intercept + self.mean @ coef] * self.intercept)

    def penalty(self, alpha: float, penalize_intercept: bool) -> Array:
        """The penalties of the coordinates."""
        return np.append(alpha / self.scale**2, [alpha * penalize_intercept] * self.intercept)

    def scores(self, X: Array, c: Array) -> Array:
        """Scores (rows,), in the type of X if its rounding is harmless."""
        coef, intercept = self.to_parameters(c)
        if X.dtype == np.float32 and np.finfo(np.float32).eps * float(
            np.abs(coef) @ (np.abs(self.mean) + FAR * self.scale)
        ) <= ROUNDED:  # fmt: skip
            return np.asarray(X @ coef.astype(np.float32) + np.float32(intercept))
        found = np.empty(len(X))
        for some in in_cache(*X.shape):
            np.matmul(X[some].astype(np.float64, copy=False), coef, out=found[some])
        return found + intercept

    def signed(self, X: Array, signs: Array, found: Array | None = None) -> Array:
        """Rows ``-y * z`` (rows, coordinates), in ``found`` if it is given."""
        found = np.empty((len(X), self.size)) if found is None else found
        inner = found[:, : len(self.mean)]
        np.subtract(X, self.mean, out=inner)
        inner *= -signs[:, None] / self.scale
        found[:, len(self.mean) :] = -signs[:, None]
        return found


def standards(X: Array, mass: Array, fit_intercept: bool, penalize_intercept: bool) -> Standard:
    """Means and scales of the columns; means are subtracted only if there is a free intercept.

    Examples
    --------
    >>> standards(np.array([[1.0, 5.0], [3.0, 5.0]]), np.ones(2), True, False)
    Standard(mean=array([2., 5.]), scale=array([1., 1.]), intercept=True)
    """
    X = X.astype(np.float64, copy=False)
    mean = mass @ X / mass.sum() if fit_intercept and not penalize_intercept else np.zeros(X.shape[1])
    scale = np.sqrt(mass @ (X - mean) ** 2 / mass.sum())
    return Standard(mean, np.where(scale > 1e-12 * np.abs(X).max(axis=0), scale, 1.0), fit_intercept)


def in_cache(rows: int, width: int) -> Iterator[slice]:
    """Slices of rows that stay in cache as float64, if they are ``width`` wide."""
    step = max(1, _BLOCK // max(1, width))
    return (slice(begin, begin + step) for begin in range(0, rows, step))


class Sums:
    """Sums over rows, as fields; those of other rows are added field by field."""

    def __add__(self, other: Any) -> Any:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(mine + theirs for mine, theirs in both))


@dataclass(frozen=True)
class TangentSums(Sums):
    """Sums of tangents to weighted losses; arrays by side have label -1 first.

    Parameters
    ----------
    value, held : float
        Weighted losses, and the sum of the weights.
    heights, pulls : arrays (2,)
        The tangents at margin 0, and minus their slopes.
    across : array (2, coordinates)
        Minus the slopes times the rows; the sum is the gradient where the tangents touch.
    bend : array (coordinates, coordinates)
        The curvature of the losses with the weights held.
    """

    value: float
    held: float
    heights: Array
    pulls: Array
    across: Array
    bend: Array

    def bound(self, penalty: Array, factor: float = 1.0) -> float:
        """A lower bound of the objective for these weights times a factor: see :mod:`closecall.solvers.certificate`."""
        factors = np.full(2, factor)
        if penalty[-1] == 0:  # a free intercept: its pulls have to sum to zero
            factors = factor * self.pulls.min() / np.where(self.pulls > 0, self.pulls, 1.0)
        penalized = penalty > 0
        pulled = (factors @ self.across)[penalized]
        found = float(factors @ self.heights - (pulled**2 / 2) @ (1 / penalty[penalized]))
        return max(found, 0.0) if np.isfinite(found) else 0.0


@dataclass(frozen=True)
class FlowSums(TangentSums):
    """Sums over rows weighted by a ramp, and their derivatives.

    Parameters
    ----------
    gradient : array (coordinates,)
        Of the weighted losses, at the coordinates.
    moved : array (coordinates, coordinates)
        The contribution of the changing weights to the gradient's derivative.
    by_place, mass_by_c : arrays (coordinates,)
        Derivatives of the gradient with respect to the place, and of the mass with respect to the coordinates.
    mass_by_place, errors : float
        The derivative of the mass with respect to the place, and the misclassified mass.
    """

    gradient: Array
    moved: Array
    by_place: Array
    mass_by_c: Array
    mass_by_place: float
    errors: float


@dataclass(frozen=True)
class NearRows(Sums):
    """Rows near a window, with signs and masses."""

    X: list[Array]
    signs: list[Array]
    mass: list[Array]


@dataclass(frozen=True)
class KeySums(Sums):
    """Mass and losses of the rows with keys below a band, and losses and masses of the rows in it."""

    below: float
    value: float
    losses: list[Array]
    mass: list[Array]


Ramp = tuple[float, float]  # place and width


@dataclass
class ManyRows:
    """Rows of one loss, read block by block in their own type and never copied as a whole.

    Parameters
    ----------
    X : array (samples, features)
    signs : array (samples,) in {-1, +1}
    mass : array (samples,)
    standard : Standard
    name : str
        Of the loss.

    Examples
    --------
    >>> X, y = np.array([[0.0], [1.0], [4.0]]), np.array([-1.0, 1.0, 1.0])
    >>> rows = ManyRows(X, y, np.ones(3), standards(X, np.ones(3), True, False), "logistic")
    >>> sums = rows.look(np.zeros(2), LossWindow(), 0.1)
    >>> round(sums.value, 6), sums.inside, sums.errors
    (2.079442, 3.0, 3.0)
    """

    X: Array
    signs: Array
    mass: Array
    standard: Standard
    name: str

    def __post_init__(self) -> None:
        self.loss: Loss = get_loss(self.name)
        self.known: tuple[bytes, Array] = b"", np.empty(0)
        self.held: Array | None = None

    @property
    def threshold(self) -> float:
        return self.loss.threshold

    @cached_property
    def massless(self) -> bool:
        return not bool((self.mass > 0).all())

    @cached_property
    def unit(self) -> bool:
        return bool((self.mass == 1).all())

    def margins(self, c: Array) -> Array:
        """Margins (samples,), in the precision of X; kept until other coordinates are requested."""
        if self.known[0] != c.tobytes():
            margins = self.standard.scores(self.X, c) * self.signs if self.held is None else -(self.held @ c)
            self.known = c.tobytes(), margins
        return self.known[1]

    def losses(self, c: Array) -> Array:
        """Losses (samples,), in the precision of X."""
        return self.loss.value(self.margins(c).astype(np.float64))

    def errors(self, margins: Array) -> float:
        wrong = margins <= 0
        return float(np.count_nonzero(wrong)) if self.unit else float(self.mass @ wrong)

    def near(self, margins: Array, low: float, high: float) -> tuple[Array, float]:
        """Rows whose losses may be between two levels, and the margin below which losses are above."""
        below, above = margin_at(self.loss, high) - ROUNDED, margin_at(self.loss, low) + ROUNDED
        inside = (margins > below) & (margins < above)
        return np.flatnonzero(inside & (self.mass > 0) if self.massless else inside), below

    def blocks(self, some: Array) -> Iterator[tuple[Margins, Array]]:
        """Some of the rows, a few at a time, and which of their sides they are on (2, rows)."""
        for part in in_cache(len(some), self.standard.size):
            rows: Any = part if len(some) == len(self.signs) else some[part]
            signs = self.signs[rows]
            X = self.X[rows] if isinstance(rows, slice) else self.X.take(rows, axis=0)
            across = self.standard.signed(X, signs).T
            yield Margins(across, self.name, self.mass[rows]), np.stack([signs < 0, signs > 0]).astype(np.float64)

    def hold(self, room: Array | None = None) -> Array:
        """Standardise the rows once, for many passes: ``-y * z`` (samples, coordinates), in ``room`` if they fit."""
        if room is None or len(room) < len(self.X):  # fresh memory costs more than to fill it
            room = np.empty((len(self.X) * 9 // 8, self.standard.size))
        self.held = room[: len(self.X)]
        for some in in_cache(*self.held.shape):
            self.standard.signed(self.X[some], self.signs[some], self.held[some])
        return room

    def look(self, c: Array, window: LossWindow, width: float) -> LookSums:
        """The sums that a stage needs; rows outside the window only cost a product."""
        margins, zero, size = self.margins(c), np.zeros(len(c)), len(c)
        near, below = self.near(margins, *_levels(window, width))
        found = LookSums(0.0, 0.0, 0.0, zero, zero, np.zeros((size, size)), 0.0, zero, zero)
        found = reduce(add, (rows.look(c, window, width) for rows, _ in self.blocks(near)), found)
        beyond = float(self.mass[margins <= below].sum()) * (window.high - window.low) if np.isfinite(below) else 0.0
        return replace(found, value=found.value + beyond, errors=self.errors(margins))

    def tangents(self, c: Array, window: LossWindow, width: float) -> TangentSums:
        """Tangents to the losses that a window weighs at c."""
        found, second = TangentSums(*_zeros(len(c))), len(c) <= LARGEST_RANK
        for rows, sides in self.blocks(self.near(self.margins(c), *_levels(window, width))[0]):
            at = -(c @ rows.across)
            weights = rows.mass * window.parts(rows.rounded.value(at, width))[0]
            pulls, points = rows.rounded.pulls(at, width)
            bends = rows.rounded.bend(at, width) if rows.loss.bend is None else rows.loss.bend(-pulls)
            scaled = rows.across.T * np.sqrt(weights * bends)[:, None] if second else np.zeros((1, 1))
            heights, pulls = weights * (rows.loss.value(points) + pulls * points), weights * pulls
            parts = sides @ heights, sides @ pulls, (sides * pulls) @ rows.across.T, scaled.T @ scaled
            found += TangentSums(float(weights @ rows.loss.value(at)), float(weights.sum()), *parts)
        return found

    def flow(self, c: Array, ramp: Ramp, touch: Array | None) -> FlowSums:
        """Sums of the losses that a ramp weighs at c; tangents touch at ``touch``, or at c."""
        margins, size = self.margins(c) if self.held is None else np.empty(0), len(c)
        line, wrong = np.zeros(size), self.errors(margins) if self.held is None else 0.0
        parts: Any = *_zeros(size), line, np.zeros((size, size)), line, line, 0.0, wrong
        found = FlowSums(*parts)
        if self.held is not None:
            held = ((self.held[some], self.mass[some]) for some in in_cache(*self.held.shape))
            reach = margins_of(self.threshold, self.loss, ramp)
            return reduce(add, (_flow(self.loss, *part, c, ramp, reach, touch) for part in held), found)
        for rows, _ in self.blocks(self.near(margins, *_reach(self.threshold, ramp))[0]):
            found += _flow(self.loss, rows.across.T, rows.mass, c, ramp, (-np.inf, np.inf), touch)
        return found

    def gather(self, c: Array, low: float, high: float) -> NearRows:
        """The rows with margins between two bounds."""
        margins = self.margins(c)
        inside = (margins > low) & (margins < high)
        near = np.flatnonzero(inside & (self.mass > 0) if self.massless else inside)
        return NearRows([self.X.take(near, axis=0)], [self.signs[near]], [self.mass[near]])

    def keys(self, c: Array, threshold: float | None, low: float, high: float) -> KeySums:
        """Rows with keys below ``low``, summed, and those up to ``high``: distances from T, or minus the losses."""
        levels = (-high, np.inf) if threshold is None else (threshold - high, threshold + high)
        parts = [KeySums(0.0, 0.0, [], [])]
        for rows, _ in self.blocks(self.near(self.margins(c), *levels)[0]):
            losses = rows.loss.value(-(c @ rows.across))
            keys = -losses if threshold is None else np.abs(losses - threshold)
            under, band = keys < low, (keys >= low) & (keys <= high)
            sums = float(rows.mass[under].sum()), float(rows.mass[under] @ losses[under])
            parts.append(KeySums(*sums, [losses[band]], [rows.mass[band]]))
        return reduce(add, parts)


def _zeros(size: int) -> tuple[Any, ...]:
    square = size if size <= LARGEST_RANK else 1
    return 0.0, 0.0, np.zeros(2), np.zeros(2), np.zeros((2, size)), np.zeros((square, square))


def _levels(window: LossWindow, width: float) -> tuple[float, float]:
    return window.low - window.width / 2 - width, window.high + window.width / 2 + width


def _reach(threshold: float, ramp: Ramp) -> tuple[float, float]:
    """The range of losses that a ramp weights."""
    edge, width = np.exp(-ramp[0]), ramp[1]
    return edge * np.exp(-width / (2 * threshold)), 2 * threshold - edge + width / 2


def margins_of(threshold: float, loss: Loss, ramp: Ramp) -> tuple[float, float]:
    """The range of margins that a ramp weights, and a slightly wider one."""
    low, high = _reach(threshold, (ramp[0], max(ramp[1], SEEN)))
    return margin_at(loss, high), margin_at(loss, low)


def _flow(loss: Loss, signed: Array, mass: Array, c: Array, ramp: Ramp, reach: Ramp, touch: Array | None) -> FlowSums:
    """The sums of rows ``-y * z`` (rows, coordinates) that stay in cache; those with a weight are taken first."""
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
    sums: Any = [np.array([float(each @ ~ahead), float(each @ ahead)]) for each in (heights, pulls)]
    each, change = slopes[on, None] * signed.take(on, axis=0), mass[on] * by_loss[on]
    parts: Any = (
        float(held @ losses), float(held.sum()), *sums, np.stack([across - part, part]), scaled.T @ scaled, gradient,
        (each * change[:, None]).T @ each, -((mass[on] * by_place[on]) @ each), -(change @ each),
        float(mass[on] @ by_place[on]), 0.0,
    )  # fmt: skip
    return FlowSums(*parts)


def ramp_parts(threshold: float, ramp: Ramp, losses: Array) -> tuple[Array, Array, Array]:
    """Shares of the losses (samples,), not clipped to [0, 1], and their derivatives with respect to the loss and the
    place.
    """
    (place, width), wrong = ramp, losses >= threshold
    edge, small = np.exp(-place), np.maximum(np.where(wrong, threshold, losses), 1e-300)
    shares = 0.5 + np.where(wrong, 2 * threshold - edge - losses, threshold * (np.log(small) + place)) / width
    by_loss = np.where(wrong, -1.0, threshold / small) / width
    return shares, by_loss, np.where(wrong, edge, threshold) / width


def margin_at(loss: Loss, level: float) -> float:
    """The margin at which a falling loss is at ``level``; infinite if it never is.

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

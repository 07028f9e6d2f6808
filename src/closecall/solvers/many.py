"""Many rows, in memory or in several places: sums over rows, and a certified point of close-k near a sample's end.

Passes over all rows are the main cost, so there are few of them. The path is followed on a sample of the rows by
:mod:`closecall.solvers.engine`, and its end moves to a stationary point of all rows. Every sum is additive over rows,
so sums from several places are simply added.

With many rows the penalty of an example is small and scores are large: most losses inside the cut are tiny, and a ramp
as wide as a share of the cut would reach all correct rows. The ramp here has its width in the logarithms of the losses
below T (times T, which is the same at T), and its unknown is the *place*, minus the logarithm of the smallest selected
loss. The equations state that the gradient is zero and that the weights sum to k; they are solved by following a
flow. Its
steps are those of an implicit Euler scheme in the metric of the curvature (pseudo-transient continuation), longer as
the gradient falls, and limited where the selection moves with the coordinates and little pulls them back. Measured on
10^5 x 20, k = 0.1, alpha = 1: 0.03 s, where the stages of :mod:`closecall.solvers.stages` at fixed cuts need 5 s and
leave no certificate.

A point is certified for the weights of a ramp so narrow that it changes no loss by more than ``tol`` times their mean.
Tangents may touch anywhere: they touch where a Newton step with these weights would end, so the gap is about what that
step would gain, and a wide ramp's point is certified at once where rows are many.

Rows near the window are gathered if there is room. The certificate always covers all rows, and would reveal a missing
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from operator import add
from typing import Any

import numpy as np
from scipy.optimize import brentq

from .._names import Array, spread_out
from ..losses import Loss, get_loss
from ..objective import Problem
from .certificate import NOTHING
from .cuts import CLOSE, LookSums, LossCut, LossWindow
from .newton import LARGEST_RANK
from .rows import Margins, Rounded

#: From how many rows on, and rows of the path's sample at least and at most, and how many are to be inside its cut.
FROM_ROWS, SAMPLED, MOST_SAMPLED, INSIDE = 80_000, 4_000, 12_000, 400
#: The share of the rows of a second, larger sample, its rows at least and at most: it brings the start near cheaply.
SHARE, LEAST, MOST = 1 / 16, 16_000, 100_000
#: The first ramp, and what each is narrowed to; where that is too far, the root of it, so many times.
WIDEST, NARROWING, GENTLER, LEAST_WIDTH = 1.0, 0.2, 2, 1e-3
#: A sample is solved until half the squared gradient is this share of its noise; all rows to this share of the
#: tolerance.
NOISE, ROUGH = 0.1, 0.5
SEARCHED = 1e-2  # the tolerance where no certificate is asked for, as in a search
#: The last ramp, as a share of the tolerance, how near to k its weights are, and how often tangents touch anew.
LAST, EXACTLY, TOUCHES = 1.8, 1e-5, 4
#: Steps at one ramp, and times of the first from afar, from a neighbour's end, and after the ramp was narrowed.
STEPS, AFAR, NEARBY, NARROWED = 60, 1.0, 10.0, 1e3
#: What a step takes the flow's rate to be at least, where one that holds the selection has 1; a step that makes this
#: many times more of the residual is taken back and its time shortened to a share, from at most what curvature notices.
FLOOR, MORE, SHORTER, NOTICED, SHORTEST = 0.12, 4.0, 0.25, 12.0, 1e-3
#: A step moves the margins, and the place, by at most these shares of their size; less than 1 counts as it, than 4.
FARTHEST, FARTHEST_PLACE = 0.5, 0.25
#: Rows are gathered that are by this share of the window's margins, or of 1, outside of it; and ramps count as
#: at least this wide.
BEYOND, SEEN = 0.25, 0.01
MOVED = 0.25  # gathered rows serve until a move is this share of what is to spare, as a root mean square
BANDS = 4  # of losses that come from rows elsewhere, each four times wider, until one holds the k-th place
#: Errors, as a share of the mass, that a certified point may have more than the sample's end.
WORSE = 0.01
PLACES = -5.0, 600.0  # between which the place is looked for
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


@dataclass(frozen=True)
class TangentSums:
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

    def __add__(self, other: Any) -> Any:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return type(self)(*(mine + theirs for mine, theirs in both))

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
class NearRows:
    """Rows near a window, with signs and masses."""

    X: list[Array]
    signs: list[Array]
    mass: list[Array]

    def __add__(self, other: NearRows) -> NearRows:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return NearRows(*(mine + theirs for mine, theirs in both))


@dataclass(frozen=True)
class KeySums:
    """Mass and losses of the rows with keys below a band, and losses and masses of the rows in it."""

    below: float
    value: float
    losses: list[Array]
    mass: list[Array]

    def __add__(self, other: KeySums) -> KeySums:
        both = zip(vars(self).values(), vars(other).values(), strict=True)
        return KeySums(*(mine + theirs for mine, theirs in both))


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


def place_of(threshold: float, losses: Array, mass: Array, k: float, width: float, hint: float = 0.0) -> float | None:
    """The place at which the weights of losses (samples,) sum to k; None where k reaches beyond twice T.

    Examples
    --------
    >>> place = place_of(np.log(2), np.array([0.1, 0.2, 0.6, 0.8, 3.0]), np.ones(5), 3.0, 0.01)
    >>> bool(0.1 < np.exp(-place) < 0.2)
    True
    """
    wrong = losses >= threshold
    far, heavy = (2 * threshold - losses[wrong]) / width + 0.5, mass[wrong]
    near, light = threshold * np.log(np.maximum(losses[~wrong], 1e-300)) / width + 0.5, mass[~wrong]

    def excess(place: float) -> float:
        taken = heavy @ np.clip(far - np.exp(-place) / width, 0.0, 1.0)
        return float(taken + light @ np.clip(near + threshold * place / width, 0.0, 1.0)) - k

    ends = hint - 0.25, hint + 0.25
    if not excess(ends[0]) < 0 < excess(ends[1]):
        ends = PLACES
    if not excess(ends[0]) < 0 <= excess(ends[1]):
        return None
    return float(brentq(excess, *ends, xtol=1e-13, rtol=1e-14))


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


@dataclass(frozen=True)
class Point:
    """Coordinates and ramp, the sums there, the distance from stationarity, and where tangents touch."""

    c: Array
    ramp: Ramp
    sums: FlowSums
    residual: float
    touch: Array | None = None


@dataclass
class Flow:
    """One close selection of a smooth loss on rows anywhere.

    Parameters
    ----------
    rows : ManyRows or whatever has its ``flow``, ``gather``, ``standard``, ``name`` and ``threshold``
    k : float
    penalty : array (coordinates,)
    metric : array (coordinates, coordinates)
        The mean square by which a move of the coordinates changes the margins.
    tol : float
    gathers : bool
        Whether the rows near the window may be gathered in one place.
    """

    rows: Any
    k: float
    penalty: Array
    metric: Array
    tol: float
    gathers: bool = True
    looks: int = field(default=0, init=False)
    center: Array | None = field(default=None, init=False)
    reach: tuple[float, float] = field(default=(0.0, 0.0), init=False)
    local: Any = field(default=None, init=False)

    def run(self, c: Array, ramp: Ramp) -> Point | None:
        """A certified point, near c if there is one for the first ramp."""
        narrowing, gentler, enough = NARROWING, 0, ROUGH * self.tol
        point = self.stage(c, ramp, NEARBY, enough)
        if point is None and ramp[1] < WIDEST:
            point = self.stage(c, (ramp[0], WIDEST), NEARBY, enough)
        while point is not None:
            last = min(LAST * self.tol * self.value(point) / self.k, point.ramp[1])
            end = self.certified(point, last)
            if end is not None or point.ramp[1] <= last:
                return end
            enough = max(NARROWING * enough, 1e-3 * self.tol)  # the point itself may be what is too rough
            following = self.narrowed(point, max(point.ramp[1] * narrowing, last), enough)
            if following is None and gentler == GENTLER:
                return None
            narrowing, gentler = (narrowing, 0) if following else (float(np.sqrt(narrowing)), gentler + 1)
            point = following or point
        return None

    def certified(self, point: Point, width: float) -> Point | None:
        """The same coordinates with the weights of a narrow ramp that sum to k, if these certify them on all rows."""
        touch, ramp = None, (self.placed(point, width), width)
        for _ in range(TOUCHES):
            end = self.see(point.c, ramp, touch)
            gap = self.gap(end)
            if gap <= self.tol and self.gathers:
                end = self.see(point.c, ramp, touch, whole=True)
                gap = self.gap(end)
            if gap <= self.tol:
                return end
            if np.isfinite(gap):
                touch = point.c if touch is None else touch
                touch = touch - _solved(self.held(end.sums), end.sums.across.sum(axis=0) + self.penalty * touch)
            elif self.gathers:  # other rows have come in
                self.center = None
                ramp = self.placed(point, width), width
        return None

    def placed(self, point: Point, width: float) -> float:
        """The place at which weights of a ramp sum to k."""
        hint, threshold = point.ramp[0], self.rows.threshold
        if self.gathers or isinstance(self.rows, ManyRows):
            rows = self._gathered(point.c, (hint, width)) if self.gathers else self.rows
            found = place_of(threshold, rows.losses(point.c), rows.mass, self.k, width, hint)
            return hint if found is None else found
        for reach in (2 * max(width, SEEN) / threshold) * 4.0 ** np.arange(BANDS):
            inner, outer = (threshold - np.exp(-hint + way * reach) for way in (1, -1))
            self.looks += 1
            band = self.rows.keys(point.c, threshold, inner, outer)
            losses, mass = (np.concatenate([np.empty(0), *part]) for part in (band.losses, band.mass))
            found = place_of(threshold, losses, mass, self.k - band.below, width, hint)
            if found is not None:
                return found
        return hint

    def narrowed(self, point: Point, width: float, enough: float) -> Point | None:
        """The stationary point of a narrower ramp, from that of a wider one."""
        return self.stage(point.c, (self.placed(point, width), width), NARROWED, enough)

    def stage(self, c: Array, ramp: Ramp, time: float, enough: float) -> Point | None:
        """The stationary point of one ramp, whose residual is small enough."""
        best, inverse, here = None, 1.0, self.see(c, ramp, None)
        for _ in range(STEPS):
            if not np.isfinite(here.residual) or here.residual <= enough:
                return here if here.residual <= enough else None
            if best is not None and here.residual > MORE * best.residual and time > SHORTEST:
                time = SHORTER * min(1 / inverse, NOTICED)
            else:
                if best is not None:
                    time *= float(np.clip(1.5 * np.sqrt(best.residual / here.residual), 0.5, 30.0))
                best = here
            inverse = 1 / time
            move, shift = self._step(best, inverse)
            if not (np.isfinite(move).all() and np.isfinite(shift)):
                return None
            place = float(np.clip(best.ramp[0] + shift, *PLACES))
            here = self.see(best.c + move, (place, ramp[1]), None)
        return None

    def see(self, c: Array, ramp: Ramp, touch: Array | None, whole: bool = False) -> Point:
        """One evaluation, on the gathered rows as long as no other row can have entered, or on the ``whole``."""
        rows = self.rows if whole or not self.gathers else self._gathered(c, ramp)
        self.looks += 1
        sums = rows.flow(c, ramp, touch)
        gradient, found = sums.gradient + self.penalty * c, Point(c, ramp, sums, 0.0, touch)
        decrement = 0.5 * float(gradient @ _solved(self.held(sums), gradient))
        return replace(found, residual=decrement / self.value(found) + ((sums.held - self.k) / self.k) ** 2)

    def _gathered(self, c: Array, ramp: Ramp) -> Any:
        """Rows near the window, gathered again if margins may have moved by more than the spare width."""
        low, high = margins_of(self.rows.threshold, get_loss(self.rows.name), ramp)
        if self.center is not None:
            spare, move = min(low - self.reach[0], self.reach[1] - high), c - self.center
            # A change of scale alone moves a row in proportion to its margin.
            along = float(self.center @ self.metric @ move) / max(self.length(self.center) ** 2, 1e-300)
            far = abs(along) * max(abs(self.reach[0]), abs(self.reach[1]))
            if far + self.length(move - along * self.center) / MOVED <= spare:
                return self.local
        beyond = BEYOND * max(high - low, 1.0)
        self.reach = low - beyond, high + beyond
        found = self.rows.gather(c, *self.reach)
        pieces = found.X, found.signs, found.mass
        X, signs, mass = (part[0] if len(part) == 1 else np.concatenate(part) for part in pieces)
        room = None if self.center is None else self.local.held
        self.center, self.local = c, ManyRows(X, signs, mass, self.rows.standard, self.rows.name)
        self.local.hold(room)
        self.looks += 1
        return self.local

    def value(self, point: Point) -> float:
        """The objective."""
        return max(point.sums.value + 0.5 * float(self.penalty @ point.c**2), 1e-300)

    def gap(self, point: Point) -> float:
        """The certificate for the weights, as a share of the objective; infinite where they do not sum to k."""
        if abs(point.sums.held - self.k) > EXACTLY * self.k:
            return np.inf
        value = self.value(point)
        gap = (value - point.sums.bound(self.penalty)) / max(value, NOTHING * self.rows.threshold * self.k)
        return float(np.clip(gap, 0.0, 1.0)) if np.isfinite(gap) else 1.0

    def held(self, sums: FlowSums) -> Array:
        """The curvature with the weights held."""
        held = sums.bend + np.diag(self.penalty)
        return held + (1e-10 * np.trace(held) / len(held) + 1e-300) * np.eye(len(held))

    def length(self, move: Array) -> float:
        return float(np.sqrt(max(float(move @ self.metric @ move), 0.0)))

    def _step(self, point: Point, inverse: float) -> tuple[Array, float]:
        """An implicit step of the flow: changes of the coordinates and of the place."""
        sums, held, missing = point.sums, self.held(point.sums), point.sums.held - self.k
        right, matrix = sums.gradient + self.penalty * point.c, held
        if not sums.mass_by_place > 0:  # no row is on the ramp
            return np.full(len(right), np.nan), 0.0
        matrix = held + sums.moved - np.outer(sums.by_place, sums.mass_by_c) / sums.mass_by_place
        right = right - sums.by_place * (missing / sums.mass_by_place)
        if not np.isfinite(matrix).all():
            return np.full(len(right), np.nan), 0.0
        # Where the flow grows, its own rate would lead backwards.
        rates, directions = np.linalg.eig(_solved(held, matrix))
        rates = np.abs(rates.real) + 1j * rates.imag + max(inverse, FLOOR)
        move = -(directions @ (_solved(directions, _solved(held, right)) / rates)).real
        move *= min(1.0, FARTHEST * max(self.length(point.c), 1.0) / max(self.length(move), 1e-300))
        shift = -(missing + float(sums.mass_by_c @ move)) / sums.mass_by_place
        far = FARTHEST_PLACE * max(abs(point.ramp[0]), 4.0)
        return move, float(np.clip(shift, -far, far))


def _solved(matrix: Array, right: Array) -> Array:
    try:
        return np.linalg.solve(matrix, right)
    except np.linalg.LinAlgError:
        return np.full(right.shape, np.nan)


def serves(problem: Problem, cut: LossCut, size: int) -> bool:
    """Whether a problem can be solved by a flow: a close selection of a smooth convex loss with a penalty."""
    loss = get_loss(problem.loss)
    return cut.kind == CLOSE and loss.convex and not loss.kinks and problem.alpha > 0 and size <= LARGEST_RANK


def shares_of(counts: dict[Any, int], room: float) -> dict[Any, float]:
    """The share of each label in a sample of ``room`` rows: a quarter of it is divided evenly among the labels.

    Examples
    --------
    >>> {name: round(share, 3) for name, share in shares_of({"no": 990, "yes": 10}, 100).items()}
    {'no': 0.088, 'yes': 1.0}
    """
    total, even = sum(counts.values()), room / 4 / len(counts)
    return {name: float(min(1.0, (0.75 * room * rows / total + even) / rows)) for name, rows in counts.items()}


def sample_sizes(rows: int, k: float) -> tuple[int, int]:
    """The rows of a path's sample, and of the second one; ``k`` is the share of the mass inside the cut.

    Examples
    --------
    >>> sample_sizes(10**5, 0.1), sample_sizes(10**6, 0.05), sample_sizes(10**8, 0.0)
    ((4000, 16000), (8000, 62500), (12000, 100000))
    """
    first = min(max(SAMPLED, int(INSIDE / max(k, 1e-9))), MOST_SAMPLED, rows)
    return first, min(max(int(rows * SHARE), LEAST), MOST, rows)


@dataclass(frozen=True)
class Sample:
    """Some rows with labels -1 and +1, their hashes, and the mass that each represents."""

    X: Array
    signs: Array
    mass: Array
    words: Array

    @classmethod
    def draw(cls, X: Array, signs: Array, mass: Array, words: Array, room: int) -> Sample:
        """About this many rows, chosen by their hashes; those of a rare label are chosen more often."""
        ahead = int(np.count_nonzero(signs > 0))
        shares = shares_of({1: ahead, -1: len(signs) - ahead}, room)
        limits = np.where(signs > 0, shares[1], shares[-1])
        some = np.flatnonzero(spread_out(words) < limits)
        return cls(X[some], signs[some], mass[some] / limits[some], words[some])

    def smaller(self, room: int) -> Sample:
        """About so many of them."""
        if room >= len(self.signs):
            return self
        return Sample.draw(self.X, self.signs, self.mass, self.words * STREAM, room)


#: An odd number by which the hashes that choose a sample become those that choose part of it.
STREAM = np.uint64(0xD6E8FEB86659FD93)


@dataclass(frozen=True)
class Start:
    """Where a flow over all rows begins, the metric, and the errors as a share of the mass."""

    c: Array
    ramp: Ramp
    metric: Array
    errors: float


def start(
    sample: Sample, problem: Problem, cut: LossCut, total: float, path: Any, standard: Standard, penalty: Array,
    tol: float,
) -> Start | None:  # fmt: skip
    """The solution of a problem over the mass ``total`` on a sample; None if k exceeds the losses in it.

    ``path(sample, problem)`` solves a problem on a few of its rows.
    """
    share = float(sample.mass.sum()) / total
    few = sample.smaller(sample_sizes(len(sample.signs), cut.k / total)[0])
    if abs(few.signs.sum()) == len(few.signs):  # one class is too rare for so few rows
        return None
    alpha = problem.alpha * float(few.mass.sum()) / total
    c = standard.to_coordinates(*path(few, replace(problem, k=min(1.0, cut.k / total), alpha=alpha)))
    rows = ManyRows(sample.X, sample.signs, sample.mass, standard, problem.loss)
    z = standard.signed(few.X, few.signs) * np.sqrt(few.mass / few.mass.sum())[:, None]
    flow = Flow(rows, cut.k * share, share * penalty, z.T @ z, tol)
    width, losses = WIDEST, rows.losses(c)
    place = place_of(rows.threshold, losses, sample.mass, flow.k, width)
    while place is not None and np.exp(-place) > (1 - width / 4) * rows.threshold and width > LEAST_WIDTH:
        width *= NARROWING  # so few are selected that a ramp as wide as that has no inside
        place = place_of(rows.threshold, losses, sample.mass, flow.k, width)
    if place is None:
        return None
    begun = Start(c, (place, width), flow.metric, rows.errors(rows.margins(c)) / float(sample.mass.sum()))
    # What a sample says is off by about this much: no more of it is asked.
    enough = max(NOISE * len(c) * total / (cut.k * len(sample.signs)), ROUGH * tol)
    point = flow.stage(c, begun.ramp, AFAR, enough)
    if point is not None:
        point = flow.narrowed(point, NARROWING * width, enough) or point
        begun = replace(begun, c=point.c, ramp=point.ramp)
    return begun


def solve_many(engine: Any, problem: Problem, cut: LossCut, fold: int, tol: float | None) -> tuple[Any, ...] | None:
    """Solve one problem on many rows in memory; None if no solution is found.

    Returns
    -------
    coef (features,), intercept, looks, misclassified mass, gap
    """
    mass = engine.masses[fold]
    total = float(mass.sum())

    def path(few: Sample, smaller: Problem) -> tuple[Array, float]:
        own = {"X": few.X, "y": few.signs, "masses": few.mass[None], "words": few.words, "known": {}}
        ends = replace(engine, n_starts=engine.n_starts or 1, **own).paths([smaller], np.zeros(1, dtype=int), None)
        return ends.coef[0], float(ends.intercept[0])

    sample = Sample.draw(engine.X, engine.y, mass, engine.words, sample_sizes(len(mass), cut.k / total)[1])
    sample = Sample(*(part[sample.mass > 0] for part in vars(sample).values()))
    standard = standards(sample.X, sample.mass, engine.fit_intercept, engine.penalize_intercept)
    penalty, enough = standard.penalty(problem.alpha, engine.penalize_intercept), tol or SEARCHED
    with np.errstate(all="ignore"):  # what is not finite has no end
        begun = start(sample, problem, cut, total, path, standard, penalty, enough)
        if begun is None:
            return None
        rows = ManyRows(engine.X, engine.y, mass, standard, problem.loss)
        flow = Flow(rows, cut.k, penalty, begun.metric, enough)
        rough = tol is None
        end = flow.stage(begun.c, begun.ramp, NEARBY, ROUGH * enough) if rough else flow.run(begun.c, begun.ramp)
    if end is None or (tol is not None and end.sums.errors > (begun.errors + WORSE) * total):
        return None
    return *standard.to_parameters(end.c), flow.looks, end.sums.errors, flow.gap(end) if tol else np.nan

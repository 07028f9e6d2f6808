"""Settling: from where the steps ended to a point that holds its certificate.

Where several examples compete for a place (or sit on a kink of the loss), no single selection makes the gradient
vanish and plain steps go to and fro. The gradient is zero for the right *shares*: weights that the competing examples
could have if the margins moved by a little, a **radius** (Goldstein's subdifferential). A settling step finds these
shares by a small quadratic program, and takes Newton's step for them, no longer than the radius. When the decrement is
small the radius shrinks, down to ``tol`` of the margins' size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import lsq_linear

from .._names import Array

#: The largest and the smallest radius, as shares of the margins' size.
WIDEST, SHRINK = 0.1, 0.3
#: Perturbations that show which examples compete.
LOOKS = 6
#: Competing examples beyond which the program costs more than it is worth.
MOST = 200
#: Up to this many shares, an active-set method is exact and fast.
FEW = 80
#: Steps without progress after which the radius shrinks all the same.
PATIENCE = 12


@dataclass(frozen=True)
class Landscape:
    """One problem in coordinates, as the settling sees it.

    Parameters
    ----------
    rows : array (samples, coordinates)
        ``-y * z``.
    mass : array (samples,)
        Positive.
    penalty : array (coordinates,)
    weigh : callable
        Losses (samples,) -> weights.
    value, slope : callable
        The individual loss.
    continuous : bool
        Whether the objective is; that of the close aggregates jumps where examples on both sides change places.
    kinks : tuple of float
        Margins at which the slope jumps.
    """

    rows: Array
    mass: Array
    penalty: Array
    weigh: Callable[[Array], Array]
    value: Callable[[Array], Array]
    slope: Callable[[Array], Array]
    continuous: bool
    kinks: tuple[float, ...] = ()


@dataclass(frozen=True)
class Spot:
    """What is seen at one point: margins, their size, weights, slopes, and the envelope that a radius opens."""

    margins: Array
    size: float
    weights: Array
    pulls: Array
    low: Array
    high: Array
    soft: Array
    edges: tuple[Array, Array]
    bend: Array


def look(land: Landscape, c: Array, radius: float, rng: np.random.Generator) -> Spot:
    """Weights and slopes at c, and between what bounds they lie when the margins move by ``radius`` of their size."""
    margins = -(land.rows @ c)
    size = max(float(np.sqrt(land.mass @ margins**2 / land.mass.sum())), 0.01)
    weights, reach = land.weigh(land.value(margins)), radius * size
    low, high = weights.copy(), weights.copy()
    for _ in range(LOOKS):
        moved = land.weigh(land.value(margins + np.where(rng.random(len(margins)) < 0.5, reach, -reach)))
        np.minimum(low, moved, out=low)
        np.maximum(high, moved, out=high)
    before, after = -land.slope(margins - reach), -land.slope(margins + reach)
    bend = np.maximum((before - after) / (2 * reach), 0.0)
    soft = np.abs(before - after) > 0.5 * np.abs(before + after)  # a kink within reach: the slope itself is shared
    return Spot(margins, size, weights, -land.slope(margins), low, high, soft, (before, after), bend)


def best_shares(columns: Array, target: Array, low: Array, high: Array, tied: Array, total: float) -> Array:
    """Shares t within the bounds, ``t[tied]`` summing to ``total``, that bring ``columns @ t`` nearest ``target``.

    Parameters
    ----------
    columns : array (coordinates, shares)
    target : array (coordinates,)
    low, high : array (shares,)
    tied : array (shares,) of bool
    total : float

    Examples
    --------
    Two opposite pulls compete for one place: half each.

    >>> opposite = np.array([[1.0, -1.0]])
    >>> best_shares(opposite, np.zeros(1), np.zeros(2), np.ones(2), np.ones(2, dtype=bool), 1.0).round(6).tolist()
    [0.5, 0.5]
    """
    if len(low) <= FEW:
        weight = 100 * np.sqrt((columns**2).sum() / columns.shape[1]) + 1e-300
        whole, aim = np.vstack([columns, weight * tied]), np.append(target, weight * total)
        found = lsq_linear(whole, aim, (low, np.maximum(high, low + 1e-12)), method="bvls", max_iter=200).x
        return _project(found, low, high, tied, total)
    gram, pull = columns.T @ columns, columns.T @ target
    longest = max(float(np.linalg.norm(gram, 2)), 1e-300)
    t = _project((low + high) / 2, low, high, tied, total)
    ahead, pace = t, 1.0
    for _ in range(100):  # Nesterov's steps, which start again when they go uphill
        new = _project(ahead - (gram @ ahead - pull) / longest, low, high, tied, total)
        faster = (1 + np.sqrt(1 + 4 * pace**2)) / 2
        uphill = (ahead - new) @ (new - t) > 0
        ahead, pace = (new, 1.0) if uphill else (new + (pace - 1) / faster * (new - t), faster)
        done = np.abs(new - t).max() <= 1e-9
        t = new
        if done:
            break
    return t


def _project(t: Array, low: Array, high: Array, tied: Array, total: float) -> Array:
    """The nearest shares within the bounds and with the right sum: Newton's steps on the shift of those tied."""
    found = np.clip(t, low, high)
    if not tied.any():
        return found
    mine, floor, roof = t[tied], low[tied], high[tied]
    left, right, shift = float((floor - mine).min()), float((roof - mine).max()), 0.0
    for _ in range(40):
        moved = mine + shift
        short = total - float(np.clip(moved, floor, roof).sum())
        if abs(short) <= 1e-12 * max(total, 1.0):
            break
        left, right = (shift, right) if short > 0 else (left, shift)
        inside = np.count_nonzero((moved > floor) & (moved < roof))
        shift = shift + short / inside if inside else (left + right) / 2
        if not left < shift < right:
            shift = (left + right) / 2
    found[tied] = np.clip(mine + shift, floor, roof)
    return found


def shared_pulls(land: Landscape, c: Array, spot: Spot, metric: Array) -> tuple[Array, Array]:
    """Weights and pulls (samples,) with the best shares: their gradient is the shortest in the metric (a triangle)."""
    weights, pulls = spot.weights.copy(), spot.pulls.copy()
    tied = spot.high - spot.low > 1e-12
    kinked = spot.soft & ~tied & (weights > 0)
    free = np.flatnonzero(tied | kinked)
    if not free.size or free.size > MOST:
        return weights, pulls
    is_tied = tied[free]
    fixed = weights * pulls
    fixed[free] = 0
    base = land.rows.T @ fixed + land.penalty * c
    factor = np.where(is_tied, pulls[free], weights[free])
    columns = solve_triangular(metric, (land.rows[free] * factor[:, None]).T, lower=True)
    low = np.where(is_tied, spot.low[free], np.minimum(spot.edges[0][free], spot.edges[1][free]))
    high = np.where(is_tied, spot.high[free], np.maximum(spot.edges[0][free], spot.edges[1][free]))
    target = -solve_triangular(metric, base, lower=True)
    t = best_shares(columns, target, low, high, is_tied, float(weights[free][is_tied].sum()))
    weights[free[is_tied]] = t[is_tied]
    pulls[free[~is_tied]] = t[~is_tied]
    return weights, pulls


def settle(
    land: Landscape, c: Array, *, steps: int, tol: float,
    certified: Callable[[Array, Array, Array], bool], anywhere: bool,
) -> tuple[Array, Array, Array, int]:  # fmt: skip
    """Coordinates, weights and pulls where the certificate holds, or after ``steps`` steps; and the steps used.

    Parameters
    ----------
    land : Landscape
    c : array (coordinates,)
    steps : int
    tol : float
        The smallest radius, as a share of the margins' size.
    certified : callable
        (coordinates, weights, pulls) -> whether they hold their certificate.
    anywhere : bool
        Whether the certificate counts at any radius: where shares prove a bound, however far they were found.
    """
    rng, radius, idle, least = np.random.default_rng(0), WIDEST, 0, np.inf
    weights = pulls = np.empty(0)
    for number in range(1, steps + 1):
        spot = look(land, c, radius, rng)
        metric = _metric(land, spot)
        weights, pulls = shared_pulls(land, c, spot, metric)
        half = solve_triangular(metric, land.rows.T @ (weights * pulls) + land.penalty * c, lower=True)
        value = float(weights @ land.value(spot.margins) + 0.5 * (land.penalty * c**2).sum())
        if (anywhere or radius <= tol) and certified(c, weights, pulls):
            return c, weights, pulls, number
        decrement = float(half @ half) / 2
        idle, least = (0, decrement) if decrement < 0.5 * least else (idle + 1, least)
        if decrement <= tol * value or idle > PATIENCE:
            # At the smallest radius something is still moving: look further again.
            again = radius <= tol and idle > PATIENCE
            radius, idle, least = (WIDEST * SHRINK if again else max(radius * SHRINK, tol)), 0, np.inf
            if not radius <= tol:
                continue
        move = -solve_triangular(metric.T, half)
        c = _go(land, c, move, (max(radius, WIDEST * SHRINK) if land.continuous else radius) * spot.size, spot)
    return c, weights, pulls, steps


def _metric(land: Landscape, spot: Spot) -> Array:
    """The Cholesky factor of the curvature with the weights held, kinks rounded over the radius."""
    heavy = land.rows * np.sqrt(spot.weights * spot.bend)[:, None]
    hessian = heavy.T @ heavy
    hessian[np.diag_indices(len(hessian))] += land.penalty + 1e-10 * np.trace(hessian) + 1e-12
    return np.linalg.cholesky(hessian)


def _go(land: Landscape, c: Array, move: Array, reach: float, spot: Spot) -> Array:
    """Along the move, no further than the radius; halved while a continuous objective rises."""
    along = land.rows @ move
    length = float(np.sqrt(land.mass @ along**2 / land.mass.sum()))
    t = min(1.0, reach / max(length, 1e-300))
    if not land.continuous:
        return c + t * move

    def objective(t: float) -> float:
        losses = land.value(spot.margins - t * along)
        return float(land.weigh(losses) @ losses + 0.5 * (land.penalty * (c + t * move) ** 2).sum())

    start = objective(0.0)
    for _ in range(12):
        if objective(t) <= start:
            return c + t * move
        t /= 2
    return c

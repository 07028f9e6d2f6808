"""One path of cuts: close-k as a clipped loss, minimised stage by stage.

At a fixed cut e the close-k gradient is the gradient of a function: ``sum of clip(l, T - e, T + e)`` has the slopes of
the examples with ``|l - T| < e`` and none elsewhere, and charges an error beyond the cut T + e, the paper's M. A stage
is therefore an ordinary minimisation: Newton's steps with a line search, its corners rounded over a ramp. Lowering the
cut is the paper's decay, and one path visits every k: k only says where the cut is. What is not convex depends on its
start; other starts are the ends of paths under random masses, from which the true ones are minimised again.

Everything here has a compiled twin, `path.c`, which serves the logistic and the hinge loss.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.lapack import dpotrf, dpotrs

from .._names import Array
from ..losses import Loss, get_loss
from .crew import Crew
from .finish import Rounded

#: Which share of the mass the first cut holds, what a cut is multiplied by from stage to stage, and the width of a ramp
#: as a share of its cut. Of ramps of 0.1 to 1.5 and factors of 0.5 to 0.8 on 16 PMLB sets none was more accurate; these
#: need the fewest looks.
BEGIN, FACTOR, RAMP = 0.95, 0.5, 1.5
GENTLE = 0.8  # what a cut is multiplied by where it is placed anew for a narrower ramp
#: How near to k the mass inside a cut has to be, as a share of it, and how exactly a stage is solved, by Newton's
#: decrement as a share of the value. Looser stages would let the rounding of a processor choose the next one.
NEAR, TOL = 0.02, 1e-9
#: Newton's steps of one stage and of a path, halvings of a step, tries to place a cut, its moves until k lies between
#: two, and the lowest cut as a share of T: what is then inside ties.
STAGE, STEPS, HALVINGS, TRIES, MOVES, LOWEST = 100, 100_000, 40, 24, 60, 1e-7
ARMIJO, DAMPING, FLAT = 1e-4, 0.1, 1e-11
#: The width over which the kinks of a loss are rounded.
KINK = 0.1
LANES = 8  # the kernel's rows come in multiples of it
LOSSES = {"logistic": 0, "hinge": 1}


class Rows:
    """Dense rows in the coordinates of standardised columns, the intercept last.

    Parameters
    ----------
    X : array (samples, features)
    y : array (samples,) in {-1, +1}
    mass : array (samples,)
        What means and deviations are weighted by.
    fit_intercept, penalize_intercept : bool

    Examples
    --------
    >>> rows = Rows(np.array([[0.0], [4.0]]), np.array([-1.0, 1.0]), np.ones(2), True, False)
    >>> rows.across[:, :2].tolist()
    [[-1.0, -1.0], [1.0, -1.0]]
    """

    def __init__(self, X: Array, y: Array, mass: Array, fit_intercept: bool, penalize_intercept: bool) -> None:
        samples, features = X.shape
        X = X.astype(np.float64)
        # Plain sums, not products: BLAS adds in an order of each processor's own, and these are the same everywhere.
        share = (mass / mass.sum())[:, None]
        self.mean = (share * X).sum(axis=0) if fit_intercept and not penalize_intercept else np.zeros(features)
        X -= self.mean
        scale = np.sqrt((share * np.square(X)).sum(axis=0))
        self.scale = np.where(scale > 0, scale, 1.0)
        self.intercept, self.samples = fit_intercept, samples
        #: Minus signed rows (coordinates, rows), which are filled up to the kernel's lanes: minus margins are products.
        self.across = np.zeros((features + fit_intercept, samples + -samples % LANES))
        self.across[:features, :samples] = -(y[:, None] * X / self.scale).T
        self.across[features:, :samples] = -y
        #: What alpha is multiplied by for each coordinate.
        self.penalized = np.append(1 / self.scale**2, [float(penalize_intercept)] * fit_intercept)

    def to_parameters(self, c: Array) -> tuple[Array, Array]:
        """Coefficients (..., features) and intercepts (...) of coordinates (..., coordinates)."""
        coef = c[..., : len(self.mean)] / self.scale
        return coef, (c[..., -1] if self.intercept else np.zeros(c.shape[:-1])) - (coef * self.mean).sum(axis=-1)

    def to_coordinates(self, coef: Array, intercept: Array) -> Array:
        """The inverse of :meth:`to_parameters`."""
        inner = coef * self.scale
        return np.concatenate([inner, (intercept + (coef * self.mean).sum(axis=-1))[..., None]], axis=-1) if self.intercept else inner

    def filled(self, masses: Array) -> Array:
        """Masses (..., samples) with rows of no mass at the end."""
        found = np.zeros((len(masses), self.across.shape[1]))
        found[:, : self.samples] = masses
        return found


@dataclass
class Spot:
    """Where a stage ended: coordinates, cut, the mass inside it, the penalised value, and the misclassified mass."""

    c: Array
    cut: float
    inside: float
    value: float
    errors: float


@dataclass(frozen=True)
class Spots:
    """Spots of several paths: coordinates (tasks, targets, size), the rest (tasks, targets); looks (tasks,)."""

    coordinates: Array
    cut: Array
    inside: Array
    value: Array
    errors: Array
    looks: Array


@dataclass(frozen=True)
class Tasks:
    """Paths of one loss: each under its ``run`` masses, its spots under its ``own``.

    Parameters
    ----------
    loss : str
    masses : array (kinds, samples)
    run, own : arrays (tasks,) of int
    alpha : array (tasks,)
    k : array (tasks, targets)
        Masses, falling.
    starts : array (tasks, coordinates)
        Where the average begins.
    """

    loss: str
    masses: Array
    run: Array
    own: Array
    alpha: Array
    k: Array
    starts: Array

    def take(self, some: Array) -> Tasks:
        parts = {name: getattr(self, name)[some] for name in ("run", "own", "alpha", "k", "starts")}
        return replace(self, **parts)


def follow(rows: Rows, tasks: Tasks, *, stage: int = STAGE, threads: int = 1, tol: float = TOL) -> Spots:
    """Follow every path down to its last k.

    Parameters
    ----------
    rows : Rows
    tasks : Tasks
    stage : int
        Newton's steps that a stage may take.
    threads : int
    tol : float
        How exactly stages are solved.
    """
    tasks = replace(tasks, masses=rows.filled(tasks.masses))
    walk: Callable[..., Spots] = _compiled if LIBRARY is not None and tasks.loss in LOSSES else _walked
    parts = np.array_split(np.arange(len(tasks.alpha)), min(len(tasks.alpha), 4 * threads if threads > 1 else 1))
    found = Crew(threads).map(lambda some: walk(rows, tasks.take(some), stage, tol), parts)
    return Spots(*(np.concatenate([getattr(each, name) for each in found]) for name in Spots.__dataclass_fields__))


@dataclass(frozen=True)
class Sharpening:
    """Spots that are known, settled at one ramp after the other, with the mass ``k`` inside.

    Parameters
    ----------
    loss : str
    masses : array (kinds, samples)
    own : array (tasks,) of int
    alpha, k : arrays (tasks,)
    coordinates : array (tasks, size)
    cut : array (tasks,)
    ramps : array (tasks, levels)
    near : array (levels,)
        How near to k the mass inside has to be at each level.
    """

    loss: str
    masses: Array
    own: Array
    alpha: Array
    k: Array
    coordinates: Array
    cut: Array
    ramps: Array
    near: Array


def sharpen(rows: Rows, task: Sharpening, *, stage: int = STAGE, tol: float = TOL) -> tuple[Spots, Array]:
    """The spots, each of one target, and the last ramp at which k could be placed (tasks,), 0 if at none."""
    size, tasks = rows.across.shape[0], len(task.alpha)
    found, reached, looks = np.zeros((tasks, 1, size + 4)), np.zeros(tasks), np.zeros(tasks, dtype=np.int64)
    found[:, 0, :size], found[:, 0, size] = task.coordinates, task.cut
    masses = rows.filled(task.masses)
    if LIBRARY is not None and task.loss in LOSSES:
        own = np.ascontiguousarray(task.own, dtype=np.int64)
        parts = [np.ascontiguousarray(part, dtype=np.float64) for part in (task.alpha, task.k, task.ramps, task.near)]
        _call(LIBRARY.sharpen, rows, task.loss, tasks, masses, own, *parts[:2], task.ramps.shape[1], *parts[2:], GENTLE,
              tol, stage, STEPS, found, reached, looks)  # fmt: skip
        return _spots(rows, found, looks), reached
    for place in range(tasks):
        walk = Walk(
            rows.across, get_loss(task.loss), masses[task.own[place]], task.alpha[place] * rows.penalized, stage, tol
        )
        spot, k = Spot(task.coordinates[place], float(task.cut[place]), 0.0, 0.0, 0.0), float(task.k[place])
        for ramp, near in zip(task.ramps[place], task.near, strict=True):
            walk.ramp, walk.kink = ramp, min(KINK, ramp * spot.cut)
            spot = walk.carry_over(spot, k, GENTLE, near)
            if not abs(spot.inside - k) <= near * k:
                break
            found[place, 0], reached[place] = [*spot.c, spot.cut, spot.inside, spot.value, spot.errors], ramp
        looks[place] = walk.looks
    return _spots(rows, found, looks), reached


def _spots(rows: Rows, found: Array, looks: Array) -> Spots:
    size = rows.across.shape[0]
    cut, inside, value, errors = np.moveaxis(found[..., size:], -1, 0)
    return Spots(found[..., :size], cut, inside, value, errors, looks)


def _walked(rows: Rows, tasks: Tasks, stage: int, tol: float) -> Spots:
    size = rows.across.shape[0]
    found, looks = np.empty((*tasks.k.shape, size + 4)), np.zeros(len(tasks.alpha), dtype=np.int64)
    for task in range(len(tasks.alpha)):
        mass, penalty = tasks.masses[tasks.run[task]], tasks.alpha[task] * rows.penalized
        walk = Walk(rows.across, get_loss(tasks.loss), mass, penalty, stage, tol)
        same = tasks.run[task] == tasks.own[task]
        spots = walk.run(tasks.starts[task], tasks.k[task], None if same else tasks.masses[tasks.own[task]])
        found[task] = [[*spot.c, spot.cut, spot.inside, spot.value, spot.errors] for spot in spots]
        looks[task] = walk.looks
    return _spots(rows, found, looks)


@dataclass
class Walk:
    """The slow twin: one path, as `path.c` follows it.

    Parameters
    ----------
    across : array (coordinates, samples)
    loss : Loss
    mass : array (samples,)
    penalty : array (coordinates,)
    stage : int
        Steps that a stage may take.
    tol : float
    """

    across: Array
    loss: Loss
    mass: Array
    penalty: Array
    stage: int
    tol: float
    ramp: float = RAMP
    kink: float = KINK
    steps: int = field(default=STEPS, init=False)
    looks: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.rounded = Rounded(self.loss)

    def look(self, c: Array, cut: float) -> tuple[Spot, Array, Array, Array]:
        """The spot there; its gradient, its Hessian and the sizes by which that is damped."""
        self.looks += 1
        margins, low, high = -(c @ self.across), cut - self.ramp * cut / 2, cut + self.ramp * cut / 2
        losses, slopes = self.rounded.value(margins, self.kink), self.rounded.pulls(margins, self.kink)[0]
        bend = self.rounded.bend(margins, self.kink) if self.loss.bend is None else self.loss.bend(-slopes)
        share, turned, charge = np.ones_like(margins), np.zeros_like(margins), losses
        if np.isfinite(cut):
            above = losses - self.loss.threshold
            side, far = np.where(above > 0, 1.0, -1.0), np.abs(above)
            share = np.clip((high - far) / (high - low), 0, 1)
            charge = cut + side * (np.minimum(far, high) - np.clip(far - low, 0, high - low) ** 2 / (2 * (high - low)))
            turned = np.where((low < far) & (far < high), side * slopes**2 / (high - low), 0.0)
        value = float(self.mass @ charge + 0.5 * self.penalty @ c**2)
        gradient = self.across @ (self.mass * share * slopes) + self.penalty * c
        hessian = (self.across * (self.mass * (share * bend - turned))) @ self.across.T + np.diag(self.penalty)
        sizes = np.square(self.across) @ (self.mass * (share * (bend + slopes) + np.abs(turned))) + self.penalty
        spot = Spot(c, cut, float(self.mass @ share), value, float(self.mass @ (margins <= 0)))
        return spot, gradient, hessian, sizes

    def settle(self, c: Array, cut: float) -> Spot:
        """Damped Newton steps at one cut, always downhill."""
        damping, (spot, gradient, hessian, sizes) = 0.0, self.look(c, cut)
        for _ in range(self.stage):
            if self.steps <= 0:
                break
            self.steps -= 1
            damping, step = _newton(gradient, hessian, sizes, damping)
            fall = float(gradient @ step)
            if not -fall > self.tol * spot.value:
                break
            for halvings in range(HALVINGS):
                there = self.look(spot.c + 0.5**halvings * step, cut)
                if there[0].value <= spot.value + ARMIJO * 0.5**halvings * fall:
                    break
            else:
                break
            spot, gradient, hessian, sizes = there
            damping = 0.0 if damping < 0.8 * DAMPING else damping if halvings else damping / 4
        return spot

    def place(self, high: Spot, low: Spot, k: float, near: float) -> Spot:
        """Between a spot whose mass inside is above k and one where it is not: one where it is k."""
        above, below, last = high.inside - k, low.inside - k, 0
        for _ in range(TRIES):
            if abs(low.inside - k) <= near * k or self.steps <= 0:
                return low
            if abs(high.inside - k) <= near * k:
                return high
            share = min(max(above / (above - below) if above > below else 0.5, 0.05), 0.95)
            found = self.settle(high.c, high.cut * (low.cut / high.cut) ** share)
            if found.inside > k:  # Illinois: the other end counts less each time it stays
                below, above, high, last = below * (0.5 if last == 1 else 1), found.inside - k, found, 1
            else:
                above, below, low, last = above * (0.5 if last == -1 else 1), found.inside - k, found, -1
        return low

    def carry_over(self, spot: Spot, k: float, factor: float, near: float) -> Spot:
        """A spot at the mass k under other masses than those of the path, from where the path was."""
        spot = high = self.settle(spot.c, spot.cut)
        for _ in range(MOVES):
            if self.steps <= 0 or abs(spot.inside - k) <= near * k:
                break
            if spot.inside > k:
                high, spot = spot, self.settle(spot.c, spot.cut * factor)
                if not spot.cut > LOWEST * self.loss.threshold:
                    break
            elif high.inside <= k:
                spot, high = high, self.settle(high.c, high.cut / factor)
            else:
                return self.place(high, spot, k, near)
        return spot

    def run(self, start: Array, targets: Array, own: Array | None) -> list[Spot]:
        """Spots at the target masses, falling; settled under ``own`` masses where these are others."""
        here, spots = self.settle(start, np.inf), list[Spot]()
        cut = self._distance(here.c)
        before = replace(here, cut=cut / FACTOR)
        while len(spots) < len(targets):
            last = not cut > LOWEST * self.loss.threshold or self.steps <= 0
            if not last:
                here = self.settle(here.c, cut)
            while len(spots) < len(targets) and (last or here.inside <= targets[len(spots)]):
                k, found = targets[len(spots)], here
                if not last and before.inside > k:
                    found = self.place(before, here, k, NEAR)
                if own is not None:
                    running, self.mass = self.mass, own
                    found = self.carry_over(found, k, FACTOR, NEAR)
                    self.mass = running
                spots.append(found)
            before, cut = here, cut * FACTOR
        return spots

    def _distance(self, c: Array) -> float:
        """The distance from T within which a share of the mass lies."""
        far = np.abs(self.rounded.value(-(c @ self.across), self.kink) - self.loss.threshold)
        order = np.argsort(far)
        reached = np.cumsum(self.mass[order])
        return float(far[order[min(np.searchsorted(reached, BEGIN * reached[-1]), len(far) - 1)]])


def _newton(gradient: Array, hessian: Array, sizes: Array, damping: float) -> tuple[float, Array]:
    """The damping that makes a Hessian positive definite, if it needs any, and Newton's step."""
    for _ in range(60):
        factor, failed = dpotrf(hessian + np.diag(damping * sizes), lower=1)
        if not failed and (np.diag(factor) ** 2 > FLAT * sizes).all():
            return damping, -dpotrs(factor, gradient, lower=1)[0]
        damping = 2 * damping if damping > 0 else DAMPING
    return damping, np.zeros_like(gradient)


def _load() -> Any:
    try:
        library = ctypes.CDLL(str(Path(__file__).with_name("_path.so")))
    except OSError:
        return None
    pointer, whole, real = ctypes.c_void_p, ctypes.c_int64, ctypes.c_double
    rows: list[Any] = [pointer, whole, whole, ctypes.c_int32, real, real, pointer]
    library.paths.restype = library.sharpen.restype = whole
    library.paths.argtypes = [*rows, whole, *[pointer] * 5, whole, pointer, *[real] * 5, whole, whole, *[pointer] * 2]
    library.sharpen.argtypes = [*rows, whole, *[pointer] * 4, whole, *[pointer] * 2, *[real] * 2, whole, whole,
                                *[pointer] * 3]  # fmt: skip
    return library


LIBRARY = _load()


def _call(function: Any, rows: Rows, loss: str, *given: Any) -> None:
    """Call C with rows, a loss and what else it takes: contiguous arrays by their addresses."""
    size, padded = rows.across.shape
    addresses = [part.ctypes.data if isinstance(part, np.ndarray) else part for part in given]
    if function(rows.across.ctypes.data, padded, size, LOSSES[loss], get_loss(loss).threshold, KINK,
                rows.penalized.ctypes.data, *addresses):  # fmt: skip
        raise MemoryError(f"no memory for a path of {padded} rows and {size} coordinates")


def _compiled(rows: Rows, tasks: Tasks, stage: int, tol: float) -> Spots:
    parts = (tasks.masses, tasks.alpha, tasks.starts, tasks.k)
    masses, alpha, starts, k = (np.ascontiguousarray(part, dtype=np.float64) for part in parts)
    run, own = (np.ascontiguousarray(part, dtype=np.int64) for part in (tasks.run, tasks.own))
    found, looks = np.empty((*k.shape, rows.across.shape[0] + 4)), np.zeros(len(alpha), dtype=np.int64)
    _call(LIBRARY.paths, rows, tasks.loss, len(alpha), masses, run, own, alpha, starts, k.shape[1], k,
          BEGIN, FACTOR, RAMP, NEAR, tol, stage, STEPS, found, looks)  # fmt: skip
    return _spots(rows, found, looks)

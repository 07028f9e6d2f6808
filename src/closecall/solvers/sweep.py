"""Solve hundreds of problems at once: every combination of loss, aggregate, k, alpha and fold is a row of a matrix.

No work is repeated. `close`, `close_decay` and `atk` with k = n *are* `average`. All decay runs with the same loss,
alpha and fold share a starting point. Identical problems are solved once, and converged problems leave the batch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..objective import Problem
from ..schedules import last_convex_step
from .convex import minimize
from .design import Design, least_squares_start, make_design, merge_duplicates
from .kernels import Mass, make_mass
from .many import FROM_ROWS
from .newton import Limits
from .path import Crew
from .steps import Descent, Rows

#: In designs with fewer entries than this, BLAS threads spend more time waiting than working.
SMALL_DESIGN = 1 << 20
NOT_FINITE = "a solution is not finite; scale the features (StandardScaler) or raise alpha"


@dataclass(frozen=True)
class Progress:
    """The argument of the callback: the step reached, the number of steps, and the number of problems still running."""

    phase: str
    step: int
    steps: int
    active: int


@dataclass(frozen=True)
class Prepared:
    """A training set that is prepared for several sweeps; a search runs four or five sweeps."""

    design: Design
    _starts: dict[int, Array] = field(default_factory=dict)

    @cached_property
    def masses(self) -> list[Mass]:
        """The masses of the folds, with the dtype of the design."""
        return [make_mass(mass, self.design.signed.dtype.type) for mass in self.design.masses]

    def least_squares(self, fold_of: Array) -> Array:
        """Return least-squares starts (problems, coordinates) for problems on these folds, solving each fold once."""
        missing = [fold for fold in np.unique(fold_of).tolist() if fold not in self._starts]
        self._starts.update(zip(missing, least_squares_start(self.design, missing), strict=True))
        return np.stack([self._starts[fold] for fold in fold_of.tolist()])


def prepare(X: Any, y: Array, masses: Array, fit_intercept: bool, penalize_intercept: bool, dtype: Any) -> Prepared:
    """Prepare data in the form that :func:`closecall.solvers.solve` accepts, with masses (folds, samples)."""
    X, y, masses = merge_duplicates(X, y, masses)
    with _finite_results():
        design = make_design(X, y, masses, fit_intercept=fit_intercept, penalize=penalize_intercept, dtype=dtype)
    return Prepared(design)


@contextlib.contextmanager
def _finite_results() -> Iterator[None]:
    """Ignore overflow, because results are checked later; if LAPACK fails, raise the same error as that check."""
    with np.errstate(all="ignore"):
        try:
            yield
        except np.linalg.LinAlgError as error:
            raise FloatingPointError(f"{NOT_FINITE} ({error})") from None


def sweep(
    prepared: Prepared,
    problems: Sequence[Problem],
    fold_of: Array,
    *,
    max_iter: int,
    tol: float,
    extra_iter: int = 0,
    init: Any = "least_squares",
    memory_limit: int = 1 << 30,
    threads: int = 1,
    callback: Callable[[Progress], None] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """Solve problems without certificates, as a search does before it refits the best one with :func:`solve`.

    Return coef (problems, features), and arrays (problems,) of intercepts, step counts and lower bounds on the minima.
    A bound is 0 if none is known.
    """
    with _finite_results():
        batch = _Batch(prepared, max_iter, tol, memory_limit, threads, callback, extra_iter)
        coordinates, used, bounds = batch.run(problems, fold_of, _starts(prepared, init, fold_of, problems))
        coef, intercept = prepared.design.to_parameters(coordinates)
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise FloatingPointError(NOT_FINITE)
    return coef, intercept, used, bounds


def _starts(prepared: Prepared, init: Any, fold_of: Array, problems: Sequence[Problem]) -> Array:
    design, features = prepared.design, prepared.design.features
    if isinstance(init, str):
        if init not in ("least_squares", "zeros"):
            raise ValueError(f"unknown init {init!r}; choose least_squares or zeros, or pass (coef, intercept)")
        kinds = [(get_loss(problem.loss), get_aggregate(problem.aggregate)) for problem in problems]
        averages = all(loss.convex and (aggregate.plain or aggregate.decays) for loss, aggregate in kinds)
        # A run that begins with an average has the same end from any start, and least squares is expensive for many
        # columns.
        if init == "zeros" or (design.basis is None and averages):
            return np.zeros((len(fold_of), design.rank))
        return prepared.least_squares(fold_of)
    coef, intercept = (np.asarray(part, dtype=np.float64) for part in init)
    try:
        coef = np.broadcast_to(np.atleast_2d(coef), (len(fold_of), features))
        intercept = np.broadcast_to(np.ravel(intercept) if intercept.ndim else intercept, len(fold_of))
    except ValueError:
        raise ValueError(
            f"init has shapes {coef.shape} and {intercept.shape}; expected ({features},) and a number for all "
            f"problems together, or ({len(fold_of)}, {features}) and ({len(fold_of)},) for each problem"
        ) from None
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise ValueError("init contains NaN or infinite values")
    return design.to_coordinates(coef, intercept)


def _from_sample(design: Design, rows: Rows, start: Array, limits: Limits) -> Array:
    """Return starts for many dense examples: each group's minimum for the middle alpha, found on a sample.

    These starts halve the time for the average-loss problems in a search on 100,000 rows with 20 columns.
    """
    step = min(12, design.samples // 25_000)
    if design.samples < FROM_ROWS or not isinstance(design.signed, np.ndarray):
        return start
    masses = np.ascontiguousarray(design.masses[:, ::step])
    if not masses.any(axis=1).all():  # a fold leaves out exactly these examples
        return start
    signed = np.ascontiguousarray(design.signed[::step])
    few = replace(design, signed=signed, spectrum=design.spectrum / step, masses=masses)
    groups = rows.alike(start)
    middle = np.array([group[len(group) // 2] for group in groups])
    part = replace(rows.take(middle), alpha=rows.alpha[middle] / step)
    own = [make_mass(mass, design.signed.dtype.type) for mass in masses]
    found, start = minimize(few, part, own, start[middle], replace(limits, snapshot=None))[0], start.copy()
    for place, group in zip(found, groups, strict=True):
        start[group] = place
    return start


@dataclass
class _Batch:
    """A call of :func:`sweep`."""

    prepared: Prepared
    steps: int
    tol: float
    memory_limit: int
    threads: int
    callback: Callable[[Progress], None] | None
    extra: int

    def __post_init__(self) -> None:
        self.design, self.masses = self.prepared.design, self.prepared.masses
        bytes_per_row = self.design.samples * self.design.signed.dtype.itemsize
        # NumPy uses about six arrays of a block's shape, which should stay in the cache (all sizes from 0.3 to 2 MB are
        # equally fast). The compiled kernel uses one, and products with more rows are faster (4.3 ns per element with 5
        # rows, 1.3 ns with 110).
        limit = self.memory_limit // self.threads
        self.block_rows = max(1, min(1 << 19, limit // 6) // bytes_per_row)
        self.wide_rows = max(1, min(1 << 23, limit // 2) // bytes_per_row)
        self.crew = Crew(self.threads)

    def run(self, problems: Sequence[Problem], fold_of: Array, start: Array) -> tuple[Array, Array, Array]:
        """Return the coordinates, the steps used and the lower bounds (0 if unknown) of all problems."""
        rows = Rows.of(problems, fold_of, np.array([mass.total for mass in self.masses]), self.steps)
        row_of, first = _distinct(*vars(rows).values(), start)
        rows, start = rows.take(first), start[first]
        C, used, bounds = start.copy(), np.zeros(len(rows), dtype=int), np.zeros(len(rows))
        small = self.design.samples * self.design.rank < SMALL_DESIGN
        with _blas().limit(limits=1, user_api="blas") if self.threads > 1 or small else contextlib.nullcontext():
            self._solve_averages(rows, start, C, used, bounds)
            self._share(np.flatnonzero(~rows.averages), rows, C, used)
        return C[row_of], used[row_of], bounds[row_of]

    def _solve_averages(self, rows: Rows, start: Array, C: Array, used: Array, bounds: Array) -> None:
        """Solve the convex average-loss problems; a decay run starts from its solution after a third of the steps."""
        third, average = last_convex_step(self.steps), rows.averages
        needed = np.flatnonzero(average | (rows.first > 1))
        if not needed.size:
            return
        root_of, first = _distinct(*(part[needed] for part in (rows.loss, rows.fold, rows.alpha, start)))
        chosen = needed[first]
        passes = np.full(len(chosen), third)
        passes[root_of[average[needed]]] = self.steps + self.extra
        for budget in np.unique(passes):  # a root that is needed only for decay runs stops after the first third
            group = np.flatnonzero(passes == budget)
            parts = [part for part in np.array_split(group, self.threads) if part.size]
            task = partial(self._solve_roots, rows, start, int(budget))
            for part, result in zip(parts, self.crew.map(task, [chosen[part] for part in parts]), strict=True):
                for root, end, passed, snapshot, bound in zip(part, *result, strict=True):
                    mine = needed[root_of == root]
                    C[mine] = np.where(average[mine, None], end, snapshot)
                    used[mine] = np.where(average[mine], passed, third)
                    bounds[mine] = np.where(average[mine], bound, 0.0)

    def _solve_roots(self, rows: Rows, start: Array, budget: int, index: Array) -> Any:
        third, roots = last_convex_step(self.steps), rows.take(index)
        # If there are many columns, an average from which only decay runs start need not be exact.
        only_starts = budget == third < self.steps + self.extra
        tol = max(self.tol, 3e-3) if self.design.basis is None and only_starts else self.tol
        limits = Limits(budget, tol, self.block_rows, third, lambda step: self._beat("convex", step, len(index)))
        return minimize(self.design, roots, self.masses, _from_sample(self.design, roots, start[index], limits), limits)

    def _share(self, stepping: Array, rows: Rows, C: Array, used: Array) -> None:
        """Advance the rows that need majorising steps; similar rows stay together, and the threads share the work."""
        some = rows.take(stepping)
        order = stepping[np.lexsort((some.k, some.aggregate, some.loss, some.fold))]
        work = len(order) * self.design.samples
        pieces = 1 if self.threads == 1 else self.threads * (4 if work > 400_000 * self.threads else 1)
        parts = [part for part in np.array_split(order, pieces) if part.size]
        # Without a callback or other threads, reports are useless and would cost more than a step.
        heard = partial(self._beat, "steps") if self.callback is not None or self.threads > 1 else None

        def task(part: Array) -> Any:
            sizes = self.steps, self.block_rows, self.wide_rows
            return Descent(self.design, rows.take(part), self.masses, C[part], *sizes).run(self.tol, self.extra, heard)

        for part, result in zip(parts, self.crew.map(task, parts), strict=True):
            C[part], used[part] = result

    def _beat(self, phase: str, step: int, active: int) -> None:
        if self.crew.stopped.is_set():
            raise KeyboardInterrupt
        if self.callback is not None:
            self.callback(Progress(phase, step, self.steps, active))


def _distinct(*parts: Array) -> tuple[Array, Array]:
    """Return each row's index among the distinct rows of parallel arrays, and where the distinct rows first occur."""
    keys = list(zip(*([each.tobytes() for each in part] for part in parts), strict=True))
    number = {key: place for place, key in enumerate(dict.fromkeys(keys))}
    number_of = np.array([number[key] for key in keys])
    return number_of, np.unique(number_of, return_index=True)[1]


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # inspecting all loaded libraries takes 8 ms

"""Hundreds of problems at once: every (loss, aggregate, k, alpha) and fold as rows of one matrix.

Work that is the same is done once: `close`, `close_decay` and `atk` with k = n *are* `average`; all decay runs of one
(loss, alpha, fold) grow from one convex root; problems that occur twice are solved once; what has converged leaves.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..objective import Problem, check_data
from ..schedules import last_convex_step
from . import compiled
from .certificate import Judged, counts, judge
from .checks import check_dtype, check_folds, check_problems, check_range
from .convex import Roots
from .crew import Crew
from .design import merge_duplicates
from .finish import finish_averages, settle_all
from .large import Manner, Settled, merge, nothing, settle_many
from .prepared import NOT_FINITE, Prepared, design_of
from .sample import descend_from, minimize_from
from .steps import Rows

#: Bytes of a block's margins: small enough for the cache, large enough for the product (measured: flat 0.3-2 MB).
BLOCK_BYTES = 1 << 19
#: Entries of a design below which BLAS threads wait for each other longer than they work.
SMALL_DESIGN = 1 << 20
#: How exactly a convex average of many columns is solved that decay runs only start from.
ROOT_TOL = 3e-3
#: What every row that weighs all examples by their masses is solved as.
AVERAGE = "average"


@dataclass(frozen=True)
class Progress:
    """What the callback receives: the step reached, of how many, and how many problems are still running."""

    phase: str
    step: int
    steps: int
    active: int


@dataclass(frozen=True)
class Solutions:
    """Solutions of a batch of problems; every array has the problems first.

    Parameters
    ----------
    coef : array (problems, features)
    intercept : array (problems,)
    objective : array (problems,)
        Sum of weighted losses + alpha / 2 * ||w||^2 at the final k, without the constant M.
    errors : array (problems,)
        Misclassified training mass: margin <= 0.
    n_iter : array (problems,)
        Steps used; each looks at the data once.
    gap : array (problems,)
        The certificate, a share of the objective: how far it can be above its minimum (convex loss and aggregate; a
        proven bound), or how far it could fall with the weights held at their final values (the other aggregates). See
        :mod:`closecall.solvers.certificate`.
    converged : array (problems,)
        Whether the gap is at most ``tol``.
    """

    coef: Array
    intercept: Array
    objective: Array
    errors: Array
    n_iter: Array
    gap: Array
    converged: Array


def solve(
    X: Any,
    y: Any,
    problems: Sequence[Problem],
    *,
    max_iter: int = 1000,
    extra_iter: int = 0,
    tol: float = 1e-3,
    settle: int = 0,
    init: Any = "least_squares",
    fit_intercept: bool = True,
    penalize_intercept: bool = False,
    sample_weight: Any = None,
    folds: Any = None,
    fold_of: Any = None,
    dtype: Any = None,
    memory_limit: int = 1 << 30,
    threads: int = 1,
    shuffled: bool = False,
    judged: bool = True,
    callback: Callable[[Progress], None] | None = None,
) -> Solutions:
    """Solve a batch of problems on one training set.

    Parameters
    ----------
    X : array or sparse matrix (samples, features)
        Dense of any numeric type, read-only memory maps included, or CSR, which is never densified.
    y : array (samples,)
        Labels -1 and +1.
    problems : sequence of Problem
    max_iter : int
        E, the length of a run in steps; a decay run takes its thirds from it.
    extra_iter : int
        Further steps at the final k for problems that have not settled by then.
    tol : float
        The largest gap of a problem that has converged. It leaves the batch when a step moves its margins by less than
        this share of their size; 0 runs every step.
    settle : int
        Problems that end without their certificate then settle (:mod:`closecall.solvers.finish`): averages for at most
        this many further steps, selections for at most a quarter of it, of which each costs about four others. On many
        dense examples close selections of a smooth loss are solved by :mod:`closecall.solvers.large` instead.
    init : {"least_squares", "zeros"} or (coef, intercept)
        Where to start: minimum-norm least squares on y, zeros, or given parameters, one for all problems or one each.
    fit_intercept, penalize_intercept : bool
    sample_weight : array (samples,), optional
        Masses.
    folds : array (folds, samples), optional
        Zero where a fold leaves an example out; multiplied into the sample weights.
    fold_of : array (problems,) of int, optional
        Which fold each problem trains on; required with more than one fold.
    dtype : float32 or float64, optional
        Of the sweep; X's own by default, float64 for other types. Results are float64.
    memory_limit : int
        Bytes that the blocks of margins may take in all.
    threads : int
        Problems are shared out among this many threads, each with one BLAS thread; 1 leaves BLAS as it is set up,
        except that small products take one thread.
    shuffled : bool
        Whether the order of the rows means nothing, so that the first ones are a sample; drawn at random otherwise.
    judged : bool
        Whether objectives and errors are computed once more at the end; without it, those of problems on many examples
        may be rounded as the type of X is.
    callback : callable, optional
        Receives a :class:`Progress` now and then.

    Returns
    -------
    Solutions

    Examples
    --------
    >>> X = np.array([[-2.0], [-1.0], [-0.5], [0.5], [1.0], [2.0]])
    >>> y = np.array([-1, -1, 1, 1, 1, 1])
    >>> found = solve(X, y, [Problem(alpha=0.1), Problem("hinge", "close_decay", k=2, alpha=0.1)])
    >>> found.errors.tolist()
    [0.0, 0.0]
    """
    X, y, weight = check_data(X, y, sample_weight)
    problems = check_problems(problems, tol, max_iter=max_iter, threads=threads, memory_limit=memory_limit)
    masses, fold_of = check_folds(folds, fold_of, weight, y, len(problems))
    dtype = check_range(check_dtype(dtype, X), X, masses)
    options = {"fit_intercept": fit_intercept, "penalize_intercept": penalize_intercept, "dtype": dtype}
    setting = Judged(X, y, Manner(max_iter, tol, fit_intercept, penalize_intercept).intercept)
    merged = merge_duplicates(X, y, masses)
    settled: dict[int, Settled] = {}
    if settle and isinstance(init, str) and init == "least_squares":
        manner = Manner(max_iter, tol, fit_intercept, penalize_intercept)
        settled = settle_many(*merged, problems, fold_of, manner, shuffled)
    if not judged and len(settled) == len(problems):
        return _as_settled([settled[row] for row in range(len(problems))], tol)
    rest = np.array([row for row in range(len(problems)) if row not in settled], dtype=int)
    some = [problems[row] for row in rest]
    how: dict[str, Any] = {"memory_limit": memory_limit, "threads": threads, "callback": callback}
    how |= {"max_iter": max_iter, "extra_iter": extra_iter, "tol": tol, "init": init}
    (coef, intercept, used, bounds), proven = nothing(X.shape[1]), None
    with np.errstate(all="ignore"):  # what comes out is looked at
        if some:
            prepared = design_of(*merged, **options)
            coef, intercept, used, bounds = sweep(prepared, some, fold_of[rest], **how)
            if settle:
                proven = settle_all(prepared, some, fold_of[rest], coef, intercept, used, steps=settle, tol=tol)
            else:
                del prepared  # as large as X; the certificate looks at X itself
        if settled:
            coef, intercept, used, bounds, proven = merge(settled, rest, coef, intercept, used, bounds, proven)
        known: dict[str, Any] = {"tol": tol, "bounds": bounds, "proven": proven}
        objective, errors, gap = judge(setting, masses, problems, fold_of, coef, intercept, **known)
        left = np.flatnonzero(gap > tol) if settle else np.empty(0, dtype=int)
        if left.size and finish_averages(
            prepared, problems, fold_of, left, coef, intercept, used, bounds, steps=settle, tol=tol
        ):
            objective, errors, gap = judge(setting, masses, problems, fold_of, coef, intercept, **known)
    if not np.isfinite(objective).all():
        raise FloatingPointError(NOT_FINITE)
    return Solutions(coef, intercept, objective, errors, used, gap, gap <= tol)


def _as_settled(points: list[Settled], tol: float) -> Solutions:
    coef, intercept, value, errors, used, gap = (
        np.array([getattr(point, name) for point in points])
        for name in ("coef", "intercept", "value", "errors", "used", "gap")
    )
    return Solutions(coef, intercept, value, errors, used, gap, gap <= tol)


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
    """Solve without a certificate, as a search does: what it takes is fitted again by :func:`solve`.

    Returns
    -------
    coef : array (problems, features)
    intercept, n_iter, bounds : arrays (problems,)
        The last are lower bounds of the minima, 0 where none is known.
    """
    problems = check_problems(problems, tol, max_iter=max_iter, threads=threads, memory_limit=memory_limit)
    with np.errstate(all="ignore"):  # what comes out is looked at
        try:
            batch = _Batch(prepared, problems, fold_of, max_iter, tol, memory_limit, threads, callback, extra_iter)
            coordinates, used, bounds = batch.run(_starts(prepared, init, fold_of, problems))
        except np.linalg.LinAlgError as error:
            raise FloatingPointError(f"{NOT_FINITE} ({error})") from None
        coef, intercept = prepared.design.to_parameters(coordinates)
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise FloatingPointError(NOT_FINITE)
    return coef, intercept, used, bounds


def _starts(prepared: Prepared, init: Any, fold_of: Array, problems: list[Problem]) -> Array:
    """Start coordinates, (problems, coordinates)."""
    design, features = prepared.design, prepared.features
    if isinstance(init, str):
        if init == "least_squares":
            # What begins convex ends at the same place from anywhere, and least squares of many columns cost more.
            if design.basis is None and all(_begins_convex(problem) for problem in problems):
                return np.zeros((len(fold_of), design.rank))
            return prepared.least_squares(fold_of)
        if init == "zeros":
            return np.zeros((len(fold_of), design.rank))
        raise ValueError(f"unknown init {init!r}; choose one of: least_squares, zeros, or give (coef, intercept)")
    coef, intercept = (np.asarray(part, dtype=np.float64) for part in init)
    try:
        coef = np.broadcast_to(np.atleast_2d(coef), (len(fold_of), features))
        intercept = np.broadcast_to(np.ravel(intercept) if intercept.ndim else intercept, len(fold_of))
    except ValueError:
        raise ValueError(
            f"init has shapes {coef.shape} and {intercept.shape}; expected ({features},) and a number, one for all "
            f"problems, or ({len(fold_of)}, {features}) and ({len(fold_of)},), one each"
        ) from None
    if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
        raise ValueError("init contains NaN or infinite values")
    return design.to_coordinates(coef, intercept)


def _begins_convex(problem: Problem) -> bool:
    aggregate = get_aggregate(problem.aggregate)
    return get_loss(problem.loss).convex and (aggregate.plain or aggregate.decays)


@dataclass
class _Batch:
    """One call of solve: which rows are really different, and how they are run."""

    prepared: Prepared
    problems: list[Problem]
    fold_of: Array
    steps: int
    tol: float
    memory_limit: int
    threads: int
    callback: Callable[[Progress], None] | None
    extra: int = 0

    def __post_init__(self) -> None:
        self.design, self.masses = self.prepared.design, self.prepared.masses
        bytes_per_row = self.design.samples * self.design.signed.dtype.itemsize
        # About six arrays of a block's shape are alive at once.
        room = max(BLOCK_BYTES, bytes_per_row)
        room = min(room, max(self.memory_limit // (6 * self.threads), bytes_per_row))
        self.block_rows = max(1, room // bytes_per_row)
        self.wide_rows = max(1, min(compiled.BLOCK_BYTES, self.memory_limit // (2 * self.threads)) // bytes_per_row)
        self.crew = Crew(self.threads)

    def run(self, start: Array) -> tuple[Array, Array, Array]:
        """Coordinates, steps used and lower bounds (0: none is known) of every problem."""
        keys = [self._key(index, start) for index in range(len(self.problems))]
        unique = {key: row for row, key in enumerate(dict.fromkeys(keys))}
        row_of = np.array([unique[key] for key in keys])
        first = np.unique(row_of, return_index=True)[1]
        rows, start = self._rows([keys[index] for index in first]), start[first]
        C, used, bounds = start.copy(), np.zeros(len(rows), dtype=int), np.zeros(len(rows))
        small = self.design.samples * self.design.rank < SMALL_DESIGN
        with _blas().limit(limits=1, user_api="blas") if self.threads > 1 or small else contextlib.nullcontext():
            self._grow_roots(rows, start, C, used, bounds)
            stepping = np.flatnonzero(~self._averages(rows))
            self._share(stepping, rows, C, used)
        return C[row_of], used[row_of], bounds[row_of]

    def _key(self, index: int, start: Array) -> tuple[Any, ...]:
        """What makes a row different from another, in the order in which rows are sorted into blocks."""
        problem, fold = self.problems[index], int(self.fold_of[index])
        name, total = problem.aggregate, self.masses[fold].total
        k, m = counts(problem, total)
        if get_aggregate(name).is_average(k, m, total):
            name = AVERAGE
        return fold, problem.loss, name, k, m, float(problem.alpha), start[index].tobytes()

    def _rows(self, keys: list[tuple[Any, ...]]) -> Rows:
        fold, loss, name, k, m, alpha, _ = zip(*keys, strict=True)
        planted = [get_aggregate(a).decays and get_loss(item).convex for a, item in zip(name, loss, strict=True)]
        first = np.where(planted, last_convex_step(self.steps) + 1, 1)
        return Rows(np.array(loss), np.array(name), np.array(fold), np.array(k), np.array(m), np.array(alpha), first)

    def _convex(self, rows: Rows) -> Array:
        return np.array([get_loss(loss).convex for loss in rows.loss])

    def _averages(self, rows: Rows) -> Array:
        return self._convex(rows) & np.array([get_aggregate(name).plain for name in rows.aggregate])

    def _grow_roots(self, rows: Rows, start: Array, C: Array, used: Array, bounds: Array) -> None:
        """Solve the convex averages; plant each decay run where its root stood after the first third."""
        third = last_convex_step(self.steps)
        grows = self._convex(rows) & (rows.first > 1) & (third > 0)
        average = self._averages(rows)
        needed = np.flatnonzero(grows | average)
        if not needed.size:
            return
        ids = [(rows.loss[i], rows.fold[i], rows.alpha[i], start[i].tobytes()) for i in needed]
        place = {key: number for number, key in enumerate(dict.fromkeys(ids))}
        root_of = np.array([place[key] for key in ids])
        chosen = needed[np.unique(root_of, return_index=True)[1]]
        passes = np.full(len(chosen), third)
        passes[root_of[average[needed]]] = self.steps + self.extra
        for budget in np.unique(passes):  # a root that only serves decay runs stops after the first third
            group = np.flatnonzero(passes == budget)
            parts = [part for part in np.array_split(group, self.threads) if part.size]
            for part, result in zip(
                parts, self.crew.map(self._root_task(rows, start, chosen, budget), parts), strict=True
            ):
                for local, root in enumerate(part):
                    mine = needed[root_of == root]
                    is_average = average[mine]
                    C[mine] = np.where(is_average[:, None], result[0][local], result[2][local])
                    used[mine] = np.where(is_average, result[1][local], third)
                    bounds[mine] = np.where(is_average, result[3][local], 0.0)

    def _root_task(self, rows: Rows, start: Array, chosen: Array, budget: int) -> Callable[[Array], Any]:
        third = last_convex_step(self.steps)

        def task(part: Array) -> Any:
            index = chosen[part]
            roots = Roots(rows.loss[index].tolist(), rows.fold[index], rows.alpha[index])
            only_grows = int(budget) == third < self.steps + self.extra
            tol = max(self.tol, ROOT_TOL) if self.design.basis is None and only_grows else self.tol
            return minimize_from(
                self.prepared.sample, self.design, roots, self.masses, start[index],
                passes=int(budget), tol=tol, block_rows=self.block_rows, snapshot=third,
                beat=lambda step: self._beat("convex", step, len(index)),
            )  # fmt: skip

        return task

    def _share(self, stepping: Array, rows: Rows, C: Array, used: Array) -> None:
        """Run the stepping rows, dealt out to the threads in pieces that keep equal work together."""
        order = stepping[
            np.lexsort((rows.k[stepping], rows.aggregate[stepping], rows.loss[stepping], rows.fold[stepping]))
        ]
        work = len(order) * self.design.samples
        pieces = 1 if self.threads == 1 else self.threads * (4 if work > 400_000 * self.threads else 1)
        parts = [part for part in np.array_split(order, pieces) if part.size]

        def beat(step: int, active: int) -> None:
            self._beat("steps", step, active)

        # Nobody listens, and no other thread can have been stopped: what the beat says would cost more than a step.
        heard = beat if self.callback is not None or self.threads > 1 else None

        def task(part: Array) -> Any:
            return descend_from(
                self.prepared.sample, self.design, rows.take(part), self.masses, C[part],
                steps=self.steps, tol=self.tol, block_rows=self.block_rows, wide_rows=self.wide_rows, extra=self.extra,
                beat=heard,
            )  # fmt: skip

        for part, result in zip(parts, self.crew.map(task, parts), strict=True):
            C[part], used[part] = result

    def _beat(self, phase: str, step: int, active: int) -> None:
        if self.crew.stopped.is_set():
            raise KeyboardInterrupt
        if self.callback is not None:
            self.callback(Progress(phase, step, self.steps, active))


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()  # looks through all loaded libraries: 8 ms, once

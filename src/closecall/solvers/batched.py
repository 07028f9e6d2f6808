"""A batch of problems on one training set: checked, solved together, settled and certified."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._names import Array
from ..objective import Problem, check_data
from .certificate import Judged, judge
from .checks import check_dtype, check_folds, check_problems, check_range
from .close import Ends
from .design import merge_duplicates
from .finish import finish_averages, settle_all
from .large import Manner, Settled, merge, nothing, settle_many
from .prepared import NOT_FINITE, design_of
from .sweep import Progress, sweep


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
    with np.errstate(all="ignore"):  # non-finite results raise below
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


def certify(
    X: Any, y: Array, problems: Sequence[Problem], masses: Array, fold_of: Array, ends: Ends, rows: Array, *,
    tol: float, settle: int, fit_intercept: bool, penalize_intercept: bool,
) -> Array:  # fmt: skip
    """Settle problems where paths ended (:mod:`closecall.solvers.finish`), in place; their gaps (problems,)."""
    problems, used = list(problems), np.zeros(len(problems), dtype=int)
    coef, intercept = ends.coef[rows], ends.intercept[rows]
    with np.errstate(all="ignore"):  # non-finite results raise below
        prepared = design_of(X, y, masses, fit_intercept=fit_intercept, penalize_intercept=penalize_intercept,
                             dtype=np.float64)  # fmt: skip
        proven = settle_all(prepared, problems, fold_of, coef, intercept, used, steps=settle, tol=tol)
        setting = Judged(X, y, prepared.design.intercept)
        objective, _, gap = judge(setting, masses, problems, fold_of, coef, intercept, tol=tol, proven=proven)
    if not np.isfinite(objective).all():
        raise FloatingPointError(NOT_FINITE)
    ends.coef[rows], ends.intercept[rows], ends.looks[rows] = coef, intercept, ends.looks[rows] + used
    return gap


def _as_settled(points: list[Settled], tol: float) -> Solutions:
    coef, intercept, value, errors, used, gap = (
        np.array([getattr(point, name) for point in points])
        for name in ("coef", "intercept", "value", "errors", "used", "gap")
    )
    return Solutions(coef, intercept, value, errors, used, gap, gap <= tol)

"""Check a batch of problems on one training set, solve them together and certify the solutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from .._names import Array
from ..aggregates import check_mass, get_aggregate
from ..losses import get_loss
from ..objective import Problem, check_data
from .certificate import Judged, judge
from .convex import minimize
from .engine import Engine, polish
from .newton import LARGEST_RANK, Limits
from .steps import Rows
from .sweep import NOT_FINITE, Progress, prepare, sweep


@dataclass(frozen=True)
class Solutions:
    """The solutions of a batch of problems; the first axis of every array indexes the problems.

    Parameters
    ----------
    coef : array (problems, features)
    intercept : array (problems,)
    objective : array (problems,)
        The sum of the weighted losses plus alpha / 2 * ||w||^2 at the final k, without the constant M.
    errors : array (problems,)
        The misclassified training mass, which has margins <= 0.
    n_iter : array (problems,)
        The number of steps used, each of which is one pass over the data.
    gap : array (problems,)
        The certificate, relative to the objective (:mod:`closecall.solvers.certificate`). If the loss and the aggregate
        are convex, it bounds how far the objective is above its minimum, and otherwise how far the objective could
        decrease with the weights held fixed.
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
    callback: Callable[[Progress], None] | None = None,
) -> Solutions:
    """Solve a batch of problems on one training set.

    Parameters
    ----------
    X : array or sparse matrix (samples, features)
        A dense array of any numeric type, including a read-only memory map, or a CSR matrix, which is never converted
        to a dense array.
    y : array (samples,)
        Labels -1 and +1.
    problems : sequence of Problem
    max_iter : int
        E, the number of steps in a run. Each of the three phases of a decay run takes a third of these steps.
    extra_iter : int
        The number of further steps at the final k for problems that have not converged after E steps.
    tol : float
        The largest gap at which a problem counts as converged. A problem leaves the batch when a step changes its
        margins by less than this fraction of their size; with 0, all steps are taken.
    settle : int
        The maximum number of further steps for average-loss problems without a certificate. If it is positive,
        :mod:`closecall.solvers.engine` also continues other problems without a certificate.
    init : {"least_squares", "zeros"} or (coef, intercept)
        The start: the minimum-norm least-squares solution for y, zeros, or given parameters, either one set for all
        problems or one for each problem.
    fit_intercept, penalize_intercept : bool
    sample_weight : array (samples,), optional
        The mass of each example.
    folds : array (folds, samples), optional
        The factors by which a fold multiplies the sample weights: zero for examples that it leaves out.
    fold_of : array (problems,) of int, optional
        The fold on which each problem is trained; required if there is more than one fold.
    dtype : float32 or float64, optional
        The type used for the steps. By default, it is the type of X if that is float32 or float64, and otherwise
        float64. Results are always float64.
    memory_limit : int
        The maximum memory for the blocks of margins, in bytes.
    threads : int
        The number of threads among which the problems are divided, each with one BLAS thread. With 1, BLAS uses its own
        setting, except that small products use one thread.
    callback : callable, optional
        A function that is called from time to time with a :class:`Progress` object.

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
    dtype = check_dtype(dtype, X, masses)
    with np.errstate(all="ignore"):  # non-finite results raise below
        prepared = prepare(X, y, masses, fit_intercept, penalize_intercept, dtype)
        setting = Judged(X, y, prepared.design.intercept)
        coef, intercept, used, bounds = sweep(
            prepared, problems, fold_of, max_iter=max_iter, extra_iter=extra_iter, tol=tol, init=init,
            memory_limit=memory_limit, threads=threads, callback=callback,
        )  # fmt: skip
        if not settle:
            del prepared  # as large as X; the certificate uses X itself
        known: dict[str, Any] = {"tol": tol, "bounds": bounds}
        objective, errors, gap = judge(setting, masses, problems, fold_of, coef, intercept, **known)
        left = np.flatnonzero(gap > tol) if settle else np.empty(0, dtype=int)
        if left.size:
            rows = Rows.of([problems[row] for row in left], fold_of[left], masses.sum(axis=1), max_iter)
            averages, others = left[rows.averages], left[~rows.averages]
            start = prepared.design.to_coordinates(coef[averages], intercept[averages])
            for row, own, c in zip(averages, np.flatnonzero(rows.averages)[:, None], start[:, None], strict=True):
                found = minimize(prepared.design, rows.take(own), prepared.masses, c, Limits(settle, tol / 100))
                (coef[row],), (intercept[row],) = prepared.design.to_parameters(found[0])
                bounds[row], used[row] = max(bounds[row], found[3][0]), used[row] + found[1][0]
            if others.size and not sparse.issparse(X) and max(X.shape[1], X.size >> 16) < LARGEST_RANK:
                engine = Engine(X, y, masses, np.zeros(len(y), dtype=np.uint64), fit_intercept, penalize_intercept)
                ends = coef[others], intercept[others]
                known["proven"] = np.full(len(problems), np.inf)
                known["proven"][others] = polish(engine, [problems[row] for row in others], fold_of[others], *ends, tol)
                coef[others], intercept[others] = ends
            else:
                _lowest(setting, masses, problems, fold_of, others, coef, intercept, objective)
            objective, errors, gap = judge(setting, masses, problems, fold_of, coef, intercept, **known)
    if not np.isfinite(objective).all():
        raise FloatingPointError(NOT_FINITE)
    return Solutions(coef, intercept, objective, errors, used, gap, gap <= tol)


def _lowest(
    setting: Judged, masses: Array, problems: list[Problem], fold_of: Array, rows: Array, coef: Array, intercept: Array,
    objective: Array,
) -> None:  # fmt: skip
    """Replace solutions in place with the solution for the average loss, or with zero, if that lowers the objective."""
    for row in rows:
        problem, fold = problems[row], fold_of[[row]]
        if get_aggregate(problem.aggregate).close:  # its value is also low where outliers are misclassified
            continue
        plain = [Problem(problem.loss if get_loss(problem.loss).convex else "logistic", alpha=problem.alpha)]
        average = solve(
            setting.X, setting.y, plain, max_iter=300, folds=masses, fold_of=fold,
            fit_intercept=setting.intercept != "none", penalize_intercept=setting.intercept == "penalized",
        )  # fmt: skip
        for w, b in ((average.coef, average.intercept), (np.zeros_like(average.coef), np.zeros(1))):
            value = judge(setting, masses, [problem], fold, w, b, tol=np.inf)[0][0]
            if value < objective[row]:
                coef[row], intercept[row], objective[row] = w[0], b[0], value


def check_problems(problems: Sequence[Problem], tol: float, **counts: int) -> list[Problem]:
    """Check the options and return the problems as a list; ``counts`` must be positive whole numbers."""
    problems = list(problems)
    wrong = [problem for problem in problems if not isinstance(problem, Problem)]
    if not problems or wrong:
        raise TypeError(f"problems must be a non-empty sequence of Problem, not {wrong[0] if wrong else problems!r}")
    for name, value in counts.items():
        if not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name}={value!r} must be a whole number >= 1")
    if not isinstance(tol, int | float | np.number) or isinstance(tol, bool) or not 0 <= tol < np.inf:
        raise ValueError(f"tol={tol!r} must be a finite number >= 0")
    return problems


def check_folds(folds: Any, fold_of: Any, weight: Array, y: Array, problems: int) -> tuple[Array, Array]:
    """Return the masses (folds, samples) and the fold of each problem."""
    if folds is None:
        folds = np.ones((1, len(y)))
    folds = np.atleast_2d(np.asarray(folds, dtype=np.float64))
    if folds.shape[1] != len(y):
        raise ValueError(f"folds has shape {folds.shape}; expected (folds, {len(y)}), one mass for each row of X")
    if fold_of is None and len(folds) > 1:
        raise ValueError("with several folds, fold_of must give the fold of each problem")
    fold_of = np.zeros(problems, dtype=int) if fold_of is None else np.asarray(fold_of, dtype=int)
    if fold_of.shape != (problems,) or fold_of.min() < 0 or fold_of.max() >= len(folds):
        raise ValueError(f"fold_of must contain one number in 0..{len(folds) - 1} for each of the {problems} problems")
    masses = folds * weight
    for fold, mass in enumerate(masses):
        check_mass(mass, len(y))
        if not ((mass > 0) & (y > 0)).any() or not ((mass > 0) & (y < 0)).any():
            raise ValueError(f"fold {fold} has only one class; use stratified folds, or fewer folds")
    return masses, fold_of


def check_dtype(dtype: Any, X: Any, masses: Array) -> Any:
    """Return the type used for the steps: the requested type or the type of X, but float64 if float32 would overflow.

    Numbers that may overflow in float64 when squared raise an error.
    """
    if dtype is not None and np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype={dtype!r} must be float32 or float64")
    values = X.data if sparse.issparse(X) else X
    size = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if size > 1e100:
        raise ValueError(f"X contains values up to {size:.1e}; scale the features (StandardScaler) to below 1e+100")
    positive = masses[masses > 0]
    if positive.max() > 1e100 or positive.min() < 1e-100:
        raise ValueError("sample_weight contains positive weights outside 1e-100 .. 1e+100; rescale them")
    single = np.dtype(X.dtype if dtype is None else dtype) == np.float32
    return np.float32 if single and single_fits(size, masses, X.shape) else np.float64


def single_fits(size: float, masses: Array, shape: tuple[int, ...]) -> bool:
    """Return whether float32 can hold the weights, the squares of features up to ``size`` and sums of products."""
    positive = masses[masses > 0]
    heaviest, lightest = float(positive.max(initial=1)), float(positive.min(initial=1))
    if max(size, heaviest, 1 / lightest) > 1e15:  # sums of squares are outside float32's range
        return False
    # The length of a centred and rotated row is at most 2 * sqrt(features) * size, and the constant column has size 1.
    longest = 4 * (shape[1] + 1) * max(size, 1.0) ** 2
    return shape[0] * heaviest * longest < float(np.finfo(np.float32).max)

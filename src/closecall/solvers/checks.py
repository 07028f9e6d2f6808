"""Checks of the arguments of :func:`closecall.solvers.solve`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from .._names import Array
from ..aggregates import check_mass
from ..objective import Problem


def check_problems(problems: Sequence[Problem], tol: float, **counts: int) -> list[Problem]:
    """Return the problems as a list after checking options; ``counts`` must be whole and positive."""
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
    """Return the type of the steps: the requested type or that of X, but float64 if float32 would overflow.

    Numbers that may overflow in float64 when squared raise an error.
    """
    if dtype is not None and np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype={dtype!r} must be float32 or float64")
    values = X.data if sparse.issparse(X) else X
    size = max(float(values.max(initial=0)), -float(values.min(initial=0)))
    if size > 1e100:
        raise ValueError(f"X contains values up to {size:.1e}; scale the features (StandardScaler) to below 1e+100")
    positive = _positive(masses)
    if positive.max() > 1e100 or positive.min() < 1e-100:
        raise ValueError("sample_weight contains positive weights outside 1e-100 .. 1e+100; rescale them")
    single = np.dtype(X.dtype if dtype is None else dtype) == np.float32
    return np.float32 if single and single_fits(size, masses, X.shape) else np.float64


def single_fits(size: float, masses: Array, shape: tuple[int, ...]) -> bool:
    """Return whether float32 can hold the weights, the squares of features up to ``size`` and sums of products."""
    positive = _positive(masses)
    heaviest, lightest = float(positive.max(initial=1)), float(positive.min(initial=1))
    if max(size, heaviest, 1 / lightest) > 1e15:  # sums of squares leave float32's range
        return False
    # The length of a centred and rotated row is at most 2 * sqrt(features) * size, and the constant column has size 1.
    longest = 4 * (shape[1] + 1) * max(size, 1.0) ** 2
    return shape[0] * heaviest * longest < float(np.finfo(np.float32).max)


def _positive(masses: Array) -> Array:
    return masses if masses.size and masses.min() > 0 else masses[masses > 0]

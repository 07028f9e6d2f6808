"""From a checked training set to linear models: two classes, one-vs-rest, or all classes jointly."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from .._names import Array, lookup
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..objective import Problem
from ..solvers import solve
from ..solvers.certificate import weights_at
from ..solvers.checks import check_problems, single_fits
from ..solvers.engine import Engine, serves
from ..solvers.kernels import make_mass
from ..solvers.sweep import prepare, sweep
from ..theory import best_intercept
from .multiclass import JOINT, individual_losses, prepare_joint, solve_joint
from .training import Arranged, Training, arrange, largest, orientation

#: How more than two classes are handled; two classes are the same in all three.
MULTICLASS = {
    "ovr": "one problem for each class against the rest",
    "top_two": "one problem, margin = own score - best other score",
    "softmax": "one problem, cross-entropy of the softmax",
}
#: How close selections are solved: by a path of cuts, or as in the paper.
SOLVERS = {
    "path": "clipped losses along a path of cuts, from several starts",
    "algorithm1": "the paper's Algorithm 1: gradient steps while k falls",
}
#: The key of what was arranged for all classes jointly, beside the numbers of the scores.
ALL_CLASSES = -1
#: Scores this share of their range apart are tied to an exact intercept: it must not part what rounding parted.
RESOLUTION = 1e-7
_BLOCK = 1 << 16  # entries of X that are converted at a time: they stay in cache


@dataclass(frozen=True)
class Options:
    """How problems are solved; see :class:`closecall.AggregateLossClassifier`."""

    max_iter: int
    tol: float
    fit_intercept: bool
    penalize_intercept: bool
    multiclass: str
    init: Any = "least_squares"
    hint: bool = False  # whether init only saves steps: a path does without
    dtype: Any = None
    threads: int = 1
    extra_iter: int = 0
    certify: bool = True  # a search does without
    settle: int = 0  # steps' worth of settling; max_iter by default
    solver: str = "path"
    n_starts: int | None = None
    rough: bool = False  # as in a heat


@dataclass(frozen=True)
class Parts:
    """Which rows each problem trains on.

    Parameters
    ----------
    group : array (samples,)
        Rows of one group belong to the same folds.
    masks : array (folds, groups)
        Whether a fold trains on a group.
    fold_of : array (problems,)
    arranged, prepared : dict
        The arranged rows of each score and their designs, filled in when needed.
    """

    group: Array
    masks: Array
    fold_of: Array
    arranged: dict[int, tuple[int, Arranged]] = field(default_factory=dict)
    prepared: dict[tuple[int, Any], Any] = field(default_factory=dict)

    def of(self, fold_of: Sequence[int] | Array) -> Parts:
        """The same rows for other problems, reusing the prepared data."""
        return replace(self, fold_of=np.asarray(fold_of))

    def arrange(self, training: Training, labels: Array) -> Arranged:
        """Arrange the rows that any fold trains on."""
        found = arrange(training, labels, self.group)
        kept = np.any(np.asarray(self.masks, dtype=bool)[:, found.group], axis=0)
        if kept.all():
            return found
        return found.take(kept)

    def masses(self, rows: Arranged) -> Array:
        """The rows that every fold trains on, (folds, samples)."""
        return np.asarray(self.masks, dtype=np.float64)[:, rows.group] * rows.mass


@dataclass(frozen=True)
class Models:
    """Linear models, problems first: coef (problems, scores, features), the rest (problems, scores)."""

    coef: Array
    intercept: Array
    n_iter: Array
    gap: Array
    converged: Array


def fit_models(
    training: Training, problems: Sequence[Problem], options: Options, *, parts: Parts | None = None
) -> Models:
    """Solve every problem."""
    lookup(MULTICLASS, options.multiclass, "multiclass")
    lookup(SOLVERS, options.solver, "solver")
    check_problems(problems, options.tol, max_iter=options.max_iter, n_starts=options.n_starts or 1)
    parts = parts or _whole(training, len(problems))
    if len(training.classes) > 2 and options.multiclass in JOINT:
        return _fit_joint(training, problems, options, parts)
    scores = 1 if len(training.classes) == 2 else len(training.classes)
    each = [_fit_one(training, problems, options, parts, number) for number in range(scores)]
    return Models(*(np.stack(pieces, axis=1) for pieces in zip(*each, strict=True)))


def _whole(training: Training, problems: int) -> Parts:
    return Parts(np.zeros(len(training.codes), dtype=int), np.ones((1, 1)), np.zeros(problems, dtype=int))


def _oriented(training: Training, parts: Parts, number: int) -> tuple[int, Arranged]:
    """The rows of one class against the rest, oriented independently of the class names."""
    if number not in parts.arranged:
        positive = training.codes == (1 if len(training.classes) == 2 else number)
        sign = orientation(training, positive)
        parts.arranged[number] = sign, parts.arrange(training, np.where(positive, sign, -sign))
    return parts.arranged[number]


def exact_intercepts(training: Training, coef: Array, options: Options, *, parts: Parts | None = None) -> Array:
    """Intercepts (problems, scores) with the least training error of each score against the rest."""
    if not options.fit_intercept:
        raise ValueError("exact_intercept=True needs fit_intercept=True")
    if len(training.classes) > 2 and options.multiclass in JOINT:
        raise ValueError(
            f"exact_intercept=True works on one score at a time; use multiclass='ovr', not {options.multiclass!r}"
        )
    parts = parts or _whole(training, len(coef))
    found = np.empty(coef.shape[:2])
    for number in range(coef.shape[1]):
        sign, rows = _oriented(training, parts, number)
        scores = np.asarray(rows.X @ (sign * coef[:, number]).T).T
        masses, narrow = parts.masses(rows)[parts.fold_of], RESOLUTION * np.ptp(scores, axis=1)
        found[:, number] = sign * best_intercept(scores, rows.labels, masses, resolution=narrow)[0]
    return found


Fitted = tuple[Array, Array, Array, Array, Array]


def _fit_one(training: Training, problems: Sequence[Problem], options: Options, parts: Parts, number: int) -> Fitted:
    """One class against the rest: by paths of cuts if possible, otherwise by steps."""
    sign, rows = _oriented(training, parts, number)
    masses, known = parts.masses(rows), parts.prepared.setdefault((number, "path"), {})
    path = np.zeros(len(problems), dtype=bool)
    own_start = options.hint or (isinstance(options.init, str) and options.init == "least_squares")
    if options.solver == "path" and own_start:
        path[:] = [serves(rows.X, problem, masses[fold]) for problem, fold in zip(problems, parts.fold_of, strict=True)]
    if path.all():
        return _by_paths(rows, sign, problems, options, masses, parts.fold_of, known)
    if not path.any():
        return _by_steps(training, problems, options, parts, number)
    mine, others = np.flatnonzero(path).tolist(), np.flatnonzero(~path).tolist()
    init = options.init if isinstance(options.init, str) else tuple(part[others] for part in options.init)
    rest = _by_steps(
        training, [problems[place] for place in others], replace(options, init=init),
        parts.of(parts.fold_of[others]), number,
    )  # fmt: skip
    first = _by_paths(rows, sign, [problems[place] for place in mine], options, masses, parts.fold_of[mine], known)
    order = np.argsort([*mine, *others])
    pieces = [np.concatenate(pair)[order] for pair in zip(first, rest, strict=True)]
    return pieces[0], pieces[1], pieces[2], pieces[3], pieces[4]


def _by_paths(
    rows: Arranged, sign: int, problems: Sequence[Problem], options: Options, masses: Array, fold_of: Array,
    known: dict[Any, Any],
) -> Fitted:  # fmt: skip
    engine = Engine(
        rows.X, rows.labels.astype(np.float64), masses, rows.hashes, options.fit_intercept, options.penalize_intercept,
        options.n_starts, options.max_iter, options.threads, options.rough, known,
    )  # fmt: skip
    ends = engine.solve(problems, fold_of, options.tol if options.certify else None)
    gap = np.minimum(ends.gap, 1.0)
    return sign * ends.coef, sign * ends.intercept, ends.looks, gap, gap <= options.tol


def _by_steps(training: Training, problems: Sequence[Problem], options: Options, parts: Parts, number: int) -> Fitted:
    sign, rows = _oriented(training, parts, number)
    init, dtype = options.init, _sweep_dtype(options, rows)
    if not isinstance(init, str):  # of one model, or of each problem's
        init = sign * init[0][..., number, :], sign * init[1][..., number]
    labels = rows.labels.astype(np.float64)
    data = {"fit_intercept": options.fit_intercept, "penalize_intercept": options.penalize_intercept, "dtype": dtype}
    how = {"max_iter": options.max_iter, "extra_iter": options.extra_iter, "tol": options.tol, "init": init,
           "threads": options.threads}  # fmt: skip
    if options.certify:
        found = solve(
            rows.X, labels, problems, folds=parts.masses(rows), fold_of=parts.fold_of,
            settle=options.settle or options.max_iter, **data, **how,
        )  # fmt: skip
        return sign * found.coef, sign * found.intercept, found.n_iter, found.gap, found.converged
    key = number, np.dtype(dtype)
    if key not in parts.prepared:
        parts.prepared[key] = prepare(rows.X, labels, parts.masses(rows), **data)
    coef, intercept, n_iter, _ = sweep(parts.prepared[key], problems, parts.fold_of, **how)
    return sign * coef, sign * intercept, n_iter, np.full(len(coef), np.nan), np.zeros(len(coef), dtype=bool)


def _sweep_dtype(options: Options, rows: Arranged) -> Any:
    """The requested type, or X's own; float64 if products of the data and the weights overflow float32."""
    return (options.dtype or rows.X.dtype) if single_fits(largest(rows.X), rows.mass, rows.X.shape) else np.float64


def fit_setting(training: Training, problem: Problem, options: Options, exact: bool) -> Models:
    """One model on all rows, with its intercept moved to the fewest training errors if requested."""
    found = fit_models(training, [problem], options)
    if not exact:
        return found
    return replace(found, intercept=exact_intercepts(training, found.coef, options))


def _fit_joint(training: Training, problems: Sequence[Problem], options: Options, parts: Parts) -> Models:
    if ALL_CLASSES not in parts.arranged:
        parts.arranged[ALL_CLASSES] = 1, parts.arrange(training, training.codes)
    rows = parts.arranged[ALL_CLASSES][1]
    key = ALL_CLASSES, np.dtype(_sweep_dtype(options, rows))
    if key not in parts.prepared:
        parts.prepared[key] = prepare_joint(
            rows.X, rows.labels, parts.masses(rows), fit_intercept=options.fit_intercept,
            penalize_intercept=options.penalize_intercept, dtype=key[1].type,
        )  # fmt: skip
    coef, intercept, n_iter, gap = solve_joint(
        parts.prepared[key], rows.labels, problems, parts.fold_of, kind=options.multiclass, max_iter=options.max_iter,
        extra_iter=options.extra_iter, settle=options.settle or options.max_iter, tol=options.tol, init=options.init,
        certify=options.certify,
    )  # fmt: skip
    return Models(coef, intercept, n_iter[:, None], gap[:, None], gap[:, None] <= options.tol)


def is_convex(problem: Problem, training: Training) -> bool:
    """Whether the objective has one minimum: a convex loss, and an aggregate that keeps it so or is the average."""
    aggregate, total = get_aggregate(problem.aggregate), float(training.mass.sum())
    whole = aggregate.is_average(*aggregate.counts(problem.k, problem.m, total), total)
    return get_loss(problem.loss).convex and (aggregate.convex or whole)


def only_class(training: Training, support: Array, models: Models, options: Options) -> Any:
    """The label shared by all rows with weight in an uncertified fit with a free intercept; None if they differ."""
    if bool(models.converged.all()) or not options.fit_intercept or options.penalize_intercept:
        return None
    codes = training.codes[np.isin(training.rows, support)]
    return training.classes[codes[0]] if codes.size and (codes == codes[0]).all() else None


def warn_unsettled(
    name: str, problem: Problem, models: Models, options: Options, convex: bool, *, only: Any = None, depth: int = 3
) -> None:
    """Warn that a fit ended without a certificate, and suggest what may help.

    ``convex``: whether the objective is; ``only``: the one class that carries weight, if there is just one and the
    intercept is free; ``depth``: the stack level of the user's own call.
    """
    if bool(models.converged.all()):
        return
    steps, gap = int(models.n_iter.max()), float(models.gap.max())
    if problem.alpha == 0:
        advice = "with alpha=0 nothing bounds the objective from below and no fit is certified; choose alpha > 0"
    elif convex:
        advice = (
            f"scale the features (StandardScaler), increase max_iter (now {options.max_iter}) or alpha (now "
            f"{problem.alpha:g}), or loosen tol"
        )
    elif only is not None and get_aggregate(problem.aggregate).close:
        advice = (
            f"only examples of class {only} carry weight, and for these alone there is no best intercept. "
            "Increase k, or compare with aggregate='average'"
        )
    else:
        limit = f"max_iter (now {options.max_iter})"
        advice = f"its choice of examples has not settled. Increase {limit}, k or alpha, or loosen tol"
    warnings.warn(
        f"{name}: {problem.aggregate} of the {problem.loss} loss stopped after {steps} steps with a gap of {gap:.1e}, "
        f"above tol={options.tol:g}: {advice}",
        ConvergenceWarning,
        stacklevel=depth,
    )


def scores_of(X: Any, coef: Array, intercept: Array) -> Array:
    """Scores (samples, scores) of one model, or (problems, samples, scores) of several."""
    if coef.ndim == 2:
        return _product(X, coef) + intercept
    flat = _product(X, coef.reshape(-1, coef.shape[-1]))
    return np.moveaxis(flat.reshape(len(flat), *coef.shape[:2]) + intercept, 1, 0)


def _product(X: Any, coef: Array) -> Array:
    """``X @ coef.T``, without a copy of X in another type."""
    if sparse.issparse(X) or X.dtype == coef.dtype or X.size <= _BLOCK:
        return np.asarray(X @ coef.T)
    found = np.empty((len(X), len(coef)), dtype=np.result_type(X, coef))
    size = max(1, _BLOCK // max(1, X.shape[1]))
    for begin in range(0, len(X), size):
        np.matmul(X[begin : begin + size].astype(found.dtype), coef.T, out=found[begin : begin + size])
    return found


def close_calls(training: Training, coef: Array, intercept: Array, problem: Problem, multiclass: str) -> Array:
    """Rows of the given X that carry weight in the objective at the solution, ascending.

    One-vs-rest has one selection for each class; a row counts if it is a close call for any of them.
    """
    scores = scores_of(training.X, np.asarray(coef, dtype=float), np.asarray(intercept, dtype=float))
    loss = get_loss(problem.loss)
    if scores.shape[1] > 1 and multiclass in JOINT:
        losses, threshold = individual_losses(multiclass, loss, scores, training.codes)
        rows = losses[None]
    else:
        codes = [1] if scores.shape[1] == 1 else range(scores.shape[1])
        signs = np.stack([np.where(training.codes == code, 1, -1) for code in codes])
        rows, threshold = loss.value(signs * scores.T), loss.threshold
    weights = weights_at(problem, rows, threshold, make_mass(training.mass, np.float64))
    return training.rows[np.flatnonzero((weights > 0).any(axis=0))]

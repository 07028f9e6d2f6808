"""Fit linear models to a checked training set: for two classes, one class against the rest, or all classes jointly."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from .._names import Array, lookup
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..objective import Problem
from ..solvers.batched import check_problems, single_fits, solve
from ..solvers.certificate import weights_at
from ..solvers.engine import Engine, serves
from ..solvers.kernels import make_mass
from ..solvers.sweep import prepare, sweep
from ..theory import best_intercept
from .joint import prepare_joint, solve_joint
from .multiclass import JOINT, individual_losses, threshold_of
from .training import Arranged, Training, arrange, column_sizes, orientation, row_blocks

#: The rounding error of a score, as a share of the sum of its absolute terms: thousands of times that of a float64.
ROUNDING = 1e-12
#: How more than two classes are learnt; with two classes all three are the same.
MULTICLASS = {
    "ovr": "one problem for each class against the rest",
    "top_two": "one problem, margin = own score - best other score",
    "softmax": "one problem, cross-entropy of the softmax",
}
#: How an aggregate that selects examples is minimised.
SOLVERS = {
    "path": "clipped losses along a path of cuts, from several starts",
    "algorithm1": "the paper's Algorithm 1: gradient steps while k falls",
}


@dataclass(frozen=True)
class Options:
    """The options for solving problems; see :class:`closecall.AggregateLossClassifier`."""

    max_iter: int
    tol: float
    fit_intercept: bool
    penalize_intercept: bool
    multiclass: str
    init: Any = "least_squares"
    hint: bool = False  # init only saves steps and may be ignored
    dtype: Any = None
    threads: int = 1
    extra_iter: int = 0
    certify: bool = True
    settle: int = 0  # steps that a certificate may cost; 0 means max_iter
    solver: str = "path"
    n_starts: int | None = None
    rough: bool = False  # solve roughly, as in the preliminary round (the heat) of a search


@dataclass(frozen=True)
class Parts:
    """The training rows of each problem.

    ``group`` (samples,) contains the group of each row, ``masks`` (folds, groups) states which groups are in the
    training set of each fold, and ``fold_of`` (problems,) contains the fold of each problem. The dictionaries are
    caches that are filled when needed.
    """

    group: Array
    masks: Array
    fold_of: Array
    arranged: dict[int | None, tuple[int, Arranged]] = field(default_factory=dict)
    prepared: dict[tuple[int | None, Any], Any] = field(default_factory=dict)

    def of(self, fold_of: Sequence[int] | Array) -> Parts:
        """Return the training rows for other problems, which share the prepared data."""
        return replace(self, fold_of=np.asarray(fold_of))

    def rows(self, training: Training, score: int | None) -> tuple[int, Arranged]:
        """Return the sign used for a score, and the training rows of all folds in canonical order.

        The labels are those of one class against the rest, with a sign that does not depend on the names of the
        classes; for ``score=None``, they are the codes of all classes.
        """
        if score not in self.arranged:
            sign, labels = 1, training.codes
            if score is not None:
                positive = labels == (1 if len(training.classes) == 2 else score)
                sign = orientation(training, positive)
                labels = np.where(positive, sign, -sign)
            found = arrange(training, labels, self.group)
            kept = np.any(np.asarray(self.masks, dtype=bool)[:, found.group], axis=0)
            self.arranged[score] = sign, found if kept.all() else found.take(kept)
        return self.arranged[score]

    def masses(self, rows: Arranged) -> Array:
        """Return the training masses (folds, samples) of each fold."""
        return np.asarray(self.masks, dtype=np.float64)[:, rows.group] * rows.mass


@dataclass(frozen=True)
class Models:
    """Linear models for several problems; coef has shape (problems, scores, features), the rest (problems, scores)."""

    coef: Array
    intercept: Array
    n_iter: Array
    gap: Array
    converged: Array


def fit_models(
    training: Training, problems: Sequence[Problem], options: Options, *, parts: Parts | None = None
) -> Models:
    """Solve every problem, on all rows or on the rows of its fold."""
    lookup(MULTICLASS, options.multiclass, "multiclass")
    lookup(SOLVERS, options.solver, "solver")
    check_problems(problems, options.tol, max_iter=options.max_iter, n_starts=options.n_starts or 1)
    parts = parts or _whole(training, len(problems))
    if len(training.classes) > 2 and options.multiclass in JOINT:
        return _fit_joint(training, problems, options, parts)
    scores = 1 if len(training.classes) == 2 else len(training.classes)
    each = [_fit_score(training, problems, options, parts, score) for score in range(scores)]
    return Models(*(np.stack(pieces, axis=1) for pieces in zip(*each, strict=True)))


def _whole(training: Training, problems: int) -> Parts:
    return Parts(np.zeros(len(training.codes), dtype=int), np.ones((1, 1)), np.zeros(problems, dtype=int))


def within(problem: Problem, mass: float, whole: float) -> Problem:
    """Adapt a problem to part of the mass: a k above this mass becomes None, and an m that is too large is reduced.

    Examples
    --------
    >>> within(Problem("logistic", "close", 330), 320.0, 400.0).k is None
    True
    """
    k, m = problem.k, problem.m
    if isinstance(k, Integral) and k > mass:
        k = None
    if isinstance(m, Integral) and m >= get_aggregate(problem.aggregate).counts(k, None, mass)[0]:
        m = min(1.0, int(m) / whole)
    return replace(problem, k=k, m=m)


def exact_intercepts(training: Training, coef: Array, options: Options, *, parts: Parts | None = None) -> Array:
    """Return the intercepts (problems, scores) that minimise the training error of each class against the rest."""
    if not options.fit_intercept:
        raise ValueError("exact_intercept=True needs fit_intercept=True")
    if len(training.classes) > 2 and options.multiclass in JOINT:
        raise ValueError(
            f"exact_intercept=True works on one score at a time; use multiclass='ovr', not {options.multiclass!r}"
        )
    parts = parts or _whole(training, len(coef))
    found = np.empty(coef.shape[:2])
    for score in range(coef.shape[1]):
        sign, rows = parts.rows(training, score)
        scores = np.asarray(rows.X @ (sign * coef[:, score]).T).T
        # Scores closer than this are ties: the intercept must not separate what only rounding separates.
        masses, narrow = parts.masses(rows)[parts.fold_of], 1e-7 * np.ptp(scores, axis=1)
        found[:, score] = sign * best_intercept(scores, rows.labels, masses, resolution=narrow)[0]
    return found


Fitted = tuple[Array, Array, Array, Array, Array]


def _fit_score(training: Training, problems: Sequence[Problem], options: Options, parts: Parts, score: int) -> Fitted:
    """Solve problems of one class against the rest, along paths of cuts where possible and otherwise step by step."""
    rows = parts.rows(training, score)[1]
    path = np.zeros(len(problems), dtype=bool)
    own_start = options.hint or (isinstance(options.init, str) and options.init == "least_squares")
    if options.solver == "path" and own_start:
        masses = parts.masses(rows)
        path[:] = [serves(rows.X, problem, masses[fold]) for problem, fold in zip(problems, parts.fold_of, strict=True)]
    places, found = [], []
    for solver, chosen in ((_by_paths, np.flatnonzero(path)), (_by_steps, np.flatnonzero(~path))):
        if chosen.size:
            own = options
            if not isinstance(own.init, str) and np.ndim(own.init[0]) == 3:  # a start for each problem
                own = replace(own, init=tuple(part[chosen] for part in own.init))
            some = [problems[place] for place in chosen.tolist()]
            places.append(chosen)
            found.append(solver(training, some, own, parts.of(parts.fold_of[chosen]), score))
    order = np.argsort(np.concatenate(places))
    coef, intercept, n_iter, gap, converged = (np.concatenate(pieces)[order] for pieces in zip(*found, strict=True))
    return coef, intercept, n_iter, gap, converged


def _by_paths(training: Training, problems: Sequence[Problem], options: Options, parts: Parts, score: int) -> Fitted:
    sign, rows = parts.rows(training, score)
    engine = Engine(
        rows.X, rows.labels.astype(np.float64), parts.masses(rows), rows.hashes, options.fit_intercept,
        options.penalize_intercept, options.n_starts, options.max_iter, options.threads, options.rough,
        parts.prepared.setdefault((score, "path"), {}),
    )  # fmt: skip
    ends = engine.solve(problems, parts.fold_of, options.tol if options.certify else None)
    gap = np.minimum(ends.gap, 1.0)
    return sign * ends.coef, sign * ends.intercept, ends.looks, gap, gap <= options.tol


def _by_steps(training: Training, problems: Sequence[Problem], options: Options, parts: Parts, score: int) -> Fitted:
    sign, rows = parts.rows(training, score)
    init, dtype = options.init, _sweep_dtype(options, rows)
    if not isinstance(init, str):  # the parameters of one model, or those of each problem's model
        init = sign * init[0][..., score, :], sign * init[1][..., score]
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
    key = score, np.dtype(dtype)
    if key not in parts.prepared:
        parts.prepared[key] = prepare(rows.X, labels, parts.masses(rows), **data)
    coef, intercept, n_iter, _ = sweep(parts.prepared[key], problems, parts.fold_of, **how)
    return sign * coef, sign * intercept, n_iter, np.full(len(coef), np.nan), np.zeros(len(coef), dtype=bool)


def _sweep_dtype(options: Options, rows: Arranged) -> Any:
    """Return the requested data type or that of X; if data times weights would overflow float32, return float64."""
    largest = float(column_sizes(rows.X).max())
    return (options.dtype or rows.X.dtype) if single_fits(largest, rows.mass, rows.X.shape) else np.float64


def _fit_joint(training: Training, problems: Sequence[Problem], options: Options, parts: Parts) -> Models:
    rows = parts.rows(training, None)[1]
    key = None, np.dtype(_sweep_dtype(options, rows))
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


def warn_of_fit(
    name: str, problem: Problem, models: Models, options: Options, training: Training, support: Array
) -> None:
    """Warn if a fit on all rows ended without a certificate; ``support`` contains the rows that carry weight."""
    aggregate, total, only = get_aggregate(problem.aggregate), float(training.mass.sum()), None
    whole = aggregate.is_average(*aggregate.counts(problem.k, problem.m, total), total)
    codes = training.codes[np.isin(training.rows, support)]
    if options.fit_intercept and not options.penalize_intercept and codes.size and (codes == codes[0]).all():
        only = training.classes[codes[0]]
    convex = get_loss(problem.loss).convex and (aggregate.convex or whole)
    warn_unsettled(name, problem, models, options, convex, only=only, depth=5)


def warn_unsettled(
    name: str, problem: Problem, models: Models, options: Options, convex: bool, *, only: Any = None, depth: int = 3
) -> None:
    """Warn if a fit ended without a certificate, and suggest what may help.

    ``convex`` states whether the objective is convex. ``only`` is the class of the rows that carry weight, if they all
    belong to one class and the intercept is not penalised. ``depth`` is the stack level of the user's call.
    """
    if bool(models.converged.all()):
        return
    limit = f"max_iter (now {options.max_iter})"
    if problem.alpha == 0:
        advice = "with alpha=0, nothing bounds the objective from below, so no fit is certified; choose alpha > 0"
    elif convex:
        advice = (
            f"scale the features (StandardScaler), increase {limit} or alpha (now {problem.alpha:g}), or loosen tol"
        )
    elif only is not None and get_aggregate(problem.aggregate).close:
        advice = (
            f"only examples of class {only} carry weight, and one class alone cannot determine an intercept. "
            "Increase k, or compare with aggregate='average'"
        )
    else:
        advice = f"its choice of examples has not settled. Increase {limit}, k or alpha, or loosen tol"
    warnings.warn(
        f"{name}: {problem.aggregate} of the {problem.loss} loss stopped after {int(models.n_iter.max())} steps with a "
        f"gap of {float(models.gap.max()):.1e}, above tol={options.tol:g}: {advice}",
        ConvergenceWarning,
        stacklevel=depth,
    )


def scores_of(X: Any, coef: Array, intercept: Array) -> Array:
    """Return the scores (samples, scores) of one model, or (problems, samples, scores) for several models."""
    if coef.ndim == 2:
        return _product(X, coef) + intercept
    flat = _product(X, coef.reshape(-1, coef.shape[-1]))
    return np.moveaxis(flat.reshape(len(flat), *coef.shape[:2]) + intercept, 1, 0)


def codes_of(scores: Array, rounding: Array | float = 0.0) -> Array:
    """Return the predicted class codes: the sign of a single score, or the position of the largest of several scores.

    Differences of at most ``rounding`` (..., 1) count as zero.
    """
    if scores.shape[-1] == 1:
        return (scores > rounding)[..., 0].astype(int)
    return (scores >= scores.max(axis=-1, keepdims=True) - rounding).argmax(axis=-1)


def rounding_of(X: Any, coef: Array, intercept: Array, scores: Array) -> Array:
    """Return upper bounds (samples, 1) on the rounding errors of the scores in each row.

    Only rows with nearly equal scores have a positive bound; a second matrix product is computed only for them.

    Examples
    --------
    >>> X, coef = np.array([[1.0, 1.0], [1.0, -1.0]]), np.array([[0.1, 0.1]])
    >>> rounding_of(X, coef, np.zeros(1), X @ coef.T).round(14).ravel().tolist()
    [0.0, 2e-13]
    """
    gaps = np.abs(scores[:, 0]) if len(coef) == 1 else np.subtract(*np.sort(scores, axis=1)[:, :-3:-1].T)
    share = max(ROUNDING, 4 * np.finfo(scores.dtype).eps)
    rows = np.flatnonzero(gaps <= 1e3 * share * (np.abs(coef).sum() + np.abs(intercept).max()))
    bounds = np.zeros((len(scores), 1))
    if rows.size:
        bounds[rows, 0] = share * (abs(X[rows]) @ np.abs(coef).T + np.abs(intercept)).max(axis=1)
    return bounds


def _product(X: Any, coef: Array) -> Array:
    """Return ``X @ coef.T`` without converting all of X to another type at once."""
    blocks = row_blocks(X)
    if sparse.issparse(X) or X.dtype == coef.dtype or len(blocks) <= 1:
        return np.asarray(X @ coef.T)
    found = np.empty((len(X), len(coef)), dtype=np.result_type(X, coef))
    for rows in blocks:
        np.matmul(X[rows].astype(found.dtype), coef.T, out=found[rows])
    return found


def close_calls(training: Training, coef: Array, intercept: Array, problem: Problem, multiclass: str) -> Array:
    """Return the numbers of the rows of X that carry weight in the objective at the solution, in ascending order.

    One-vs-rest makes a separate selection for each class; a row counts if it is a close call for any class.
    """
    scores = scores_of(training.X, np.asarray(coef, dtype=float), np.asarray(intercept, dtype=float))
    loss = get_loss(problem.loss)
    if scores.shape[1] > 1 and multiclass in JOINT:
        rows = individual_losses(multiclass, loss, scores, training.codes)[None]
        threshold = threshold_of(multiclass, loss)
    else:
        codes = [1] if scores.shape[1] == 1 else range(scores.shape[1])
        signs = np.stack([np.where(training.codes == code, 1, -1) for code in codes])
        rows, threshold = loss.value(signs * scores.T), loss.threshold
    weights = weights_at(problem, rows, threshold, make_mass(training.mass, np.float64))
    return training.rows[np.flatnonzero((weights > 0).any(axis=0))]

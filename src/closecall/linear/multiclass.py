"""All classes jointly: close-k by the top-two margin, and softmax cross-entropy.

*Top two*: the margin of an example is ``m = z_y - max of the other scores``, its loss ``l(m)``, its threshold ``T =
l(0)``. It is misclassified exactly if ``m <= 0``, as with two classes, and the proof of the paper's Lemma k uses
nothing else: here too, a minimiser of the close-k loss makes at most k - 1 more training errors than the optimum.
Because l is decreasing, ``l(m)`` is the largest of the losses ``l(z_y - z_j)``: convex in the scores where l is.

*Softmax*: no value of the cross-entropy separates right from wrong. A misclassified example has a loss of at least log
2, but a correct one may have any loss below log(classes); the threshold is log 2, and Lemma k does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp

from .._names import Array
from ..losses import Loss, get_loss
from ..objective import Problem
from ..schedules import last_convex_step
from ..solvers.design import Design, finite, make_design
from ..solvers.kernels import make_mass
from .joint import Steps, losses_and_pull
from .settling import ClassScores, certify_joint

#: The ways in which all classes are learnt by one problem.
JOINT = ("top_two", "softmax")


def top_two_margins(scores: Array, codes: Array) -> tuple[Array, Array]:
    """The true class's score minus the best other score, and the class of that other score.

    Parameters
    ----------
    scores : array (samples, classes)
    codes : array (samples,)

    Examples
    --------
    >>> margins, rivals = top_two_margins(np.array([[2.0, 0.5, 1.0], [0.0, 1.0, 3.0]]), np.array([0, 1]))
    >>> margins.tolist(), rivals.tolist()
    ([1.0, -2.0], [2, 2])
    """
    samples = np.arange(len(codes))
    others = np.array(scores, dtype=float)
    others[samples, codes] = -np.inf
    rivals = others.argmax(axis=1)
    return scores[samples, codes] - others[samples, rivals], rivals


def individual_losses(kind: str, loss: Loss, scores: Array, codes: Array) -> tuple[Array, float]:
    """Losses (samples,) of scores (samples, classes), and the threshold.

    Examples
    --------
    >>> losses, threshold = individual_losses("softmax", get_loss("logistic"), np.zeros((1, 3)), np.array([0]))
    >>> losses.round(4).tolist(), round(threshold, 4)
    ([1.0986], 0.6931)
    """
    if kind == "softmax":
        return logsumexp(scores, axis=1) - scores[np.arange(len(codes)), codes], float(np.log(2))
    return loss.value(top_two_margins(scores, codes)[0]), loss.threshold


def prepare_joint(
    X: Any, codes: Array, masses: Array, *, fit_intercept: bool, penalize_intercept: bool, dtype: Any
) -> Design:
    """The design of joint problems on masses (folds, samples); every fold must contain every class."""
    classes = int(codes.max()) + 1
    for fold, mass in enumerate(masses):
        missing = np.flatnonzero(np.bincount(codes, mass, minlength=classes) == 0)
        if missing.size:
            raise ValueError(f"fold {fold} trains without class number {missing[0]}; use stratified or fewer folds")
    # Labels of -1 make the signed rows of the design the rows themselves, and its negative margins the scores.
    return make_design(
        X, -np.ones(len(codes)), masses, fit_intercept=fit_intercept, penalize=penalize_intercept, dtype=dtype
    )


def solve_joint(
    design: Design,
    codes: Array,
    problems: Sequence[Problem],
    fold_of: Array,
    *,
    kind: str,
    max_iter: int,
    tol: float,
    init: Any,
    extra_iter: int = 0,
    settle: int = 0,
    certify: bool = True,
) -> tuple[Array, Array, Array, Array]:
    """Solve joint problems in one set of coordinates, fold by fold.

    The convex part of a run (all of it for ``average``, the first third of a decay, which all k share) is SciPy's
    L-BFGS; the rest are the majorising steps of :mod:`closecall.linear.joint`.

    Parameters
    ----------
    design : Design
        The result of :func:`prepare_joint`.
    codes : array (samples,)
        Classes 0..classes - 1.
    problems : sequence of Problem
    fold_of : array (problems,)
    kind : {"top_two", "softmax"}
    max_iter, extra_iter, settle, tol, init
        As in :func:`closecall.solvers.solve`.
    certify : bool
        Whether to compute the gaps; NaN otherwise.

    Returns
    -------
    coef : array (problems, classes, features)
    intercept : array (problems, classes)
    n_iter, gap : arrays (problems,)
        Steps used, and the certificate, as in :class:`closecall.solvers.Solutions`.
    """
    classes, fold_of = int(codes.max()) + 1, np.asarray(fold_of)
    for problem in problems:
        if problem.loss != {"softmax": "logistic"}.get(kind, problem.loss):
            raise ValueError(f"multiclass='softmax' is the logistic loss of several classes; loss={problem.loss!r} "
                             "needs multiclass='top_two' or 'ovr'")  # fmt: skip
    if isinstance(init, str) and init not in ("least_squares", "zeros"):
        raise ValueError(f"unknown init {init!r}; choose one of: least_squares, zeros, or give (coef, intercept)")
    joints = [_Joint(design, codes, design.masses[fold], problem, kind, classes)
              for problem, fold in zip(problems, fold_of, strict=True)]  # fmt: skip
    # What is not certified only has to be good enough to be scored.
    enough = tol**2 / 10 if certify else 10 * tol**2
    found, used = _descend(joints, _each(init, len(problems)), fold_of, max_iter, extra_iter, tol, enough)
    gaps = np.full(len(problems), np.nan)
    if certify:
        for row, joint in enumerate(joints):
            found[row], gap = certify_joint(joint.surface(), found[row], steps=settle, tol=tol - design.rounding)
            gaps[row] = gap + design.rounding
    coef, intercept = (np.stack(parts) for parts in zip(*map(design.to_parameters, found), strict=True))
    if design.intercept == "free":
        intercept -= intercept.mean(axis=1, keepdims=True)  # a shift of all scores changes nothing
    return coef, intercept, used, gaps


def _each(init: Any, problems: int) -> list[Any]:
    """The start of each problem, either common or individual."""
    if isinstance(init, str) or np.ndim(init[0]) == 2:
        return [init] * problems
    return list(zip(*init, strict=True))


def _descend(
    joints: list[_Joint], starts: list[Any], fold_of: Array, max_iter: int, extra_iter: int, tol: float, enough: float
) -> tuple[Array, Array]:
    """Coordinates and steps of joint problems with one design; ``enough`` is the smallest decrease of a convex step."""
    first, third = joints[0], last_convex_step(max_iter)
    C, used = np.empty((len(joints), first.classes, first.design.rank)), np.zeros(len(joints), dtype=int)
    alike: dict[tuple[str, str], list[int]] = {}
    roots: dict[Any, tuple[Array, int]] = {}
    for row in np.argsort(fold_of, kind="stable").tolist():
        joint = joints[row]
        _, aggregate, k_at, m = joint.problem.resolve(joint.total, max_iter)
        whole = aggregate.is_average(k_at(max_iter), m, joint.total)
        C[row] = joint.start(starts[row])
        if whole or aggregate.decays:
            budget = max_iter + extra_iter if whole else third
            key = fold_of[row], joint.problem.loss, joint.problem.alpha, budget, C[row].tobytes()
            if key not in roots:
                roots[key] = _descend_convex(joint, C[row], budget, enough)
            C[row], used[row] = roots[key]
        if whole:
            used[row] = max(used[row], 1)
        else:
            alike.setdefault((joint.problem.loss, joint.problem.aggregate), []).append(row)
    masses = {fold: make_mass(first.design.masses[fold], first.design.signed.dtype.type) for fold in set(fold_of)}
    for rows in alike.values():
        own = [masses[fold_of[row]] for row in rows]
        steps = Steps(first.design, first.codes, own, [joints[row].problem for row in rows], first.kind)
        begin = third if steps.aggregate.decays else 0
        C[rows], used[rows] = steps.descend(C[rows], begin, max_iter, tol, extra_iter)
    return C, used


class _Joint:
    """The objective of one joint problem in the design's coordinates (classes, coordinates)."""

    def __init__(self, design: Design, codes: Array, mass: Array, problem: Problem, kind: str, classes: int) -> None:
        self.design, self.codes, self.mass, self.problem = design, codes, mass, problem
        self.kind, self.classes = kind, classes
        self.loss = get_loss(problem.loss)
        self.total = float(mass.sum())
        self.threshold = float(np.log(2)) if kind == "softmax" else self.loss.threshold

    def value_and_gradient(self, C: Array, k: float | None) -> tuple[float, Array]:
        """Objective and gradient at C; with k None every example counts."""
        scores = self.design.negative_margins(C)[None]
        losses, pull = (part[0] for part in losses_and_pull(self.kind, self.loss, scores, self.codes))
        weights = self.mass
        if k is not None:
            _, aggregate, _, m = self.problem.resolve(self.total, 1)
            weights = aggregate.weigh(losses[None], self.mass, self.threshold, np.asarray(k), np.asarray(m))[0]
        shrink = self.problem.alpha * self.design.penalized * C
        gradient = self.design.gradient(pull * weights.astype(pull.dtype)) + shrink
        return float(weights @ losses + 0.5 * (shrink * C).sum()), gradient

    def surface(self) -> ClassScores:
        return ClassScores(self.design, self.codes, self.mass, self.problem, self.kind, self.classes)

    def start(self, init: Any) -> Array:
        """Least squares of each class on +-1, zeros, or given parameters."""
        if not isinstance(init, str):
            coef, intercept = (np.asarray(part, dtype=np.float64) for part in init)
            return self.design.to_coordinates(coef, intercept)
        if init == "zeros" or self.design.basis is None:
            return np.zeros((self.classes, self.design.rank))
        targets = np.where(self.codes == np.arange(self.classes)[:, None], 1.0, -1.0)
        signed = self.design.signed.astype(np.float64)
        gram = (signed.T * self.mass) @ signed
        sums = finite(signed.T @ (self.mass * targets).T)
        return np.asarray(np.linalg.lstsq(finite(gram), sums, rcond=1e-10)[0].T)


def _descend_convex(joint: _Joint, C: Array, budget: int, enough: float) -> tuple[Array, int]:
    if budget < 1:
        return C, 0
    # Divided by the root of the majoriser the problem is round; the runner-up's kinks are few and L-BFGS copes.
    curvature = 2 * min(joint.loss.curvature, 4.0)
    scale = np.sqrt(curvature * joint.design.spectrum + joint.problem.alpha * joint.design.penalized)

    def objective(flat: Array) -> tuple[float, Array]:
        value, gradient = joint.value_and_gradient(flat.reshape(C.shape) / scale, None)
        return value, (gradient / scale).ravel()

    found = minimize(
        objective, (C * scale).ravel(), jac=True, method="L-BFGS-B",
        options={"maxiter": budget, "ftol": enough, "gtol": 0.0, "maxcor": 10},
    )  # fmt: skip
    return found.x.reshape(C.shape) / scale, int(found.nit)

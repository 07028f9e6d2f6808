"""Joint problems for several classes, solved together in one set of coordinates.

The convex part of a run uses SciPy's L-BFGS, one problem at a time. For ``average``, this part is the whole run. If k
decays, this part is the first third of the run and is shared by all values of k. The remaining part uses majorising
steps for all problems at once, because Python's overhead would dominate if each problem took its steps separately.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.optimize import minimize

from .._names import Array
from ..losses import get_loss
from ..objective import Problem
from ..schedules import first_final_step, last_convex_step
from ..solvers.design import Design, finite, make_design
from ..solvers.kernels import make_mass, weigh
from ..solvers.steps import WINDOW, close_window, is_steep, share_of_gram, step_curvature, within_reach
from .multiclass import ClassScores, certify_joint, losses_and_pull, threshold_of


def prepare_joint(
    X: Any, codes: Array, masses: Array, *, fit_intercept: bool, penalize_intercept: bool, dtype: Any
) -> Design:
    """Return the design for joint problems, given masses (folds, samples); every fold must contain every class."""
    classes = int(codes.max()) + 1
    for fold, mass in enumerate(masses):
        missing = np.flatnonzero(np.bincount(codes, mass, minlength=classes) == 0)
        if missing.size:
            raise ValueError(
                f"fold {fold} has no training rows of class number {missing[0]}; stratify the folds or use fewer"
            )
    # With labels of -1, the signed rows of the design are the rows themselves, and its negative margins are the scores.
    return make_design(
        X, -np.ones(len(codes)), masses, fit_intercept=fit_intercept, penalize=penalize_intercept, dtype=dtype
    )


def solve_joint(
    design: Design, codes: Array, problems: Sequence[Problem], fold_of: Array, *, kind: str, max_iter: int, tol: float,
    init: Any, extra_iter: int = 0, settle: int = 0, certify: bool = True,
) -> tuple[Array, Array, Array, Array]:  # fmt: skip
    """Solve problems on a design from :func:`prepare_joint`, each with the masses of its fold.

    ``kind`` is one of :data:`closecall.linear.multiclass.JOINT`; ``max_iter``, ``extra_iter``, ``settle``, ``tol`` and
    ``init`` are as in :func:`closecall.solvers.solve`. Return coef (problems, classes, features), intercept (problems,
    classes), and the steps and gaps (problems,) as in :class:`closecall.solvers.Solutions`; the gaps are NaN if
    ``certify`` is false.
    """
    for problem in problems:
        if problem.loss != {"softmax": "logistic"}.get(kind, problem.loss):
            raise ValueError(f"multiclass='softmax' is the logistic loss for several classes; loss={problem.loss!r} "
                             "needs multiclass='top_two' or 'ovr'")  # fmt: skip
    if isinstance(init, str) and init not in ("least_squares", "zeros"):
        raise ValueError(f"unknown init {init!r}; choose least_squares or zeros, or give (coef, intercept)")
    fold_of = np.asarray(fold_of)
    found, used = _starts(design, codes, fold_of, init), np.zeros(len(problems), dtype=int)
    # A model that is not certified only has to be good enough to be scored.
    enough = tol**2 / 10 if certify else 10 * tol**2
    alike: dict[tuple[str, str, bool], list[int]] = {}
    for row in np.argsort(fold_of, kind="stable").tolist():
        total = float(design.masses[fold_of[row]].sum())
        loss, aggregate, k_at, m = problems[row].resolve(total, max_iter)
        whole = aggregate.is_average(k_at(max_iter), m, total)
        alike.setdefault((loss.name, aggregate.name, whole), []).append(row)
    for (*_, whole), rows in alike.items():
        joint = JointProblems(design, codes, fold_of[rows], [problems[row] for row in rows], kind)
        C, steps, begin = found[rows], np.zeros(len(rows), dtype=int), 0
        if whole or joint.aggregate.decays:
            begin = max_iter + extra_iter if whole else last_convex_step(max_iter)
            C, steps = joint.descend_convex(C, begin, enough)
        if not whole:
            C, steps = joint.descend(C, begin, max_iter, tol, extra_iter)
        found[rows], used[rows] = C, np.maximum(steps, 1)
    gaps = np.full(len(problems), np.nan)
    if certify:
        for row, problem in enumerate(problems):
            view = ClassScores(design, codes, design.masses[fold_of[row]], problem, kind)
            found[row], gap = certify_joint(view, found[row], steps=settle, tol=tol - design.rounding)
            gaps[row] = gap + design.rounding
    coef, intercept = (np.stack(parts) for parts in zip(*map(design.to_parameters, found), strict=True))
    if design.intercept == "free":
        intercept -= intercept.mean(axis=1, keepdims=True)  # a shift of all scores changes nothing
    return coef, intercept, used, gaps


def _starts(design: Design, codes: Array, fold_of: Array, init: Any) -> Array:
    """Return starting points (problems, classes, coordinates): least squares, zeros or given parameters."""
    found = np.zeros((len(fold_of), int(codes.max()) + 1, design.rank))
    if not isinstance(init, str):
        coef, intercept = (np.asarray(part, dtype=np.float64) for part in init)
        for row in range(len(fold_of)):
            each = (coef, intercept) if coef.ndim == 2 else (coef[row], intercept[row])
            found[row] = design.to_coordinates(*each)
    elif init != "zeros" and design.basis is not None:
        targets = np.where(codes == np.arange(found.shape[1])[:, None], 1.0, -1.0)
        signed = design.signed.astype(np.float64)
        for fold in np.unique(fold_of):
            mass = design.masses[fold]
            gram, sums = finite((signed.T * mass) @ signed), finite(signed.T @ (mass * targets).T)
            found[fold_of == fold] = np.linalg.lstsq(gram, sums, rcond=1e-10)[0].T
    return found


class JointProblems:
    """Problems with the same loss and aggregate, in the coordinates of the design and ordered by fold.

    ``codes`` have shape (samples,), and ``kind`` is one of :data:`closecall.linear.multiclass.JOINT`.
    """

    def __init__(self, design: Design, codes: Array, fold_of: Array, problems: Sequence[Problem], kind: str) -> None:
        self.design, self.codes, self.fold_of, self.problems, self.kind = design, codes, fold_of, problems, kind
        self.loss = get_loss(problems[0].loss)
        self.threshold = threshold_of(kind, self.loss)
        self.masses = {fold: make_mass(design.masses[fold], design.signed.dtype.type) for fold in set(fold_of)}
        self.totals = np.array([self.masses[fold].total for fold in fold_of])
        resolved = [problem.resolve(total, 1) for problem, total in zip(problems, self.totals, strict=True)]
        self.aggregate, self.m = resolved[0][1], np.array([m for *_, m in resolved])
        self.shrink = np.array([problem.alpha for problem in problems])[:, None, None] * design.penalized

    def value_and_gradient(self, row: int, C: Array) -> tuple[float, Array]:
        """Return the objective and gradient of one problem at C (classes, coordinates) with all examples selected."""
        losses, pull = losses_and_pull(self.kind, self.loss, self.design.negative_margins(C)[None], self.codes)
        mass, shrink = self.design.masses[self.fold_of[row]], self.shrink[row] * C
        gradient = self.design.gradient(pull[0] * mass.astype(pull.dtype)) + shrink
        return float(mass @ losses[0] + 0.5 * (shrink * C).sum()), gradient

    def descend_convex(self, C: Array, budget: int, enough: float) -> tuple[Array, Array]:
        """Minimise the losses of all examples in at most ``budget`` steps; return the minimisers and the steps."""
        roots: dict[Any, tuple[Array, int]] = {}
        keys = [(self.fold_of[row], self.problems[row].alpha, C[row].tobytes()) for row in range(len(C))]
        for row, key in enumerate(keys):
            if key not in roots:
                roots[key] = self._root(row, C[row], budget, enough) if budget else (C[row], 0)
        ends, steps = zip(*(roots[key] for key in keys), strict=True)
        return np.stack(ends), np.array(steps)

    def _root(self, row: int, C: Array, budget: int, enough: float) -> tuple[Array, int]:
        # Dividing by the root of the majoriser makes the problem well-conditioned; L-BFGS copes with the few kinks
        # where the runner-up changes.
        scale = np.sqrt(2 * min(self.loss.curvature, 4.0) * self.design.spectrum + self.shrink[row, 0])

        def objective(flat: Array) -> tuple[float, Array]:
            value, gradient = self.value_and_gradient(row, flat.reshape(C.shape) / scale)
            return value, (gradient / scale).ravel()

        found = minimize(
            objective, (C * scale).ravel(), jac=True, method="L-BFGS-B",
            options={"maxiter": budget, "ftol": enough, "gtol": 0.0, "maxcor": 10},
        )  # fmt: skip
        return found.x.reshape(C.shape) / scale, int(found.nit)

    def gradients(self, C: Array, k: Array, rows: Array) -> Array:
        """Return gradients (rows, classes, coordinates) of the aggregate losses at C, without the penalty."""
        found, kinds = np.empty_like(C), C.shape[1]
        size = max(1, (1 << 18) // (kinds * len(self.codes)))  # blocks of scores that stay in cache
        for begin in range(0, len(C), size):
            part = slice(begin, begin + size)
            flat = C[part].reshape(-1, C.shape[2])
            scores = self.design.negative_margins(flat).reshape(-1, kinds, len(self.codes))
            losses, pull = losses_and_pull(self.kind, self.loss, scores, self.codes)
            self._weigh(pull, losses, k[part], rows[part])
            found[part] = self.design.gradient(pull.reshape(len(flat), -1)).reshape(found[part].shape)
        return found

    def _weigh(self, pull: Array, losses: Array, k: Array, rows: Array) -> None:
        """Multiply the derivative of each loss by the weight of that loss, one fold at a time."""
        folds = self.fold_of[rows]
        for begin, end in pairwise([0, *(np.flatnonzero(np.diff(folds)) + 1).tolist(), len(rows)]):
            mine, mass = slice(begin, end), self.masses[folds[begin]]
            chosen = weigh(self.aggregate.name, losses[mine], self.threshold, k[mine], self.m[rows[mine]], mass)
            pull[mine] *= chosen[:, None]

    def descend(self, C: Array, first: int, steps: int, tol: float, extra: int = 0) -> tuple[Array, Array]:
        """Run each problem from step ``first`` until it converges; return the coordinates and the numbers of steps."""
        final, used = C.copy(), np.full(len(C), steps + extra)
        schedules = [p.resolve(total, steps)[2] for p, total in zip(self.problems, self.totals, strict=True)]
        judged_from = first_final_step(steps) if self.aggregate.decays else 1
        rows, eta, path, count, mark = np.arange(len(C)), np.ones(len(C)), np.zeros(len(C)), 0, C
        curvature = 2 * step_curvature(self.loss.name)  # two scores change
        steep = self.kind != "softmax" and is_steep(self.loss.name)
        for step in range(first + 1, steps + extra + 1):
            k = np.array([schedules[row](min(step, steps)) for row in rows])
            carried = np.broadcast_to(self.aggregate.carried(k, self.m[rows]), k.shape)
            share = share_of_gram(carried, self.design.rank, self.totals[rows])
            shrink = self.shrink[rows]
            move = self.gradients(C, k, rows) + shrink * C
            move *= -eta[:, None, None] / (curvature * share[:, None, None] * self.design.spectrum + shrink)
            if steep:
                move *= within_reach(self._lengths(move), self._lengths(C), self.totals[rows])[:, None, None]
            C = C + move
            if step < judged_from:
                mark = C
                continue
            path, count = path + self._lengths(move), count + 1
            if count < WINDOW:
                continue
            lengths = self._lengths(C - mark), path, self._lengths(C)
            back_and_forth, settled = close_window(*lengths, self.totals[rows], tol)
            eta = np.where(back_and_forth, 0.5 * eta, eta)
            final[rows[settled]], used[rows[settled]] = C[settled], step
            rows, C, eta = rows[~settled], C[~settled], eta[~settled]
            path, count, mark = np.zeros(len(rows)), 0, C
            if not rows.size:
                break
        final[rows] = C
        return final, used

    def _lengths(self, moves: Array) -> Array:
        return np.asarray(np.sqrt(np.einsum("c,pkc,pkc->p", self.design.spectrum, moves, moves)))

"""Certificates of joint problems: the losses of several classes, in the form that a stage evaluates.

With the top-two margin the best other score is a maximum too. It is softened over the same width: the rivals share by a
softmax of so low a temperature that no loss changes by more than half the width. Any such shares give a bound: the
margin to a mean of the other scores is at least that to the largest of them, and the loss is decreasing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from .._names import Array
from ..losses import get_loss
from ..objective import Problem
from ..solvers.batched import is_average
from ..solvers.cuts import ALL, LossCut, cut_of
from ..solvers.design import Design, finite
from ..solvers.hold import hold, weigh
from ..solvers.narrow import finish
from ..solvers.rows import LossRows, Rounded
from ..solvers.stages import Walk
from .joint import losses_and_pull

#: Coordinates of all classes up to which Newton's steps are worth their memory.
LARGEST_SIZE = 2000
#: How exactly their stages are solved: the rivals' softened maximum is steep, and slopes count in the bound.
EXACT = 1e-13


@dataclass
class ClassView:
    """Scores (samples, classes), softened losses, margins and whether they are wrong (samples,), rivals' shares."""

    scores: Array
    losses: Array
    margins: Array
    wrong: Array
    shares: Array
    width: float


class ClassScores(LossRows):
    """The losses of all classes' scores; coordinates are (classes, rank), flat.

    Parameters
    ----------
    design : Design
        The result of :func:`closecall.linear.multiclass.prepare_joint`, dense.
    codes : array (samples,)
    mass : array (samples,)
    problem : Problem
    kind : {"top_two", "softmax"}
    classes : int
    """

    def __init__(self, design: Design, codes: Array, mass: Array, problem: Problem, kind: str, classes: int) -> None:
        inside = mass > 0
        rows: Any = design.signed[inside].astype(np.float64)
        self.rows = rows if sparse.issparse(rows) else np.ascontiguousarray(rows)
        self.codes, self.problem, self.kind, self.classes = codes[inside], problem, kind, classes
        self.loss, self.intercept = get_loss(problem.loss), design.intercept
        self.threshold = float(np.log(2)) if kind == "softmax" else self.loss.threshold
        self.penalty = np.tile(problem.alpha * design.penalized, classes)
        self.mass = mass[inside].astype(np.float64)
        self.rounded = Rounded(self.loss)
        self.own = np.zeros((len(self.codes), classes))
        self.own[np.arange(len(self.codes)), self.codes] = 1.0

    def see(self, c: Array, width: float) -> ClassView:
        scores = np.asarray(self.rows @ c.reshape(self.classes, -1).T)
        own = scores[np.arange(len(scores)), self.codes]
        if self.kind == "softmax":
            top = scores.max(axis=1, keepdims=True)
            shares = np.exp(scores - top)
            total = shares.sum(axis=1, keepdims=True)
            losses = (np.log(total) + top)[:, 0] - own
            return ClassView(scores, losses, -losses, own < top[:, 0], shares / total, width)
        others = np.where(self.own > 0, -np.inf, scores)
        top, cold = others.max(axis=1, keepdims=True), self._cold(width)
        shares = np.exp((others - top) / cold)
        total = shares.sum(axis=1, keepdims=True)
        margins = own - (top + cold * np.log(total))[:, 0]
        losses = self.rounded.value(margins, width)
        return ClassView(scores, losses, margins, own <= top[:, 0], shares / total, width)

    def _cold(self, width: float) -> float:
        """The temperature at which the softened maximum is at most half the width too large."""
        return width / (2 * np.log(max(self.classes - 1, 2)))

    def pulls(self, view: ClassView) -> tuple[Array, Array]:
        """Negative slopes with respect to the margins, and the points of tangency, each (samples,)."""
        if self.kind == "softmax":
            return np.ones(len(view.margins)), view.margins
        return self.rounded.pulls(view.margins, view.width)

    def by_class(self, view: ClassView) -> Array:
        """The derivatives of the losses with respect to the scores, (samples, classes)."""
        return self.pulls(view)[0][:, None] * (view.shares - self.own)

    def pull(self, view: ClassView, weights: Array) -> Array:
        return np.asarray(((weights[:, None] * self.by_class(view)).T @ self.rows).ravel())

    def bend(self, view: ClassView, held: Array, turned: Array, sizes: Array) -> tuple[Array, Array]:
        """The sizes for damping, and the curvature with fixed weights and with ``turned`` squares."""
        pulls, softmax, rank = self.pulls(view)[0], self.kind == "softmax", self.rows.shape[1]
        bends = np.zeros(len(pulls)) if softmax else self.rounded.bend(view.margins, view.width)
        mixed = held * pulls / (1.0 if softmax else self._cold(view.width))
        straight, apart = held * bends + turned * pulls**2, self.own - view.shares
        found = np.empty((self.classes, rank, self.classes, rank))
        for first in range(self.classes):
            for second in range(first, self.classes):
                same = view.shares[:, first] * ((first == second) - view.shares[:, second])
                factor = mixed * same + straight * apart[:, first] * apart[:, second]
                heavy = np.flatnonzero(np.abs(factor) > 1e-14)
                block = (self.rows[heavy] * factor[heavy, None]).T @ self.rows[heavy]
                found[first, :, second], found[second, :, first] = block, block.T
        if self.intercept == "free":  # a shift of all scores changes nothing, and a step makes none
            found[:, -1, :, -1] += float(np.abs(held * pulls).sum()) / self.classes
        large = (held * (bends + pulls) + sizes * pulls**2)[:, None] * apart**2 + mixed[:, None] * view.shares
        return (large.T @ self.rows**2).ravel(), found.reshape(self.classes * rank, -1)

    def plain_losses(self, c: Array) -> Array:
        """Losses (samples,) without any softening."""
        scores = np.asarray(self.rows @ c.reshape(self.classes, -1).T)
        return losses_and_pull(self.kind, self.loss, scores.T[None].copy(), self.codes)[0][0]

    def tangents(self, view: ClassView, weights: Array, penalty: Array) -> float:
        """A lower bound of the objective for held weights (see :mod:`closecall.solvers.certificate`).

        Free intercepts require that the pulls on every class sum to zero. Sum the pulls of each class's own examples:
        off the diagonal they are positive, on it negative, and every column sums to zero, as in the generator of a
        Markov chain. Its stationary distribution, scaled to at most 1, is the repair.
        """
        (pulls, points), slopes = self.pulls(view), self.by_class(view)
        across = weights[:, None] * slopes
        if self.kind == "softmax":
            heights = weights * (view.losses - (slopes * view.scores).sum(axis=1))
        else:
            heights = weights * (self.loss.value(points) + pulls * points)
        if self.intercept == "free":
            own = np.stack([across[self.codes == code].sum(axis=0) for code in range(self.classes)], axis=1)
            factors = stationary(own)[self.codes]
            heights, across = heights * factors, across * factors[:, None]
        sums = np.asarray(across.T @ self.rows)
        if self.intercept == "free":
            sums[:, -1] = 0.0
        penalty = np.where(penalty > 0, penalty, 1e-300)
        with np.errstate(over="ignore"):  # alpha 0 bounds nothing
            square = np.where(sums.ravel() != 0, sums.ravel() ** 2 / (2 * penalty), 0.0)
        bound = float(heights.sum() - square.sum())
        return max(bound, 0.0) if np.isfinite(bound) else 0.0


def stationary(generator: Array) -> Array:
    """Factors in [0, 1] (classes,) with ``generator @ factors = 0``, of a matrix whose columns sum to zero.

    Examples
    --------
    >>> stationary(np.array([[-1.0, 2.0], [1.0, -2.0]])).round(6).tolist()
    [1.0, 0.5]
    """
    _, _, directions = np.linalg.svd(finite(generator))
    found = np.abs(directions[-1])
    return np.asarray(found / found.max())


def certify_joint(rows: ClassScores, C: Array, *, steps: int, tol: float) -> tuple[Array, float]:
    """Coordinates (classes, rank) that have a certificate, if these or nearby ones do, and the gap."""
    c, problem, whole = C.ravel(), rows.problem, rows.mass
    gap = weigh(rows, problem, rows.penalty, c)[1]
    small = len(c) <= LARGEST_SIZE and not sparse.issparse(rows.rows)
    if gap <= tol or problem.alpha == 0 or not small or not steps or tol <= 0:
        return C, gap
    cut, total = cut_of(problem, whole), float(whole.sum())
    if cut is None and is_average(problem, total):
        cut = LossCut(ALL, total, total, True)
    if cut is None:
        found, better = hold(rows, problem, rows.penalty, c, tol)
        return (found.reshape(C.shape), better) if better < gap else (C, gap)
    found, better = finish(Walk(rows, rows.penalty, tol=EXACT), c, cut, tol)
    return (found.reshape(C.shape), better) if better <= tol else (C, gap)

"""Certificates of joint problems: the losses of several classes as a surface of :mod:`closecall.solvers.soft`.

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
from ..solvers.design import Design, finite
from ..solvers.finish import Rounded, allowance, make_choice, own_weights, share_above
from ..solvers.settle import Settling
from .joint import losses_and_pull

#: Coordinates of all classes up to which Newton's steps are worth their memory.
LARGEST_SIZE = 2000


@dataclass
class ClassView:
    """Scores (samples, classes), softened losses and margins (samples,), and the rivals' shares (samples, classes)."""

    scores: Array
    losses: Array
    margins: Array
    shares: Array
    width: float


class ClassScores:
    """The losses of all classes' scores; coordinates are (classes, rank), flat.

    Parameters
    ----------
    design : Design
        Of :func:`closecall.linear.multiclass.prepare_joint`, dense.
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
        self.spread = np.tile(design.spectrum, classes) / float(mass.sum())
        self.choice = make_choice(problem, mass[inside].astype(np.float64), self.threshold)
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
            return ClassView(scores, losses, -losses, shares / total, width)
        others = np.where(self.own > 0, -np.inf, scores)
        top, cold = others.max(axis=1, keepdims=True), self._cold(width)
        shares = np.exp((others - top) / cold)
        total = shares.sum(axis=1, keepdims=True)
        margins = own - (top + cold * np.log(total))[:, 0]
        return ClassView(scores, self.rounded.value(margins, width), margins, shares / total, width)

    def _cold(self, width: float) -> float:
        """The temperature at which the softened maximum is at most half the width too large."""
        return width / (2 * np.log(max(self.classes - 1, 2)))

    def pulls(self, view: ClassView, rows: Array) -> tuple[Array, Array]:
        """Minus the slopes by the margins, and where their tangents touch, each (rows,)."""
        if self.kind == "softmax":
            return np.ones(len(rows)), view.margins[rows]
        return self.rounded.pulls(view.margins[rows], view.width)

    def by_class(self, view: ClassView, rows: Array) -> Array:
        """The derivatives of the losses by the scores, (rows, classes)."""
        return self.pulls(view, rows)[0][:, None] * (view.shares[rows] - self.own[rows])

    def gradients(self, view: ClassView, rows: Array) -> Array:
        each = self.by_class(view, rows)[:, :, None] * self.rows[rows][:, None, :]
        return np.asarray(each.reshape(len(rows), -1))

    def pull(self, view: ClassView, rows: Array, weights: Array) -> Array:
        return ((weights[:, None] * self.by_class(view, rows)).T @ self.rows[rows]).ravel()

    def bend(self, view: ClassView, rows: Array, weights: Array) -> Array:
        pulls, softmax = self.pulls(view, rows)[0], self.kind == "softmax"
        bend = np.zeros(len(rows)) if softmax else self.rounded.bend(view.margins[rows], view.width)
        shares, data, rank = view.shares[rows], self.rows[rows], self.rows.shape[1]
        apart = self.own[rows] - shares
        mixed = weights * pulls / (1.0 if softmax else self._cold(view.width))
        found = np.empty((self.classes, rank, self.classes, rank))
        for first in range(self.classes):
            for second in range(first, self.classes):
                same = shares[:, first] * (first == second) - shares[:, first] * shares[:, second]
                factor = mixed * same + weights * bend * apart[:, first] * apart[:, second]
                heavy = np.flatnonzero(np.abs(factor) > 1e-14)
                block = (data[heavy] * factor[heavy, None]).T @ data[heavy]
                found[first, :, second], found[second, :, first] = block, block.T
        return found.reshape(self.classes * rank, -1)

    def gap(self, c: Array, view: ClassView, weights: Array, touch: ClassView) -> float:
        """The certificate for held weights, by tangents at ``touch`` (see :mod:`closecall.solvers.certificate`).

        Free intercepts require that the pulls on every class sum to zero. Sum the pulls of each class's own examples:
        off the diagonal they are positive, on it negative, and every column sums to zero, as in the generator of a
        Markov chain. Its stationary distribution, scaled to at most 1, is the repair.
        """
        used = np.flatnonzero(weights)
        held, (pulls, points) = weights[used], self.pulls(touch, used)
        slopes = self.by_class(touch, used)
        across = held[:, None] * slopes
        if self.kind == "softmax":
            heights = held * (touch.losses[used] - (slopes * touch.scores[used]).sum(axis=1))
        else:
            heights = held * (self.loss.value(points) + pulls * points)
        if self.intercept == "free":
            own = np.stack([across[self.codes[used] == code].sum(axis=0) for code in range(self.classes)], axis=1)
            factors = stationary(own)[self.codes[used]]
            heights, across = heights * factors, across * factors[:, None]
        sums = np.asarray(across.T @ self.rows[used])
        if self.intercept == "free":
            sums[:, -1] = 0.0
        penalty = np.where(self.penalty > 0, self.penalty, 1e-300)
        with np.errstate(over="ignore"):  # alpha 0 bounds nothing
            square = np.where(sums.ravel() != 0, sums.ravel() ** 2 / (2 * penalty), 0.0)
        losses = losses_and_pull(self.kind, self.loss, view.scores.T[None].copy(), self.codes)[0][0]
        bound = float(heights.sum() - square.sum())
        return share_above(self, losses, weights, 0.5 * float(self.penalty @ c**2), bound)


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


def certify_joint(surface: ClassScores, C: Array, *, steps: int, tol: float) -> tuple[Array, float]:
    """Coordinates (classes, rank) that have a certificate, if these or nearby ones do, and the gap."""
    c = C.ravel()
    view = surface.see(c, 1e-12)  # so narrow that only equals share
    weights = own_weights(surface.problem, view.losses, surface.choice, surface.threshold)
    gap = surface.gap(c, view, weights, view)
    small = len(c) <= LARGEST_SIZE and not sparse.issparse(surface.rows)
    if gap <= tol or surface.problem.alpha == 0 or not small or not steps or tol <= 0:
        return C, gap
    allowed = allowance(steps, len(surface.rows), len(c), float(weights.sum()) / surface.choice.total * len(weights))
    spot = Settling(surface, c, allowed, tol).run()
    if spot is None:
        return C, gap
    return spot.c.reshape(C.shape), spot.gap

"""Joint losses for all classes (a loss on the top-two margin or the cross-entropy of the softmax) and certificates.

*Top two*: the margin of an example is ``m = z_y - max of the other scores``, its loss is ``l(m)``, and the threshold is
``T = l(0)``. As with two classes, an example is misclassified if and only if ``m <= 0``. The proof of the paper's Lemma
k needs only this property, so a minimiser of the close-k loss makes at most k - 1 more training errors than necessary.
Because l is decreasing, ``l(m)`` is the largest loss ``l(z_y - z_j)`` and is convex in the scores if l is convex.

*Softmax*: no value of the cross-entropy separates correctly classified from misclassified examples. A misclassified
example has a loss of at least log 2, but a correctly classified one may have any loss below log(classes); the threshold
is log 2, and Lemma k does not hold.

*Certificates*: the maximum in the top-two margin has kinks. This maximum is smoothed over the same width as the kinks
of the loss: the weights of the other classes come from a softmax whose temperature is so low that no loss changes by
more than half the width. Any such weights give a bound, because the loss is decreasing and the margin to a mean of the
other scores is at least the margin to the largest of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import Loss, get_loss
from ..objective import Problem
from ..solvers.certificate import counts
from ..solvers.cuts import ALL, LossCut, Rounded, cut_of
from ..solvers.design import Design, finite
from ..solvers.narrow import finish, hold, weigh
from ..solvers.rows import LossRows, View
from ..solvers.stages import Walk

#: The values of ``multiclass`` for which one problem learns all classes.
JOINT = ("top_two", "softmax")


def threshold_of(kind: str, loss: Loss) -> float:
    """Return the loss at the decision boundary."""
    return float(np.log(2)) if kind == "softmax" else loss.threshold


def top_two_margins(scores: Array, codes: Array) -> Array:
    """Return the true class's score minus the best other score (samples,), given scores (samples, classes).

    Examples
    --------
    >>> top_two_margins(np.array([[2.0, 0.5, 1.0], [0.0, 1.0, 3.0]]), np.array([0, 1])).tolist()
    [1.0, -2.0]
    """
    samples, others = np.arange(len(codes)), np.array(scores, dtype=float)
    others[samples, codes] = -np.inf
    return scores[samples, codes] - others.max(axis=1)


def individual_losses(kind: str, loss: Loss, scores: Array, codes: Array) -> Array:
    """Return the losses (samples,) for scores (samples, classes).

    Examples
    --------
    >>> from closecall import get_loss
    >>> individual_losses("softmax", get_loss("logistic"), np.zeros((1, 3)), np.array([0])).round(4).tolist()
    [1.0986]
    """
    return losses_and_pull(kind, loss, scores.T[None].copy(), codes)[0][0]


def losses_and_pull(kind: str, loss: Loss, scores: Array, codes: Array) -> tuple[Array, Array]:
    """Return the losses (problems, samples) for scores (problems, classes, samples), and their derivatives.

    The scores may be overwritten.

    Examples
    --------
    >>> from closecall import get_loss
    >>> scores = np.array([[[2.0], [0.5], [1.0]]])
    >>> losses, pull = losses_and_pull("top_two", get_loss("hinge"), scores, np.array([2]))
    >>> losses.tolist(), pull[0, :, 0].tolist()
    ([[2.0]], [1.0, 0.0, -1.0])
    """
    samples = np.arange(len(codes))
    own = scores[:, codes, samples]
    if kind == "softmax":
        top = scores.max(axis=1, keepdims=True)
        pull = np.exp(scores - top)
        total = pull.sum(axis=1, keepdims=True)
        pull /= total
        pull[:, codes, samples] -= 1
        return (np.log(total) + top)[:, 0] - own, pull
    scores[:, codes, samples] = -np.inf
    top = scores.max(axis=1)
    margins = own - top
    slope = loss.slope(margins)
    rivals = scores == top[:, None]
    if np.count_nonzero(rivals) > top.size:  # of tied classes, only the first one is the rival
        rivals = scores.argmax(axis=1)[:, None] == np.arange(scores.shape[1])[:, None]
    pull = np.multiply(rivals, -slope[:, None])
    pull[:, codes, samples] = slope
    return loss.value(margins), pull


@dataclass(frozen=True)
class ClassView(View):
    """A view that includes scores, weights of the other classes (samples, classes) and the softmax temperature."""

    scores: Array
    shares: Array
    temperature: float


class ClassScores(LossRows):
    """The losses computed from the scores of all classes; coordinates (classes, rank) are flattened.

    ``design`` is the result of :func:`closecall.linear.joint.prepare_joint`, ``codes`` and ``mass`` have shape
    (samples,), and ``kind`` is one of :data:`JOINT`.
    """

    def __init__(self, design: Design, codes: Array, mass: Array, problem: Problem, kind: str) -> None:
        inside = mass > 0
        rows: Any = design.signed[inside].astype(np.float64)
        self.rows = rows if sparse.issparse(rows) else np.ascontiguousarray(rows)
        self.codes, self.problem, self.kind, self.softmax = codes[inside], problem, kind, kind == "softmax"
        self.classes, self.intercept = int(codes.max()) + 1, design.intercept
        self.mass, self.loss = mass[inside].astype(np.float64), get_loss(problem.loss)
        self.threshold, self.rounded = threshold_of(kind, self.loss), Rounded(self.loss)
        self.penalty = np.tile(problem.alpha * design.penalized, self.classes)
        self.own = (self.codes[:, None] == np.arange(self.classes)).astype(np.float64)

    def _scores(self, c: Array) -> Array:
        return np.asarray(self.rows @ c.reshape(self.classes, -1).T)

    def see(self, c: Array, width: float) -> ClassView:
        scores = self._scores(c)
        own = scores[np.arange(len(scores)), self.codes]
        others, cold = scores, 1.0
        if not self.softmax:
            # At this temperature, the softened maximum exceeds the true one by at most half the width.
            others, cold = np.where(self.own > 0, -np.inf, scores), width / (2 * np.log(max(self.classes - 1, 2)))
        top = others.max(axis=1, keepdims=True)
        shares = np.exp((others - top) / cold)
        total = shares.sum(axis=1, keepdims=True)
        margins, shares = own - (top + cold * np.log(total))[:, 0], shares / total
        if self.softmax:
            wrong, pulls, bends = own < top[:, 0], np.ones(len(own)), np.zeros(len(own))
            return ClassView(-margins, wrong, pulls, bends, margins, margins, scores, shares, cold)
        losses, (pulls, points) = self.rounded.value(margins, width), self.rounded.pulls(margins, width)
        bends = self.rounded.bend(margins, width)
        return ClassView(losses, own <= top[:, 0], pulls, bends, margins, points, scores, shares, cold)

    def _by_class(self, view: ClassView) -> Array:
        """Return the derivatives (samples, classes) of the losses with respect to the scores."""
        return view.pulls[:, None] * (view.shares - self.own)

    def pull(self, view: ClassView, weights: Array) -> Array:
        return np.asarray(((weights[:, None] * self._by_class(view)).T @ self.rows).ravel())

    def bend(self, view: ClassView, held: Array, turned: Array, sizes: Array) -> tuple[Array, Array]:
        """Return the damping scale of each coordinate, and the matrix of curvatures.

        The losses are weighted by ``held`` and the squared slopes by ``turned``.
        """
        rank, apart, mixed = self.rows.shape[1], self.own - view.shares, held * view.pulls / view.temperature
        straight = held * view.bends + turned * view.pulls**2
        found = np.empty((self.classes, rank, self.classes, rank))
        for first in range(self.classes):
            for second in range(first, self.classes):
                same = view.shares[:, first] * ((first == second) - view.shares[:, second])
                factor = mixed * same + straight * apart[:, first] * apart[:, second]
                heavy = np.flatnonzero(np.abs(factor) > 1e-14)
                block = (self.rows[heavy] * factor[heavy, None]).T @ self.rows[heavy]
                found[first, :, second], found[second, :, first] = block, block.T
        if self.intercept == "free":  # a shift of all scores changes nothing, so no step should contain one
            found[:, -1, :, -1] += float(np.abs(held * view.pulls).sum()) / self.classes
        large = (held * (view.bends + view.pulls) + sizes * view.pulls**2)[:, None] * apart**2
        large += mixed[:, None] * view.shares
        return (large.T @ self.rows**2).ravel(), found.reshape(self.classes * rank, -1)

    def plain_losses(self, c: Array) -> Array:
        return individual_losses(self.kind, self.loss, self._scores(c), self.codes)

    def tangents(self, view: ClassView, weights: Array, penalty: Array) -> float:
        """Return a lower bound on the objective for fixed weights (see :mod:`closecall.solvers.certificate`).

        Free intercepts require that, for every class, the derivatives with respect to its scores sum to zero. The sums
        of these derivatives over the examples of each class form a matrix that is positive off the diagonal and
        negative on it. The columns of this matrix sum to zero, as in the generator of a Markov chain. Multiplying each
        class by its stationary probability, scaled to at most 1, makes the sums zero.
        """
        slopes = self._by_class(view)
        across = weights[:, None] * slopes
        if self.softmax:
            heights = weights * (view.losses - (slopes * view.scores).sum(axis=1))
        else:
            heights = weights * (self.loss.value(view.points) + view.pulls * view.points)
        if self.intercept == "free":
            own = np.stack([across[self.codes == code].sum(axis=0) for code in range(self.classes)], axis=1)
            factors = stationary(own)[self.codes]
            heights, across = heights * factors, across * factors[:, None]
        sums = np.asarray(across.T @ self.rows)
        if self.intercept == "free":
            sums[:, -1] = 0.0
        penalty = np.where(penalty > 0, penalty, 1e-300)
        with np.errstate(over="ignore"):  # with alpha 0 there is no bound
            square = np.where(sums.ravel() != 0, sums.ravel() ** 2 / (2 * penalty), 0.0)
        bound = float(heights.sum() - square.sum())
        return max(bound, 0.0) if np.isfinite(bound) else 0.0


def stationary(generator: Array) -> Array:
    """Return factors in [0, 1] such that ``generator @ factors = 0``; the columns of ``generator`` sum to zero.

    Examples
    --------
    >>> stationary(np.array([[-1.0, 2.0], [1.0, -2.0]])).round(6).tolist()
    [1.0, 0.5]
    """
    found = np.abs(np.linalg.svd(finite(generator))[2][-1])
    return np.asarray(found / found.max())


def certify_joint(rows: ClassScores, C: Array, *, steps: int, tol: float) -> tuple[Array, float]:
    """Return coordinates (classes, rank) near C that have a certificate, or C if there are none, and their gap."""
    c, problem, total = C.ravel(), rows.problem, float(rows.mass.sum())
    gap = weigh(rows, problem, rows.penalty, c)[1]
    small = len(c) <= 2000 and not sparse.issparse(rows.rows)  # Newton's steps need a dense matrix of this size
    if gap <= tol or problem.alpha == 0 or not small or not steps or tol <= 0:
        return C, gap
    cut = cut_of(problem, rows.mass)
    average = get_aggregate(problem.aggregate).is_average(*counts(problem, total), total)
    if cut is None and average and get_loss(problem.loss).convex:
        cut = LossCut(ALL, total, total, True)
    if cut is None:
        found, better = hold(rows, problem, rows.penalty, c, tol)
        return (found.reshape(C.shape), better) if better < gap else (C, gap)
    # The rivals' softened maximum is steep, and its slopes enter the bound, so each stage is solved precisely.
    found, better = finish(Walk(rows, rows.penalty, tol=1e-13), c, cut, tol)
    return (found.reshape(C.shape), better) if better <= tol else (C, gap)

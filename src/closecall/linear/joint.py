"""The majorising steps of joint problems, all problems together: arrays are (problems, classes, samples).

One at a time, steps are dominated by the overhead of Python; together, by the cost of the products. The slow reference
implementation is :meth:`closecall.linear.multiclass._Joint.value_and_gradient`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from .._names import Array
from ..losses import Loss, get_loss
from ..objective import Problem
from ..schedules import first_final_step
from ..solvers.design import Design
from ..solvers.kernels import Mass, weigh
from ..solvers.steps import WINDOW, close_window, is_steep, share_of_gram, step_curvature, within_reach

_BLOCK = 1 << 18  # scores alive at once: they stay in cache


def losses_and_pull(kind: str, loss: Loss, scores: Array, codes: Array) -> tuple[Array, Array]:
    """Losses (problems, samples) of scores (problems, classes, samples), and their derivatives w.r.t. the scores.

    The scores may be overwritten.

    Examples
    --------
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
    if np.count_nonzero(rivals) > top.size:  # ties: the first of them is the rival
        rivals = scores.argmax(axis=1)[:, None] == np.arange(scores.shape[1])[:, None]
    pull = np.multiply(rivals, -slope[:, None])
    pull[:, codes, samples] = slope
    return loss.value(margins), pull


class Steps:
    """Problems of one loss and aggregate, ready for stepping in the design's coordinates.

    Parameters
    ----------
    design : Design
    codes : array (samples,)
    masses : list of Mass, one for each problem; those of a fold are the same object and stand together
    problems : sequence of Problem
    kind : {"top_two", "softmax"}
    """

    def __init__(
        self, design: Design, codes: Array, masses: Sequence[Mass], problems: Sequence[Problem], kind: str
    ) -> None:
        self.design, self.codes, self.masses, self.problems, self.kind = design, codes, masses, problems, kind
        self.loss = get_loss(problems[0].loss)
        self.threshold = float(np.log(2)) if kind == "softmax" else self.loss.threshold
        self.totals = np.array([mass.total for mass in masses])
        resolved = [problem.resolve(total, 1) for problem, total in zip(problems, self.totals, strict=True)]
        self.aggregate, self.m = resolved[0][1], np.array([m for *_, m in resolved])
        self.shrink = np.array([problem.alpha for problem in problems])[:, None, None] * design.penalized

    def gradients(self, C: Array, k: Array, rows: Array) -> Array:
        """Gradients (rows, classes, coordinates) of the aggregate losses at C, without the penalty, in blocks."""
        found, kinds = np.empty_like(C), C.shape[1]
        size = max(1, _BLOCK // (kinds * len(self.codes)))
        for begin in range(0, len(C), size):
            part = slice(begin, begin + size)
            flat = C[part].reshape(-1, C.shape[2])
            scores = self.design.negative_margins(flat).reshape(-1, kinds, len(self.codes))
            losses, pull = losses_and_pull(self.kind, self.loss, scores, self.codes)
            self._weigh(pull, losses, k[part], rows[part])
            found[part] = self.design.gradient(pull.reshape(len(flat), -1)).reshape(found[part].shape)
        return found

    def _weigh(self, pull: Array, losses: Array, k: Array, rows: Array) -> None:
        """Multiply pulls by the weights of their losses, a fold at a time."""
        folds = [id(self.masses[row]) for row in rows]
        ends = [place for place in range(1, len(rows)) if folds[place] != folds[place - 1]]
        for begin, end in pairwise([0, *ends, len(rows)]):
            mine, mass = slice(begin, end), self.masses[rows[begin]]
            chosen = weigh(self.aggregate.name, losses[mine], self.threshold, k[mine], self.m[rows[mine]], mass)
            pull[mine] *= chosen[:, None]

    def descend(self, C: Array, first: int, steps: int, tol: float, extra: int = 0) -> tuple[Array, Array]:
        """Coordinates and steps used for every problem, from step ``first``; converged rows drop out."""
        final, used = C.copy(), np.full(len(C), steps + extra)
        schedules = [p.resolve(total, steps)[2] for p, total in zip(self.problems, self.totals, strict=True)]
        judged_from = first_final_step(steps) if self.aggregate.decays else 1
        rows, eta, path, count, mark = np.arange(len(C)), np.ones(len(C)), np.zeros(len(C)), 0, C
        curvature = 2 * step_curvature(self.loss.name)  # two scores move
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

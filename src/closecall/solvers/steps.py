"""Majorising steps: everything that is not a convex average, a block of problems at a time.

One step is ``w <- w - eta * (c * kappa * X'X + alpha)^-1 gradient``, a division in the design's coordinates. c bounds
the loss's curvature and kappa how much of ``X'X`` k examples can carry: for k examples in r dimensions about
``(sqrt(k) + sqrt(r))^2 / n`` of it (Marchenko & Pastur), at most all. eta starts at 1; when a window of steps goes to
and fro instead of forward (its net move is under half its path), the selection is chattering and eta is halved. A
problem has converged when a window's mean step moves the margins by less than ``tol`` of their size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..losses import get_loss
from ..schedules import decay, first_final_step
from .design import Design
from .kernels import PULLS, Mass

WINDOW = 10
#: Margins smaller than this (root mean square) are measured against it: the best of some problems is w = 0.
SMALL_MARGIN = 0.01


@dataclass(frozen=True)
class Rows:
    """Problems as parallel arrays, sorted so that equal work is adjacent.

    ``k``, ``m`` and ``alpha`` are floats with k and m resolved to masses; ``first`` is the step a row starts at.
    """

    loss: Array
    aggregate: Array
    fold: Array
    k: Array
    m: Array
    alpha: Array
    first: Array

    def take(self, index: Array) -> Rows:
        return Rows(*(value[index] for value in vars(self).values()))

    def __len__(self) -> int:
        return len(self.loss)


def share_of_gram(k: Array, rank: int, total: float) -> Array:
    """kappa: the share of the Gram matrix that k examples carry, at most 1.

    Examples
    --------
    >>> share_of_gram(np.array([25.0, 1e9]), 4, 490.0).tolist()
    [0.1, 1.0]
    """
    return np.minimum((np.sqrt(k) + np.sqrt(rank)) ** 2 / total, 1.0)


def step_curvature(loss: str) -> float:
    """The loss's curvature bound; 1 for a loss with a kink, whose slope changes by 1 over a margin of about 1."""
    bound = get_loss(loss).curvature
    return bound if np.isfinite(bound) else 1.0


def schedule_table(rows: Rows, totals: Array, steps: int) -> tuple[Array, Array]:
    """k of every decaying row over the steps up to the last third: (steps + 1, rows) and which rows decay."""
    decays = rows.aggregate == "close_decay"
    last = first_final_step(steps)
    table = np.broadcast_to(rows.k, (last + 1, len(rows))).copy()
    for k_star, total in sorted({(k, totals[fold]) for k, fold in zip(rows.k[decays], rows.fold[decays], strict=True)}):
        same = decays & (rows.k == k_star) & (totals[rows.fold] == total)
        k_at = decay(k_star, total, steps)
        table[1:, same] = np.array([k_at(step) for step in range(1, last + 1)])[:, None]
    return table, decays


def block_gradients(design: Design, rows: Rows, masses: list[Mass], C: Array, k: Array, blocks: list[Array]) -> Array:
    """Gradients of the aggregate losses at C, (rows, coordinates), without the penalty."""
    gradient = np.empty_like(C)
    for part in blocks:
        first = part[0]
        negative = design.negative_margins(C[part])
        pull = PULLS[rows.aggregate[first]]
        gradient[part] = pull(design, rows.loss[first], negative, k[part], rows.m[part], masses[rows.fold[first]])
    return gradient


def make_blocks(rows: Rows, block_rows: int) -> list[Array]:
    """Indices of rows that are evaluated together: one fold, loss and kind of pull, at most ``block_rows``."""
    blocks: list[Array] = []
    if not len(rows):
        return blocks
    pulls = np.array([PULLS[name].__name__ for name in rows.aggregate])
    change = (rows.fold[1:] != rows.fold[:-1]) | (rows.loss[1:] != rows.loss[:-1]) | (pulls[1:] != pulls[:-1])
    for group in np.split(np.arange(len(rows)), np.flatnonzero(change) + 1):
        pieces = -(-len(group) // block_rows)
        blocks += np.array_split(group, pieces)
    return blocks


def descend(
    design: Design,
    rows: Rows,
    masses: list[Mass],
    start: Array,
    *,
    steps: int,
    tol: float,
    block_rows: int,
    beat: Callable[[int, int], None] | None = None,
) -> tuple[Array, Array, Array]:
    """Run every row from its first step to ``steps`` or to convergence.

    Parameters
    ----------
    design : Design
    rows : Rows
    masses : list of Mass, one for each fold
    start : array (rows, coordinates)
    steps : int
        E, the length of a run.
    tol : float
        Convergence: the mean step of a window moves the margins by less than this share of their size.
    block_rows : int
        Rows evaluated together.
    beat : callable, optional
        Called after every step with the largest step number and the number of active rows.

    Returns
    -------
    coordinates : array (rows, coordinates)
    used : array (rows,)
        The last step of each row.
    converged : array (rows,)
    """
    final, used, converged = start.copy(), np.full(len(rows), steps), np.zeros(len(rows), dtype=bool)
    table, decays = schedule_table(rows, np.array([mass.total for mass in masses]), steps)
    total, last = float(design.masses.max(axis=0).sum()), len(table) - 1
    curvature = np.array([step_curvature(loss) for loss in rows.loss])
    floor = SMALL_MARGIN * np.sqrt(total)
    active = np.arange(len(rows))
    step, C, eta = rows.first.copy(), start.copy(), np.ones(len(rows))
    mark, path, count = C.copy(), np.zeros(len(rows)), np.zeros(len(rows), dtype=int)
    live, blocks, divisor = rows, make_blocks(rows, block_rows), None
    while active.size:
        k = table[np.minimum(step, last), active]
        gradient = block_gradients(design, live, masses, C, k, blocks)
        gradient += live.alpha[:, None] * design.penalized * C
        if divisor is None or (decays[active] & (step <= last)).any():
            carried = share_of_gram(_carried(live, k), design.rank, total)
            divisor = (curvature[active] * carried)[:, None] * design.spectrum
            divisor += live.alpha[:, None] * design.penalized
        move = gradient
        move /= divisor
        move *= -eta[:, None]
        C += move
        path += np.sqrt(move**2 @ design.spectrum)
        count += 1
        falling = decays[active] & (step < last)  # before the last third nothing is judged and nothing leaves
        if falling.any():
            count[falling], path[falling], mark[falling] = 0, 0.0, C[falling]
        judged = count == WINDOW
        done = step >= steps
        if judged.any():
            net = np.sqrt((C - mark) ** 2 @ design.spectrum)
            size = np.maximum(np.sqrt(C**2 @ design.spectrum), floor)
            eta[judged & (net < 0.5 * path)] *= 0.5
            settled = judged & (path <= WINDOW * tol * size)
            converged[active[settled]] = True
            done |= settled
            count[judged], path[judged], mark[judged] = 0, 0.0, C[judged]
        if beat is not None:
            beat(int(step.max()), active.size)
        if done.any():
            final[active[done]], used[active[done]] = C[done], step[done]
            keep = np.flatnonzero(~done)
            active, step, C, eta, mark = active[keep], step[keep], C[keep], eta[keep], mark[keep]
            path, count, live, divisor = path[keep], count[keep], live.take(keep), None
            blocks = make_blocks(live, block_rows)
        step = step + 1
    return final, used, converged


def _carried(rows: Rows, k: Array) -> Array:
    """How much mass pulls: k - m of it, one for `top`."""
    return np.where(rows.aggregate == "top", 1.0, np.maximum(k - rows.m, 0.0))

"""The descent of the paper's released experiments, many problems at once: momentum, and a rate that halves.

What its authors' code does (github.com/bryan-he/closek, ``experiments``), as far as it bears on the result: full-batch
steps with momentum 0.9 on the sum of the selected losses, alpha on all parameters; the rate begins at 1; whenever the
training aggregate (for close-k plus one for each misclassified example outside) exceeds 1.1 times the lowest so far,
the rate is halved and the run goes back to where it was lowest; all but close decay end early once the parameters move
by less than a tolerance of 1e-3. The aggregate that is watched has no penalty in it, so under a large alpha the run is
thrown back again and again, and ends near its least-squares start instead of near zero. One difference: where the k-th
place of atk or top is tied, the tied examples share it here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from closecall.objective import Problem

from .common import Array


@dataclass(frozen=True)
class Traits:
    """What the descent does by habit, each of which can be turned off.

    Parameters
    ----------
    share_ties : bool
        Examples tied at the k-th place of close-k share it, as in our solver; all of them count unless said.
    early_stop : bool
        All but close decay end once the parameters move less than the tolerance.
    watch_penalty : bool
        The penalty is part of the value that must not rise.
    """

    share_ties: bool = False
    early_stop: bool = True
    watch_penalty: bool = False


MOMENTUM, RATE, RISE, LEAST_RATE, TOLERANCE, GRACE = 0.9, 1.0, 1.1, 1e-10, 1e-3, 5
BLOCK = 24


@dataclass
class _Run:
    """The state of the rows that still run; ``at`` says which problems they are."""

    at: Array
    W: Array
    V: Array
    rate: Array
    lowest: Array
    best: Array
    reset: Array
    stop: Array

    def keep(self, rows: Array) -> _Run:
        return _Run(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def k_released(step: int, k: float, n: int, steps: int) -> int:
    """k of close decay at a step counted from zero.

    Examples
    --------
    >>> [k_released(step, 10, 100, 9) for step in (0, 2, 3, 5, 6, 8)]
    [100, 100, 100, 40, 10, 10]
    """
    if step < steps // 3:
        return n
    if step < 2 * steps // 3:
        return int(k + round((n - k) * (2 * steps // 3 - step) / steps * 3))
    return int(k)


def descend(
    X: Array,
    y: Array,
    problems: Sequence[Problem],
    *,
    steps: int = 1000,
    start: Array | None = None,
    traits: Traits | None = None,
) -> tuple[Array, Array]:
    """Parameters that the released descent ends with.

    Parameters
    ----------
    X : array (samples, features)
    y : array (samples,) in {-1, +1}
    problems : sequence of Problem
        Logistic or hinge loss; k a whole number.
    steps : int
    start : array (features + 1,), optional
        The intercept last; least squares unless given.
    traits : Traits, optional
        The released code's unless given.

    Returns
    -------
    coef : array (problems, features)
    intercept : array (problems,)
    """
    Z = np.column_stack([X, np.ones(len(y))]).astype(np.float32)
    if start is None:
        start = np.linalg.pinv(Z.astype(float)) @ y
    # Problems are independent, and a block of them that stays in the processor's cache takes half the time.
    blocks = [problems[i : i + BLOCK] for i in range(0, len(problems), BLOCK)]
    found = [_descend_block(Z, y.astype(np.float32), block, steps, start, traits or Traits()) for block in blocks]
    final = np.nan_to_num(np.concatenate(found), posinf=0.0, neginf=0.0)
    return final[:, :-1].astype(float), final[:, -1].astype(float)


def _descend_block(
    Z: Array, labels: Array, problems: Sequence[Problem], steps: int, start: Array, traits: Traits
) -> Array:
    count = len(problems)
    W = np.tile(start.astype(np.float32), (count, 1))
    run = _Run(
        np.arange(count), W, np.zeros_like(W), np.full(count, RATE), np.full(count, np.inf), W.copy(),
        np.zeros(count, int), np.zeros(count, bool),
    )  # fmt: skip
    final = np.empty_like(W)
    for step in range(steps):
        last = run.stop.copy()  # those that have decided to stop take one more step
        _step(run, Z, labels, problems, step, steps, traits)
        if last.any() or step == steps - 1:
            final[run.at] = run.W
            run = run.keep(~last)
        if not len(run.at):
            break
    final[run.at] = run.W
    return final


def _step(run: _Run, Z: Array, y: Array, problems: Sequence[Problem], step: int, steps: int, traits: Traits) -> None:
    mine = [problems[i] for i in run.at]
    alphas = np.array([problem.alpha for problem in mine], dtype=np.float32)
    with np.errstate(all="ignore"):
        margins = (run.W @ Z.T) * y
        losses, slopes = _losses(margins, np.array([problem.loss == "hinge" for problem in mine]))
        taken, outside = _select(losses, mine, step, steps, traits.share_ties)
        value = (losses * taken).sum(axis=1) + outside
        if traits.watch_penalty:
            value = value + alphas / 2 * (run.W**2).sum(axis=1)
        old = run.W
        if step:
            gradient = ((taken * slopes * y) @ Z) + alphas[:, None] * run.W
            run.V = MOMENTUM * run.V + gradient
            run.W = (run.W - run.rate[:, None] * run.V).astype(np.float32)
        total = losses.sum(axis=1)
        bad = ~np.isfinite(total) | ~np.isfinite(value) | (value > RISE * run.lowest)
        run.rate[bad] /= 2
        run.W[bad], run.V[bad], run.reset[bad] = run.best[bad], 0, step
        lower = ~bad & (value < run.lowest)
        run.lowest[lower], run.best[lower] = value[lower], old[lower]
        run.stop |= run.rate < LEAST_RATE
        moved = np.sqrt(np.linalg.norm(run.W[:, :-1] - old[:, :-1], axis=1) + np.abs(run.W[:, -1] - old[:, -1]))
        patient = np.array([problem.aggregate == "close_decay" for problem in mine])
        run.stop |= traits.early_stop & ~patient & (run.reset + GRACE <= step) & (moved < TOLERANCE)


def _losses(margins: Array, hinge: Array) -> tuple[Array, Array]:
    """Losses and slopes (problems, samples); ``hinge`` says which rows have that loss, the others are logistic."""
    if hinge.all():
        return np.maximum(1 - margins, 0), -(margins < 1).astype(margins.dtype)
    if not hinge.any():
        return np.log1p(np.exp(-np.abs(margins))) + np.maximum(-margins, 0), -expit(-margins)
    losses, slopes = np.empty_like(margins), np.empty_like(margins)
    for rows in (hinge, ~hinge):
        losses[rows], slopes[rows] = _losses(margins[rows], hinge[rows])
    return losses, slopes


def _select(
    losses: Array, problems: Sequence[Problem], step: int, steps: int, share: bool = False
) -> tuple[Array, Array]:
    """Which losses count (ties of close-k at the k-th place all do, or share), and how many wrong ones are outside."""
    n = losses.shape[1]
    taken, outside = np.ones_like(losses), np.zeros(len(losses))
    groups: dict[tuple[str, str, int], list[int]] = {}
    for row, problem in enumerate(problems):
        if problem.aggregate != "average":
            k = int(problem.k or n)
            k = k_released(step, k, n, steps) if problem.aggregate == "close_decay" else k
            if k < n or problem.aggregate == "top":
                groups.setdefault((problem.aggregate, problem.loss, k), []).append(row)
    for (aggregate, loss, k), rows in groups.items():
        mine = losses[rows]
        threshold = 1.0 if loss == "hinge" else float(np.log(2))
        keys = -mine if aggregate in ("atk", "top") else np.abs(mine - threshold)
        edge = np.partition(keys, k - 1, axis=1)[:, k - 1 : k]
        if aggregate in ("close", "close_decay"):
            outside[rows] = ((keys > edge) & (mine > threshold)).sum(axis=1)
            if not share:
                taken[rows] = keys <= edge
                continue
        tied, inside = keys == edge, keys < edge
        room = 1 if aggregate == "top" else k - inside.sum(axis=1, keepdims=True)
        part = (room / np.maximum(tied.sum(axis=1, keepdims=True), 1)).astype(losses.dtype)
        taken[rows] = tied * part if aggregate == "top" else tied * part + inside
    return taken, outside

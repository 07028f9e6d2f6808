"""Majorising steps: everything that is not a convex average, a block of problems at a time.

One step is ``w <- w - eta * (c * kappa * X'X + alpha)^-1 gradient``, a division in the design's coordinates. c bounds
the loss's curvature and kappa how much of ``X'X`` k examples can carry: for k examples in r dimensions about ``(sqrt(k)
+ sqrt(r))^2 / n`` of it (Marchenko & Pastur), at most all. eta starts at 1; when a window of steps goes back and forth
instead of forward (its net move is under half its path), the selection is chattering and eta is halved. A problem
leaves when a window's mean step moves the margins by less than ``tol`` of their size; its certificate decides whether
it has converged.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..schedules import decay, first_final_step
from . import compiled
from .design import Design
from .kernels import Mass, pull_of

#: Steps after which a row's progress is judged.
WINDOW = 10
#: Margins smaller than this (root mean square) are measured against it: the best of some problems is w = 0.
SMALL_MARGIN = 0.01


@dataclass(frozen=True)
class Rows:
    """Problems as parallel arrays, sorted to keep equal work together.

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


def share_of_gram(k: Array, rank: int, total: Array | float) -> Array:
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


def is_steep(loss: str) -> bool:
    """Whether the slope is unbounded, in which case a few examples can make steps grow without limit.

    Examples
    --------
    >>> is_steep("squared_hinge"), is_steep("logistic")
    (True, False)
    """
    return bool(np.abs(get_loss(loss).slope(np.array([-1e6]))[0]) > 1e3)


def within_reach(length: Array | float, size: Array | float, total: Array | float) -> Array:
    """Factors for steps that change the margins by more than their size, or by more than 1 (root mean square).

    kappa is what k examples usually carry, not what they can: k outliers carry more, and where their slopes are
    unbounded, each step would go further than the last. If limited, such steps go back and forth, and eta is halved.

    Examples
    --------
    >>> within_reach(np.array([1.0, 80.0]), np.array([20.0, 20.0]), 100.0).tolist()
    [1.0, 0.25]
    """
    reach = np.maximum(size, np.sqrt(total))
    return np.where(length > reach, reach / np.maximum(length, reach), 1.0)


def schedule_table(rows: Rows, totals: Array, steps: int) -> tuple[Array, Array]:
    """k of every row over the steps up to the last third, (steps + 1, rows), (1, rows) if none decays; and which do."""
    decays = np.array([get_aggregate(name).decays for name in rows.aggregate], dtype=bool)
    last = first_final_step(steps) if decays.any() else 0
    table = np.broadcast_to(rows.k, (last + 1, len(rows))).copy()
    for k_star, total in sorted({(k, totals[fold]) for k, fold in zip(rows.k[decays], rows.fold[decays], strict=True)}):
        same = decays & (rows.k == k_star) & (totals[rows.fold] == total)
        k_at = decay(k_star, total, steps)
        table[1:, same] = np.array([k_at(step) for step in range(1, last + 1)])[:, None]
    return table, decays


def make_blocks(rows: Rows, block_rows: int, chosen: Array, *, mixed: bool = False) -> list[tuple[slice | Array, int]]:
    """Rows that are evaluated together, at most ``block_rows``; and the first of each.

    Neighbours are a slice, which avoids copies. Unless ``mixed``, a block has one fold, loss and kind of pull.
    """
    blocks: list[tuple[slice | Array, int]] = []
    if not chosen.size:
        return blocks
    change = np.zeros(len(chosen) - 1, dtype=bool)
    if not mixed:
        pulls = np.array([pull_of(name).__name__ for name in rows.aggregate[chosen]])
        fold, loss = rows.fold[chosen], rows.loss[chosen]
        change = (fold[1:] != fold[:-1]) | (loss[1:] != loss[:-1]) | (pulls[1:] != pulls[:-1])
    for group in np.split(chosen, np.flatnonzero(change) + 1):
        for part in np.array_split(group, -(-len(group) // block_rows)):
            first, last = int(part[0]), int(part[-1])
            blocks.append((slice(first, last + 1) if last - first + 1 == len(part) else part, first))
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
    wide_rows: int,
    extra: int = 0,
    beat: Callable[[int, int], None] | None = None,
) -> tuple[Array, Array]:
    """Run every row until it converges or has taken ``steps + extra`` steps, the extra ones at the final k.

    NumPy evaluates ``block_rows`` together, the compiled kernel ``wide_rows``. ``beat`` receives the largest step
    and the number of active rows after each. Returns coordinates (rows, coordinates) and the last steps (rows,).
    """
    limit = steps + extra
    final, used = start.copy(), np.full(len(rows), limit)
    walk = _Walk(design, rows, masses, start, steps, block_rows, wide_rows)
    while walk.active.size:
        for pause in range(walk.pause(limit), -1, -1):
            walk.advance()
            if beat is not None:
                beat(int(walk.step.max()), walk.active.size)
            if pause:
                walk.step += 1
        done = walk.judge(tol) | (walk.step >= limit)
        if done.any():
            leaving = walk.active[done]
            final[leaving], used[leaving] = walk.C[done], walk.step[done]
            walk.keep(np.flatnonzero(~done))
        walk.step += 1
    return final, used


class _Walk:
    """The active rows, as parallel arrays, and the history of their windows."""

    def __init__(
        self, design: Design, rows: Rows, masses: list[Mass], start: Array, steps: int, block_rows: int, wide_rows: int
    ) -> None:
        self.design, self.masses, self.rows = design, masses, rows
        self.block_rows, self.wide_rows = block_rows, wide_rows
        self.table, self.decays = schedule_table(rows, np.array([mass.total for mass in masses]), steps)
        self.last = len(self.table) - 1
        self.total = float(design.masses.max(axis=0).sum())
        self.curvature = np.array([step_curvature(loss) for loss in rows.loss])
        self.active, self.step, self.C = np.arange(len(rows)), rows.first.copy(), start.copy()
        self.eta, self.path, self.count = np.ones(len(rows)), np.zeros(len(rows)), np.zeros(len(rows), dtype=int)
        self.mark = self.C.copy()
        self.fast = compiled.serves(design, rows.loss, rows.aggregate, rows.m, rows.fold, masses)
        self.codes = compiled.codes(rows.loss, rows.aggregate, rows.fold)
        self.hints = np.full((len(rows), 3), -1.0)
        self.steep_losses = [loss for loss in np.unique(rows.loss) if is_steep(loss)]
        if self.fast.any():
            self.puller = compiled.Puller(design, masses, min(wide_rows, int(self.fast.sum())))
        self.arrange()

    def arrange(self) -> None:
        """Sort the rows into blocks and precompute what stays valid until rows leave."""
        fixed = ~self.decays | (self.step >= self.last)
        self.falling = not fixed.all()  # before the last third k changes at every step
        self.blocks = make_blocks(self.rows, self.block_rows, np.flatnonzero(~self.fast))
        wide = make_blocks(self.rows, self.wide_rows, np.flatnonzero(self.fast), mixed=True)
        self.wide_blocks = [
            (part, compiled.BoundPull(self.puller, self.codes[:, part], self.hints[part])) for part, _ in wide
        ]  # the hints are a view of ours where the rows are neighbours
        lone = len(self.wide_blocks) == 1 and not self.blocks
        self.alone = self.wide_blocks[0][1] if lone else None  # all rows are one block: nothing is copied
        self.steep = np.flatnonzero(np.isin(self.rows.loss, self.steep_losses))
        self.shrink = self.rows.alpha[:, None] * self.design.penalized
        names = self.rows.aggregate
        self.groups = [(get_aggregate(name), names == name) for name in np.unique(names)]
        self.update_k_and_majoriser()

    def update_k_and_majoriser(self) -> None:
        """Set k for this step, with the matching majoriser."""
        k, m = self.table[np.minimum(self.step, self.last), self.active], self.rows.m
        found = np.empty_like(k)  # the sum of the weights of each row
        for aggregate, same in self.groups:
            found[same] = aggregate.carried(k[same], m[same])
        carried = self.curvature * share_of_gram(found, self.design.rank, self.total)
        self.k, self.divisor = k, carried[:, None] * self.design.spectrum + self.shrink

    def pause(self, limit: int) -> int:
        """How many steps can be taken before a window opens or closes, or a row has to leave."""
        judged = ~self.decays | (self.step >= self.last)
        windows, openings = WINDOW - 1 - self.count[judged], self.last - 1 - self.step[~judged]
        return int(np.concatenate([windows, openings, [limit - self.step.max()]]).clip(0).min())

    def advance(self) -> None:
        """One majorising step of every row."""
        if self.falling:
            if (self.decays & (self.step == self.last)).any():
                self.arrange()
            self.update_k_and_majoriser()
        move = self.gradients()
        move += self.shrink * self.C
        move /= self.divisor
        move *= self.eta[:, None]
        if self.steep.size:
            length, size = (np.sqrt(part[self.steep] ** 2 @ self.design.spectrum) for part in (move, self.C))
            move[self.steep] *= within_reach(length, size, self.total)[:, None]
        self.C -= move
        self.path += np.sqrt(np.square(move, out=move) @ self.design.spectrum)
        self.count += 1

    def gradients(self) -> Array:
        """Gradients of all rows, (rows, coordinates), without the penalty."""
        rounded = self.C.astype(self.design.signed.dtype, copy=False)
        if self.alone is not None:
            return self.alone.gradients(rounded, self.k).astype(np.float64, copy=False)
        gradient, rows = np.empty_like(self.C), self.rows
        for part, first in self.blocks:
            negative = self.design.negative_margins(rounded[part])
            pull, mass = pull_of(rows.aggregate[first]), self.masses[rows.fold[first]]
            gradient[part] = pull(self.design, rows.loss[first], negative, self.k[part], rows.m[part], mass)
        for part, block in self.wide_blocks:
            gradient[part] = block.gradients(rounded[part], self.k[part])
            if not isinstance(part, slice):
                self.hints[part] = block.hints
        return gradient

    def judge(self, tol: float) -> Array:
        """Close full windows: halve the step size of oscillating rows, and return which rows have converged."""
        judged = self.count == WINDOW
        if self.falling:  # before the last third nothing is judged, nothing leaves; the first window opens with it
            judged &= ~self.decays | (self.step >= self.last)
            self._open(self.decays & (self.step == self.last - 1))
        if not judged.any():
            return judged
        spectrum = self.design.spectrum
        net = np.sqrt((self.C - self.mark) ** 2 @ spectrum)
        size = np.maximum(np.sqrt(self.C**2 @ spectrum), SMALL_MARGIN * np.sqrt(self.total))
        self.eta[judged & (net < 0.5 * self.path)] *= 0.5
        settled = judged & (self.path <= WINDOW * tol * size)
        self._open(judged)
        return settled

    def _open(self, rows: Array) -> None:
        if rows.any():
            self.count[rows], self.path[rows], self.mark[rows] = 0, 0.0, self.C[rows]

    def keep(self, rows: Array) -> None:
        """Continue with only these rows."""
        for name in ("active", "step", "C", "eta", "path", "count", "mark", "decays", "curvature",
                     "fast", "hints"):  # fmt: skip
            setattr(self, name, getattr(self, name)[rows])
        self.rows, self.codes = self.rows.take(rows), self.codes[:, rows]
        self.arrange()

"""Majorising steps for all problems that are not convex averages, for one block of problems at a time.

One step is ``w <- w - eta * (c * kappa * X'X + alpha)^-1 gradient``, which is a division in the design's coordinates.
Here c bounds the curvature of the loss, and kappa is the share of ``X'X`` that is due to k examples: in r dimensions,
about ``(sqrt(k) + sqrt(r))^2 / n`` (Marchenko & Pastur), and at most 1. Initially, eta is 1. If the net move over a
window of steps is less than half the length of its path, the steps oscillate because the selection alternates, and eta
is halved. A problem leaves the batch when the mean step of a window changes the margins by less than ``tol`` times
their size. Its certificate then decides whether it has converged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..losses import get_loss
from ..objective import Problem
from ..schedules import decay, first_final_step, last_convex_step
from . import compiled
from .certificate import counts
from .design import Design
from .kernels import Mass, pull_of

#: The number of steps after which the progress of a row is evaluated.
WINDOW = 10


@dataclass(frozen=True)
class Rows:
    """Problems as parallel arrays, with k and m as masses and with the first step of each row."""

    loss: Array
    aggregate: Array
    fold: Array
    k: Array
    m: Array
    alpha: Array
    first: Array

    @classmethod
    def of(cls, problems: Sequence[Problem], fold_of: Array, totals: Array, steps: int) -> Rows:
        """Return the problems as rows, given the mass of each fold; problems that use all examples become `average`."""
        found = []
        for problem, fold in zip(problems, fold_of.tolist(), strict=True):
            name, total = problem.aggregate, float(totals[fold])
            k, m = counts(problem, total)
            name = "average" if get_aggregate(name).is_average(k, m, total) else name
            decays = get_aggregate(name).decays and get_loss(problem.loss).convex
            first = last_convex_step(steps) + 1 if decays else 1
            found.append((problem.loss, name, fold, k, m, float(problem.alpha), first))
        return cls(*map(np.array, zip(*found, strict=True)))

    def take(self, index: Array) -> Rows:
        return Rows(*(value[index] for value in vars(self).values()))

    def __len__(self) -> int:
        return len(self.loss)

    @property
    def averages(self) -> Array:
        """Whether each row is a convex average (rows,)."""
        pairs = zip(self.loss, self.aggregate, strict=True)
        return np.array([get_loss(loss).convex and get_aggregate(name).plain for loss, name in pairs], dtype=bool)

    def alike(self, start: Array) -> list[Array]:
        """Return groups of rows with the same loss, fold and start (rows, coordinates), each in order of alpha."""
        groups: dict[Any, list[int]] = {}
        for row in np.lexsort((self.alpha, self.fold, self.loss)).tolist():
            groups.setdefault((self.loss[row], self.fold[row], start[row].tobytes()), []).append(row)
        return [np.array(group) for group in groups.values()]


def share_of_gram(k: Array, rank: int, total: Array | float) -> Array:
    """Return kappa, the share of the Gram matrix that is due to k examples, which is at most 1.

    Examples
    --------
    >>> share_of_gram(np.array([25.0, 1e9]), 4, 490.0).tolist()
    [0.1, 1.0]
    """
    return np.minimum((np.sqrt(k) + np.sqrt(rank)) ** 2 / total, 1.0)


def step_curvature(loss: str) -> float:
    """Return the bound on a loss's curvature, or 1 for a kink: the slope changes by 1 within about 1 unit of margin."""
    bound = get_loss(loss).curvature
    return bound if np.isfinite(bound) else 1.0


def is_steep(loss: str) -> bool:
    """Return whether the slope is unbounded, so that a few examples could make steps grow without limit."""
    return bool(np.abs(get_loss(loss).slope(np.array([-1e6]))[0]) > 1e3)


def within_reach(length: Array | float, size: Array | float, total: Array | float) -> Array:
    """Return factors that limit how far a step changes the margins: to their size or to 1, whichever is larger.

    Sizes are root mean squares. The estimate kappa is too small for k outliers, and if their slopes are unbounded, each
    step would be longer than the last. Limited steps oscillate instead, so eta is halved.
    """
    reach = np.maximum(size, np.sqrt(total))
    return np.where(length > reach, reach / np.maximum(length, reach), 1.0)


def close_window(net: Any, path: Any, size: Any, total: Any, tol: float) -> tuple[Any, Any]:
    """Return whether the steps in a window oscillated, and whether they were small enough to stop.

    The arguments are the lengths of the net move, the path and the coordinates. A root mean square of the margins below
    0.01 counts as 0.01, because w = 0 is the solution of some problems.
    """
    return net < 0.5 * path, path <= WINDOW * tol * np.maximum(size, 0.01 * np.sqrt(total))


def schedule_table(rows: Rows, totals: Array, steps: int) -> tuple[Array, Array]:
    """Return a table (steps, rows) of k up to the last third (one step if no row decays), and which rows decay."""
    decays = np.array([get_aggregate(name).decays for name in rows.aggregate], dtype=bool)
    last = first_final_step(steps) if decays.any() else 0
    table = np.broadcast_to(rows.k, (last + 1, len(rows))).copy()
    for k_star, total in sorted({(k, totals[fold]) for k, fold in zip(rows.k[decays], rows.fold[decays], strict=True)}):
        same = decays & (rows.k == k_star) & (totals[rows.fold] == total)
        k_at = decay(k_star, total, steps)
        table[1:, same] = np.array([k_at(step) for step in range(1, last + 1)])[:, None]
    return table, decays


def make_blocks(rows: Rows, block_rows: int, chosen: Array, *, mixed: bool = False) -> list[tuple[slice | Array, int]]:
    """Return blocks of at most ``block_rows`` of the chosen rows, and the first row of each block.

    Adjacent rows are returned as a slice to avoid copies. Unless ``mixed``, all rows of a block have the same fold,
    loss and gradient function.
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


class Descent:
    """The active rows as parallel arrays, with the histories of their windows.

    NumPy evaluates ``block_rows`` rows at a time; the compiled kernel evaluates ``wide_rows`` rows at a time. ``start``
    has shape (rows, coordinates).
    """

    def __init__(
        self, design: Design, rows: Rows, masses: list[Mass], start: Array, steps: int, block_rows: int, wide_rows: int
    ) -> None:
        self.design, self.masses, self.rows, self.steps = design, masses, rows, steps
        self.block_rows, self.wide_rows = block_rows, wide_rows
        self.table, self.decays = schedule_table(rows, np.array([mass.total for mass in masses]), steps)
        self.last = len(self.table) - 1
        self.total = float(design.masses.max(axis=0).sum())
        self.curvature = np.array([step_curvature(loss) for loss in rows.loss])
        self.active, self.step, self.C = np.arange(len(rows)), rows.first.copy(), start.copy()
        self.eta, self.path, self.count = np.ones(len(rows)), np.zeros(len(rows)), np.zeros(len(rows), dtype=int)
        self.mark = self.C.copy()
        self.codes = compiled.codes(rows.loss, rows.aggregate, rows.fold)
        self.fast = compiled.serves(design, self.codes, rows.m, masses)
        self.hints = np.full((len(rows), 3), -1.0)
        self.steep_losses = [loss for loss in np.unique(rows.loss) if is_steep(loss)]
        if self.fast.any():
            self.puller = compiled.Puller(design, masses, min(wide_rows, int(self.fast.sum())))
        self.arrange()

    def run(self, tol: float, extra: int, beat: Callable[[int, int], None] | None = None) -> tuple[Array, Array]:
        """Advance every row until it converges or has taken all steps, including ``extra`` steps at the final k.

        After each step, ``beat`` is called with the largest step number and the number of active rows. Return the
        coordinates (rows, coordinates) and the last steps (rows,).
        """
        limit = self.steps + extra
        final, used = self.C.copy(), np.full(len(self.rows), limit)
        while self.active.size:
            for pause in range(self.pause(limit), -1, -1):
                self.advance()
                if beat is not None:
                    beat(int(self.step.max()), self.active.size)
                if pause:
                    self.step += 1
            done = self.judge(tol) | (self.step >= limit)
            if done.any():
                leaving = self.active[done]
                final[leaving], used[leaving] = self.C[done], self.step[done]
                self.keep(np.flatnonzero(~done))
            self.step += 1
        return final, used

    def arrange(self) -> None:
        """Arrange the rows in blocks, and compute everything that remains valid until rows leave."""
        fixed = ~self.decays | (self.step >= self.last)
        self.falling = not fixed.all()  # before the last third, k changes at every step
        self.blocks = make_blocks(self.rows, self.block_rows, np.flatnonzero(~self.fast))
        wide = make_blocks(self.rows, self.wide_rows, np.flatnonzero(self.fast), mixed=True)
        self.wide_blocks = [
            (part, compiled.BoundPull(self.puller, self.codes[:, part], self.hints[part])) for part, _ in wide
        ]  # where rows are neighbours, their hints are a view
        self.steep = np.flatnonzero(np.isin(self.rows.loss, self.steep_losses))
        self.shrink = self.rows.alpha[:, None] * self.design.penalized
        names = self.rows.aggregate
        self.groups = [(get_aggregate(name), names == name) for name in np.unique(names)]
        self.update_k_and_majoriser()

    def update_k_and_majoriser(self) -> None:
        k, m = self.table[np.minimum(self.step, self.last), self.active], self.rows.m
        found = np.empty_like(k)  # the sum of each row's weights
        for aggregate, same in self.groups:
            found[same] = aggregate.carried(k[same], m[same])
        carried = self.curvature * share_of_gram(found, self.design.rank, self.total)
        self.k, self.divisor = k, carried[:, None] * self.design.spectrum + self.shrink

    def pause(self, limit: int) -> int:
        """Return how many steps can be taken before a window opens or closes or a row must leave."""
        judged = ~self.decays | (self.step >= self.last)
        windows, openings = WINDOW - 1 - self.count[judged], self.last - 1 - self.step[~judged]
        return int(np.concatenate([windows, openings, [limit - self.step.max()]]).clip(0).min())

    def advance(self) -> None:
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
        """Return the gradients of all rows (rows, coordinates) without the penalty."""
        rounded = self.C.astype(self.design.signed.dtype, copy=False)
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
        """Close full windows, halve the step sizes of oscillating rows, and return which rows have converged."""
        judged = self.count == WINDOW
        if self.falling:  # before the last third, decay runs are not judged; their first window opens there
            judged &= ~self.decays | (self.step >= self.last)
            self._open(self.decays & (self.step == self.last - 1))
        if not judged.any():
            return judged
        spectrum = self.design.spectrum
        net = np.sqrt((self.C - self.mark) ** 2 @ spectrum)
        back_and_forth, settled = close_window(net, self.path, np.sqrt(self.C**2 @ spectrum), self.total, tol)
        self.eta[judged & back_and_forth] *= 0.5
        self._open(judged)
        return judged & settled

    def _open(self, rows: Array) -> None:
        if rows.any():
            self.count[rows], self.path[rows], self.mark[rows] = 0, 0.0, self.C[rows]

    def keep(self, rows: Array) -> None:
        """Continue with only these rows."""
        for name in ("active", "step", "C", "eta", "path", "count", "mark", "decays", "curvature", "fast", "hints"):
            setattr(self, name, getattr(self, name)[rows])
        self.rows, self.codes = self.rows.take(rows), self.codes[:, rows]
        self.arrange()

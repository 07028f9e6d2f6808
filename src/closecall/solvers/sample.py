"""Starting on a sample: part of the examples suffices to find the region of the solution; all of them refine it.

A run on a hundred thousand examples spends its steps on finding a region that a quarter of them would find as well: a
random sample with k, m, alpha and the spectrum in proportion is the same problem up to its noise. Convex averages start
at the sample's minimum and end at their own. The other runs take all their steps on the sample and then a few on all
rows. Certificates always refer to all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._names import Array
from .convex import Roots, minimize
from .design import Design
from .kernels import PULLS, Mass, make_mass
from .newton import Found
from .steps import Rows, alike, carried_mass, descend

#: The number of examples from which a sample is used, its smallest size, and its share of the examples.
FROM_SAMPLES, LEAST, SHARE = 80_000, 25_000, 1 / 16
#: The share of a run's steps taken on all rows at the end, and the minimum number.
LAST_SHARE, LAST_LEAST = 0.1, 10


@dataclass(frozen=True)
class Sample:
    """Some rows of a design; a problem keeps its shape if its counts and its alpha are in proportion.

    Parameters
    ----------
    whole : Design
        The design of all rows, dense.
    rows : array
        Which of them.
    """

    whole: Design
    rows: Array

    @cached_property
    def masses(self) -> list[Mass]:
        """The masses of the folds, in the type of the design."""
        return [make_mass(mass, self.whole.signed.dtype.type) for mass in self.whole.masses[:, self.rows]]

    @cached_property
    def shares(self) -> Array:
        """The share of each fold's mass in the sample, (folds,)."""
        return np.asarray(self.whole.masses[:, self.rows].sum(axis=1) / self.whole.masses.sum(axis=1))

    @cached_property
    def design(self) -> Design:
        """The design of these rows, in the same coordinates."""
        signed = np.ascontiguousarray(self.whole.signed[self.rows])
        return replace(
            self.whole, signed=signed, spectrum=self.whole.spectrum * self.shares.max(),
            masses=self.whole.masses[:, self.rows],
        )  # fmt: skip

    def scaled(self, rows: Rows) -> Rows:
        """The problems scaled down; alpha is scaled with the sum of their weights, which is always 1 for `top`."""
        share = self.shares[rows.fold]
        k, m = rows.k * share, rows.m * share
        groups = alike(rows.aggregate)
        carried = carried_mass(groups, k, m) / carried_mass(groups, rows.k, rows.m)
        return replace(rows, k=k, m=m, alpha=rows.alpha * carried)


def take_sample(design: Design) -> Sample | None:
    """A random sample of a design's rows; None where the examples are few, sparse, or few in some fold.

    Examples
    --------
    >>> from closecall.solvers.prepared import prepare
    >>> X = np.arange(200_000.0)[:, None] % 1000
    >>> whole = prepare(X + np.arange(200_000)[:, None] / 1e6, np.where(X[:, 0] > 500, 1.0, -1.0), np.ones((1, len(X))),
    ...                 fit_intercept=True, penalize_intercept=False, dtype=np.float32).design
    >>> found = take_sample(whole)
    >>> len(found.rows), found.shares.tolist(), found.design.signed.shape
    (25000, [0.125], (25000, 2))
    """
    samples = design.samples
    if samples < FROM_SAMPLES or not isinstance(design.signed, np.ndarray):
        return None
    if np.count_nonzero(design.masses, axis=1).min() < FROM_SAMPLES // 2:
        return None
    size = max(LEAST, int(samples * SHARE))
    return Sample(design, np.sort(np.random.default_rng(0).choice(samples, size, replace=False)))


def last_steps(steps: int) -> int:
    """How many steps a run that began on a sample takes on all rows.

    Examples
    --------
    >>> last_steps(300), last_steps(50)
    (30, 10)
    """
    return min(steps, max(LAST_LEAST, int(LAST_SHARE * steps)))


def descend_from(
    sample: Sample | None, design: Design, rows: Rows, masses: list[Mass], start: Array, *, steps: int, extra: int,
    wide_rows: int, **how: Any,
) -> tuple[Array, Array]:  # fmt: skip
    """:func:`closecall.solvers.steps.descend`, which begins on the sample if there is one."""
    how |= {"steps": steps, "extra": extra}
    if sample is None or not set(rows.aggregate.tolist()) <= set(PULLS):  # others may count in a way of their own
        return descend(design, rows, masses, start, wide_rows=wide_rows, **how)
    wider = wide_rows * (design.samples // len(sample.rows))  # rows of a block that is as large
    begun, used = descend(sample.design, sample.scaled(rows), sample.masses, start, wide_rows=wider, **how)
    last = last_steps(steps)
    ending = replace(rows, first=np.full(len(rows), steps + extra - last + 1))
    return descend(design, ending, masses, begun, wide_rows=wide_rows, **how)[0], used + last


def minimize_from(
    sample: Sample | None, design: Design, roots: Roots, masses: list[Mass], start: Array, **how: Any
) -> Found:
    """:func:`closecall.solvers.convex.minimize`, which starts at the sample's minimum if there is one.

    Rows of one loss and fold that start alike start from the minimum of the one with the middle alpha.
    """
    if sample is None:
        return minimize(design, roots, masses, start, **how)
    alike: dict[Any, list[int]] = {}
    for row in np.argsort(roots.alpha).tolist():
        alike.setdefault((roots.loss[row], roots.fold[row], start[row].tobytes()), []).append(row)
    middle = np.array([group[len(group) // 2] for group in alike.values()])
    fold, loss = roots.fold[middle], [roots.loss[row] for row in middle]
    some = Roots(loss, fold, roots.alpha[middle] * sample.shares[fold])
    begun = minimize(sample.design, some, sample.masses, start[middle], **how | {"snapshot": None})[0]
    start = start.copy()
    for place, group in zip(begun, alike.values(), strict=True):
        start[group] = place
    return minimize(design, roots, masses, start, **how)

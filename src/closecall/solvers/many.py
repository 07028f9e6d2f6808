"""Solve problems on many rows, in memory or on other machines, starting from the end of a path on a sample.

Passes over all rows are the main cost, so only a few are made. :mod:`closecall.solvers.engine` follows the path on a
sample of the rows, and :mod:`closecall.solvers.flow` moves its end to a stationary point for all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._names import Array, spread_out
from ..losses import get_loss
from ..objective import Problem
from .blocked import ManyRows, Ramp
from .cuts import CLOSE, LossCut
from .flow import ROUGH, WIDEST, Flow, place_of
from .narrow import NARROWING
from .newton import LARGEST_RANK
from .rows import Standard, standards

FROM_ROWS = 80_000  # the smallest number of rows for which problems are solved this way
LEAST = 16_000  # the smallest size of the second, larger sample, which cheaply brings the start close to the end
SEARCHED = 1e-2  # the tolerance if no certificate is requested, as in a search
#: A certified end is kept if its errors, as a share of the mass, exceed the fewest errors by at most this. For other
#: selections, this applies to costs. On 25 PMLB sets (100 close-k fits), 91 % are certified instead of 64 %; training
#: errors rise by 0.1 points, and the test accuracy does not change (0.03 +- 0.04).
WORSE = 0.01


def serves(problem: Problem, cut: LossCut, size: int) -> bool:
    """Return whether a flow can solve a problem: it needs a close selection, a smooth convex loss and a penalty."""
    loss = get_loss(problem.loss)
    return cut.kind == CLOSE and loss.convex and not loss.kinks and problem.alpha > 0 and size <= LARGEST_RANK


def shares_of(counts: dict[Any, int], room: float) -> dict[Any, float]:
    """Return the share of rows to draw for each label; a quarter of the ``room`` rows is divided equally among labels.

    Examples
    --------
    >>> {name: round(share, 3) for name, share in shares_of({"no": 990, "yes": 10}, 100).items()}
    {'no': 0.088, 'yes': 1.0}
    """
    total, even = sum(counts.values()), room / 4 / len(counts)
    return {name: float(min(1.0, (0.75 * room * rows / total + even) / rows)) for name, rows in counts.items()}


def sample_sizes(rows: int, k: float) -> tuple[int, int]:
    """Return the sizes of the samples for a path and for a start, where ``k`` is the share of the mass in the cut.

    Examples
    --------
    >>> sample_sizes(10**5, 0.1), sample_sizes(10**6, 0.05), sample_sizes(10**8, 0.0)
    ((4000, 16000), (8000, 62500), (12000, 100000))
    """
    first = min(max(4_000, int(400 / max(k, 1e-9))), 12_000, rows)  # about 400 rows are inside the cut
    return first, min(max(rows // 16, LEAST), 100_000, rows)


@dataclass(frozen=True)
class Sample:
    """A sample of rows with their labels (-1 or +1), their hashes, and the mass that each row represents."""

    X: Array
    signs: Array
    mass: Array
    words: Array

    @classmethod
    def draw(cls, X: Array, signs: Array, mass: Array, words: Array, room: int) -> Sample:
        """Draw about ``room`` rows by hash; rows with rare labels are more likely to be drawn."""
        ahead = int(np.count_nonzero(signs > 0))
        shares = shares_of({1: ahead, -1: len(signs) - ahead}, room)
        limits = np.where(signs > 0, shares[1], shares[-1])
        some = np.flatnonzero(spread_out(words) < limits)
        return cls(X[some], signs[some], mass[some] / limits[some], words[some])

    def smaller(self, room: int) -> Sample:
        """Return a sample of about ``room`` of these rows."""
        if room >= len(self.signs):
            return self
        # The product with an odd number gives hashes that differ from those by which this sample was chosen.
        words = self.words * np.uint64(0xD6E8FEB86659FD93)
        return Sample.draw(self.X, self.signs, self.mass, words, room)


@dataclass(frozen=True)
class Start:
    """The start of a flow over all rows, its metric, and its errors as a share of the mass."""

    c: Array
    ramp: Ramp
    metric: Array
    errors: float


def start(
    sample: Sample, problem: Problem, cut: LossCut, total: float, path: Any, standard: Standard, penalty: Array,
    tol: float,
) -> Start | None:  # fmt: skip
    """Compute the start for a problem with total mass ``total`` from a sample; return None if the sample is too small.

    The function ``path(sample, problem)`` solves a problem on some rows of the sample.
    """
    share = float(sample.mass.sum()) / total
    few = sample.smaller(sample_sizes(len(sample.signs), cut.k / total)[0])
    if abs(few.signs.sum()) == len(few.signs):  # the other class is too rare for a sample this small
        return None
    alpha = problem.alpha * float(few.mass.sum()) / total
    c = standard.to_coordinates(*path(few, replace(problem, k=min(1.0, cut.k / total), alpha=alpha)))
    rows = ManyRows(sample.X, sample.signs, sample.mass, standard, problem.loss)
    z = standard.signed(few.X, few.signs) * np.sqrt(few.mass / few.mass.sum())[:, None]
    flow = Flow(rows, cut.k * share, share * penalty, z.T @ z, tol)
    width, losses = WIDEST, rows.losses(c)
    place = place_of(rows.threshold, losses, sample.mass, flow.k, width)
    while place is not None and np.exp(-place) > (1 - width / 4) * rows.threshold and width > 1e-3:
        width *= NARROWING  # so few are selected that nothing lies inside a ramp this wide
        place = place_of(rows.threshold, losses, sample.mass, flow.k, width)
    if place is None:
        return None
    begun = Start(c, (place, width), flow.metric, rows.errors(rows.margins(c)) / float(sample.mass.sum()))
    # More precision would be useless: half the squared gradient is already a tenth of its sampling noise.
    enough = max(0.1 * len(c) * total / (cut.k * len(sample.signs)), ROUGH * tol)
    point = flow.stage(c, begun.ramp, enough, 1.0)
    if point is not None:
        point = flow.narrowed(point, NARROWING * width, enough) or point
        begun = replace(begun, c=point.c, ramp=point.ramp)
    return begun


def solve_many(engine: Any, problem: Problem, cut: LossCut, fold: int, tol: float | None) -> tuple[Any, ...] | None:
    """Solve a problem on many rows in memory, or return None if no solution is found.

    The result consists of coef (features,), the intercept, the number of evaluations, the misclassified mass and the
    gap.
    """
    mass = engine.masses[fold]
    total = float(mass.sum())

    def path(few: Sample, smaller: Problem) -> tuple[Array, float]:
        own = {"X": few.X, "y": few.signs, "masses": few.mass[None], "words": few.words, "known": {}}
        ends = replace(engine, n_starts=engine.n_starts or 1, **own).paths([smaller], np.zeros(1, dtype=int), None)
        return ends.coef[0], float(ends.intercept[0])

    sample = Sample.draw(engine.X, engine.y, mass, engine.words, sample_sizes(len(mass), cut.k / total)[1])
    sample = Sample(*(part[sample.mass > 0] for part in vars(sample).values()))
    X = sample.X.astype(np.float64, copy=False)
    standard, _ = standards(X, sample.mass, engine.fit_intercept, engine.penalize_intercept)
    penalty, enough = standard.penalty(problem.alpha, engine.penalize_intercept), tol or SEARCHED
    with np.errstate(all="ignore"):  # points that are not finite are rejected
        begun = start(sample, problem, cut, total, path, standard, penalty, enough)
        if begun is None:
            return None
        rows = ManyRows(engine.X, engine.y, mass, standard, problem.loss)
        flow = Flow(rows, cut.k, penalty, begun.metric, enough)
        rough = tol is None
        end = flow.stage(begun.c, begun.ramp, ROUGH * enough) if rough else flow.run(begun.c, begun.ramp)
    if end is None or (not rough and end.sums.errors > (begun.errors + WORSE) * total):
        return None
    return *standard.to_parameters(end.c), flow.looks, end.sums.errors, flow.gap(end) if tol else np.nan

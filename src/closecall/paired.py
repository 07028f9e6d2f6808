"""Paired comparisons: the mean gain, its standard error over independent units, and the decision.

The gain of a challenger over a reference is +1 on a row where only the challenger is right and -1 where only the
reference is right. The standard error is computed over independent units (:class:`Units`): rows (equal rows count
once), groups, or blocks of time. If there are few units, or few on which the models differ, the required gain is
based on Student's t distribution and is therefore larger (:meth:`Gain.needed`). Multiplying all weights by the same
number changes nothing. :mod:`closecall.panel` selects among several challengers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from ._names import Array

#: With fewer independent units, no standard error is reliable.
FEWEST = 6
#: The number of blocks of time. Few long blocks keep most neighbours in time together (Ibragimov & Mueller 2010).
BLOCKS = 6
#: Guards for which the quantiles under chance are computed.
GUARDS = (0.5, 1.0, 1.5, 2.0, 2.5)
#: The number of standard errors that a gain over the baseline must exceed: GUARD if the challenger must also beat
#: guessing by STRICT standard errors, otherwise STRICT. Chosen on generated tables and half of PMLB: see
#: docs/results/beyond-strength.md.
GUARD, STRICT = 1.0, 2.0
FOLDS = "folds"
TINY = 1e-12  # smaller gains are rounding errors
_LARGEST = 8.0  # standard errors; beyond this the tail probability vanishes when subtracted from 1


@dataclass(frozen=True)
class Gain:
    """A mean gain, and its standard error with ``degrees`` degrees of freedom over ``count`` independent units.

    ``unit`` names the kind of unit. If the challenger was selected from several, ``chance`` contains critical
    values that account for the selection: one for each of :data:`GUARDS`, in standard errors.
    """

    mean: float
    standard_error: float
    degrees: float
    count: int
    unit: str = "rows"
    chance: tuple[float, ...] = ()

    @property
    def few(self) -> bool:
        """Whether there are too few units for a standard error."""
        return self.count < (2 if self.unit == FOLDS else FEWEST)

    def needed(self, guard: float) -> float:
        """Return the gain exceeded by chance as rarely as a normal variable exceeds ``guard`` standard deviations.

        Examples
        --------
        >>> round(Gain(0.1, 0.1, 9, 10).needed(2.0), 3), round(Gain(0.1, 0.1, 1e9, 100).needed(2.0), 3)
        (0.232, 0.2)
        """
        if guard <= 0:
            return 0.0
        if self.few or not self.degrees > 0:
            return np.inf
        if self.standard_error == 0:
            return 0.0
        at = min(float(guard), _LARGEST)
        factor = -float(special.stdtrit(self.degrees, special.ndtr(-at))) / at
        if self.chance:
            last = min(at, GUARDS[-1])
            factor = max(factor, float(np.interp(last, (0.0, *GUARDS), (0.0, *self.chance))) / last)
        return guard * factor * self.standard_error

    @property
    def strength(self) -> float:
        """The largest guard that the mean gain exceeds (at most 8)."""
        guards = np.arange(0.01, _LARGEST, 0.01)
        exceeded = bisect_left(guards, self.mean, key=lambda guard: max(self.needed(guard), TINY))
        return float(guards[exceeded - 1]) if exceeded else 0.0


@dataclass(frozen=True)
class Comparison:
    """The outcome of a comparison between a challenger and a reference, which can be names or settings of a search.

    ``over_guessing`` is the challenger's balanced accuracy minus that of guessing, and ``over_guessing_needed`` is the
    required difference. ``balanced`` is the gain in balanced accuracy over the reference, in standard errors. These
    fields are NaN if they were not computed.
    """

    challenger: Any
    reference: Any
    gain: float
    standard_error: float
    needed: float
    taken: bool
    degrees_of_freedom: float = np.inf
    units: int = 0
    unit: str = "rows"
    chance: tuple[float, ...] = ()
    over_guessing: float = np.nan
    over_guessing_needed: float = np.nan
    balanced: float = np.nan

    def __str__(self) -> str:
        gain = f"{self.challenger} against {self.reference}: gain {100 * self.gain:+.2f} points"
        units = f"over {self.units} {self.unit}"
        verdict = f"{self.challenger} is chosen" if self.taken else f"{self.reference} is kept"
        if not np.isfinite(self.needed):
            return f"{gain}, {units}, too few for a standard error: {verdict}"
        over, least, guessing = 100 * self.over_guessing, 100 * self.over_guessing_needed, ""
        if over <= least:
            what = "score" if self.unit == FOLDS else "balanced accuracy"
            guessing = f", but its {what} is {over:+.2f} points above guessing, needed {least:.2f}"
        error = f"standard error {100 * self.standard_error:.2f} {units}"
        if self.taken and self.gain <= self.needed:
            guessing = f", but its balanced accuracy is higher by {self.balanced:.1f} standard errors"
        return f"{gain}, {error}, needed {100 * self.needed:.2f}{guessing}: {verdict}"


def compare(
    challenger: Any, reference: Any, gain: Gain, guard: float, informed: Callable[[bool], Gain] | None = None
) -> Comparison:
    """Decide whether the challenger is chosen: its gain must be positive and above ``guard`` standard errors.

    ``informed(True)`` computes the challenger's gain in balanced accuracy over the reference. If this gain exceeds
    ``guard`` standard errors, any positive gain in accuracy is sufficient: if the labels of one class are wrong more
    often than those of another, balanced accuracy still ranks models correctly, but accuracy does not (Menon et al.
    2015). ``informed(False)`` computes the gain in balanced accuracy over guessing, which must exceed :data:`STRICT`
    standard errors.

    Examples
    --------
    >>> str(compare("forest", "baseline", Gain(0.02, 0.01, np.inf, 500), 1.5))
    'forest against baseline: gain +2.00 points, standard error 1.00 over 500 rows, needed 1.50: forest is chosen'
    """
    needed, over, least, balanced = gain.needed(guard), np.nan, np.nan, np.nan
    taken = bool(gain.mean > max(needed, TINY))
    if informed is not None and gain.mean > TINY and not gain.few:
        balanced = informed(True).strength
        if taken or balanced > guard:
            found = informed(False)
            over, least = found.mean, found.needed(STRICT)
            taken = bool(over > max(least, TINY))
    return Comparison(challenger, reference, gain.mean, gain.standard_error, needed, taken,
                      gain.degrees, gain.count, gain.unit, gain.chance, over, least, balanced)  # fmt: skip


def check_guard(guard: float | None, default: float) -> float:
    """Return the guard as a number, or ``default`` if it is None."""
    if guard is None:
        return default
    if not isinstance(guard, int | float | np.number) or not 0 <= guard < np.inf:
        raise ValueError(f"guard={guard!r} must be None or a number of standard errors >= 0")
    return float(guard)


def in_balance(values: Array, codes: Array, weights: Array) -> tuple[Array, Array]:
    """Return values (candidates, samples), and weights (samples,) that have the same total in each class.

    ``values`` (candidates, samples), such as how often each prediction is correct, are NaN for rows where they are
    unknown; the classes ``codes`` and the weights have shape (samples,). The weighted mean is the mean over the
    classes. Deviations are computed within each class, because the class sizes are known rather than estimated.
    """
    rows = np.flatnonzero(np.isfinite(values[0]) & (weights > 0))
    kinds, code = np.unique(codes[rows], return_inverse=True)
    balanced, found = np.zeros(len(weights)), np.full(values.shape, np.nan)
    balanced[rows] = weights[rows] / np.bincount(code, weights[rows])[code]
    means = np.stack([np.bincount(code, each, len(kinds)) for each in balanced[rows] * values[:, rows]])
    found[:, rows] = values[:, rows] - means[:, code] + means.mean(axis=1, keepdims=True)
    return found, balanced


def guessing(codes: Array, weights: Array) -> float:
    """Return the balanced accuracy of predictions that are independent of the labels: 1 / classes."""
    return 1 / max(1, len(np.unique(codes[weights > 0])))


def with_rare_classes(gain: Gain, values: Array, codes: Array, weights: Array, units: Units, low: float = 0.0) -> Gain:
    """Return a gain in balanced accuracy with a standard error that allows for classes with few independent units.

    In a class with ten rows or two groups, all predictions may well be correct by chance, and they then show no spread.
    A unit with the lowest possible mean and one with the highest, 1, are therefore added to every class (Agresti &
    Caffo 2000), and the degrees of freedom are at most those of the class with the fewest effective units. ``low`` is 0
    for accuracies and -1 for gains.
    """
    rows = np.flatnonzero(np.isfinite(values) & (weights > 0))
    kinds, code = np.unique(codes[rows], return_inverse=True)
    weight, value, errors, counts = weights[rows], values[rows], [gain.standard_error], [gain.degrees + 1]
    for unit in units.among(rows):
        cells, cell = np.unique(unit * len(kinds) + code, return_inverse=True)  # the parts of each class in each unit
        kind, mass = cells % len(kinds), np.bincount(cell, weight)
        mean, size = (np.bincount(cell, weight * each) / mass for each in (value, np.abs(value)))
        # The expected square of a unit's mean, if the rows of a unit are independent given the mean
        square = mean**2 + (size - mean**2) * np.bincount(cell, weight**2) / mass**2
        total = np.bincount(kind, mass)
        count = total**2 / np.bincount(kind, mass**2)
        mean, square = (
            (np.bincount(kind, mass * each) / total * count + 1 + extra) / (count + 2)
            for each, extra in ((mean, low), (square, low**2))
        )
        errors.append(float(np.sqrt(((square - mean**2) / (count + 2)).sum())) / len(kinds))
        counts += count.tolist()
    return replace(gain, standard_error=max(errors), degrees=min(counts) - 1)


@dataclass(frozen=True)
class Units:
    """A description of which rows depend on each other.

    Rows with the same code (samples,) belong to the same unit. If ``time`` is true, rows depend on their neighbours,
    and the codes give the order of the rows. ``other`` (samples,) contains the codes of a second kind of group that
    crosses the first, such as items in addition to users.
    """

    codes: Array
    name: str = "rows"
    time: bool = False
    other: Array | None = None

    def among(self, rows: Array) -> list[Array]:
        """Return the units of some rows as codes 0, 1, ... of shape (rows,), with one array for each kind of unit.

        Time is divided into :data:`BLOCKS` blocks of equal length.
        """
        ways = [numbered(codes[rows]) for codes in (self.codes, self.other) if codes is not None]
        if self.time:
            places = np.argsort(np.argsort(self.codes[rows], kind="stable"), kind="stable")
            ways[0] = places * min(BLOCKS, len(rows)) // max(1, len(rows))
        return ways


def units_of(equal: Array, groups: Any, pairs: Iterable[tuple[Array, Array]]) -> Units:
    """Return the units of the rows: groups, blocks of time, or distinct rows.

    ``equal`` (samples,) contains codes that are the same for equal rows. ``groups`` is None or has shape (samples,), or
    (samples, 2) for crossed groups. Rows are divided into blocks of time if all training rows precede the test rows in
    every pair. Any groups are then crossed with these blocks.

    Examples
    --------
    >>> units_of(np.arange(4), None, [(np.array([0, 1]), np.array([2, 3]))]).name
    'blocks of time'
    """
    columns = [] if groups is None else [numbered(one) for one in np.asarray(groups).reshape(len(equal), -1).T]
    if len(columns) > 2:
        raise ValueError(f"groups has {len(columns)} columns; pass one column, or two for crossed groups")
    first, other = (*columns, None, None)[:2]
    past = [len(train) > 0 and len(test) > 0 and train.max() < test.min() for train, test in pairs]
    if past and all(past):
        if other is not None:
            raise ValueError(
                "cv splits by time, but groups has two columns; pass one column, which is crossed with time"
            )
        return Units(np.arange(len(equal)), "blocks of time", time=True, other=first)
    return Units(numbered(equal), "distinct rows") if first is None else Units(first, "groups", other=other)


def numbered(values: Array) -> Array:
    return np.unique(values, return_inverse=True)[1].ravel()


def apart(samples: int) -> Units:
    """Return units for rows that are all independent."""
    return Units(np.arange(samples))


def paired(gains: Array, weights: Array, units: Units | None = None, spread: Array | None = None) -> Gain:
    """Return the mean gain over the rows and its standard error over the units, which are the rows by default.

    ``gains`` (samples,) contains the mean gain of each row over its tests, or NaN if it was not tested, and ``spread``
    (samples,) contains the variance over these tests. Testing rows several times makes the gains more stable but does
    not reduce the standard error, because models trained on overlapping rows have correlated gains.

    The standard error is a jackknife estimate. For rows of equal weight, this is the usual standard error of a mean,
    and otherwise that of a ratio of sums. The degrees of freedom are one less than the effective number of units,
    ``sum(w)**2 / sum(w**2)`` for units with weights w, and are further limited by the kurtosis of the deviations
    (Satterthwaite). If the models differ on only a few rows, there are about twice as many degrees of freedom as there
    are such rows, and the result agrees with McNemar's mid-p test. For crossed groups, the variances for the two kinds
    of group are added, and the variance for their intersections is subtracted (Cameron, Gelbach & Miller 2011).

    Examples
    --------
    >>> found = paired(np.array([1.0, 0.0, 0.0, 0.0, -1.0, 1.0]), np.ones(6))
    >>> round(found.mean, 3), round(found.standard_error, 3), found.count
    (0.167, 0.307, 6)
    """
    rows = np.flatnonzero(np.isfinite(gains) & (weights > 0))
    units = units or apart(len(gains))
    if not rows.size:
        return Gain(0.0, np.inf, 0.0, 0, units.name)
    ways, weight = units.among(rows), weights[rows] / weights[rows].sum()
    mean = float(weight @ gains[rows])
    parts = weight * (gains[rows] - mean), weight, weight**2 * (0.0 if spread is None else spread[rows])
    errors, degrees = zip(*(_error(*(np.bincount(codes, part) for part in parts)) for codes in ways), strict=True)
    error = max(errors)
    if len(ways) == 2:
        both = numbered(ways[0] * (int(ways[1].max()) + 1) + ways[1])
        common, _ = _error(*(np.bincount(both, part) for part in parts))
        error = max(error, float(np.sqrt(max(errors[0] ** 2 + errors[1] ** 2 - common**2, 0.0))))
    return Gain(mean, error, min(degrees), min(int(codes.max()) + 1 for codes in ways), units.name)


def _error(sums: Array, shares: Array, spread: Array) -> tuple[float, float]:
    """Return the jackknife standard error and its degrees of freedom, given weights and deviations of units."""
    count = len(sums)
    if count < 2 or shares.max() > 1 - 1e-12:  # one unit, up to rounding
        return np.inf, 0.0
    moves = (sums**2 + spread) / (1 - shares) ** 2  # squared changes of the mean when a unit is left out
    squares, effective = float(moves.sum()), 1 / float(shares @ shares)
    if squares < 1e-24:
        return 0.0, effective - 1
    excess = float(moves @ moves) / squares**2 - 1 / count
    degrees = min(effective, 2 / excess) - 1 if excess > 0 else effective - 1
    return float(np.sqrt((count - 1) / count * squares)), degrees


def over_tests(total: Array, squares: Array, times: Array) -> tuple[Array, Array]:
    """Return the mean and variance of each row's gains over its tests (samples,), or NaN for untested rows."""
    times = np.where(times > 0, times, np.nan)
    mean = total / times
    return mean, np.maximum(squares / times - mean**2, 0.0)


def from_sums(gains: Array, masses: Array, squares: Array) -> Gain:
    """Return the gain of :func:`paired` for independent rows, computed from sums over the rows.

    For each distinct gain, ``masses`` and ``squares`` (kinds,) sum the weights and the squared weights of its rows.
    """
    total = float(masses.sum())
    if not total > 0:
        return Gain(0.0, np.inf, 0.0, 0)
    mean = float(masses @ gains) / total
    error = float(np.sqrt(squares @ (gains - mean) ** 2)) / total
    differing = np.abs(gains) > 0
    count = total**2 / float(squares.sum())
    few = float(masses[differing].sum()) ** 2 / max(float(squares[differing].sum()), 1e-300)
    return Gain(mean, error, min(count - 1, 2 * few), int(count))


def over_folds(gains: Array, share: float, units: Units | None = None, challengers: int = 1) -> Gain:
    """Return the mean gain over folds and its standard error, corrected for overlap (Nadeau & Bengio 2003).

    ``share`` is the number of test rows divided by the number of training rows. If the rows belong to too few groups
    (``units``), the standard error is infinite. A challenger that was selected on other folds was evaluated there after
    training on this fold. The tail probabilities of the critical values are therefore divided by the square root of the
    number of challengers; without this, 20 and 50 kernel classifiers passed a guard of 2 on noise in 10 and 18 % of
    the cases (120 rows, ten folds).
    """
    mean = float(np.mean(gains)) if len(gains) else 0.0
    if units is not None and not units.time and (groups := len(np.unique(units.codes))) < FEWEST:
        return Gain(mean, np.inf, 0.0, groups, units.name)
    if len(gains) < 2:
        return Gain(mean, np.inf, 0.0, len(gains), FOLDS)
    error = float(np.std(gains, ddof=1) * np.sqrt(1 / len(gains) + share))
    tails = special.ndtr(-np.array(GUARDS)) / np.sqrt(challengers)
    chance = tuple((-special.stdtrit(len(gains) - 1, tails)).tolist()) if challengers > 1 else ()
    return Gain(mean, error, len(gains) - 1.0, len(gains), FOLDS, chance)

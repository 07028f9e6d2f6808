"""The exact intercept with the lowest 0-1 loss for given scores, computed in O(n log n)."""

from __future__ import annotations

from typing import Any

import numpy as np

from closecall._names import Array
from closecall.aggregates import check_mass
from closecall.objective import check_data

#: Gaps whose widths differ by less than this share count as equal: with few distinct values, many differ by rounding.
WIDTHS = 1e-6


def best_intercept(scores: Any, y: Any, mass: Any = None, *, resolution: Any = 0.0) -> tuple[Any, Any]:
    """Return the intercept b that minimises the misclassified mass, which is the mass with ``y * (score + b) <= 0``.

    Tied scores cannot be separated. Among equally good boundaries, the middle of the widest gap between two scores is
    chosen (the lowest one if several gaps are equally wide). Boundaries that assign the same label to all examples are
    chosen only if they are strictly better; their distance from the scores is the range of the scores, but at least 1.

    Parameters
    ----------
    scores : array (samples,) or (problems, samples)
    y : array (samples,) in {-1, +1}
    mass : array (samples,) or (problems, samples), optional
        Sample weights; examples with zero mass are ignored.
    resolution : float or array (problems,)
        Scores that differ by at most this amount count as tied. Pass the rounding error of the scores if identical rows
        may have scores that differ in the last bits.

    Returns
    -------
    intercept, errors : float or array (problems,)

    Examples
    --------
    >>> best_intercept([-3.0, -1.0, 0.0, 4.0], [-1, -1, 1, 1])
    (0.5, 0.0)
    """
    scores = np.asarray(scores, dtype=float)
    if scores.ndim not in (1, 2):
        raise ValueError(f"scores must have shape (samples,) or (problems, samples), not {scores.shape}")
    if not np.isfinite(scores).all():
        raise ValueError("scores contain NaN or infinite values; check the coefficients that produced them")
    rows = np.atleast_2d(scores)
    flat_mass = mass is None or np.ndim(mass) < 2
    _, y, masses = check_data(rows.T, y, mass if flat_mass else None)
    if flat_mass:
        masses = np.broadcast_to(masses, rows.shape)
    elif np.shape(mass) == rows.shape:
        masses = np.stack([check_mass(row, rows.shape[1]) for row in mass])
    else:
        expected = f"{rows.shape} (one row for each problem) or {rows.shape[1:]}"
        raise ValueError(f"mass has shape {np.shape(mass)}; expected {expected}")
    with np.errstate(over="ignore"):
        beyond = not np.isfinite(4 * np.abs(rows).max()) or not np.isfinite(4 * masses.sum(axis=1)).all()
    if beyond:
        raise ValueError("scores or masses are close to the largest float, where gaps cannot be resolved; rescale them")
    narrow = np.broadcast_to(np.asarray(resolution, dtype=float), rows.shape[:1])
    intercepts = -best_cuts(rows, y, masses, narrow[:, None])
    errors = (masses * (y * (rows + intercepts[:, None]) <= 0)).sum(axis=1)
    return (float(intercepts[0]), float(errors[0])) if scores.ndim == 1 else (intercepts, errors)


def best_cuts(rows: Array, y: Array, masses: Array, narrow: Array) -> Array:
    """Return the best boundary between the scores of each row (problems,); the labels may all be equal.

    Rows and masses have shape (problems, samples), and y (samples,) is in {-1, +1}. Scores that differ by at most
    ``narrow`` (problems, 1) count as tied.
    """
    # An example without mass must not affect a gap: it gets the largest score that counts.
    heavy = masses > 0
    rows = np.where(heavy, rows, np.where(heavy, rows, -np.inf).max(axis=1, keepdims=True))
    order = np.argsort(rows, axis=1)
    ranked = np.take_along_axis(rows, order, axis=1)
    # Moving the boundary up past an example adds its mass to the errors if it is positive, and subtracts it otherwise.
    passed = np.cumsum(np.take_along_axis(y * masses, order, axis=1), axis=1)
    negative = (masses * (y < 0)).sum(axis=1, keepdims=True)
    errors = negative + np.pad(passed, ((0, 0), (1, 0)))
    low, high = ranked[:, :-1], ranked[:, 1:]
    first, last = ranked[:, :1], ranked[:, -1:]
    reach = np.maximum(np.maximum(last - first, 1), 1e-6 * np.maximum(np.abs(first), np.abs(last)))
    middles = low / 2 + high / 2
    cuts = np.hstack([first - reach, middles, last + reach])
    # Adjacent floats have no value between them: they count as tied.
    widths = high / 2 - low / 2
    possible = (low < middles) & (middles < high) & (widths > narrow / 2)
    possible, widths = np.pad(possible, ((0, 0), (1, 1)), constant_values=True), np.pad(widths, ((0, 0), (1, 1)))
    errors = np.where(possible, errors, np.inf)
    # Sums of fractional masses are rounded: errors that differ by less are equal.
    equal = errors <= errors.min(axis=1, keepdims=True) + 1e-12 * masses.sum(axis=1, keepdims=True)
    widths = np.where(equal, widths, -1)
    choice = (widths >= widths.max(axis=1, keepdims=True) * (1 - WIDTHS)).argmax(axis=1)[:, None]
    return np.take_along_axis(cuts, choice, axis=1)[:, 0]

"""Where a problem begins: the in-memory solution on a sample of the rows, drawn by their hashes.

Rare classes are oversampled and get lower weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from .._names import Array
from ..objective import Problem
from ..solvers import solve
from ..solvers.large import Manner
from .blocks import Block, Frame, Survey
from .rest import Asked

#: Entries of a sample.
SAMPLE = 1 << 22


def shares_of(survey: Survey, room: int) -> dict[Any, float]:
    """The share of each label in a sample of ``room`` rows: a quarter of it is divided evenly among the labels.

    Examples
    --------
    >>> survey = Survey(1000, 1, {"no": (990, 990.0), "yes": (10, 10.0)}, 1000.0, np.ones(1), np.ones(1), "float64")
    >>> {name: round(share, 3) for name, share in shares_of(survey, 100).items()}
    {'no': 0.088, 'yes': 1.0}
    """
    even = room / 4 / len(survey.labels)
    return {
        name: float(min(1.0, (0.75 * room * rows / survey.rows + even) / rows))
        for name, (rows, _) in survey.labels.items()
    }


def start_of(asked: Asked, problem: Problem, frame: Frame, sample: Block, manner: Manner) -> Array:
    """Coordinates of the solution of an average on the sample."""
    signs = np.where(sample.y == asked.label, 1.0, -1.0)
    mass = frame.masses(sample.y, sample.mass)
    share = float(mass.sum()) / asked.selection.total
    found = solve(
        sample.X, signs, [replace(problem, alpha=problem.alpha * share)], max_iter=manner.max_iter, tol=manner.tol,
        fit_intercept=manner.fit_intercept, penalize_intercept=manner.penalize_intercept, sample_weight=mass,
    )  # fmt: skip
    return frame.to_coordinates(found.coef[0], float(found.intercept[0]))

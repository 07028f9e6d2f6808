"""The cells of the paper's network: the whole grid trained by :mod:`closecall.network`, without torch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from threadpoolctl import threadpool_limits

from closecall._names import Array
from closecall.evaluate.protocol import get_protocol
from closecall.network.grid import train_grid
from closecall.objective import Problem

from .plan import Cell, rng_for


def correct_counts(
    X: Sequence[Array], y: Sequence[Array], problems: list[Problem], cell: Cell
) -> tuple[list[Array], Array]:
    """Train one network for each problem on the first part and count what each gets right on every part.

    All networks of a cell start at the same random point, drawn from the cell's stream ``start``.

    Parameters
    ----------
    X, y : sequences of arrays
        Training, validation and test part.
    problems : list of Problem
    cell : Cell

    Returns
    -------
    correct : list of arrays (problems,)
        One for each part.
    n_iter : array (problems,)
    """
    seed = int(rng_for(cell, "start").integers(2**31))
    with threadpool_limits(limits=1):
        trained = train_grid(
            X[0],
            y[0],
            problems,
            max_iter=cell.max_iter,
            seed=seed,
            penalize_intercept=get_protocol(cell.protocol).penalize_intercept,
        )
        correct = [(trained.scores(X_part) * y_part > 0).sum(axis=1) for X_part, y_part in zip(X, y, strict=True)]
    return correct, np.asarray(trained.n_iter)

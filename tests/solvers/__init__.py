"""Tests of the solvers, and a function that several of them share."""

import numpy as np

from closecall.objective import Problem
from gate.convex_judge import Judge


def judge_of(X: np.ndarray, y: np.ndarray, item: Problem, mass: np.ndarray | None = None, kind: str = "free") -> Judge:
    """The judge of a convex problem, which shares no code with the solvers."""
    case = {"X": X, "y": y, "problems": [item], "sample_weight": np.ones(len(y)) if mass is None else mass}
    case |= {"folds": np.ones((1, len(y))), "fold_of": [0]}
    return Judge(case | {"fit_intercept": kind != "none", "penalize_intercept": kind == "penalized"}, 0)

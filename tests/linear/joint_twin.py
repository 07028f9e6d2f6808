"""A slow twin of joint problems: one problem at a time, with the weights of the aggregate's own definition."""

import numpy as np

from closecall import Problem
from closecall.linear.multiclass import losses_and_pull, threshold_of
from closecall.solvers.design import Design


def value_and_gradient(
    design: Design, codes: np.ndarray, mass: np.ndarray, problem: Problem, kind: str, C: np.ndarray, k: float
) -> tuple[float, np.ndarray]:
    """Return the objective and its gradient at C (classes, coordinates)."""
    loss, aggregate, _, m = problem.resolve(float(mass.sum()), 1)
    losses, pull = losses_and_pull(kind, loss, design.negative_margins(C)[None], codes)
    weights = aggregate.weigh(losses, mass, threshold_of(kind, loss), np.asarray(k), np.asarray(m))[0]
    shrink = problem.alpha * design.penalized * C
    return float(weights @ losses[0] + 0.5 * (shrink * C).sum()), design.gradient(pull[0] * weights) + shrink

"""Theory: the paper's bounds, the intercept with the lowest 0-1 loss, and the exact 0-1 minimum for small problems."""

from .bounds import (
    close_value_bounds,
    generalization_bound,
    log_growth,
    minimizer_errors_bound,
    risk_bound,
    training_errors_bound,
)
from .intercept import best_intercept
from .optimum import ZeroOneOptimum, minimum_errors

__all__ = [
    "ZeroOneOptimum",
    "best_intercept",
    "close_value_bounds",
    "generalization_bound",
    "log_growth",
    "minimizer_errors_bound",
    "minimum_errors",
    "risk_bound",
    "training_errors_bound",
]

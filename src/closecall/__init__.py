"""closecall: classifiers that minimise the loss of the close calls."""

from .aggregates import AGGREGATES, get_aggregate
from .losses import LOSSES, get_loss
from .objective import Problem

__all__ = ["AGGREGATES", "LOSSES", "Problem", "get_aggregate", "get_loss"]
__version__ = "0.1.0"

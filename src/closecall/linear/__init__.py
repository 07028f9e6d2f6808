"""Linear classifiers with scikit-learn's interface."""

from .classifier import AggregateLossClassifier, CloseKClassifier
from .persistence import load_model
from .search import AggregateLossClassifierCV, CloseKClassifierCV

__all__ = [
    "AggregateLossClassifier",
    "AggregateLossClassifierCV",
    "CloseKClassifier",
    "CloseKClassifierCV",
    "load_model",
]

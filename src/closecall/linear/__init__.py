"""Linear classifiers with scikit-learn's interface."""

from .classifier import AggregateLossClassifier, CloseKClassifier
from .persistence import load_model

__all__ = ["AggregateLossClassifier", "CloseKClassifier", "load_model"]

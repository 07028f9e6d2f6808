"""Linear classifiers with scikit-learn's interface."""

from .classifier import AggregateLossClassifier, CloseKClassifier
from .diagnosis import Diagnosis, diagnose
from .displays import BoundaryDisplay, KPathDisplay
from .persistence import load_model
from .search import AggregateLossClassifierCV, CloseKClassifierCV

__all__ = [
    "AggregateLossClassifier",
    "AggregateLossClassifierCV",
    "BoundaryDisplay",
    "CloseKClassifier",
    "CloseKClassifierCV",
    "Diagnosis",
    "KPathDisplay",
    "diagnose",
    "load_model",
]

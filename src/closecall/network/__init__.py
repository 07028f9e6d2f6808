"""The paper's network: a whole grid of them at the speed of a compiled kernel, and classifiers around it; no torch."""

from .classifier import ResidualMLPClassifier, ResidualMLPClassifierCV
from .grid import NetworkGrid, NetworkProgress, train_grid

__all__ = ["NetworkGrid", "NetworkProgress", "ResidualMLPClassifier", "ResidualMLPClassifierCV", "train_grid"]

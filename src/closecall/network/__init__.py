"""The paper's network without torch: grids of networks trained by a compiled kernel, and classifiers."""

from .classifier import ResidualMLPClassifier, ResidualMLPClassifierCV
from .grid import NetworkGrid, NetworkProgress, train_grid

__all__ = ["NetworkGrid", "NetworkProgress", "ResidualMLPClassifier", "ResidualMLPClassifierCV", "train_grid"]

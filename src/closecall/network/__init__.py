"""The paper's network without torch: whole grids trained by a compiled kernel, and classifiers built on them."""

from .classifier import ResidualMLPClassifier, ResidualMLPClassifierCV
from .grid import NetworkGrid, NetworkProgress, train_grid

__all__ = ["NetworkGrid", "NetworkProgress", "ResidualMLPClassifier", "ResidualMLPClassifierCV", "train_grid"]

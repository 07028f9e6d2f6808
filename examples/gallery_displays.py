"""Plots of a fitted classifier.

On the left, `BoundaryDisplay` shows a set in which only one class has a distant block of easy examples; the close calls
of `CloseKClassifier(k=20)` are ringed. On the right, `KPathDisplay` shows the cross-validated score of
`CloseKClassifierCV` over k on monk3, with its spread over the folds (except for settings dropped after one fold). The
dashed line is plain logistic regression, and the dotted line is the chosen k.
"""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure
from sklearn.preprocessing import StandardScaler

from closecall import BoundaryDisplay, CloseKClassifier, CloseKClassifierCV, KPathDisplay
from reproduction.protocol import load_dataset


def draw() -> Figure:
    """Draw both displays side by side."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(200, 2)) + np.repeat([[-1.0, 0.0], [1.0, 0.0]], 100, axis=0)
    X[:60] += [-7.0, 5.0]
    y = np.repeat(["left", "right"], 100)
    data = load_dataset("monk3")
    search = CloseKClassifierCV(ks=(0.01, 0.05, 0.1, 0.2, 0.4, 0.7))
    search.fit(StandardScaler().fit_transform(data.X), data.y)
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    BoundaryDisplay.from_estimator(CloseKClassifier(k=20, alpha=0.1).fit(X, y), X, y, ax=left)
    KPathDisplay.from_estimator(search, ax=right)
    return figure


if __name__ == "__main__":
    draw().savefig("displays.svg")

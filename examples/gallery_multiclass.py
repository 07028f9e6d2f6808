"""Three classes, and the close calls between two of them.

Most of the first class lies far to the left, where no method makes errors. The top-two margin with close decay uses the
points between two classes (ringed) and ignores the distant block. The gain is small; each title states the number of
training errors of its model on this draw.
"""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from closecall import AggregateLossClassifier

MODELS = {
    "softmax, average": AggregateLossClassifier(multiclass="softmax"),
    "top two, close decay": AggregateLossClassifier(
        multiclass="top_two", aggregate="close_decay", k=30, alpha=0.1, max_iter=300
    ),
}


def sample(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return 300 points of three classes; four out of five points of the first class are far away."""
    rng = np.random.default_rng(seed)
    centres = np.array([[-1.0, 0.0], [1.0, 0.0], [0.0, 1.7]])
    codes = np.repeat([0, 1, 2], 100)
    X = centres[codes] + 0.6 * rng.standard_normal((300, 2))
    X[:80] += [-8.0, 3.0]
    return X, codes


def draw() -> Figure:
    """Draw the regions of both models with the same points."""
    X, codes = sample()
    grid = np.stack(np.meshgrid(np.linspace(-11, 3.5, 300), np.linspace(-2.5, 6, 300)), axis=-1)
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3.8), sharey=True, layout="constrained")
    for axis, (title, model) in zip(axes, MODELS.items(), strict=True):
        model.fit(X, codes)
        regions = model.predict(grid.reshape(-1, 2)).reshape(300, 300)
        axis.contourf(grid[..., 0], grid[..., 1], regions, levels=[-0.5, 0.5, 1.5, 2.5], cmap="Pastel1")
        axis.scatter(*X.T, c=codes, cmap="Set1", s=8, vmax=8)
        if model.aggregate != "average":
            axis.scatter(*X[model.support_].T, s=40, facecolors="none", edgecolors="black", linewidths=0.7)
        axis.set_title(f"{title}: {(model.predict(X) != codes).sum()} errors")
    return figure


if __name__ == "__main__":
    draw().savefig("multiclass.svg")

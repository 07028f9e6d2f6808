"""Draw the README's picture: two sets from the paper's Figure 1, both boundaries and the close calls.

python examples/readme_picture.py docs/assets/close-calls.svg
"""

import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

from closecall import AggregateLossClassifier, CloseKClassifier
from reproduction.protocol.synthetic import figure1

TITLES = {"outlier": "a rare class and one outlier", "ambiguous": "examples that nobody can get right"}


def main(path: str) -> None:
    """Write the picture as a reproducible SVG file."""
    figure, axes = pyplot.subplots(1, 2, figsize=(8.4, 3), sharey=True, layout="constrained")
    for axis, (name, title) in zip(axes, TITLES.items(), strict=True):
        X, y = figure1(name, seed=0)
        x = X[:, :1]
        average = AggregateLossClassifier(alpha=0.01).fit(x, y)
        close = CloseKClassifier(k=10, alpha=0.01).fit(x, y)
        axis.scatter(*X[y > 0].T, s=9, color="tab:blue", alpha=0.5, linewidths=0)
        axis.scatter(*X[y < 0].T, s=9, color="tab:orange", alpha=0.5, linewidths=0)
        axis.scatter(*X[close.support_].T, s=42, facecolors="none", edgecolors="black", linewidths=0.8)
        for model, colour, style, label in ((average, "tab:gray", "--", "average"), (close, "tab:red", "-", "close-k")):
            errors = (model.predict(x) != y).sum()
            boundary = -model.intercept_[0] / model.coef_[0, 0]
            axis.axvline(boundary, color=colour, ls=style, lw=2, label=f"{label}: {errors} errors")
        axis.set(title=title, yticks=[], xlim=(-1.05, 1.05))
        axis.legend(loc="lower right", framealpha=0.95, fontsize=9)
    figure.savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    matplotlib.rcParams.update({"svg.hashsalt": "closecall", "font.size": 10})
    main(sys.argv[1])

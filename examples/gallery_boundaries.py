"""Four data sets that mislead the average loss.

These are the sets of the paper's Figure 1. Only the horizontal position is used, and the best boundary is at 0 in every
panel. *Easy*: a distant block of easy positives shifts the boundary of the average loss. *Imbalance* and *imbalance +
outlier*: the larger class shifts the boundary. *Ambiguous*: no boundary can separate the mixed left half, which also
shifts the boundary of the average loss. The titles list the training errors in the order of the legend. All methods
have the same weak penalty, alpha = 0.01; with alpha = 1, the average loss gives 25, 12, 13 and 154 errors.
"""

from matplotlib import pyplot
from matplotlib.figure import Figure

from closecall import Problem
from closecall.solvers import solve
from closecall.theory import minimum_errors
from reproduction.protocol.synthetic import figure1

METHODS = {
    "average": (Problem("logistic", "average", alpha=0.01), "tab:gray", ":"),
    "average top-k": (Problem("logistic", "atk", k=50, alpha=0.01), "tab:olive", "--"),
    "close-k": (Problem("logistic", "close_decay", k=10, alpha=0.01), "tab:red", "-"),
}
SETS = {"easy": "easy", "imbalance": "imbalance", "outlier": "imbalance + outlier", "ambiguous": "ambiguous"}


def draw() -> Figure:
    """Draw one panel for each set and one line for each method."""
    figure, axes = pyplot.subplots(2, 2, figsize=(8, 5.5), sharex=True, sharey=True, layout="constrained")
    for axis, (name, title) in zip(axes.ravel(), SETS.items(), strict=True):
        X, y = figure1(name, seed=0)
        found = solve(X[:, :1], y, [problem for problem, _, _ in METHODS.values()], max_iter=300)
        axis.scatter(X[:, 0], X[:, 1], c=y, cmap="coolwarm_r", s=8, alpha=0.5, linewidths=0)
        for row, (label, (_, colour, style)) in enumerate(METHODS.items()):
            axis.axvline(-found.intercept[row] / found.coef[row, 0], color=colour, ls=style, lw=2, label=label)
        errors = "/".join(f"{count:.0f}" for count in found.errors)
        axis.set_title(f"{title}: {errors} errors, best {minimum_errors(X[:, :1], y).errors:.0f}")
        axis.set_xlim(-1.05, 1.05)
    axes[0, 0].legend(loc="lower left")
    return figure


if __name__ == "__main__":
    draw().savefig("boundaries.svg")

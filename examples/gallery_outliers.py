"""The effect of outliers.

Outliers are added to the breast cancer set (wdbc) far beyond the other class, as in the paper's Figure 5: 10 x2 - 9 x1
with the label of x1, in proportion to the parts of each split (50/25/25). Alpha and k are chosen on the validation
part, from the same grid for every method. The curves show mean test accuracies over 5 splits.
"""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure
from sklearn.model_selection import StratifiedShuffleSplit, train_test_split
from sklearn.preprocessing import StandardScaler

from closecall import Problem
from closecall.solvers import solve
from closecall.table.splits import shares
from reproduction.protocol import load_dataset
from reproduction.protocol.synthetic import outliers

STYLES = {"average": ("tab:gray", ":"), "atk": ("tab:olive", "--"), "close_decay": ("tab:red", "-")}
COUNTS = (0, 2, 4, 8, 16, 32)
PROBLEMS = [
    Problem("logistic", name, k=k, alpha=alpha)
    for name in STYLES
    for k in ((None,) if name == "average" else (10, 30, 100, None))
    for alpha in (0.01, 1.0, 100.0)
]


def accuracies(count: int) -> list[float]:
    """Return the mean test accuracy of each method with the given total number of outliers."""
    data = load_dataset("wdbc")
    y, rng = data.signs(), np.random.default_rng(0)
    scores = []
    for train, rest in StratifiedShuffleSplit(5, train_size=0.5, random_state=0).split(data.X, y):
        rows = (train, *train_test_split(rest, test_size=0.5, stratify=y[rest], random_state=0))
        scale = StandardScaler().fit(data.X[train])
        parts = [
            outliers(scale.transform(data.X[part]), y[part], added, rng)
            for part, added in zip(rows, shares(count, [2, 1, 1]), strict=True)
        ]
        found = solve(*parts[0], PROBLEMS, max_iter=150)
        _, validation, test = (
            (labels * (found.coef @ X.T + found.intercept[:, None]) > 0).mean(axis=1) for X, labels in parts
        )
        names = np.array([problem.aggregate for problem in PROBLEMS])
        scores.append([test[np.where(names == name, validation, -1).argmax()] for name in STYLES])
    return np.mean(scores, axis=0).tolist()


def draw() -> Figure:
    """Plot the accuracy as a function of the number of outliers."""
    table = 100 * np.array([accuracies(count) for count in COUNTS])
    figure, axis = pyplot.subplots(figsize=(8, 3.2), layout="constrained")
    for column, (name, (colour, style)) in zip(table.T, STYLES.items(), strict=True):
        axis.plot(range(len(COUNTS)), column, marker="o", color=colour, ls=style, label=name)
    axis.set_xticks(range(len(COUNTS)), [str(count) for count in COUNTS])
    axis.set_xlabel("outliers among 569 examples")
    axis.set_ylabel("test accuracy, %")
    axis.legend()
    return figure


if __name__ == "__main__":
    draw().savefig("outliers.svg")

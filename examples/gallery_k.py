"""How much k matters.

The curve shows the test accuracy of close decay on monk3, with the logistic loss and alpha = 1, as a function of k
(mean and standard deviation over 25 stratified splits into halves). At k = n, close-k is logistic regression.
"""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.preprocessing import StandardScaler

from closecall import Problem
from closecall.solvers import solve
from reproduction.protocol import load_dataset

SHARES = (0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0)


def draw() -> Figure:
    """Plot the accuracy against k / n on a logarithmic axis."""
    data = load_dataset("monk3")
    y = data.signs()
    splits = StratifiedShuffleSplit(25, train_size=0.5, random_state=0).split(data.X, y)
    problems = [Problem("logistic", "close_decay", k=share) for share in SHARES]
    scores = []
    for train, test in splits:
        scale = StandardScaler().fit(data.X[train])
        found = solve(scale.transform(data.X[train]), y[train], problems, max_iter=300)
        margins = y[test] * (found.coef @ scale.transform(data.X[test]).T + found.intercept[:, None])
        scores.append((margins > 0).mean(axis=1))
    mean, spread = np.mean(scores, axis=0), np.std(scores, axis=0)
    figure, axis = pyplot.subplots(figsize=(8, 3.2), layout="constrained")
    axis.errorbar(SHARES, 100 * mean, 100 * spread, marker="o", capsize=3, color="tab:red")
    axis.axhline(100 * mean[-1], color="tab:gray", ls=":", label="average (k = n)")
    axis.set_xscale("log")
    axis.set_xticks(SHARES, [f"{share:g}" for share in SHARES])
    axis.minorticks_off()
    axis.set_xlabel("k as a share of the training set")
    axis.set_ylabel("test accuracy, %")
    axis.legend()
    return figure


if __name__ == "__main__":
    draw().savefig("k.svg")

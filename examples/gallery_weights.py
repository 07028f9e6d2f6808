"""Which examples have weight.

An aggregate gives each example a weight. The picture shows forty examples in the order of their logistic loss; large
dots mark those that receive weight if k = 10. Average top-k selects the largest losses, whereas close-k selects those
nearest to log 2, the loss on the boundary.
"""

import numpy as np
from matplotlib import pyplot
from matplotlib.figure import Figure

from closecall import get_aggregate, get_loss

SHOWN = {"average": {}, "maximal": {}, "top": {"k": 10}, "atk": {"k": 10}, "close": {"k": 10}}


def draw() -> Figure:
    """Draw one row of examples for each aggregate, with large dots for examples that have weight."""
    loss = get_loss("logistic")
    losses = loss.value(np.linspace(4, -3, 40))
    figure, axis = pyplot.subplots(figsize=(8, 2.8), layout="constrained")
    for place, (name, counts) in enumerate(reversed(SHOWN.items())):
        weights = get_aggregate(name).weights(losses, threshold=loss.threshold, **counts)
        axis.scatter(losses, np.full(40, place), s=4 + 60 * weights, c=np.where(weights > 0, "tab:red", "tab:gray"))
    axis.axvline(loss.threshold, color="black", lw=1, ls=":")
    axis.set_yticks(range(len(SHOWN)), list(reversed(SHOWN)))
    axis.set_xlabel("loss of the example (dotted: the decision boundary, log 2; misclassified to its right)")
    return figure


if __name__ == "__main__":
    draw().savefig("weights.svg")

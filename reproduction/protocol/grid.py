"""The grid: the values of k and alpha that are tried, their results, and the row that validation chooses."""

import numpy as np

from closecall._names import Array
from closecall.aggregates import AGGREGATES, get_aggregate
from closecall.objective import Problem

from .dataset import PARTS, Division
from .protocol import get_protocol
from .published import LOSSES, METHODS

ALPHAS = tuple(10.0**exponent for exponent in range(-5, 6))


def k_grid(n: int) -> tuple[int, ...]:
    """Return the paper's values of k: powers of ten from 10 up to n, and n itself; if n is below ten, only n.

    Examples
    --------
    >>> k_grid(7), k_grid(10), k_grid(277), k_grid(1000)
    ((7,), (10,), (10, 100, 277), (10, 100, 1000))
    """
    powers = tuple(10**exponent for exponent in range(1, len(str(n))))
    return powers if powers and powers[-1] == n else (*powers, n)


def grid(n: int) -> list[Problem]:
    """Return every (loss, method, k, alpha) of the paper's grid for n training rows.

    Examples
    --------
    >>> len(grid(277))
    286
    """
    return [
        Problem(loss, method, k, alpha)
        for loss in LOSSES
        for method in METHODS
        for k in (k_grid(n) if get_aggregate(method).takes else (n,))
        for alpha in ALPHAS
    ]


#: One row of a grid. Correct predictions are stored as counts, which are exact. Baselines have no objective (NaN), and
#: an empty loss if they have a loss of their own.
ROW = np.dtype(
    [("loss", "U16"), ("method", "U24"), ("k", "f8"), ("alpha", "f8"), ("train", "u4"), ("validation", "u4"),
     ("test", "u4"), ("objective", "f8"), ("n_iter", "u4"), ("converged", "?")]
)  # fmt: skip
#: The baselines and their display names.
BASELINES = {
    "average_exact_intercept": "average, exact intercept",
    "logistic_regression": "LogisticRegression",
    "linear_svc": "LinearSVC",
    "tuned_threshold": "TunedThresholdClassifierCV",
}
#: ``average`` with as many random starts of its network as ``close_decay`` has settings.
EQUAL_STARTS = "average_equal_starts"
#: The display name of every method.
LABELS = {
    **{name: name.replace("_", " ") for name in AGGREGATES},
    **BASELINES,
    EQUAL_STARTS: "average, equal starts",
}


def choose(rows: Array, protocol: str) -> Array:
    """Return the row (of dtype ROW) that validation chooses for each (loss, method), sorted by name.

    The chosen row has the most correct predictions on the validation part. Under ``paper``, ties go to the larger alpha
    and then to the larger k, as in the released code; under ``sound``, to the larger k and then to the larger alpha.

    Examples
    --------
    >>> rows = np.zeros(3, ROW)
    >>> rows["k"], rows["alpha"], rows["validation"] = [10, 99, 10], [1.0, 0.1, 9.0], [5, 5, 4]
    >>> choose(rows, "paper")["alpha"].tolist(), choose(rows, "sound")["alpha"].tolist()
    ([1.0], [0.1])
    """
    first, second = get_protocol(protocol).ties
    order = np.lexsort((rows[second], rows[first], rows["validation"], rows["method"], rows["loss"]))
    ordered = rows[order]
    names = ordered[["loss", "method"]]
    last = np.append(names[1:] != names[:-1], True)[-len(ordered) :]
    return ordered[last]


def rows_of(problems: list[Problem]) -> Array:
    """Return empty rows labelled with their problems."""
    rows = np.zeros(len(problems), ROW)
    for name, attribute in (("loss", "loss"), ("method", "aggregate"), ("k", "k"), ("alpha", "alpha")):
        rows[name] = [getattr(problem, attribute) for problem in problems]
    return rows


def score_linear(rows: Array, coef: Array, intercept: Array, division: Division) -> None:
    """Fill in the number of examples in each part that each linear classifier predicts correctly (margin > 0).

    ``rows`` (problems,) have dtype ROW; ``coef`` has shape (problems, features), and ``intercept`` (problems,).
    """
    for part, X, y in zip(PARTS, division.X, division.y, strict=True):
        correct = np.zeros(len(rows), dtype=np.int64)
        # Computing all scores of a large part at once would take hundreds of megabytes.
        for start in range(0, len(y), 4096):
            scores = X[start : start + 4096] @ coef.T + intercept
            correct += (scores * y[start : start + 4096, None] > 0).sum(axis=0)
        rows[part] = correct

"""The grid: which k and alpha are tried, the rows that say how each did, and the row that validation chooses."""

from __future__ import annotations

import numpy as np

from closecall._names import Array, lookup

ALPHAS = tuple(10.0**exponent for exponent in range(-5, 6))


def k_grid(n: int) -> tuple[int, ...]:
    """The paper's k: powers of ten from 10 up to n, and n itself; only n below ten.

    Examples
    --------
    >>> k_grid(7), k_grid(10), k_grid(277), k_grid(1000)
    ((7,), (10,), (10, 100, 277), (10, 100, 1000))
    """
    powers = tuple(10**exponent for exponent in range(1, len(str(n))))
    return powers if powers and powers[-1] == n else (*powers, n)


#: One row of a grid. Correct predictions are kept as counts: exact, and any accuracy follows from the parts' sizes.
#: Baselines leave ``objective`` NaN, and ``loss`` empty where the baseline has its own.
ROW = np.dtype(
    [
        ("loss", "U16"),
        ("method", "U24"),
        ("k", "f8"),
        ("alpha", "f8"),
        ("train", "u4"),
        ("validation", "u4"),
        ("test", "u4"),
        ("objective", "f8"),
        ("n_iter", "u4"),
        ("converged", "?"),
    ]
)
PARTS = ("train", "validation", "test")
#: The baselines by name, with what the reader sees.
BASELINES = {
    "average_exact_intercept": "average, exact intercept",
    "logistic_regression": "LogisticRegression",
    "linear_svc": "LinearSVC",
    "tuned_threshold": "TunedThresholdClassifierCV",
}
#: Protocol -> the order in which equals on the validation part are told apart, most important first; larger wins.
TIES: dict[str, tuple[str, str]] = {"paper": ("alpha", "k"), "sound": ("k", "alpha")}


def choose(rows: Array, protocol: str) -> Array:
    """The row that validation chooses for each (loss, method).

    Most correct on the validation part; equals go to the larger alpha, then the larger k under ``paper`` (the released
    code's order), to the larger k, then the larger alpha under ``sound``.

    Parameters
    ----------
    rows : array of dtype ROW
    protocol : str

    Returns
    -------
    chosen : array of dtype ROW
        One row for each (loss, method) that occurs, sorted by name.

    Examples
    --------
    >>> rows = np.zeros(3, ROW)
    >>> rows["k"], rows["alpha"], rows["validation"] = [10, 99, 10], [1.0, 0.1, 9.0], [5, 5, 4]
    >>> choose(rows, "paper")["alpha"].tolist(), choose(rows, "sound")["alpha"].tolist()
    ([1.0], [0.1])
    """
    first, second = lookup(TIES, protocol, "protocol")
    order = np.lexsort((rows[second], rows[first], rows["validation"], rows["method"], rows["loss"]))
    ordered = rows[order]
    names = ordered[["loss", "method"]]
    last = np.append(names[1:] != names[:-1], True)[-len(ordered) :]
    return ordered[last]

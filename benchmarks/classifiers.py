"""Fit times of ``CloseKClassifierCV()`` and LogisticRegressionCV on all rows of four data sets.

    python benchmarks/classifiers.py [--repeats 3]
    python benchmarks/classifiers.py --large [--only 100000] [--repeats 1]

Both search the same eleven strengths with five folds, on standardised features. The data are read from the data
directory (set CLOSECALL_DATA).

With ``--large`` the data are generated: 100,000 and 1,000,000 rows of 20 columns in float32, 15,000 x 50,000 sparse and
2,000 rows of 200 classes, each with as many test rows, up to 100,000. Single fits (``CloseKClassifier()`` and
LogisticRegression) and searches are timed, with their test errors.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from measure import turns
from scipy import sparse
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.preprocessing import StandardScaler

import closecall
from reproduction.protocol import load_dataset

SEARCH = (closecall.CloseKClassifierCV(), LogisticRegressionCV(Cs=np.logspace(-5, 5, 11), cv=5))
SINGLE = (closecall.CloseKClassifier(), LogisticRegression())
Table = tuple[Any, np.ndarray]


def rows_of(number: int) -> Table:
    """Return two classes with noisy labels; one row in twenty is an outlier with the wrong label."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(number, 20)).astype(np.float32)
    y = np.where(X @ rng.normal(size=20) + 2 * rng.normal(size=number) > 0, 1, -1)
    far = rng.random(number) < 0.05
    X[far] *= 3
    return X, np.where(far, -y, y)


def text() -> Table:
    """Return sparse rows of a hundred words out of 50,000, with unequal frequencies."""
    rng = np.random.default_rng(1)
    words = np.minimum(rng.pareto(0.7, size=(30_000, 100)) * 20, 49_999).astype(int)
    places = np.repeat(np.arange(30_000), 100), words.ravel()
    X = sparse.csr_matrix((np.full(words.size, 0.1), places), (30_000, 50_000))
    X.sum_duplicates()
    return X, np.where(X @ rng.normal(size=50_000) + 0.2 * rng.normal(size=30_000) > 0, 1, -1)


def classes() -> Table:
    """Return two hundred overlapping clouds in twenty columns."""
    rng = np.random.default_rng(2)
    y = np.arange(4000) % 200
    return 1.5 * rng.normal(size=(200, 20))[y] + rng.normal(size=(4000, 20)), y


LARGE: dict[str, Callable[[], Table]] = {
    "100000": lambda: rows_of(200_000), "1000000": lambda: rows_of(1_100_000), "sparse": text, "classes": classes,
}  # fmt: skip


def small() -> Iterator[tuple[str, Any, np.ndarray, int]]:
    """Yield name, X, y and the number of training rows, which is all of them."""
    for name in ("monk3", "phoneme", "spambase", "adult"):
        data = load_dataset(f"pmlb:{name}")
        yield name, StandardScaler().fit_transform(data.matrix_paper()), data.signs(), len(data.y)


def large(names: list[str]) -> Iterator[tuple[str, Any, np.ndarray, int]]:
    for name in names:
        X, y = LARGE[name]()
        yield name, X, y, {"1000000": 1_000_000}.get(name, X.shape[0] // 2)


def main() -> None:
    """Print the best of several processor times, measured in turns."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only", nargs="*", choices=list(LARGE), default=list(LARGE), help="of the large ones")
    given = parser.parse_args()
    warnings.simplefilter("ignore")  # scikit-learn's warnings about convergence
    print(f"{'data set':10} {'rows':>8} {'what':>7} {'ours':>9} {'theirs':>9} {'ratio':>6} {'error':>8} {'theirs':>8}")
    for name, X, y, train in large(given.only) if given.large else small():
        for what, models in (("fit", SINGLE), ("search", SEARCH)) if given.large else (("search", SEARCH),):
            fits = {str(model): partial(model.fit, X[:train], y[:train]) for model in models}
            ours, theirs = (min(times) for times in turns(fits, given.repeats).values())
            test = slice(train, None) if given.large else slice(None)
            wrong = " ".join(f"{100 * (1 - model.score(X[test], y[test])):6.2f} %" for model in models)
            times = f"{ours:7.2f} s {theirs:7.2f} s {ours / theirs:6.2f}"
            print(f"{name:10} {train:8} {what:>7} {times} {wrong}", flush=True)


if __name__ == "__main__":
    main()

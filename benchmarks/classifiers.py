"""Times of fitting ``CloseKClassifierCV()`` beside LogisticRegressionCV, on all rows of four data sets.

    python benchmarks/classifiers.py [--repeats 3]
    python benchmarks/classifiers.py --large [--only 100000] [--repeats 1]

Both search the same eleven strengths with five folds, on standardised features. The data are read from the data
directory (set CLOSECALL_DATA).

With ``--large`` the data are generated: 100,000 and 1,000,000 rows of 20 columns in float32, 15,000 x 50,000 sparse and
2,000 rows of 200 classes, each with as many test rows again, up to 100,000. Single fits (``CloseKClassifier()`` beside
LogisticRegression) and searches, with their test errors.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.preprocessing import StandardScaler

import closecall
from reproduction.protocol import load_dataset

MODELS = {
    "CloseKClassifierCV": closecall.CloseKClassifierCV(),
    "LogisticRegressionCV": LogisticRegressionCV(Cs=np.logspace(-5, 5, 11), cv=5),
}


SINGLE = {"CloseKClassifier": closecall.CloseKClassifier(), "LogisticRegression": LogisticRegression()}
Table = tuple[Any, np.ndarray]


def rows_of(number: int) -> Table:
    """Two classes with noisy labels; one row in twenty lies far out with the wrong label."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(number, 20)).astype(np.float32)
    y = np.where(X @ rng.normal(size=20) + 2 * rng.normal(size=number) > 0, 1, -1)
    far = rng.random(number) < 0.05
    X[far] *= 3
    return X, np.where(far, -y, y)


def text() -> Table:
    """Sparse rows of a hundred words out of 50,000, frequent ones more often."""
    rng = np.random.default_rng(1)
    words = np.minimum(rng.pareto(0.7, size=(30_000, 100)) * 20, 49_999).astype(int)
    places = np.repeat(np.arange(30_000), 100), words.ravel()
    X = sparse.csr_matrix((np.full(words.size, 0.1), places), (30_000, 50_000))
    X.sum_duplicates()
    return X, np.where(X @ rng.normal(size=50_000) + 0.2 * rng.normal(size=30_000) > 0, 1, -1)


def classes() -> Table:
    """Two hundred overlapping clouds of twenty columns."""
    rng = np.random.default_rng(2)
    y = np.arange(4000) % 200
    return 1.5 * rng.normal(size=(200, 20))[y] + rng.normal(size=(4000, 20)), y


LARGE: dict[str, Callable[[], Table]] = {
    "100000": lambda: rows_of(200_000),
    "1000000": lambda: rows_of(1_100_000),
    "sparse": text,
    "classes": classes,
}


def large(names: list[str], repeats: int) -> None:
    """Single fits and searches on the large sets, in turns."""
    print(f"{'data set':10} {'what':>7} {'ours':>9} {'theirs':>9} {'ratio':>6} {'error':>8} {'theirs':>8}")
    for name in names:
        X, y = LARGE[name]()
        train = {"1000000": 1_000_000}.get(name, X.shape[0] // 2)
        for what, models in (("fit", SINGLE), ("search", MODELS)):
            times, errors = dict.fromkeys(models, np.inf), {}
            for _ in range(repeats):
                for model, estimator in models.items():
                    begin = time.process_time()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        estimator.fit(X[:train], y[:train])
                    times[model] = min(times[model], time.process_time() - begin)
                    errors[model] = 100 * (1 - estimator.score(X[train:], y[train:]))
            ours, theirs = times.values()
            wrong = " ".join(f"{error:6.2f} %" for error in errors.values())
            print(f"{name:10} {what:>7} {ours:7.2f} s {theirs:7.2f} s {ours / theirs:6.2f} {wrong}", flush=True)


def main() -> None:
    """Processor times, the best of a few, in turns: other work on the machine does not blur them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--only", nargs="*", choices=list(LARGE), default=list(LARGE), help="of the large ones")
    given = parser.parse_args()
    if given.large:
        large(given.only, given.repeats)
        return
    print(f"{'data set':10} {'rows':>6} {'columns':>7}", *(f"{name:>22}" for name in MODELS), "ratio")
    for name in ("monk3", "phoneme", "spambase", "adult"):
        data = load_dataset(f"pmlb:{name}")
        X, y = StandardScaler().fit_transform(data.matrix_paper()), data.signs()
        times: dict[str, list[float]] = {model: [] for model in MODELS}
        for _ in range(given.repeats):
            for model, spent in times.items():
                begin = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # scikit-learn's notices on convergence
                    MODELS[model].fit(X, y)
                spent.append(time.process_time() - begin)
        ours, theirs = (min(spent) for spent in times.values())
        print(f"{name:10} {len(X):6} {X.shape[1]:7} {ours:20.2f} s {theirs:20.2f} s {ours / theirs:5.2f}", flush=True)


if __name__ == "__main__":
    main()

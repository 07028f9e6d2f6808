"""The fit times of ``CloseKClassifier``, ``CloseKClassifierCV`` and scikit-learn's logistic regressions.

    python benchmarks/classifiers.py [monk3 phoneme spambase adult]
    python benchmarks/classifiers.py --large [100000 1000000 sparse classes]

All searches try the same eleven penalty strengths with five folds. The four sets are read from the data directory (set
CLOSECALL_DATA) and standardised. With ``--large`` the data are generated: 100,000 and 1,000,000 rows of 20 columns in
float32, a sparse matrix of 15,000 x 50,000 values, and 2,000 rows of 200 classes. Each set has as many test rows as
training rows, up to 100,000.
"""

import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from measure import race
from scipy import sparse
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.preprocessing import StandardScaler

import closecall
from reproduction.protocol import load_dataset

MODELS = (
    closecall.CloseKClassifier(), LogisticRegression(),
    closecall.CloseKClassifierCV(), LogisticRegressionCV(Cs=np.logspace(-5, 5, 11), cv=5),
)  # fmt: skip
Table = tuple[Any, np.ndarray]


def rows_of(number: int) -> Table:
    """Return rows of two classes with noisy labels; one row in twenty is an outlier with the wrong label."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(number, 20)).astype(np.float32)
    y = np.where(X @ rng.normal(size=20) + 2 * rng.normal(size=number) > 0, 1, -1)
    outliers = rng.random(number) < 0.05
    X[outliers] *= 3
    return X, np.where(outliers, -y, y)


def text() -> Table:
    """Return sparse rows, each with a hundred words out of 50,000; words have unequal frequencies."""
    rng = np.random.default_rng(1)
    words = np.minimum(rng.pareto(0.7, size=(30_000, 100)) * 20, 49_999).astype(int)
    places = np.repeat(np.arange(30_000), 100), words.ravel()
    X = sparse.csr_matrix((np.full(words.size, 0.1), places), (30_000, 50_000))
    X.sum_duplicates()
    return X, np.where(X @ rng.normal(size=50_000) + 0.2 * rng.normal(size=30_000) > 0, 1, -1)


def classes() -> Table:
    """Return rows from two hundred overlapping clouds in twenty columns."""
    rng = np.random.default_rng(2)
    y = np.arange(4000) % 200
    return 1.5 * rng.normal(size=(200, 20))[y] + rng.normal(size=(4000, 20)), y


#: Name -> how to generate it, and its training rows.
LARGE: dict[str, tuple[Callable[[], Table], int]] = {
    "100000": (partial(rows_of, 200_000), 100_000), "1000000": (partial(rows_of, 1_100_000), 1_000_000),
    "sparse": (text, 15_000), "classes": (classes, 2_000),
}  # fmt: skip


def stored(name: str) -> Table:
    data = load_dataset(f"pmlb:{name}")
    return StandardScaler().fit_transform(data.matrix_paper()), data.signs()


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # scikit-learn's warnings about convergence
    large, names = "--large" in sys.argv, [word for word in sys.argv[1:] if word != "--large"]
    for name in names or (LARGE if large else ("monk3", "phoneme", "spambase", "adult")):
        X, y = LARGE[name][0]() if large else stored(name)
        train = LARGE[name][1] if large else len(y)
        test = slice(train if large else 0, None)  # the stored sets have no test rows
        race(
            f"{name}: {train} rows",
            {type(model).__name__: (1, partial(model.fit, X[:train], y[:train])) for model in MODELS}, 3,
        )  # fmt: skip
        print("errors:", " ".join(f"{100 * (1 - model.score(X[test], y[test])):.2f} %" for model in MODELS), flush=True)

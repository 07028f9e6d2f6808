"""Times of fitting ``CloseKClassifierCV()`` beside LogisticRegressionCV, on all rows of four data sets.

    python benchmarks/classifiers.py [--repeats 3]

Both search the same eleven strengths with five folds, on standardised features. The data are read from the data
directory (set CLOSECALL_DATA). How accurate the two are is a study: ``python -m studies classifiers``.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.preprocessing import StandardScaler

import closecall
from closecall.data import load_dataset

MODELS = {
    "CloseKClassifierCV": closecall.CloseKClassifierCV(),
    "LogisticRegressionCV": LogisticRegressionCV(Cs=np.logspace(-5, 5, 11), cv=5),
}


def main() -> None:
    """Processor times, the best of a few, in turns: other work on the machine does not blur them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
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

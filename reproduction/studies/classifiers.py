"""Compare ``CloseKClassifierCV``, with its default settings, to LogisticRegressionCV.

The data are the PMLB sets with at most 60,000 values, in stratified 75/25 splits; the number of each split is its seed.
Both models follow a StandardScaler that is fitted to the training part, and both search the same eleven penalties with
five folds. The page on how to read the results quotes this table, which has no page of its own.
"""

import hashlib
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import closecall
from reproduction.protocol.grid import ALPHAS
from reproduction.run.scores import title

from .common import Experiment, Row, Settings, dataset, lines_of, overall, pmlb_sets, resume, summarise

TEST_SIZE, MAX_VALUES = 0.25, 60_000
BASE = "logistic"


def even(name: str) -> bool:
    """Return whether a set is in the half of the data sets on which the strength of the guard was chosen.

    Examples
    --------
    >>> even("monk1"), even("monk3")
    (True, False)
    """
    return hashlib.sha256(name.encode()).digest()[0] % 2 == 0


METHODS: dict[str, Callable[[int], Any]] = {
    "close": lambda folds: closecall.CloseKClassifierCV(),
    BASE: lambda folds: LogisticRegressionCV(Cs=1 / np.array(ALPHAS)[::-1], cv=folds),
}


def run_one(key: Row) -> Row:
    data = dataset(key["name"])
    X, y = data.matrix_paper(), data.signs()
    train, test = next(StratifiedShuffleSplit(1, test_size=TEST_SIZE, random_state=key["split"]).split(X, y))
    folds = min(5, int(np.unique(y[train], return_counts=True)[1].min()))
    model = make_pipeline(StandardScaler(), METHODS[key["method"]](folds))
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's warnings about convergence
        model.fit(X[train], y[train])
    seconds = time.process_time() - begin
    chosen = model[-1].best_params_ if key["method"] == "close" else {}
    return {"seconds": round(seconds, 4), "accuracy": model.score(X[test], y[test]), "chosen": chosen}


def run(settings: Settings) -> None:
    names = pmlb_sets(MAX_VALUES, settings.sets)
    keys = [
        {"name": name, "split": split, "method": method}
        for split in range(settings.splits)
        for name in names
        for method in METHODS
    ]
    resume(settings, "classifiers", keys, run_one)


def table(settings: Settings) -> list[Row]:
    """Return gains over LogisticRegressionCV and ratios of processor times: one row for all sets and one per half."""
    lines = [line | {"set": title(line["name"])} for line in lines_of(settings, "classifiers")]
    found = summarise(lines, BASE, ("close", BASE), TEST_SIZE / (1 - TEST_SIZE))
    halves = {"all": found, "chose": [row for row in found if even(row["set"])],
              "other": [row for row in found if not even(row["set"])]}  # fmt: skip
    return [_summary(part, rows, lines) for part, rows in halves.items() if rows]


def _summary(part: str, rows: list[Row], lines: list[Row]) -> Row:
    close = overall(rows, BASE)[0]
    mine = [row for row in rows if row["method"] == "close"]
    names = {row["set"] for row in mine}
    ours, theirs = (
        sum(line["seconds"] for line in lines if line["set"] in names and line["method"] == method)
        for method in ("close", BASE)
    )
    return {
        "part": part, "sets": close["sets"], "splits": min(row["splits"] for row in mine), "better": close["up"],
        "better_share": close["up"] / close["sets"], "worse": close["down"], "significantly_better": close["better"],
        "significantly_worse": close["worse"], "mean": close["mean"], "low": close["low"], "high": close["high"],
        "least": min(row["gain"] for row in mine), "time": ours / theirs,
    }  # fmt: skip


EXPERIMENT = Experiment("classifiers", run, table, splits=25)

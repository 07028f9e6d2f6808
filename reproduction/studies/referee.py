"""Is a guarded choice among several classifiers worthwhile? A test of ``GuardedClassifierCV`` on data and noise."""

import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV

from closecall import CloseKClassifierCV
from closecall.model_selection.folds import fold_pairs
from closecall.paired import GUARD, compare
from reproduction.protocol.grid import ALPHAS
from reproduction.protocol.stats import fraction_interval
from reproduction.run.scores import title

from . import common
from .common import FEWEST_ROWS, Array, Experiment, Row, Settings, lines_of, of_sets, overall, resume
from .level import COMPARED, WEAKEST, contest_of, left

SETS = 40
NOISE = 200
#: Rows and columns of the noise.
SHAPE = 200, 10
BASE, CHOICE = "baseline", "guarded"
#: Other guards, evaluated with the same fits; the name gives the number of standard errors.
OTHERS = {"guarded_1.5": 1.5, "guarded_2": 2.0}
GUARDS = {CHOICE: GUARD, **OTHERS}
LABELS = {
    BASE: "LogisticRegressionCV", "close_k": "CloseKClassifierCV", "forest": "tuned RandomForest",
    "boosting": "tuned HistGradientBoosting", CHOICE: "GuardedClassifierCV",
    **{name: f"GuardedClassifierCV, guard={guard:g}" for name, guard in OTHERS.items()},
}  # fmt: skip
METHODS = tuple(LABELS)


class AllRows:
    """A single split that uses every row for both training and testing, for forests, which are scored out of bag."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> list[tuple[Array, Array]]:
        rows = np.arange(len(X))
        return [(rows, rows)]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return 1


def logistic() -> Any:
    return LogisticRegressionCV(Cs=1 / np.array(ALPHAS)[::-1], cv=5, solver="newton-cholesky")


def forest() -> Any:
    return GridSearchCV(
        RandomForestClassifier(30, oob_score=True, random_state=0),
        {"max_features": ["sqrt", None], "min_samples_leaf": [1, 5]}, cv=AllRows(),
        scoring=lambda forest, X, y: forest.oob_score_,  # the rows that each tree has not seen: no further fits
    )  # fmt: skip


def boosting() -> Any:
    return GridSearchCV(
        HistGradientBoostingClassifier(max_iter=50, early_stopping=False, random_state=0),
        {"max_leaf_nodes": [4, 15], "learning_rate": [0.05, 0.2]}, cv=2,
    )  # fmt: skip


#: The baseline comes first; everything is tuned inside the folds, trees among four settings each.
MEMBERS: dict[str, Callable[[], Any]] = {
    BASE: logistic, "close_k": CloseKClassifierCV, "forest": forest, "boosting": boosting,
}  # fmt: skip


def spread(names: list[str], count: int = SETS) -> list[str]:
    """Return the given number of names, evenly spaced in their original order."""
    places = np.unique(np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int))
    return [names[place] for place in places]


def table_of(key: Row) -> tuple[Array, Array, Array, Array]:
    """Return training rows, labels, test rows and test labels of a PMLB set or of noise."""
    if "noise" in key:
        rng = np.random.default_rng([key["noise"], *SHAPE])
        X, y = rng.normal(size=SHAPE), rng.permutation(np.arange(SHAPE[0]) % 2)
        return X, y, X[:0], y[:0]
    parts = common.division(key["name"], key["split"])
    return np.concatenate(parts.X[:2]), np.concatenate(parts.y[:2]), parts.X[2], parts.y[2]


def run_one(key: Row) -> Row:
    return outcomes(key["method"], *table_of(key))


def outcomes(method: str, X: Array, y: Array, unseen: Array, truth: Array) -> Row:
    """Return a contender's test accuracy and the rows predicted correctly in the referee's folds and in fresh folds.

    The table applies the guards to these outcomes.
    """
    model, right = MEMBERS[method](), np.zeros((2, len(y)), dtype=bool)
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's warnings about convergence
        for fresh in (0, 1):
            for train, test in fold_pairs(None, X, y, None, fresh=bool(fresh)):
                right[fresh, test] = model.fit(X[train], y[train]).predict(X[test]) == y[test]
        middle = time.process_time()
        found: Row = {"right": np.packbits(right).tobytes().hex(), "rows": len(y), "judging": round(middle - began, 4)}
        if len(truth):
            found["accuracy"] = float(np.mean(model.fit(X, y).predict(unseen) == truth))
            found["seconds"] = round(time.process_time() - middle, 4)
    return found


def run(settings: Settings) -> None:
    names = common.pmlb_sets(settings.max_values, settings.sets, FEWEST_ROWS)
    tables = [{"name": name, "split": split} for split in range(settings.splits) for name in spread(names)]
    resume(settings, "referee", of_members(tables), run_one)
    if not settings.sets:
        resume(settings, "referee-noise", of_members([{"noise": seed} for seed in range(NOISE)]), run_one)


def of_members(tables: list[Row]) -> list[Row]:
    """Return the keys of all contenders on these tables."""
    return [table | {"method": method} for table in tables for method in MEMBERS]


def tables_of(settings: Settings, store: str) -> list[Row]:
    """Return, for every table on which all contenders ran, its key, the results, the best challenger and its gain."""
    found: dict[str, Row] = {}
    for line in lines_of(settings, store):
        key = {name: line[name] for name in ("name", "split", "noise") if name in line}
        found.setdefault(str(key), key | {"of": {}})["of"][line["method"]] = line
    whole = [row for row in found.values() if set(MEMBERS) <= set(row["of"])]
    return [row | dict(zip(("challenger", "step"), judged(row), strict=True)) for row in whole]


def judged(row: Row) -> tuple[str, list[Any]]:
    """Return the challenger that a referee would choose from the stored outcomes, and its comparison."""
    X, y = table_of(row)[:2]
    bits = [np.frombuffer(bytes.fromhex(row["of"][name]["right"]), np.uint8) for name in MEMBERS]
    right = np.array([np.unpackbits(each)[: 2 * len(y)].reshape(2, -1) for each in bits], dtype=bool)
    contest = contest_of(right, X, y, None, None, np.ones(len(y)))
    best = int(np.argmax(contest.divisions[0].scores(len(MEMBERS))[1:].mean(axis=1)))
    step = asdict(compare("", "", contest.gain(), WEAKEST, partial(contest.informed, (y == y.max()).astype(int))))
    return [*MEMBERS][1 + best], [step[name] for name in COMPARED]


def table(settings: Settings) -> list[Row]:
    """Return a row for each (set, method), and one for each guard on noise."""
    records = list[Row]()
    for row in tables_of(settings, "referee"):
        place, of = {"set": title(row["name"]), "split": row["split"]}, row["of"]
        records += [place | {"method": m, "accuracy": of[m]["accuracy"], "seconds": of[m]["seconds"]} for m in MEMBERS]
        for name, guard in GUARDS.items():
            chosen = row["challenger"] if left(row["step"], guard) else BASE
            seconds = sum(line["judging"] for line in of.values())
            records.append(place | {"method": name, "accuracy": of[chosen]["accuracy"], "seconds": seconds})
    rows = common.summarise(common.with_enough(records, settings.splits), BASE, METHODS)
    noise = [row["step"] for row in tables_of(settings, "referee-noise")]
    blank = dict.fromkeys(rows[0], "") if rows else {}
    taken = {name: [left(step, guard) for step in noise] for name, guard in GUARDS.items()}
    return rows + [
        blank | {"set": "noise", "method": name, "splits": len(each),
                 "accuracy": float(np.mean(each)) if each else float("nan")}
        for name, each in taken.items()
    ]  # fmt: skip


def page(rows: list[Row], figure: Path) -> Row:
    of_noise = {row["method"]: row for row in rows if row["set"] == "noise"}
    rows = [row for row in rows if row["set"] != "noise"]
    found = overall(rows, BASE)
    shown = [row | {"label": LABELS[row["method"]]} for row in found if row["method"] != BASE]
    common.save_chart(common.interval_chart(shown, "mean gain over LogisticRegressionCV (points)"), figure)
    at = {row["method"]: row for row in found}
    single = [row for row in found if row["method"] not in (CHOICE, *OTHERS)]
    choice, best = at[CHOICE], max(single, key=lambda row: row["accuracy"])
    ahead = float(choice["accuracy"] - best["accuracy"])
    others = " ".join(
        f"With `guard={guard:g}` and the same fits, the choice is at least a point better on "
        f"{of_sets(at[name]['up'], at[name]['sets'])} sets and at least a point worse on "
        f"{of_sets(at[name]['down'], at[name]['sets'])}, and on noise it replaces the baseline in "
        f"{_often(of_noise[name])}."
        for name, guard in OTHERS.items()
    )
    return {
        "better": of_sets(choice["up"], choice["sets"]), "worse": of_sets(choice["down"], choice["sets"]),
        "apart": abs(ahead), "side": "above" if ahead >= 0 else "below", "best": LABELS[best["method"]],
        "shape": SHAPE, "noise": _often(of_noise[CHOICE]), "guard": GUARD, "others": others, "figure": figure.name,
        "table": common.overall_table(found, LABELS, BASE),
        "sets": common.per_set_table(rows, METHODS, LABELS, BASE), "count": found[0]["sets"],
        "splits": int(min(row["splits"] for row in rows)), "penalties": len(ALPHAS),
    }  # fmt: skip


def _often(row: Row) -> str:
    runs, taken = int(row["splits"]), round(row["splits"] * row["accuracy"]) if row["splits"] else 0
    low, high = fraction_interval(taken, runs)
    return f"{taken} of {runs} runs ({low:.1%} to {high:.1%})"


EXPERIMENT = Experiment("referee", run, table, page)

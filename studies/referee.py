"""Is the guarded choice among any classifiers worth it? ``GuardedClassifierCV`` on PMLB sets, and on noise."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegressionCV
from sklearn.model_selection import GridSearchCV

from closecall import CloseKClassifierCV
from closecall.evaluate.grid import ALPHAS
from closecall.evaluate.stats import fraction_interval
from closecall.model_selection import GuardedClassifierCV

from .common import (
    Array,
    Experiment,
    Row,
    Settings,
    at_hand,
    dataset,
    division,
    interval_chart,
    lines_of,
    made_by,
    of_sets,
    resume,
    save_chart,
    signed,
    with_enough,
)
from .compare import FEWEST_ROWS, overall, overall_table, per_set_table, records_of, summarise

SETS = 40
NOISE = 200
#: Rows and columns of the noise.
SHAPE = 200, 10
BASE, CHOICE = "baseline", "guarded"
LABELS = {
    BASE: "LogisticRegressionCV", "close_k": "CloseKClassifierCV", "forest": "tuned RandomForest",
    "boosting": "tuned HistGradientBoosting", CHOICE: "GuardedClassifierCV",
}  # fmt: skip
METHODS = tuple(LABELS)


class AllRows:
    """A single split that trains on every row and tests on the same: for forests, which are judged out of bag."""

    def split(self, X: Any, y: Any = None, groups: Any = None) -> list[tuple[Array, Array]]:
        rows = np.arange(len(X))
        return [(rows, rows)]

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        return 1


def out_of_bag(forest: Any, X: Any, y: Any) -> float:
    """Accuracy on the rows that each tree has not seen: a forest is tuned without fitting it again for each fold."""
    return float(forest.oob_score_)


def contenders() -> tuple[Any, dict[str, Any]]:
    """The baseline and the challengers; trees have four settings each, and are tuned inside the folds."""
    forest = GridSearchCV(
        RandomForestClassifier(30, oob_score=True, random_state=0),
        {"max_features": ["sqrt", None], "min_samples_leaf": [1, 5]}, cv=AllRows(), scoring=out_of_bag,
    )  # fmt: skip
    boosting = GridSearchCV(
        HistGradientBoostingClassifier(max_iter=50, early_stopping=False, random_state=0),
        {"max_leaf_nodes": [4, 15], "learning_rate": [0.05, 0.2]}, cv=2,
    )  # fmt: skip
    baseline = LogisticRegressionCV(Cs=1 / np.array(ALPHAS)[::-1], cv=5, solver="newton-cholesky")
    return baseline, {"close_k": CloseKClassifierCV(), "forest": forest, "boosting": boosting}


def spread(names: list[str], count: int = SETS) -> list[str]:
    """So many of the names, evenly spread over their order.

    Examples
    --------
    >>> spread(list("abcdefghi"), 3)
    ['a', 'e', 'i']
    """
    places = np.unique(np.linspace(0, len(names) - 1, min(count, len(names))).round().astype(int))
    return [names[place] for place in places]


def pmlb_keys(settings: Settings) -> list[Row]:
    """The cells of the 40 sets."""
    names = [n for n in at_hand(["pmlb94"], settings.max_values, settings.sets) if len(dataset(n).y) >= FEWEST_ROWS]
    return [{"name": name, "split": split} for split in range(settings.splits) for name in spread(names)]


def noise(seed: int) -> tuple[Array, Array]:
    rng = np.random.default_rng([seed, *SHAPE])
    return rng.normal(size=SHAPE), rng.permutation(np.arange(SHAPE[0]) % 2)


def run_one(key: Row) -> Row:
    """Test accuracies of everyone and of the guarded choice; of noise, whether the baseline was left.

    Every fit is repeatable, so the guarded choice is the contender of that name: it is not fitted once more.
    """
    baseline, challengers = contenders()
    guarded = GuardedClassifierCV(baseline, challengers, refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's notices on convergence
        if "noise" in key:
            guarded.fit(*noise(key["noise"]))
            return {"taken": guarded.best_name_ != BASE, **_compared(guarded)}
        parts = division(key["name"], key["split"])
        X, y = np.concatenate(parts.X[:2]), np.concatenate(parts.y[:2])
        result: Row = {"accuracy": {}, "seconds": {}}
        for method, model in {BASE: baseline, **challengers, CHOICE: guarded}.items():
            began = time.process_time()
            model.fit(X, y)
            result["seconds"][method] = round(time.process_time() - began, 4)
            if method != CHOICE:
                result["accuracy"][method] = float(np.mean(model.predict(parts.X[2]) == parts.y[2]))
        result["accuracy"][CHOICE] = result["accuracy"][guarded.best_name_]
        return result | {"chosen": guarded.best_name_, **_compared(guarded)}


def _compared(guarded: GuardedClassifierCV) -> Row:
    found = guarded.guard_report_["comparison"]
    return {name: found[name] for name in ("challenger", "gain", "standard_error")}


def run(settings: Settings) -> None:
    if not settings.sets:
        resume(settings, "referee-noise", [{"noise": seed} for seed in range(NOISE)], run_one)
    resume(settings, "referee", pmlb_keys(settings), run_one)


def table(settings: Settings) -> list[Row]:
    """One row for each (set, method), and one for the noise."""
    rows = summarise(with_enough(records_of(settings, "referee"), settings.splits), BASE, METHODS)
    taken = [line["taken"] for line in lines_of(settings, "referee-noise")]
    blank = dict.fromkeys(rows[0], "") if rows else {}
    share = float(np.mean(taken)) if taken else float("nan")
    return [*rows, blank | {"set": "noise", "method": CHOICE, "splits": len(taken), "accuracy": share}]


def page(rows: list[Row], figure: Path) -> str:
    *rows, of_noise = rows
    found = overall(rows, BASE)
    shown = [row | {"label": LABELS[row["method"]]} for row in found if row["method"] != BASE]
    save_chart(interval_chart(shown, label="label", title="mean gain over LogisticRegressionCV (points)"), figure)
    at = {row["method"]: row for row in found}
    choice, best = at[CHOICE], max((row for row in found if row["method"] != CHOICE), key=lambda row: row["accuracy"])
    runs, taken = int(of_noise["splits"]), round(of_noise["splits"] * of_noise["accuracy"]) if of_noise["splits"] else 0
    low, high = fraction_interval(taken, runs)
    return "\n".join(
        [
            "# Is the guarded choice worth it?\n",
            f"`GuardedClassifierCV` with LogisticRegressionCV as baseline and three tuned challengers, everything else "
            f"at its default, on {found[0]['sets']:.0f} PMLB sets spread over their sizes, "
            f"{int(min(row['splits'] for row in rows))} or more splits of 75/25. The searches are tuned inside the "
            "folds.\n",
            f"The guarded choice is a point or more better than the baseline on "
            f"{of_sets(choice['up'], choice['sets'])} sets and a point or more worse on "
            f"{of_sets(choice['down'], choice['sets'])}. Its mean accuracy is "
            f"{signed(choice['accuracy'] - best['accuracy'])} points from that of {LABELS[best['method']]}, the best "
            f"single contender. Where labels are pure noise ({SHAPE[0]} rows, {SHAPE[1]} columns) it left the baseline "
            f"in {taken} of {runs} runs ({low:.1%} to {high:.1%}).\n",
            f"![Gains](beyond/{figure.name})\n",
            overall_table(found, LABELS, BASE),
            "\n## Set by set\n",
            per_set_table(rows, METHODS, LABELS, BASE),
            made_by("referee"),
        ]
    )


EXPERIMENT = Experiment("referee", run, table, page)

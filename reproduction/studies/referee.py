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
from closecall.model_selection import GuardedClassifierCV
from closecall.paired import Gain, compare
from reproduction.protocol.grid import ALPHAS
from reproduction.protocol.stats import fraction_interval
from reproduction.run.scores import title

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
    with_enough,
)
from .compare import FEWEST_ROWS, overall, overall_table, per_set_table, records_of, summarise

SETS = 40
NOISE = 200
#: Rows and columns of the noise.
SHAPE = 200, 10
BASE, CHOICE = "baseline", "guarded"
#: Other guards that are counted from the same comparisons; the name says how many standard errors.
OTHERS = {"guarded_1.5": 1.5, "guarded_2.5": 2.5}
GUARDS = {CHOICE: GuardedClassifierCV(None, None).guard, **OTHERS}
LABELS = {
    BASE: "LogisticRegressionCV", "close_k": "CloseKClassifierCV", "forest": "tuned RandomForest",
    "boosting": "tuned HistGradientBoosting", CHOICE: "GuardedClassifierCV",
    **{name: f"GuardedClassifierCV, guard={guard:g}" for name, guard in OTHERS.items()},
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
    """The given number of names, evenly spread over their order.

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
    """Test accuracies of all methods, and the guard's comparison; for noise, only the comparison.

    Every fit is repeatable, so the guarded choice is the contender of that name: it is not fitted once more.
    """
    baseline, challengers = contenders()
    guarded = GuardedClassifierCV(baseline, challengers, refit=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's notices on convergence
        if "noise" in key:
            return _compared(guarded.fit(*noise(key["noise"])))
        parts = division(key["name"], key["split"])
        X, y = np.concatenate(parts.X[:2]), np.concatenate(parts.y[:2])
        result: Row = {"accuracy": {}, "seconds": {}}
        for method, model in {BASE: baseline, **challengers, CHOICE: guarded}.items():
            began = time.process_time()
            model.fit(X, y)
            result["seconds"][method] = round(time.process_time() - began, 4)
            if method != CHOICE:
                result["accuracy"][method] = float(np.mean(model.predict(parts.X[2]) == parts.y[2]))
        return result | _compared(guarded)


def _compared(guarded: GuardedClassifierCV) -> Row:
    found = guarded.guard_report_["comparison"]
    return {
        name: found[name] for name in ("challenger", "gain", "standard_error", "degrees_of_freedom", "units", "unit")
    }


def run(settings: Settings) -> None:
    resume(settings, "referee", pmlb_keys(settings), run_one)
    if not settings.sets:
        resume(settings, "referee-noise", [{"noise": seed} for seed in range(NOISE)], run_one)


def left(line: Row, guard: float) -> bool:
    """Whether a stored comparison leaves the baseline under a guard."""
    found = (line[name] for name in ("gain", "standard_error", "degrees_of_freedom", "units", "unit"))
    return compare(line.get("challenger"), BASE, Gain(*found), guard).taken


def table(settings: Settings) -> list[Row]:
    """One row for each (set, method), and one for each guard on noise."""
    records = records_of(settings, "referee")
    for line in lines_of(settings, "referee"):
        for name, guard in GUARDS.items():
            value = line["accuracy"][line["challenger"] if left(line, guard) else BASE]
            records.append({"set": title(line["name"]), "split": line["split"], "method": name, "accuracy": value,
                            "seconds": line["seconds"][CHOICE]})  # fmt: skip
    rows = summarise(with_enough(records, settings.splits), BASE, METHODS)
    lines = lines_of(settings, "referee-noise")
    blank = dict.fromkeys(rows[0], "") if rows else {}
    taken = {name: [left(line, guard) for line in lines] for name, guard in GUARDS.items()}
    return rows + [
        blank | {"set": "noise", "method": name, "splits": len(each),
                 "accuracy": float(np.mean(each)) if each else float("nan")}
        for name, each in taken.items()
    ]  # fmt: skip


def page(rows: list[Row], figure: Path) -> str:
    of_noise = {row["method"]: row for row in rows if row["set"] == "noise"}
    rows = [row for row in rows if row["set"] != "noise"]
    found = overall(rows, BASE)
    shown = [row | {"label": LABELS[row["method"]]} for row in found if row["method"] != BASE]
    save_chart(interval_chart(shown, label="label", title="mean gain over LogisticRegressionCV (points)"), figure)
    at = {row["method"]: row for row in found}
    single = [row for row in found if row["method"] not in (CHOICE, *OTHERS)]
    choice, best = at[CHOICE], max(single, key=lambda row: row["accuracy"])
    ahead, default = float(choice["accuracy"] - best["accuracy"]), GuardedClassifierCV(None, None).guard
    return "\n".join(
        [
            "# Is the guarded choice worth it?\n",
            f"**The guarded choice is a point or more better than the baseline on "
            f"{of_sets(choice['up'], choice['sets'])} sets and a point or more worse on "
            f"{of_sets(choice['down'], choice['sets'])}.** Its mean accuracy is {abs(ahead):.2f} points "
            f"{'above' if ahead >= 0 else 'below'} that of {LABELS[best['method']]}, the best single contender. "
            f"If the labels are pure noise ({SHAPE[0]} rows, {SHAPE[1]} columns) it left the baseline in "
            f"{_often(of_noise[CHOICE])}.\n",
            f"That is with the default guard of {default:g} standard errors. "
            + " ".join(
                f"With {guard:g}, counted from the same comparisons, it is a point better on "
                f"{of_sets(at[name]['up'], at[name]['sets'])} sets and a point worse on "
                f"{of_sets(at[name]['down'], at[name]['sets'])}, and on noise it leaves the baseline in "
                f"{_often(of_noise[name])}."
                for name, guard in OTHERS.items()
            )
            + "\n",
            f"![Gains](beyond/{figure.name})\n",
            overall_table(found, LABELS, BASE),
            "\n## Set by set\n",
            per_set_table(rows, METHODS, LABELS, BASE),
            "\n## How it was measured\n",
            f"`GuardedClassifierCV` with LogisticRegressionCV as baseline and three tuned challengers, everything else "
            f"at its default, on {found[0]['sets']:.0f} PMLB sets spread over their sizes, "
            f"{int(min(row['splits'] for row in rows))} or more splits of 75/25. The searches are tuned inside the "
            f"folds: the baseline chooses among {len(ALPHAS)} penalties, the forest (out of bag) and "
            "boosting among four settings each, and close-k has its defaults.\n",
            made_by("referee"),
        ]
    )


def _often(row: Row) -> str:
    runs, taken = int(row["splits"]), round(row["splits"] * row["accuracy"]) if row["splits"] else 0
    low, high = fraction_interval(taken, runs)
    return f"{taken} of {runs} runs ({low:.1%} to {high:.1%})"


EXPERIMENT = Experiment("referee", run, table, page)

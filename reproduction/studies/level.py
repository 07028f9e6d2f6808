"""How often a guard leaves its baseline where there is nothing to gain, and what gain it reports there.

Labels are noise: in every case they have no relation to the columns. Challengers are premade rules (the sign of a
column, so that nothing is learnt and the true gain is exactly 0), classifiers that learn, thresholds, and close-k. Rows
are independent, or depend on each other through groups, time, copies, or two kinds of groups at once.
"""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, RepeatedStratifiedKFold, StratifiedShuffleSplit, TimeSeriesSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from closecall import CloseKClassifierCV
from closecall.model_selection import ExactThresholdClassifier, GuardedClassifierCV
from closecall.paired import Gain, compare
from closecall.stats import fraction_interval

from .common import Array, Experiment, Row, Settings, lines_of, made_by, markdown, mean_error, resume, signed

#: Runs of one record: each takes a fraction of a second.
BATCH = 50
#: Rules cost little, and there are many cases of them: three times as many runs.
CHEAP = 3
COMPARED = ("gain", "standard_error", "degrees_of_freedom", "units", "unit")
REPEATED = RepeatedStratifiedKFold(n_splits=5, n_repeats=5, random_state=0)
SHUFFLED = StratifiedShuffleSplit(20, random_state=0)
Data = tuple[Array, Array, dict[str, Any]]


class Rule(ClassifierMixin, BaseEstimator):
    """Says the sign of a column, whatever it is trained on."""

    def __init__(self, column: int = 0) -> None:
        self.column = column

    def fit(self, X: Array, y: Array, sample_weight: Any = None) -> Rule:
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self

    def predict(self, X: Array) -> Array:
        return self.classes_[(X[:, self.column] > 0).astype(int)]


# --- data without any relation of labels and columns


def plain(rng: np.random.Generator, columns: int, rows: int = 400) -> Data:
    return rng.normal(size=(rows, columns)), rng.permutation(np.arange(rows) % 2), {}


def weighed(weight: float, rng: np.random.Generator, columns: int) -> Data:
    X, y, _ = plain(rng, columns)
    return X, y, {"sample_weight": np.full(len(y), weight)}


def uneven(rng: np.random.Generator, columns: int) -> Data:
    X, y, _ = plain(rng, columns)
    return X, y, {"sample_weight": rng.lognormal(sigma=1.5, size=len(y))}


def grouped(rng: np.random.Generator, columns: int, sizes: Array | None = None) -> Data:
    """Groups whose members are alike in every column and in their labels."""
    sizes = np.full(20, 20) if sizes is None else sizes
    member = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(sizes), columns))[member] + 0.3 * rng.normal(size=(len(member), columns))
    y = rng.normal(size=len(sizes))[member] + 0.3 * rng.normal(size=len(member)) > 0
    return X, y.astype(int), {"groups": member}


def lopsided(rng: np.random.Generator, columns: int) -> Data:
    return grouped(rng, columns, 4 + rng.geometric(0.05, 20))


def series(rng: np.random.Generator, columns: int, rows: int = 400, memory: float = 0.9) -> Data:
    """Autocorrelated columns and an autocorrelated label."""
    steps = rng.normal(size=(rows + 200, columns + 1))
    for row in range(1, len(steps)):
        steps[row] = memory * steps[row - 1] + np.sqrt(1 - memory**2) * steps[row]
    return steps[200:, 1:], (steps[200:, 0] > 0).astype(int), {}


def copied(rng: np.random.Generator, columns: int) -> Data:
    """A hundred rows, each four times."""
    X, y, _ = plain(rng, columns, 100)
    order = rng.permutation(np.tile(np.arange(100), 4))
    return X[order], y[order], {}


def panel(rng: np.random.Generator, columns: int) -> Data:
    """Twenty members, each observed twenty times in a row: an autocorrelated series of its own around its own mean."""
    pieces = [series(rng, columns, 20) for _ in range(20)]
    X = np.concatenate([piece[0] + rng.normal(size=columns) for piece in pieces])
    return X, np.concatenate([piece[1] for piece in pieces]), {"groups": np.repeat(np.arange(20), 20)}


def crossed(rng: np.random.Generator, columns: int) -> Data:
    """Twenty users by twenty items, or members by times with shocks that all share: effects of both, both are given."""
    user, item = np.divmod(np.arange(400), 20)
    both = rng.normal(size=(20, columns + 1))[user] + rng.normal(size=(20, columns + 1))[item]
    both += 0.5 * rng.normal(size=both.shape)
    return both[:, 1:], (both[:, 0] > 0).astype(int), {"groups": np.column_stack([user, item])}


# --- who decides


def rules(count: int, cv: Any = None, scoring: Any = None) -> Any:
    return GuardedClassifierCV(
        Rule(0), {f"rule {place}": Rule(place) for place in range(1, count + 1)}, cv=cv, scoring=scoring, refit=False
    )


def learners(cv: Any = None) -> Any:
    members = {"bayes": GaussianNB(), "near": KNeighborsClassifier(1), "tree": DecisionTreeClassifier(random_state=0)}
    return GuardedClassifierCV(LogisticRegression(), members, cv=cv, refit=False)


def threshold(cv: Any = None) -> Any:
    return ExactThresholdClassifier(LogisticRegression(), cv=cv, n_bootstrap=0)


def close_k(cv: Any = None) -> Any:
    return CloseKClassifierCV(alphas=(0.01, 1.0, 100.0), cv=cv, refit=False)


@dataclass(frozen=True)
class Case:
    """Data, who decides, and in words both."""

    rows: str
    decides: str
    data: Callable[..., Data]
    judge: Callable[[], Any]
    columns: int = 10
    times: int = 1  # as many runs as others


def _cases() -> dict[str, Case]:
    found: dict[str, Case] = {}
    rows: dict[str, tuple[str, Callable[..., Data], Any, Any]] = {
        "plain": ("independent", plain, None, None),
        "weight 20": ("all of weight 20", partial(weighed, 20.0), None, None),
        "weight 0.05": ("all of weight 0.05", partial(weighed, 0.05), None, None),
        "uneven": ("of very unequal weights", uneven, None, None),
        "groups": ("20 groups of 20", grouped, None, GroupKFold(5)),
        "lopsided": ("20 groups of 5 to 100", lopsided, None, GroupKFold(5)),
        "time": ("a series, TimeSeriesSplit(5)", series, TimeSeriesSplit(5), TimeSeriesSplit(5)),
        "copies": ("100 rows, 4 copies of each", copied, None, None),
        "panel": ("20 members by 20 times", panel, None, GroupKFold(5)),
        "crossed": ("20 users by 20 items", crossed, None, GroupKFold(5)),
        "repeated": ("independent, RepeatedStratifiedKFold(5, 5)", plain, REPEATED, REPEATED),
        "shuffled": ("independent, StratifiedShuffleSplit(20)", plain, SHUFFLED, SHUFFLED),
    }
    for name, (words, data, cv, own) in rows.items():
        for count in (1, 20, 100):
            judge = partial(rules, count, cv)
            found[f"{name}, {count} rules"] = Case(words, f"{count} rules", data, judge, count + 1, CHEAP)
        found[f"{name}, threshold"] = Case(words, "threshold", data, partial(threshold, cv), 5)
        if name not in ("uneven", "weight 20", "weight 0.05"):  # neighbours take no weights
            found[f"{name}, learners"] = Case(words, "learners", data, partial(learners, cv), 5)
        if name not in ("uneven", "lopsided"):
            found[f"{name}, close-k"] = Case(words, "close-k", data, partial(close_k, own), 5)
    score = "balanced_accuracy"
    for count in (1, 20):
        judge, words = partial(rules, count, None, score), f"independent, scoring={score}"
        found[f"{score}, {count} rules"] = Case(words, f"{count} rules", plain, judge, count + 1)
    return found


CASES = _cases()


def run_one(key: Row) -> Row:
    """Of a batch of runs the guard's comparisons: gain, standard error, its degrees of freedom, and what it is over."""
    case, found = CASES[key["case"]], []
    for seed in range(BATCH * key["batch"], BATCH * (key["batch"] + 1)):
        rng = np.random.default_rng([seed, zlib.crc32(key["case"].encode())])
        X, y, params = case.data(rng, case.columns)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            report = case.judge().fit(X, y, **params).guard_report_
        steps = report.get("comparisons") or [report.get("comparison") or report]
        found.append([[step[name] for name in COMPARED] for step in steps])
    return {"steps": found}


def run(settings: Settings) -> None:
    cases = [case for case in CASES if not settings.sets or case in settings.sets]
    batches = {case: range(-(-settings.splits * CASES[case].times // BATCH)) for case in cases}
    resume(settings, "level", [{"case": case, "batch": n} for case in cases for n in batches[case]], run_one)


def table(settings: Settings) -> list[Row]:
    """One row for each case that was run: with the guard that is the default, and with 2."""
    lines, found = lines_of(settings, "level"), list[Row]()
    for name, case in CASES.items():
        runs = [steps for line in lines if line["case"] == name for steps in line["steps"]]
        if runs:
            default = case.judge().guard
            taken, stronger = (
                [any(_taken(step, guard) for step in steps) for steps in runs] for guard in (default, 2.0)
            )
            low, high = fraction_interval(sum(taken), len(taken))
            gain, error = mean_error([100 * steps[-1][0] for steps in runs])
            words = {"case": name, "rows": case.rows, "decides": case.decides, "guard": default, "runs": len(runs)}
            share = {"taken": float(np.mean(taken)), "low": low, "high": high, "taken_2": float(np.mean(stronger))}
            found.append(words | share | {"gain": gain, "gain_se": error})
    return found


def _taken(step: list[Any], guard: float) -> bool:
    return compare("", "", Gain(*step), guard).taken


def page(rows: list[Row], figure: Path) -> str:
    most = max(rows, key=lambda row: row["taken"])
    far = [row for row in rows if abs(row["gain"]) > 2 * row["gain_se"]]
    lines = [
        [row["rows"], row["decides"], f"{row['runs']:.0f}",
         f"{row['taken']:.1%} ({row['low']:.1%} to {row['high']:.1%})", f"{row['taken_2']:.1%}",
         signed(row["gain"], row["gain_se"])]
        for row in rows
    ]  # fmt: skip
    header = ["rows", "who decides", "runs", "baseline left", "with `guard=2`", "mean reported gain (points)"]
    return "\n".join(
        [
            "# Guards on noise\n",
            "Labels without any relation to the columns, in every way that rows may depend on each other. *Rules* say "
            "the sign of a column each, so that nothing is learnt and the true gain over the baseline, another column, "
            "is exactly 0; *learners* are naive Bayes, the nearest neighbour and a tree against logistic regression; "
            "*threshold* is the exact threshold of logistic regression, *close-k* the search with three strengths of "
            "the penalty. Everything else is at its default. 400 rows; groups are given where there are any, of "
            "users by items both.\n",
            f"A baseline is left most often in {most['taken']:.1%} of the runs ({most['decides']}, {most['rows']}). "
            f"The mean reported gain is within two standard errors of 0 in {len(rows) - len(far)} of {len(rows)} "
            "cases; by chance one in twenty is not.\n",
            markdown(header, lines),
            made_by("level"),
        ]
    )


EXPERIMENT = Experiment("level", run, table, page, splits=200)

"""How often a guard replaces its baseline when there is nothing to gain, and what gain it reports.

The labels are noise that is unrelated to the columns. Challengers are fixed rules (the sign of a column: such a rule
learns nothing and has a true gain of exactly 0), classifiers that learn, thresholds, and close-k. Rows are either
independent or dependent through groups, time, copies, or two kinds of groups at once.
"""

import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, RepeatedStratifiedKFold, StratifiedShuffleSplit, TimeSeriesSplit
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from closecall import CloseKClassifierCV
from closecall.model_selection import ExactThresholdClassifier, GuardedClassifierCV
from closecall.model_selection.contest import Folding, RowContest
from closecall.model_selection.folds import equal_rows, fold_pairs
from closecall.paired import GUARD, STRICT, TINY, Comparison, Gain, compare, units_of
from reproduction.protocol.stats import fraction_interval

from .common import Array, Experiment, Row, Settings, lines_of, markdown, mean_error, read_csv, resume, signed

#: Runs in one record: each takes a fraction of a second.
BATCH = 50
COMPARED = (
    "gain", "standard_error", "degrees_of_freedom", "units", "unit", "chance", "over_guessing", "over_guessing_needed",
    "balanced",
)  # fmt: skip
#: With such a weak guard, every gain passes and the comparison contains all its numbers.
WEAKEST = 1e-6
REPEATED = RepeatedStratifiedKFold(n_splits=5, n_repeats=5, random_state=0)
SHUFFLED = StratifiedShuffleSplit(20, random_state=0)
Data = tuple[Array, Array, dict[str, Any]]
Runs = list[list[list[Any]]]


class Rule(ClassifierMixin, BaseEstimator):
    """A classifier that predicts the sign of a column, without any training."""

    def __init__(self, column: int = 0) -> None:
        self.column = column

    def fit(self, X: Array, y: Array, sample_weight: Any = None) -> Self:
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        return self

    def predict(self, X: Array) -> Array:
        return self.classes_[(X[:, self.column] > 0).astype(int)]


# --- data whose labels are unrelated to the columns


def plain(rng: np.random.Generator, columns: int, rows: int = 400) -> Data:
    return rng.normal(size=(rows, columns)), rng.permutation(np.arange(rows) % 2), {}


def weighed(weight: float, rng: np.random.Generator, columns: int) -> Data:
    X, y, _ = plain(rng, columns)
    return X, y, {"sample_weight": np.full(len(y), weight)}


def uneven(rng: np.random.Generator, columns: int) -> Data:
    X, y, _ = plain(rng, columns)
    return X, y, {"sample_weight": rng.lognormal(sigma=1.5, size=len(y))}


def grouped(rng: np.random.Generator, columns: int, sizes: Array | None = None) -> Data:
    """Return rows in groups; columns and labels are similar within each group."""
    sizes = np.full(20, 20) if sizes is None else sizes
    member = np.repeat(np.arange(len(sizes)), sizes)
    X = rng.normal(size=(len(sizes), columns))[member] + 0.3 * rng.normal(size=(len(member), columns))
    y = rng.normal(size=len(sizes))[member] + 0.3 * rng.normal(size=len(member)) > 0
    return X, y.astype(int), {"groups": member}


def lopsided(rng: np.random.Generator, columns: int) -> Data:
    return grouped(rng, columns, 4 + rng.geometric(0.05, 20))


def series(rng: np.random.Generator, columns: int, rows: int = 400, memory: float = 0.9) -> Data:
    """Return autocorrelated columns and an autocorrelated label with both classes in the first sixth of the rows."""
    steps = rng.normal(size=(rows + 200, columns + 1))
    for row in range(1, len(steps)):
        steps[row] = memory * steps[row - 1] + np.sqrt(1 - memory**2) * steps[row]
    y = (steps[200:, 0] > 0).astype(int)
    if rows == 400 and len(np.unique(y[: rows // 6])) < 2:  # the first training part needs both
        return series(rng, columns)
    return steps[200:, 1:], y, {}


def copied(rng: np.random.Generator, columns: int) -> Data:
    """Return four copies of each of a hundred rows."""
    X, y, _ = plain(rng, columns, 100)
    order = rng.permutation(np.tile(np.arange(100), 4))
    return X[order], y[order], {}


def panel(rng: np.random.Generator, columns: int) -> Data:
    """Return twenty members, each observed twenty times: an autocorrelated series around the member's own mean."""
    pieces = [series(rng, columns, 20) for _ in range(20)]
    X = np.concatenate([piece[0] + rng.normal(size=columns) for piece in pieces])
    return X, np.concatenate([piece[1] for piece in pieces]), {"groups": np.repeat(np.arange(20), 20)}


def crossed(rng: np.random.Generator, columns: int) -> Data:
    """Return one row for each pair of a user and an item (twenty each); both have effects, and both are groups."""
    user, item = np.divmod(np.arange(400), 20)
    both = rng.normal(size=(20, columns + 1))[user] + rng.normal(size=(20, columns + 1))[item]
    both += 0.5 * rng.normal(size=both.shape)
    return both[:, 1:], (both[:, 0] > 0).astype(int), {"groups": np.column_stack([user, item])}


def recognised(both: bool, rng: np.random.Generator, columns: int) -> Data:
    """Return twenty rows for each of twenty members, who determine the columns and label; times may be groups too."""
    time, member = np.divmod(np.arange(400), 20)
    rows = rng.normal(size=(20, columns + 1))[member] + 0.3 * rng.normal(size=(400, columns + 1))
    groups = np.column_stack([time, member]) if both else member
    return rows[:, 1:], (rows[:, 0] > np.median(rows[:, 0])).astype(int), {"groups": groups}


# --- guarded classifiers


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
    """The data and the guarded classifier, with their descriptions."""

    rows: str
    decides: str
    data: Callable[..., Data]
    judge: Callable[[], Any]
    columns: int = 10


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
        overlap = name in ("repeated", "shuffled")
        for count in (1, 20, 60, 100) if name == "plain" else (1, 20) if overlap else (1, 20, 100):
            judge = partial(rules, count, cv)
            found[f"{name}, {count} rules"] = Case(words, f"{count} rules", data, judge, count + 1)
        found[f"{name}, threshold"] = Case(words, "threshold", data, partial(threshold, cv), 5)
        if name not in ("uneven", "weight 20", "weight 0.05"):  # nearest neighbours do not support weights
            found[f"{name}, learners"] = Case(words, "learners", data, partial(learners, cv), 5)
        if name not in ("uneven", "lopsided") and not overlap:
            found[f"{name}, close-k"] = Case(words, "close-k", data, partial(close_k, own), 5)
    for name, words, cv in (
        ("items", "20 users by 20 items that decide the label", None),
        ("members", "20 times of 20 members that decide the label, TimeSeriesSplit(5)", TimeSeriesSplit(5)),
    ):
        found[f"{name}, learners"] = Case(words, "learners", partial(recognised, cv is None), partial(learners, cv), 5)
    score = "balanced_accuracy"
    for count in (1, 20):
        judge, words = partial(rules, count, None, score), f"independent, scoring={score}"
        found[f"{score}, {count} rules"] = Case(words, f"{count} rules", plain, judge, count + 1)
    return found


CASES = _cases()


def run_one(key: Row) -> Row:
    """Return the comparisons that the guard makes in a batch of runs."""
    case, found = CASES[key["case"]], []
    for seed in range(BATCH * key["batch"], BATCH * (key["batch"] + 1)):
        rng = np.random.default_rng([seed, zlib.crc32(key["case"].encode())])
        X, y, params = case.data(rng, case.columns)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            judge = case.judge().set_params(guard=WEAKEST)
            if case.decides.endswith("rules") and judge.scoring is None:
                steps = [asdict(judged(judge, X, y, params))]
            else:
                report = judge.fit(X, y, **params).guard_report_
                steps = report.get("comparisons") or [report.get("comparison") or report]
        found.append([[step[name] for name in COMPARED] for step in steps])
    return {"steps": found}


def judged(judge: GuardedClassifierCV, X: Array, y: Array, params: dict[str, Any]) -> Comparison:
    """Return the comparison that a referee reports for rules; no fit is needed, because rules learn nothing."""
    right = ((X > 0) == (y[:, None] == y.max())).T
    both = np.stack([right, right], axis=1)
    contest = contest_of(both, X, y, judge.cv, params.get("groups"), params.get("sample_weight", np.ones(len(y))))
    return compare("", "", contest.gain(), judge.guard, partial(contest.informed, y))


def contest_of(right: Array, X: Array, y: Array, cv: Any, groups: Array | None, weights: Array) -> RowContest:
    """Return a referee's contest; ``right`` (members, 2, rows) marks correct predictions in its own and fresh folds."""
    divisions = []
    for fresh in (0, 1):
        pairs = fold_pairs(cv, X, y, groups, fresh=bool(fresh))
        parts = {(m, f): rows[fresh, test] for m, rows in enumerate(right) for f, (_, test) in enumerate(pairs)}
        divisions.append(Folding(pairs, {place: (float(part.mean()), part) for place, part in parts.items()}))
    return RowContest(divisions, len(right), weights, units_of(equal_rows(X), groups, divisions[0].pairs))


def run(settings: Settings) -> None:
    cases = [case for case in CASES if not settings.sets or case in settings.sets]
    batches = range(-(-settings.splits // BATCH))
    resume(settings, "level", [{"case": case, "batch": n} for case in cases for n in batches], run_one)


def runs_of(settings: Settings) -> dict[str, Runs]:
    """Return the comparisons of every run, by case."""
    lines = lines_of(settings, "level")
    found = {name: [steps for line in lines if line["case"] == name for steps in line["steps"]] for name in CASES}
    return {name: runs for name, runs in found.items() if runs}


def passed(runs: Runs, guard: float) -> list[bool]:
    """Return, for each run, whether a guard accepts a challenger."""
    return [any(left(step, guard) for step in steps) for steps in runs]


def left(step: Sequence[Any], guard: float) -> bool:
    """Return whether a guard accepts the challenger of a stored comparison."""
    *gain, over, needed, balanced = step
    better = compare("", "", Gain(*gain), guard).taken or (gain[0] > TINY and balanced > guard)
    return better and not over <= needed


def table(settings: Settings) -> list[Row]:
    """Return a row for each case that was run; if only some were requested, the others keep their published rows."""
    stored, ran = settings.out / "beyond" / "level.csv", runs_of(settings)
    kept = {row["case"]: row for row in read_csv(stored)} if settings.sets and stored.exists() else {}
    return [summary(name, ran[name]) if name in ran else kept[name] for name in CASES if name in ran or name in kept]


def summary(name: str, runs: Runs) -> Row:
    """Return the row of a case, with the default guard."""
    case = CASES[name]
    default = STRICT if case.decides == "threshold" or getattr(case.judge(), "scoring", None) else GUARD
    taken = passed(runs, default)
    low, high = fraction_interval(sum(taken), len(taken))
    gain, error = mean_error([100 * steps[-1][0] for steps in runs])
    words = {"case": name, "rows": case.rows, "decides": case.decides, "guard": default, "runs": len(runs)}
    share = {"taken": float(np.mean(taken)), "low": low, "high": high}
    return words | share | {"gain": gain, "gain_se": error}


def page(rows: list[Row], figure: Path) -> Row:
    most = max(rows, key=lambda row: row["taken"])
    rules = [row for row in rows if str(row["decides"]).endswith("rules")]
    near = sum(abs(row["gain"]) <= 2 * row["gain_se"] for row in rules)
    lines = [
        [row["rows"], row["decides"], f"{row['runs']:.0f}", f"{row['guard']:g}",
         f"{row['taken']:.1%} ({row['low']:.1%} to {row['high']:.1%})", signed(row["gain"], row["gain_se"])]
        for row in rows
    ]  # fmt: skip
    header = ["rows", "who decides", "runs", "guard", "baseline left", "mean reported gain (points)"]
    return {"most": most, "cases": len(rows), "near": near, "rules": len(rules), "table": markdown(header, lines)}


EXPERIMENT = Experiment("level", run, table, page, splits=200)

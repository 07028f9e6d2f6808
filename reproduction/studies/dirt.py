"""A study of squashing, close-k and their rivals on forty sets, with seven kinds of contaminated training rows.

Sets, contaminations, methods and settings were fixed before the run. Only the bounds of ``SquashingScaler`` had been
tuned, on half of these sets, for logistic regression.
"""

import gzip
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
from scipy.stats import t as student
from sklearn.ensemble import HistGradientBoostingClassifier, IsolationForest, RandomForestClassifier
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from closecall import CloseKClassifierCV, SquashingScaler
from closecall.preprocessing import robust_scale
from reproduction.protocol.synthetic import outliers

from . import common
from .common import Array, Experiment, Row, Settings, dataset, lines_of, markdown

#: Two-class PMLB sets of 120 to 2,300 rows and at most 60 columns, without duplicates and without sets in which linear
#: models cannot find anything (GAMETES, parity, mux6).
SETS = (
    "analcatdata_boxing1", "analcatdata_boxing2", "analcatdata_lawsuit", "australian", "backache", "biomed",
    "breast-cancer", "breast-w", "bupa", "cleve", "colic", "corral", "diabetes", "flare", "german", "glass2",
    "haberman", "heart-h", "heart-statlog", "hepatitis", "house-votes-84", "ionosphere", "irish", "mofn-3-7-10",
    "monk1", "monk2", "monk3", "prnn_crabs", "prnn_synth", "profb", "saheart", "sonar", "spect", "spectf",
    "threeOf9", "tic-tac-toe", "titanic", "tokyo1", "wdbc", "xd6",
)  # fmt: skip
#: Sets of logical rules, which suit trees.
LOGIC = ("monk1", "monk2", "monk3", "threeOf9", "xd6", "tic-tac-toe", "mofn-3-7-10", "corral")
TEST = 0.25

Dirt = Callable[[Array, Array, np.random.Generator], tuple[Array, Array]]


# --- contaminations of the training rows, X (rows, columns) and y (rows,) of -1 and 1


def _column(X: Array, y: Array, rng: np.random.Generator, shift: bool) -> tuple[Array, Array]:
    """Shift a twentieth of the cells of one column by 10 to 30 standard deviations, or multiply them by a thousand."""
    X, j, wild = X.copy(), rng.integers(X.shape[1]), rng.random(len(X)) < 0.05
    moved = X[:, j] + rng.uniform(10, 30, len(X)) * rng.choice([-1, 1], len(X)) * X[:, j].std()
    X[wild, j] = moved[wild] if shift else 1000 * X[wild, j]
    return X, y


def _entries(X: Array, y: Array, rng: np.random.Generator, sentinel: bool) -> tuple[Array, Array]:
    return np.where(rng.random(X.shape) < 0.05, -999.0 if sentinel else 100 * X, X), y


def _flips(X: Array, y: Array, rng: np.random.Generator, one: bool) -> tuple[Array, Array]:
    wrong = (rng.random(len(y)) < 0.3) & (y == rng.choice([-1, 1])) if one else rng.random(len(y)) < 0.2
    return X, np.where(wrong, -y, y)


KINDS: dict[str, Dirt] = {
    "clean": lambda X, y, rng: (X, y),
    "5 % far rows": lambda X, y, rng: outliers(X, y, round(0.05 * len(y)), rng),
    "5 % far in one column": partial(_column, shift=True),
    "5 % entries x 100": partial(_entries, sentinel=False),
    "5 % entries -999": partial(_entries, sentinel=True),
    "one column x 1000 in 5 %": partial(_column, shift=False),
    "20 % flips": partial(_flips, one=False),
    "30 % of one class flipped": partial(_flips, one=True),
}


# --- the rivals


class Clipped(FunctionTransformer):  # type: ignore[misc]
    """A transformer that clips columns at three robust deviations."""

    def fit(self, X: Array, y: Any = None) -> Self:
        self.center_, self.scale_ = robust_scale(X)
        return self

    def transform(self, X: Array) -> Array:
        return np.clip((X - self.center_) / self.scale_, -3, 3)


def _logistic() -> Any:
    return LogisticRegressionCV(Cs=10, l1_ratios=(0,), use_legacy_attributes=False, cv=5, max_iter=1000)


class Kept:
    """Logistic regression, fitted to the standardised rows that a filter keeps."""

    def __init__(self, judge: Callable[[Array, Array], Array]) -> None:
        self.judge = judge

    def fit(self, X: Array, y: Array) -> Self:
        kept = self.judge(StandardScaler().fit_transform(X), y)
        enough = kept.any() and np.unique(y[kept], return_counts=True)[1].min() >= 5 and len(np.unique(y[kept])) == 2
        kept = kept if enough else np.ones(len(y), dtype=bool)
        self.model = make_pipeline(StandardScaler(), _logistic()).fit(X[kept], y[kept])
        return self

    def score(self, X: Array, y: Array) -> float:
        return float(self.model.score(X, y))


def _confident(X: Array, y: Array) -> Array:
    from cleanlab.classification import CleanLearning

    judge = CleanLearning(LogisticRegression(max_iter=1000), seed=0, find_label_issues_kwargs={"n_jobs": 1})
    found = judge.find_label_issues(X, (y > 0).astype(int))
    return ~found["is_label_issue"].to_numpy()


def _skrub() -> Any:
    from skrub import SquashingScaler as Theirs

    return Theirs()


BASE, SQUASHED, OURS, FOREST = "LogisticRegressionCV", "squashed LR", "squashed close-k", "random forest"
METHODS: dict[str, Callable[[], Any]] = {
    BASE: lambda: make_pipeline(StandardScaler(), _logistic()),
    "clipped LR": lambda: make_pipeline(Clipped(), _logistic()),
    SQUASHED: lambda: make_pipeline(SquashingScaler(), _logistic()),
    "skrub's scaler, LR": lambda: make_pipeline(_skrub(), _logistic()),
    "CloseKClassifierCV": lambda: make_pipeline(StandardScaler(), CloseKClassifierCV(random_state=0)),
    OURS: lambda: make_pipeline(SquashingScaler(), CloseKClassifierCV(random_state=0)),
    "cleanlab, LR": lambda: Kept(_confident),
    "IsolationForest, LR": lambda: Kept(lambda X, y: IsolationForest(random_state=0).fit_predict(X) == 1),
    FOREST: lambda: RandomForestClassifier(random_state=0),
    "boosting": lambda: HistGradientBoostingClassifier(random_state=0),
}
#: The page compares squashed close-k with the best of these.
RIVALS = ("clipped LR", "cleanlab, LR", "IsolationForest, LR")


def scores(key: Row) -> Row:
    """Return each method's accuracy in percent on clean test rows, for every contamination of the training rows."""
    data = dataset(f"pmlb:{key['set']}")
    X, y = np.asarray(data.X, dtype=float), data.signs()
    X = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    cut = StratifiedShuffleSplit(1, test_size=TEST, random_state=key["split"])
    ((train, test),) = cut.split(X, y)
    found: Row = {}
    for place, (kind, dirty) in enumerate(KINDS.items()):
        rng = np.random.default_rng([SETS.index(key["set"]), key["split"], place])
        A, b = dirty(X[train], y[train], rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found[kind] = {name: 100 * make().fit(A, b).score(X[test], y[test]) for name, make in METHODS.items()}
    return found


def run(settings: Settings) -> None:
    keys = [
        {"set": name, "split": split} for split in range(settings.splits) for name in SETS
        if not settings.sets or name in settings.sets
    ]  # fmt: skip
    common.resume(settings, "dirt", keys, scores)


# --- the table and the page


def interval(values: Array) -> tuple[float, float, float]:
    """Return the mean over the sets and its 95 % interval."""
    half = student.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return float(values.mean()), float(values.mean() - half), float(values.mean() + half)


def table(settings: Settings) -> list[Row]:
    """Return a row for each contamination and method, over all sets, and write a table of every set."""
    lines = common.with_enough(lines_of(settings, "dirt"), settings.splits)
    rows = []
    for kind in KINDS:
        for method in METHODS:
            for name in SETS:
                values = [line[kind][method] for line in lines if line["set"] == name]
                if values:
                    rows.append({"kind": kind, "method": method, "set": name, "splits": len(values),
                                 "accuracy": float(np.mean(values))})  # fmt: skip
    wide: dict[tuple[str, str], Row] = {}
    for row in rows:
        mine = wide.setdefault((row["set"], row["kind"]), {name: row[name] for name in ("set", "kind", "splits")})
        mine[row["method"]] = row["accuracy"]
    path = settings.out / "beyond" / "dirt-sets.csv"
    common.write_csv(path, list(wide.values()))
    (path.parent / f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return summary(rows)


def summary(rows: Sequence[Row]) -> list[Row]:
    """Return the mean gains over LogisticRegressionCV, over squashed LR and over a forest, with 95 % intervals."""
    values, plain, found = _values(rows), _values(rows, LOGIC), []
    for kind in KINDS:
        for method in METHODS:
            mine = values[kind, method]
            row: Row = {"place": f"{kind}/{method}".replace(" ", "_").replace(",", ""), "kind": kind, "method": method}
            row |= {"sets": len(mine), "splits": min(each["splits"] for each in rows), "accuracy": float(mine.mean())}
            pairs = {"": mine - values[kind, BASE], "squashed_": mine - values[kind, SQUASHED],
                     "forest_": plain[kind, method] - plain[kind, FOREST]}  # fmt: skip
            for name, moves in pairs.items():
                row |= dict(zip((f"{name}gain", f"{name}low", f"{name}high"), interval(moves), strict=True))
            found.append(row)
    return found


def _values(rows: Sequence[Row], without: Sequence[str] = ()) -> dict[tuple[str, str], Array]:
    found: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        if row["set"] not in without:
            found.setdefault((row["kind"], row["method"]), []).append(row["accuracy"])
    return {key: np.array(values) for key, values in found.items()}


def _shown(row: Row, name: str = "") -> str:
    return f"{row[f'{name}gain']:+.1f} ({row[f'{name}low']:+.1f}, {row[f'{name}high']:+.1f})"


def page(rows: Sequence[Row], figure: Path) -> Row:
    at = {(row["kind"], row["method"]): row for row in rows}
    gaps = [max(at[kind, name]["accuracy"] for name in RIVALS) - at[kind, OURS]["accuracy"] for kind in KINDS]
    header, (worst, where) = ["", *KINDS], max(zip(gaps, KINDS, strict=True))
    lines = [["*accuracy of LogisticRegressionCV*", *(f"{at[kind, BASE]['accuracy']:.1f}" for kind in KINDS)]]
    lines += [[method, *(_shown(at[kind, method]) for kind in KINDS)] for method in METHODS if method != BASE]
    more = [
        [f"{OURS} over {SQUASHED}", *(_shown(at[kind, OURS], "squashed_") for kind in KINDS)],
        [f"best of clipped LR, cleanlab and IsolationForest over {OURS}", *(f"{gap:+.1f}" for gap in gaps)],
        [f"{OURS} over a random forest, without the {len(LOGIC)} sets of logical rules",
         *(_shown(at[kind, OURS], "forest_") for kind in KINDS)],
    ]  # fmt: skip
    cells = [at[kind, SQUASHED]["gain"] for kind in list(KINDS)[2:6]]
    far, clean = (_shown(at[kind, OURS], "squashed_") for kind in ("5 % far rows", "clean"))
    return {
        "least": min(cells), "most": max(cells), "far": far, "clean": clean, "worst": -worst, "where": where,
        "sets": int(rows[0]["sets"]), "splits": int(rows[0]["splits"]), "table": markdown(header, lines),
        "more": markdown(header, more),
    }  # fmt: skip


EXPERIMENT = Experiment("dirt", run, table, page)

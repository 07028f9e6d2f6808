"""Every aggregate, the baselines and a tree on one table, by the rules of the protocol ``sound``.

Splits are 50/25/25 and stratified, preprocessing is fitted on the training part, every setting of the grid is solved
in one batch, the validation part chooses, the test part counts. Intervals and tests are Nadeau & Bengio's corrected
ones, Holm-adjusted over the questions asked of this table. More than two classes are one against the rest.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import stats
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier

from closecall._names import Array
from closecall.bench.baselines import sklearn_baselines
from closecall.bench.plan import ALPHAS, k_grid
from closecall.bench.record import BASELINES, PARTS, ROW, choose
from closecall.bench.stats import POINTS, SIGNIFICANCE, TEST_OVER_TRAIN, corrected_test, holm
from closecall.data.simulate import shares
from closecall.linear import Diagnosis, diagnose
from closecall.linear.fitting import Options, exact_intercepts, fit_models
from closecall.linear.race import hits
from closecall.linear.training import check_training
from closecall.objective import Problem

from .model import Preprocessor
from .table import Table, check_classes

SHARES = (50, 25, 25)
#: A class needs this many rows to be in all three parts.
LEAST = 4
TREE = "gradient_boosting"
#: The methods in words.
NAMES = {
    "average": "average", "maximal": "maximal", "top": "top-k", "atk": "average top-k", "close": "close-k",
    "close_decay": "close-k, decay", "trimmed": "trimmed", "ranked_range": "ranked range",
    **BASELINES, "tuned_threshold": "TunedThresholdCV", TREE: "HistGradientBoosting",
}  # fmt: skip
#: Shares of the largest losses that `trimmed` and `ranked_range` leave out.
TRIMS = (0.01, 0.1)
VERDICTS = {
    "close-k": "use close-k",
    "logistic": "plain logistic regression is as good",
    "tree": "a tree would do much better",
}


class Split(NamedTuple):
    """The chosen rows of one split (dtype ROW, parts as counts of correct predictions) and the sizes of two parts."""

    rows: Array
    training: int
    test: int


@dataclass(frozen=True)
class Result:
    """One method over the splits: test accuracies, and the setting that validation chose most often.

    Parameters
    ----------
    method, label : str
    accuracies : tuple of float
        One for each split.
    k, alpha : float
        NaN where there is none.
    """

    method: str
    label: str
    accuracies: tuple[float, ...]
    k: float
    alpha: float

    @property
    def mean(self) -> float:
        """Mean accuracy."""
        return float(np.mean(self.accuracies))

    @property
    def half_width(self) -> float:
        """Half of the 95 % interval, corrected for splits that share rows."""
        splits = len(self.accuracies)
        spread = np.std(self.accuracies, ddof=1) * np.sqrt(1 / splits + TEST_OVER_TRAIN)
        return float(stats.t.ppf(1 - SIGNIFICANCE / 2, splits - 1) * spread)


@dataclass(frozen=True)
class Comparison:
    """What :func:`conclude` makes of the splits: results best first, the verdict and its reason."""

    results: tuple[Result, ...]
    verdict: str
    reason: str
    majority: float
    training_rows: int


def run_splits(table: Table, splits: int = 10, *, max_iter: int = 300, seed: int = 0) -> Iterator[Split]:
    """For each split the chosen row of each method, as in :func:`closecall.bench.record.choose`.

    Parameters
    ----------
    table : Table
    splits : int
    max_iter : int
    seed : int

    Yields
    ------
    Split
    """
    check_classes(table, LEAST)
    if splits < 2:
        raise ValueError(f"--splits must be 2 or more, not {splits}: an interval needs them")
    classes, codes = np.unique(table.labels.astype(str), return_inverse=True)
    for split in range(splits):
        parts = divide(codes, np.random.default_rng([seed, split]))
        recipe = Preprocessor.fit(table.frame.iloc[parts[0]], table.columns)
        X = [recipe.matrix(table.frame.iloc[part]) for part in parts]
        y = [codes[part] for part in parts]
        rows = np.concatenate([_aggregates(X, y, max_iter), _baselines(X, y, len(classes)), _tree(X, y)])
        yield Split(choose(rows, "sound"), len(parts[0]), len(parts[2]))


def divide(codes: Array, rng: np.random.Generator) -> list[Array]:
    """Rows of the training, validation and test part, each class divided 50/25/25 by itself.

    Examples
    --------
    >>> [len(part) for part in divide(np.repeat([0, 1, 2], [8, 4, 4]), np.random.default_rng(0))]
    [8, 4, 4]
    """
    parts: list[list[Array]] = [[], [], []]
    for code in np.unique(codes):
        members = rng.permutation(np.flatnonzero(codes == code))
        train, validation, _ = shares(len(members), SHARES)
        for part, rows in zip(parts, np.split(members, [train, train + validation]), strict=True):
            part.append(rows)
    return [np.sort(np.concatenate(part)) for part in parts]


def grid(n: int) -> list[tuple[Problem, float]]:
    """Every aggregate at every k and alpha for n training rows, with how many examples each looks at."""
    settings: list[tuple[str, int | None, float | None, float]] = [
        ("average", None, None, n),
        ("maximal", None, None, 1),
    ]
    settings += [(method, k, None, k) for method in ("top", "atk", "close", "close_decay") for k in k_grid(n)]
    settings += [("trimmed", None, m, n * (1 - m)) for m in TRIMS]
    settings += [("ranked_range", max(2, n // 2), m, n // 2 - n * m) for m in TRIMS]
    return [
        (Problem("logistic", method, k, alpha, m), float(looks))
        for method, k, m, looks in settings
        for alpha in ALPHAS
    ]  # fmt: skip


def _aggregates(X: Sequence[Array], y: Sequence[Array], max_iter: int) -> Array:
    settings = grid(len(y[0]))
    problems = [problem for problem, _ in settings]
    training = check_training(BaseEstimator(), X[0], y[0], None, None)
    options = Options(max_iter, 1e-3, True, False, "ovr", dtype=np.float32)
    models = fit_models(training, problems, options)
    rows = np.zeros(len(problems), ROW)
    rows["method"], rows["alpha"] = [p.aggregate for p in problems], [p.alpha for p in problems]
    rows["k"] = [looks for _, looks in settings]
    average = rows["method"] == "average"
    moved = rows[average]
    moved["method"] = "average_exact_intercept"
    intercept = exact_intercepts(training, models.coef[average], options)
    for part, X_part, y_part in zip(PARTS, X, y, strict=True):
        rows[part] = hits(X_part, y_part, models.coef, models.intercept).sum(axis=1)
        moved[part] = hits(X_part, y_part, models.coef[average], intercept).sum(axis=1)
    return np.concatenate([rows, moved])


def _baselines(X: Sequence[Array], y: Sequence[Array], classes: int) -> Array:
    if classes == 2:
        return sklearn_baselines(X, [2.0 * part - 1 for part in y], ALPHAS)
    rows = sklearn_baselines(X, y, ALPHAS)
    return rows[rows["method"] != "tuned_threshold"]  # there is no one threshold to tune


def _tree(X: Sequence[Array], y: Sequence[Array]) -> Array:
    rows = np.zeros(1, ROW)
    rows["method"], rows["k"], rows["alpha"] = TREE, np.nan, np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        tree = HistGradientBoostingClassifier(random_state=0, early_stopping=False).fit(X[0], y[0])
    for part, X_part, y_part in zip(PARTS, X, y, strict=True):
        rows[part] = (tree.predict(X_part) == y_part).sum()
    return rows


def conclude(table: Table, splits: Sequence[Split]) -> Comparison:
    """Rank the methods over the splits and say what to use.

    Parameters
    ----------
    table : Table
    splits : sequence of Split
        As :func:`run_splits` yields them.
    """
    results = []
    for method, label in NAMES.items():
        rows = [row for split in splits for row in split.rows[split.rows["method"] == method]]
        if rows:
            (k, alpha), _ = Counter((float(row["k"]), float(row["alpha"])) for row in rows).most_common(1)[0]
            if method in (TREE, *BASELINES):
                k = float("nan")
            accuracies = tuple(float(row["test"] / split.test) for row, split in zip(rows, splits, strict=True))
            results.append(Result(method, label, accuracies, k, alpha if method != TREE else float("nan")))
    found = {result.method: result for result in results}
    verdict, reason = judge(found)
    _, counts = np.unique(table.labels.astype(str), return_counts=True)
    ranked = tuple(sorted(results, key=lambda result: -result.mean))
    return Comparison(ranked, verdict, reason, float(counts.max() / counts.sum()), splits[0].training)


def judge(found: dict[str, Result]) -> tuple[str, str]:
    """The verdict (a key of VERDICTS) and its reason in words.

    Examples
    --------
    >>> def flat(method, *scores): return Result(method, method, scores, 1.0, 1.0)
    >>> judge({"average": flat("average", 0.8, 0.81, 0.79), "close_decay": flat("close_decay", 0.9, 0.91, 0.9),
    ...        TREE: flat(TREE, 0.9, 0.9, 0.91)})[0]
    'close-k'
    """
    average, close, tree = found["average"], found["close_decay"], found[TREE]
    best = max(average, close, key=lambda result: result.mean)
    pairs = [(close, average), (tree, best)]
    p = holm(np.array([corrected_test(np.array(a.accuracies), np.array(b.accuracies)) for a, b in pairs]))
    gains = [a.mean - b.mean for a, b in pairs]
    real = [bool(value < SIGNIFICANCE) for value in p]
    words = [
        f"{100 * gain:+.1f} points, p = {value:.2g}" if gain else "no difference"
        for gain, value in zip(gains, p, strict=True)
    ]
    reason = (
        f"close-k with decay against the average loss: {words[0]}; a tree against the better of the two: {words[1]}"
    )
    linear = "close-k" if real[0] and gains[0] > 0 else "logistic"
    if real[1] and gains[1] >= POINTS:
        return "tree", f"{reason}; if it has to be linear, {VERDICTS[linear]}"
    return linear, reason


def diagnosis_of(table: Table) -> Diagnosis:
    """The four difficult cases on the whole table."""
    X: Any = Preprocessor.fit(table.frame, table.columns).matrix(table.frame)
    return diagnose(X, table.labels.astype(str))

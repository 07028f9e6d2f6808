"""Three ways to learn more than two classes, with close-k, against logistic regression."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import (
    load_diabetes,
    load_digits,
    load_iris,
    load_wine,
    make_blobs,
    make_classification,
    make_friedman1,
)
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.model_selection import StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import closecall
from closecall.stats import holm, mean_interval
from reproduction.protocol.embedded import embedded

from .common import (
    Array,
    Experiment,
    Row,
    Settings,
    interval_chart,
    lines_of,
    made_by,
    of_sets,
    resume,
    save_chart,
    signed,
)
from .compare import overall, overall_table, per_set_table, summarise

TEST_SIZE = 0.25
HOWS = ("ovr", "top_two", "softmax")
BASE = "logistic"
#: What is there for comparison only runs on the first splits.
FEW_SPLITS = 4
OFTEN = ("logistic", "logistic_cv", "cv_top_two")
#: (method, rival): which way to learn several classes should be the default?
DUELS = [
    ("cv_top_two", "logistic_cv"),
    *(
        (f"{kind}_{first}", f"{kind}_{second}")
        for kind in ("close", "cv")
        for first, second in (("top_two", "ovr"), ("top_two", "softmax"))
    ),
]


# --- data sets: scikit-learn's, those that a definition generates, and harder versions of them


def _balance_scale() -> tuple[Array, Array]:
    """UCI's balance-scale: every (weight, distance) left and right in 1..5; tips left, balances, tips right."""
    X = np.array(np.meshgrid(*[range(1, 6)] * 4)).reshape(4, -1).T
    return X.astype(float), 1 + np.sign(X[:, 0] * X[:, 1] - X[:, 2] * X[:, 3]).astype(int)


def _waveform() -> tuple[Array, Array]:
    """Breiman et al.'s waveforms (1984): random mixtures of two of three triangles, and noise."""
    rng = np.random.default_rng(1)
    x = np.arange(1, 22)
    triangles = np.stack([np.maximum(6 - np.abs(x - peak), 0) for peak in (7, 15, 11)])
    y = rng.integers(0, 3, 900)
    u = rng.random((900, 1))
    return u * triangles[y] + (1 - u) * triangles[(y + 1) % 3] + rng.standard_normal((900, 21)), y


def _led() -> tuple[Array, Array]:
    """Breiman et al.'s digits of seven segments, each inverted with probability 0.1: the Bayes error is 26 %."""
    rng = np.random.default_rng(2)
    shapes = [
        "1110111",
        "0010010",
        "1011101",
        "1011011",
        "0111010",
        "1101011",
        "1101111",
        "1010010",
        "1111111",
        "1111011",
    ]
    codes = np.array([[int(bit) for bit in shape] for shape in shapes])
    y = rng.integers(0, 10, 1000)
    return (codes[y] ^ (rng.random((1000, 7)) < 0.1)).astype(float), y


def _titanic_class() -> tuple[Array, Array]:
    """Class or crew from age, sex and survival: few distinct rows, much overlap."""
    data = embedded("titanic")
    return np.column_stack([data.X[:, 1:], data.y]).astype(float), np.asarray(data.X[:, 0]).astype(int)


def _ordered(X: Array, y: Array, *shares: float) -> tuple[Array, Array]:
    """Ordered classes: the target cut at these quantiles."""
    return X, np.digitize(y, np.quantile(y, shares))


def _graded() -> tuple[Array, Array]:
    """Six ordered grades, most of them in the middle, of a noisy linear score: like the grades of wines."""
    rng = np.random.default_rng(7)
    X = rng.standard_normal((1500, 11))
    score = X @ rng.standard_normal(11) + 3 * rng.standard_normal(1500)
    return _ordered(X, score, 0.01, 0.05, 0.48, 0.88, 0.98)


def _noise() -> tuple[Array, Array]:
    """Labels without any relation to the features."""
    rng = np.random.default_rng(8)
    return rng.standard_normal((300, 10)), rng.integers(0, 3, 300)


def _mislabelled(X: Array, y: Array, share: float = 0.2) -> tuple[Array, Array]:
    """A share of the labels is drawn at random."""
    rng = np.random.default_rng(9)
    return X, np.where(rng.random(len(y)) < share, rng.permutation(y), y)


def _with_outliers(X: Array, y: Array, share: float) -> tuple[Array, Array]:
    """The paper's outliers: 10 x2 - 9 x1 with the label of x1, x2 being of another class."""
    rng = np.random.default_rng(3)
    count = round(share * len(y))
    first, second = rng.integers(0, len(y), 40 * count), rng.integers(0, len(y), 40 * count)
    pairs = np.flatnonzero(y[first] != y[second])[:count]
    X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
    far = 10 * X[second[pairs]] - 9 * X[first[pairs]]
    return np.concatenate([X, far]), np.concatenate([y, y[first[pairs]]])


def _imbalanced(X: Array, y: Array) -> tuple[Array, Array]:
    """Class c keeps 0.7^c of its rows."""
    rng = np.random.default_rng(4)
    kept = rng.random(len(y)) < 0.7 ** y.astype(float)
    return X[kept], y[kept]


SETS: dict[str, Callable[[], tuple[Array, Array]]] = {
    "iris": lambda: load_iris(return_X_y=True),
    "wine": lambda: load_wine(return_X_y=True),
    "balance-scale": _balance_scale,
    "diabetes-thirds": lambda: _ordered(*load_diabetes(return_X_y=True), 1 / 3, 2 / 3),
    "diabetes-fifths": lambda: _ordered(*load_diabetes(return_X_y=True), 0.2, 0.4, 0.6, 0.8),
    "friedman-quarters": lambda: _ordered(*make_friedman1(600, noise=2.0, random_state=10), 0.25, 0.5, 0.75),
    "graded": _graded,
    "noise": _noise,
    "waveform": _waveform,
    "led7": _led,
    "blobs": lambda: make_blobs(600, 4, centers=6, cluster_std=3.0, center_box=(-5, 5), random_state=5),
    "clusters": lambda: make_classification(
        800, 12, n_informative=6, n_redundant=2, n_classes=4, n_clusters_per_class=2, flip_y=0.05, random_state=6
    ),
    "many-blobs": lambda: make_blobs(1000, 6, centers=20, cluster_std=2.5, random_state=11),
    "many-clusters": lambda: make_classification(
        1200, 16, n_informative=10, n_classes=12, n_clusters_per_class=1, flip_y=0.05, random_state=12
    ),
    "titanic-class": _titanic_class,
    "iris+mislabelled": lambda: _mislabelled(*load_iris(return_X_y=True)),
    "wine+mislabelled": lambda: _mislabelled(*load_wine(return_X_y=True)),
    "waveform+mislabelled": lambda: _mislabelled(*_waveform()),
    "iris+outliers": lambda: _with_outliers(*load_iris(return_X_y=True), 0.1),
    "wine+outliers": lambda: _with_outliers(*load_wine(return_X_y=True), 0.1),
    "waveform+outliers": lambda: _with_outliers(*_waveform(), 0.1),
    "waveform+imbalance": lambda: _imbalanced(*_waveform()),
    "digits+imbalance": lambda: _imbalanced(*load_digits(return_X_y=True)),
    "digits": lambda: load_digits(return_X_y=True),
}


# --- methods

METHODS: dict[str, Callable[[], Any]] = {
    "logistic": LogisticRegression,
    "logistic_cv": lambda: LogisticRegressionCV(Cs=10.0 ** np.arange(-5, 6), cv=5),
    **{f"average_{how}": lambda how=how: closecall.AggregateLossClassifier(multiclass=how) for how in HOWS},
    **{f"close_{how}": lambda how=how: closecall.CloseKClassifier(multiclass=how) for how in HOWS},
    **{f"cv_{how}": lambda how=how: closecall.CloseKClassifierCV(multiclass=how) for how in HOWS},
}  # type: ignore[misc]
LABELS = {
    "logistic": "LogisticRegression",
    "logistic_cv": "LogisticRegressionCV",
    **{f"average_{how}": f"average, {how}" for how in HOWS},
    **{f"close_{how}": f"CloseKClassifier, {how}" for how in HOWS},
    **{f"cv_{how}": f"CloseKClassifierCV, {how}" for how in HOWS},
}


@lru_cache(maxsize=2)
def _set(name: str) -> tuple[Array, Array]:
    return SETS[name]()


def run_one(key: Row) -> Row:
    """Fit one method on one split (75/25, stratified)."""
    X, y = _set(key["set"])
    splitter = StratifiedShuffleSplit(1, test_size=TEST_SIZE, random_state=key["split"])
    train, test = next(splitter.split(X, y))
    model = make_pipeline(StandardScaler(), METHODS[key["method"]]())
    began = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's notices on convergence and small classes
        model.fit(X[train], y[train])
    record = {"accuracy": float(model.score(X[test], y[test])), "seconds": round(time.process_time() - began, 4)}
    return record | ({"chosen": model[-1].best_params_} if key["method"].startswith("cv_") else {})


def keys(settings: Settings) -> list[Row]:
    names = [name for name in SETS if not settings.sets or name in settings.sets]
    often = [(split, method) for split in range(settings.splits) for method in OFTEN]
    rest = [(split, method) for split in range(FEW_SPLITS) for method in METHODS if method not in OFTEN]
    return [{"set": name, "split": split, "method": method} for split, method in often + rest for name in names]


def run(settings: Settings) -> None:
    resume(settings, "multiclass", keys(settings), run_one)


def table(settings: Settings) -> list[Row]:
    """Every method against logistic regression, then the duels; ``base`` says whose gain it is over."""
    lines, ratio = lines_of(settings, "multiclass"), TEST_SIZE / (1 - TEST_SIZE)
    rows = [row | {"base": BASE} for row in summarise(lines, BASE, list(METHODS), ratio)]
    for first, second in DUELS:
        found = summarise(lines, second, [second, first], ratio)
        rows += [row | {"base": second} for row in found if row["method"] == first]
    return rows


def duel(rows: list[Row], first: str, second: str) -> str:
    """One sentence on two methods over the data sets, paired by split."""
    mine = [row for row in rows if (row["method"], row["base"]) == (first, second)]
    gains, p = np.array([row["gain"] for row in mine]), holm(np.array([row["p"] for row in mine]))
    mean, low, high = mean_interval(gains)
    calm = [row["gain"] for row in mine if not row["set"].endswith("+outliers")]
    without, low_without, high_without = mean_interval(calm)
    return (
        f"{LABELS[first]} minus {LABELS[second]}: {signed(mean)} points on average (95 % interval {signed(low)} to "
        f"{signed(high)}, {len(mine)} sets; median {signed(float(np.median(gains)))}), a point or more better on "
        f"{of_sets((gains >= 1).sum(), len(mine))} and worse on {(gains <= -1).sum()}; significantly better on "
        f"{((p < 0.05) & (gains > 0)).sum()}, worse on "
        f"{((p < 0.05) & (gains < 0)).sum()}. Without the sets with outliers: {signed(without)} ({signed(low_without)} "
        f"to {signed(high_without)})."
    )


def _short(duel: str) -> str:
    """A duel without what stands in brackets and after the semicolon."""
    return re.sub(r" \([^)]*\)", "", duel).partition(";")[0] + "."


def page(rows: list[Row], figure: Path) -> str:
    found = overall([row for row in rows if row["base"] == BASE], BASE)
    shown = [row | {"label": LABELS[row["method"]]} for row in found[1:]]
    save_chart(interval_chart(shown, label="label", title="mean gain over LogisticRegression (points)"), figure)
    duels = [duel(rows, *pair) for pair in DUELS]
    rows = [row for row in rows if row["base"] == BASE]
    splits = int(min(row["splits"] for row in rows if row["method"] == "cv_top_two"))
    return "\n".join(
        [
            "# More than two classes: top two, one against the rest, softmax\n",
            f"**{_short(duels[0])}**\n",
            *(f"- {text}" for text in duels),
            "",
            overall_table(found, LABELS, BASE),
            f"\n![Mean gain of each method](beyond/{figure.name})\n",
            "## Each data set\n",
            "Accuracy (%) of LogisticRegression, and gains over it in points, each ± one standard error over splits.\n",
            per_set_table(rows, [BASE, *(f"{kind}_{how}" for kind in ("close", "cv") for how in HOWS)], LABELS, BASE),
            "\nThe sets: iris, wine, digits and diabetes (progression in thirds and fifths: ordered classes) are "
            "scikit-learn's; balance-scale is the full enumeration; waveform and led7 are Breiman et al.'s generators; "
            "blobs, clusters (four to twenty classes) and friedman (in quarters) are scikit-learn's generators; graded "
            "has six ordered grades of very different size; noise has no structure at all; titanic-class predicts "
            "class or crew. *+outliers* adds 10 % of the paper's outliers, *+imbalance* keeps 0.7^c of class c, "
            "*+mislabelled* draws a fifth of the labels at random.",
            "\n## How it was measured\n",
            f"{len({row['set'] for row in rows})} data sets, {splits} or more stratified splits of 75/25 (what is "
            f"there for comparison only: {FEW_SPLITS}), features scaled on the training part, "
            "defaults throughout (`CloseKClassifier`: k = 0.1, alpha = 1). Times are processor seconds of one fit. "
            "Significance by Nadeau and Bengio's test, Holm over the sets.\n",
            made_by("multiclass"),
        ]
    )


EXPERIMENT = Experiment("multiclass", run, table, page)

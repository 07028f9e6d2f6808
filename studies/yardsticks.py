"""Close decay beside what else one would try: boosting, forests, tuned thresholds, LogisticRegressionCV."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.ensemble import AdaBoostClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegressionCV

import closecall
from closecall.evaluate.baselines import exact_intercepts, sklearn_baselines
from closecall.evaluate.grid import ALPHAS, LABELS as TABLE_LABELS, choose, k_grid, rows_of, score_linear
from closecall.evaluate.splits import Division
from closecall.objective import Problem
from closecall.solvers import solve

from .common import (
    Array,
    Experiment,
    Row,
    Settings,
    division,
    interval_chart,
    made_by,
    save_chart,
    signed,
    with_enough,
)
from .compare import overall, overall_table, per_set_table, records_of, run_on_pmlb, summarise

MAX_ITER = 300
ROUNDS = 200
BASE = "close_decay"
LABELS = {
    **TABLE_LABELS,
    "close_decay_exact": "close decay, exact intercept",
    "adaboost": "AdaBoost (stumps)",
    "boosted_trees": "HistGradientBoosting",
    "forest": "RandomForest",
    "logistic_cv": "LogisticRegressionCV",
    "close_cv": "CloseKClassifierCV",
}


def linear_methods(parts: Division) -> dict[str, tuple[float, float]]:
    """Method -> test accuracy and seconds of what is trained on the training part and chosen on the validation part."""
    n = parts.sizes[0]
    pairs = [("average", n), *(("close_decay", k) for k in k_grid(n))]
    problems = [Problem("logistic", method, k, alpha) for method, k in pairs for alpha in ALPHAS]
    began = time.process_time()
    found = solve(parts.X[0], parts.y[0], problems, max_iter=MAX_ITER, tol=1e-3, dtype=np.float32)
    spent = time.process_time() - began
    plain = rows_of(problems)
    score_linear(plain, found.coef, found.intercept, parts)
    moved = plain.copy()
    score_linear(moved, found.coef, exact_intercepts(found.coef, parts.X[0], parts.y[0]), parts)
    moved["method"] = np.where(moved["method"] == "average", "average_exact_intercept", "close_decay_exact")
    began = time.process_time()
    peers = sklearn_baselines(parts.X, parts.y, ALPHAS)
    spent_peers = time.process_time() - began
    chosen = choose(np.concatenate([plain, moved, peers]), "sound")
    ours = {"average", "close_decay", "average_exact_intercept", "close_decay_exact"}
    return {
        str(row["method"]): (row["test"] / parts.sizes[2], spent if row["method"] in ours else spent_peers)
        for row in chosen
    }


def staged(model: Any, parts: Division) -> tuple[float, float]:
    """(validation, test) accuracy at the round that is best on the validation part; equals go to the earlier one."""

    def accuracies(part: int) -> Array:
        return np.array([(predicted == parts.y[part]).mean() for predicted in model.staged_predict(parts.X[part])])

    validation, test = accuracies(1), accuracies(2)
    return float(validation.max()), float(test[validation.argmax()])


def plain(model: Any, parts: Division) -> tuple[float, float]:
    return float(model.score(parts.X[1], parts.y[1])), float(model.score(parts.X[2], parts.y[2]))


def _adaboost() -> Iterator[Any]:
    yield AdaBoostClassifier(n_estimators=ROUNDS, random_state=0)


def _boosted() -> Iterator[Any]:
    for rate in (0.05, 0.2):
        for leaves in (4, 15):
            yield HistGradientBoostingClassifier(
                learning_rate=rate, max_leaf_nodes=leaves, max_iter=ROUNDS // 2, early_stopping=False, random_state=0
            )


def _forest() -> Iterator[Any]:
    for leaf in (1, 5):
        yield RandomForestClassifier(ROUNDS // 2, min_samples_leaf=leaf, random_state=0)


#: Name -> the models to choose from on the validation part, and how each is scored.
TREES: dict[str, tuple[Callable[[], Iterator[Any]], Callable[[Any, Division], tuple[float, float]]]] = {
    "adaboost": (_adaboost, staged),
    "boosted_trees": (_boosted, staged),
    "forest": (_forest, plain),
}


def tree_methods(parts: Division) -> dict[str, tuple[float, float]]:
    """The same for boosting and forests, their settings and rounds chosen on the validation part."""
    result = {}
    for name, (models, score) in TREES.items():
        began = time.process_time()
        scores = [score(model.fit(parts.X[0], parts.y[0]), parts) for model in models()]
        best = max(range(len(scores)), key=lambda i: (scores[i][0], -i))
        result[name] = scores[best][1], time.process_time() - began
    return result


def tuned_methods(parts: Division) -> dict[str, tuple[float, float]]:
    """What cross-validates by itself gets training and validation part together."""
    X, y = np.concatenate(parts.X[:2]), np.concatenate(parts.y[:2])
    folds = max(2, min(5, int((y > 0).sum()), int((y < 0).sum())))
    models = {
        "logistic_cv": LogisticRegressionCV(Cs=1 / np.array(ALPHAS)[::-1], cv=folds),
        "close_cv": closecall.CloseKClassifierCV(),
    }
    result = {}
    for name, model in models.items():
        began = time.process_time()
        result[name] = float(model.fit(X, y).score(parts.X[2], parts.y[2])), time.process_time() - began
    return result


def run_one(key: Row) -> Row:
    parts = division(key["name"], key["split"])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's notices on convergence
        found = linear_methods(parts) | tree_methods(parts) | tuned_methods(parts)
    return {
        "accuracy": {method: float(accuracy) for method, (accuracy, _) in found.items()},
        "seconds": {method: round(seconds, 4) for method, (_, seconds) in found.items()},
    }


def run(settings: Settings) -> None:
    run_on_pmlb(settings, "yardsticks", run_one)


def table(settings: Settings) -> list[Row]:
    records = records_of(settings, "yardsticks")
    methods = list(dict.fromkeys(record["method"] for record in records))
    return summarise(with_enough(records, settings.splits), BASE, methods)


def page(rows: list[Row], figure: Path) -> str:
    found = sorted(overall(rows, BASE), key=lambda row: -row["mean"])
    shown = [row | {"label": LABELS[row["method"]]} for row in found if row["method"] != BASE]
    save_chart(interval_chart(shown, label="label", title="mean gain over close decay (points)"), figure)
    splits = int(min(row["splits"] for row in rows))
    at = {row["method"]: row for row in found}
    trees, forest = at["boosted_trees"], at["forest"]
    return "\n".join(
        [
            "# Yardsticks: what else one would try\n",
            f"The {found[0]['sets']:.0f} smallest PMLB sets of at least 100 rows, {splits} or more splits of the "
            "sound protocol "
            f"(50/25/25). Linear methods, AdaBoost, boosted trees and forests are trained on the training part and "
            "chosen on the validation part; LogisticRegressionCV and CloseKClassifierCV, which cross-validate by "
            "themselves, get both parts: half as many rows again. Logistic loss, "
            f"{MAX_ITER} steps; AdaBoost up to {ROUNDS} stumps, boosted trees up to {ROUNDS // 2} rounds (two rates, "
            "two sizes), the round chosen on the validation part; forests of "
            f"{ROUNDS // 2} trees (two leaf sizes).\n",
            "Here close decay is what others are measured against: a positive number is a gain of the other one. "
            f"Boosted trees gain {trees['mean']:+.2f} points on average (95 % interval {trees['low']:+.2f} to "
            f"{trees['high']:+.2f}); they are a point or more better on {trees['up']:.0f} sets and worse on "
            f"{trees['down']:.0f} (Wilcoxon p = {trees['wilcoxon']:.2f}); forests {signed(forest['mean'])} "
            f"({signed(forest['low'])} to {signed(forest['high'])}), {forest['up']:.0f} and {forest['down']:.0f} "
            f"(p = {forest['wilcoxon']:.3f}). Where a nonlinear model is welcome, try one first.\n",
            overall_table(found, LABELS, BASE),
            f"\n![Mean gain over close decay](beyond/{figure.name})\n",
            "Seconds are processor time of the whole choice for one split; those of the four methods of one batched "
            "solve, and of scikit-learn's three, are of all of them together.\n",
            "## Each data set\n",
            "Accuracy (%) of close decay and gains over it in points, ± one standard error over splits.\n",
            per_set_table(
                rows,
                [BASE, "average", "average_exact_intercept", "tuned_threshold", "adaboost", "boosted_trees", "forest",
                 "logistic_cv", "close_cv"],
                LABELS,
                BASE,
            ),
            made_by("yardsticks"),
        ]
    )  # fmt: skip


EXPERIMENT = Experiment("yardsticks", run, table, page, splits=5)

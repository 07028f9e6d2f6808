"""What the guard of ``CloseKClassifierCV`` is worth: the same search with several guards, and never leaving average."""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegressionCV

import closecall
from closecall.linear.guard import Setting
from closecall.stats import mean_interval
from reproduction.protocol.grid import ALPHAS
from reproduction.run.scores import title

from .common import (
    Experiment,
    Row,
    Settings,
    division,
    interval_chart,
    lines_of,
    made_by,
    markdown,
    save_chart,
    signed,
    with_enough,
)
from .compare import overall, overall_table, per_set_table, records_of, run_on_pmlb, summarise

DEFAULT = closecall.CloseKClassifierCV().guard
NEVER = 1000.0
GUARDS = (0.0, 1.5, DEFAULT, 4.0, NEVER)
BASE = "never"
PEER = "logistic_cv"


def method_of(guard: float) -> str:
    """A guard's name in the tables.

    Examples
    --------
    >>> method_of(1.5), method_of(1000.0)
    ('guard 1.5', 'never')
    """
    return BASE if guard == NEVER else f"guard {guard:g}"


#: In the order of the tables.
METHODS = (*(method_of(guard) for guard in GUARDS), PEER)
LABELS = {
    **{method: f"`{method.replace(' ', '=')}`" for method in METHODS},
    method_of(0): "`guard=0`: best mean score",
    method_of(DEFAULT): f"`guard={DEFAULT:g}`: the default",
    BASE: "tuned average",
    PEER: "LogisticRegressionCV",
}


def run_one(key: Row) -> Row:
    """Test accuracy, seconds and what was taken; training and validation part are one, for the search to divide."""
    parts = division(key["name"], key["split"])
    X, y = np.concatenate(parts.X[:2]), np.concatenate(parts.y[:2])
    folds = max(2, min(5, int((y > 0).sum()), int((y < 0).sum())))
    models: dict[str, Any] = {method_of(guard): closecall.CloseKClassifierCV(guard=guard) for guard in GUARDS}
    models[PEER] = LogisticRegressionCV(Cs=1 / np.array(ALPHAS)[::-1], cv=folds)
    result: Row = {"accuracy": {}, "seconds": {}, "kind": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn's notices on convergence
        for method, model in models.items():
            began = time.process_time()
            model.fit(X, y)
            result["seconds"][method] = round(time.process_time() - began, 4)
            result["accuracy"][method] = float(model.score(parts.X[2], parts.y[2]))
            if method != PEER:
                result["kind"][method] = Setting(**model.best_params_).kind
    return result


def run(settings: Settings) -> None:
    run_on_pmlb(settings, "guard", run_one)


def table(settings: Settings) -> list[Row]:
    """One row for each (set, method), with the share of the splits on which the search left plain average."""
    left: dict[tuple[str, str], list[bool]] = {}
    for line in lines_of(settings, "guard"):
        for method in METHODS:
            taken = line["kind"].get(method, "average")
            left.setdefault((title(line["name"]), method), []).append(taken != "average")
    found = summarise(with_enough(records_of(settings, "guard"), settings.splits), BASE, METHODS)
    return [row | {"left": float(np.mean(left[row["set"], row["method"]]))} for row in found]


def price(rows: list[Row], method: str) -> Row:
    """What a guard lets through: how often average is left, and the best and the worst that comes of it on a set."""
    mine = [row for row in rows if row["method"] == method]
    gains = np.array([row["gain"] for row in mine])
    return {
        "left": float(np.mean([row["left"] for row in mine])),
        "gained": float(np.maximum(gains, 0).mean()), "lost": float(np.minimum(gains, 0).mean()),
        "worst": float(gains.min()), "worst_set": mine[int(gains.argmin())]["set"],
    }  # fmt: skip


def page(rows: list[Row], figure: Path) -> str:
    found = overall(rows, BASE)
    shown = [row | {"label": LABELS[row["method"]].replace("`", "")} for row in found if row["method"] != BASE]
    save_chart(interval_chart(shown, label="label", title="mean gain over tuned average (points)"), figure)
    splits = int(min(row["splits"] for row in rows))
    at = {row["method"]: row for row in found}
    prices = {method: price(rows, method) for method in METHODS if method not in (BASE, PEER)}
    default, free = method_of(DEFAULT), method_of(0)
    lines = [
        [LABELS[method], f"{p['left']:.0%}", signed(p["gained"]), signed(p["lost"]), signed(p["worst"]), p["worst_set"]]
        for method, p in prices.items()
    ]
    return "\n".join(
        [
            "# What the guard is worth\n",
            f"**With the default guard `CloseKClassifierCV` gains {signed(at[default]['mean'])} points over tuned "
            f"average and is a point or more worse on {at[default]['down']:.0f} of {found[0]['sets']:.0f} sets; "
            f"without a guard it gains {signed(at[free]['mean'])} and is a point or more worse on "
            f"{at[free]['down']:.0f}.** "
            f"With the default the search leaves average in {prices[default]['left']:.0%} of the fits and is "
            f"{_said(at[default])}; with no guard, in {prices[free]['left']:.0%}, and is {_said(at[free])}. The worst "
            f"set loses {-prices[default]['worst']:.2f} points with the guard and {-prices[free]['worst']:.2f} "
            "without. So the guard buys safety and pays for it: the default minus no guard is "
            f"{_duel(rows, default, free)}."
            "\n",
            overall_table(found, LABELS, BASE),
            f"\n![Mean gain over tuned average](beyond/{figure.name})\n",
            "Times are processor seconds of one fit; with `guard=0` the whole grid runs on all folds, else a race.\n",
            "## What it lets through\n",
            "*Gained* and *lost* are the parts of the mean gain that come from the sets with a gain and from those "
            "with a loss, in points.\n",
            markdown(["guard", "fits that leave average", "gained", "lost", "worst set", "which"], lines),
            "\n## Each data set\n",
            "Accuracy (%) of tuned average and gains over it in points, ± one standard error over splits.\n",
            per_set_table(rows, METHODS, LABELS, BASE),
            "\n## How it was measured\n",
            "`CloseKClassifierCV` leaves tuned logistic regression only if a setting beats it by `guard` standard "
            "errors, on rows that did not choose it. Here are the "
            f"{found[0]['sets']:.0f} smallest PMLB sets "
            f"of at least 100 rows, {splits} or more stratified splits of 75/25, everything else at its default. "
            "*Tuned "
            f"average* is the same search with a guard that nothing passes (`guard={NEVER:g}`). How strong a guard "
            "should be is asked of generated tables and of half of these sets, with splits of "
            "their own; on that half this page is a description, not a test.\n",
            made_by("guard"),
        ]
    )


def _duel(rows: list[Row], first: str, second: str) -> str:
    """The first method's mean gain over the second, over the sets."""
    gains = {m: np.array([row["gain"] for row in rows if row["method"] == m]) for m in (first, second)}
    found = gains[first] - gains[second]
    mean, low, high = mean_interval(found)
    return (
        f"{signed(mean)} points on average (95 % interval {signed(low)} to {signed(high)}), a point or more better on "
        f"{(found >= 1 - 1e-9).sum()} sets and a point or more worse on {(found <= -1 + 1e-9).sum()}"
    )


def _said(row: Row) -> str:
    return (
        f"{signed(row['mean'])} points better on average (95 % interval {signed(row['low'])} to "
        f"{signed(row['high'])}), a point or more better on {row['up']:.0f} sets and a point or more worse on "
        f"{row['down']:.0f}"
    )


EXPERIMENT = Experiment("guard", run, table, page, splits=10)

"""Rows to check: how well flipped labels and wild cells are found, beside cleanlab and plain logistic regression."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from closecall import SquashingScaler
from closecall.table.check import close_k_opinion, far_cells, forest_opinion

from .common import Array, Experiment, Row, Settings, dataset, lines_of, made_by, markdown, resume
from .dirt import interval

#: Twenty of the forty sets of the study ``dirt``: of 150 to 1,000 rows, with a signal that some model finds.
SETS = (
    "australian", "biomed", "breast-cancer", "breast-w", "bupa", "cleve", "colic", "diabetes", "german", "glass2",
    "heart-h", "heart-statlog", "hepatitis", "house-votes-84", "ionosphere", "monk3", "saheart", "spectf",
    "tic-tac-toe", "wdbc",
)  # fmt: skip
FLIPPED, WILD = 0.1, 0.05
OURS = ("forest", "close-k", "the better of the two")
METHODS = (*OURS, "cleanlab, the same forest", "cleanlab, the same close-k", "logistic regression out of fold")


def found(key: Row) -> Row:
    """AUROC and precision of each way to rank the rows of one set with flipped labels, and of extreme cells."""
    from cleanlab.rank import get_label_quality_scores

    data = dataset(f"pmlb:{key['set']}")
    X, y = np.asarray(data.X, dtype=float), (data.signs() > 0).astype(int)
    X = np.where(np.isnan(X), np.nanmedian(X, axis=0), X)
    rng = np.random.default_rng([SETS.index(key["set"]), key["split"]])
    flipped = rng.random(len(y)) < FLIPPED
    given = np.where(flipped, 1 - y, y)
    Z = SquashingScaler().fit_transform(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opinions = [forest_opinion(Z, given, 0), close_k_opinion(Z, given, 0)]
        plain = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
        folds = StratifiedKFold(5, shuffle=True, random_state=0)
        chances = cross_val_predict(plain, X, given, cv=folds, method="predict_proba")
    best = max(opinions, key=lambda opinion: opinion.right(given))
    rows = np.arange(len(given))
    own = [opinion.chances[rows, given] for opinion in (*opinions, best)]
    own += [get_label_quality_scores(given, opinion.chances) for opinion in opinions]
    own.append(chances[rows, given])
    lines: Row = {name: _ranked(value, flipped) for name, value in zip(METHODS, own, strict=True)}
    return {**lines, "cells": _cells(X, rng)}


def _ranked(own: Array, wrong: Array) -> tuple[float, float]:
    """AUROC and precision: the share of wrong rows among the least certain ones, as many as there are wrong rows."""
    first = np.argsort(own, kind="stable")[: wrong.sum()]
    return float(roc_auc_score(wrong, -own)), float(wrong[first].mean())


def _cells(X: Array, rng: np.random.Generator) -> float:
    """Precision for extreme cells: the share of the top-ranked cells that were moved by 10 to 30 deviations."""
    wide = [j for j in range(X.shape[1]) if len(np.unique(X[:, j])) > 10]
    if not wide:
        return float("nan")
    values = X[:, rng.choice(wide)].copy()
    wild = rng.random(len(values)) < WILD
    shifts = rng.uniform(10, 30, len(values)) * rng.choice([-1, 1], len(values)) * values.std()
    values[wild] += shifts[wild]
    return float(wild[np.argsort(-far_cells(values), kind="stable")[: wild.sum()]].mean())


def run(settings: Settings) -> None:
    keys = [{"set": name, "split": split} for split in range(settings.splits) for name in SETS]
    resume(settings, "check", keys, found)


def table(settings: Settings) -> list[Row]:
    """A row for each method and set, and one for extreme cells, with means over the draws."""
    lines, rows = lines_of(settings, "check"), list[Row]()
    for name in SETS:
        mine = [line for line in lines if line["set"] == name]
        for method in METHODS:
            auroc, precision = (float(np.mean([line[method][place] for line in mine])) for place in (0, 1))
            rows.append({"method": method, "set": name, "draws": len(mine), "auroc": auroc, "precision": precision})
        cells = float(np.mean([line["cells"] for line in mine]))
        rows.append({"method": "far cells", "set": name, "draws": len(mine), "auroc": "", "precision": cells})
    return rows


def page(rows: Sequence[Row], figure: Path) -> str:
    def over(method: str, what: str) -> str:
        values = np.array([row[what] for row in rows if row["method"] == method], dtype=float)
        mean, low, high = interval(values[~np.isnan(values)])
        return f"{mean:.3f} ({low:.3f} to {high:.3f})"

    def mean(method: str, what: str) -> float:
        return float(np.nanmean([row[what] for row in rows if row["method"] == method]))

    lines = [[method, over(method, "auroc"), over(method, "precision")] for method in METHODS]
    draws = int(min(row["draws"] for row in rows))
    return f"""# Rows to check: how many are rightly named

**Where 10 % of the labels were flipped, the area under the ROC curve is {mean(OURS[2], "auroc"):.2f} for the better of
a forest and close-k ({mean("forest", "auroc"):.2f} for the forest), and {mean(OURS[2], "precision"):.0%} of the
rows ranked first, as many as there were flips, were indeed flipped. Of cells moved 10 to 30 deviations in one column,
{mean("far cells", "precision"):.0%} were found.**

{len(SETS)} two-class PMLB sets, {"one draw" if draws == 1 else f"{draws} draws"} of the flips each; means and 95 %
intervals over the sets:

{markdown(["", "AUROC", "precision at the number of flips"], lines)}

The forest's votes are those of trees that have not seen the row; close-k is judged in five folds. cleanlab's
`get_label_quality_scores` ranks by the same probabilities, so with the same classifier it finds the same rows. Flips
were drawn at random; labels that are wrong for a reason are harder to find, as the benchmark of George, Nodet, Bondu
and Lemaire (TMLR 2024, arXiv 2410.15772) shows for many more methods.
{made_by("check")}"""


EXPERIMENT = Experiment("check", run, table, page, splits=3)

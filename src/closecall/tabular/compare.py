"""Every aggregate, the baselines and a tree on one table, by the rules of the protocol ``sound``.

Splits are 50/25/25 and stratified, preprocessing is fitted on the training part, every setting of the grid is solved
in one batch, the validation part chooses, the test part counts. More than two classes are one against the rest and,
for the average loss and close-k with decay, also all jointly by the top-two margin.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.ensemble import HistGradientBoostingClassifier

from closecall._names import Array, lookup
from closecall.aggregates import AGGREGATES, get_aggregate
from closecall.data.sheet import Sheet
from closecall.evaluate.baselines import sklearn_baselines
from closecall.evaluate.grid import ALPHAS, ROW, choose, grid, looks_at, rows_of
from closecall.evaluate.splits import PARTS, stratified
from closecall.linear import Diagnosis, diagnose
from closecall.linear.fitting import Options, exact_intercepts, fit_models
from closecall.linear.race import hits
from closecall.linear.training import Training, check_training
from closecall.losses import LOSSES
from closecall.objective import Problem

from .model import Preprocessor
from .table import check_classes

#: A class needs this many rows to be in all three parts.
LEAST = 4
TREE = "gradient_boosting"
#: What is also solved jointly. A joint solve costs several times what one-vs-rest does, hence every second alpha only.
JOINT = ("average", "close_decay")
JOINT_ALPHAS = ALPHAS[1::2]


class Split(NamedTuple):
    """The chosen rows of one split (dtype ROW, parts as counts of correct predictions) and the sizes of two parts."""

    rows: Array
    training: int
    test: int


def run_splits(
    table: Sheet,
    splits: int = 10,
    *,
    losses: Sequence[str] = ("logistic",),
    top_two: bool = True,
    max_iter: int = 300,
    seed: int = 0,
) -> Iterator[Split]:
    """For each split the chosen row of each method, as in :func:`closecall.evaluate.grid.choose`.

    Parameters
    ----------
    table : Sheet
    splits : int
    losses : sequence of str
        Every aggregate is solved with each of them.
    top_two : bool
        More than two classes: solve ``JOINT`` with the first loss by the top-two margin, too.
    max_iter : int
    seed : int

    Yields
    ------
    Split
    """
    check_classes(table, LEAST)
    for loss in losses:
        lookup(LOSSES, loss, "loss")
    if splits < 2:
        raise ValueError(f"--splits must be 2 or more, not {splits}: an interval needs them")
    classes, codes = np.unique(table.labels.astype(str), return_inverse=True)
    for split in range(splits):
        parts = stratified(codes, np.random.default_rng([seed, split]))
        recipe = Preprocessor.fit(table.frame.iloc[parts[0]], table.columns)
        X = [recipe.matrix(table.frame.iloc[part]) for part in parts]
        y = [codes[part] for part in parts]
        found = [_aggregates(X, y, losses, max_iter), _baselines(X, y, len(classes)), _tree(X, y)]
        if top_two and len(classes) > 2:
            found.append(_joint(X, y, losses[0], max_iter))
        yield Split(choose(np.concatenate(found), "sound"), len(parts[0]), len(parts[2]))


def _solved(
    X: Sequence[Array], y: Sequence[Array], problems: list[Problem], options: Options
) -> tuple[Array, Any, Training]:
    """Rows of the problems with their counts of correct predictions, the models, and what they were trained on."""
    training = check_training(BaseEstimator(), X[0], y[0], None, None)
    models = fit_models(training, problems, options)
    rows = rows_of(problems)
    rows["k"] = [looks_at(problem, len(y[0])) for problem in problems]
    for part, X_part, y_part in zip(PARTS, X, y, strict=True):
        rows[part] = hits(X_part, y_part, models.coef, models.intercept).sum(axis=1)
    return rows, models, training


def _aggregates(X: Sequence[Array], y: Sequence[Array], losses: Sequence[str], max_iter: int) -> Array:
    options = Options(max_iter, 1e-3, True, False, "ovr", dtype=np.float32)
    problems = grid(len(y[0]), tuple(AGGREGATES), losses)
    rows, models, training = _solved(X, y, problems, options)
    average = np.array([get_aggregate(problem.aggregate).plain for problem in problems])
    moved = rows[average]
    moved["method"] = "average_exact_intercept"
    intercept = exact_intercepts(training, models.coef[average], options)
    for part, X_part, y_part in zip(PARTS, X, y, strict=True):
        moved[part] = hits(X_part, y_part, models.coef[average], intercept).sum(axis=1)
    return np.concatenate([rows, moved])


def _joint(X: Sequence[Array], y: Sequence[Array], loss: str, max_iter: int) -> Array:
    options = Options(max_iter, 1e-3, True, False, "top_two", dtype=np.float32)
    problems = [problem for problem in grid(len(y[0]), JOINT, [loss]) if problem.alpha in JOINT_ALPHAS]
    rows, _, _ = _solved(X, y, problems, options)
    rows["method"] = np.char.add(rows["method"], "_top_two")
    return rows


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


def diagnosis_of(table: Sheet) -> Diagnosis:
    """The four difficult cases on the whole table."""
    X: Any = Preprocessor.fit(table.frame, table.columns).matrix(table.frame)
    return diagnose(X, table.labels.astype(str))

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
from closecall.data.simulate import shares
from closecall.evaluate.baselines import sklearn_baselines
from closecall.evaluate.grid import ALPHAS, BASELINES, PARTS, ROW, choose, k_grid
from closecall.linear import Diagnosis, diagnose
from closecall.linear.fitting import Options, exact_intercepts, fit_models
from closecall.linear.race import hits
from closecall.linear.training import Training, check_training
from closecall.losses import LOSSES
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
    "average_top_two": "average, top-two", "close_decay_top_two": "close-k, decay, top-two",
    **BASELINES, "tuned_threshold": "TunedThresholdCV", TREE: "HistGradientBoosting",
}  # fmt: skip
#: Shares of the largest losses that `trimmed` and `ranked_range` leave out.
TRIMS = (0.01, 0.1)
#: What is also solved jointly. A joint solve costs several times what one-vs-rest does, hence every second alpha only.
JOINT = ("average", "close_decay")
JOINT_ALPHAS = ALPHAS[1::2]


class Split(NamedTuple):
    """The chosen rows of one split (dtype ROW, parts as counts of correct predictions) and the sizes of two parts."""

    rows: Array
    training: int
    test: int


def run_splits(
    table: Table,
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
    table : Table
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
        parts = divide(codes, np.random.default_rng([seed, split]))
        recipe = Preprocessor.fit(table.frame.iloc[parts[0]], table.columns)
        X = [recipe.matrix(table.frame.iloc[part]) for part in parts]
        y = [codes[part] for part in parts]
        found = [_aggregates(X, y, losses, max_iter), _baselines(X, y, len(classes)), _tree(X, y)]
        if top_two and len(classes) > 2:
            found.append(_joint(X, y, losses[0], max_iter))
        yield Split(choose(np.concatenate(found), "sound"), len(parts[0]), len(parts[2]))


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


def grid(n: int, loss: str = "logistic") -> list[tuple[Problem, float]]:
    """Every aggregate at every k and alpha for n training rows, with how many examples each looks at."""
    settings: list[tuple[str, int | None, float | None, float]] = [
        ("average", None, None, n),
        ("maximal", None, None, 1),
    ]
    settings += [(method, k, None, k) for method in ("top", "atk", "close", "close_decay") for k in k_grid(n)]
    settings += [("trimmed", None, m, n * (1 - m)) for m in TRIMS]
    settings += [("ranked_range", max(2, n // 2), m, n // 2 - n * m) for m in TRIMS]
    return [
        (Problem(loss, method, k, alpha, m), float(looks))
        for method, k, m, looks in settings
        for alpha in ALPHAS
    ]  # fmt: skip


def _solved(
    X: Sequence[Array], y: Sequence[Array], settings: Sequence[tuple[Problem, float]], options: Options
) -> tuple[Array, Any, Training]:
    """Rows of the settings with their counts of correct predictions, the models, and what they were trained on."""
    problems = [problem for problem, _ in settings]
    training = check_training(BaseEstimator(), X[0], y[0], None, None)
    models = fit_models(training, problems, options)
    rows = np.zeros(len(problems), ROW)
    rows["loss"], rows["method"] = [p.loss for p in problems], [p.aggregate for p in problems]
    rows["k"], rows["alpha"] = [looks for _, looks in settings], [p.alpha for p in problems]
    for part, X_part, y_part in zip(PARTS, X, y, strict=True):
        rows[part] = hits(X_part, y_part, models.coef, models.intercept).sum(axis=1)
    return rows, models, training


def _aggregates(X: Sequence[Array], y: Sequence[Array], losses: Sequence[str], max_iter: int) -> Array:
    options = Options(max_iter, 1e-3, True, False, "ovr", dtype=np.float32)
    settings = [setting for loss in losses for setting in grid(len(y[0]), loss)]
    rows, models, training = _solved(X, y, settings, options)
    average = rows["method"] == "average"
    moved = rows[average]
    moved["method"] = "average_exact_intercept"
    intercept = exact_intercepts(training, models.coef[average], options)
    for part, X_part, y_part in zip(PARTS, X, y, strict=True):
        moved[part] = hits(X_part, y_part, models.coef[average], intercept).sum(axis=1)
    return np.concatenate([rows, moved])


def _joint(X: Sequence[Array], y: Sequence[Array], loss: str, max_iter: int) -> Array:
    options = Options(max_iter, 1e-3, True, False, "top_two", dtype=np.float32)
    settings = [(p, k) for p, k in grid(len(y[0]), loss) if p.aggregate in JOINT and p.alpha in JOINT_ALPHAS]
    rows, _, _ = _solved(X, y, settings, options)
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


def diagnosis_of(table: Table) -> Diagnosis:
    """The four difficult cases on the whole table."""
    X: Any = Preprocessor.fit(table.frame, table.columns).matrix(table.frame)
    return diagnose(X, table.labels.astype(str))

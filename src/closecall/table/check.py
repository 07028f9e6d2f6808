"""Find rows to check (doubtful labels, extreme cells, near-duplicates with different labels), with hints on columns.

A label is doubtful if it is contradicted by a model that was not trained on its row: either close-k on squashed columns
or a forest, whichever is more accurate. Rows are ordered by the probability of their label, as in cleanlab. On 20 PMLB
data sets with 10 % of the labels flipped, about 60 % of the top 10 % of the rows were indeed mislabelled
(docs/results/beyond-check.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.spatial import cKDTree
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier
from threadpoolctl import threadpool_limits

from closecall._names import Array
from closecall.linear import CloseKClassifierCV
from closecall.linear.calibration import probabilities
from closecall.report.text import is_number
from closecall.table.read.columns import columns_of, numbers, texts
from closecall.table.read.dataset import DataError, need_pandas
from closecall.table.read.sheet import Sheet

from .compare import Split
from .contenders import CLOSE_K
from .measure import sigmoids
from .preprocess import Preprocessor
from .table import check_classes

#: Number of trees, and least number of rows in a leaf. Of 1, 3, 5 and 10 rows, 3 had the best AUROC on 20 sets (0.90).
TREES, LEAF = 200, 3
FOLDS = 5
FOREST = "random_forest"
#: A cell is extreme if it is more than this many robust deviations from the median; long-tailed columns often reach 3.
EXTREME = 8.0
#: Twins differ by at most ``NEAR`` robust deviations in every column; tables with over ``WIDE`` columns are skipped.
NEAR, WIDE = 0.01, 200
#: The columns of the data frame of rows to check.
FIELDS = ("kind", "row", "label", "said", "score", "by", "detail")
#: The name of a model, and its out-of-sample probabilities (rows, classes); NaN for rows without a prediction.
Opinion = tuple[str, Array]


def check_rows(X: Any, y: Any, *, random_state: int = 0) -> Any:
    """Return a data frame of the rows of a table that are worth checking, with the most suspicious of each kind first.

    Parameters
    ----------
    X, y : data frame or array (rows, columns), array (rows,)
        The columns and the labels.
    random_state : int
        Seed for the folds and the forest.

    Returns
    -------
    frame
        ``kind`` is ``label`` if a model that was not trained on the row contradicts its label, ``cell`` if a number is
        extreme, and ``twin`` if the same row occurs with a different label. ``row`` is counted from 0, ``said`` is the
        label according to the model or the twin, and ``score`` is the probability that the label is wrong or a number
        of robust deviations. The other columns are ``label``, ``by`` and ``detail``.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> X[7, 1], y[11] = 900.0, 1 - y[11]
    >>> found = check_rows(X, y)
    >>> found[found.kind == "cell"].row.tolist(), 11 in found[found.kind == "label"].row.head(5).tolist()
    ([7], True)
    """
    pd = need_pandas()
    frame = X if hasattr(X, "columns") else pd.DataFrame(np.asarray(X)).add_prefix("column ")
    labels = texts(pd.Series(np.asarray(y))).to_numpy(dtype=object)
    if len(labels) != len(frame):
        raise DataError(f"{len(frame)} rows and {len(labels)} labels do not match")
    columns, _ = columns_of(frame, list(map(str, frame.columns)), keep=tuple(map(str, frame.columns)))
    table = Sheet("table", frame.reset_index(drop=True), "label", labels, columns)
    return check_table(table, seed=random_state)


def check_table(table: Sheet, opinions: Sequence[Opinion] = (), seed: int = 0) -> Any:
    """Return the rows of a table that are worth checking, as :func:`check_rows` does; ``opinions`` are optional."""
    check_classes(table, 2)
    X = Preprocessor.fit(table.frame, table.columns).matrix(table.frame)
    classes, codes = np.unique(table.labels.astype(str), return_inverse=True)
    with threadpool_limits(1):
        opinions = opinions or _opinions(X, codes, seed)

    def accuracy(opinion: Opinion) -> float:
        known = ~np.isnan(opinion[1][:, 0])
        return float((opinion[1][known].argmax(axis=1) == codes[known]).mean()) if known.any() else 0.0

    best = max(opinions, key=accuracy)
    found = [*_twins(X, codes, classes), *_cells(table), *_labels(*best, codes, classes)]
    frame = need_pandas().DataFrame(found, columns=list(FIELDS))
    frame["row"] = table.frame.index.to_numpy()[frame["row"].to_numpy(dtype=int)]  # as numbered in the file
    return frame


def _opinions(X: Array, codes: Array, seed: int) -> tuple[Opinion, ...]:
    """Return out-of-bag votes from a forest, and cross-validated probabilities from the model of ``closecall fit``."""
    forest = RandomForestClassifier(TREES, min_samples_leaf=LEAF, oob_score=True, random_state=seed).fit(X, codes)
    folds = StratifiedKFold(max(2, min(FOLDS, int(np.bincount(codes).min()))), shuffle=True, random_state=seed)
    scores = cross_val_predict(CloseKClassifierCV(random_state=0), X, codes, cv=folds, method="decision_function")
    scores = scores.reshape(len(codes), -1)
    return ("random forest", forest.oob_decision_function_), ("close-k", chances_of(scores, codes))


def opinions_of(table: Sheet, splits: Sequence[Split]) -> tuple[Opinion, ...]:
    """Return the probabilities that contenders assigned to test rows, averaged over the splits that contain them."""
    found = []
    for method, by in ((FOREST, "random forest"), (CLOSE_K, "close-k")):
        if method not in splits[0].entries:
            continue
        total, times = np.zeros((len(table.labels), len(np.unique(table.labels)))), np.zeros((len(table.labels), 1))
        for split in splits:
            scores = split.entries[method].scores
            # With two classes, the score of the second class is enough.
            raw = np.diff(scores) if scores.shape[1] == 2 else scores
            chances = np.exp(scores) if method == FOREST else chances_of(raw, split.truth)
            np.add.at(total, split.rows, chances)
            np.add.at(times, split.rows, 1)
        with np.errstate(invalid="ignore"):
            found.append((by, total / times))
    return tuple(found)


def chances_of(scores: Array, codes: Array) -> Array:
    """Map scores (rows, 1 or classes) to probabilities (rows, classes) by Platt scaling."""
    return probabilities(sigmoids(scores, codes), scores)


def _labels(by: str, chances: Array, codes: Array, classes: Array) -> list[tuple[Any, ...]]:
    """Return the rows whose labels the better model contradicts, with the least probable label first."""
    own = chances[np.arange(len(codes)), codes]
    wrong = np.flatnonzero(~np.isnan(own) & (chances.argmax(axis=1) != codes))
    found = []
    for row in wrong[np.argsort(own[wrong], kind="stable")].tolist():
        label, said = classes[codes[row]], classes[chances[row].argmax()]
        words = f"{by} gives {chances[row].max():.0%} to {said} and {own[row]:.0%} to {label}"
        found.append(("label", row, label, said, float(1 - own[row]), by, words))
    return found


def deviations(values: Array) -> Array:
    """Return the distances (rows,) of numbers from their median; missing numbers give NaN.

    Distances are divided by the robust deviation of the values on the same side of the median. A column with a long
    tail has a large deviation on that side, so its tail does not count as extreme.
    """
    known = values[np.isfinite(values)]
    if len(np.unique(known)) <= 2:
        return np.zeros(len(values))
    away = values - np.median(known)
    found = np.where(np.isnan(values), np.nan, 0.0)
    for side in (away > 0, away < 0):
        if side.any():
            usual = np.median(np.abs(away[side])) / 0.6745
            found[side] = np.abs(away[side]) / max(usual, np.finfo(float).tiny)
    return found


def _cells(table: Sheet) -> list[tuple[Any, ...]]:
    """Return the rows with an extreme number, most extreme first; each row is listed only once, for its worst cell."""
    farthest: dict[int, tuple[float, str]] = {}
    for column in table.columns:
        if column.kind == "nominal":
            continue
        cells = table.frame[column.name]
        values = numbers(cells, column)
        away = deviations(values)
        for row in np.flatnonzero(away > EXTREME).tolist():
            if away[row] > farthest.get(row, (0.0, ""))[0]:
                as_text = column.form or column.kind == "date"
                text = str(texts(cells.iloc[[row]]).iloc[0])[:40] if as_text else f"{values[row]:g}"
                words = f"{column.label} = {text}, {away[row]:.3g} deviations from the median"
                farthest[row] = float(away[row]), words
    ranked = sorted(farthest.items(), key=lambda each: -each[1][0])
    return [("cell", row, str(table.labels[row]), "", score, "column", words) for row, (score, words) in ranked]


def _twins(X: Array, codes: Array, classes: Array) -> list[tuple[Any, ...]]:
    """Return the rows with the rarer label among rows that are (almost) identical except for their labels."""
    if not 0 < X.shape[1] <= WIDE:
        return []
    kinds = np.unique(np.round(X / NEAR) + 0.0, axis=0, return_inverse=True)[1].ravel()
    counts = np.zeros((int(kinds.max()) + 1, len(classes)))
    np.add.at(counts, (kinds, codes), 1)
    # Neighbours that were rounded differently are joined as well.
    first = np.unique(kinds, return_index=True)[1]
    away, other = cKDTree(X[first]).query(X[first], k=2, p=np.inf, distance_upper_bound=NEAR)
    near = np.isfinite(away[:, 1])
    joint = counts.copy()
    joint[near] += counts[other[near, 1]]
    mine = joint[kinds, codes]
    most, total = joint.argmax(axis=1)[kinds], joint.sum(axis=1)[kinds]
    rare = np.flatnonzero((mine < total) & ((mine < total / 2) | ((mine == total / 2) & (codes != most))))
    found = []
    for row in rare[np.argsort(mine[rare] / total[rare], kind="stable")].tolist():
        share = 1 - mine[row] / total[row]
        words = f"{int(total[row] - mine[row])} of {int(total[row])} rows like this one have a different label"
        found.append(("twin", row, classes[codes[row]], classes[most[row]], float(share), "the same row", words))
    return found


#: A column that alone predicts this share of the rows probably leaks the target.
LEAK = 0.99
#: A column with at most this many distinct whole numbers may hold categories.
CATEGORIES = 12
#: The number of rows to examine.
LOOK = 5000
#: A column whose names occur at most this often on average is almost an identifier.
ALMOST = 1.5


def hints(table: Sheet) -> tuple[str, ...]:
    """Return hints on what to check before trusting the verdict, each in one sentence.

    Examples
    --------
    >>> import pandas as pd
    >>> from closecall.table.read.columns import Column
    >>> labels = np.array(["a", "b"] * 30, dtype=object)
    >>> frame = pd.DataFrame({"n": [f"{i % 2}.{i % 3}" for i in range(60)], "copy": ["x", "y"] * 30, "t": labels})
    >>> sheet = Sheet("s", frame, "t", labels, (Column("n", "number"), Column("copy", "nominal")))
    >>> [hint.replace(";", ":").partition(":")[0] for hint in hints(sheet)]
    ["'n' alone predicts 100.0 % of the rows", "'copy' is a copy of the target 't'"]
    """
    kept = table.sample(LOOK)
    codes = np.unique(kept.labels.astype(str), return_inverse=True)[1]
    found = list(_header(kept))
    for column in kept.columns:
        values = _codes(kept.frame[column.name], column)
        found += [*_leak(column.name, values, codes, kept.target), *_categories(column, values, kept)]
    return tuple(found)


def _codes(values: Any, column: Any) -> Array:
    """Return a column as numbers (samples,), with codes for names and an additional value for missing cells."""
    if column.kind == "nominal":
        return np.unique(texts(values).fillna("").to_numpy(dtype=str), return_inverse=True)[1].astype(float)
    found = numbers(values, column)
    return np.where(np.isnan(found), np.nanmin(found) - 1 if np.isfinite(found).any() else 0.0, found)


def _leak(name: str, values: Array, codes: Array, target: str) -> Iterator[str]:
    """Report a copy of the target, or a column from which a small tree predicts nearly all held-out labels."""
    kinds = np.unique(values, return_inverse=True)[1]
    pairs = len(np.unique(kinds * (codes.max() + 1) + codes))
    if pairs == kinds.max() + 1 == codes.max() + 1:
        yield f"{name!r} is a copy of the target {target!r}; leave it out with --drop {name!r}"
        return
    folds = min(3, int(np.bincount(codes).min()))
    if folds < 2 or np.bincount(codes).max() >= LEAK * len(codes):
        return
    tree = DecisionTreeClassifier(max_leaf_nodes=max(8, 2 * int(codes.max() + 1)), random_state=0)
    cv = StratifiedKFold(folds, shuffle=True, random_state=0)
    # Values are scaled to at most 2, because the tree converts values to float32, which cannot hold 1e300.
    values = values / (np.abs(values).max() or 1.0)
    right = float((cross_val_predict(tree, (values - values.min())[:, None], codes, cv=cv) == codes).mean())
    if right >= LEAK:
        known = f"{name!r} alone predicts {100 * right:.1f} % of the rows: is it known before the target is?"
        yield f"{known} If not, use --drop {name!r}"


def _categories(column: Any, values: Array, table: Sheet) -> Iterator[str]:
    """Report whole numbers that may be categories, and a column with nearly as many names as rows."""
    name = repr(column.name)
    if column.kind == "number":
        known = numbers(table.frame[column.name], column)
        kinds, counts = np.unique(known[~np.isnan(known)], return_counts=True)
        if 2 < len(kinds) <= CATEGORIES and counts.sum() >= 10 * len(kinds) and (kinds % 1 == 0).all():
            numerals = f"{len(kinds)} different whole numbers ({kinds[0]:g} to {kinds[-1]:g})"
            yield f"{name} has {numerals}: if they are categories, use --nominal {name}"
    elif column.kind == "nominal" and (names := len(np.unique(values))) > 20 and len(values) <= ALMOST * names:
        yield f"{name} has {names} different names in {len(values)} rows and is almost an identifier: use --drop {name}"


def _header(table: Sheet) -> Iterator[str]:
    """Report a first line that looks like data, and columns that contain a separator in their names and values."""
    names = [str(name) for name in table.frame.columns]
    values = {name for name in names if (texts(table.frame[name]).head(1000) == name).any()}
    if sum(name in values or is_number(name.replace(",", ".")) for name in names) > len(names) / 2:
        first = f"{', '.join(names[:4])}{', ...' if len(names) > 4 else ''}"
        yield f"the first line ({first}) looks like a row, not like column names: if the header is missing, add one"
    for name in names:
        text = texts(table.frame[name]).dropna().head(50)
        for mark in (";", "\t", "|", ","):
            if mark in name and len(text) and text.str.contains(mark, regex=False).mean() > 0.9:
                shown = {"\t": "$'\\t'"}.get(mark, repr(mark))
                yield f"{name!r} contains {mark!r} in its name and values: if it separates columns, use --sep {shown}"
                return

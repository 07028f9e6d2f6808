"""Hints on what to check in a table: leaks, identifiers, categories written as numbers, a missing header."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.tree import DecisionTreeClassifier

from closecall._names import Array
from closecall.table.read.columns import numbers, texts
from closecall.table.read.sheet import Sheet, is_number

#: A column that alone predicts this share of the rows probably leaks the target.
LEAK = 0.99
#: A column with at most this many distinct whole numbers may hold categories.
KINDS = 12
#: Number of rows to examine.
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
    found = [*_header(kept), *_delimiter(kept)]
    for column in kept.columns:
        values = _codes(kept.frame[column.name], column)
        found += _leak(column.name, values, codes, kept.target)
        found += _disguised(column, kept.frame[column.name])
        found += _many(column, values)
    return tuple(found)


def _codes(values: Any, column: Any) -> Array:
    """Return a column as numbers (samples,), with codes for names and an additional value for missing cells."""
    if column.kind == "nominal":
        return np.unique(texts(values).fillna("").to_numpy(dtype=str), return_inverse=True)[1].astype(float)
    found = numbers(values, column)
    return np.where(np.isnan(found), np.nanmin(found) - 1 if np.isfinite(found).any() else 0.0, found)


def _leak(name: str, values: Array, codes: Array, target: str) -> Iterator[str]:
    """Report a copy of the target, or a column from which a small tree predicts nearly all held-out rows."""
    kinds = np.unique(values, return_inverse=True)[1]
    pairs = len(np.unique(kinds * (codes.max() + 1) + codes))
    if pairs == len(np.unique(kinds)) == codes.max() + 1:
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
        yield (
            f"{name!r} alone predicts {100 * right:.1f} % of the rows: is it known before the target is? If not, use "
            f"--drop {name!r}"
        )


def _disguised(column: Any, values: Any) -> Iterator[str]:
    known = numbers(values, column) if column.kind == "number" else np.empty(0)
    known = known[~np.isnan(known)]
    kinds = np.unique(known)
    if 2 < len(kinds) <= KINDS and len(known) >= 10 * len(kinds) and (kinds % 1 == 0).all():
        yield (
            f"{column.name!r} has {len(kinds)} different whole numbers ({kinds[0]:g} to {kinds[-1]:g}): if they are "
            f"categories, use --nominal {column.name!r}"
        )


def _many(column: Any, values: Array) -> Iterator[str]:
    kinds = len(np.unique(values))
    if column.kind == "nominal" and kinds > 20 and len(values) <= ALMOST * kinds:
        yield (
            f"{column.name!r} has {kinds} names in {len(values)} rows and is almost an identifier: "
            f"use --drop {column.name!r}"
        )


def _header(table: Sheet) -> Iterator[str]:
    """Report a first line that looks like data: most names are numbers, or values of their own column."""
    names = [str(name) for name in table.frame.columns]
    values = {name for name in names if (texts(table.frame[name]).head(1000) == name).any()}
    if sum(name in values or is_number(name.replace(",", ".")) for name in names) > len(names) / 2:
        yield (
            f"the first line ({', '.join(names[:4])}{', ...' if len(names) > 4 else ''}) looks like a row, not like "
            "column names: if the header is missing, add one"
        )


def _delimiter(table: Sheet) -> Iterator[str]:
    for name in [str(name) for name in table.frame.columns]:
        text = texts(table.frame[name]).dropna().head(50)
        for mark in (";", "\t", "|", ","):
            if mark in name and len(text) and text.str.contains(mark, regex=False).mean() > 0.9:
                shown = {"\t": "$'\\t'"}.get(mark, repr(mark))
                yield f"{name!r} contains {mark!r} in its name and values: if it separates columns, use --sep {shown}"
                return

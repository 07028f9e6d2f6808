"""Details of close-k on the table: its coefficients over the splits, the value of k, and the close calls themselves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from closecall.report.formats import Row
from closecall.table.read.columns import texts
from closecall.table.read.sheet import Sheet

from .compare import Split
from .conclude import half_width
from .contenders import CLOSE_K, Entry
from .measure import Metric

#: How many coefficients and close calls are listed, and columns of each close call.
COEFFICIENTS, CALLS, COLUMNS = 15, 12, 6


def _entry(split: Split) -> Entry:
    return next(entry for entry in split.entries if entry.method == CLOSE_K)


def trade(splits: Sequence[Split], metric: Metric) -> list[Row]:
    """The value of each k on the validation parts, with the best alpha."""
    tables = [dict(split.trade) for split in splits]
    shares = [share for share in tables[0] if all(share in table for table in tables)]
    return [
        {"split": number, "share": share, "value": metric.shown(table[share]),
         "mean": metric.shown(float(np.mean([each[share] for each in tables])))}
        for number, table in enumerate(tables, 1)
        for share in shares
    ]  # fmt: skip


def coefficients(splits: Sequence[Split], classes: Sequence[str]) -> list[Row]:
    """Coefficients (of scaled columns) on every split with their 95 % interval over the splits, the largest first.

    A category missing from a split has the coefficient 0 there. With more than two classes, each class has its own
    coefficient.
    """
    values: dict[str, list[float]] = {}
    for number, split in enumerate(splits):
        coef = _entry(split).coef
        if coef is None:
            return []
        for row, label in zip(coef, [""] if len(coef) == 1 else classes, strict=True):
            for name, value in zip(split.features, row, strict=True):
                key = f"{name} → {label}" if label else name
                values.setdefault(key, [0.0] * len(splits))[number] = float(value)
    largest = sorted(values, key=lambda name: -abs(float(np.mean(values[name]))))[:COEFFICIENTS]
    ratio = float(np.mean([len(split.rows) / split.known for split in splits]))
    found = []
    for name in largest:
        mean, half = float(np.mean(values[name])), half_width(np.array(values[name]), ratio)
        found += [
            {"name": name, "split": number, "value": value, "mean": mean, "low": mean - half, "high": mean + half}
            for number, value in enumerate(values[name], 1)
        ]
    return found


def close_calls(
    table: Sheet, splits: Sequence[Split], classes: Sequence[str]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The rows about which close-k is least certain out of sample, and the columns that matter most for them: header,
    rows.

    A row has its number in the table (from 1, without the header line), the class, the predictions and their counts,
    the lead (of the winner over the runner-up, over the median lead of its split), and the columns of largest weight.
    """
    leads: dict[int, list[tuple[float, int]]] = {}
    for split in splits:
        scores = _entry(split).scores
        if scores is None:
            return (), []
        best = np.sort(scores, axis=1)
        lead = best[:, -1] - best[:, -2]
        lead = lead / max(float(np.median(lead)), 1e-300)
        for row, value, said in zip(split.rows.tolist(), lead.tolist(), scores.argmax(axis=1).tolist(), strict=True):
            leads.setdefault(row, []).append((value, said))
    order = sorted(leads, key=lambda row: (float(np.mean([value for value, _ in leads[row]])), row))[:CALLS]
    columns = _telling(table, splits)
    shown = {name: texts(table.frame[name].iloc[order]).fillna("").tolist() for name in columns}
    rows = []
    for place, row in enumerate(order):
        said = [said for _, said in leads[row]]
        often = max(set(said), key=lambda code: (said.count(code), -code))
        rows.append((
            str(int(table.frame.index[row]) + 1), str(table.labels[row]),
            f"{classes[often]} ({said.count(often)} of {len(said)})",
            f"{np.mean([value for value, _ in leads[row]]):.2f}",
            *(str(shown[name][place])[:40] for name in columns),
        ))  # fmt: skip
    return ("row", table.target, "said", "lead", *columns), rows


def _telling(table: Sheet, splits: Sequence[Split]) -> list[str]:
    """Columns of the table by the total weight of their encoded columns."""
    weight: dict[str, float] = {column.name: 0.0 for column in table.columns}
    for split in splits:
        coef = _entry(split).coef
        if coef is not None:
            for name, value in zip(split.features, np.abs(coef).sum(axis=0), strict=True):
                owner = (
                    name
                    if name in weight
                    else max((c for c in weight if name.startswith((f"{c}=", f"{c} ("))), key=len)
                )
                weight[owner] += float(value)
    return sorted(weight, key=lambda name: -weight[name])[:COLUMNS]

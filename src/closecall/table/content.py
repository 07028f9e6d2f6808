"""The results of a comparison as plain records for its page and the terminal, with details of close-k."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from closecall.linear.diagnosis import Diagnosis, Finding
from closecall.report.formats import Row
from closecall.report.text import listed
from closecall.table.read.columns import COMMA, CONTINENTAL, EITHER, KINDS, PAIR, PLAIN, THOUSANDS, texts
from closecall.table.read.sheet import Sheet

from .compare import Split
from .conclude import Conclusion, half_width
from .contenders import CLOSE_K

#: The formats of the numeric columns of the result table; the other columns are text.
FORMATS = {"low": ".2f", "high": ".2f", "gain": "+.2f", "p": ".2g", "k / n": ".3f", "alpha": "g"}
FORMS = {PLAIN: "", COMMA: "decimal comma", THOUSANDS: "thousands separators",
         CONTINENTAL: "thousands separators, decimal comma", **dict.fromkeys(PAIR, "pairs")}  # fmt: skip
#: The header of the table that describes the columns.
DESCRIBED = ("column", "read as", "missing", "different", "such as", "remark")
#: The largest number of columns on the page, and of classes in a confusion matrix.
LISTED, CLASSES = 300, 12
#: The number of coefficients and close calls listed, and of columns shown for each close call.
COEFFICIENTS, CALLS, COLUMNS = 15, 12, 6


def moves(comparison: Conclusion) -> tuple[list[Row], list[Row]]:
    """Return the gains of the contenders over the plain model, as summaries (best first) and for individual splits."""
    metric, results, plain = comparison.metric, comparison.found, comparison.found[comparison.plain]
    lowest = min(result.mean for result in comparison.results if result.family != "majority")
    summaries, splits = list[Row](), list[Row]()
    for method, difference in comparison.over.items():
        result = results[method]
        # A much worse result for the largest class would squeeze all others together in the chart.
        if result.family == "majority" and result.mean <= lowest - 0.1:
            continue
        mean, low, high = map(metric.gain, difference.interval)
        summaries.append({"method": result.title, "mean": mean, "low": low, "high": high, "p": difference.p})
        pairs = zip(result.values, plain.values, strict=True)
        splits += [
            {"method": result.title, "split": split, "difference": metric.gain(first - second)}
            for split, (first, second) in enumerate(pairs, 1)
        ]
    return summaries, splits


def rows(comparison: Conclusion) -> list[Row]:
    """Return the result table, with p-values if there was a test."""
    over, plain, metric = comparison.over, comparison.found[comparison.plain], comparison.metric
    found = []
    for result in comparison.results:
        test, (mean, low, high) = over.get(result.method), result.shown(metric)
        found.append({
            "method": result.label, "loss": result.loss,
            metric.label: mean, "low": low, "high": high,
            "gain": None if result is plain else metric.gain(round(result.mean - plain.mean, 12) + 0.0),
            "p": test.p if test else None,
            "k / n": None if math.isnan(result.k) else result.k / comparison.training_rows,
            "alpha": None if math.isnan(result.alpha) else result.alpha, "setting": result.setting,
            "what it is": result.what,
        })  # fmt: skip
    return found


def mistakes(comparison: Conclusion) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Return confusion matrices for the recommended and the plain model: caption, header, and rows with the recall."""
    kept, found = comparison.classes[:CLASSES], []
    header = ("true class", *(f"predicted {name}" for name in kept), "recall")
    for method in dict.fromkeys([comparison.use, comparison.plain, CLOSE_K]):
        result = comparison.found[method]
        lines = [
            (name, *map(str, result.confusion[code, : len(kept)]), f"{result.recalls[code]:.1%}")
            for code, name in enumerate(kept)
        ]
        found.append((result.title, header, lines))
    return found


def sentence(text: str) -> str:
    """Return text that begins with a capital letter and ends with a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def findings(diagnosis: Diagnosis) -> tuple[Finding, ...]:
    """Return the diagnosis of each of the paper's four difficult cases."""
    return diagnosis.imbalance, diagnosis.easy, diagnosis.outliers, diagnosis.ambiguity


def reading(table: Sheet) -> str:
    """Describe the classes, and how missing values are treated."""
    counts = Counter(map(str, table.labels)).most_common()
    classes = listed([f"{name} ({count})" for name, count in counts], 12)
    return (
        f"Target {table.target!r}: {classes}. Missing numbers are replaced by the median, and missing "
        "names by the most frequent name."
    )


def described(table: Sheet) -> list[tuple[str, ...]]:
    """Return a row for each column of the table: how it was read, or why it was left out."""
    used = {column.name: column for column in table.columns}
    found: list[tuple[str, ...]] = []
    names = [str(name) for name in table.frame.columns]
    for name in names[:LISTED]:
        text = texts(table.frame[name])
        column = used.get(name)
        kind = "target" if name == table.target else "left out"
        if column:
            kind = KINDS[column.kind].label if column.kind in KINDS else "names, one column each"
        form = FORMS.get(column.form, column.form.replace(EITHER, " or ")) if column else ""
        values = list(dict.fromkeys(text.dropna().head(200)))
        examples = ", ".join(value[:24] + ("…" if len(value) > 24 else "") for value in values[:3])
        about = [note.removeprefix(f"{name!r} ") for note in table.notes if note.startswith(f"{name!r} ")]
        remarks = [note.removeprefix("is ") for note in about] or ["left out as requested"] * (kind == "left out")
        found.append((
            name, f"{kind} ({form})" if form else kind, str(int(text.isna().sum())), str(text.nunique()), examples,
            "; ".join(remarks),
        ))  # fmt: skip
    if len(names) > LISTED:
        found.append((f"and {len(names) - LISTED} more", "", "", "", "", ""))
    return found


def coefficients(splits: Sequence[Split], comparison: Conclusion) -> list[Row]:
    """Return the coefficients (of scaled columns) on every split and their 95 % intervals, largest first.

    A category that is missing from a split has coefficient 0 there. With more than two classes, each class has its
    own coefficient.
    """
    values: dict[str, list[float]] = {}
    for number, split in enumerate(splits):
        coef = split.entries[CLOSE_K].coef
        for row, label in zip(coef, [""] if len(coef) == 1 else comparison.classes, strict=True):
            for name, value in zip(split.features, row, strict=True):
                key = f"{name} → {label}" if label else name
                values.setdefault(key, [0.0] * len(splits))[number] = float(value)
    largest = sorted(values, key=lambda name: -abs(float(np.mean(values[name]))))[:COEFFICIENTS]
    found = []
    for name in largest:
        mean, half = float(np.mean(values[name])), half_width(np.array(values[name]), comparison.found[CLOSE_K].ratio)
        found += [
            {"name": name, "split": number, "value": value, "mean": mean, "low": mean - half, "high": mean + half}
            for number, value in enumerate(values[name], 1)
        ]
    return found


def close_calls(
    table: Sheet, splits: Sequence[Split], classes: Sequence[str]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and the rows about which close-k is least certain out of sample.

    Each row lists its number in the table (from 1, not counting the header line), its class, the most frequent
    prediction, the margin between its two highest scores relative to the median of the split, and the columns with the
    largest weights.
    """
    leads: dict[int, list[float]] = {}
    codes: dict[int, list[int]] = {}
    for split in splits:
        scores = split.entries[CLOSE_K].scores
        best = np.sort(scores, axis=1)
        lead = best[:, -1] - best[:, -2]
        lead = lead / max(float(np.median(lead)), 1e-300)
        for row, value, code in zip(split.rows.tolist(), lead.tolist(), scores.argmax(axis=1).tolist(), strict=True):
            leads.setdefault(row, []).append(value)
            codes.setdefault(row, []).append(code)
    order = sorted(leads, key=lambda row: (float(np.mean(leads[row])), row))[:CALLS]
    columns = _heaviest(table, splits)
    shown = {name: texts(table.frame[name].iloc[order]).fillna("").tolist() for name in columns}
    rows = []
    for place, row in enumerate(order):
        ((often, times),) = Counter(sorted(codes[row])).most_common(1)  # the first class if tied
        rows.append((
            str(int(table.frame.index[row]) + 1), str(table.labels[row]),
            f"{classes[often]} ({times} of {len(codes[row])})", f"{np.mean(leads[row]):.2f}",
            *(str(shown[name][place])[:40] for name in columns),
        ))  # fmt: skip
    return ("row", table.target, "prediction", "lead", *columns), rows


def _heaviest(table: Sheet, splits: Sequence[Split]) -> list[str]:
    """Return the columns of the table whose encoded columns have the largest total weight."""
    weight: dict[str, float] = {column.name: 0.0 for column in table.columns}
    for split in splits:
        for name, value in zip(split.features, np.abs(split.entries[CLOSE_K].coef).sum(axis=0), strict=True):
            owners = [name] if name in weight else [c for c in weight if name.startswith((f"{c}=", f"{c} ("))]
            weight[max(owners, key=len)] += float(value)
    return sorted(weight, key=lambda name: -weight[name])[:COLUMNS]

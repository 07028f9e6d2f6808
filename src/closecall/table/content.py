"""The results of a comparison -> plain records for its page and the terminal, with the details of close-k."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from closecall.linear import Diagnosis
from closecall.report.formats import Row, signed
from closecall.table.read.columns import COMMA, CONTINENTAL, EITHER, KINDS, PAIR, PLAIN, THOUSANDS, texts
from closecall.table.read.sheet import Sheet

from .compare import Split
from .conclude import Conclusion, Difference, Result, against, half_width, p_value
from .contenders import CLOSE_K, MAJORITY, Entry
from .measure import Metric

#: Column of the result table -> how its numbers are written; the others are text.
FORMATS = {"value": ".2f", "low": ".2f", "high": ".2f", "gain": "+.2f", "p": ".2g", "k / n": ".3f", "alpha": "g"}
FORMS = {PLAIN: "", COMMA: "decimal comma", THOUSANDS: "marks, thousands", CONTINENTAL: "marks, decimal comma",
         **dict.fromkeys(PAIR, "pairs")}  # fmt: skip
#: What is said of each column.
DESCRIBED = ("column", "read as", "missing", "different", "such as", "remark")
#: How many methods a sentence names, columns the page lists, and classes a confusion matrix has.
SHOWN, LISTED, CLASSES = 5, 300, 12


def cards(comparison: Conclusion) -> list[Row]:
    """The summary: close-k against the plain model, the best of all, and the largest class."""
    found, plain = comparison.found, comparison.found[comparison.plain]
    over = comparison.over
    cards = [_card(f"close-k over {label(plain)}", over[CLOSE_K], comparison)] if CLOSE_K in over else []
    trees = [each for name, each in over.items() if found[name].family == "tree"]
    if trees:
        best = max(trees, key=lambda each: each.mean)
        cards.append(_card(f"{found[best.method].label} over {label(plain)}", best, comparison))
    return [*cards, _best(comparison)]


def _card(heading: str, each: Difference, comparison: Conclusion) -> Row:
    metric, found = comparison.metric, comparison.found
    first, second = (np.array(found[name].values) for name in (each.method, each.reference))
    tally = [int((first > second).sum()), int((first == second).sum()), int((first < second).sum())]
    outcome = "level" if not each.sure else "ahead" if each.mean > 0 else "behind"
    words = {"level": "No clear difference", "ahead": "A clear gain", "behind": "Clearly worse"}[outcome]
    mean, low, high = (signed(metric.gain(each.mean + sign * each.half_width), metric.digits) for sign in (0, -1, 1))
    return {
        "heading": heading, "number": mean,
        "unit": f"{metric.unit} of {metric.name.replace('_', ' ')}",
        "outcome": outcome, "tally": list(zip(("won", "tied", "lost"), tally, strict=True)),
        "sentences": [
            f"{words}: 95 % interval {low} to {high}, {p_value(each.p)} (corrected paired t-test, Holm).",
            f"Better on {tally[0]} of {len(first)} splits, equal on {tally[1]}, worse on {tally[2]}.",
        ],
    }  # fmt: skip


def _best(comparison: Conclusion) -> Row:
    metric = comparison.metric
    best, *_ = comparison.results
    close = {each.method for each in against(comparison.results, best).values() if not each.sure}
    near = [label(result) for result in comparison.results if result.method in close]
    told = f"{', '.join(near[:SHOWN])}" + (f" and {len(near) - SHOWN} more" if len(near) > SHOWN else "")
    majority = comparison.found[MAJORITY]
    (low, high), d = ends(best, comparison), metric.digits
    return {
        "heading": f"Best of all: {label(best)}", "number": f"{metric.shown(best.mean):.{d}f}",
        "unit": f"mean test {metric.label}", "outcome": "", "tally": None,
        "sentences": [
            f"95 % interval {low:.{d}f} to {high:.{d}f}; always {comparison.majority!r}: "
            f"{metric.shown(majority.mean):.{d}f}.",
            f"Not clearly worse: {told}." if near else "All others are significantly worse.",
        ],
    }  # fmt: skip


def ends(result: Result, comparison: Conclusion) -> tuple[float, float]:
    """The 95 % interval for display, clipped to possible values."""
    metric = comparison.metric
    low, high = sorted(metric.shown(result.mean + sign * result.half_width) for sign in (-1, 1))
    return max(low, 0.0), min(high, 100.0) if metric.factor == 100 else high


def label(result: Result) -> str:
    """A result in words, with its loss unless it is the usual one."""
    return {"": result.label, "logistic": result.label}.get(result.loss, f"{result.label} ({result.loss})")


def family(result: Result) -> str:
    """What kind of method it is, as in :data:`closecall.table.figures.FAMILIES`."""
    return "close-k" if result.method == CLOSE_K else {"majority": "no model"}.get(result.family, result.family)


def spread(comparison: Conclusion) -> tuple[list[Row], list[Row]]:
    """Every method over the splits: summaries, best first, and single splits."""
    summaries, splits, metric = [], [], comparison.metric
    for result in comparison.results:
        same = {"method": label(result), "family": family(result)}
        low, high = ends(result, comparison)
        summaries.append({**same, "mean": metric.shown(result.mean), "low": low, "high": high})
        chosen = zip(result.values, result.ks, result.alphas, strict=True)
        splits += [
            {**same, "split": split, "value": metric.shown(value), "k": written(k), "alpha": written(alpha)}
            for split, (value, k, alpha) in enumerate(chosen, 1)
        ]
    return summaries, splits


def written(value: float) -> str:
    return "" if math.isnan(value) else f"{value:g}"


def moves(comparison: Conclusion) -> tuple[list[Row], list[Row]]:
    """The contenders (not every aggregate) minus the plain model: summaries, best first, and single splits."""
    reference, metric = comparison.found[comparison.plain], comparison.metric
    asked = [result for result in comparison.results if result.family != "aggregate"]
    lowest = min(result.mean for result in asked if result.family != "majority")
    # Far below all others, the largest class would only squeeze them together.
    asked = [result for result in asked if result.family != "majority" or result.mean > lowest - 0.1]
    over = comparison.over
    found = {result.method: over[result.method] for result in asked if result.method in over}
    summaries = [
        {"method": label(comparison.found[each.method]), "mean": metric.gain(each.mean),
         "low": metric.gain(each.mean - each.half_width), "high": metric.gain(each.mean + each.half_width), "p": each.p}
        for each in found.values()
    ]  # fmt: skip
    splits = [
        {"method": label(comparison.found[method]), "split": split, "difference": metric.gain(first - second)}
        for method in found
        for split, (first, second) in enumerate(zip(comparison.found[method].values, reference.values, strict=True), 1)
    ]
    return summaries, splits


def rows(comparison: Conclusion) -> list[Row]:
    """The result table, with p if there was a test."""
    over, plain, metric = comparison.over, comparison.found[comparison.plain], comparison.metric
    found = []
    for result in comparison.results:
        asked, (low, high) = over.get(result.method), ends(result, comparison)
        found.append({
            "method": result.label, "loss": result.loss, "value": metric.shown(result.mean), "low": low, "high": high,
            "gain": None if result is plain else metric.gain(round(result.mean - plain.mean, 12)),
            "p": asked.p if asked else None,
            "k / n": None if math.isnan(result.k) else result.k / comparison.training_rows,
            "alpha": None if math.isnan(result.alpha) else result.alpha, "setting": result.setting,
            "what it is": result.what,
        })  # fmt: skip
    return found


def mistakes(comparison: Conclusion) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Confusion matrices of the recommended and the plain model: caption, header, and rows that end with the recall."""
    methods = dict.fromkeys([comparison.use, comparison.plain, CLOSE_K])
    kept = comparison.classes[:CLASSES]
    found = []
    for result in (comparison.found[name] for name in methods if name in comparison.found):
        header = ("true class", *(f"predicted {name}" for name in kept), "recall")
        lines = [
            (name, *(f"{int(count)}" for count in result.confusion[code, : len(kept)]), f"{result.recalls[code]:.1%}")
            for code, name in enumerate(kept)
        ]
        found.append((label(result), header, lines))
    return found


def sentence(text: str) -> str:
    """Words as a sentence."""
    return f"{text[:1].upper()}{text[1:]}."


def cases(diagnosis: Diagnosis) -> list[Row]:
    """The four difficult cases."""
    findings = (diagnosis.imbalance, diagnosis.easy, diagnosis.outliers, diagnosis.ambiguity)
    return [
        {"name": f.case, "value": f"{min(max(f.value, 0), 1):.4f}", "number": f"{f.value:.1%}", "reading": f.reading}
        for f in findings
    ]


def reading(table: Sheet) -> str:
    """The classes, and how missing values are treated."""
    counts = Counter(map(str, table.labels)).most_common()
    listed = ", ".join(f"{name} ({count})" for name, count in counts[:12])
    more = f" and {len(counts) - 12} more" if len(counts) > 12 else ""
    return (
        f"Target {table.target!r}: {listed}{more}. Missing numbers become the median, missing names the most frequent."
    )


def described(table: Sheet) -> list[tuple[str, ...]]:
    """A row for each column of the table: how it was read, or why it was left out."""
    used = {column.name: column for column in table.columns}
    found: list[tuple[str, ...]] = []
    names = [str(name) for name in table.frame.columns]
    for name in names[:LISTED]:
        text = texts(table.frame[name])
        column = used.get(name)
        kind = "target" if name == table.target else "left out"
        if column:
            kind = KINDS[column.kind].label if column.kind in KINDS else "names, a column each"
        form = FORMS.get(column.form, column.form.replace(EITHER, " or ")) if column else ""
        values = list(dict.fromkeys(text.dropna().head(200)))
        examples = ", ".join(value[:24] + ("…" if len(value) > 24 else "") for value in values[:3])
        found.append((
            name, f"{kind} ({form})" if form else kind, str(int(text.isna().sum())), str(text.nunique()), examples,
            _remarks(name, kind, table.notes),
        ))  # fmt: skip
    if len(names) > LISTED:
        found.append((f"and {len(names) - LISTED} more", "", "", "", "", ""))
    return found


def _remarks(name: str, kind: str, notes: Sequence[str]) -> str:
    starts = f"{name!r} is ", f"{name!r} "
    remarks = [note.removeprefix(starts[0]).removeprefix(starts[1]) for note in notes if note.startswith(starts[1])]
    return "; ".join(remarks or (["left out as requested"] if kind == "left out" else []))


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
    the lead (of the winner over the runner-up, relative to the median of its split), and the columns of largest weight.
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
                owners = [name] if name in weight else [c for c in weight if name.startswith((f"{c}=", f"{c} ("))]
                weight[max(owners, key=len)] += float(value)
    return sorted(weight, key=lambda name: -weight[name])[:COLUMNS]

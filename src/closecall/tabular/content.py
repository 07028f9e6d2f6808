"""What a comparison found -> the plain records that its page shows."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np

from closecall.data.columns import texts
from closecall.data.sheet import Sheet
from closecall.evaluate.grid import LABELS
from closecall.linear import Diagnosis
from closecall.report.formats import Row

from .compare import TREE
from .conclude import Conclusion, Difference, Result, against, named, p_value, questions

#: Column of the result table -> how its numbers are written; the others are text.
FORMATS = {
    "accuracy": ".2f", "low": ".2f", "high": ".2f", "gain": "+.2f", "p": ".2g", "over LogisticRegression": "+.2f",
    "its p": ".2g", "k / n": ".3f", "alpha": "g",
}  # fmt: skip
KINDS = {"number": "number", "date": "date, as days", "nominal": "names, a column each"}
#: How many methods a sentence names.
SHOWN = 5
#: How many columns the page lists.
LISTED = 300


def cards(comparison: Conclusion) -> list[Row]:
    """The summary: what the verdict rests on, and the best of all."""
    gain, tree = questions(comparison.found, comparison.loss)
    found = comparison.found
    return [
        _card("Close-k with decay against average", gain, found, f"points of test accuracy, {comparison.loss} loss"),
        _card("A tree (HistGradientBoosting) as the yardstick", tree, found,
              f"points over {label(found[tree.reference])}"),
        _best(comparison),
    ]  # fmt: skip


def _card(heading: str, each: Difference, found: dict[str, Result], unit: str) -> Row:
    first, second = (np.array(found[name].accuracies) for name in (each.method, each.reference))
    tally = [int((first > second).sum()), int((first == second).sum()), int((first < second).sum())]
    outcome = "level" if not each.sure else "ahead" if each.mean > 0 else "behind"
    words = {"level": "No clear difference", "ahead": "A clear difference", "behind": "Clearly worse"}[outcome]
    low, high = 100 * (each.mean - each.half_width), 100 * (each.mean + each.half_width)
    return {
        "heading": heading, "number": f"{100 * each.mean:+.2f}", "unit": unit, "outcome": outcome,
        "tally": list(zip(("won", "tied", "lost"), tally, strict=True)),
        "sentences": [
            f"{words}: 95% interval {low:+.2f} to {high:+.2f}, {p_value(each.p)} (corrected paired t-test, Holm over "
            "the two questions).",
            f"Better on {tally[0]} of {len(first)} splits, equal on {tally[1]}, worse on {tally[2]}: "
            f"{100 * second.mean():.2f}% to {100 * first.mean():.2f}%.",
        ],
    }  # fmt: skip


def _best(comparison: Conclusion) -> Row:
    best, *_ = comparison.results
    close = {each.method for each in against(comparison.results, best).values() if not each.sure}
    near = [label(result) for result in comparison.results if result.method in close]
    low, high = (100 * min(max(best.mean + sign * best.half_width, 0), 1) for sign in (-1, 1))
    told = f"{', '.join(near[:SHOWN])}" + (f" and {len(near) - SHOWN} more" if len(near) > SHOWN else "")
    return {
        "heading": f"Best of all: {label(best)}", "number": f"{100 * best.mean:.2f}%", "unit": "mean test accuracy",
        "outcome": "", "tally": None,
        "sentences": [
            f"95% interval {low:.2f} to {high:.2f}; always the largest class: {100 * comparison.majority:.2f}%.",
            f"Not to be told apart from it: {told}." if near else "All others are significantly worse.",
        ],
    }  # fmt: skip


def label(result: Result) -> str:
    """A result in words, with its loss."""
    return f"{result.label} ({result.loss})" if result.loss else result.label


def family(result: Result) -> str:
    """What kind of method it is, as in :data:`closecall.tabular.figures.FAMILIES`."""
    if not result.loss:
        return "tree" if result.method == TREE else "scikit-learn"
    families = {"average": "average", LABELS["close"]: "close-k", LABELS["close_decay"]: "close-k"}
    return families.get(result.label.split(",")[0], "other aggregates")


def spread(comparison: Conclusion) -> tuple[list[Row], list[Row]]:
    """Every method over the splits: summaries, best first, and single splits, in percent."""
    summaries, splits = [], []
    for result in comparison.results:
        same = {"method": label(result), "family": family(result)}
        half = result.half_width
        low, high = (100 * min(max(result.mean + sign * half, 0), 1) for sign in (-1, 1))
        summaries.append({**same, "mean": 100 * result.mean, "low": low, "high": high})
        chosen = zip(result.accuracies, result.ks, result.alphas, strict=True)
        splits += [
            {**same, "split": split, "accuracy": 100 * accuracy, "k": written(k), "alpha": written(alpha)}
            for split, (accuracy, k, alpha) in enumerate(chosen, 1)
        ]
    return summaries, splits


def written(value: float) -> str:
    return "" if math.isnan(value) else f"{value:g}"


def moves(comparison: Conclusion, reference: Result) -> tuple[list[Row], list[Row]]:
    """Every method minus a reference: summaries, best first, and single splits, in points."""
    found = against(comparison.results, reference)
    names = {result.method: label(result) for result in comparison.results}
    summaries = [
        {"method": names[each.method], "mean": 100 * each.mean, "low": 100 * (each.mean - each.half_width),
         "high": 100 * (each.mean + each.half_width), "p": each.p}
        for each in found.values()
    ]  # fmt: skip
    splits = [
        {"method": names[method], "split": split, "difference": 100 * (first - second)}
        for method in found
        for split, (first, second) in enumerate(
            zip(comparison.found[method].accuracies, reference.accuracies, strict=True), 1
        )
    ]
    return summaries, splits


def tuned(comparison: Conclusion) -> list[Result]:
    """The results of close-k, by name, the loss of the verdict first."""
    found = [result for result in comparison.results if family(result) == "close-k"]
    return sorted(found, key=lambda result: (result.label, result.loss != comparison.loss, result.loss))


def choices(comparison: Conclusion) -> list[Row]:
    """How often each k and alpha was chosen."""
    return [
        {"method": result.label, "loss": result.loss, "k": k, "alpha": alpha, "splits": count}
        for result in tuned(comparison)
        for (k, alpha), count in sorted(Counter(zip(result.ks, result.alphas, strict=True)).items())
    ]


def gains(comparison: Conclusion) -> list[Row]:
    """What each split gained over the average of the same loss, and the share of the rows that k was."""
    records = []
    for result in tuned(comparison):
        kind = "average_top_two" if result.label.endswith("top-two") else "average"
        base = comparison.found[named(kind, result.loss)]
        each = zip(result.ks, result.accuracies, base.accuracies, strict=True)
        records += [
            {"method": result.label, "loss": result.loss, "split": split, "share": k / comparison.training_rows,
             "gain": 100 * (first - second)}
            for split, (k, first, second) in enumerate(each, 1)
        ]  # fmt: skip
    return records


def rows(comparison: Conclusion) -> list[Row]:
    """The result table."""
    losses = dict.fromkeys([comparison.loss, *(result.loss for result in comparison.results if result.loss)])
    over = {loss: against(comparison.results, comparison.found[named("average", loss)]) for loss in losses}
    plain = against(comparison.results, comparison.found["logistic_regression"])
    rows = []
    for result in comparison.results:
        first, second = over[result.loss or comparison.loss].get(result.method), plain.get(result.method)
        rows.append({
            "method": result.label, "loss": result.loss, "accuracy": 100 * result.mean,
            "low": 100 * max(result.mean - result.half_width, 0), "high": 100 * min(result.mean + result.half_width, 1),
            "gain": 100 * first.mean if first else None, "p": first.p if first else None,
            "over LogisticRegression": 100 * second.mean if second else None, "its p": second.p if second else None,
            "k / n": None if math.isnan(result.k) else result.k / comparison.training_rows,
            "alpha": None if math.isnan(result.alpha) else result.alpha,
        })  # fmt: skip
    return rows


def trial(diagnosis: Diagnosis) -> str:
    """What an untuned close-k gained in cross-validation."""
    line = str(diagnosis).splitlines()[-1]
    return f"{line[:1].upper()}{line[1:]}."


def cases(diagnosis: Diagnosis) -> list[Row]:
    """The four difficult cases."""
    findings = (diagnosis.imbalance, diagnosis.easy, diagnosis.outliers, diagnosis.ambiguity)
    return [
        {"name": f.case, "value": f"{min(max(f.value, 0), 1):.4f}", "number": f"{f.value:.1%}", "reading": f.reading}
        for f in findings
    ]


def reading(table: Sheet) -> str:
    """The classes, and what becomes of missing values."""
    counts = Counter(map(str, table.labels)).most_common()
    listed = ", ".join(f"{name} ({count})" for name, count in counts[:12])
    more = f" and {len(counts) - 12} more" if len(counts) > 12 else ""
    return f"Target {table.target!r}: {listed}{more}. Missing numbers become the mean, missing names the most frequent."


def described(table: Sheet) -> list[tuple[str, ...]]:
    """A row for each column of the table: how it was read, and why not."""
    used = {column.name: column for column in table.columns}
    rows: list[tuple[str, ...]] = []
    names = [str(name) for name in table.frame.columns]
    for name in names[:LISTED]:
        text = texts(table.frame[name])
        column = used.get(name)
        start = f"{name!r} is "
        remarks = [note.removeprefix(start) for note in table.notes if note.startswith(start)]
        kind = "target" if name == table.target else KINDS[column.kind] if column else "left out"
        form = {"": "", ",": "decimal comma"}.get(column.form, column.form) if column else ""
        values = list(dict.fromkeys(text.dropna().head(200)))
        examples = ", ".join(value[:24] + ("…" if len(value) > 24 else "") for value in values[:3])
        if kind == "left out" and not remarks:
            remarks = ["left out as asked"]
        rows.append((
            name, f"{kind} ({form})" if form else kind, str(int(text.isna().sum())), str(text.nunique()), examples,
            "; ".join(remarks),
        ))  # fmt: skip
    if len(names) > LISTED:
        rows.append((f"and {len(names) - LISTED} more", "", "", "", "", ""))
    return rows

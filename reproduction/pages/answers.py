"""The opening sentence of a results page: the outcome, from the same rows as the tables below it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from closecall.report.formats import Row, Table
from reproduction.protocol.grid import LABELS
from reproduction.protocol.published import LOSSES, METHODS
from reproduction.run.scores import title

from .sections import Section

_CRITERIA = {"table1": "significant", "table2": "significant", "table4": "points", "table5": "points",
             "figure3": "significant"}  # fmt: skip
_WORDS = {"significant": "significantly better", "points": "at least two points better"}


def answer(name: str, sections: Sequence[Section], first: Sequence[Row]) -> str:
    """The answer on a target's page; empty if nothing is complete.

    Parameters
    ----------
    name : str
        The target's.
    sections : sequence of Section
    first : sequence of dict
        The headline's rows.
    """
    if name in _CRITERIA:
        return _pairs(sections[0].suite.split(" and ")[0], _CRITERIA[name], first)
    if name == "table3":
        return _lowest(sections)
    records = [row for section in sections for table in section.tables for row in table.records]
    return _ANSWERS[name](records) if records and name in _ANSWERS else ""


def agreement_answer(summary: Table) -> str:
    """How much of the first table agrees with the paper's."""
    return f"{summary.rows[0][0]}: {summary.rows[0][1]} cells agree with the published ones." if summary.rows else ""


def _both(values: Iterable[object]) -> str:
    return " and ".join(map(str, values))


def _pairs(suite: str, criterion: str, first: Sequence[Row]) -> str:
    rows = [
        row for row in first
        if (row["suite"], row["model"], row["protocol"], row["test"]) == (suite, "linear", "paper", "paper")
        and row["criterion"] == criterion
    ]  # fmt: skip
    if not rows:
        return ""
    ours, theirs = (
        {
            outcome: _both(f"{row[key]:.0%}" for row in rows if row["outcome"] == outcome)
            for outcome in ("wins", "losses")
        }
        if all(row[key] is not None for row in rows)
        else {}
        for key in ("fraction", "published")
    )
    wins, losses = (f" (the paper: {theirs[outcome]})" if theirs else "" for outcome in ("wins", "losses"))
    return (
        f"Close decay is {_WORDS[criterion]} than average on {ours['wins']} of {rows[0]['sets']} data sets{wins} and "
        f"worse on {ours['losses']}{losses}: linear models, {_both(LOSSES)} loss, "
        "the paper's protocol and test."
    )


def _lowest(sections: Sequence[Section]) -> str:
    for scores in (scores for section in sections for scores in section.scores):
        if (scores.protocol, scores.model) == ("paper", "linear"):
            means = [scores.test(loss).mean(axis=-1).round(9) for loss in LOSSES]
            counts = [int((mean[:, METHODS.index("close_decay")] == mean.max(axis=1)).sum()) for mean in means]
            return (
                f"Close decay has the lowest test error of the five methods on {_both(counts)} of "
                f"{len(scores.datasets)} sets ({_both(LOSSES)} loss, linear models, the paper's protocol)."
            )
    return ""


def _boundaries(records: Sequence[Row]) -> str:
    way = records[0]["way"]
    above = {
        method: np.mean([r["errors"] - r["best_possible"] for r in records if (r["way"], r["method"]) == (way, method)])
        for method in ("close", "average")
    }
    return (
        f"Close-k makes {above['close']:.1f} training errors more than the best possible boundary, average "
        f"{above['average']:.1f} ({way}, mean over the four sets and their draws)."
    )


def _counted(records: Sequence[Row]) -> str:
    suites = dict.fromkeys(row["suite"] for row in records)
    parts = [
        f"{len(rows)} data sets of {suite}, the median with {np.median([row['rows'] for row in rows]):g} rows and "
        f"{np.median([row['features'] for row in rows]):g} features"
        for suite in suites
        for rows in [[row for row in records if row["suite"] == suite]]
    ]
    return f"Available: {'; '.join(parts)}."


def _chosen(records: Sequence[Row]) -> str:
    mine = [row for row in records if (row["protocol"], row["model"]) == ("paper", "linear") and "k_over_n" in row]
    parts = []
    for loss in LOSSES:
        shares = [row["k_over_n"] for row in mine if row["loss"] == loss]
        parts.append(f"{sum(share <= 0.5 for share in shares)} of {len(shares)} data sets with the {loss} loss")
    return f"Validation chose half of the training examples or fewer on {_both(parts)} (linear, paper protocol)."


def _simulated(records: Sequence[Row]) -> str:
    mine = [
        row for row in records
        if (row["protocol"], row["loss"], row["method"]) == ("paper", LOSSES[0], METHODS[1]) and "gain" in row
    ]  # fmt: skip
    most = {row["contamination"]: row for row in sorted(mine, key=lambda row: row["level"])}
    parts = [f"{row['gain']:+.1f} points with {row['level']} of {kind}" for kind, row in most.items()]
    return f"Gain of close decay over average at the highest level: {', '.join(parts)} (logistic loss, paper protocol)."


def _examples(records: Sequence[Row]) -> str:
    parts = [
        f"Example {row['example']}: close-k makes {row['errors']:.0f} errors, {row['errors_from_right_side']:.0f} when "
        f"started on the right side; {row['best_possible']:.0f} are possible."
        for row in records
        if row["method"] == METHODS[0]
    ]
    return " ".join(dict.fromkeys(parts))


def _ranges(records: Sequence[Row]) -> str:
    places: dict[tuple[str, str], list[Row]] = {}
    for row in records:
        places.setdefault((row["set"], row["loss"]), []).append(row)
    best = [min(rows, key=lambda row: row["error"])["method"] for rows in places.values()]
    counts = {method: best.count(method) for method in dict.fromkeys(best)}
    named = ", ".join(
        f"{LABELS.get(m, m.replace('_', ' '))} on {counts[m]}" for m in sorted(counts, key=lambda m: -counts[m])
    )
    return f"The lowest test error, over {len(best)} pairs of a set and a loss: {named}."


def _exact(records: Sequence[Row]) -> str:
    parts = []
    for name in dict.fromkeys(row["set"] for row in records):
        at = {(row["method"], row["loss"]): row["above_bound"] for row in records if row["set"] == name}
        parts.append(
            f"{title(name)}: close-k {at['close', 'logistic']}, average logistic loss {at['average', 'logistic']}"
        )
    return f"Training errors above the proven minimum of all linear classifiers. {'; '.join(parts)}."


_ANSWERS: dict[str, Callable[[Sequence[Row]], str]] = {
    "figure1": _boundaries, "figure2": _counted, "figure4": _chosen, "figure5": _simulated, "examples": _examples,
    "sorr": _ranges, "exact01": _exact,
}  # fmt: skip

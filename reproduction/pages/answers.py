"""The opening sentence of a results page: the outcome, computed from the same records as its tables."""

from collections.abc import Callable, Sequence

import numpy as np

from closecall.report.formats import Row
from reproduction.protocol.grid import LABELS
from reproduction.protocol.published import LOSSES, METHODS, PAIR_TABLES
from reproduction.run.scores import title

from .findings import ADVERBS, outcomes
from .formats import listed, said
from .sections import Section


def answer(name: str, sections: Sequence[Section], first: Sequence[Row]) -> str:
    """Return the answer for a target's page from its sections and the headline's rows, or an empty string."""
    if name in (*PAIR_TABLES, "figure3"):
        criterion = PAIR_TABLES[name].criterion if name in PAIR_TABLES else "significant"
        return _pairs(sections[0].suite.split(" and ")[0], criterion, first)
    if name == "table3":
        return _lowest(sections)
    records = [row for section in sections for table in section.tables for row in table.records]
    return _ANSWERS[name](records) if records and name in _ANSWERS else ""


def _pairs(suite: str, criterion: str, first: Sequence[Row]) -> str:
    pairs = outcomes(first, suite=suite, model="linear", protocol="paper", test="paper", criterion=criterion)
    if not pairs:
        return ""
    values = {"better": f"{ADVERBS[criterion]} better", "sets": pairs[0][0]["sets"], "both": listed(LOSSES)}
    for outcome, mine in zip(("wins", "losses"), zip(*pairs, strict=True), strict=True):
        values[outcome] = listed(f"{row['fraction']:.0%}" for row in mine)
        theirs = listed(f"{row['published']:.0%}" for row in mine)
        values[f"papers_{outcome}"] = f" (the paper: {theirs})"
    return said("answer.pairs", **values)


def _lowest(sections: Sequence[Section]) -> str:
    for scores in (scores for section in sections for scores in section.scores):
        if (scores.protocol, scores.model) == ("paper", "linear"):
            means = [scores.test(loss).mean(axis=-1).round(9) for loss in LOSSES]
            counts = [int((mean[:, METHODS.index("close_decay")] == mean.max(axis=1)).sum()) for mean in means]
            return said("answer.lowest", counts=listed(counts), sets=len(scores.datasets), both=listed(LOSSES))
    return ""


def _boundaries(records: Sequence[Row]) -> str:
    way = records[0]["way"]
    above = {
        method: np.mean([r["errors"] - r["best_possible"] for r in records if (r["way"], r["method"]) == (way, method)])
        for method in ("close", "average")
    }
    return said("answer.boundaries", way=way, **above)


def _counted(records: Sequence[Row]) -> str:
    parts = []
    for suite in dict.fromkeys(row["suite"] for row in records):
        mine = [row for row in records if row["suite"] == suite]
        medians = {name: np.median([row[name] for row in mine]) for name in ("rows", "features")}
        parts.append(said("answer.counted", sets=len(mine), suite=suite, **medians))
    return f"The available data sets are {', and '.join(parts)}."


def _chosen(records: Sequence[Row]) -> str:
    mine = [row for row in records if (row["protocol"], row["model"]) == ("paper", "linear") and "k_over_n" in row]
    parts = []
    for loss in LOSSES:
        shares = [row["k_over_n"] for row in mine if row["loss"] == loss]
        parts.append(f"{sum(share <= 0.5 for share in shares)} of {len(shares)} data sets with the {loss} loss")
    return said("answer.chosen", parts=listed(parts))


def _simulated(records: Sequence[Row]) -> str:
    place = ("paper", LOSSES[0], METHODS[1])
    mine = [row for row in records if (row["protocol"], row["loss"], row["method"]) == place and "gain" in row]
    most = {row["contamination"]: row for row in sorted(mine, key=lambda row: row["level"])}
    parts = (f"{row['gain']:+.1f} points with {kind} ({row['level']} examples)" for kind, row in most.items())
    return said("answer.simulated", parts=listed(parts))


def _examples(records: Sequence[Row]) -> str:
    return " ".join(dict.fromkeys(said("answer.example", row=r) for r in records if r["method"] == METHODS[0]))


def _ranges(records: Sequence[Row]) -> str:
    places: dict[tuple[str, str], list[Row]] = {}
    for row in records:
        places.setdefault((row["set"], row["loss"]), []).append(row)
    best = [min(rows, key=lambda row: row["error"])["method"] for rows in places.values()]
    methods = sorted(dict.fromkeys(best), key=lambda method: -best.count(method))
    named = listed(f"{LABELS[method]} on {best.count(method)}" for method in methods)
    return said("answer.ranges", pairs=len(best), named=named)


def _exact(records: Sequence[Row]) -> str:
    parts = []
    for name in dict.fromkeys(row["set"] for row in records):
        at = {(row["method"], row["loss"]): row["above_bound"] for row in records if row["set"] == name}
        close, average = at["close", "logistic"], at["average", "logistic"]
        parts.append(f"{close} and {average} more on {title(name)}")
    return said("answer.exact", parts="; ".join(parts))


_ANSWERS: dict[str, Callable[[Sequence[Row]], str]] = {
    "figure1": _boundaries, "figure2": _counted, "figure4": _chosen, "figure5": _simulated, "examples": _examples,
    "sorr": _ranges, "exact01": _exact,
}  # fmt: skip

"""Scores -> which method won, by how much and how certainly: in sentences, row by row, and as quoted numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.report.formats import Row, Table
from closecall.report.text import p_words
from reproduction.protocol import stats
from reproduction.protocol.files import csv_rows
from reproduction.protocol.grid import LABELS
from reproduction.protocol.pairs import CRITERIA
from reproduction.protocol.protocol import PROTOCOLS
from reproduction.protocol.published import LOSSES, METHODS, PAIR_TABLES, PairTable, table3_error
from reproduction.run.scores import PAIR, Scores, title

from .words import said

#: Below six sets even a signed-rank test in which all agree has p > 0.05 (exactly 2 / 2**5 for five).
FEWEST = 6
SHOWN = 3

HEADLINE = "headline.csv"
#: What the paper's fractions lead one to expect of close decay against average; outside of it a page opens with that.
LEAST_WINS, MOST_LOSSES = 0.20, 0.02

HEADLINES = {
    "ahead": "Close decay is ahead of average",
    "behind": "Close decay is behind average",
    "level": "There is no clear difference between close decay and average over all data sets",
    "lifted": "Close decay gains on average, but the gain comes from a few data sets",
    "pulled": "Close decay loses on average, but the loss comes from a few data sets",
    "few": "There are too few data sets to draw a conclusion",
}


#: A suite, its scores and the paper's tables on it.
Part = tuple[str, Scores, Sequence[PairTable]]


@dataclass(frozen=True)
class Judgement:
    """Close decay against average for one loss."""

    loss: str
    outcome: str  # a key of ``HEADLINES``
    wins: int  # data sets on which close decay is significantly better, neither, worse
    ties: int
    losses: int
    gain: float  # mean over data sets, in points
    sentences: tuple[str, ...]

    @property
    def headline(self) -> str:
        return HEADLINES[self.outcome]


@dataclass(frozen=True)
class Summary:
    """The verdicts of one (suite, protocol, model)."""

    heading: str
    verdicts: tuple[Judgement, ...]


def findings(parts: Sequence[Part]) -> list[Summary]:
    """One finding for each distinct set of results; targets on the same suite share theirs."""
    return [
        Summary(_heading(suite, scores), tuple(judge(scores, loss, published) for loss in LOSSES))
        for suite, scores, published in _distinct(parts)
    ]


def _distinct(parts: Sequence[Part]) -> list[Part]:
    keys = [(scores.protocol, scores.model, scores.datasets, scores.splits, scores.max_iter) for _, scores, _ in parts]
    # Sound first: it is the one whose tests keep what they promise.
    chosen = [part for place, part in enumerate(parts) if keys[place] not in keys[:place]]
    return sorted(chosen, key=lambda part: part[1].protocol != "sound")


def _heading(suite: str, scores: Scores) -> str:
    sets = "1 data set" if len(scores.datasets) == 1 else f"{len(scores.datasets)} data sets"
    return f"{suite}: {scores.protocol} protocol, {scores.model} model, {sets}, {scores.splits} splits"


def judge(scores: Scores, loss: str, published: Sequence[PairTable] = ()) -> Judgement:
    """Which method won, by how much and how certainly.

    The outcome is that of Wilcoxon's test over the data sets, if there are enough of them, mean and median gain agree
    on the sign and the interval of the mean excludes zero. If only the interval excludes zero, the gain comes from a
    few data sets, and the text says so; everything else is called no clear difference.
    """
    pair = scores.pairs(loss)
    means, gains = 100 * scores.test(loss, PAIR).mean(axis=-1), 100 * pair[PAIR].gains
    wins, losses = (int(pair[order].wins("significant").sum()) for order in (PAIR, PAIR[::-1]))
    p = stats.wilcoxon(means[:, 1], means[:, 0])
    interval = stats.mean_interval(gains)
    apart = interval[1] * interval[2] > 0
    sure = p < stats.SIGNIFICANCE and gains.mean() * np.median(gains) > 0
    outcome = (("ahead", "behind") if sure else ("lifted", "pulled"))[int(gains.mean() < 0)] if apart else "level"
    outcome = outcome if len(gains) >= FEWEST else "few"
    sentences = [
        _counted(wins, losses, len(gains), scores.splits),
        _sized(len(gains), interval, p),
        *_extremes(scores, means, gains),
        _best(scores, loss),
        *_papers(scores, loss, published),
    ]
    return Judgement(
        loss, outcome, wins, len(gains) - wins - losses, losses, float(gains.mean()), tuple(filter(None, sentences))
    )


def _counted(wins: int, losses: int, total: int, splits: int) -> str:
    if splits == 1:
        return "There is one split only: no difference can be tested."
    won, lost = _interval(wins, total), _interval(losses, total)
    return said("finding.counted", wins=wins, total=total, won=won, losses=losses, lost=lost)


def _interval(count: int, total: int) -> str:
    low, high = stats.fraction_interval(count, total)
    return f"{count / total:.0%}, 95% interval {low:.0%} to {high:.0%}"


def _sized(sets: int, interval: tuple[float, float, float], p: float) -> str:
    mean, low, high = interval
    if sets < FEWEST:
        return said("finding.few", mean=mean, fewest=FEWEST)
    way = "bootstrap" if sets >= stats.MANY else "Student's t"
    return said("finding.sized", mean=mean, low=low, high=high, way=way, p=p_words(p))


def _extremes(scores: Scores, means: Array, gains: Array) -> Iterator[str]:
    order = np.argsort(-gains, kind="stable")
    for word, places in (("gains", order), ("losses", order[::-1])):
        chosen = [i for i in places[:SHOWN] if (gains[i] > 0.005 if word == "gains" else gains[i] < -0.005)]
        named = [
            f"{title(scores.datasets[i])} {gains[i]:+.2f} ({means[i, 0]:.2f} to {means[i, 1]:.2f})" for i in chosen
        ]
        yield f"Largest {word}: {', '.join(named)}." if named else f"There are no {word}."


def _best(scores: Scores, loss: str) -> str:
    means = 100 * scores.test(loss, scores.methods).mean(axis=(0, -1))
    order = np.argsort(-means, kind="stable")
    named = [f"{LABELS[scores.methods[i]]} {means[i]:.2f}%" for i in order[:SHOWN]]
    place = order.tolist().index(scores.methods.index("close_decay")) + 1
    mean = means[order[place - 1]]
    return said("finding.best", methods=len(means), named=", ".join(named), place=place, mean=mean)


def _papers(scores: Scores, loss: str, published: Sequence[PairTable]) -> Iterator[str]:
    base, better = (METHODS.index(method) for method in PAIR)
    words = {"significant": "significantly", "points": "at least two points"}
    for table in published:
        theirs, name = table.fractions(scores.model, loss), table.name.replace("table", "Table ")
        wins, losses = theirs[base, better], theirs[better, base]
        yield said("finding.paper", name=name, words=words[table.criterion], wins=wins, losses=losses)


def _beside(means: Array, errors: Sequence[float | None]) -> dict[str, float | None]:
    """Accuracies of the five methods, those of the pair first, with the paper's values."""
    ours = {LABELS[method]: float(value) for method, value in zip(METHODS, means, strict=True)}
    beside: dict[str, float | None] = {}
    for method, error in zip(PAIR, errors, strict=True):
        beside[LABELS[method]] = ours[LABELS[method]]
        beside[f"paper: {LABELS[method]}"] = None if error is None else 100 - error
    return beside | ours


def result_rows(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """One flat row for every (suite, protocol, model, loss, data set), with the paper's Table 3."""
    rows = []
    for _, scores, _ in _distinct(parts):
        for loss in LOSSES:
            means = 100 * scores.test(loss).mean(axis=-1)
            pair, shares = scores.pairs(loss)[PAIR], scores.chosen(loss)
            for i, dataset in enumerate(scores.datasets):
                name = title(dataset)
                errors = [table3_error(name, loss, m) if scores.model == "linear" else None for m in PAIR]
                rows.append(
                    {
                        "data set": name, **scores.where(loss),
                        "gain": 100 * float(pair.gains[i]), "p": float(pair.p[i]), "k*/n": float(shares[i]),
                        **_beside(means[i], errors),
                        "rows": int(scores.sizes[i, 0]), "features": int(scores.sizes[i, 1]),
                    }
                )  # fmt: skip
    return rows


#: Column -> how its numbers are written; the others are text.
FORMATS = {
    "rows": "d", "features": "d", **{LABELS[method]: ".2f" for method in METHODS}, "gain": "+.2f", "p": ".4f",
    "k*/n": ".3f", **{f"paper: {LABELS[method]}": ".2f" for method in PAIR},
}  # fmt: skip


# --- numbers that are quoted elsewhere: computed once, kept in CSV, and put into pages by name


def headline(suite: str, scores: Scores) -> list[Row]:
    """Close decay against average: data sets won and lost, by each protocol's test, for both losses, with intervals."""
    rows: list[Row] = []
    for loss in LOSSES:
        for rule in PROTOCOLS:
            pairs = scores.pairs(loss, rule)
            for criterion in CRITERIA:
                for outcome, order in (("wins", PAIR), ("losses", PAIR[::-1])):
                    rows.append(
                        {
                            "suite": suite, "model": scores.model, "protocol": scores.protocol, "test": rule,
                            "loss": loss, "criterion": criterion, "outcome": outcome,
                            **_with_interval(int(pairs[order].wins(criterion).sum()), len(scores.datasets)),
                            "published": _published(suite, scores.model, loss, criterion, order),
                            "mean_gain": 100 * float(pairs[PAIR].gains.mean()), "splits": scores.splits,
                            "steps": scores.max_iter,
                        }
                    )  # fmt: skip
    return rows


def _with_interval(count: int, total: int) -> Row:
    low, high = stats.fraction_interval(count, total)
    return {"count": count, "sets": total, "fraction": count / total, "low": low, "high": high}


def _published(suite: str, model: str, loss: str, criterion: str, order: tuple[str, ...]) -> float | None:
    for table in PAIR_TABLES.values():
        if (table.suite, table.criterion) == (suite, criterion):
            beaten, by = (METHODS.index(method) for method in order)
            return float(table.fractions(model, loss)[beaten, by])
    return None


def headline_table(rows: Sequence[Row], suite: str) -> Table:
    """One line for each (model, protocol, test, loss): wins, losses and the paper's."""
    mine = [row for row in rows if row["suite"] == suite and row["criterion"] == "significant"]
    by_place: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in mine:
        place = (row["model"], row["protocol"], row["test"], row["loss"])
        by_place.setdefault(place, {})[row["outcome"]] = row
    shown = tuple(
        (
            protocol, str(pair["wins"]["splits"]), test, model, loss,
            share(pair["wins"]), share(pair["losses"]), _papers_pair(pair),
        )
        for (model, protocol, test, loss), pair in by_place.items()
    )  # fmt: skip
    heading = f"Close decay against average on {suite}"
    header = ("protocol", "splits", "test", "model", "loss", "better", "worse", "paper")
    return Table(f"headline-{suite}", heading, header, shown, tuple(mine), (said("note.headline"),))


def share(row: Row) -> str:
    """A count of data sets with its fraction and interval."""
    return f"{row['count']} of {row['sets']} ({row['fraction']:.0%}, {row['low']:.0%}-{row['high']:.0%})"


def _papers_pair(pair: dict[str, Row]) -> str:
    given = [pair[outcome]["published"] for outcome in ("wins", "losses")]
    return "" if None in given else f"{given[0]:.0%} / {given[1]:.0%}"


def shortfalls(rows: Sequence[Row]) -> list[str]:
    """Results that fall short of the paper on PMLB under its own protocol and test, in sentences."""
    found = []
    for row in rows:
        place = (row["suite"], row["model"], row["protocol"], row["test"], row["criterion"])
        if place != ("pmlb94", "linear", "paper", "paper", "significant"):
            continue
        if row["outcome"] == "wins" and row["fraction"] < LEAST_WINS:
            word = "better"
        elif row["outcome"] == "losses" and row["fraction"] > MOST_LOSSES:
            word = "worse"
        else:
            continue
        found.append(said("finding.shortfall", row=row, word=word, share=share(row)))
    return found


def readme_block(folder: Path) -> str:
    """The README's table, from ``headline.csv`` alone: linear models on PMLB, each protocol by its own test."""
    rows = [row for row in csv_rows(folder / HEADLINE) if (row["suite"], row["model"]) == ("pmlb94", "linear")]
    places: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
    for row in rows:
        if row["test"] == row["protocol"] and row["criterion"] == "significant":
            places.setdefault((row["protocol"], row["loss"]), {})[row["outcome"]] = row
    lines = ["| Protocol and test | Loss | Better on | Worse on | Paper |", "|---|---|---|---|---|"]
    for (protocol, loss), pair in places.items():
        theirs = [pair[outcome]["published"] for outcome in ("wins", "losses")]
        paper = " / ".join(f"{float(value):.0%}" for value in theirs) if all(theirs) else ""
        cells = [protocol, loss, *(_text(pair[name]) for name in ("wins", "losses")), paper]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _text(row: dict[str, str]) -> str:
    share, low, high = (float(row[name]) for name in ("fraction", "low", "high"))
    return f"{row['count']} of {row['sets']}: {share:.0%} [{low:.0%}, {high:.0%}]"

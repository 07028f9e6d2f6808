"""Findings from the scores (which method won, by how much and with what certainty) as sentences, rows and numbers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.report.formats import Row
from closecall.report.text import p_words
from reproduction.protocol import stats
from reproduction.protocol.grid import LABELS
from reproduction.protocol.protocol import CRITERIA, PROTOCOLS
from reproduction.protocol.published import LOSSES, METHODS, PAIR_TABLES, PairTable, table3_error
from reproduction.run.scores import PAIR, Scores, title

from .formats import Table, listed, said

#: With five sets, even a signed-rank test in which all sets agree has p = 2 / 2**5 > 0.05.
FEWEST = 6
#: How many of the largest gains, losses or accuracies a sentence lists.
SHOWN = 3
HEADLINE = "headline.csv"
#: Limits derived from the paper's fractions; the front page begins with the results that are outside these limits.
LEAST_WINS, MOST_LOSSES = 0.20, 0.02
HEADLINES = {
    "ahead": "Close decay is ahead of the average loss",
    "behind": "Close decay is behind the average loss",
    "level": "There is no clear difference between close decay and the average loss across all data sets",
    "lifted": "Close decay gains on average, but the gain comes from a few data sets",
    "pulled": "Close decay loses on average, but the loss comes from a few data sets",
    "few": "There are too few data sets to draw a conclusion",
}
#: Criterion -> how one method is then better than another.
ADVERBS = {"significant": "significantly", "points": "at least two points"}
#: A suite, its scores and the paper's tables on it.
Part = tuple[str, Scores, Sequence[PairTable]]


@dataclass(frozen=True)
class Judgement:
    """The comparison of close decay with average for one loss."""

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
    """The verdicts for one (suite, protocol, model)."""

    heading: str
    verdicts: tuple[Judgement, ...]


def findings(parts: Sequence[Part]) -> list[Summary]:
    """Return a summary for each distinct set of results; targets that use the same suite share a summary."""
    found = []
    for suite, scores, published in _distinct(parts):
        sets = "1 data set" if len(scores.datasets) == 1 else f"{len(scores.datasets)} data sets"
        heading = f"{suite}: {scores.protocol} protocol, {scores.model} model, {sets}, {scores.splits} splits"
        found.append(Summary(heading, tuple(judge(scores, loss, published) for loss in LOSSES)))
    return found


def _distinct(parts: Sequence[Part]) -> list[Part]:
    chosen: dict[tuple[object, ...], Part] = {}
    for part in parts:
        scores = part[1]
        key = scores.protocol, scores.model, scores.datasets, scores.splits, scores.max_iter
        chosen.setdefault(key, part)
    # The sound protocol comes first, because its tests keep their nominal level.
    return sorted(chosen.values(), key=lambda part: part[1].protocol != "sound")


def judge(scores: Scores, loss: str, published: Sequence[PairTable] = ()) -> Judgement:
    """Decide which method won, by how much and with what certainty.

    One method is ahead if there are enough data sets, the Wilcoxon test across them is significant, the mean and the
    median gain have the same sign, and the interval for the mean excludes zero. If only the interval excludes zero, the
    gain comes from a few data sets. Otherwise there is no clear difference.
    """
    pair = scores.pairs(loss)
    means, gains = 100 * scores.test(loss, PAIR).mean(axis=-1), 100 * pair[PAIR].gains
    wins, losses = (int(pair[order].wins("significant").sum()) for order in (PAIR, PAIR[::-1]))
    p, interval = stats.wilcoxon(means[:, 1], means[:, 0]), stats.mean_interval(gains)
    sure = p < stats.SIGNIFICANCE and gains.mean() * np.median(gains) > 0
    outcome = "level"
    if len(gains) < FEWEST:
        outcome = "few"
    elif interval[1] * interval[2] > 0:
        outcome = (("ahead", "behind") if sure else ("lifted", "pulled"))[int(gains.mean() < 0)]
    sentences = (
        _counted(wins, losses, len(gains), scores.splits), _sized(len(gains), interval, p),
        *_extremes(scores, means, gains), _best(scores, loss), *_papers(scores, loss, published),
    )  # fmt: skip
    return Judgement(loss, outcome, wins, len(gains) - wins - losses, losses, float(gains.mean()), sentences)


def _counted(wins: int, losses: int, total: int, splits: int) -> str:
    if splits == 1:
        return "There is only one split, so no difference can be tested."
    form = "{fraction:.0%}, 95% interval {low:.0%} to {high:.0%}"
    won, lost = (form.format_map(_with_interval(count, total)) for count in (wins, losses))
    return said("finding.counted", wins=wins or "none", total=total, won=won, losses=losses or "none", lost=lost)


def _sized(sets: int, interval: tuple[float, float, float], p: float) -> str:
    mean, low, high = interval
    if sets < FEWEST:
        return said("finding.few", mean=mean, fewest=FEWEST)
    way = "bootstrap" if sets >= stats.MANY else "Student's t"
    return said("finding.sized", mean=mean, low=low, high=high, way=way, p=p_words(p))


def _extremes(scores: Scores, means: Array, gains: Array) -> Iterator[str]:
    order = np.argsort(-gains, kind="stable")
    for word, places, sign in (("gains", order, 1), ("losses", order[::-1], -1)):
        named = [
            f"{title(scores.datasets[i])} {gains[i]:+.2f} (from {means[i, 0]:.2f} to {means[i, 1]:.2f})"
            for i in places[:SHOWN]
            if sign * gains[i] > 0.005
        ]
        yield f"Largest {word}: {listed(named)}." if named else f"There are no {word}."


def _best(scores: Scores, loss: str) -> str:
    means = 100 * scores.test(loss, scores.methods).mean(axis=(0, -1))
    order = np.argsort(-means, kind="stable")
    named = [f"{means[i]:.2f}% ({LABELS[scores.methods[i]]})" for i in order[:SHOWN]]
    place = order.tolist().index(scores.methods.index("close_decay")) + 1
    mean = means[order[place - 1]]
    return said("finding.best", methods=len(means), named=listed(named), place=place, mean=mean)


def _papers(scores: Scores, loss: str, published: Sequence[PairTable]) -> Iterator[str]:
    for table in published:
        wins, losses = (_fraction(table, scores.model, loss, order) for order in (PAIR, PAIR[::-1]))
        name = table.name.replace("table", "Table ")
        yield said("finding.paper", name=name, words=ADVERBS[table.criterion], wins=wins, losses=losses)


def _fraction(table: PairTable, model: str, loss: str, order: tuple[str, ...]) -> float:
    beaten, by = (METHODS.index(method) for method in order)
    return float(table.fractions(model, loss)[beaten, by])


def result_rows(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Return one flat row for every (suite, protocol, model, loss, data set), with numbers from the paper's Table 3."""
    rows = []
    for _, scores, _ in _distinct(parts):
        for loss in LOSSES:
            means = 100 * scores.test(loss).mean(axis=-1)
            pair, shares = scores.pairs(loss)[PAIR], scores.chosen(loss)
            for i, dataset in enumerate(scores.datasets):
                name = title(dataset)
                ours = {LABELS[method]: float(value) for method, value in zip(METHODS, means[i], strict=True)}
                beside: dict[str, float | None] = {}
                for method in PAIR:
                    error = table3_error(name, loss, method) if scores.model == "linear" else None
                    beside[LABELS[method]] = ours[LABELS[method]]
                    beside[f"paper: {LABELS[method]}"] = None if error is None else 100 - error
                rows.append(
                    {
                        "data set": name, **scores.where(loss),
                        "gain": 100 * float(pair.gains[i]), "p": float(pair.p[i]), "k*/n": float(shares[i]),
                        **beside, **ours,
                        "rows": int(scores.sizes[i, 0]), "features": int(scores.sizes[i, 1]),
                    }
                )  # fmt: skip
    return rows


#: Column -> the format of its numbers; the others are text.
FORMATS = {
    "rows": "d", "features": "d", **{LABELS[method]: ".2f" for method in METHODS}, "gain": "+.2f", "p": ".4f",
    "k*/n": ".3f", **{f"paper: {LABELS[method]}": ".2f" for method in PAIR},
}  # fmt: skip


# --- numbers quoted elsewhere: computed once and stored as CSV


def headline(suite: str, scores: Scores) -> list[Row]:
    """Count the data sets on which close decay beats average or loses to it, for each loss, test and criterion.

    Each row of wins is followed by the corresponding row of losses; :func:`outcomes` relies on this order.
    """
    rows: list[Row] = []
    for loss in LOSSES:
        for rule in PROTOCOLS:
            pairs = scores.pairs(loss, rule)
            for criterion in CRITERIA:
                tables = [each for each in PAIR_TABLES.values() if (each.suite, each.criterion) == (suite, criterion)]
                for outcome, order in (("wins", PAIR), ("losses", PAIR[::-1])):
                    published = [_fraction(table, scores.model, loss, order) for table in tables]
                    rows.append(
                        {
                            "suite": suite, "model": scores.model, "protocol": scores.protocol, "test": rule,
                            "loss": loss, "criterion": criterion, "outcome": outcome,
                            **_with_interval(int(pairs[order].wins(criterion).sum()), len(scores.datasets)),
                            "published": published[0] if published else None,
                            "mean_gain": 100 * float(pairs[PAIR].gains.mean()), "splits": scores.splits,
                            "steps": scores.max_iter,
                        }
                    )  # fmt: skip
    return rows


def _with_interval(count: int, total: int) -> Row:
    low, high = stats.fraction_interval(count, total)
    return {"count": count, "sets": total, "fraction": count / total, "low": low, "high": high}


def outcomes(rows: Sequence[Row], **where: str) -> list[tuple[Row, Row]]:
    """Return the headline rows with the given values, as pairs of wins and losses."""
    mine = [row for row in rows if where.items() <= row.items()]
    return list(zip(mine[::2], mine[1::2], strict=True))


def headline_table(rows: Sequence[Row], suite: str) -> Table:
    """Return a table of wins, losses and the paper's fractions for each (model, protocol, test, loss)."""
    chosen = {"suite": suite, "criterion": "significant"}
    shown = []
    for wins, losses in outcomes(rows, **chosen):
        paper = "" if wins["published"] is None else f"{wins['published']:.0%} / {losses['published']:.0%}"
        place = (wins["protocol"], str(wins["splits"]), wins["test"], wins["model"], wins["loss"])
        shown.append((*place, share(wins), share(losses), paper))
    header = ("protocol", "splits", "test", "model", "loss", "better", "worse", "paper")
    records = tuple(row for row in rows if chosen.items() <= row.items())
    heading = f"Close decay against average on {suite}"
    return Table(f"headline-{suite}", heading, header, tuple(shown), records, (said("note.headline"),))


def share(row: Row) -> str:
    """Return a count of data sets with its fraction and interval."""
    return f"{row['count']} of {row['sets']} ({row['fraction']:.0%}, {row['low']:.0%}-{row['high']:.0%})"


def shortfalls(rows: Sequence[Row]) -> list[str]:
    """Return sentences on PMLB results that fall short of the paper's, under the paper's protocol and test."""
    place = {"suite": "pmlb94", "model": "linear", "protocol": "paper", "test": "paper", "criterion": "significant"}
    found = []
    for wins, losses in outcomes(rows, **place):
        short = [(wins, "better")] if wins["fraction"] < LEAST_WINS else []
        short += [(losses, "worse")] if losses["fraction"] > MOST_LOSSES else []
        found += [said("finding.shortfall", row=row, word=word, share=share(row)) for row, word in short]
    return found

"""Scores -> what won, by how much and how sure, in plain sentences; and one row for every result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.evaluate import stats
from closecall.evaluate.grid import LABELS

from .published import LOSSES, METHODS, PairTable, table3_error
from .scores import PAIR, Scores, title

#: Below six sets even a signed-rank test in which all agree has p > 0.05 (exactly 2 / 2**5 for five).
FEWEST = 6
SHOWN = 3

HEADLINES = {
    "ahead": "Close decay is ahead of average",
    "behind": "Close decay is behind average",
    "level": "No clear difference between close decay and average over all data sets",
    "few": "Too few data sets for a verdict",
}


@dataclass(frozen=True)
class Judgement:
    """Close decay against average for one loss.

    Parameters
    ----------
    loss : str
    outcome : str
        A key of ``HEADLINES``.
    wins, ties, losses : int
        Data sets on which close decay is significantly better, neither, worse.
    gain : float
        Mean over data sets, in points.
    sentences : tuple of str
    """

    loss: str
    outcome: str
    wins: int
    ties: int
    losses: int
    gain: float
    sentences: tuple[str, ...]

    @property
    def headline(self) -> str:
        return HEADLINES[self.outcome]


@dataclass(frozen=True)
class Summary:
    """The verdicts of one (suite, protocol, model)."""

    heading: str
    verdicts: tuple[Judgement, ...]


def findings(parts: Sequence[tuple[str, Scores, Sequence[PairTable]]]) -> list[Summary]:
    """One finding for each distinct set of results; targets on the same suite share theirs.

    Parameters
    ----------
    parts : sequence of (suite, Scores, published tables)
    """
    return [
        Summary(_heading(suite, scores), tuple(judge(scores, loss, published) for loss in LOSSES))
        for suite, scores, published in _distinct(parts)
    ]


def _distinct(
    parts: Sequence[tuple[str, Scores, Sequence[PairTable]]],
) -> list[tuple[str, Scores, Sequence[PairTable]]]:
    keys = [(scores.protocol, scores.model, scores.datasets, scores.splits, scores.max_iter) for _, scores, _ in parts]
    # Sound first: it is the one whose tests keep what they promise.
    chosen = [part for place, part in enumerate(parts) if keys[place] not in keys[:place]]
    return sorted(chosen, key=lambda part: part[1].protocol != "sound")


def _heading(suite: str, scores: Scores) -> str:
    sets = "1 data set" if len(scores.datasets) == 1 else f"{len(scores.datasets)} data sets"
    return f"{suite}: {scores.protocol} protocol, {scores.model} model, {sets}, {scores.splits} splits"


def judge(scores: Scores, loss: str, published: Sequence[PairTable] = ()) -> Judgement:
    """What won, by how much, how sure.

    The outcome is that of Wilcoxon's test over the data sets, if there are enough of them and mean and median gain
    agree on the sign; everything else is called no clear difference, whatever the mean.
    """
    pair = scores.pairs(loss)
    means, gains = 100 * scores.test(loss, PAIR).mean(axis=-1), 100 * pair[PAIR].gains
    wins, losses = (int(pair[order].wins("significant").sum()) for order in (PAIR, PAIR[::-1]))
    p = stats.wilcoxon(means[:, 1], means[:, 0])
    sure = p < stats.SIGNIFICANCE and gains.mean() * np.median(gains) > 0
    outcome = "level" if not sure else "ahead" if gains.mean() > 0 else "behind"
    outcome = outcome if len(gains) >= FEWEST else "few"
    sentences = [
        _counted(wins, losses, len(gains), scores.splits),
        _sized(gains, p),
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
    return (
        f"Significantly better on {wins} of {total} data sets ({_interval(wins, total)}), significantly worse on "
        f"{losses} ({_interval(losses, total)})."
    )


def _interval(count: int, total: int) -> str:
    low, high = stats.fraction_interval(count, total)
    return f"{count / total:.0%}, 95% interval {low:.0%} to {high:.0%}"


def _sized(gains: Array, p: float) -> str:
    mean, low, high = stats.mean_interval(gains)
    text = f"Mean gain {mean:+.2f} points"
    if len(gains) < FEWEST:
        return f"{text}. With fewer than {FEWEST} data sets no test across them can settle who is better."
    tested = "p < 0.0001" if p < 1e-4 else f"p = {p:.4f}"
    return f"{text} (95% interval {low:+.2f} to {high:+.2f}, bootstrap over data sets); Wilcoxon {tested}."


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
    return (
        f"Best mean accuracy of all {len(means)} methods: {', '.join(named)}; close decay is number {place} "
        f"({means[order[place - 1]]:.2f}%)."
    )


def _papers(scores: Scores, loss: str, published: Sequence[PairTable]) -> Iterator[str]:
    base, better = (METHODS.index(method) for method in PAIR)
    words = {"significant": "significantly", "points": "by two points"}
    for table in published:
        theirs = table.fractions(scores.model, loss)
        name = table.name.replace("table", "Table ")
        yield (
            f"The paper's {name}: {words[table.criterion]} better on {theirs[base, better]:.0%}, worse on "
            f"{theirs[better, base]:.0%} of its data sets."
        )


def _beside(means: Array, errors: Sequence[float | None]) -> dict[str, float | None]:
    """Accuracies of the five methods, those of the pair first with the paper's beside them."""
    ours = {LABELS[method]: float(value) for method, value in zip(METHODS, means, strict=True)}
    beside: dict[str, float | None] = {}
    for method, error in zip(PAIR, errors, strict=True):
        beside[LABELS[method]] = ours[LABELS[method]]
        beside[f"paper: {LABELS[method]}"] = None if error is None else 100 - error
    return beside | ours


def result_rows(parts: Sequence[tuple[str, Scores, Sequence[PairTable]]]) -> list[dict[str, Any]]:
    """One flat row for every (suite, protocol, model, loss, data set), with the paper's Table 3 beside it."""
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

"""The page of the family: a map of troubles and members, ranks, what it costs and what was not run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closecall.report.text import p_value, p_words
from closecall.stats import average_ranks, critical_difference, friedman, holm, mean_interval, rank_groups, wilcoxon

from .common import Array, Row, markdown, save_chart, signed, write_csv

FACTS = ("trouble", "splits", "searched", "set", "measure")
#: A gain that differs by less than this, in points, makes no difference to anybody.
POINT = 1.0


def slug(*names: str) -> str:
    """Names without blanks, for the marks of the other pages.

    Examples
    --------
    >>> slug("5 % far outliers", "tilted, t < 0")
    '5_far_outliers/tilted_t_below_0'
    """
    named = (name.replace("<", "below").replace(">", "above") for name in names)
    return "/".join(re.sub(r"\W+", "_", name) for name in named)


@dataclass(frozen=True)
class Contest:
    """The methods of a trouble on the same sets, one of them the base: ``accuracies`` (sets, methods) in percent."""

    trouble: str
    methods: tuple[str, ...]
    base: str
    accuracies: Array
    splits: int
    seconds: dict[str, float]

    @property
    def gains(self) -> Array:
        """Over the base, (sets, methods)."""
        return self.accuracies - self.accuracies[:, [self.methods.index(self.base)]]

    def summary(self) -> list[Row]:
        """A row for each method: mean gain with its interval over the sets, sets a point better or worse, ranks."""
        ranks, gains = average_ranks(self.accuracies.round(3)), self.gains
        others = [place for place, method in enumerate(self.methods) if method != self.base]
        base = self.accuracies[:, self.methods.index(self.base)]
        adjusted = dict(
            zip(others, holm(np.array([wilcoxon(self.accuracies[:, p], base) for p in others])), strict=True)
        )
        rows = []
        for place, method in enumerate(self.methods):
            mean, low, high = mean_interval(gains[:, place])
            rows.append(
                {"place": slug(self.trouble, method), "trouble": self.trouble, "method": method, "base": self.base,
                 "sets": len(gains), "splits": self.splits, "accuracy": float(self.accuracies[:, place].mean()),
                 "mean": mean, "low": low, "high": high, "better": float((gains[:, place] >= POINT - 1e-9).mean()),
                 "worse": float((gains[:, place] <= -POINT + 1e-9).mean()), "rank": float(ranks[place]),
                 "holm": float(adjusted.get(place, 1.0)), "seconds": self.seconds[method]}
            )  # fmt: skip
        return rows


def contests(rows: Sequence[Row], methods: Sequence[str], base: str, splits: str) -> dict[str, Contest]:
    """Trouble -> the contest of these methods; ``splits`` is the column that says how many there were."""
    found = {}
    for trouble in dict.fromkeys(row["trouble"] for row in rows):
        mine = [row for row in rows if row["trouble"] == trouble]
        seconds = next(row for row in mine if row["measure"] == "seconds")
        scores = np.array([[row[m] for m in methods] for row in mine if row["measure"] == "accuracy"])
        found[trouble] = Contest(
            trouble, tuple(methods), base, scores, int(seconds[splits]), {m: seconds[m] for m in methods}
        )
    return found


# --- the map


def _gain(row: Row) -> str:
    text = f"{signed(row['mean'], digits=1)} ({signed(row['low'], digits=1)} to {signed(row['high'], digits=1)})"
    return f"**{text}**" if row["low"] > 0 or row["high"] < 0 else text


def _shares(row: Row) -> str:
    return f"{row['better']:.0%} / {row['worse']:.0%}"


def map_table(found: dict[str, list[Row]], show: Any) -> str:
    """Methods x troubles; the base's own accuracy in its line."""
    troubles = list(found)
    lines = []
    for place, row in enumerate(found[troubles[0]]):
        cells = [
            f"{found[t][place]['accuracy']:.1f} %" if row["method"] == row["base"] else show(found[t][place])
            for t in troubles
        ]
        lines.append([row["method"], *cells])
    return markdown(["", *troubles], lines)


def chart(rows: Sequence[Row]) -> Any:
    """Troubles x methods, coloured by the mean gain, its number in it; darker numbers where the interval is off 0."""
    import altair as alt

    values = [
        {"trouble": row["trouble"], "method": row["method"], "mean": float(np.clip(row["mean"], -8, 8)),
         "text": "0.0" if row["method"] == row["base"] else signed(row["mean"], digits=1),
         "sure": bool(row["low"] > 0 or row["high"] < 0)}
        for row in rows
    ]  # fmt: skip
    troubles, methods = (list(dict.fromkeys(value[name] for value in values)) for name in ("trouble", "method"))
    base = alt.Chart(alt.Data(values=values)).encode(
        x=alt.X("trouble:N", sort=troubles, title=None, axis=alt.Axis(orient="top", labelAngle=-30, labelLimit=220)),
        y=alt.Y("method:N", sort=methods, title=None, axis=alt.Axis(labelLimit=260)),
    )
    scale = alt.Scale(domain=[-8, 0, 8], range=["#E58A4A", "#FFFFFF", "#5AA5D6"], interpolate="rgb")
    colour = alt.Color("mean:Q", title="points", scale=scale)
    boxes = base.mark_rect(stroke="#DDDDDD").encode(color=colour)
    look = alt.condition("datum.sure", alt.value("#000000"), alt.value("#8A8A8A"))
    text = base.mark_text(fontSize=11).encode(text="text:N", color=look)
    return (boxes + text).properties(width=alt.Step(84), height=alt.Step(20))


# --- sentences


def verdict(contest: Contest) -> str:
    """Of a trouble: who gains beyond doubt, who is best, and whether average or trimming is enough."""
    rows = {row["method"]: row for row in contest.summary()}
    sure = [row for row in rows.values() if row["low"] > 0 and row["holm"] < 0.05 and row["mean"] > 0]
    hurt = [row for row in rows.values() if row["high"] < 0 and row["holm"] < 0.05]
    names = ", ".join(f"{row['method']} ({signed(row['mean'], digits=1)})" for row in _by_mean(sure))
    words = [
        f"gaining beyond doubt (interval above 0, Holm's p below 0.05): {names}."
        if sure
        else "nobody gains beyond doubt: **average is enough**."
    ]
    if sure and max(row["mean"] for row in sure) < POINT:
        words.append("No such gain reaches a point, so that average is enough for most purposes.")
    elif sure:
        words.append(_trimming(contest, _by_mean(sure)[0]["method"]))
    if hurt:
        words.append(f"Losing beyond doubt: {', '.join(row['method'] for row in _by_mean(hurt))}.")
    return f"- **{contest.trouble}**: " + " ".join(words)


def _by_mean(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: -row["mean"])


def _trimming(contest: Contest, best: str) -> str:
    """Trimming against the best."""
    if best == "trimmed":
        return "Trimming is the best of all."
    first, second = (contest.methods.index(name) for name in (best, "trimmed"))
    mean, low, high = mean_interval(contest.accuracies[:, first] - contest.accuracies[:, second])
    apart = f"{best} minus trimmed is {signed(mean)} points ({signed(low)} to {signed(high)})"
    if low > 0:
        return f"Trimming is not enough: {apart}."
    return f"**Trimming is enough**: {apart}, which is not beyond doubt."


def _answer(found: dict[str, list[Row]]) -> str:
    """The best member of each trouble, in a sentence."""
    best = [
        f"{trouble}: {row['method']} {signed(row['mean'], digits=1)}"
        for trouble, rows in found.items()
        for row in _by_mean(rows)[:1]
    ]
    return f"**The best member on each kind of table, in points over average: {'; '.join(best)}.**\n"


def ranks_table(contest: Contest) -> str:
    """Mean ranks of a trouble, best first, with Nemenyi's critical difference to the best."""
    rows = sorted(contest.summary(), key=lambda row: row["rank"])
    distance = critical_difference(len(rows), rows[0]["sets"])
    groups = rank_groups(np.array([row["rank"] for row in rows]), distance)
    first = set(groups[0]) if groups and 0 in groups[0] else {0}
    _, p = friedman(contest.accuracies.round(3))
    lines = [
        [row["method"], f"{row['rank']:.2f}", "yes" if place in first else "no",
         "-" if row["method"] == row["base"] else p_value(row["holm"])]
        for place, row in enumerate(rows)
    ]  # fmt: skip
    head = (
        f"\n### {contest.trouble}\n\n{rows[0]['sets']} sets; Friedman's test "
        f"{p_words(p)}; critical difference {distance:.2f} (Nemenyi, 5 %).\n\n"
    )
    return head + markdown(["", "mean rank", "within the difference of the first", "p against average (Holm)"], lines)


def write_page(
    rows: list[Row], figure: Path, *, members: Sequence[str], searches: Sequence[str], base: str, facts: dict[str, str]
) -> str:
    """The page; the map is written beside the figure as a table of its own, for those who quote it."""
    family = contests(rows, members, base, "splits")
    guarded = contests(rows, searches, searches[0], "searched")
    found = {trouble: contest.summary() for trouble, contest in family.items()}
    searched = {trouble: contest.summary() for trouble, contest in guarded.items()}
    every = [row for part in (found, searched) for trouble in part for row in part[trouble]]
    write_csv(figure.with_name("family-map.csv"), every)
    save_chart(chart(every), figure)
    clean, *spoiled = family.values()
    largest = clean.seconds | guarded[clean.trouble].seconds
    return "\n".join(
        [
            "# The whole family: who wins where\n",
            _answer(found),
            "## In short\n",
            *(verdict(contest) for contest in family.values()),
            *(_guard_line(contest) for contest in guarded.values()),
            "\n## The map: points over average\n",
            "Mean gain in test accuracy over average, 95 % bootstrap interval over the sets; bold where it leaves out "
            "0. The line of average is its accuracy. The searches of the second table have training and validation "
            f"part together and choose by cross-validation ({guarded[clean.trouble].splits} splits); they are compared "
            f"with {searches[0]}, whose line is its accuracy.\n",
            map_table(found, _gain),
            "\n" + map_table(searched, _gain),
            f"\n![The map](beyond/{figure.name})\n",
            "*Colours end at 8 points; grey numbers: the interval holds 0.*\n",
            "## Sets a point better / a point worse than average\n",
            map_table(found, _shares),
            "\n" + map_table(searched, _shares),
            "\n## Ranks\n",
            "Members and yardsticks by mean rank (1 is best) over the sets.",
            *(ranks_table(contest) for contest in family.values()),
            "\n## What it costs\n",
            f"Mean processor time of all {facts['count']} settings of a split of the clean sets, and of a whole "
            "search.\n",
            markdown(
                ["", "milliseconds", f"over {base}"],
                [[m, f"{1000 * s:.0f}", f"{s / largest[base]:.1f}"] for m, s in largest.items()],
            ),
            "\n## How it was measured\n",
            f"{len(clean.accuracies)} PMLB sets as they are ({clean.splits} splits of the sound protocol), and "
            f"{len(spoiled[0].accuracies)} of them with five troubles ({spoiled[0].splits} splits): "
            f"{facts['troubles']} Training and validation part are spoiled alike, the test part is clean. "
            f"{facts['settings']}",
            "\n## What was not run\n",
            facts["not_run"],
            "\n---\n\nMade by `python -m reproduction.studies family` from [beyond/family.csv](beyond/family.csv); "
            "`--page` makes this page and [the map as a table](beyond/family-map.csv) again from that table alone.\n",
        ]
    )


def _guard_line(contest: Contest) -> str:
    rows = [row for row in contest.summary() if row["method"] != contest.base]
    words = "; ".join(
        f"{row['method']} {signed(row['mean'])} ({signed(row['low'])} to {signed(row['high'])}), a point better on "
        f"{row['better']:.0%} of the sets and worse on {row['worse']:.0%}"
        for row in rows
    )
    enough = "" if any(row["mean"] >= POINT for row in rows) else f" No gain of a point: {contest.base} is enough."
    return f"- **{contest.trouble}**, against {contest.base}: {words}.{enough}"

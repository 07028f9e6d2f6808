"""The page of the networks' starts: its answer first, then three comparisons, the published tables, and the sets."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from closecall.report.text import p_value
from closecall.stats import SIGNIFICANCE
from reproduction.protocol.grid import EQUAL_STARTS, LABELS
from reproduction.protocol.plan import NETWORK_STEPS
from reproduction.protocol.published import LOSSES, METHODS as TABLE_METHODS, PAIR_TABLES
from reproduction.protocol.stats import mean_interval

from .common import Row, made_by, markdown, read_csv, write_csv

#: Steps of the released descent, the first of them on all sets of at most so many values, the second on the smallest.
STEPS, LONG, LONG_SETS = 2_000, 10_000, 10
MAX_VALUES = 8_000
METHODS = ("average", EQUAL_STARTS, "close_decay")
#: (base, better): what the released procedure compares, and what is left when average has as many starts.
PAIRS = {
    ("average", "close_decay"): "released",
    (EQUAL_STARTS, "close_decay"): "equal",
    ("average", EQUAL_STARTS): "starts",
}
ONE, NEW, RELEASED = "one start", "new starts", "released descent, {:,} steps"
AGREEMENT, COUNTS = "network-agreement.csv", "network-counts.csv"
ALL = "all"
SUITES = {"pmlb94": "PMLB", "openml100": "OpenML"}


@dataclass(frozen=True)
class Count:
    """One pair of methods in one way of running, on one suite with one loss."""

    sets: int
    better: int
    worse: int
    better_holm: int
    worse_holm: int
    two_points: int
    two_points_worse: int
    mean: float
    low: float
    high: float

    @property
    def difference(self) -> str:
        """The mean difference and its interval."""
        return f"{self.mean:+.2f} ({self.low:+.2f} to {self.high:+.2f})"

    @property
    def shown(self) -> list[str]:
        """Sets better and worse, before and after the correction; by two points; the mean difference."""
        wins = f"{self.better} / {self.worse} ({self.better_holm} / {self.worse_holm})"
        return [wins, f"{self.two_points} / {self.two_points_worse}", self.difference]


#: (way, suite, loss, pair) -> what is counted; None where the pair was not run.
Counts = dict[tuple[str, str, str, str], Count | None]


def count(rows: Sequence[Row], stem: str) -> Count | None:
    """The summary of one way of running, suite and loss; None if the pair was not run."""
    mine = [row for row in rows if row[f"{stem}_gain"] != ""]
    if not mine:
        return None
    gains, p, adjusted = (np.array([row[f"{stem}_{what}"] for row in mine]) for what in ("gain", "p", "p_holm"))
    signs = [(gains > 0) & (each < SIGNIFICANCE) for each in (p, adjusted)]
    losses = [(gains < 0) & (each < SIGNIFICANCE) for each in (p, adjusted)]
    better, better_holm, worse, worse_holm = (int(each.sum()) for each in (*signs, *losses))
    points = int((gains >= 2 - 1e-9).sum()), int((gains <= -2 + 1e-9).sum())
    return Count(len(mine), better, worse, better_holm, worse_holm, *points, *mean_interval(gains))


def page(rows: list[Row], figure: Path) -> str:
    ways = list(dict.fromkeys((row["way"], row["suite"]) for row in rows))
    found = {
        (way, suite, loss, stem): count([row for row in mine if row["loss"] == loss], stem)
        for way, suite in (*ways, (NEW, ALL))
        for mine in [[row for row in rows if row["way"] == way and suite in (row["suite"], ALL)]]
        for loss in LOSSES
        for stem in PAIRS.values()
    }
    write_csv(figure.with_name(COUNTS), _counted(found))
    return "\n".join(
        [
            "# Networks: is it the loss or the number of starts?\n",
            _answer(found),
            "## Three comparisons\n",
            _comparisons(found, ways),
            "\n## The network halves of the tables\n",
            _agreement(read_csv(figure.with_name(AGREEMENT))),
            "\n## Every set with a significant difference\n",
            _sets(rows),
            "\n## How it was measured\n",
            _method(rows, ways),
            made_by("network-starts"),
        ]
    )


def _counted(found: Counts) -> list[Row]:
    """Numbers quoted elsewhere: a row for each way, suite, loss and pair; names without spaces."""
    return [
        {"way": re.sub(r"[ ,]+", "_", way), "suite": suite, "loss": loss, "pair": stem, **vars(each)}
        for (way, suite, loss, stem), each in found.items()
        if each
    ]


def _answer(found: Counts) -> str:
    """Two sentences: whether close decay helps, and how much of its gain is due to the number of starts."""
    left, counted, given = (
        [found[NEW, ALL, loss, stem] for loss in LOSSES] for stem in ("equal", "released", "starts")
    )
    helps = [loss for loss, each in zip(LOSSES, left, strict=True) if each and each.low > 0]
    word = f"helps with the {' and the '.join(helps)} loss" if helps else "does not help significantly"
    return (
        f"**If average has as many random starts, close decay {word}: over {_both(left[:1], 'sets')} sets the mean "
        f"difference is {_both(left, 'difference')} points (logistic and hinge loss, 95 % intervals), and it is "
        f"significantly better on {_both(left, 'better')} of the sets and worse on {_both(left, 'worse')}.** In the "
        "released experiments every setting has a new start, so close decay is chosen among two to five times as many "
        f"networks as average; counted in that way, it is better on {_both(counted, 'better')} and worse on "
        f"{_both(counted, 'worse')} (mean difference {_both(counted, 'difference')}). The additional starts alone "
        f"change average by {_both(given, 'difference')} points.\n"
    )


def _both(counts: Sequence[Count | None], what: str) -> str:
    return " and ".join(str(getattr(each, what)) for each in counts if each)


def _method(rows: Sequence[Row], ways: Sequence[tuple[str, str]]) -> str:
    sets = "; ".join(
        f"{way}, {len({row['set'] for row in rows if (row['way'], row['suite']) == (way, suite)})} {SUITES[suite]} sets"
        for way, suite in ways
    )
    return (
        f"All runs have {rows[0]['splits']:.0f} splits and use the paper's protocol and test. They are: {sets}.\n\n"
        f"- *{ONE}*: all settings of a split start from the same random network and take {NETWORK_STEPS} steps of "
        "Adam;\n"
        f"- *{NEW}*: the same steps, but every (alpha, k) of every method starts from its own random network, as in "
        "the released experiments;\n"
        "- *average, equal starts*: average has as many networks as close decay has settings (for each alpha, one for "
        "each k), and the best is chosen on the same validation rows; the first network for each alpha is that of "
        "average itself;\n"
        "- *released descent*: the descent of the released code, on PMLB sets of at most "
        f"{MAX_VALUES:,} values with our divisions and grid ({LONG:,} steps on ten of them). It has momentum 0.9 and a "
        "rate of 1 on the sum of the losses, with the penalty on all parameters. When the training aggregate exceeds "
        "1.1 times its lowest value, the rate is halved and the run returns to its best point. All methods except "
        "close decay stop when they hardly move.\n\n"
        "The paper's text gives neither the rate nor the number of steps of its networks; its released code gives "
        "both.\n"
    )


def _comparisons(found: Counts, ways: Sequence[tuple[str, str]]) -> str:
    lines = []
    for way, suite in ways:
        for loss in LOSSES:
            mine = [found[way, suite, loss, stem] for stem in PAIRS.values()]
            cells = [text for each in mine for text in (each.shown if each else [""] * 3)]
            lines.append([f"{way}, {SUITES[suite]}", loss, _both(mine[:1], "sets"), *cells])
    for suite in dict.fromkeys(suite for _, suite in ways):
        lines += [[f"published, {SUITES[suite]}", loss, "", *_published(suite, loss), *[""] * 7] for loss in LOSSES]
    names = [f"{LABELS[base]} -> {LABELS[better]}" for base, better in PAIRS]
    columns = [text for name in names for text in (f"{name}: better / worse", "two points", "mean")]
    return (
        markdown(["way", "loss", "sets", *columns], lines)
        + "\n\n*Better / worse* counts the sets with p < 0.05 by the paper's test, in brackets after Holm's correction "
        "over the sets; *two points* counts the sets that are better or worse by at least two points; *mean* is the "
        "mean difference in points, with its 95 % interval (bootstrap over the sets).\n"
    )


def _published(suite: str, loss: str) -> list[str]:
    """The published fractions of sets on which close decay is better and worse than average, by both criteria."""
    base, better = (TABLE_METHODS.index(each) for each in ("average", "close_decay"))
    theirs = [each.fractions("network", loss) for each in PAIR_TABLES.values() if each.suite == suite]
    return [f"{each[base, better]:.0%} / {each[better, base]:.0%}" for each in theirs]


def _agreement(rows: Sequence[Row]) -> str:
    """How many cells agree with the published tables, before and after, on the same sets; then every cell."""
    if not rows:
        return ""
    at = {(row["table"], row["loss"], row["cell"], row["way"]): row for row in rows}
    lines = []
    for table in dict.fromkeys(row["table"] for row in rows):
        cells = [f"Table {table[-1]}"]
        for way in (ONE, NEW):
            mine = [row for row in rows if (row["table"], row["way"]) == (table, way)]
            for name in ("p", "p_holm"):
                cells.append(f"{sum(row[name] >= SIGNIFICANCE for row in mine)} of {len(mine)}")
            cells.append(f"{np.mean([abs(row['difference']) for row in mine]):.3f}" if mine else "")
        lines.append(cells)
    columns = ("agree", "agree (Holm)", "mean abs. diff.")
    header = ["table", *(f"{way}: {what}" for way in (ONE, NEW) for what in columns)]
    every = [
        [f"Table {table[-1]}, {loss}, {cell}", *(_cell(at.get((table, loss, cell, way))) for way in (ONE, NEW)),
         f"{at[table, loss, cell, NEW]['published']:.2f}"]
        for table, loss, cell, way in at if way == NEW
    ]  # fmt: skip
    return "\n".join(
        [
            "The table counts the cells of the network halves that are within sampling error of the published ones "
            "(p >= 0.05, as in [the comparison](comparison.md)), with one start and with new starts on the same "
            "sets.\n",
            markdown(header, lines), "\n<details markdown><summary>Every cell</summary>\n",
            markdown(["cell", ONE, NEW, "published"], every), "\n</details>",
        ]
    )  # fmt: skip


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    text = f"{row['ours']:.2f} ({row['low']:.2f} to {row['high']:.2f})"
    return f"**{text}**" if row["p"] < SIGNIFICANCE else text


def _sets(rows: Sequence[Row]) -> str:
    stems = ("released", "equal")
    chosen = [row for row in rows if any(row[f"{stem}_p"] != "" and row[f"{stem}_p"] < SIGNIFICANCE for stem in stems)]
    lines = [
        [
            row["way"], row["set"], row["loss"], *(f"{row[each]:.1f}" if row[each] != "" else "" for each in METHODS),
            *(p_value(row[f"{stem}_p"]) if row[f"{stem}_p"] != "" else "" for stem in stems),
        ]
        for row in chosen
    ]  # fmt: skip
    header = ["way", "set", "loss", *(LABELS[each] for each in METHODS), "p, average", "p, equal starts"]
    note = "the p-values compare close decay with average and with average with equal starts."
    return markdown(header, lines) + f"\n\nAccuracies are test accuracies in percent; {note}\n"

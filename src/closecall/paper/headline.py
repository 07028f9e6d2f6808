"""The numbers that are quoted elsewhere: computed once, kept in CSV, and put into pages by name."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path

from closecall.evaluate import stats
from closecall.evaluate.pairs import CRITERIA
from closecall.evaluate.protocol import PROTOCOLS
from closecall.report.formats import Row, Table

from .published import LOSSES, METHODS, PAIR_TABLES
from .scores import PAIR, Scores

HEADLINE = "headline.csv"
#: What the paper's fractions lead one to expect of close decay against average; outside of it a page opens with that.
LEAST_WINS, MOST_LOSSES = 0.20, 0.02

_BLOCK = re.compile(r"(<!-- results: begin.*?-->\n).*?(<!-- results: end -->)", re.S)
_VALUE = re.compile(r"(<!-- result: (?P<file>[\w/-]+\.csv) (?P<column>\w+) (?P<spec>\S+)(?P<where>(?: \w+=\S+)*) -->)"
                    r"(?P<text>.*?)(<!-- end -->)", re.S)  # fmt: skip

#: A mark anywhere but in code.
_MARK = re.compile(r"(?<!`)<!-- result: ")


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
                            **_counted(int(pairs[order].wins(criterion).sum()), len(scores.datasets)),
                            "published": _published(suite, scores.model, loss, criterion, order),
                            "mean_gain": 100 * float(pairs[PAIR].gains.mean()), "splits": scores.splits,
                            "steps": scores.max_iter,
                        }
                    )  # fmt: skip
    return rows


def _counted(count: int, total: int) -> Row:
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
            share(pair["wins"]), share(pair["losses"]), _papers(pair),
        )
        for (model, protocol, test, loss), pair in by_place.items()
    )  # fmt: skip
    heading = f"Close decay against average on {suite}"
    header = ("protocol", "splits", "test", "model", "loss", "better", "worse", "paper")
    notes = (
        "Data sets on which close decay is significantly better or worse than average (p < 0.05), with exact 95 % "
        "intervals that take the data sets as independent (some are versions of one another). The paper's test "
        "takes the splits for independent samples; the sound test does not, and is "
        "corrected for the number of data sets.",
    )
    return Table(f"headline-{suite}", heading, header, shown, tuple(mine), notes)


def share(row: Row) -> str:
    """A count of data sets with its fraction and interval."""
    return f"{row['count']} of {row['sets']} ({row['fraction']:.0%}, {row['low']:.0%}-{row['high']:.0%})"


def _papers(pair: dict[str, Row]) -> str:
    given = [pair[outcome]["published"] for outcome in ("wins", "losses")]
    return "" if None in given else f"{given[0]:.0%} / {given[1]:.0%}"


def shortfalls(rows: Sequence[Row]) -> list[str]:
    """What falls short of the paper on PMLB under its own protocol and test, in sentences; empty if nothing does."""
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
        found.append(
            f"With the {row['loss']} loss close decay is significantly {word} than average on {share(row)} of the "
            f"PMLB sets under the paper's protocol and test; the paper has {row['published']:.0%}."
        )
    return found


def readme_block(folder: Path) -> str:
    """The README's table, from ``headline.csv`` alone: each protocol by its own test."""
    with (folder / HEADLINE).open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["criterion"] == "significant"]
    places: dict[tuple[str, ...], dict[str, dict[str, str]]] = {}
    for row in rows:
        if row["test"] == row["protocol"]:
            place = (row["suite"], row["model"], row["protocol"], row["loss"])
            places.setdefault(place, {})[row["outcome"]] = row
    lines = [
        "Close decay against the average loss, 95 % intervals in brackets:",
        "",
        "| Suite, model | Splits | Protocol and its test | Loss | Better on | Worse on | Paper |",
        "|---|---|---|---|---|---|---|",
    ]
    for (suite, model, protocol, loss), pair in places.items():
        theirs = [pair[outcome]["published"] for outcome in ("wins", "losses")]
        paper = " / ".join(f"{float(value):.0%}" for value in theirs) if all(theirs) else ""
        shown = [_text(pair[name]) for name in ("wins", "losses")]
        cells = [f"{suite}, {model}", pair["wins"]["splits"], protocol, loss, *shown, paper]
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "Fewer splits find fewer significant differences: compare rows of equal splits only.",
        "[All results](docs/results/index.md), beside the paper's, with what they cost and how to repeat them, and",
        "[how we read them](docs/results/reading.md).",
    ]
    return "\n".join(lines) + "\n"


def _text(row: dict[str, str]) -> str:
    share, low, high = (float(row[name]) for name in ("fraction", "low", "high"))
    return f"{row['count']} of {row['sets']}: {share:.0%} [{low:.0%}, {high:.0%}]"


def fill(text: str, folder: Path) -> str:
    """A page with its results filled in: the README's block, and every ``<!-- result: ... -->`` value.

    ``<!-- result: headline.csv fraction .0% suite=pmlb94 outcome=wins -->26%<!-- end -->`` is the column ``fraction``,
    formatted by ``.0%``, of the one row of ``headline.csv`` that has those values.

    Raises
    ------
    ValueError
        If a mark cannot be read or does not name one value: a number that nothing fills in would never be checked.
    """
    marks, read = len(_MARK.findall(text)), len(_VALUE.findall(text))
    if marks != read:
        raise ValueError(f"{marks - read} of {marks} '<!-- result: ... -->' marks cannot be read; write them as "
                         "<!-- result: FILE.csv COLUMN FORMAT NAME=VALUE ... -->text<!-- end -->")  # fmt: skip
    text = _VALUE.sub(lambda match: match[1] + _value(match, folder) + match[match.lastindex or 0], text)
    return _BLOCK.sub(lambda match: match[1] + readme_block(folder) + match[2], text)


def _value(match: re.Match[str], folder: Path) -> str:
    where = dict(word.split("=", 1) for word in match["where"].split())
    with (folder / match["file"]).open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if where.items() <= row.items()]
    values = {row[match["column"]] for row in rows}
    if len(values) != 1:
        raise ValueError(f"{match[1]} names {len(rows)} rows of {match['file']} with {len(values)} values, not one")
    value = values.pop()
    spec = match["spec"]
    return value if spec == "text" else format(int(value) if spec == "d" else float(value), spec)

"""The front page of the results (the outcome, the cost, the missing cells) and the opening sentence of every page."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from closecall.report.formats import Row
from reproduction.protocol import SUITES
from reproduction.protocol.grid import LABELS
from reproduction.protocol.published import LOSSES, METHODS, PAIR_TABLES
from reproduction.run.campaign import costs
from reproduction.run.exchange import Campaign
from reproduction.run.scores import title

from .findings import ADVERBS, findings, headline_table, outcomes, shortfalls
from .formats import Column, Table, fold, heading, items, link, listed, paragraph, said, table_of, tabled
from .sections import Section, commands_of, notes_of, parts_of

#: Group -> its pages, in order; pages in no group come last.
GROUPS = {
    "How to read them": ("reading",),
    "The paper's tables and figures": (
        "table1", "table2", "table3", "table4", "table5", "figure1", "figure2", "figure3", "figure4", "figure5",
        "examples", "overview",
    ),
    "Does it hold?": (
        "comparison", "deviations", "beyond-criterion", "beyond-imbalance", "beyond-population",
        "beyond-network-starts", "beyond-rates", "beyond-steps", "predictions",
    ),
    "When does it help?": (
        "when", "beyond-family", "beyond-dirt", "beyond-check", "beyond-contamination", "beyond-strength",
        "beyond-level", "beyond-referee", "beyond-threshold", "beyond-multiclass", "beyond-yardsticks",
    ),
    "Costs and solvers": (
        "beyond-cost", "beyond-starts", "beyond-optimality", "beyond-exact", "exact01", "beyond-dca", "sorr",
    ),
}  # fmt: skip
MORE = "More"


def grouped(files: Sequence[str]) -> dict[str, list[str]]:
    """Return the pages in groups.

    Examples
    --------
    >>> grouped(["when.md", "own.md", "beyond-level.md"])
    {'When does it help?': ['when.md', 'beyond-level.md'], 'More': ['own.md']}
    """
    found = {group: [f"{name}.md" for name in names if f"{name}.md" in files] for group, names in GROUPS.items()}
    known = {file for names in found.values() for file in names}
    found[MORE] = [file for file in files if file not in known]
    return {group: names for group, names in found.items() if names}


def index_page(
    campaign: Campaign, sections: Sequence[Section], covered: Sequence[Row], agreement: Table, first: Sequence[Row],
    pages: Sequence[tuple[str, str, bool]],
) -> list[str]:  # fmt: skip
    """Return the page; ``first`` contains the headline rows, and ``pages`` the other pages (file, title, generated)."""
    blocks = [heading("Results", 1), *_opening(first, covered, pages)]
    titles = {file: name for file, name, _ in pages}
    for group, files in grouped(list(titles)).items():
        blocks += [heading(group), "\n".join(f"- {link(titles[file], file)}" for file in files)]
    blocks.append(heading("Close decay against average"))
    for suite in dict.fromkeys(row["suite"] for row in first):
        blocks += [heading(f"On {suite}", 3), tabled(headline_table(first, suite), titled=False)]
    blocks += _findings(sections)
    if agreement.rows:
        blocks.append(tabled(agreement))
    return [*blocks, *coverage_blocks(covered), *_missing(sections), *_cost(campaign), *_made(campaign)]


def _opening(first: Sequence[Row], covered: Sequence[Row], pages: Sequence[tuple[str, str, bool]]) -> Iterator[str]:
    short = shortfalls(first)
    if short:
        tried = [f"What was tried: {link(name, file)}." for file, name, made in pages if not made]
        here, planned = next((row["sets"] for row in first if row["suite"] == "pmlb94"), 0), len(SUITES["pmlb94"])
        title = "Below what the paper reports" + (f", so far ({here} of {planned} sets)" if here < planned else "")
        yield fold(title, [*map(paragraph, short), *tried[:1]], warning=True)
    # The main comparison of the paper: linear models on PMLB, each protocol with its own test.
    sentences = [
        said("front.place", wins=wins, losses=losses)
        for wins, losses in outcomes(first, suite="pmlb94", model="linear", criterion="significant")
        if wins["test"] == wins["protocol"]
    ]
    if sentences:
        yield f"**{paragraph(said('front.lead'))}**"
        yield items(sentences)
    left = [row for row in covered if row["cells_done"] < row["cells"]]
    if left:
        missing = sum(row["cells"] - row["cells_done"] for row in left)
        yield paragraph(said("front.incomplete", missing=missing, cells=sum(row["cells"] for row in covered)))


def _findings(sections: Sequence[Section]) -> Iterator[str]:
    found = findings(parts_of(section for section in sections if section.name.startswith(("overview", "table"))))
    if found:
        yield heading("In words", 3)
    for finding in found:
        texts = [
            f"{verdict.loss} loss: {verdict.headline}. {' '.join(verdict.sentences)}" for verdict in finding.verdicts
        ]
        yield fold(finding.heading, map(paragraph, texts))


def coverage_blocks(covered: Sequence[Row]) -> Iterator[str]:
    """Yield a table of the planned and finished work, and folded lists of the incomplete data sets."""
    if covered:
        columns: dict[str, Column] = {
            "suite, protocol, model": _covered_name, "sets complete": "{sets_complete} of {sets}",
            "cells done": "{cells_done} of {cells}", "splits": "{splits}", "steps": "{steps}",
            "random start": "{starts}",
        }  # fmt: skip
        yield tabled(table_of("coverage", "Coverage", columns, covered))
    for row in covered:
        if row["missing"]:
            names = paragraph(listed(map(title, row["missing"])) + ".")
            yield fold(f"Incomplete data sets ({len(row['missing'])}): {_covered_name(row)}", [names])


def _covered_name(row: Row) -> str:
    return f"{row['suite']}{' (simulated)' * (row['what'] == 'simulations')}, {row['protocol']}, {row['model']}"


def _missing(sections: Sequence[Section]) -> Iterator[str]:
    # Cells that have not been run yet are listed with the coverage.
    dull = ("cells have not been run", "run the target again.")
    notes = [_reason(note) for note in notes_of(sections) if not note.endswith(dull)]
    if notes:
        yield fold(f"What is missing, and why ({len(notes)})", [items(notes)])


def _reason(note: str) -> str:
    """Return a note without advice on how to obtain a file, and without its first words if they are repeated later."""
    short = note.partition(" Fetch ")[0].replace("by request: ", "by request, because ")
    heading, _, rest = short.partition(": ")
    return rest if heading.partition(",")[0].lower() in rest.lower() else short


def _cost(campaign: Campaign) -> Iterator[str]:
    rows = costs(campaign)
    if rows:
        columns: dict[str, Column] = {
            "protocol, model": lambda row: "all" if row["protocol"] == "all" else "{protocol}, {model}".format_map(row),
            "cells": "{cells}", "core-hours": "{core_hours:.2f}", "median s": "{median_seconds:.1f}",
            "longest s": "{longest_seconds:.1f}",
        }  # fmt: skip
        yield tabled(table_of("cost", "What it cost", columns, rows, [said("note.costs")]))


def _made(campaign: Campaign) -> Iterator[str]:
    yield heading("How it was made")
    commands = [line.replace("```", "") for line in commands_of(run["arguments"] for run in campaign.runs)]
    if commands:
        yield "\n".join(["```text", *commands, "```"])
    cells = Counter(line.run for line in campaign.lines.values())
    environments: dict[str, list[int]] = {}
    for place, run in enumerate(campaign.runs):
        if place in cells:
            environments.setdefault(json.dumps(run["environment"], sort_keys=True), []).append(place)
    for text, places in environments.items():
        days = [time.strftime("%Y-%m-%d", time.gmtime(campaign.runs[place]["started"])) for place in places]
        started = " to ".join(dict.fromkeys((days[0], days[-1])))
        count, facts = sum(cells[place] for place in places), "; ".join(_facts(json.loads(text)))
        yield paragraph(f"Runs that started on {started} computed {count} cells in the following environment: {facts}.")
    sets = len({line.cell.dataset for line in campaign.lines.values()})
    recipes = sorted({line.cell.recipe for line in campaign.lines.values()})
    text = said("front.cells", cells=len(campaign.lines), sets=sets, recipes=listed(recipes))
    yield paragraph(text).replace("\\`", "`")  # the backticks mark code


def _facts(environment: dict[str, object]) -> Iterator[str]:
    for name, value in environment.items():
        if isinstance(value, dict):
            yield ", ".join(f"{package} {version}" for package, version in value.items() if version)
        elif isinstance(value, list):
            yield f"{name} {', '.join(map(str, value))}"
        elif value is not None:
            yield f"{name} {value}"


# --- the opening sentences, computed from the records of the tables


def answer(name: str, sections: Sequence[Section], first: Sequence[Row]) -> str:
    """Return the opening sentence of a target's page, from its sections and the headline rows, or an empty string."""
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
    return f"The following data sets are available: {', and '.join(parts)}."


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
    named = listed(f"{LABELS[method]} ({best.count(method)})" for method in methods)
    return said("answer.ranges", pairs=len(best), named=named)


def _exact(records: Sequence[Row]) -> str:
    parts = []
    for name in dict.fromkeys(row["set"] for row in records):
        at = {(row["method"], row["loss"]): row["above_bound"] for row in records if row["set"] == name}
        close, average = at["close", "logistic"], at["average", "logistic"]
        parts.append(f"{close} and {average} more, respectively, on {title(name)}")
    return said("answer.exact", parts="; ".join(parts))


_ANSWERS: dict[str, Callable[[Sequence[Row]], str]] = {
    "figure1": _boundaries, "figure2": _counted, "figure4": _chosen, "figure5": _simulated, "examples": _examples,
    "sorr": _ranges, "exact01": _exact,
}  # fmt: skip

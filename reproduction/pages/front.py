"""The front page of the results: the outcome, the cost, the missing cells and how everything was computed."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence

from closecall.report.formats import Row
from reproduction.protocol import SUITES
from reproduction.run.campaign import costs
from reproduction.run.exchange import Campaign
from reproduction.run.scores import title

from .findings import findings, headline_table, outcomes, share, shortfalls
from .formats import Column, Table, fold, heading, items, link, paragraph, said, table_of, tabled
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
    """Return the page; ``first`` holds the headline's rows, and ``pages`` the other pages (file, title, generated)."""
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
        said("front.place", wins=wins, losses=losses, won=share(wins), lost=share(losses))
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
    """Yield the amount of planned and finished work, and folded lists of the incomplete data sets."""
    if covered:
        columns: dict[str, Column] = {
            "suite, protocol, model": _covered_name, "sets complete": "{sets_complete} of {sets}",
            "cells done": "{cells_done} of {cells}", "splits": "{splits}", "steps": "{steps}",
            "random start": "{starts}",
        }  # fmt: skip
        yield tabled(table_of("coverage", "Coverage", columns, covered))
    for row in covered:
        if row["missing"]:
            names = paragraph(", ".join(map(title, row["missing"])) + ".")
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
    """Return a note without advice on how to get a file, and without its first words if they are repeated later."""
    short = note.partition(" Fetch ")[0]
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
        yield paragraph(f"{count} cells, from runs started on {started}: {facts}.")
    sets = len({line.cell.dataset for line in campaign.lines.values()})
    recipes = sorted({line.cell.recipe for line in campaign.lines.values()})
    text = said("front.cells", cells=len(campaign.lines), sets=sets, recipes=", ".join(map(str, recipes)))
    yield paragraph(text).replace("\\`", "`")  # the backticks mark code


def _facts(environment: dict[str, object]) -> Iterator[str]:
    for name, value in environment.items():
        if isinstance(value, dict):
            yield ", ".join(f"{package} {version}" for package, version in value.items() if version)
        elif isinstance(value, list):
            yield f"{name} {', '.join(map(str, value))}"
        elif value is not None:
            yield f"{name} {value}"

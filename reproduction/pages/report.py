"""The report as separate files and as one self-contained page that needs no network access."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from closecall.report import charts
from closecall.report.html import Chart, place, read, render, to_json
from reproduction.pages.blocks import Block, Fold, Heading, Items, Paragraph, Picture
from reproduction.pages.formats import to_csv, to_markdown
from reproduction.protocol.files import write_whole
from reproduction.run.campaign import stored_jobs
from reproduction.run.jobs import Job
from reproduction.run.scores import Archive
from reproduction.run.store import Store

from .findings import FORMATS, findings, result_rows
from .sections import Section, build, commands_of, folded, notes_of, parts_of


def write_report(store: Store, folder: Path, archive: Archive | None = None) -> Iterator[Path]:
    """Write every table, every figure and the page ``report.html``, and yield their paths; the page comes last.

    An existing archive of the store can be passed, so that each record is unpacked only once.
    """
    archive, sections = archive or Archive(store), list[Section]()
    for job, apart in _distinguished(stored_jobs(store)):
        section = build(job, archive)
        if apart:
            section.name = "-".join([section.name, *(word.replace(" ", "-") for word in apart)])
            section.title += f" ({', '.join(apart)})"
        sections.append(section)
        yield from write_section(section, folder / section.name)
    page = folder / "report.html"
    write_whole(page, to_html(sections, store, folder))
    yield page


def _distinguished(jobs: Sequence[Job]) -> Iterator[tuple[Job, list[str]]]:
    """Yield each job with the options, in words, that distinguish it from others of the same name."""
    for job in jobs:
        columns = zip(*(other.described() for other in jobs if other.name == job.name), strict=True)
        yield job, [word for word, column in zip(job.described(), columns, strict=True) if len({*column}) > 1]


def write_section(section: Section, folder: Path) -> Iterator[Path]:
    """Write every table as CSV and Markdown, and every chart as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in section.tables:
        yield write_whole(folder / f"{_stem(table.name)}.csv", to_csv(table))
        yield write_whole(folder / f"{_stem(table.name)}.md", to_markdown(table))
    if section.notes:
        yield write_whole(folder / "notes.md", "\n\n".join([f"# {section.title}", *section.notes]) + "\n")
    for name, chart in section.charts.items():
        yield write_whole(folder / f"{_stem(name)}.svg", charts.draw(chart))


def _stem(name: str) -> str:
    # Data sets may have any name, but file names contain only letters, digits and a few other characters.
    return "".join(c if c.isalnum() or c in "-_+." else "_" for c in name).lstrip(".")


#: How the caption of the opening picture begins.
FIRST = "What close decay gains over average on each data set"
#: The parts of the page in order, by their ids.
_PARTS = {
    "summary": "Summary", "holes": "Holes and failures", "walk-section": "Watch close decay learn",
    "charts": "Charts", "results": "All results", "tables": "Tables", "runs": "Runs and environment",
    "repeat": "How to repeat it",
}  # fmt: skip


def first_of(charts: Iterable[Chart]) -> Chart | None:
    """Return the opening picture; like the first numbers, it shows the sound protocol if possible."""
    gains = [chart for chart in charts if chart.caption.startswith(FIRST)]
    return min(gains, key=lambda chart: "sound protocol" not in chart.caption, default=None)


def to_html(sections: Sequence[Section], store: Store, folder: Path) -> str:
    """Return the whole report as one page without external references; the pictures are already written."""
    charts = {section.name: list(_charts(section, number, folder)) for number, section in enumerate(sections)}
    first = first_of(chart for each in charts.values() for chart in each)
    parts = parts_of(sections)
    results = result_rows(parts)
    columns = _columns(results)
    runs = [{**run, "environment": _ENVIRONMENT | run["environment"]} for run in store.runs()]
    walks = read("walk.json", __package__)  # made by reproduction/tests/walk.py of commit 4bb2472
    choices = {
        name: list(dict.fromkeys(row[name] for row in results))
        for name in ("protocol", "model", "loss")
        if name in columns
    }
    return render(
        "report.html.jinja", charts=[chart for each in charts.values() for chart in each],
        scripts=("table.js", "walk.js"), package=__package__,
        parts=[part for part in _PARTS.items() if results or part[0] != "results"],
        first=first, findings=findings(parts), holes=list(_holes(notes_of(sections))),
        walk=json.loads(walks), walk_data=to_json(json.loads(walks)),
        drawn=[block for section in sections for block in _drawn(section, charts[section.name], first)],
        tables=[block for section in sections for block in _tables(section)],
        results=results, columns=columns, choices=choices, formats=FORMATS, runs=runs, when=_when,
        environment=runs[-1]["environment"] if runs else {},
        commands=commands_of(run["request"].get("arguments", []) for run in runs),
    )  # fmt: skip


#: The fields of a run's environment (:mod:`reproduction.run.environment`) with their defaults.
_ENVIRONMENT: dict[str, Any] = {"python": "", "platform": "", "cores": 0, "packages": {}, "blas": [], "revision": ""}


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))


def _charts(section: Section, number: int, folder: Path) -> Iterator[Chart]:
    for other, (name, chart) in enumerate(section.charts.items()):
        caption = section.captions.get(name, name)
        picture = (folder / section.name / f"{_stem(name)}.svg").read_text(encoding="utf-8")
        yield place(f"chart-{number}-{other}", caption, chart, picture)


def _holes(notes: Sequence[str]) -> Iterator[Block]:
    if notes:
        count = f"{len(notes)} {'note' if len(notes) == 1 else 'notes'}"
        yield Fold(f"{count} on what is missing", (Items(tuple(notes)),), opened=len(notes) <= 8)
    else:
        yield Paragraph("Nothing is missing: every requested cell is available.")


def _drawn(section: Section, charts: Sequence[Chart], first: Chart | None) -> Iterator[Block]:
    """Yield the charts of a section, except for the one that opens the page."""
    if charts:
        yield Heading(section.title, 3)
    yield from (Picture(chart.caption, chart=chart) for chart in charts if chart is not first)


def _tables(section: Section) -> Iterator[Block]:
    if section.tables:
        yield Heading(section.title, 3)
    yield from (folded(table, opened=number == 0) for number, table in enumerate(section.tables))


def _columns(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the non-empty columns; the protocol and the model are left out if there is only one."""
    values = {name: {row[name] for row in results} for name in (results[0] if results else ())}
    alone = {name for name in ("protocol", "model") if len(values.get(name, ())) == 1}
    return [name for name, found in values.items() if found != {None} and name not in alone]

"""The report as separate files and as one self-contained page that needs no network access."""

import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from closecall.report import charts
from closecall.report.html import Chart, place, read, render, to_json
from reproduction.pages.formats import to_csv, to_markdown
from reproduction.protocol.files import write_whole
from reproduction.run.campaign import stored_jobs
from reproduction.run.scores import Archive
from reproduction.run.store import Store

from .findings import FORMATS, findings, result_rows
from .sections import Section, build, commands_of, notes_of, parts_of


def write_report(store: Store, folder: Path, archive: Archive | None = None) -> Path:
    """Write every table (CSV and Markdown), every figure (SVG) and the page ``report.html``; return the page's path.

    If an archive of the store already exists, pass it, so that each record is unpacked only once.
    """
    archive, sections = archive or Archive(store), list[Section]()
    jobs = stored_jobs(store)
    for job in jobs:
        section = build(job, archive)
        # The options, in words, that distinguish the job from others of the same name.
        columns = zip(*(other.described() for other in jobs if other.name == job.name), strict=True)
        apart = [word for word, column in zip(job.described(), columns, strict=True) if len({*column}) > 1]
        if apart:
            section.name = "-".join([section.name, *(word.replace(" ", "-") for word in apart)])
            section.title += f" ({', '.join(apart)})"
        sections.append(section)
        _write_section(section, folder / section.name)
    return write_whole(folder / "report.html", to_html(sections, store, folder))


def _write_section(section: Section, folder: Path) -> None:
    for table in section.tables:
        write_whole(folder / f"{_stem(table.name)}.csv", to_csv(table))
        write_whole(folder / f"{_stem(table.name)}.md", to_markdown(table))
    if section.notes:
        write_whole(folder / "notes.md", "\n\n".join([f"# {section.title}", *section.notes]) + "\n")
    for name, (chart, _) in section.charts.items():
        write_whole(folder / f"{_stem(name)}.svg", charts.draw(chart))


def _stem(name: str) -> str:
    # Data sets may have any name, but file names contain only letters, digits and a few other characters.
    return "".join(c if c.isalnum() or c in "-_+." else "_" for c in name).lstrip(".")


#: The parts of the page in order, by their ids.
_PARTS = {
    "summary": "Summary", "holes": "Holes and failures", "walk-section": "Watch close decay learn",
    "charts": "Charts", "results": "All results", "tables": "Tables", "runs": "Runs and environment",
    "repeat": "How to repeat it",
}  # fmt: skip


#: The columns of the table of all results that have a filter.
_CHOICES = ("protocol", "model", "loss")


def to_html(sections: Sequence[Section], store: Store, folder: Path) -> str:
    """Return the whole report as one page without external references; the picture files must already exist."""
    charts = {section.name: list(_charts(section, number, folder)) for number, section in enumerate(sections)}
    parts = parts_of(sections)
    results = result_rows(parts)
    columns = _columns(results)
    runs = [{**run, "environment": _ENVIRONMENT | run["environment"]} for run in store.runs()]
    walks = read("walk.json", __package__)  # made by reproduction/tests/walk.py of commit 4bb2472
    choices = {name: list(dict.fromkeys(row[name] for row in results)) for name in columns if name in _CHOICES}
    return render(
        "report.html.jinja", charts=[chart for each in charts.values() for chart in each],
        scripts=("table.js", "walk.js"), package=__package__,
        parts=[part for part in _PARTS.items() if results or part[0] != "results"],
        findings=findings(parts), notes=notes_of(sections),
        walk=json.loads(walks), walk_data=to_json(json.loads(walks)),
        sections=[(section, charts[section.name]) for section in sections],
        results=results, columns=columns, choices=choices, formats=FORMATS, runs=runs,
        when=lambda seconds: time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)),
        environment=runs[-1]["environment"] if runs else {},
        commands=commands_of(run["request"].get("arguments", []) for run in runs),
    )  # fmt: skip


#: The fields of a run's environment (:func:`reproduction.run.run.environment`) with their defaults.
_ENVIRONMENT: dict[str, Any] = {"python": "", "platform": "", "cores": 0, "packages": {}, "blas": [], "revision": ""}


def _charts(section: Section, number: int, folder: Path) -> Iterator[Chart]:
    for other, (name, (chart, caption)) in enumerate(section.charts.items()):
        picture = (folder / section.name / f"{_stem(name)}.svg").read_text(encoding="utf-8")
        yield place(f"chart-{number}-{other}", caption, chart, picture)


def _columns(results: Sequence[dict[str, Any]]) -> list[str]:
    """Return the non-empty columns; the protocol and the model are left out if they are the same in all rows."""
    values = {name: {row[name] for row in results} for name in (results[0] if results else ())}
    alone = {name for name in ("protocol", "model") if len(values.get(name, ())) == 1}
    return [name for name, found in values.items() if found != {None} and name not in alone]

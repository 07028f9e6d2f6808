"""Sections -> files beside each other and one self-contained page, all offline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from . import figures
from .jobs import Job, from_json
from .plan import TARGETS
from .render import to_csv, to_latex, to_markdown
from .sections import Section, build
from .store import Store

#: Draws every chart of the page where its picture stands; runs inside the bundle, which has vegaEmbed in scope.
_DRAW = """
for (const holder of document.querySelectorAll("figure[data-chart]")) {
  const spec = JSON.parse(document.getElementById(holder.dataset.chart).textContent);
  vegaEmbed(holder.querySelector(".chart"), spec, {renderer: "svg", actions: false});
}
"""


def stored_jobs(store: Store) -> list[Job]:
    """The jobs that were ever asked of this store, each once, in the order of the paper."""
    jobs: dict[tuple[str, Any], Job] = {}
    for run in store.runs():
        for content in run["request"].get("jobs", []):
            job = from_json(content)
            jobs[job.name, job.options] = job
    order = list(TARGETS)
    return sorted(jobs.values(), key=lambda job: order.index(job.target.name))


def write_report(store: Store, folder: Path, jobs: Sequence[Job] | None = None) -> Iterator[Path]:
    """Write every table and figure and the page ``report.html``; yield each path as it is written, the page last.

    Parameters
    ----------
    store : Store
    folder : path
    jobs : sequence of Job, optional
        All jobs of the store unless given.
    """
    sections = []
    for job in stored_jobs(store) if jobs is None else jobs:
        section = build(job, store)
        sections.append(section)
        yield from write_section(section, folder / section.name)
    page = folder / "report.html"
    _write(page, to_html(sections, store, folder))
    yield page


def write_section(section: Section, folder: Path) -> Iterator[Path]:
    """CSV, Markdown and LaTeX of every table, SVG, PNG and PDF of every chart."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in section.tables:
        for suffix, render in _RENDERERS.items():
            yield _write(folder / f"{_stem(table.name)}.{suffix}", render(table))
    if section.notes:
        yield _write(folder / "notes.md", "\n\n".join([f"# {section.title}", *section.notes]) + "\n")
    for name, text in section.latex.items():
        yield _write(folder / f"paper-layout-{_stem(name)}.tex", text)
    for name, chart in section.charts.items():
        yield from figures.write(chart, folder / _stem(name))


_RENDERERS: dict[str, Callable[[Any], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}


def _stem(name: str) -> str:
    # Names may come from data sets; what is no letter, digit or plain mark stays out of the file system.
    return "".join(c if c.isalnum() or c in "-_+." else "_" for c in name).lstrip(".")


def _write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@dataclass(frozen=True)
class _Chart:
    """A chart on the page: its identity, its picture (SVG, for readers without JavaScript) and its specification."""

    identity: str
    name: str
    picture: str
    specification: str


def to_html(sections: Sequence[Section], store: Store, folder: Path) -> str:
    """The whole report as one page without any reference to the outside; the pictures are those already written."""
    template = resources.files(__package__).joinpath("templates/report.html.jinja").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    charts = {section.name: list(_charts(section, place, folder)) for place, section in enumerate(sections)}
    runs = store.runs()
    return environment.from_string(template).render(
        sections=sections,
        charts=charts,
        runs=runs,
        when=lambda seconds: time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds)),
        environment=runs[-1]["environment"] if runs else {},
        # Our own code, not data: safe to pass unescaped, save for the one sequence that would end the element.
        script=vl_convert.javascript_bundle(_DRAW).replace("</script", "<\\/script") if any(charts.values()) else "",
    )


def _charts(section: Section, place: int, folder: Path) -> Iterator[_Chart]:
    for number, (name, chart) in enumerate(section.charts.items()):
        specification = chart.to_json(indent=None)
        picture = (folder / section.name / f"{_stem(name)}.svg").read_text(encoding="utf-8")
        # Inside a script element only "<" could end it; JSON may spell it by its code.
        yield _Chart(f"chart-{place}-{number}", name, picture, specification.replace("<", "\\u003c"))

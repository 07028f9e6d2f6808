"""One section of the report, made from a job and its results: tables, charts and notes on what is missing."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import altair as alt
import numpy as np

from closecall.report import charts
from closecall.report.formats import Row
from reproduction.protocol.protocol import CRITERIA
from reproduction.protocol.published import LOSSES, PAIR_TABLES, PairTable
from reproduction.run.jobs import Job
from reproduction.run.record import Record
from reproduction.run.scores import PAIR, Archive, Scores, title

from . import figure1, figures
from .figure5 import simulated, simulation_gains, simulation_table
from .formats import Table, said
from .others import Found, exact01_shown, sorr_shown
from .tables import error_table, method_table, notes_on, suite_tables


@dataclass
class Section:
    """The part of the report that covers one job."""

    job: Job
    name: str
    title: str
    tables: list[Table] = field(default_factory=list)
    charts: dict[str, tuple[Any, str]] = field(default_factory=dict)  # file stem -> Vega-Lite specification, caption
    notes: list[str] = field(default_factory=list)
    scores: list[Scores] = field(default_factory=list)  # behind the tables and charts
    published: list[PairTable] = field(default_factory=list)  # the paper's tables on the same suite

    @property
    def suite(self) -> str:
        return " and ".join(self.job.suites)

    @property
    def steps(self) -> int:
        return self.job.options.max_iter or self.job.target.max_iter

    def draw(self, stem: str, chart: Any, caption: str) -> None:
        """Add a chart."""
        self.charts[stem] = charts.specification(chart), caption


def parts_of(sections: Iterable[Section]) -> list[tuple[str, Scores, list[PairTable]]]:
    """Return the suite, the scores and the paper's tables for each set of scores in the sections."""
    return [(section.suite, scores, section.published) for section in sections for scores in section.scores]


def notes_of(sections: Iterable[Section]) -> list[str]:
    """Return the distinct notes of the sections."""
    return list(dict.fromkeys(note for section in sections for note in section.notes))


def commands_of(requests: Iterable[Sequence[object]]) -> list[str]:
    """Return the distinct command lines of runs, quoted for a shell."""
    return list(dict.fromkeys(shlex.join(["closecall", *map(str, given)]) for given in requests if given))


def build(job: Job, archive: Archive) -> Section:
    """Return the section for a job, based on the results so far."""
    section = Section(job, job.name, job.target.title)
    with charts.unchecked():
        if job.target.name in _OF_SECTION:
            _OF_SECTION[job.target.name](section, archive)
        else:
            _gather(section, archive)
            for add in _OF_SCORES[job.target.name]:
                for scores in section.scores:
                    add(section, scores)
    for hole in job.holes:
        section.notes.append(f"{hole.because}: {title(hole.dataset)}: {hole.why}")
    return section


def _gather(section: Section, archive: Archive) -> None:
    """Add the scores with at least one complete data set, and notes on what is missing."""
    job = section.job
    found = archive.gather(job.cells(), job.holes)
    for scores in found:
        missing = [hole for hole in scores.holes if hole not in job.holes]
        where = f"for the {scores.protocol} protocol, {scores.model} model"
        notes = [f"Left out {where}: {title(hole.dataset)}: {hole.why}" for hole in missing]
        if not scores.datasets:
            notes.insert(0, f"No data set is complete yet {where}: run the target again.")
        section.notes += [note for note in notes if note not in section.notes]
    section.scores = [scores for scores in found if scores.datasets]
    section.published = [table for table in PAIR_TABLES.values() if job.suites == (table.suite,)]


def _draw(section: Section, scores: Scores, stem: str, chart: Any) -> None:
    where = f"{scores.model} model, {scores.protocol} protocol, {scores.splits} splits"
    caption = said(f"caption.{stem.partition('-')[0]}", where=where)
    section.draw(f"{stem}-{scores.protocol}-{scores.model}", chart, caption)


def _suite(section: Section, scores: Scores, criteria: tuple[str, ...] = CRITERIA) -> None:
    section.tables += suite_tables(scores, section.published, criteria)
    for name, draw in (("gains", figures.gains), ("ranks", figures.critical_difference)):
        if name != "ranks" or len(scores.datasets) > 1:
            _draw(section, scores, name, alt.hconcat(*(draw(scores, loss) for loss in LOSSES)))


def _table3(section: Section, scores: Scores) -> None:
    beside = section.job.suites == ("fan8",) and scores.model == "linear"
    section.tables += [error_table(scores, loss, published=beside) for loss in LOSSES]
    section.tables += [method_table(scores, loss) for loss in LOSSES]


def _scatter(section: Section, scores: Scores) -> None:
    _draw(section, scores, "scatter", figures.scatter(scores))


def _figure3(section: Section, scores: Scores) -> None:
    _scatter(section, scores)
    section.tables += [error_table(scores, loss) for loss in LOSSES]


def _chosen(section: Section, scores: Scores) -> None:
    _draw(section, scores, "chosen-k", figures.chosen_k(scores))
    section.tables.append(_chosen_table(scores))


def _chosen_table(scores: Scores) -> Table:
    records: list[Row] = [
        scores.where(loss) | {"dataset": title(name), "k_over_n": float(fraction), "gain": float(gain)}
        for loss in LOSSES
        for name, fraction, gain in zip(
            scores.datasets, scores.chosen(loss), scores.pairs(loss)[PAIR].gains, strict=True
        )
    ]
    rows = []
    for low, high in ((0.0, 0.01), (0.01, 0.1), (0.1, 0.5), (0.5, 0.999), (0.999, 1.0)):
        cells = []
        for loss in LOSSES:
            inside = [r["gain"] for r in records if r["loss"] == loss and low < r["k_over_n"] <= high]
            cells += [str(len(inside)), f"{100 * np.mean(inside):+.2f}" if inside else ""]
        rows.append(("all of them" if low > 0.99 else f"{low:g} to {high:g}", *cells))
    header = ("chosen k*/n", *(f"{loss} {what}" for loss in LOSSES for what in ("sets", "gain")))
    name = f"chosen-k-{scores.protocol}-{scores.model}"
    heading = f"Chosen k*: {scores.model}, {scores.protocol} protocol"
    return Table(name, heading, header, tuple(rows), tuple(records), (said("note.chosen"), *notes_on(scores)))


def _figure1(section: Section, archive: Archive) -> None:
    points, lines, table = figure1.figure1_shown(section.steps)
    section.tables.append(table)
    ways = said("caption.descent", rate=figure1.RATE, k=figure1.DESCENT_K)
    caption = said("caption.figure1", ways=ways, alpha=figure1.FIGURE1_ALPHAS[0])
    section.draw("figure1", figures.boundaries(points, lines), caption)


def _examples(section: Section, archive: Archive) -> None:
    section.tables.append(figure1.examples_shown(section.steps))


def _beyond(section: Section, archive: Archive, *, shown: Callable[[Found, int], Table]) -> None:
    """Add the table of another paper for the data sets on which all splits have been run."""
    found: dict[str, list[Record]] = {}
    for size in section.job.sizes:
        cells = [cell for cell in section.job.cells() if cell.dataset == size.name]
        left = [cell for cell in cells if cell.key not in archive.done]
        if left:
            section.notes.append(f"Left out: {title(size.name)}: {len(left)} of {len(cells)} cells have not been run")
        else:
            found[size.name] = archive.chosen(cells)
    if found:
        section.tables.append(shown(found, section.steps))


def _figure2(section: Section, archive: Archive) -> None:
    records: list[Row] = [
        {"dataset": title(size.name), "suite": size.suite, "rows": size.rows, "features": size.features}
        for size in section.job.sizes
    ]
    if not records:
        section.notes.append("None of the data sets is available locally.")
        return
    caption = "Numbers of examples and features in the available data sets, on log scales."
    section.draw("figure2", figures.sizes(records), caption)
    rows = []
    for suite in section.job.suites:
        chosen = [(r["rows"], r["features"]) for r in records if r["suite"] == suite]
        if chosen:
            spans = [f"{min(column)} / {np.median(column):g} / {max(column)}" for column in zip(*chosen, strict=True)]
            rows.append((suite, str(len(chosen)), *spans))
    header = ("suite", "sets", "rows: min / median / max", "features: min / median / max")
    section.tables.append(Table("figure2", "Sizes of the available data sets", header, tuple(rows), tuple(records)))


def _figure5(section: Section, archive: Archive) -> None:
    for size in section.job.sizes:
        cells = [cell for cell in section.job.cells() if cell.dataset == size.name]
        for protocol, model in dict.fromkeys((cell.protocol, cell.model) for cell in cells):
            chosen = [cell for cell in cells if (cell.protocol, cell.model) == (protocol, model)]
            records, holes = simulated(chosen, size, archive)
            section.notes += [f"{protocol}, {model}: {hole.dataset}: {hole.why}" for hole in holes]
            if records:
                stem = f"figure5-{title(size.name)}-{protocol}-{model}"
                caption = said("caption.figure5", name=title(size.name), model=model, protocol=protocol)
                section.draw(stem, figures.simulations(records), caption)
                count = len({cell.split for cell in chosen})
                note = f"The numbers are for {count} splits and {chosen[0].max_iter} steps."
                section.tables.append(simulation_gains(stem, records))
                section.tables += [simulation_table(stem, records, loss, note) for loss in LOSSES]


_SIGNIFICANT, _POINTS = (partial(_suite, criteria=(name, "joint")) for name in ("significant", "points"))
#: Target -> the functions that add the tables and charts of each of its scores.
_OF_SCORES: dict[str, tuple[Callable[[Section, Scores], None], ...]] = {
    "overview": (_suite, _scatter, _chosen), "table1": (_SIGNIFICANT,), "table2": (_SIGNIFICANT,),
    "table3": (_table3,), "figure3": (_figure3,), "figure4": (_chosen,), "table4": (_POINTS,), "table5": (_POINTS,),
}  # fmt: skip
#: The other targets -> the function that fills the section.
_OF_SECTION: dict[str, Callable[[Section, Archive], None]] = {
    "figure1": _figure1, "examples": _examples, "figure2": _figure2, "figure5": _figure5,
    "exact01": partial(_beyond, shown=exact01_shown), "sorr": partial(_beyond, shown=sorr_shown),
}  # fmt: skip

"""The commands of the reproduction, and their output as text or JSON."""

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from closecall.cli.console import Json, err, out, plain, print_grid, say, words
from closecall.cli.exits import COMPLETE, FAILED, INCOMPLETE
from closecall.report.text import shown
from reproduction.pages.formats import Table
from reproduction.pages.tables import gain_table, method_table
from reproduction.protocol import SUITES, data_directory, plan
from reproduction.protocol.files import write_whole
from reproduction.protocol.plan import SPLITS, TARGETS, RunOptions
from reproduction.protocol.published import LOSSES
from reproduction.run.engines import Dask, Engine, Local
from reproduction.run.exchange import export_store, import_folder
from reproduction.run.jobs import Job, prepare
from reproduction.run.run import Event, drive
from reproduction.run.scores import Archive, title
from reproduction.run.store import Store

#: How many failures are reported individually, so that an error in every cell does not fill the screen.
_TROUBLES = 20
#: How many missing data sets are explained individually; the report explains all of them.
_HOLES = 3
RESULTS = Path("closecall-results")
Out = Annotated[Path, typer.Option("--out", help="Folder for the result store, tables, figures and report.")]


def _status(words: str) -> contextlib.AbstractContextManager[Any]:
    """Show what the command is doing, if the output is a terminal."""
    return err.status(words) if err.is_terminal else contextlib.nullcontext()


def reproduce(
    targets: Annotated[
        list[str] | None, typer.Argument(help=f"{', '.join(TARGETS)} or all.", show_default="overview")
    ] = None,
    suite: Annotated[
        str | None, typer.Option(help=f"Suite to use instead of the target's own: {', '.join(SUITES)}.")
    ] = None,
    datasets: Annotated[
        str, typer.Option(help="Comma-separated list of data sets to use: names, source:name or files.")
    ] = "",
    splits: Annotated[
        int | None,
        typer.Option(help=f"Random splits of each data set: {SPLITS}, or {plan.TRIAL_SPLITS} for the embedded suite."),
    ] = None,
    max_iter: Annotated[
        int | None,
        typer.Option(help=f"Steps: {plan.MAX_ITER}, or as set by the target; {plan.NETWORK_STEPS} for networks."),
    ] = None,
    protocol: Annotated[str, typer.Option(help="paper, sound or both (default).")] = "",
    models: Annotated[str, typer.Option(help="linear, network or linear,network.")] = "linear",
    download: Annotated[bool, typer.Option(help="Download data sets that are not available locally.")] = True,
    output: Out = RESULTS,
    workers: Annotated[int, typer.Option(help="Local processes.")] = os.cpu_count() or 1,
    scheduler: Annotated[str, typer.Option(help="Run on the Dask scheduler at this address, tcp://...")] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would run, what is done and what is missing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Run targets, resuming unfinished runs, and write the tables, the figures and the report.

    Without arguments, run the embedded suite, which needs no download, under both protocols.
    """
    protocols = None if protocol in ("", "both") else words(protocol)
    targets = targets or ["overview"]
    suites = {suite} if suite else {name for target in plan.get_targets(targets) for name in target.suites}
    if splits is None:
        splits = plan.TRIAL_SPLITS if suites == {"embedded"} else SPLITS
        if splits < SPLITS and not as_json:
            few = f"{splits} splits of each data set; the paper uses {SPLITS} (--splits {SPLITS})"
            err.print(few, soft_wrap=True)
    options = RunOptions(splits, max_iter, protocols, words(models), recipe=max(plan.NETWORK_RATES))
    if workers < 1:
        raise ValueError(f"--workers must be at least 1, not {workers}")
    with _status("reading the data sets") as status:
        jobs = prepare(
            targets, options, suite=suite, only=words(datasets), download=download and not dry_run,
            tell=lambda name: status.update(f"reading {plain(name)}") if status else None,
        )  # fmt: skip
    if dry_run:
        _say_plan(jobs, output, as_json)
    else:
        engine = Dask(scheduler) if scheduler else Local(workers)
        raise typer.Exit(_run(jobs, engine, output, as_json))


def _run(jobs: list[Job], engine: Engine, output: Path, as_json: bool) -> int:
    """Run the cells that are not in the store, write the report and return the exit code."""
    from reproduction.run.cell import run_cell  # imports scikit-learn, which the other commands do not need

    tasks = sorted((task for job in jobs for task in job.tasks()), key=lambda task: -task.cost)
    request = {"arguments": sys.argv[1:], "jobs": [job.as_json() for job in jobs]}
    work = partial(run_cell, data_dir=str(data_directory()))
    with Store(output / "store.sqlite", write=True) as store:
        render = _show_json if as_json else _show_bar if out.is_terminal else _show_lines
        with contextlib.closing(drive(tasks, store, engine, work, request)) as events:
            last = render(events)
        archive = Archive(store)
        page = _write_report(store, output, archive)
        if not as_json:
            _summarise(jobs, archive)
        _say_holes(jobs, as_json)
    if as_json:
        say({"kind": "report", "path": str(page)})
    else:
        out.print(f"report: [bold]{plain(page)}[/]", soft_wrap=True)
    holes = any(job.holes for job in jobs)
    return FAILED if last.failed else INCOMPLETE if holes or last.done < last.total else COMPLETE


def _show_json(events: Iterator[Event]) -> Event:
    for event in events:
        print(event.as_json(), flush=True)
    return event


def _show_lines(events: Iterator[Event]) -> Event:
    """Print a line at the start, after each percent of the work, for each of the first failures, and at the end."""
    percent = -1
    for event in events:
        if event.kind in ("failed", "lost"):
            if event.failed <= _TROUBLES:
                print(shown(_trouble(event)), flush=True)
        elif event.kind in ("planned", "finished") or int(100 * event.fraction) > percent:
            percent, word = int(100 * event.fraction), event.kind if event.cell is None else "running"
            print(f"{word}: {_counts(event)}, {percent} % of the work", flush=True)
    return event


def _show_bar(events: Iterator[Event]) -> Event:
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[cells]}"), TextColumn("{task.description}"))
    running: Counter[str] = Counter()
    with Progress(*columns, console=out) as progress:
        bar = progress.add_task("", total=1.0, cells="")
        for event in events:
            if event.kind in ("failed", "lost") and event.failed <= _TROUBLES:
                progress.console.print(plain(_trouble(event)), style="red")
            if event.cell is not None:
                running[title(event.cell.dataset)] += 1 if event.kind == "started" else -1
            current = plain(", ".join(sorted(name for name, count in running.items() if count > 0))[:40])
            progress.update(bar, completed=event.fraction, cells=_counts(event), description=current)
    return event


def _trouble(event: Event) -> str:
    name = f"{event.cell.dataset} split {event.cell.split} {event.cell.protocol}" if event.cell else ""
    failed = event.kind == "failed"
    return f"failed: {name}: {event.detail}" if failed else f"the worker died, so its cell will run again: {name}"


def _counts(event: Event) -> str:
    text = f"{event.done} of {event.total} cells" + (f", {event.failed} failed" if event.failed else "")
    if event.eta is None or event.kind == "finished":
        return text
    minutes, seconds = divmod(round(event.eta), 60)
    return f"{text}, {minutes}:{seconds:02} left"


def _write_report(store: Store, folder: Path, archive: Archive | None = None) -> Path:
    from reproduction.pages.report import write_report  # imported late, because it imports the drawing packages

    with _status("writing the report"):
        return write_report(store, folder, archive)


def _summarise(jobs: list[Job], archive: Archive) -> None:
    for job in jobs:
        if job.target.model:
            from reproduction.pages.sections import build

            for table in build(job, archive).tables:
                print_table(table)
        if not job.target.protocols or job.target.simulations or job.target.model:
            continue
        for scores in archive.gather(job.cells(), job.holes):
            if 0 < len(scores.datasets) <= 20:
                print_table(gain_table(scores, "logistic"))
            for loss in LOSSES if scores.datasets else ():
                print_table(method_table(scores, loss))


def _say_holes(jobs: list[Job], as_json: bool, most: int = _HOLES) -> None:
    holes = list(dict.fromkeys(hole for job in jobs for hole in job.holes))
    if as_json:
        for hole in holes:
            say({"kind": "hole", "dataset": hole.dataset, "why": hole.why})
        return
    for hole in holes[:most]:
        err.print(f"left out: {plain(hole.dataset)}: {plain(hole.why)}", style="yellow", soft_wrap=True)
    if len(holes) > most:
        names = ", ".join(title(hole.dataset) for hole in holes[most:])
        err.print(f"also left out: {len(holes) - most} data sets ({plain(names)})", style="yellow", soft_wrap=True)


def _say_plan(jobs: list[Job], output: Path, as_json: bool) -> None:
    """Show what would run, what is already done and what is not available."""
    path, done = output / "store.sqlite", set[str]()
    if path.exists():
        with Store(path) as store:
            done = store.done()
    rows = []
    for job in jobs:
        tasks = job.tasks()
        left = [task.cost for task in tasks if task.cell.key not in done]
        rows.append(
            {
                "target": job.name, "datasets": len(job.sizes), "holes": len(job.holes), "cells": len(tasks),
                "left": len(left), "core_minutes_left": round(sum(left) / 60, 1),
                "largest": title(tasks[0].cell.dataset) if tasks else "",
            }
        )  # fmt: skip
    print_records("What would run", rows, as_json)
    _say_holes(jobs, as_json, most=sys.maxsize)


def status(output: Out = RESULTS, as_json: Json = False) -> None:
    """Show the cells, failures and runs in a result store. This also works during a run."""
    with Store(output / "store.sqlite") as store:
        failures, cells, runs = store.failures(), store.cells(), store.runs()
    groups: dict[tuple[str, str, str], Counter[bool]] = {}
    for cell in cells:
        counts = groups.setdefault((cell.protocol, cell.model, title(cell.dataset)), Counter())
        counts[cell.key in failures] += 1
    records = [
        {"protocol": key[0], "model": key[1], "dataset": key[2], "done": counts[False], "failed": counts[True]}
        for key, counts in sorted(groups.items())
    ]
    heading = f"{len(cells) - len(failures)} cells done, {len(failures)} failed, {len(runs)} runs"
    if compact := sum(run["records"] for run in runs if run["request"].get("compact")):
        heading += f"; {compact} of the cells were imported and contain only the rows that validation chose"
    print_records(heading, records, as_json)
    for cell in cells:
        if cell.key in failures and not as_json:
            err.print(f"failed: {plain(cell.dataset)} split {cell.split}: {plain(failures[cell.key])}", style="red")
    raise typer.Exit(FAILED if failures else COMPLETE)


def report(output: Out = RESULTS) -> None:
    """Write the tables, figures and report again from the store, without the data and without new runs."""
    with Store(output / "store.sqlite") as store:
        print(shown(_write_report(store, output)))


def export(
    to: Annotated[Path, typer.Option(help="Folder to write to; existing files for cells in the store are replaced.")],
    output: Out = RESULTS,
) -> None:
    """Write the finished cells of a store as compact CSV files, with only the chosen rows of each grid."""
    with Store(output / "store.sqlite") as store:
        paths = export_store(store, to)
        cells = len(store.done())
    size = sum(path.stat().st_size for path in paths)
    print(f"{cells} cells in {len(paths)} files ({size / 1000:.0f} kB) in {shown(to)}")


def import_(
    folder: Annotated[Path, typer.Argument(help="A folder written by `closecall export` or `publish`.")],
    output: Out = RESULTS,
) -> None:
    """Add exported cells to a store, so that they are not run again; either all of them or none are added."""
    with Store(output / "store.sqlite", write=True) as store:
        added, known = import_folder(folder, store)
    print(f"{added} cells added to {shown(output)}; {known} were already there")


def publish(
    to: Annotated[Path, typer.Option(help="Folder for the pages, such as docs/results.")],
    output: Annotated[Path | None, typer.Option("--out", help="Folder of a result store to export first.")] = None,
) -> None:
    """Write the pages, tables and figures that show the results, from a store or an earlier export."""
    from reproduction.pages.claims import claimed_pages, fill
    from reproduction.pages.publish import CELLS, write_pages

    if output is not None:
        with Store(output / "store.sqlite") as store:
            export_store(store, to / CELLS)
    with _status("making the pages"):
        paths = list(write_pages(to))
    for page in claimed_pages(to):
        write_whole(page, fill(page, to))
    size = sum(path.stat().st_size for path in to.rglob("*") if path.name.endswith((".csv", ".csv.gz")))
    print(f"{len(paths)} files in {shown(to)}; all CSV files together: {size / 1e6:.2f} MB")


def print_table(table: Table) -> None:
    """Print a table with its title above it, because Rich would wrap a title to the width of the table."""
    out.print(plain(table.title), style="bold", soft_wrap=True)
    print_grid(table.header, table.rows, lines=True)


def print_records(heading: str, records: Sequence[dict[str, Any]], as_json: bool) -> None:
    """Print records as a table or as JSON lines."""
    if as_json:
        for record in records:
            say(record)
    elif records:
        rows = tuple(tuple(map(str, record.values())) for record in records)
        print_table(Table("", heading, tuple(name.replace("_", " ") for name in records[0]), rows, ()))

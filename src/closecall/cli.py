"""The command ``closecall``: arguments -> calls; events -> a bar, plain lines or JSON; exit codes.

0 complete, 1 some cells failed, 2 incomplete (interrupted, or data sets not at hand), 3 bad request.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any

try:
    import typer
    from rich.markup import escape
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn
    from rich.table import Table as RichTable
except ImportError as error:
    raise SystemExit(
        f'the command closecall needs more packages ({error}): pip install "closecall[bench,plots]"'
    ) from None

from closecall import __version__
from closecall._signals import stoppable
from closecall.data import SUITES, available, data_directory
from closecall.paper import commands as exchange_commands, faults
from closecall.paper.engines import Dask, Engine, Local
from closecall.paper.jobs import Job, prepare
from closecall.paper.plan import MAX_ITER, SPLITS, STARTS, TARGETS, Options, Task
from closecall.paper.published import LOSSES
from closecall.paper.run import Event, drive
from closecall.paper.scores import gather, title
from closecall.paper.store import Store
from closecall.paper.tables import gain_table, method_table
from closecall.report.console import Console
from closecall.report.formats import Table
from closecall.report.text import shown
from closecall.tabular.commands import register

COMPLETE, FAILED, INCOMPLETE, BAD_REQUEST = 0, 1, 2, 3

#: How many failures are told one by one; a mistake that hits every cell should not fill the screen.
_TROUBLES = 20
#: How many missing data sets are explained one by one; the report explains them all.
_HOLES = 3

app = typer.Typer(
    help="Classifiers trained on the close calls: on your own table, and on every table and figure of the paper.",
    no_args_is_help=True,
    add_completion=False,
)
# No :names: made pictures: data sets and files have names of their own.
out = Console(highlight=True)
err = Console(stderr=True, highlight=True)
register(app)
faults.register(app)
exchange_commands.register(app)

Targets = Annotated[list[str] | None, typer.Argument(help=f"{', '.join(TARGETS)} or all.", show_default="overview")]
Suite = Annotated[str | None, typer.Option(help=f"Instead of the target's own: {', '.join(SUITES)}.")]
Datasets = Annotated[str, typer.Option(help="Only these, separated by commas; names, source:name or files.")]
Splits = Annotated[int, typer.Option(help="Random divisions of each data set.")]
MaxIter = Annotated[int | None, typer.Option(help=f"Steps of each solve; {MAX_ITER} unless the target says less.")]
ProtocolName = Annotated[str, typer.Option("--protocol", help="paper, sound or both; both unless said.")]
Models = Annotated[str, typer.Option(help="linear, network or linear,network.")]
Start = Annotated[str, typer.Option(help=f"Where linear solves start: {', '.join(STARTS)}.")]
DataDir = Annotated[str | None, typer.Option(help="Data directory; else CLOSECALL_DATA, else the user's cache.")]
Download = Annotated[bool, typer.Option(help="Fetch data sets that are not at hand.")]
Out = Annotated[Path, typer.Option(help="Folder of the result store, the tables, figures and the report.")]
Json = Annotated[bool, typer.Option("--json", help="Events or results as JSON lines on standard output.")]


def _text(value: object) -> str:
    """A name or message as plain text for a console: neither its markup nor its control characters act."""
    return escape(shown(value))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def _jobs(
    targets: list[str] | None, suite: str | None, datasets: str, options: Options, data_dir: str | None, download: bool
) -> list[Job]:
    names = targets or ["overview"]
    say = err if err.is_terminal else None
    with err.status("looking at the data sets") if say else _quiet() as status:
        tell: Callable[[str], None] = (
            (lambda name: status.update(f"looking at {_text(name)}")) if say else (lambda _: None)
        )
        return prepare(
            names, options, suite=suite, only=_words(datasets), data_dir=data_dir, download=download, tell=tell
        )


class _quiet:
    def __enter__(self) -> Any:
        return None

    def __exit__(self, *exception: object) -> None:
        return None


def _options(splits: int, max_iter: int | None, protocol: str, models: str, start: str) -> Options:
    protocols = None if protocol in ("", "both") else _words(protocol)
    return Options(splits, max_iter, protocols, _words(models), start)


def _engine(workers: int, scheduler: str, dask_workers: int) -> Engine:
    if scheduler or dask_workers:
        return Dask(scheduler, dask_workers)
    if workers < 1:
        raise ValueError(f"--workers must be at least 1, not {workers}")
    return Local(workers)


@app.command()
def reproduce(
    targets: Targets = None,
    suite: Suite = None,
    datasets: Datasets = "",
    splits: Splits = SPLITS,
    max_iter: MaxIter = None,
    protocol: ProtocolName = "",
    models: Models = "linear",
    start: Start = STARTS[0],
    data_dir: DataDir = None,
    download: Download = True,
    output: Annotated[Path, typer.Option("--out", help=Out.__metadata__[0].help)] = Path("closecall-results"),
    workers: Annotated[int, typer.Option(help="Local processes.")] = os.cpu_count() or 1,
    scheduler: Annotated[str, typer.Option(help="Run on the Dask scheduler at this address, tcp://...")] = "",
    dask_workers: Annotated[int, typer.Option(help="Run on this many Dask workers started here.")] = 0,
    as_json: Json = False,
) -> None:
    """Run targets, resuming what was begun, and write tables, figures and the report.

    Without arguments: the embedded suite under both protocols, which needs no download.
    """
    from closecall.paper.cell import run_cell  # brings scikit-learn: the other commands start without it

    options = _options(splits, max_iter, protocol, models, start)
    engine = _engine(workers, scheduler, dask_workers)
    jobs = _jobs(targets, suite, datasets, options, data_dir, download)
    tasks = [task for job in jobs for task in job.tasks()]
    tasks.sort(key=lambda task: -task.cost)
    request = {"arguments": sys.argv[1:], "jobs": [job.as_json() for job in jobs]}
    work = partial(run_cell, data_dir=str(data_directory(data_dir)))
    with Store(output / "store.sqlite", write=True) as store:
        last = _show(drive(tasks, store, engine, work, request), tasks, as_json)
        page = _write_report(store, output, as_json)
        if not as_json:
            for job in jobs:
                _summarise(job, store)
        _say_holes(jobs, as_json)
    if as_json:
        print(json.dumps({"kind": "report", "path": str(page)}))
    else:
        out.print(f"report: [bold]{_text(str(page))}[/]", soft_wrap=True)
    holes = any(job.holes for job in jobs)
    raise typer.Exit(FAILED if last.failed else INCOMPLETE if holes or last.done < last.total else COMPLETE)


def _show(events: Generator[Event, None, None], tasks: list[Task], as_json: bool) -> Event:
    """Render events in the way that fits where they go; return the last one."""
    render = _show_json if as_json else _show_bar if out.is_terminal else _show_lines
    with contextlib.closing(events):
        return render(events)


def _show_json(events: Iterator[Event]) -> Event:
    for event in events:
        print(event.as_json(), flush=True)
    return event


def _show_lines(events: Iterator[Event]) -> Event:
    """A line at the start, at every whole percent of the cost, for the first failures, and at the end."""
    percent, troubles = -1, 0
    for event in events:
        if event.kind in ("failed", "lost"):
            troubles += 1
            if troubles <= _TROUBLES:
                print(shown(_trouble(event)), flush=True)
        elif event.kind in ("planned", "finished") or int(100 * event.fraction) > percent:
            percent = int(100 * event.fraction)
            word = event.kind if event.kind in ("planned", "finished") else "running"
            print(f"{word}: {_cells(event)}, {percent} % of the work{_eta(event)}", flush=True)
    if troubles > _TROUBLES:
        print(f"{troubles - _TROUBLES} more failures; `closecall status` lists them")
    return event


def _cells(event: Event) -> str:
    return f"{event.done} of {event.total} cells" + (f", {event.failed} failed" if event.failed else "")


def _show_bar(events: Iterator[Event]) -> Event:
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[cells]}"), TextColumn("{task.description}"))
    running: Counter[str] = Counter()
    with Progress(*columns, console=out) as progress:
        bar = progress.add_task("", total=1.0, cells="")
        for event in events:
            if event.kind in ("failed", "lost") and event.failed <= _TROUBLES:
                progress.console.print(_text(_trouble(event)), style="red")
            if event.cell is not None:
                running[title(event.cell.dataset)] += 1 if event.kind == "started" else -1
            current = _text(", ".join(sorted(name for name, count in running.items() if count > 0))[:40])
            cells = f"{event.done}/{event.total} cells{_eta(event)}" + (
                f", {event.failed} failed" if event.failed else ""
            )
            progress.update(bar, completed=event.fraction, cells=cells, description=current)
    return event


def _trouble(event: Event) -> str:
    name = f"{shown(event.cell.dataset)} split {event.cell.split} {event.cell.protocol}" if event.cell else ""
    if event.kind == "failed":
        return f"failed: {name}: {event.detail}"
    return event.detail or f"worker lost, cell runs again: {name}"


def _eta(event: Event) -> str:
    if event.eta is None or event.kind == "finished":
        return ""
    minutes, seconds = divmod(round(event.eta), 60)
    return f", {minutes}:{seconds:02} left"


def _write_report(store: Store, folder: Path, as_json: bool) -> Path:
    try:
        from closecall.paper.report import write_report
    except ImportError as error:
        raise ValueError(f'the report needs more packages ({error}): pip install "closecall[bench,plots]"') from None
    with err.status("writing the report") if err.is_terminal and not as_json else _quiet():
        *_, page = write_report(store, folder)
    return page


def _summarise(job: Job, store: Store) -> None:
    if not job.target.protocols or job.target.simulations:
        return
    for scores in gather(store, job.cells(), job.holes):
        if 0 < len(scores.datasets) <= 20:
            _print_table(gain_table(scores, "logistic"))
        for loss in LOSSES if scores.datasets else ():
            _print_table(method_table(scores, loss))


def _print_table(table: Table) -> None:
    grid = RichTable()
    for place, name in enumerate(table.header):
        grid.add_column(_text(name), justify="right" if place else "left")
    for row in table.rows:
        grid.add_row(*map(_text, row))
    # Above the table, not as its title, which would be broken to the table's width.
    out.print(_text(table.title), style="bold", soft_wrap=True)
    out.print(grid)


def _say_holes(jobs: list[Job], as_json: bool) -> None:
    holes = list(dict.fromkeys(hole for job in jobs for hole in job.holes))
    if as_json:
        for hole in holes:
            print(json.dumps({"kind": "hole", "dataset": hole.dataset, "why": hole.why}))
        return
    for hole in holes[:_HOLES]:
        err.print(f"left out: {_text(hole.dataset)}: {_text(hole.why)}", style="yellow", soft_wrap=True)
    if len(holes) > _HOLES:
        names = ", ".join(title(hole.dataset) for hole in holes[_HOLES:])
        err.print(f"left out as well, {len(holes) - _HOLES} data sets: {_text(names)}", style="yellow", soft_wrap=True)


@app.command()
def plan(
    targets: Targets = None,
    suite: Suite = None,
    datasets: Datasets = "",
    splits: Splits = SPLITS,
    max_iter: MaxIter = None,
    protocol: ProtocolName = "",
    models: Models = "linear",
    start: Start = STARTS[0],
    data_dir: DataDir = None,
    download: Download = False,
    output: Annotated[Path, typer.Option("--out")] = Path("closecall-results"),
    as_json: Json = False,
) -> None:
    """Say what would run, what is done already and what is not at hand; run nothing."""
    options = _options(splits, max_iter, protocol, models, start)
    jobs = _jobs(targets, suite, datasets, options, data_dir, download)
    path = output / "store.sqlite"
    done: set[str] = set()
    if path.exists():
        with Store(path) as store:
            done = store.done()
    rows = []
    for job in jobs:
        tasks = job.tasks()
        left = [task for task in tasks if task.cell.key not in done]
        rows.append(
            {
                "target": job.name, "datasets": len(job.sizes), "holes": len(job.holes), "cells": len(tasks),
                "left": len(left), "core_minutes_left": round(sum(task.cost for task in left) / 60, 1),
                "largest": title(tasks[0].cell.dataset) if tasks else "",
            }
        )  # fmt: skip
    _print_records("What would run", rows, as_json)
    _say_holes(jobs, as_json)


def _print_records(heading: str, records: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        for record in records:
            print(json.dumps(record))
    elif records:
        rows = tuple(tuple(map(str, record.values())) for record in records)
        _print_table(Table("", heading, tuple(name.replace("_", " ") for name in records[0]), rows, ()))


@app.command()
def status(output: Annotated[Path, typer.Option("--out")] = Path("closecall-results"), as_json: Json = False) -> None:
    """Say what a result store holds: cells by data set, failures, runs. Works while a run is writing."""
    with Store(output / "store.sqlite") as store:
        failures, cells, runs = store.failures(), store.cells(), store.runs()
        imported = store.compact_runs()
    compact = sum(run["records"] for run in runs if run["id"] in imported)
    groups = Counter((cell.protocol, cell.model, title(cell.dataset)) for cell in cells)
    bad = Counter((cell.protocol, cell.model, title(cell.dataset)) for cell in cells if cell.key in failures)
    records = [
        {"protocol": key[0], "model": key[1], "dataset": key[2], "done": count - bad[key], "failed": bad[key]}
        for key, count in sorted(groups.items())
    ]
    heading = f"{len(cells) - len(failures)} cells done, {len(failures)} failed, {len(runs)} runs"
    known = f"; {compact} of the cells are imported, with what validation chose only" if compact else ""
    _print_records(heading + known, records, as_json)
    if as_json and compact:
        print(json.dumps({"kind": "store", "compact": compact, "runs": len(runs)}))
    for cell in cells:
        if cell.key in failures and not as_json:
            err.print(f"failed: {_text(cell.dataset)} split {cell.split}: {_text(failures[cell.key])}", style="red")
    raise typer.Exit(FAILED if failures else COMPLETE)


@app.command()
def report(output: Annotated[Path, typer.Option("--out")] = Path("closecall-results"), as_json: Json = False) -> None:
    """Write tables, figures and the page again from the store; needs no data and runs nothing."""
    with Store(output / "store.sqlite") as store:
        page = _write_report(store, output, as_json)
    print(json.dumps({"kind": "report", "path": str(page)}) if as_json else shown(page))


@app.command()
def datasets(
    suite: Annotated[list[str] | None, typer.Argument(help=f"{', '.join(SUITES)}; all unless said.")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """List the suites' data sets, which are at hand, and how to get the others."""
    missing = False
    for name in suite or list(SUITES):
        found = available(name, data_dir)
        records = [{"suite": name, "dataset": each.title, "at_hand": each.at_hand, "how": each.why} for each in found]
        here = sum(each.at_hand for each in found)
        missing |= here < len(found)
        _print_records(f"{name}: {here} of {len(found)} at hand in {data_directory(data_dir)}", records, as_json)
    raise typer.Exit(INCOMPLETE if missing else COMPLETE)


def _version(asked: bool) -> None:
    if asked:
        print(f"closecall {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say it and stop.")
    ] = False,
) -> None: ...


def main() -> None:
    """The entry point: runs the command and turns what went wrong into a message and an exit code."""
    with stoppable():
        try:
            code = faults.finish(app(standalone_mode=False))
            sys.stdout.flush()  # here a reader that went away can still be answered
        except BaseException as error:
            message, code = faults.explain(error)
            if message:
                err.print(_text(message), style="red", soft_wrap=True)
    raise SystemExit(code)


if __name__ == "__main__":
    main()

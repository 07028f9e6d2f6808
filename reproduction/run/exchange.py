"""Stores <-> folders of compact files: finished cells can be shared and are never run twice.

A folder holds files of cells (``*.csv.gz``, see :mod:`reproduction.run.compact`) and ``runs.json``: the requests, where
they ran, which data sets were available, and how many cells each file has. The same store always gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from closecall._budget import Budget, BudgetError
from closecall.report.text import write_whole

from .compact import CompactError, Line, from_text, in_files, to_text
from .jobs import from_json
from .store import Store

FORMAT = 1
RUNS = "runs.json"
#: RunOptions whose values say where files lie or who computes: a matter of the machine, not of the result.
_LOCAL = ("--out", "--data-dir", "--scheduler")
Run = dict[str, Any]


class Imported(NamedTuple):
    """The result of an import: cells added to the store, and cells already there."""

    added: int
    known: int


def command_line(arguments: Sequence[str]) -> list[str]:
    """A run's arguments without those specific to its machine.

    Examples
    --------
    >>> command_line(["reproduce", "table1", "--out", "/tmp/x", "--splits", "5", "--data-dir=/data"])
    ['reproduce', 'table1', '--splits', '5']
    """
    kept: list[str] = []
    skip = False
    for argument in arguments:
        if not skip and argument.partition("=")[0] not in _LOCAL:
            kept.append(argument)
        skip = not skip and argument in _LOCAL
    return kept


def without_folders(text: str) -> str:
    """A message with absolute paths shortened to their last two parts, since others do not have those folders.

    Examples
    --------
    >>> without_folders("save it as /home/me/data/openml/151 (see https://openml.org/d/151)")
    'save it as openml/151 (see https://openml.org/d/151)'
    """
    return re.sub(r"(?<![\w:/])/(?:[^\s/]+/)*([^\s/]+/[^\s/]+)", r"\1", text)


def export_store(store: Store, folder: Path) -> list[Path]:
    """Write the finished cells of a store; return the paths.

    A folder with cells that the store does not have is left alone: exporting would lose them.
    """
    runs = _public_runs(store)
    place = {run: i for i, entry in enumerate(runs) for run in entry["ids"]}
    written = store.written_by()
    cells = [cell for cell in store.cells() if cell.key in written]
    _keep_what_is_there(folder, set(written))
    records = store.records(cell.key for cell in cells)
    lines = [Line(cell, record, place[written[cell.key]]) for cell, record in zip(cells, records, strict=True)]
    files = {name: to_text(group) for name, group in in_files(lines).items()}
    counts = {name: text.count("\n") - 1 for name, text in files.items()}
    folder.mkdir(parents=True, exist_ok=True)
    paths = [write_whole(folder / name, _packed(text)) for name, text in files.items()]
    for stale in set(folder.glob("*.csv.gz")) - set(paths):
        stale.unlink()
    # Last: a folder whose export was interrupted has counts that do not fit, and is not imported.
    failures = {key: without_folders(why) for key, why in sorted(store.failures().items())}
    return [*paths, write_whole(folder / RUNS, _runs_text(runs, counts, failures).encode())]


def _keep_what_is_there(folder: Path, keys: set[str]) -> None:
    if not (folder / RUNS).exists():
        return
    strangers = sum(line.cell.key not in keys for line in read_folder(folder)[0])
    if strangers:
        raise ValueError(
            f"{folder} holds {strangers} cells that this store does not have; `closecall import {folder}` first, or "
            "choose another folder"
        )


def _public_runs(store: Store) -> list[Run]:
    """The runs as shown to others, in the order of their start; an imported run counts as the original."""
    found: dict[str, Run] = {}
    for run in store.runs():
        request = run["request"]
        public = {
            "started": request.get("started", run["started"]),
            "arguments": command_line([str(word) for word in request.get("arguments", [])]),
            "environment": run["environment"],
        }
        empty: Run = {**public, "finished": None, "jobs": [], "ids": []}
        entry = found.setdefault(json.dumps(public, sort_keys=True), empty)
        entry["finished"] = request.get("finished", run["finished"]) or entry["finished"]
        entry["ids"].append(run["id"])
        entry["jobs"] += [job for job in map(_public_job, request.get("jobs", [])) if job not in entry["jobs"]]
    return sorted(found.values(), key=lambda entry: (entry["started"], json.dumps(entry["arguments"])))


def _public_job(content: dict[str, Any]) -> dict[str, Any]:
    holes = [{**hole, "why": without_folders(str(hole["why"]))} for hole in content["holes"]]
    plain: dict[str, Any] = json.loads(json.dumps({**content, "holes": holes}))  # tuples become lists
    return plain


def _runs_text(runs: Sequence[Run], counts: dict[str, int], failures: dict[str, str]) -> str:
    """Jobs, data sets and gaps are written once and referred to, because the runs of a campaign repeat them."""
    shared: dict[str, dict[str, int]] = {"jobs": {}, "sizes": {}, "holes": {}}

    def point(kind: str, content: Any) -> int:
        return shared[kind].setdefault(json.dumps(content, sort_keys=True), len(shared[kind]))

    entries = []
    for run in runs:
        jobs = [
            point("jobs", {**job, **{kind: [point(kind, each) for each in job[kind]] for kind in ("sizes", "holes")}})
            for job in run["jobs"]
        ]
        entries.append({**{name: value for name, value in run.items() if name != "ids"}, "jobs": jobs})
    tables = {kind: [json.loads(text) for text in texts] for kind, texts in shared.items()}
    content = {"format": FORMAT, "files": counts, "failures": failures, "runs": entries, **tables}
    # A line for each entry: what a new run adds is then all that a difference shows.
    return json.dumps(content, sort_keys=True, indent=1) + "\n"


def _packed(text: str) -> bytes:
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def read_folder(folder: Path) -> tuple[list[Line], list[Run], dict[str, str]]:
    """The finished cells, the runs, and why other cells failed (by key); ``CompactError`` for a damaged folder."""
    budget = Budget()
    try:
        with (folder / RUNS).open("rb") as file:
            content = budget.parse(budget.read(file), finite=True)
        runs, failures, files = _read_runs(content), dict(content["failures"]), dict(content["files"])
        if not all(re.fullmatch(r"[\w-]+\.csv\.gz", name) for name in files):
            raise ValueError("files are not named as an export names them")
    except FileNotFoundError:
        raise CompactError(f"{folder} has no {RUNS}: it is not a folder that `closecall export` wrote") from None
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise CompactError(f"{folder / RUNS}: {type(error).__name__}: {error}") from None
    lines: dict[str, Line] = {}
    for name, count in sorted(files.items()):
        for line in _read_file(folder / name, count, len(runs), budget):
            if line.cell.key in lines:
                raise CompactError(f"{folder / name}: {line.cell.dataset} split {line.cell.split} appears twice")
            lines[line.cell.key] = line
    return list(lines.values()), runs, failures


def _read_file(path: Path, count: object, runs: int, budget: Budget) -> list[Line]:
    try:
        with gzip.open(path) as file:
            found = list(from_text(str(budget.read(file), "utf-8"), runs))
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, BudgetError) as error:
        raise CompactError(f"{path} cannot be read: {error}") from None
    except CompactError as error:
        raise CompactError(f"{path}, {error}") from None
    if len(found) != count:
        raise CompactError(f"{path} has {len(found)} cells, but {RUNS} says {count}")
    return found


def _read_runs(content: dict[str, Any]) -> list[Run]:
    """The runs with their jobs, and the jobs with the data sets and holes to which they point."""
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}, but this closecall reads {FORMAT}")
    jobs = []
    for job in content["jobs"]:
        whole = {**job, **{kind: [content[kind][place] for place in job[kind]] for kind in ("sizes", "holes")}}
        jobs.append(from_json(whole).as_json())  # rejects anything that is not a job
    kept = ("started", "finished", "arguments", "environment")
    return [{**{name: run[name] for name in kept}, "jobs": [jobs[i] for i in run["jobs"]]} for run in content["runs"]]


def import_folder(folder: Path, store: Store) -> Imported:
    """Add the cells of a folder to a store as finished records, all of them or none.

    Cells already finished in the store are left alone, whether compact or complete; failed ones are replaced.
    """
    lines, runs, _ = read_folder(folder)  # what failed elsewhere may work here
    done = store.done()
    new = [line for line in lines if line.cell.key not in done]
    known = {_identity(run) for run in _public_runs(store)}
    with store.transaction():
        for place, run in enumerate(runs):
            mine = [line for line in new if line.run == place]
            if not mine and _identity(run) in known:
                continue
            request = {"compact": True, **{name: run[name] for name in ("started", "finished", "arguments", "jobs")}}
            store.begin_run(request, run["environment"])
            for line in mine:
                store.add(line.cell, line.record)
            store.finish_run()
    return Imported(len(new), len(lines) - len(new))


def _identity(run: Run) -> str:
    return json.dumps([run[name] for name in ("started", "arguments", "environment")], sort_keys=True)

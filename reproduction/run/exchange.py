"""Export and import of stores as folders of compact files, so that finished cells can be shared and need not run again.

A folder holds files of cells (``*.csv.gz``, see :mod:`reproduction.run.compact`) and ``runs.json``: the requests, where
they ran, the available data sets, and the number of cells in each file. The same store always gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from closecall._budget import Budget, BudgetError
from reproduction.protocol.files import write_whole

from .compact import CompactError, Line, from_text, in_files, to_text
from .jobs import from_json
from .store import Store

FORMAT = 1
RUNS = "runs.json"
#: Options that concern the machine, not the result.
_LOCAL = ("--out", "--data-dir", "--scheduler")
Run = dict[str, Any]


def command_line(arguments: Sequence[str]) -> list[str]:
    """Return the arguments of a run without those that are specific to its machine.

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
    """Shorten absolute paths in a message to their last two parts, because other machines have other folders.

    Examples
    --------
    >>> without_folders("save it as /home/me/data/openml/151 (see https://openml.org/d/151)")
    'save it as openml/151 (see https://openml.org/d/151)'
    """
    return re.sub(r"(?<![\w:/])/(?:[^\s/]+/)*([^\s/]+/[^\s/]+)", r"\1", text)


def export_store(store: Store, folder: Path) -> list[Path]:
    """Write the finished cells of a store and return the paths.

    Nothing is written if the folder has cells that the store does not have, because they would be lost.
    """
    runs = _public_runs(store)
    place = {run: i for i, entry in enumerate(runs) for run in entry["ids"]}
    written = store.written_by()
    cells = [cell for cell in store.cells() if cell.key in written]
    lost = sum(line.cell.key not in written for line in read_folder(folder)[0]) if (folder / RUNS).exists() else 0
    if lost:
        raise ValueError(
            f"{folder} contains {lost} cells that this store does not have; run `closecall import {folder}` first, or "
            "choose another folder"
        )
    records = store.records(cell.key for cell in cells)
    lines = [Line(cell, record, place[written[cell.key]]) for cell, record in zip(cells, records, strict=True)]
    files = {name: to_text(group) for name, group in in_files(lines).items()}
    counts = {name: text.count("\n") - 1 for name, text in files.items()}
    folder.mkdir(parents=True, exist_ok=True)
    paths = [write_whole(folder / name, gzip.compress(text.encode(), 9, mtime=0)) for name, text in files.items()]
    for stale in set(folder.glob("*.csv.gz")) - set(paths):
        stale.unlink()
    # Written last: after an interrupted export the counts do not match, and the folder is not imported.
    failures = {key: without_folders(why) for key, why in sorted(store.failures().items())}
    return [*paths, write_whole(folder / RUNS, _runs_text(runs, counts, failures).encode())]


def _public_runs(store: Store) -> list[Run]:
    """Return the runs by time of start, without local details; an imported run counts as the original."""
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
    return dict(json.loads(json.dumps({**content, "holes": holes})))  # tuples become lists


def _runs_text(runs: Sequence[Run], counts: dict[str, int], failures: dict[str, str]) -> str:
    """Jobs, data sets and holes are written only once and referred to by number, because many runs share them."""
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
    # One line for each entry, so that a diff shows only what a new run adds.
    return json.dumps(content, sort_keys=True, indent=1) + "\n"


def read_folder(folder: Path) -> tuple[list[Line], list[Run], dict[str, str]]:
    """Return the finished cells, the runs, and reasons for failed cells (by key); damage raises ``CompactError``."""
    budget = Budget()
    try:
        with (folder / RUNS).open("rb") as file:
            content = budget.parse(budget.read(file), finite=True)
        runs, failures, files = _read_runs(content), dict(content["failures"]), dict(content["files"])
        if not all(re.fullmatch(r"[\w-]+\.csv\.gz", name) for name in files):
            raise ValueError("it lists a file that an export would not write")
    except FileNotFoundError:
        raise CompactError(f"{folder} has no {RUNS}: `closecall export` did not write this folder") from None
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
        raise CompactError(f"{path} has {len(found)} cells, not {count} as in {RUNS}")
    return found


def _read_runs(content: dict[str, Any]) -> list[Run]:
    """Return the runs with their jobs, data sets and holes instead of numbers."""
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}, but this version of closecall reads {FORMAT}")
    jobs = []
    for job in content["jobs"]:
        whole = {**job, **{kind: [content[kind][place] for place in job[kind]] for kind in ("sizes", "holes")}}
        jobs.append(from_json(whole).as_json())  # rejects everything but jobs
    kept = ("started", "finished", "arguments", "environment")
    return [{**{name: run[name] for name in kept}, "jobs": [jobs[i] for i in run["jobs"]]} for run in content["runs"]]


def import_folder(folder: Path, store: Store) -> tuple[int, int]:
    """Add all cells of a folder to a store, or none; return how many were added and how many it already had.

    Cells already finished in the store stay as they are, whether compact or complete; failed ones are replaced.
    """
    lines, runs, _ = read_folder(folder)
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
    return len(new), len(lines) - len(new)


def _identity(run: Run) -> str:
    return json.dumps([run[name] for name in ("started", "arguments", "environment")], sort_keys=True)

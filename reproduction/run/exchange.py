"""Export and import of stores as folders of compact files, to share finished cells.

A folder holds files of cells (``*.csv.gz``, see :mod:`reproduction.run.compact`) and ``runs.json``: the requests, where
they ran, the available data sets, and the number of cells in each file. The same store always gives the same bytes.
"""

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from closecall._budget import Budget
from reproduction.protocol.files import write_whole

from .compact import CompactError, Line, from_text, in_files, to_text
from .jobs import from_json
from .record import Record
from .store import Store

FORMAT = 1
RUNS = "runs.json"
#: Options that concern the machine, not the result.
_LOCAL = ("--out", "--data-dir", "--scheduler")
Run = dict[str, Any]
#: The fields of a run in an exported folder, besides its jobs.
_PUBLIC = ("started", "finished", "arguments", "environment")


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
    """Shorten absolute paths in a message to their last two parts, because other machines have different folders.

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
    lost = read_folder(folder).done() - set(written) if (folder / RUNS).exists() else ()
    if lost:
        raise ValueError(
            f"{folder} contains {len(lost)} cells that this store does not have; run `closecall import {folder}`, or "
            "choose another folder"
        )
    records = store.records(cell.key for cell in cells)
    lines = [Line(cell, record, place[written[cell.key]]) for cell, record in zip(cells, records, strict=True)]
    files = {name: to_text(group) for name, group in in_files(lines).items()}
    counts = {name: text.count("\n") - 1 for name, text in files.items()}
    paths = [write_whole(folder / name, gzip.compress(text.encode(), 9, mtime=0)) for name, text in files.items()]
    for stale in set(folder.glob("*.csv.gz")) - set(paths):
        stale.unlink()
    # This file is written last: after an interrupted export, its counts do not match, and the folder is rejected.
    failures = {key: without_folders(why) for key, why in sorted(store.failures().items())}
    return [*paths, write_whole(folder / RUNS, _runs_text(runs, counts, failures).encode())]


def _public_runs(store: Store) -> list[Run]:
    """Return the runs sorted by start time, without local details; an imported run counts as the original."""
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
        for job in request.get("jobs", []):
            holes = [{**hole, "why": without_folders(str(hole["why"]))} for hole in job["holes"]]
            if (public_job := {**job, "holes": holes}) not in entry["jobs"]:
                entry["jobs"].append(public_job)
    return sorted(found.values(), key=lambda entry: (entry["started"], json.dumps(entry["arguments"])))


def _runs_text(runs: Sequence[Run], counts: dict[str, int], failures: dict[str, str]) -> str:
    """Jobs, data sets and missing sets are written once and referred to by number, because many runs share them."""
    shared: dict[str, dict[str, int]] = {"jobs": {}, "sizes": {}, "holes": {}}

    def point(kind: str, content: Any) -> int:
        return shared[kind].setdefault(json.dumps(content, sort_keys=True), len(shared[kind]))

    def pointed(job: dict[str, Any]) -> int:
        return point("jobs", job | {kind: [point(kind, each) for each in job[kind]] for kind in ("sizes", "holes")})

    entries = [{**{name: run[name] for name in _PUBLIC}, "jobs": list(map(pointed, run["jobs"]))} for run in runs]
    tables = {kind: [json.loads(text) for text in texts] for kind, texts in shared.items()}
    content = {"format": FORMAT, "files": counts, "failures": failures, "runs": entries, **tables}
    # With one line for each entry, a diff shows only what a new run adds.
    return json.dumps(content, sort_keys=True, indent=1) + "\n"


@dataclass(frozen=True)
class Campaign:
    """The finished cells, runs and failures in an exported folder, with the store methods that the tables need."""

    lines: dict[str, Line]  # by key
    runs: list[Run]
    failed: dict[str, str]  # key -> reason

    def done(self) -> set[str]:
        return set(self.lines)

    def failures(self) -> dict[str, str]:
        return self.failed

    def records(self, keys: Iterable[str]) -> Iterator[Record]:
        return (self.lines[key].record for key in keys if key in self.lines)


def read_folder(folder: Path) -> Campaign:
    """Read a folder of exported files; damage raises ``CompactError``."""
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
    lines = [line for name, count in sorted(files.items()) for line in _read_file(folder / name, count, runs, budget)]
    return Campaign({line.cell.key: line for line in lines}, runs, failures)


def _read_file(path: Path, count: object, runs: list[Run], budget: Budget) -> list[Line]:
    try:
        with gzip.open(path) as file:
            found = list(from_text(str(budget.read(file), "utf-8"), len(runs)))
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise CompactError(f"{path}: {error}") from None
    if len(found) != count:
        raise CompactError(f"{path} has {len(found)} cells, not {count} as in {RUNS}")
    return found


def _read_runs(content: dict[str, Any]) -> list[Run]:
    """Return the runs with their jobs, data sets and missing sets instead of the numbers that refer to them."""
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}, but this version of closecall reads format {FORMAT}")
    jobs = []
    for job in content["jobs"]:
        whole = {**job, **{kind: [content[kind][place] for place in job[kind]] for kind in ("sizes", "holes")}}
        jobs.append(from_json(whole).as_json())  # rejects everything but jobs
    return [
        {**{name: run[name] for name in _PUBLIC}, "jobs": [jobs[i] for i in run["jobs"]]} for run in content["runs"]
    ]


def import_folder(folder: Path, store: Store) -> tuple[int, int]:
    """Add all cells in a folder to a store, or none of them; return how many were added and how many it already had.

    Cells already finished in the store stay as they are, whether compact or complete; failed ones are replaced.
    """
    found, done = read_folder(folder), store.done()
    new = [line for key, line in found.lines.items() if key not in done]
    known = {_identity(run) for run in _public_runs(store)}
    with store.transaction():
        for place, run in enumerate(found.runs):
            mine = [line for line in new if line.run == place]
            if not mine and _identity(run) in known:
                continue
            request = {"compact": True, **{name: run[name] for name in ("started", "finished", "arguments", "jobs")}}
            store.begin_run(request, run["environment"])
            for line in mine:
                store.add(line.cell, line.record)
            store.finish_run()
    return len(new), len(found.lines) - len(new)


def _identity(run: Run) -> str:
    return json.dumps([run[name] for name in ("started", "arguments", "environment")], sort_keys=True)

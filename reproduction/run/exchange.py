"""Stores <-> folders of compact files: what is finished travels, what is finished is never run twice.

A folder holds files of cells (``*.csv.gz``, see :mod:`reproduction.run.compact`) and ``runs.json``: what was asked for,
where it ran, which data sets were available, and how many cells each file has. The same store makes the same bytes.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from closecall._budget import Budget, BudgetError
from closecall.report.text import write_whole
from reproduction.protocol.plan import Size

from .compact import CompactError, Line, from_text, in_files, to_text
from .jobs import from_json
from .store import Store

FORMAT = 1
RUNS = "runs.json"
#: RunOptions whose values say where files lie or who computes: a matter of the machine, not of the result.
_LOCAL = ("--out", "--data-dir", "--scheduler")
#: What a line of a file and a data set or hole of a job become in memory. Jobs point to data sets and runs to jobs, so
#: that a short file could ask for very many.
LINE_BYTES, POINTED_BYTES = 8192, 1024
Run = dict[str, Any]


@dataclass(frozen=True)
class Imported:
    """What an import did: cells put into the store, cells that were there already."""

    added: int
    known: int


def command_line(arguments: Sequence[str]) -> list[str]:
    """A run's arguments without what concerns its machine alone.

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
    """A message with absolute paths cut to their last two names: nobody else has those folders.

    Examples
    --------
    >>> without_folders("save it as /home/me/data/openml/151 (see https://openml.org/d/151)")
    'save it as openml/151 (see https://openml.org/d/151)'
    """
    return re.sub(r"(?<![\w:/])/(?:[^\s/]+/)*([^\s/]+/[^\s/]+)", r"\1", text)


def export_store(store: Store, folder: Path) -> list[Path]:
    """Write the finished cells of a store; return the paths.

    A folder that holds cells which the store does not have is left alone: exporting would lose them.
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
    """The runs as others may see them, in the order of their start; an imported run is the run that it came from."""
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
    """Jobs, data sets and holes are written once and pointed to: a campaign's runs ask for the same again and again."""
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
    """The finished cells, the runs, and why other cells failed (by key), of a folder; everything checked.

    Raises
    ------
    CompactError
        If a file is missing, damaged, or not what an export writes.
    """
    budget = Budget()
    try:
        with (folder / RUNS).open("rb") as file:
            content = _checked(budget.parse(budget.read(file), finite=True), budget)
    except FileNotFoundError:
        raise CompactError(f"{folder} has no {RUNS}: it is no folder that `closecall export` wrote") from None
    except (OSError, ValueError, TypeError, LookupError, AttributeError) as error:
        raise CompactError(f"{folder / RUNS}: {type(error).__name__}: {error}") from None
    lines: dict[str, Line] = {}
    for name, count in sorted(content["files"].items()):
        for line in _read_file(folder / name, count, len(content["runs"]), budget):
            if line.cell.key in lines:
                raise CompactError(f"{folder / name}: {line.cell.dataset} split {line.cell.split} is there twice")
            lines[line.cell.key] = line
    return list(lines.values()), content["runs"], content["failures"]


def _checked(content: Any, budget: Budget) -> dict[str, Any]:
    """The files, failures and runs that ``runs.json`` speaks of; what an export does not write raises."""
    files, failures = content["files"], content["failures"]
    if not isinstance(files, dict) or not all(re.fullmatch(r"[\w-]+\.csv\.gz", name) for name in files):
        raise ValueError("files are not named as an export names them")
    if not isinstance(failures, dict) or not all(isinstance(why, str) for why in failures.values()):
        raise ValueError("failures are not as an export writes them")
    return {"files": files, "failures": failures, "runs": _read_runs(content, budget)}


def _read_file(path: Path, count: object, runs: int, budget: Budget) -> Iterator[Line]:
    try:
        with gzip.open(path) as file:
            text = str(budget.read(file), "utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, BudgetError) as error:
        raise CompactError(f"{path} cannot be read: {error}") from None
    found = 0
    try:
        for line in from_text(text, runs):
            found += 1
            budget.spend(LINE_BYTES)
            yield line
    except (CompactError, BudgetError) as error:
        raise CompactError(f"{path}, {error}") from None
    if found != count:
        raise CompactError(f"{path} has {found} cells, but {RUNS} says {count}")


def _read_runs(content: dict[str, Any], budget: Budget) -> list[Run]:
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}, but this closecall reads {FORMAT}")
    for size in content["sizes"]:
        kinds = {field.name: str if field.type == "str" else int for field in fields(Size)}
        if set(size) != set(kinds) or not all(type(value) is kinds[name] for name, value in size.items()):
            raise TypeError(f"{size} is no size of a data set")
    jobs = []
    for job in content["jobs"]:
        whole = {**job, **{kind: _pointed(content[kind], job[kind], budget) for kind in ("sizes", "holes")}}
        jobs.append(from_json(whole).as_json())  # complains about what is no job
    runs = []
    for run in content["runs"]:
        if not all(isinstance(word, str) for word in run["arguments"]) or not isinstance(run["environment"], dict):
            raise TypeError("a run's arguments or environment are not as an export writes them")
        moments = [run["started"], run["finished"]]
        if not isinstance(moments[0], float) or not isinstance(moments[1], float | None):
            raise TypeError(f"a run lasted from {moments[0]!r} to {moments[1]!r}")
        runs.append(
            {
                "started": moments[0], "finished": moments[1], "arguments": run["arguments"],
                "environment": run["environment"], "jobs": _pointed(jobs, run["jobs"], budget),
            }
        )  # fmt: skip
        budget.spend(POINTED_BYTES * sum(len(job[kind]) for job in runs[-1]["jobs"] for kind in ("sizes", "holes")))
    return runs


def _pointed(things: list[Any], places: list[Any], budget: Budget) -> list[Any]:
    """What a list of numbers points to, each once."""
    budget.spend(POINTED_BYTES * len(places))
    if not all(type(place) is int and place >= 0 for place in places) or len(set(places)) < len(places):
        raise ValueError(f"{str(places)[:100]} do not point to one thing each")
    return [things[place] for place in places]


def import_folder(folder: Path, store: Store, tell: Callable[[str], None] = lambda line: None) -> Imported:
    """Put the cells of a folder into a store as finished records, all of them or none.

    A cell that the store has finished is left as it is, whether compact or whole; a failed one gives way.

    Parameters
    ----------
    folder : path
    store : Store
        Open for writing.
    tell : callable
        Receives what is being done.
    """
    tell(f"reading {folder}")
    lines, runs, _ = read_folder(folder)  # what failed elsewhere may work here
    done = store.done()
    new = [line for line in lines if line.cell.key not in done]
    known = {_identity(run) for run in _public_runs(store)}
    with store.transaction():
        for place, run in enumerate(runs):
            mine = [line for line in new if line.run == place]
            if not mine and _identity(run) in known:
                continue
            tell(f"importing {len(mine)} cells")
            request = {"compact": True, **{name: run[name] for name in ("started", "finished", "arguments", "jobs")}}
            store.begin_run(request, run["environment"])
            for line in mine:
                store.add(line.cell, line.record)
            store.finish_run()
    return Imported(len(new), len(lines) - len(new))


def _identity(run: Run) -> str:
    return json.dumps([run[name] for name in ("started", "arguments", "environment")], sort_keys=True)

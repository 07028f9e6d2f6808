"""Result stores of an attacker, what is shown of them, and any command line.

The report is written from forged stores in which every text is hostile; :func:`scripts_in` then looks at the page as a
browser would and finds whatever could run.
"""

import contextlib
import io
import json
import os
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from closecall import cli
from closecall.cli.exits import UNEXPECTED
from gate.hostile_files import NASTY, nasty, table_text
from gate.torture_numbers import Finding, Refused
from reproduction.protocol.grid import ROW
from reproduction.protocol.plan import Cell
from reproduction.run.record import Record
from reproduction.run.store import RECORD, RUN, Store, digest

MARK = "alert(1)"
HOSTILE = f"</script><script>{MARK}</script><img src=x onerror={MARK}>\u2028'\"`{{{{7*7}}}}<svg/onload={MARK}>"


CHECKSUM = "c" * 64


def make_store(folder: Path, dataset: str = "embedded:monk3", text: str = "plain") -> Path:
    """A small store of one data set, two splits, everything that can be text being ``text``."""
    options = {"splits": 2, "max_iter": 10, "protocols": ["sound"], "models": ["linear"], "start": "least_squares"}
    size = {"suite": "embedded", "name": dataset, "checksum": CHECKSUM, "rows": 100, "features": 3, "positives": 40}
    job = {
        "target": "overview", "suites": ["embedded"], "options": options, "sizes": [size],
        "holes": [{"dataset": text, "why": text}],
    }  # fmt: skip
    path = folder / "store.sqlite"
    with Store(path, write=True) as store:
        store.begin_run({"arguments": ["reproduce", text], "jobs": [job]}, {"python": text, text: text})
        for split in range(2):
            cell = Cell("embedded", dataset, CHECKSUM, split, "linear", "sound", 10)
            store.add(cell, Record(cell.key, "done", rows_of(split), (50, 25, 25), 3, 0.1, notes=(text,)))
        failed = Cell("embedded", text, "d", 0, "linear", "sound", 10)
        store.add(failed, Record(failed.key, "failed", error=text))
        store.finish_run()
    return path


def rows_of(split: int) -> np.ndarray:
    """One row for each loss and method."""
    methods = ("average", "top", "atk", "close", "close_decay")
    rows = np.zeros(2 * len(methods), ROW)
    rows["loss"], rows["method"] = np.repeat(["logistic", "hinge"], len(methods)), np.tile(methods, 2)
    rows["k"], rows["alpha"], rows["train"], rows["validation"] = 50, 1.0, 40, 20
    rows["test"] = np.arange(len(rows)) % 5 + 18 + split
    return rows


def forge(path: Path, table: str, key: Any, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Change a row of a store behind closecall's back, and its digest with it."""
    names = RECORD if table == "records" else RUN
    identity = "key" if table == "records" else "id"
    with closing(sqlite3.connect(path)) as connection, connection:
        row = connection.execute(f"SELECT {', '.join(names)} FROM {table} WHERE {identity} = ?", [key]).fetchone()
        new = change(dict(zip(names, row, strict=True)))
        values = [new[name] for name in names]
        with contextlib.suppress(TypeError, ValueError):
            values.append(digest(values))
            assignments = ", ".join(f"{name} = ?" for name in (*names, "digest"))
            connection.execute(f"UPDATE {table} SET {assignments} WHERE {identity} = ?", [*values, key])


class _Looker(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.script: str | None = None
        self.kind = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "script":
            self.script, self.kind = "", given.get("type") or ""
            if "src" in given:
                self.found.append(f"<script src={given['src']}>")
        for name, value in given.items():
            if name.startswith("on") or str(value or "").strip().lower().startswith("javascript:"):
                self.found.append(f"<{tag} {name}={value}>")
        if tag in ("iframe", "object", "embed", "base", "form"):
            self.found.append(f"<{tag}>")

    handle_startendtag = handle_starttag

    def handle_data(self, data: str) -> None:
        if self.script is not None:
            self.script += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "script" and self.script is not None:
            if self.kind == "application/json":
                json.loads(self.script)
            elif MARK in self.script:
                self.found.append(f"a script with {MARK}")
            self.script = None


def scripts_in(page: str) -> list[str]:
    """What of a page's data could run: scripts, handlers, frames, addresses that are programs."""
    looker = _Looker()
    looker.feed(page)
    looker.close()
    return looker.found


#: Words from which command lines are made; the folder and the files are real.
WORDS = (
    "reproduce", "status", "report", "compare", "fit", "predict", "--dry-run", "--out", "--json",
    "--splits", "--datasets", "--suite", "--protocol", "--models", "--max-iter", "--workers",
    "--target", "--rows", "--drop", "--keep", "--seed", "--model", "--copy", "--no-download", "--help",
    "--version", "overview", "table1", "figure5", "embedded", "fan8", "monk3", "nosuch", "0", "-1", "2", "1e9",
    "99999999999", "linear", "paper", "zeros", "\udcff", "--", "-", "-x", "--nosuch", "=", "",
)  # fmt: skip


def attack_command_line(seed: int) -> str:
    """Random arguments: an exit code of 0 to 3 and no traceback. Runs that would compute for long are cut short."""
    rng = np.random.default_rng([seed, 22])
    with tempfile.TemporaryDirectory() as folder:
        files = {"table.csv": table_text(rng).encode(errors="replace"), "model.npz": b"PK\x03\x04 no model"}
        for name, content in files.items():
            (Path(folder) / name).write_bytes(content)
        if rng.random() < 0.3:
            make_store(Path(folder), text=str(rng.choice(NASTY)).replace("\0", ""))
        words = [*WORDS, *files, folder, nasty(rng).replace("\0", "")]
        arguments = [str(rng.choice(WORDS[:9])), *map(str, rng.choice(words, int(rng.integers(0, 7))))]
        code, told = run_command(arguments, Path(folder))
    if code not in (0, 1, 2, 3) or "Traceback" in told:
        raise Finding(f"{arguments}: exit {code}: {told[-600:]}")
    return "ok"


def run_command(arguments: list[str], folder: Path) -> tuple[Any, str]:
    """The exit code of ``closecall`` with these arguments in a folder, and what it said; no cell is ever computed."""
    told = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict", write_through=True)
    before = Path.cwd()
    code: Any = "none"
    os.chdir(folder)
    try:
        with (
            mock.patch.object(sys, "argv", ["closecall", *arguments]),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1,x\n2,y\n"))),
            mock.patch.dict(os.environ, {"CLOSECALL_DATA": str(folder), "COLUMNS": "80"}),
            mock.patch("reproduction.command.drive", _no_work),
            contextlib.redirect_stdout(told),
            contextlib.redirect_stderr(told),
        ):
            cli.main()
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "a traceback", "".join(traceback.format_exception(error))
    finally:
        os.chdir(before)
    told.flush()
    words = told.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]
    return ("a traceback" if UNEXPECTED in words else code), words


def _no_work(*given: Any) -> Iterator[Any]:
    raise ValueError("this run would compute; the attack is on the arguments")
    yield


ATTACKS: dict[str, Callable[[int], str]] = {
    "command line": attack_command_line,
}
__all__ = ["ATTACKS", "Finding", "Refused"]

"""A damaged store -> a new one with every record that is still whole; the damaged file is kept beside it.

A page that a disk has changed hides the records on it and those that are found through it. So the table is read from
its root as far as that goes, and then from each of its pages as if that were the root: only broken pages are left out.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from closecall._budget import Budget

from .record import unpack
from .schema import KNOWN, MAX_RECORD, connect, objects
from .store import BROKEN, RECORD, RUN, Store, StoreError, digest, take_lock

_PAGE = 4096
#: The first byte of the pages that may hold records: inner nodes and leaves.
_NODES = (2, 10)
_RECORDS = f"SELECT digest, {', '.join(RECORD)}, run, attempts, written FROM records"
_RUNS = f"SELECT digest, {', '.join(RUN)}, id, started, finished FROM runs WHERE id = ?"


@dataclass(frozen=True)
class Salvaged:
    """What a salvage kept.

    Parameters
    ----------
    kept, lost : int
        Records in the new store; records that were found but are not whole. Those on a page that cannot be read are
        not counted: the next run finds what is missing.
    aside : path
        Where the damaged file is now.
    """

    kept: int
    lost: int
    aside: Path


def salvage(path: str | Path) -> Salvaged:
    """Put the whole records of the store at ``path`` into a new store there, and the old file aside.

    Examples
    --------
    >>> from .plan import Cell
    >>> from reproduction.run.record import Record
    >>> cell = Cell("embedded", "monk3", "abc", 0, "linear", "paper")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with Store(Path(folder) / "store.sqlite", write=True) as store:
    ...         store.begin_run({}, {})
    ...         store.add(cell, Record(cell.key, "done"))
    ...     found = salvage(Path(folder) / "store.sqlite")
    ...     found.kept, found.lost, found.aside.name
    (1, 0, 'store.sqlite.damaged-1')
    """
    path = Path(path)
    if not path.is_file():
        raise StoreError(f"there is no result store at {path}; the damaged file has to lie there")
    try:
        with contextlib.closing(take_lock(path)), tempfile.TemporaryDirectory(dir=path.parent) as folder:
            old, new = Path(folder) / "old.sqlite", Path(folder) / "new.sqlite"
            _duplicate(path, old)  # reading a store with a WAL changes it: look at a copy
            kept, lost = _copy(old, new)
            if not kept:
                raise StoreError(f"there is no whole record in {path}; it is as it was: move it away to begin anew")
            names = (path.with_name(f"{path.name}.damaged-{i}") for i in itertools.count(1))
            aside = next(name for name in names if not name.exists())
            _duplicate(path, aside)
            for ending in ("-wal", "-shm"):  # of the old file: they must not be taken for the new one's
                Path(f"{path}{ending}").unlink(missing_ok=True)
            os.replace(new, path)
    except (OSError, *BROKEN) as error:
        raise StoreError(f"cannot salvage {path}: {error}") from error
    return Salvaged(kept, lost, aside)


def _duplicate(path: Path, name: Path) -> None:
    for ending in ("", "-wal"):
        if Path(f"{path}{ending}").exists():
            shutil.copy2(f"{path}{ending}", f"{name}{ending}")


def _copy(old: Path, new: Path) -> tuple[int, int]:
    """Fill the new store from the old; how many records are whole, how many are not."""
    Store(new, write=True).close()
    kept: set[str] = set()
    seen: set[str] = set()
    with contextlib.closing(sqlite3.connect(new)) as target, target:
        for source in _sources(old, new):
            runs: set[int] = set()
            for row in _records(source, old):
                key = str(row[1])
                if len(key) == 64:  # not a row of another table, seen through the wrong page
                    seen.add(key)
                if key not in kept and _whole(row):
                    target.execute(_write("records", RECORD, "run, attempts, written"), row)
                    kept.add(key)
                    runs.add(row[-3])
            for number in sorted(runs):
                with contextlib.suppress(*BROKEN):
                    for row in source.execute(_RUNS, [number]).fetchall():
                        if row[0] in ("", digest(row[1 : 1 + len(RUN)])):
                            target.execute(_write("runs", RUN, "id, started, finished"), row)
    return len(kept), len(seen - kept)


def _write(table: str, names: tuple[str, ...], others: str) -> str:
    places = ", ".join("?" * (1 + len(names) + len(others.split(","))))
    return f"INSERT OR IGNORE INTO {table} (digest, {', '.join(names)}, {others}) VALUES ({places})"


def _sources(old: Path, new: Path) -> Iterator[sqlite3.Connection]:
    """The old store as it is, if it opens, and with a first page that is certainly whole.

    The first page says where the tables are and how to read all others; it is the same in every store, except for the
    count of pages, which SQLite does not believe when the counter that vouches for it (at 92) differs from its twin.
    """
    for graft in (False, True):
        if graft:
            page = bytearray(new.read_bytes()[:_PAGE])
            page[92:96] = (int.from_bytes(page[24:28], "big") + 1).to_bytes(4, "big")
            with old.open("r+b") as file:
                file.write(page)
        with contextlib.closing(connect(old, "rwc")) as source:
            source.text_factory = lambda data: data.decode(errors="replace")
            with contextlib.suppress(*BROKEN):
                if objects(source) not in KNOWN:  # its own tables, not what somebody made of them
                    continue
                if "digest" not in {name for _, name, *_ in source.execute("PRAGMA table_info(records)")}:
                    for table in ("runs", "records"):  # from before digests: reads as one with empty digests
                        source.execute(f"ALTER TABLE {table} ADD COLUMN digest TEXT NOT NULL DEFAULT ''")
                source.execute(f"{_RECORDS} LIMIT 0")
                yield source


def _records(source: sqlite3.Connection, path: Path) -> Iterator[tuple[Any, ...]]:
    """All rows that can be reached, some of them twice."""
    try:
        yield from source.execute(_RECORDS)
        return
    except BROKEN:
        pass
    with contextlib.suppress(*BROKEN):
        source.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # so that the file has all pages
    source.execute("PRAGMA writable_schema = ON")
    for number in range(2, path.stat().st_size // _PAGE + 1):
        with path.open("rb") as file:
            file.seek((number - 1) * _PAGE)
            node = file.read(1)[0] in _NODES
        if node:
            with contextlib.suppress(*BROKEN):
                with source:
                    source.execute("UPDATE sqlite_master SET rootpage = ? WHERE name = 'records'", [number])
                source.execute("PRAGMA writable_schema = RESET")
                source.execute("PRAGMA writable_schema = ON")
                yield from source.execute(_RECORDS)


def _whole(row: tuple[Any, ...]) -> bool:
    values = row[1 : 1 + len(RECORD)]
    if row[0]:
        return bool(row[0] == digest(values))
    # From before digests: the key is a hash of the cell, and the rows carry the check sums of their archive.
    found = dict(zip(RECORD, values, strict=True))
    try:
        content = Budget(MAX_RECORD).parse(found["cell"])
        del content["suite"]
        unpack(found["rows"])
    except Exception:  # damaged bytes may break any part of the readers
        return False
    return bool(hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest() == found["key"])

"""A damaged store -> a new one with every record that is still whole; the damaged file is kept beside it.

A page of SQLite's that a disk has changed hides the records on it, not the others: the keys are hashes, so the table is
asked for one prefix after another, and a prefix that cannot be read is divided until only broken pages are left out.
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

from .record import unpack
from .store import BROKEN, RECORD, RUN, Store, StoreError, digest, take_lock

_HEX = "0123456789abcdef"
#: Four hexadecimal digits tell tens of thousands of records apart: finer than pages.
_DEPTH = 4
_PAGE = 4096
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
    >>> from closecall.bench.plan import Cell
    >>> from closecall.bench.record import Record
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
    runs: set[int] = set()
    with contextlib.closing(_open(old, new)) as source, contextlib.closing(sqlite3.connect(new)) as target, target:
        write = f"INSERT INTO records (digest, {', '.join(RECORD)}, run, attempts, written)"
        for row in _records(source):
            key = str(row[1])
            seen.add(key)
            if key not in kept and _whole(row):
                target.execute(f"{write} VALUES ({', '.join('?' * len(row))})", row)
                kept.add(key)
                runs.add(row[-3])
        write = f"INSERT INTO runs (digest, {', '.join(RUN)}, id, started, finished)"
        for number in sorted(runs):
            with contextlib.suppress(*BROKEN):
                for row in source.execute(_RUNS, [number]).fetchall():
                    if row[0] in ("", digest(row[1 : 1 + len(RUN)])):
                        target.execute(f"{write} VALUES ({', '.join('?' * len(row))})", row)
    return len(kept), len(seen - kept)


def _open(old: Path, new: Path) -> sqlite3.Connection:
    for graft in (False, True):
        if graft:
            # The first page, with the names and places of the tables, is the same in every store: lend it a new one's.
            # Its count of pages is not believed, because the counter that vouches for it (at 92) is made to differ.
            page = bytearray(new.read_bytes()[:_PAGE])
            page[92:96] = (int.from_bytes(page[24:28], "big") + 1).to_bytes(4, "big")
            with old.open("r+b") as file:
                file.write(page)
        source = sqlite3.connect(old)
        source.text_factory = lambda data: data.decode(errors="replace")
        with contextlib.suppress(*BROKEN):
            source.execute(f"{_RECORDS} LIMIT 0")
            return source
        with contextlib.suppress(*BROKEN):  # a schema from before digests reads as one with empty digests
            source.execute("ALTER TABLE runs ADD COLUMN digest TEXT NOT NULL DEFAULT ''")
            source.execute("ALTER TABLE records ADD COLUMN digest TEXT NOT NULL DEFAULT ''")
            return source
        source.close()
    raise StoreError(f"{old} is not a closecall result store")


def _records(source: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """All rows that can be reached, some of them twice."""
    cursor = source.cursor()
    try:
        yield from cursor.execute(_RECORDS)
    except BROKEN:
        for digit in _HEX:
            yield from _beginning(source, digit)


def _beginning(source: sqlite3.Connection, prefix: str) -> list[tuple[Any, ...]]:
    try:
        return source.execute(f"{_RECORDS} WHERE key >= ? AND key < ?", [prefix, prefix + "g"]).fetchall()
    except BROKEN:
        if len(prefix) == _DEPTH:
            return []
        return [row for digit in _HEX for row in _beginning(source, prefix + digit)]


def _whole(row: tuple[Any, ...]) -> bool:
    values = row[1 : 1 + len(RECORD)]
    if row[0]:
        return bool(row[0] == digest(values))
    # From before digests: the key is a hash of the cell, and the rows carry the check sums of their archive.
    found = dict(zip(RECORD, values, strict=True))
    try:
        content = json.loads(found["cell"])
        del content["suite"]
        unpack(found["rows"])
    except Exception:  # damaged bytes may break any part of the readers
        return False
    return bool(hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest() == found["key"])

"""The result store: one SQLite file that says what is done, exactly once.

Only the driver writes, one transaction for each record, so a driver killed at any moment leaves a store in which every
finished cell is whole and no other cell is there. Readers (status, report) may look at any time: the file is in WAL
mode. A second driver is refused: the lock is a second, empty database held in an exclusive transaction, which the
operating system releases however the driver ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .plan import Cell
from .record import Record, pack, unpack

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE runs (
    id INTEGER PRIMARY KEY, started REAL NOT NULL, finished REAL, request TEXT NOT NULL, environment TEXT NOT NULL
) STRICT;
CREATE TABLE records (
    key TEXT PRIMARY KEY, run INTEGER NOT NULL REFERENCES runs (id), cell TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('done', 'failed')), attempts INTEGER NOT NULL DEFAULT 1,
    error TEXT NOT NULL, notes TEXT NOT NULL, sizes TEXT NOT NULL, features INTEGER NOT NULL, seconds REAL NOT NULL,
    written REAL NOT NULL, rows BLOB NOT NULL
) STRICT, WITHOUT ROWID;
"""
#: A failed record gives way to whatever the next run brings; a finished one is never written again.
_WRITE = """
INSERT INTO records (key, run, cell, status, error, notes, sizes, features, seconds, written, rows)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
    run = excluded.run, status = excluded.status, attempts = attempts + 1, error = excluded.error,
    notes = excluded.notes, sizes = excluded.sizes, features = excluded.features, seconds = excluded.seconds,
    written = excluded.written, rows = excluded.rows
WHERE status = 'failed'
"""


class StoreError(RuntimeError):
    """The store cannot be used; the message says why and what to do."""


class Store:
    """A result store on disk.

    Parameters
    ----------
    path : path
        The file; it and its directory are made when opened for writing.
    write : bool
        Whether this is the driver. A reader needs an existing store.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "store.sqlite", write=True) as store:
    ...     store.done()
    set()
    """

    def __init__(self, path: str | Path, *, write: bool = False) -> None:
        self.path = Path(path)
        self.write = write
        self._lock: sqlite3.Connection | None = None
        self._run: int | None = None
        if not write and not self.path.is_file():
            raise StoreError(f"there is no result store at {self.path}; run `closecall reproduce` first")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if write:
                self._lock = _take_lock(self.path)
            self._connection = sqlite3.connect(self.path, timeout=30, isolation_level=None)
            self._prepare()
        except (OSError, sqlite3.Error) as error:
            self._release()
            raise StoreError(f"cannot open the result store {self.path}: {error}") from error
        except StoreError:
            self._release()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _prepare(self) -> None:
        if not self.write:
            self._connection.execute("PRAGMA query_only = ON")
        else:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")  # with WAL: safe against a killed process
            with self.transaction():
                if not self._tables():
                    # One by one: executescript would commit our transaction under us.
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        self._connection.execute(statement)
                    self._connection.execute("INSERT INTO meta VALUES ('schema', ?)", [str(SCHEMA_VERSION)])
                    self._connection.execute("INSERT INTO meta VALUES ('driver', '')")
                self._connection.execute("UPDATE meta SET value = ? WHERE name = 'driver'", [_identity()])
        if "meta" not in self._tables():
            raise StoreError(f"{self.path} is not a closecall result store; choose another --out")
        (version,) = self._connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
        if version != str(SCHEMA_VERSION):
            raise StoreError(
                f"{self.path} has schema {version}, this closecall reads {SCHEMA_VERSION}; choose another --out "
                "or use the version that wrote it"
            )

    def _tables(self) -> set[str]:
        return {name for (name,) in self._connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """All or nothing."""
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            if self._connection.in_transaction:  # a full disk may have rolled it back already
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    def begin_run(self, request: dict[str, Any], environment: dict[str, Any]) -> None:
        """Note what was asked for and where it runs; the records written from now on point to it."""
        with self.transaction():
            cursor = self._connection.execute(
                "INSERT INTO runs (started, request, environment) VALUES (?, ?, ?)",
                [time.time(), json.dumps(request, sort_keys=True), json.dumps(environment, sort_keys=True)],
            )
        self._run = cursor.lastrowid

    def finish_run(self) -> None:
        """Note that the run came to its end."""
        with self.transaction():
            self._connection.execute("UPDATE runs SET finished = ? WHERE id = ?", [time.time(), self._run])

    def add(self, cell: Cell, record: Record) -> None:
        """Write one record in one transaction."""
        if self._run is None:
            raise StoreError("begin_run comes before the first record")
        values = [
            record.key,
            self._run,
            json.dumps(asdict(cell), sort_keys=True),
            record.status,
            record.error,
            json.dumps(record.notes),
            json.dumps(record.sizes),
            record.features,
            record.seconds,
            time.time(),
            pack(record.rows),
        ]
        with self.transaction():
            self._connection.execute(_WRITE, values)

    def done(self) -> set[str]:
        """Keys of the finished cells."""
        return {key for (key,) in self._connection.execute("SELECT key FROM records WHERE status = 'done'")}

    def failures(self) -> dict[str, str]:
        """Key -> why, of the cells that failed."""
        return dict(self._connection.execute("SELECT key, error FROM records WHERE status = 'failed'"))

    def cells(self) -> list[Cell]:
        """Every cell that has a record, finished or failed."""
        return [Cell(**json.loads(text)) for (text,) in self._connection.execute("SELECT cell FROM records")]

    def records(self, keys: Iterable[str]) -> Iterator[Record]:
        """The records of the finished cells among ``keys``, one at a time, in the order given."""
        query = "SELECT notes, sizes, features, seconds, rows FROM records WHERE key = ? AND status = 'done'"
        for key in keys:
            found = self._connection.execute(query, [key]).fetchone()
            if found is not None:
                notes, sizes, features, seconds, rows = found
                sizes = tuple(json.loads(sizes))
                yield Record(key, "done", unpack(rows), sizes, features, seconds, notes=tuple(json.loads(notes)))

    def runs(self) -> list[dict[str, Any]]:
        """Every run: when, what was asked for, where, and how many records it wrote."""
        query = """SELECT id, started, finished, request, environment,
                   (SELECT count(*) FROM records WHERE run = runs.id) FROM runs ORDER BY id"""
        names = ("id", "started", "finished", "request", "environment", "records")
        found = [dict(zip(names, values, strict=True)) for values in self._connection.execute(query)]
        return [
            {**run, "request": json.loads(run["request"]), "environment": json.loads(run["environment"])}
            for run in found
        ]

    def close(self) -> None:
        """Close the file and give up the lock."""
        self._connection.close()
        self._release()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def _identity() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def _take_lock(path: Path) -> sqlite3.Connection:
    lock = sqlite3.connect(path.with_name(path.name + ".lock"), timeout=0, isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if "locked" not in str(error):
            raise
        raise StoreError(
            f"another run ({_holder(path)}) is writing to {path}; wait for it, stop it, or choose another --out"
        ) from None
    return lock


def _holder(path: Path) -> str:
    # The other driver may be between taking the lock and writing its name: then there is no name to read yet.
    with contextlib.suppress(sqlite3.Error), contextlib.closing(sqlite3.connect(path, timeout=1)) as connection:
        found = connection.execute("SELECT value FROM meta WHERE name = 'driver'").fetchone()
        if found and found[0]:
            return str(found[0])
    return "just starting"

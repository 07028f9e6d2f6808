"""The result store: one SQLite file that records each finished cell exactly once.

Only the driver writes, in one transaction for each record, so the file contains exactly the finished cells, each of
them complete, even if the driver is killed. Readers (status, report) can work at any time, because the file is in WAL
mode. A second driver is rejected. The lock is an exclusive transaction on a separate, empty database; the operating
system releases it when the driver ends for any reason. Every record and run has a digest, so damage is detected when
the store is opened.
"""

import contextlib
import hashlib
import json
import os
import socket
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

from closecall._signals import RunError
from reproduction.protocol.plan import Cell, from_plain

from .record import Record, pack, unpack

_TABLES = """
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
#: Schema (0: an empty file) -> the statements that upgrade it to the next. Records older than the digests have ''.
_UPGRADES = (
    tuple(filter(str.strip, _TABLES.split(";"))),
    tuple(f"ALTER TABLE {table} ADD COLUMN digest TEXT NOT NULL DEFAULT ''" for table in ("runs", "records")),
)
SCHEMA_VERSION = len(_UPGRADES)
#: SQLite's primary error codes -> what happened and what to do.
_FAULTS = {
    sqlite3.SQLITE_FULL: "no space is left on the disk that holds {path}: free up space",
    sqlite3.SQLITE_IOERR: "the disk that holds {path} is failing or full: check it or free up space",
    sqlite3.SQLITE_READONLY: "{path} cannot be written: change its permissions or choose another --out",
    sqlite3.SQLITE_CANTOPEN: "{path} cannot be opened: free up space, or make its folder readable and writable",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged: set it aside and run the same command again, or try sqlite3's .recover",
    sqlite3.SQLITE_NOTADB: "{path} is damaged or not a result store: set it aside, or choose another --out",
    sqlite3.SQLITE_BUSY: "another process is using {path}: wait for it to finish, or stop it",
}
#: The errors raised when a damaged file is read; the second if SQLite's message contains bytes that are not text.
BROKEN = (sqlite3.Error, UnicodeDecodeError)
#: The columns that the digests of a record and of a run cover.
RECORD = ("key", "cell", "status", "error", "notes", "sizes", "features", "seconds", "rows")
RUN = ("request", "environment")
_DIGESTED = tuple(
    f"SELECT digest, {', '.join(names)} FROM {table}" for table, names in (("records", RECORD), ("runs", RUN))
)
#: A failed record is replaced by the next one; a finished record is never written again.
_WRITE = f"""
INSERT INTO records ({", ".join(RECORD)}, run, written, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET
    run = excluded.run, status = excluded.status, attempts = attempts + 1, error = excluded.error,
    notes = excluded.notes, sizes = excluded.sizes, features = excluded.features, seconds = excluded.seconds,
    written = excluded.written, rows = excluded.rows, digest = excluded.digest
WHERE status = 'failed'
"""


class StoreError(ValueError):
    """The error raised if the store cannot be used; its message states why and what to do."""


class StoreFault(StoreError, RunError):
    """The error raised if the store stops working during a run; the same command resumes the run."""


class Store:
    """A result store on disk; the driver opens it with ``write``, which creates it if necessary."""

    def __init__(self, path: str | Path, *, write: bool = False) -> None:
        self.path = Path(path)
        self.write = write
        self._lock: sqlite3.Connection | None = None
        self._run: int | None = None
        if not write and not self.path.is_file():
            raise StoreError(f"there is no result store at {self.path}; run `closecall reproduce` first")
        try:
            if write:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._lock = take_lock(self.path)
            self._connection = connect(self.path, "mode=rwc" if write else "mode=ro")
            self._prepare()
        except OSError as error:
            self.close()
            raise StoreError(f"cannot open the result store {self.path}: {error}") from error
        except BROKEN as error:
            kind = StoreFault if write and _is_full(error, self.path.parent) else StoreError  # close() may free space
            self.close()
            raise kind(f"cannot open the result store: {_explain(error, self.path)}") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _prepare(self) -> None:
        version = self._version()
        if self.write:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")  # records survive a power cut, at a cost of 4 ms each
            driver = f"process {os.getpid()} on {socket.gethostname()}"
            with self.transaction():
                for statement in (each for step in _UPGRADES[version:] for each in step):
                    self._connection.execute(statement)  # executescript would commit the transaction
                values = [("schema", str(SCHEMA_VERSION)), ("driver", driver)]
                self._connection.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", values)
        else:
            self._connection.execute("PRAGMA query_only = ON")
        self._check(digests=self.write or version == SCHEMA_VERSION)

    def _version(self) -> int:
        """Return the schema version, checked before any other query; a driver may start with an empty file (0)."""
        try:
            found = version_of(self._connection)
        except sqlite3.OperationalError:
            if self.write or self.path.with_name(self.path.name + "-wal").exists():
                raise
            # In a read-only folder, a reader cannot write its index of the WAL; without a WAL, it needs none.
            self._connection.close()
            self._connection = connect(self.path, "immutable=1")
            found = version_of(self._connection)
        if found == 0 and not self.write:
            found = "is not a closecall result store"
        if isinstance(found, str):
            raise StoreError(f"{self.path} {found}; choose another --out, or use the version that wrote it")
        return found

    def _check(self, digests: bool) -> None:
        """Raise an error if the store was changed by anything other than closecall."""
        found = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        wrong = "" if found == ("ok",) else found[0].splitlines()[-1]
        if digests and not wrong:
            count = sum(bool(row[0]) and row[0] != digest(row[1:]) for query in _DIGESTED for row in self._rows(query))
            wrong = f"{count} records or runs differ from what was written" if count else ""
        if wrong:
            raise StoreError(f"{_FAULTS[sqlite3.SQLITE_CORRUPT].format(path=self.path)} ({wrong})")

    def _rows(self, query: str, values: Sequence[object] = ()) -> Iterator[tuple[Any, ...]]:
        try:
            yield from self._connection.execute(query, values)
        except BROKEN as error:
            raise StoreError(_explain(error, self.path)) from error

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Convert errors caused by changed content into a :class:`StoreError`."""
        try:
            yield
        except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
            detail = " ".join(str(error).split())[:200]
            raise StoreError(
                f"{self.path} contains data that closecall does not write ({detail}), so it was changed or forged: use "
                "another store, or run `closecall reproduce` with another --out"
            ) from error

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all or nothing; a failing disk raises :class:`StoreFault`. A nested transaction joins the outer one."""
        if self._connection.in_transaction:
            yield
            return
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except BaseException as error:
            if self._connection.in_transaction:  # a full disk may already have rolled it back
                with contextlib.suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error) and self.write:
                why = _explain(error, self.path)
                raise StoreFault(f"{why}; finished work is kept; the same command resumes the run") from error
            raise

    def begin_run(self, request: dict[str, Any], environment: dict[str, Any]) -> None:
        """Record a request and its environment; records written from now on refer to it."""
        content = [json.dumps(request, sort_keys=True), json.dumps(environment, sort_keys=True)]
        with self.transaction():
            cursor = self._connection.execute(
                "INSERT INTO runs (started, request, environment, digest) VALUES (?, ?, ?, ?)",
                [time.time(), *content, digest(content)],
            )
        self._run = cursor.lastrowid

    def finish_run(self) -> None:
        """Record the end of the run."""
        with self.transaction():
            self._connection.execute("UPDATE runs SET finished = ? WHERE id = ?", [time.time(), self._run])

    def add(self, cell: Cell, record: Record) -> None:
        """Write one record in one transaction."""
        if self._run is None:
            raise StoreError("call begin_run before adding the first record")
        error = record.error.encode(errors="backslashreplace").decode()  # file names may hold bytes that are not text
        values = [
            record.key, json.dumps(asdict(cell), sort_keys=True), record.status, error, json.dumps(record.notes),
            json.dumps(record.sizes), int(record.features), float(record.seconds), pack(record.rows),
        ]  # fmt: skip
        with self.transaction():
            self._connection.execute(_WRITE, [*values, self._run, time.time(), digest(values)])

    def done(self) -> set[str]:
        """Return the keys of the finished cells."""
        return {key for (key,) in self._rows("SELECT key FROM records WHERE status = 'done'")}

    def failures(self) -> dict[str, str]:
        """Return the reason for each failed cell, by key."""
        return dict(self._rows("SELECT key, error FROM records WHERE status = 'failed'"))

    def cells(self) -> list[Cell]:
        """Return every cell with a record, finished or failed."""
        found = list(self._rows("SELECT cell FROM records"))
        with self.understood():
            return [from_plain(Cell, json.loads(text)) for (text,) in found]

    def records(self, keys: Iterable[str]) -> Iterator[Record]:
        """Yield the records of the finished cells among ``keys``, in the order given."""
        query = "SELECT notes, sizes, features, seconds, rows FROM records WHERE key = ? AND status = 'done'"
        for key in keys:
            for notes, sizes, features, seconds, rows in list(self._rows(query, [key])):
                with self.understood():
                    train, validation, test = map(int, json.loads(sizes))
                    parts, texts, content = (train, validation, test), tuple(json.loads(notes)), unpack(rows)
                yield Record(key, "done", content, parts, features, seconds, "", texts)

    def written_by(self) -> dict[str, int]:
        """Return the run that wrote each finished cell, by key."""
        return dict(self._rows("SELECT key, run FROM records WHERE status = 'done'"))

    def runs(self) -> list[dict[str, Any]]:
        """Return every run with its time, its request, its environment and the number of records it wrote."""
        query = """SELECT id, started, finished, request, environment,
                   (SELECT count(*) FROM records WHERE run = runs.id) FROM runs ORDER BY id"""
        names = ("id", "started", "finished", "request", "environment", "records")
        found = [dict(zip(names, values, strict=True)) for values in self._rows(query)]
        with self.understood():
            return [{**run, **{part: dict(json.loads(run[part])) for part in RUN}} for run in found]

    def close(self) -> None:
        """Close the file and release the lock."""
        with contextlib.suppress(AttributeError):  # opening may have failed before there was a connection
            self._connection.close()
        if self._lock is not None:
            self._lock.close()
            self._lock = None


def digest(values: Sequence[Any]) -> str:
    """Return a digest of the values of a row; blobs are included unchanged."""
    plain = json.dumps([len(value) if isinstance(value, bytes) else value for value in values])
    blobs = [value for value in values if isinstance(value, bytes)]
    return hashlib.blake2b(b"".join([plain.encode(), *blobs]), digest_size=16).hexdigest()


def connect(path: Path, how: str, timeout: float = 30) -> sqlite3.Connection:
    """Connect to a file, with an option for its SQLite URI, such as ``mode=ro``."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=timeout, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def version_of(connection: sqlite3.Connection) -> int | str:
    """Return the schema version of a file that closecall wrote (0 if empty), or a description of any other file."""
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    if not {"meta", "runs", "records"} <= tables:
        return "is not a closecall result store"
    row = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
    stated = str(row[0]) if row else "None"
    if stated not in map(str, range(1, SCHEMA_VERSION + 1)):
        return f"has schema {stated[:20]}, but this version of closecall reads 1 to {SCHEMA_VERSION}"
    return int(stated)


def _code(error: Exception) -> int:
    # Python, not SQLite, detects text that is no longer UTF-8; that error has no code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT if "decode" in str(error) else 0)
    return int(code) & 0xFF


def _explain(error: Exception, path: Path) -> str:
    known = _FAULTS.get(_code(error), _FAULTS[sqlite3.SQLITE_CORRUPT])  # for example, a column was renamed
    return f"{known.format(path=path)} ({error})"


def _is_full(error: Exception, folder: Path) -> bool:
    """Return whether a full or failing disk caused the error; SQLite does not report this for a new file."""
    if _code(error) != sqlite3.SQLITE_CANTOPEN:
        return _code(error) in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
    found = os.statvfs(folder) if hasattr(os, "statvfs") else None
    return found is not None and (not found.f_bavail or (found.f_files > 0 and not found.f_favail))


def take_lock(path: Path) -> sqlite3.Connection:
    """Lock the store at ``path`` until the connection is closed or the process ends."""
    lock = sqlite3.connect(path.with_name(path.name + ".lock"), timeout=0, isolation_level=None)
    try:
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        lock.close()
        if _code(error) != sqlite3.SQLITE_BUSY:
            raise
        raise StoreError(
            f"another run ({_holder(path)}) is writing to {path}; wait for it, stop it, or choose another --out"
        ) from None
    return lock


def _holder(path: Path) -> str:
    # The other driver may have taken the lock without having written its name yet.
    with contextlib.suppress(sqlite3.Error), contextlib.closing(connect(path, "mode=ro", timeout=1)) as connection:
        query = "SELECT value FROM meta WHERE name = 'driver'"
        found = connection.execute(query).fetchone() if isinstance(version_of(connection), int) else None
        if found and found[0]:
            return str(found[0])
    return "just starting"

"""The tables of a result store: their creation, their upgrades, and the detection of the schema of a file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

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
#: Schema (0: an empty file) -> the statements that upgrade it to the next. Records older than digests have ''.
_UPGRADES: dict[int, tuple[str, ...]] = {
    0: tuple(filter(str.strip, _TABLES.split(";"))),
    1: (
        "ALTER TABLE runs ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE records ADD COLUMN digest TEXT NOT NULL DEFAULT ''",
    ),
}
SCHEMA_VERSION = len(_UPGRADES)


def connect(path: Path, mode: str, timeout: float = 30) -> sqlite3.Connection:
    """Connect to a file in the mode ``ro``, ``rwc`` (it may be created) or ``immutable`` (no process writes to it)."""
    how = "immutable=1" if mode == "immutable" else f"mode={mode}"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=timeout, isolation_level=None)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Upgrade a store from a schema (0 for an empty file) to the current one, within the caller's transaction."""
    for step in range(version, SCHEMA_VERSION):
        for statement in _UPGRADES[step]:  # one by one: executescript would commit the transaction
            connection.execute(statement)
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", [str(SCHEMA_VERSION)])


def version_of(connection: sqlite3.Connection) -> int | str:
    """Return the schema of a file that closecall wrote (0 if it is empty), or a description of any other file.

    Examples
    --------
    >>> connection = sqlite3.connect(":memory:")
    >>> version_of(connection)
    0
    >>> upgrade(connection, 0)
    >>> version_of(connection) == SCHEMA_VERSION
    True
    """
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

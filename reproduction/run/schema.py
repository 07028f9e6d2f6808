"""The tables of a result store: how they are created and upgraded, and a check that a file has no others.

Triggers, views, generated columns and checks in an untrusted file take effect when it is read or written. The
whole schema is therefore compared with the known ones before any other query.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
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
#: Bytes of a row of a store, and of a record after unpacking.
MAX_RECORD = 1 << 26
#: No row, statement or depth of a file may exceed what closecall writes.
_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: MAX_RECORD,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 10_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 100,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_TRIGGER_DEPTH: 1,
}
Objects = frozenset[tuple[str, str, str]]


def connect(path: Path, mode: str, timeout: float = 30) -> sqlite3.Connection:
    """Connect to an untrusted file in the mode ``ro``, ``rwc`` (create it) or ``immutable`` (no one writes to it)."""
    how = "immutable=1" if mode == "immutable" else f"mode={mode}"
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True, timeout=timeout, isolation_level=None)
    for what, most in _LIMITS.items():
        connection.setlimit(what, most)
    connection.execute("PRAGMA trusted_schema = OFF")
    return connection


def upgrade(connection: sqlite3.Connection, version: int) -> None:
    """Upgrade a store from a schema (0: an empty file) to the current one, within the caller's transaction."""
    for step in range(version, SCHEMA_VERSION):
        for statement in _UPGRADES[step]:  # one by one: executescript would commit the transaction
            connection.execute(statement)
    connection.execute("INSERT OR REPLACE INTO meta VALUES ('schema', ?)", [str(SCHEMA_VERSION)])


def objects(connection: sqlite3.Connection) -> Objects:
    """Return the kind, name and creating statement of each object in a schema, ignoring whitespace."""
    found = connection.execute("SELECT type, name, coalesce(sql, '') FROM sqlite_master")
    return frozenset((str(kind), str(name), " ".join(str(sql).split())) for kind, name, sql in found)


def _known() -> dict[Objects, int]:
    made = {}
    with closing(sqlite3.connect(":memory:")) as connection:
        for version, statements in _UPGRADES.items():
            for statement in statements:
                connection.execute(statement)
            made[objects(connection)] = version + 1
    return made


#: All schemas that any version of closecall has written.
KNOWN = _known()


def version_of(connection: sqlite3.Connection) -> int | str:
    """Return the schema of a file that closecall wrote (0: it is empty), or a description of what it is instead.

    Examples
    --------
    >>> connection = sqlite3.connect(":memory:")
    >>> version_of(connection)
    0
    >>> upgrade(connection, 0)
    >>> version_of(connection) == SCHEMA_VERSION
    True
    >>> _ = connection.execute("CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records; END")
    >>> version_of(connection)
    "has a schema that closecall does not write (trigger 't')"
    """
    found = objects(connection)
    if not found:
        return 0
    newest = max(KNOWN, key=lambda known: KNOWN[known])
    if found not in KNOWN and not {("table", name) for name in ("meta", "runs", "records")} <= {o[:2] for o in found}:
        return "is not a closecall result store"
    meta = next(each for each in newest if each[1] == "meta")
    if meta in found:  # a plain table: it can be queried
        row = connection.execute("SELECT value FROM meta WHERE name = 'schema'").fetchone()
        stated = row[0] if row else None
        if stated not in [str(version) for version in KNOWN.values()]:
            return f"has schema {str(stated)[:20]}, but this version of closecall reads 1 to {SCHEMA_VERSION}"
        if found in KNOWN and str(KNOWN[found]) == stated:
            return KNOWN[found]
    strange = sorted(found - newest)[:1]
    return "has a schema that closecall does not write" + "".join(f" ({kind} {name!r})" for kind, name, _ in strange)

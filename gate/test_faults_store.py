"""The store under attack: full and read-only disks, other schemas, changed bytes. Nothing whole is lost or altered."""

import hashlib
import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from closecall import cli
from gate.fault_helpers import contents, fill, inline, toy
from reproduction.run import store as store_module
from reproduction.run.run import Event, drive
from reproduction.run.store import SCHEMA_VERSION, Store, StoreError, StoreFault
from reproduction.tests.helpers import tasks


def test_a_full_disk_says_so_keeps_what_is_finished_and_the_same_call_resumes(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with Store(path, write=True) as store:
        pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
        store._connection.execute(f"PRAGMA max_page_count = {pages + 6}")  # SQLite's own full disk
        seen: list[Event] = []
        with pytest.raises(StoreFault, match=r"no room left .* make room .*; finished work is kept; the same comm"):
            seen.extend(drive(tasks(40), store, inline, toy, {}))
        finished = sum(event.kind == "done" for event in seen)
        assert 0 < finished < 40
        assert len(store.done()) == finished
    before = contents(path)
    assert len(before) == finished
    with Store(path, write=True) as store:
        list(drive(tasks(40), store, inline, toy, {}))
    after = contents(path)
    assert len(after) == 40
    assert before.items() <= after.items()


@pytest.fixture
def readonly(tmp_path: Path) -> Iterator[Path]:
    """A store in a folder where this process may read only; root gives up its rights for the while."""
    folder = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    fill(folder / "s.sqlite")
    os.chmod(folder, 0o555)
    os.chmod(folder / "s.sqlite", 0o444)
    os.chmod(folder / "s.sqlite.lock", 0o444)
    root = os.geteuid() == 0
    if root:
        os.seteuid(65534)
    try:
        yield folder / "s.sqlite"
    finally:
        if root:
            os.seteuid(0)
        os.chmod(folder, 0o755)
        shutil.rmtree(folder)


def test_a_read_only_store_is_read_and_not_driven(readonly: Path) -> None:
    assert len(contents(readonly)) == 3
    with pytest.raises(StoreError, match=r"cannot be (written|opened).*(choose another --out|read and written)"):
        Store(readonly, write=True)
    assert len(contents(readonly)) == 3


_SCHEMA_1 = """
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
INSERT INTO meta VALUES ('schema', '1'), ('driver', '');
"""


def old_store(path: Path, count: int) -> dict[str, bytes]:
    """A store as the first version wrote it."""
    known = fill(path.with_name("new.sqlite"), count)
    with sqlite3.connect(path) as old:
        old.executescript(_SCHEMA_1)
        old.execute("ATTACH ? AS new", [str(path.with_name("new.sqlite"))])
        old.execute("INSERT INTO runs SELECT id, started, finished, request, environment FROM new.runs")
        names = "key, run, cell, status, attempts, error, notes, sizes, features, seconds, written, rows"
        old.execute(f"INSERT INTO records SELECT {names} FROM new.records")
    old.close()
    return known


def test_an_older_store_is_read_as_it_is_upgraded_by_a_driver(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    known = old_store(path, 5)
    before = path.read_bytes()
    assert contents(path) == known
    assert path.read_bytes() == before, "a reader changed the file"
    shutil.copy(path, tmp_path / "other.sqlite")
    with Store(path, write=True) as store:
        list(drive(tasks(8), store, inline, toy, {}))
        assert len(store.runs()) == 2
    assert known.items() <= contents(path).items()
    assert len(contents(path)) == 8
    assert contents(tmp_path / "other.sqlite") == known


@pytest.mark.parametrize("version", [str(SCHEMA_VERSION + 1), "0", "x", None])
def test_a_store_of_a_schema_that_nobody_knows_is_refused_and_not_touched(tmp_path: Path, version: str | None) -> None:
    path = tmp_path / "s.sqlite"
    fill(path)
    with sqlite3.connect(path) as other:
        other.execute("DELETE FROM meta WHERE name = 'schema'")
        if version:
            other.execute("INSERT INTO meta VALUES ('schema', ?)", [version])
    other.close()
    before = path.read_bytes()
    for write in (False, True):
        with pytest.raises(StoreError, match=f"{version}, but this version of closecall reads 1 to {SCHEMA_VERSION}"):
            Store(path, write=write)
    assert path.read_bytes() == before


def test_somebody_elses_database_is_refused_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE cats (name TEXT)")
    other.close()
    before = path.read_bytes()
    for write in (False, True):
        with pytest.raises(StoreError, match="not a closecall result store; choose another --out"):
            Store(path, write=write)
    assert path.read_bytes() == before


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, bytes]]:
    path = tmp_path_factory.mktemp("whole") / "s.sqlite"
    known = fill(path, 30)
    return path.read_bytes(), known


#: Places that matter: magic, page size, format, schema, and the pages of the tables; then anywhere.
PLACES = [0, 5, 16, 18, 20, 28, 44, 56, 100, 103, 106, 2000, 4000, 4096, 8192, 12288, 16384, *range(-14, 0)]


@pytest.mark.parametrize("place", PLACES)
def test_changed_bytes_are_noticed(place: int, tmp_path: Path, whole: tuple[bytes, dict[str, bytes]]) -> None:
    content, known = whole
    path, rng = tmp_path / "s.sqlite", random.Random(place)
    damaged = bytearray(content)
    for at in [place] if place >= 0 else [rng.randrange(len(content)) for _ in range(rng.randint(1, 6))]:
        damaged[at] ^= rng.randint(1, 255)
    path.write_bytes(damaged)
    said = refusal(path)
    if said:
        assert "set it aside" in said or "schema" in said
    else:
        assert contents(path) == known


def refusal(path: Path) -> str:
    try:
        contents(path)
    except StoreError as error:
        return str(error)
    return ""


def test_a_changed_byte_in_the_wal_costs_the_cells_after_it_alone(tmp_path: Path) -> None:
    """A killed driver leaves a WAL, whose frames SQLite checks itself: it ends where the first is wrong."""
    path, rng = tmp_path / "s.sqlite", random.Random(7)
    with Store(path, write=True) as store:
        store.begin_run({}, {})
        for task in tasks(12):
            store.add(task.cell, toy(task.cell))
        for ending in ("", "-wal"):
            shutil.copy(f"{path}{ending}", tmp_path / f"killed.sqlite{ending}")
    known, wal = contents(path), (tmp_path / "killed.sqlite-wal").read_bytes()
    main = (tmp_path / "killed.sqlite").read_bytes()
    counts = []
    for number in range(10):
        place = tmp_path / f"{number}.sqlite"
        damaged = bytearray(wal)
        damaged[rng.randrange(len(wal) // 2, len(wal))] ^= 64
        place.write_bytes(main)
        Path(f"{place}-wal").write_bytes(damaged)
        found = contents(place)
        assert found.items() <= known.items()
        counts.append(len(found))
    assert 0 < min(counts) <= max(counts) < 12


def test_the_commands_on_a_damaged_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["closecall", *arguments, "--out", str(tmp_path)])
        with pytest.raises(SystemExit) as ending:
            cli.main()
        return int(ending.value.code or 0), *capsys.readouterr()

    path = tmp_path / "store.sqlite"
    fill(path, 20)
    content = bytearray(path.read_bytes())
    place = content.index(b'"split": 7')
    content[place + 9] = ord("8")
    path.write_bytes(content)
    code, _, said = command("status")
    assert code == 3
    assert "1 records or runs differ from what was written" in said.replace("\n", " ")


def test_every_record_is_written_to_the_disk_itself(tmp_path: Path) -> None:
    """A power cut must not cost finished cells: each commit waits for the disk."""
    with Store(tmp_path / "s.sqlite", write=True) as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_digest_covers_every_value() -> None:
    values = ["key", "cell", "done", "", "[]", "[1, 2, 3]", 4, 0.5, b"rows"]
    changed = [store_module.digest([*values[:i], "other", *values[i + 1 :]]) for i in range(len(values))]
    assert len({store_module.digest(values), *changed}) == 1 + len(values)
    assert hashlib.blake2b(digest_size=16).digest_size * 2 == len(changed[0])

"""Faults of the store: full and read-only disks, other schemas, changed bytes. No finished cell is lost or altered."""

import os
import random
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from gate.fault_helpers import contents, fill, inline, toy
from gate.hostile_files import run_command
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
        with pytest.raises(StoreFault, match=r"no space is left .* free up space .*; finished work is kept; the same"):
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
    """Return a store in a folder that this process may only read; root gives up its rights for the test."""
    folder = Path(tempfile.mkdtemp())  # other users cannot open pytest's own folders
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


def test_a_store_of_the_first_schema_is_read_as_it_is_and_upgraded_by_a_driver(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    known = fill(path, 5)
    with sqlite3.connect(path) as old:  # schema 2 added the digests
        for table in ("runs", "records"):
            old.execute(f"ALTER TABLE {table} DROP COLUMN digest")
        old.execute("UPDATE meta SET value = '1' WHERE name = 'schema'")
    old.close()
    before = path.read_bytes()
    assert contents(path) == known
    assert path.read_bytes() == before, "a reader changed the file"
    with Store(path, write=True) as store:
        list(drive(tasks(8), store, inline, toy, {}))
        assert len(store.runs()) == 2
    assert known.items() <= contents(path).items()
    assert len(contents(path)) == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            f"UPDATE meta SET value = '{SCHEMA_VERSION + 1}' WHERE name = 'schema'",
            "but this version of closecall reads",
        ),
        ("UPDATE meta SET value = 'x' WHERE name = 'schema'", "but this version of closecall reads"),
        ("DELETE FROM meta WHERE name = 'schema'", "but this version of closecall reads"),
        ("DROP TABLE meta", "not a closecall result store; choose another --out"),
    ],
)
def test_an_unknown_schema_is_refused_and_not_changed(change: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    fill(path)
    with sqlite3.connect(path) as other:
        other.execute(change)
    other.close()
    before = path.read_bytes()
    for write in (False, True):
        with pytest.raises(StoreError, match=message):
            Store(path, write=write)
    assert path.read_bytes() == before


#: Important places: magic number, page size, format, schema and the pages of the tables; -1 stands for random places.
PLACES = [0, 5, 16, 18, 20, 28, 44, 56, 100, 103, 106, 2000, 4000, 4096, 8192, 12288, 16384, *[-1] * 14]


def test_changed_bytes_are_noticed(tmp_path: Path) -> None:
    path, rng = tmp_path / "s.sqlite", random.Random(0)
    known = fill(path, 30)
    content = path.read_bytes()
    for place in PLACES:
        damaged = bytearray(content)
        for at in [place] if place >= 0 else [rng.randrange(len(content)) for _ in range(rng.randint(1, 6))]:
            damaged[at] ^= rng.randint(1, 255)
        path.write_bytes(damaged)
        refusal = ""
        try:
            assert contents(path) == known, place
        except StoreError as error:
            refusal = str(error)
        assert not refusal or "set it aside" in refusal or "schema" in refusal


def test_a_changed_byte_in_the_log_costs_only_the_cells_after_it(tmp_path: Path) -> None:
    """A killed driver leaves a write-ahead log, which SQLite reads up to the first frame with a wrong checksum."""
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


def test_status_of_a_store_with_a_changed_cell(tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    fill(path, 20)
    path.write_bytes(path.read_bytes().replace(b'"split": 7', b'"split": 8', 1))
    code, told = run_command(["status", "--out", str(tmp_path)], tmp_path)
    assert code == 3
    assert "1 records or runs differ from what was written" in " ".join(told.split())


def test_every_record_is_written_to_the_disk_itself(tmp_path: Path) -> None:
    """A power failure must not cost finished cells, so each commit waits for the disk."""
    with Store(tmp_path / "s.sqlite", write=True) as store:
        assert store._connection.execute("PRAGMA synchronous").fetchone() == (2,)
        assert store._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_the_digest_covers_every_value() -> None:
    values = ["key", "cell", "done", "", "[]", "[1, 2, 3]", 4, 0.5, b"rows"]
    changed = [store_module.digest([*values[:i], "other", *values[i + 1 :]]) for i in range(len(values))]
    assert len({store_module.digest(values), *changed}) == 1 + len(values)

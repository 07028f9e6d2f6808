"""The store, the records in it, and the cells' keys."""

import contextlib
import dataclasses
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from reproduction.protocol.grid import ROW, choose
from reproduction.protocol.plan import TARGETS, Cell, RunOptions, Size, get_targets, rng_for
from reproduction.protocol.synthetic import SIMULATIONS
from reproduction.run.jobs import Job
from reproduction.run.record import Record, pack, unpack
from reproduction.run.store import Store, StoreError
from reproduction.tests.helpers import tasks, toy_rows


def filled(path: Path, count: int = 3) -> Store:
    store = Store(path, write=True)
    store.begin_run({"target": "test"}, {})
    for task in tasks(count):
        store.add(task.cell, Record(task.cell.key, "done", toy_rows(task.cell), (5, 3, 2), 4, 0.5, notes=("a note",)))
    return store


def test_what_goes_in_comes_out(tmp_path: Path) -> None:
    with filled(tmp_path / "s.sqlite") as store:
        keys = [task.cell.key for task in tasks(3)]
        assert store.done() == set(keys)
        found = list(store.records([*reversed(keys), "unknown"]))
        assert [record.key for record in found] == keys[::-1]
        for record, task in zip(found, reversed(tasks(3)), strict=True):
            np.testing.assert_array_equal(record.rows, toy_rows(task.cell))
            assert (record.sizes, record.features, record.notes) == ((5, 3, 2), 4, ("a note",))
        assert {cell.key for cell in store.cells()} == set(keys)
        assert store.runs()[0]["records"] == 3


def test_a_finished_record_is_never_written_again_and_a_failed_one_is(tmp_path: Path) -> None:
    with filled(tmp_path / "s.sqlite", 1) as store:
        cell = tasks(1)[0].cell
        store.add(cell, Record(cell.key, "failed", error="late"))
        assert store.done() == {cell.key}
        other = tasks(2)[1].cell
        store.add(other, Record(other.key, "failed", error="no memory"))
        assert store.failures() == {other.key: "no memory"}
        store.add(other, Record(other.key, "done", toy_rows(other)))
        assert store.failures() == {}
        assert store.done() == {cell.key, other.key}


def test_a_second_driver_is_refused_and_a_reader_is_not(tmp_path: Path) -> None:
    path = tmp_path / "s.sqlite"
    with filled(path):
        with pytest.raises(StoreError, match=r"another run \(process \d+ on .*\) is writing"):
            Store(path, write=True)
        with Store(path) as reader:
            assert len(reader.done()) == 3
            with pytest.raises(sqlite3.OperationalError, match="readonly"):
                reader.begin_run({}, {})
    Store(path, write=True).close()


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no result store"):
        Store(tmp_path / "missing.sqlite")
    (tmp_path / "text.sqlite").write_text("hello " * 300)
    for write in (True, False):
        with pytest.raises(StoreError, match="not a database"):
            Store(tmp_path / "text.sqlite", write=write)
    filled(tmp_path / "old.sqlite").close()
    for name, statement, match in (
        ("other", "CREATE TABLE cats (name TEXT)", "not a closecall"),
        ("old", "UPDATE meta SET value = '0' WHERE name = 'schema'", "schema 0"),
    ):
        with contextlib.closing(sqlite3.connect(tmp_path / f"{name}.sqlite", isolation_level=None)) as file:
            file.execute(statement)
        with pytest.raises(StoreError, match=match):
            Store(tmp_path / f"{name}.sqlite", write=name == "old")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot open"):
        Store(tmp_path / "file" / "s.sqlite", write=True)


def test_rows_are_small_and_never_pickled() -> None:
    rows = np.zeros(374, ROW)
    rows["method"], rows["loss"] = np.resize(["close", "atk", "top"], 374), np.resize(["hinge", "logistic"], 374)
    rng = np.random.default_rng(0)
    for name in ("train", "validation", "test"):
        rows[name] = rng.integers(200, 250, 374)
    rows["objective"] = rng.random(374)
    assert len(pack(rows)) < 374 * 20
    np.testing.assert_array_equal(unpack(pack(rows)), rows)


def test_choice_by_brute_force() -> None:
    rng = np.random.default_rng(1)
    rows = np.zeros(200, ROW)
    rows["loss"], rows["method"] = rng.choice(["hinge", "logistic"], 200), rng.choice(["close", "average"], 200)
    rows["k"], rows["alpha"] = rng.choice([10, 100, 277], 200), rng.choice([0.1, 1, 10], 200)
    rows["validation"] = rng.integers(0, 3, 200)
    for protocol, ties in (("paper", ("alpha", "k")), ("sound", ("k", "alpha"))):
        chosen = choose(rows, protocol)
        assert len(chosen) == 4
        for row in chosen:
            rivals = rows[(rows["loss"] == row["loss"]) & (rows["method"] == row["method"])]
            best = max((r["validation"], r[ties[0]], r[ties[1]]) for r in rivals)
            assert (row["validation"], row[ties[0]], row[ties[1]]) == best


def test_every_field_but_the_suite_changes_the_key() -> None:
    cell = Cell("embedded", "monk3", "abc", 0, "linear", "paper")
    for field in dataclasses.fields(Cell):
        value = getattr(cell, field.name)
        other = dataclasses.replace(cell, **{field.name: value + 1 if isinstance(value, int) else value + "x"})
        assert (other.key == cell.key) == (field.name == "suite"), field.name


def test_streams_have_names_and_do_not_depend_on_the_model() -> None:
    cell = Cell("embedded", "monk3", "abc", 0, "linear", "paper")
    draw = rng_for(cell, "split").random()
    assert draw == rng_for(dataclasses.replace(cell, model="network", max_iter=5, level=8), "split").random()
    for changed in ({"split": 1}, {"dataset": "monk2"}, {"protocol": "sound"}):
        assert draw != rng_for(dataclasses.replace(cell, **changed), "split").random()


def test_plans() -> None:
    sizes = Size("pmlb94", "small", "a", 100, 3), Size("pmlb94", "large", "b", 5000, 30)
    options = RunOptions(splits=2, protocols=("paper",), models=("linear", "network"))
    # Tables 1 and 4 use the same cells.
    planned, again = (Job(TARGETS[name], ("pmlb94",), options, sizes, ()).tasks() for name in ("table1", "table4"))
    assert len(planned) == 2 * 2 * 2
    assert [task.cost for task in planned] == sorted((task.cost for task in planned), reverse=True)
    assert {task.cell.protocol for task in planned} == {"paper"}
    assert {task.cell.key for task in planned} == {task.cell.key for task in again}
    levels = sum(level > 0 for each in SIMULATIONS.values() for level in each.levels)
    assert len(Job(TARGETS["figure5"], (), RunOptions(splits=3), sizes[:1], ()).tasks()) == 2 * 3 * (1 + levels)
    assert Job(TARGETS["figure2"], (), RunOptions(protocols=("sound",)), sizes, ()).tasks() == []
    assert len({target.name for target in get_targets(["all", "table1"])}) == 11


def test_unknown_starts_and_recipes_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown start 'north'; choose one of: least_squares, zeros"):
        RunOptions(start="north")
    with pytest.raises(ValueError, match="unknown recipe"):
        RunOptions(recipe=4)

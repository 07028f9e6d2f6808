"""Engines and driver: killed workers, cells that kill workers, a killed driver."""

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from reproduction.protocol.plan import Cell
from reproduction.run.engines import ATTEMPTS, Engine, Local
from reproduction.run.record import Record
from reproduction.run.run import Event, drive
from reproduction.run.store import Store
from reproduction.tests.helpers import Cluster, tasks, toy_rows, work
from tests import ROOT


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder where workers log the cells they start; they inherit the environment."""
    monkeypatch.setenv("CLOSECALL_TEST_FOLDER", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)  # the tests may start in any folder
    return tmp_path


def begun(folder: Path) -> Counter[str]:
    log = folder / "begun.log"
    return Counter(log.read_text().split()) if log.exists() else Counter()


def run(folder: Path, engine: Engine, name: str, count: int) -> list[Event]:
    with Store(folder / "s.sqlite", write=True) as store:
        return list(drive(tasks(count, name), store, engine, work, {}))


def results(path: Path) -> dict[str, list[int]]:
    with Store(path) as store:
        return {record.key: record.rows["test"].tolist() for record in store.records(sorted(store.done()))}


def test_all_cells_once_and_nothing_twice(folder: Path) -> None:
    events = run(folder, Local(2), "toy", 6)
    assert [event.kind for event in events].count("done") == 6
    assert (events[0].kind, events[0].done, events[-1].kind, events[-1].done) == ("planned", 0, "finished", 6)
    fractions = [event.fraction for event in events]
    assert fractions == sorted(fractions)
    assert fractions[-1] == pytest.approx(1)
    assert json.loads(events[1].as_json())["cell"]["dataset"] == "toy"
    again = run(folder, Local(2), "toy", 6)
    assert [event.kind for event in again] == ["planned", "finished"]
    assert set(begun(folder).values()) == {1}
    expected = {task.cell.key: toy_rows(task.cell)["test"].tolist() for task in tasks(6)}
    assert results(folder / "s.sqlite") == expected


def test_an_exception_is_a_failed_cell_that_the_next_run_tries_again(folder: Path) -> None:
    events = run(folder, Local(1), "raises", 2)
    failed = [event for event in events if event.kind == "failed"]
    assert len(failed) == 2
    assert "ValueError: constant columns only (helpers.py:" in failed[0].detail
    assert events[-1].failed == 2
    run(folder, Local(1), "raises", 2)
    assert set(begun(folder).values()) == {2}


@pytest.fixture(params=[Local(2), Cluster()], ids=["local", "dask"])
def engine(request: pytest.FixtureRequest) -> Engine:
    if isinstance(request.param, Cluster):
        pytest.importorskip("distributed", reason="install closecall[dask]")
    return request.param


def test_a_killed_workers_cell_runs_again(folder: Path, engine: Engine) -> None:
    events = run(folder, engine, "deadly-once", 4)
    assert events[-1].done == 4
    assert begun(folder)[tasks(4, "deadly-once")[1].cell.key] >= 2


def test_a_cell_that_always_kills_fails_and_the_rest_goes_on(folder: Path, engine: Engine) -> None:
    events = run(folder, engine, "deadly", 4)
    assert (events[-1].done, events[-1].failed) == (3, 1), [event.detail for event in events]
    (failed,) = [event for event in events if event.kind == "failed"]
    assert failed.cell == tasks(4, "deadly")[1].cell
    assert f"its worker died {ATTEMPTS} times" in failed.detail
    deaths = begun(folder)[failed.cell.key]
    # Dask runs a suspect once more alone, and may lose a worker before the cell starts.
    assert deaths == ATTEMPTS if isinstance(engine, Local) else ATTEMPTS <= deaths <= 2 * ATTEMPTS


def test_a_driver_killed_often_loses_and_repeats_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After SIGKILL at random moments, no finished cell is lost or started again."""
    monkeypatch.setenv("CLOSECALL_TEST_SLEEP", "0.02")
    store, count, moments = folder / "s.sqlite", 60, random.Random(2024)
    command = [sys.executable, "-m", "reproduction.tests.helpers", str(store), "local", str(count), "1"]
    known: dict[str, list[int]] = {}
    for _ in range(3):
        before, started = set(known), begun(folder)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as driver:
            assert driver.stdout is not None
            # A random number of events and a random delay, independent of the speed of the machine.
            for _ in range(moments.randint(1, 24)):
                driver.stdout.readline()
            time.sleep(moments.uniform(0.0, 0.05))
            driver.kill()
        found = results(store)
        assert all(found[key] == rows for key, rows in known.items()), "a finished cell was lost or changed"
        assert not before & set(begun(folder) - started), "a finished cell was started again"
        known = found
    assert 0 < len(known) < count, "the kills should hit the middle of the work"
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    expected = {task.cell.key: toy_rows(task.cell)["test"].tolist() for task in tasks(count)}
    assert results(store) == expected


def test_workers_use_one_blas_thread(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with Store(folder / "s.sqlite", write=True) as store:
        list(drive(tasks(1), store, Local(1), count_threads, {}))
        (record,) = store.records([tasks(1)[0].cell.key])
    assert record.features == 1


def count_threads(cell: Cell) -> Record:
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    return Record(cell.key, "done", features=max(pool["num_threads"] for pool in threadpool_info()))

"""Faults of engines and drivers: signals, memory, clocks, a scheduler that disappears."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from closecall import cli
from closecall.cli.exits import explain
from gate.fault_helpers import alive, children, contents, hungry, inline, slow, toy
from reproduction.run import engines as execute
from reproduction.run.engines import Dask, EngineError, Local
from reproduction.run.run import drive
from reproduction.run.store import Store
from reproduction.tests.helpers import tasks
from tests import ROOT


@pytest.fixture
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes that the tests start import the helpers."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
def test_a_signal_ends_the_driver_at_once_with_its_workers_and_loses_nothing(
    number: signal.Signals, tmp_path: Path, importable: None
) -> None:
    path = tmp_path / "s.sqlite"
    command = [sys.executable, "-m", "gate.fault_helpers", "reproduce", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        lines = [driver.stdout.readline() for _ in range(12)]
        workers = children(driver.pid)
        began = time.monotonic()
        driver.send_signal(number)
        rest, said = driver.communicate()
        took = time.monotonic() - began
    assert len(workers) >= 2
    assert took < 10, (driver.returncode, said)
    if number != signal.SIGKILL:
        assert driver.returncode == 2, said
        assert said == "interrupted; finished work is kept; the same command resumes the run\n"
    while any(map(alive, workers)) and time.monotonic() < began + 20:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    announced = {line.split()[1] for line in "".join([*lines, rest]).splitlines() if line.startswith("done")}
    assert announced
    assert announced <= set(contents(path))


def test_the_command_interrupted_says_so_and_is_incomplete(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Typer uses another exit code for Ctrl-C; closecall uses 2."""

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr("reproduction.command.drive", interrupted)
    monkeypatch.setattr("sys.argv", ["closecall", "reproduce", "--datasets", "monk3", "--out", str(tmp_path)])
    with pytest.raises(SystemExit) as ending:
        cli.main()
    assert ending.value.code == 2
    assert "the same command resumes" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (OSError(28, "No space left on device"), "free up space, or choose another --out; the same command", 2),
        (OSError(13, "Permission denied"), "Permission denied", 3),
        (MemoryError(), "not enough memory", 2),
        (EngineError("no scheduler"), "no scheduler", 2),
    ],
)
def test_endings_are_explained(error: BaseException, words: str, code: int) -> None:
    message, found = explain(error)
    assert words in message
    assert found == code


def test_a_consumer_that_stops_listening_leaves_no_workers(tmp_path: Path) -> None:
    before = children(os.getpid())
    with Store(tmp_path / "s.sqlite", write=True) as store:
        events = drive(tasks(50), store, Local(2), slow, {})
        for event in events:
            if event.kind == "done":
                break
        new = set(children(os.getpid())) - set(before)
        busy = [pid for pid in new if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(busy) == 2
        events.close()
        assert not any(map(alive, busy))
        assert len(store.done()) == 1


def test_a_worker_without_memory_is_a_failed_cell_that_the_next_run_finishes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Store(tmp_path / "s.sqlite", write=True) as store:
        events = list(drive(tasks(2), store, Local(1), hungry, {}))
        assert [event.kind for event in events].count("failed") == 2
        assert all("MemoryError" in said and "fewer --workers" in said for said in store.failures().values())
        monkeypatch.setenv("CLOSECALL_TEST_ROOM", "1")
        events = list(drive(tasks(2), store, Local(1), hungry, {}))
        assert (events[-1].done, events[-1].failed) == (2, 0)


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store(tmp_path / "right.sqlite", write=True) as store:
        list(drive(tasks(6), store, inline, toy, {}))
    jumps = iter(1e9 * (1 + (-1) ** i * i) for i in range(1000))
    monkeypatch.setattr(time, "time", lambda: next(jumps))
    with Store(tmp_path / "wrong.sqlite", write=True) as store:
        for count in (2, 6):
            events = list(drive(tasks(count), store, inline, toy, {"count": count}))
            assert events[-1].done == count
            assert all(event.eta is None or event.eta >= 0 for event in events)
        assert [run["request"]["count"] for run in store.runs()] == [2, 6], "runs are in the order of their beginning"
    assert contents(tmp_path / "wrong.sqlite") == contents(tmp_path / "right.sqlite")


def test_a_machine_without_room_for_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With some workers the run continues; without any it ends with a message."""
    start, room = execute._Worker, 1

    class Worker(start):  # type: ignore[misc,valid-type]
        def __init__(self, work: Any) -> None:
            nonlocal room
            room -= 1
            if room < 0:
                raise OSError(11, "Resource temporarily unavailable")
            super().__init__(work)

    monkeypatch.setattr(execute, "_Worker", Worker)
    with Store(tmp_path / "s.sqlite", write=True) as store:
        assert list(drive(tasks(4), store, Local(3), toy, {}))[-1].done == 4
        with pytest.raises(EngineError, match=r"cannot start a worker .*; use fewer --workers"):
            list(drive(tasks(6), store, Local(3), toy, {}))


def test_no_scheduler_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execute, "TIMEOUT", 0.2)
    address = f"tcp://127.0.0.1:{free_port()}"
    with pytest.raises(EngineError, match=f"no Dask scheduler answers at {address} .*the same command resumes"):
        list(Dask(address)(tasks(1), toy))


def test_a_scheduler_that_disappears_ends_the_run_and_the_next_run_finishes_it(
    tmp_path: Path, importable: None
) -> None:
    host, done = ["--host", "127.0.0.1", "--no-dashboard"], []
    for last in (False, True):
        address = f"tcp://127.0.0.1:{free_port()}"
        commands = (
            ["distributed.cli.dask_scheduler", *host, "--port", address.rpartition(":")[2]],
            ["distributed.cli.dask_worker", address, *host, "--nthreads", "1", "--no-nanny"],
        )
        quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        cluster = [subprocess.Popen([sys.executable, "-m", *command], **quiet) for command in commands]
        ending: Any = contextlib.nullcontext() if last else pytest.raises(EngineError, match="same command resumes")
        try:
            with Store(tmp_path / "s.sqlite", write=True) as store, ending:
                for event in drive(tasks(30), store, Dask(address), slow, {}):
                    done += [event.cell.key] if event.kind == "done" and event.cell else []
                    if len(done) == 5 and not last:
                        cluster[0].kill()
        finally:
            for process in cluster:
                process.kill()
                process.wait()
    assert len(done) == len(set(done)) == 30
    assert set(done) == set(contents(tmp_path / "s.sqlite"))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])

"""Every command with bad files, hostile names, signals, closed streams and low limits: messages, no traceback."""

import contextlib
import gzip
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reproduction.app
import reproduction.command
from closecall import AggregateLossClassifier, cli, load_model
from closecall.__main__ import ADDRESS_SPACE
from closecall._signals import AGAIN, KEPT
from closecall.cli import exits
from closecall.report import charts
from closecall.report.text import cell
from closecall.table.model import TableModel
from closecall.table.report import check_packages
from closecall.table.table import read
from gate.hostile_files import MIB, bz2_bomb, forge, make_store, npy, parts_of, run_command
from reproduction.pages.formats import Table, to_csv
from reproduction.protocol.plan import Cell
from reproduction.run import engines
from reproduction.run.campaign import stored_jobs
from reproduction.run.compact import spell, unspell
from reproduction.run.run import Event
from reproduction.run.store import Store, StoreError

TABLE = "when,size,target\n" + "".join(f"{i % 9 + 1:02}.01.2024,{i % 7},{'ab'[i % 2]}\n" for i in range(60))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    (folder / "t.csv").write_text(TABLE)
    fitted = TableModel.fit(read(str(folder / "t.csv")), "logistic")
    assert [step.column.kind for step in fitted.recipe.steps] == ["date", "number"]
    fitted.save(str(folder / "model.npz"))
    return folder / "model.npz"


def reforged(path: Path, change: Callable[[dict[str, Any], dict[str, Any]], None]) -> bytes:
    """Return a model with a changed header or changed arrays, and with a correct checksum."""
    header, arrays = parts_of(path)
    change(header, arrays)
    return forge(header, arrays)


def _steps(header: dict[str, Any]) -> Any:
    pairs = header["fitted"]["table_"]["items"]
    return next(value for key, value in pairs if key == "steps")["items"]


#: Faults of a model whose checksum is correct.
FORGERIES: dict[str, Callable[[dict[str, Any], dict[str, Any]], None]] = {
    "classes in a list": lambda h, a: h["fitted"].update(classes_={"kind": "list", "items": ["a", "b"]}),
    "coefficients in a list": lambda h, a: h["fitted"].update(
        coef_={"kind": "list", "items": [{"kind": "list", "items": [1.0] * a["fitted.coef_"].shape[1]}]}),
    "intercept in a list": lambda h, a: h["fitted"].update(intercept_={"kind": "list", "items": [1.0]}),
    "impossible code points": lambda h, a: a.update(
        {"fitted.classes_": np.array([7, 0x110000], "<u4").view("<U1")}),
    "bytes for classes": lambda h, a: (a.update({"fitted.classes_": np.array([b"a", b"b"])}),
                                       h["fitted"]["classes_"].update(object=False)),
    "an unknown format of a date": lambda h, a: _steps(h)[0]["items"].__setitem__(2, "%Q%"),
    "a format that is not one": lambda h, a: _steps(h)[1]["items"].__setitem__(2, "(("),
}  # fmt: skip


@pytest.mark.parametrize("case", FORGERIES)
def test_forged_models_with_right_checksums(case: str, model: Path, tmp_path: Path) -> None:
    (tmp_path / "m.npz").write_bytes(reforged(model, FORGERIES[case]))
    (tmp_path / "t.csv").write_text(TABLE)
    code, told = run_command(["predict", "m.npz", "t.csv"], tmp_path)
    assert code == cli.BAD_REQUEST, told
    assert "again" in told


def test_load_model_does_not_drop_the_preprocessing(model: Path) -> None:
    with pytest.raises(ValueError, match=r"written by `closecall fit`.*closecall predict.*TableModel\.load"):
        load_model(model)
    with pytest.raises(ValueError, match="written by `closecall fit`"):
        AggregateLossClassifier.load(model)
    assert TableModel.load(str(model)).target == "target"


def _bad_files(folder: Path, model: Path) -> list[str]:
    content = {
        "empty.csv": b"", "bytes.csv": bytes(range(256)) * 20, "zeros.npz": bytes(1000),
        "utf16.csv": TABLE.encode("utf-16"), "cut.csv.gz": gzip.compress(TABLE.encode())[:-9],
        "bomb.npz": bz2_bomb(16 * MIB), "object.npz": b"PK\x05\x06" + bytes(18), "header.npz": npy("(10**9,)"),
        "cut.npz": model.read_bytes()[:-200], "list.npz": reforged(model, FORGERIES["classes in a list"]),
        "x.parquet": b"PAR1" + bytes(50) + b"PAR1", "deep.json": b"[" * 100_000, "other.csv": b"a,b\n1,2\n3\n",
        "quote.csv": b'a,"b\n1,2\n',
    }  # fmt: skip
    for name, data in content.items():
        (folder / name).write_bytes(data)
    (folder / "folder.csv").mkdir()
    names = [*content, "folder.csv", "nowhere.csv"]
    return [*(str(folder / name) for name in names), "~nosuchuser/x.csv", "-", "/dev/null", "\udcff"]


#: Each command with a bad file in each place where it takes one.
COMMANDS: dict[str, Callable[[str], list[list[str]]]] = {
    "compare": lambda bad: [["compare", bad, "--no-report"]],
    "check": lambda bad: [["check", bad]],
    "fit": lambda bad: [["fit", bad, "--out", "made"]],
    "predict": lambda bad: [["predict", bad, "good.csv"], ["predict", "good.npz", bad]],
    "explain": lambda bad: [["explain", bad, "good.csv"], ["explain", "good.npz", bad]],
    "reproduce": lambda bad: [["reproduce", "--datasets", bad, "--out", "run"],
                              ["reproduce", "--datasets", "monk3", "--out", bad],
                              ["reproduce", "--dry-run", "--datasets", bad]],
    "status": lambda bad: [["status", "--out", bad]],
    "report": lambda bad: [["report", "--out", bad]],
    "export": lambda bad: [["export", "--to", bad, "--out", "store"], ["export", "--to", "there", "--out", bad]],
    "import": lambda bad: [["import", bad, "--out", "imported"]],
    "publish": lambda bad: [["publish", "--to", "pages", "--out", bad], ["publish", "--to", bad]],
}  # fmt: skip


def test_the_list_of_commands_is_complete() -> None:
    registered = [*cli.app.registered_commands, *reproduction.app.app.registered_commands]
    names = {each.name or getattr(each.callback, "__name__", "") for each in registered}
    assert names == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_with_every_kind_of_bad_file(
    command: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "good.csv").write_text(TABLE)
    (tmp_path / "good.npz").write_bytes(model.read_bytes())
    make_store(tmp_path / "store")
    for bad in _bad_files(tmp_path, model):
        for arguments in COMMANDS[command](bad):
            code, told = run_command(arguments, tmp_path)
            assert code in (0, 1, 2, 3), (arguments, told)
            assert "Traceback" not in told
            assert told.strip()


def test_a_store_that_is_a_folder_or_another_file(tmp_path: Path) -> None:
    for name, data in (("bytes", bytes(range(256)) * 64), ("empty", b""), ("folder", None)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "store.sqlite").mkdir() if data is None else (folder / "store.sqlite").write_bytes(data)
        code, told = run_command(["report", "--out", str(folder)], tmp_path)
        assert code == cli.BAD_REQUEST, told


def test_a_store_does_not_make_the_report_write_elsewhere(tmp_path: Path) -> None:
    path = make_store(tmp_path, suite="embedded/../../../out")
    with Store(path) as store, pytest.raises(StoreError, match="closecall does not write"):
        stored_jobs(store)


def test_plain_progress_lines_are_text(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "file:\x1b]0;x\x07\x1b[31m.csv"
    work = Cell("embedded", hostile, "c", 0, "linear", "sound", 10)
    events = [
        Event("failed", work, f"cannot read {hostile}", 0, 1, 2, 0.5, None),
        Event("lost", work, "", 0, 1, 2, 0.5, None),
        Event("finished", None, "", 1, 1, 2, 1.0, None),
    ]
    reproduction.command._show_lines(iter(events))
    told = capsys.readouterr().out
    assert len(told.splitlines()) == 3
    assert not [character for character in told if not (character.isprintable() or character == "\n")]


def test_escape_sequences_of_a_folder_and_a_store_are_shown_as_text(tmp_path: Path) -> None:
    folder = tmp_path / "\x1b[31mred\x07"
    make_store(folder, text="x\x1b[31m\ud800\u202e")
    for arguments in (["export", "--to", str(folder / "to")], ["import", str(folder / "to")], ["status"]):
        code, told = run_command([*arguments, "--out", str(folder)], tmp_path)
        assert code in (0, 1, 2, 3), told
        assert not {"\x1b", "\x07", "\u202e"} & {*told}, arguments


def test_formulas_after_a_semicolon() -> None:
    assert cell("a;=1+1") == "a;'=1+1"
    assert cell("a; \uff1d1") == "a;' \uff1d1"
    assert "a;'=1+1" in to_csv(Table("t", "T", ("a",), (), ({"a": "a;=1+1"},)))
    assert ";=" not in spell("a;=1+1")
    assert unspell(spell("a;=1+1")) == "a;=1+1"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
@pytest.mark.parametrize(
    ("command", "number", "advice"),
    [("reproduce", signal.SIGTERM, KEPT), ("compare", signal.SIGINT, AGAIN), ("fit", signal.SIGTERM, AGAIN)],
)
def test_signals_are_answered_before_anything_is_loaded(command: str, number: signal.Signals, advice: str) -> None:
    line = [sys.executable, "-m", "closecall", command, "monk3"]
    process = subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    status = Path(f"/proc/{process.pid}/status")
    end = time.monotonic() + 60
    while time.monotonic() < end:
        with contextlib.suppress(OSError, StopIteration):
            caught = next(line for line in status.read_text().splitlines() if line.startswith("SigCgt"))
            if int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
                break
    assert "numpy" not in Path(f"/proc/{process.pid}/maps").read_text()
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (2, f"interrupted; {advice}\n")


def test_a_signal_after_the_end_changes_nothing() -> None:
    """While Python shuts down, its handlers are gone, and a signal would kill a command that has finished its work."""
    code = (
        "import atexit, os, signal, sys; sys.argv[1:] = ['--version']; from closecall.__main__ import main\n"
        "for number in (signal.SIGTERM, signal.SIGINT): atexit.register(os.kill, os.getpid(), number)\nmain()"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_little_address_space_is_named() -> None:
    line = f"ulimit -v 1000000; {sys.executable} -m closecall compare t.csv"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2, done.stderr
    assert f"{ADDRESS_SPACE >> 20} MiB is required; raise the limit" in done.stderr


def test_charts_under_a_limit_are_refused_not_fatal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(charts, "address_space", lambda: 8 << 30)
    (tmp_path / "t.csv").write_text(TABLE)
    with pytest.raises(ValueError, match=r"the address space limited to 8192 MiB: lift the limit"):
        charts.draw({})
    assert "lift the limit" in check_packages()


def test_an_unexpected_error_is_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any, **options: Any) -> None:
        raise RuntimeError("not expected")

    monkeypatch.setattr(reproduction.command, "prepare", broken)
    for traceback in ("", "1"):
        monkeypatch.setenv("CLOSECALL_TRACEBACK", traceback)
        code, told = run_command(["reproduce", "--dry-run"], tmp_path)
        assert code == "a traceback"
        assert ("Traceback" in told) == bool(traceback)
        assert "RuntimeError: not expected" in " ".join(told.split())
    assert "CLOSECALL_TRACEBACK=1" in told
    assert exits.explain(RuntimeError("x"))[1] == cli.BAD_REQUEST


def test_a_worker_of_another_version_computes_nothing() -> None:
    work = Cell("embedded", "monk3", "c", 0, "linear", "sound", 10)
    found = engines._on_dask(lambda cell: pytest.fail("it computed"), "0.0.1", work)
    assert found.status == "failed"
    assert "the driver has 0.0.1: install the same version on both" in found.error

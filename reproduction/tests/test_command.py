"""The commands: exit codes, messages, JSON, and a complete small run with its report."""

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

pytest.importorskip("typer", reason="install closecall[bench]")
pytest.importorskip("altair", reason="install closecall[plots]")

from closecall import cli
from closecall.report import charts
from reproduction.pages import figure1
from reproduction.run import scores, store


class Result(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("CLOSECALL_DATA", str(tmp_path / "nothing"))
    monkeypatch.setenv("COLUMNS", "80")

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["closecall", *arguments])
        with pytest.raises(SystemExit) as leaving:
            cli.main()
        captured = capsys.readouterr()
        return Result(int(leaving.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture(autouse=True, scope="module")
def drawn_once() -> Iterator[None]:
    """Draw identical charts only once; their appearance is tested elsewhere."""
    draw, known = charts.draw, {}

    def drawn(specification: dict[str, Any]) -> str:
        key = json.dumps(specification, sort_keys=True, default=str)
        if key not in known:
            known[key] = draw(specification)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(charts, "draw", drawn)
        yield


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use two draws of Figure 1."""
    monkeypatch.setattr(figure1.figure1_shown, "__defaults__", (2,))


SMALL = ("--datasets", "corral,mux6", "--splits", "2", "--max-iter", "20", "--protocol", "sound", "--workers", "1")


def test_a_small_run_from_nothing_to_the_report(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    place = ("--out", str(tmp_path / "out"))
    done = call("reproduce", *SMALL, *place)
    assert done.code == 0, done.err
    assert "finished: 4 of 4 cells" in done.out
    assert "Close decay against average: linear, logistic, sound protocol" in done.out
    assert "report:" in done.out
    page = (tmp_path / "out" / "report.html").read_text()
    assert "corral" in page
    # A second run has nothing left to do and writes the same tables.
    before = (tmp_path / "out/overview/errors-sound-linear-hinge.csv").read_text()
    again = call("reproduce", *SMALL, *place, "--json")
    events = [json.loads(line) for line in again.out.splitlines()]
    assert [event["kind"] for event in events] == ["planned", "finished", "report"]
    assert again.code == 0
    assert (tmp_path / "out/overview/errors-sound-linear-hinge.csv").read_text() == before
    state = call("status", *place)
    assert state.code == 0
    assert "4 cells done, 0 failed, 2 runs" in " ".join(state.out.split())
    (tmp_path / "out" / "report.html").unlink()
    written = call("report", *place)
    assert (written.code, Path(written.out.strip()).name) == (0, "report.html")
    assert (tmp_path / "out" / "report.html").exists()
    plan = call("reproduce", "--dry-run", *SMALL[:8], *place, "--json")
    assert json.loads(plan.out)["left"] == 0


def test_failed_cells_are_exit_code_1_and_are_tried_again(call, tmp_path: Path, light: None) -> None:  # type: ignore[no-untyped-def]
    """Cells of a set too small for three parts fail; those of the other set run."""
    small = tmp_path / "tiny.csv"
    small.write_text("x,target\n1,a\n2,b\n")
    arguments = ("--datasets", f"corral,{small}", "--splits", "1", "--max-iter", "5", "--workers", "1")
    done = call("reproduce", *arguments, "--protocol", "paper", "--out", str(tmp_path / "out"))
    assert done.code == 1
    assert "too few to divide" in done.out
    assert "1 of 2 cells, 1 failed" in done.out
    state = call("status", "--out", str(tmp_path / "out"))
    assert state.code == 1
    assert "too few to divide" in state.err.replace("\n", " ")


def test_what_is_not_at_hand_is_said_and_is_exit_code_2(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    arguments = ("table3", "--datasets", "splice3175", "--no-download", "--splits", "1", "--out", str(tmp_path / "out"))
    done = call("reproduce", *arguments)
    assert done.code == 2
    assert "left out: fan8:splice3175" in done.err
    assert "splice3175" in (tmp_path / "out" / "report.html").read_text()
    listing = call("reproduce", "table3", "--dry-run", "--json")
    assert [json.loads(line).get("kind") for line in listing.out.splitlines()] == [None] + ["hole"] * 9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("reproduce", "table9"), "unknown target 'table9'; choose one of: all, exact01, examples, figure1"),
        (("reproduce", "--suite", "uci"), "unknown suite 'uci'"),
        (("reproduce", "--protocol", "fair"), "unknown protocol 'fair'"),
        (("reproduce", "--models", "tree"), "unknown model 'tree'"),
        (("reproduce", "--splits", "0"), "at least 1"),
        (("reproduce", "--splits", "many"), "Invalid value for '--splits'"),
        (("reproduce", "--datasets", "irsi"), "unknown data set 'irsi'"),
        (("reproduce", "--datasets", "../../etc/passwd"), "unknown data set"),
        (("reproduce", "--workers", "0"), "--workers must be at least 1"),
        (("status",), "no result store"),
        (("report",), "no result store"),
        (("fly",), "No such command 'fly'"),
    ],
)
def test_bad_requests_are_exit_code_3_with_a_reason(call, tmp_path: Path, arguments, message: str) -> None:  # type: ignore[no-untyped-def]
    extra = () if arguments[0] == "fly" else ("--out", str(tmp_path / "none"))
    done = call(*arguments, *extra)
    assert done.code == 3
    assert message in " ".join(done.err.split())
    assert "Traceback" not in done.err
    assert not (tmp_path / "none").exists()


def test_the_embedded_suite_has_fewer_splits_unless_said(call, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    place = ("--datasets", "corral", "--protocol", "sound", "--json", "--out", str(tmp_path / "out"))

    def cells(*given: str) -> int:
        return int(json.loads(call("reproduce", "--dry-run", "table1", *given, *place).out)["cells"])

    assert cells("--suite", "embedded") == 10
    assert cells("--suite", "embedded", "--splits", "25") == 25
    told = call("reproduce", "--dry-run", "--out", str(tmp_path / "out"))
    assert "10 splits of each data set; the paper uses 25 (--splits 25)" in told.err


def test_report_unpacks_each_record_and_compares_each_pair_once(  # type: ignore[no-untyped-def]
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, light: None
) -> None:
    place = ("--out", str(tmp_path / "out"))
    assert call("reproduce", "figure1", "examples", "overview", *SMALL, *place).code == 0
    tables = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.csv")}
    assert {"figure1.csv", "examples.csv"} <= {path.name for path in tables}
    counts: Counter[str] = Counter()

    def counted(module: object, name: str) -> None:
        real = getattr(module, name)

        def run(*arguments: object) -> object:
            counts[name] += 1
            return real(*arguments)

        monkeypatch.setattr(module, name, run)

    counted(scores, "compare")
    counted(store, "unpack")
    assert call("report", *place).code == 0
    assert {path: path.read_bytes() for path in tables} == tables
    assert counts == {"compare": 2, "unpack": 4}  # two losses; four cells

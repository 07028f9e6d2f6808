"""Stores of an attacker, the report written from them, and any command line."""

from pathlib import Path

import pytest

pytest.importorskip("typer", reason="install closecall[bench,plots]")
pytest.importorskip("altair", reason="install closecall[bench,plots]")

from gate.hostile_stores import HOSTILE, attack_command_line, forge, make_store, run_command, scripts_in
from reproduction.run.campaign import stored_jobs
from reproduction.run.store import Store, StoreError


def test_any_command_line_ends_in_words() -> None:
    for seed in range(25):
        attack_command_line(seed)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"suites": ["embedded"]', '"suites": ["embedded/../../../out"]', "closecall does not write"),
        ('"splits": 2', '"splits": 1000000000', "too many"),
    ],
)
def test_a_store_leads_nowhere_and_asks_for_no_more_than_there_is(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    path = make_store(tmp_path)
    forge(path, "runs", 1, lambda row: {**row, "request": row["request"].replace(old, new)})
    with Store(path) as store, pytest.raises(StoreError, match=message):
        stored_jobs(store)


def test_the_report_cannot_be_scripted(tmp_path: Path) -> None:
    """Data set, notes, errors, holes, arguments and environment are all hostile; the page shows them as text."""
    folder = tmp_path / "in"
    folder.mkdir()
    make_store(folder, dataset=f"file:{HOSTILE}.csv", text=HOSTILE)
    code, told = run_command(["report", "--out", str(folder)], folder)
    assert code == 0, told
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert scripts_in(page) == []
    assert "\u2028" not in page
    assert [each.name for each in tmp_path.iterdir()] == ["in"]


@pytest.mark.parametrize(
    "page",
    [
        "<p><img src=x onerror=alert(1)></p>",
        "<script>var x = '</script><script>alert(1)</script>",
        "<a href=' JavaScript:alert(1)'>x</a>",
        "<script src=https://example.org></script>",
        "<iframe></iframe>",
    ],
)
def test_the_looker_sees(page: str) -> None:
    assert scripts_in(page)


def test_status_of_a_hostile_store_is_text(tmp_path: Path) -> None:
    make_store(tmp_path, text="x\x1b[31m\ud800\u202e" + HOSTILE)
    code, told = run_command(["status", "--out", str(tmp_path)], tmp_path)
    assert code == 1
    assert "\x1b" not in told
    assert "\u202e" not in told

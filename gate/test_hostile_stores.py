"""Stores of an attacker, the report written from them, and any command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gate.torture_numbers import Refused

pytest.importorskip("typer", reason="install closecall[bench,plots]")
pytest.importorskip("altair", reason="install closecall[bench,plots]")

from gate.hostile_folders import attack_folders, exported
from gate.hostile_stores import HOSTILE, attack_command_line, attack_stores, forge, make_store, run_command, scripts_in
from reproduction.pages.report import stored_jobs
from reproduction.run.exchange import import_folder
from reproduction.run.store import Store, StoreError


@pytest.mark.parametrize(("attack", "seeds"), [(attack_stores, 20), (attack_folders, 40)])
def test_what_is_forged_or_spoilt_is_read_or_refused(attack: Callable[[int], str], seeds: int) -> None:
    refused = 0
    for seed in range(seeds):
        try:
            attack(seed)
        except Refused:
            refused += 1
    assert 0 < refused < seeds


def test_hostile_text_travels_as_text(tmp_path: Path) -> None:
    folder = exported(tmp_path, text=HOSTILE)
    with Store(tmp_path / "store.sqlite", write=True) as store:
        assert import_folder(folder, store).added == 2
        assert {note for record in store.records(sorted(store.done())) for note in record.notes} == {HOSTILE}


def test_any_command_line_ends_in_words() -> None:
    for seed in range(25):
        attack_command_line(seed)


@pytest.mark.parametrize("suite", ["../../out", "/tmp/out", "embedded/../../../out", "nosuch"])
def test_a_store_cannot_lead_the_report_out_of_its_folder(suite: str, tmp_path: Path) -> None:
    path = make_store(tmp_path)

    def change(row: dict[str, str]) -> dict[str, str]:
        request = json.loads(row["request"])
        request["jobs"][0]["suites"] = [suite]
        return {**row, "request": json.dumps(request)}

    forge(path, "runs", 1, change)
    with Store(path) as store, pytest.raises(StoreError, match="closecall does not write"):
        stored_jobs(store)


def test_a_store_cannot_ask_for_all_memory(tmp_path: Path) -> None:
    path = make_store(tmp_path)
    many = ('"splits": 2', '"splits": 1000000000')
    forge(path, "runs", 1, lambda row: {**row, "request": row["request"].replace(*many)})
    with Store(path) as store, pytest.raises(StoreError, match="too many"):
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

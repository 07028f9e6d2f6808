"""Ranked ranges beside their paper: a small set from division to table, chosen by validation alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from closecall.paper.pages import sorr
from closecall.paper.plan import get_targets

NAME = "embedded:monk3"


@pytest.fixture(autouse=True)
def small_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorr, "ALPHAS", (0.1,))
    monkeypatch.setattr(sorr, "COUNTS", {name: counts[:1] for name, counts in sorr.COUNTS.items()})


def test_every_method_is_tested_on_every_split() -> None:
    records = sorr.solve_sorr(30, names=[NAME], splits=3)["records"]
    assert {(r["loss"], r["method"]) for r in records} == {(loss, m) for loss in sorr.LOSSES for m in sorr.COUNTS}
    assert all(r["splits"] == 3 and 0 < r["error"] < 60 and r["standard_error"] >= 0 for r in records)
    again = sorr.solve_sorr(30, names=[NAME], splits=3)["records"]
    assert again == records  # the divisions have names, not an order
    table = sorr.sorr_shown(records, 30)
    assert len(table.rows) == len(records)


def test_what_differs_by_two_standard_errors_is_said() -> None:
    rows = [sorr._row("pmlb:monk3", "logistic", "average", [19.0, 21.0, 21.4, 20.0], "")]
    rows += [sorr._row("pmlb:monk3", "hinge", "atk", [30.0, 31.0, 32.0], "")]
    notes = sorr.sorr_shown(rows, 10).notes
    assert [note for note in notes if "two standard errors" in note] == [
        "pmlb:monk3, hinge, atk: 13.96 points above the published figure, more than two standard errors."
    ]


def test_a_set_that_is_not_here_is_said_to_be_missing(tmp_path: Path) -> None:
    table = sorr.sorr_shown(sorr.solve_sorr(5, str(tmp_path), names=["pmlb:phoneme"])["records"], 5)
    assert table.rows == ()
    assert any("pmlb:phoneme is not here" in note for note in table.notes)
    assert [target.name for target in get_targets(["sorr"])] == ["sorr"]

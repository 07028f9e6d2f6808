"""Exact minima beside surrogates: the records of a small set, what the table says, and what it says without data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from closecall.data import load_dataset
from closecall.paper.pages.exact01 import EXACT, PUBLISHED, exact01_shown, solve_exact01
from closecall.paper.plan import get_targets


def write_set(folder: Path) -> str:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3)).round(2)
    y = np.where(X[:, 0] + rng.normal(size=60) > 0, "yes", "no")
    lines = [",".join([*map(str, row), label]) for row, label in zip(X, y, strict=True)]
    path = folder / "small.csv"
    path.write_text("\n".join(["a,b,c,target", *lines]) + "\n")
    return str(path)


def test_nobody_is_below_the_minimum_and_it_is_attained(tmp_path: Path) -> None:
    name = write_set(tmp_path)
    records = solve_exact01(100, names=[name])["records"]
    errors = {record["method"]: record["errors"] for record in records}
    (exact,) = [record for record in records if record["method"] == EXACT]
    assert exact["errors"] == exact["bound"] == min(errors.values()) > 0
    assert {record["n"] for record in records} == {60} == {len(load_dataset(name).y)}
    table = exact01_shown(records, 100)
    assert [row[-1] for row in table.rows if "exact minimum" in row[1]] == ["0"]
    assert any("is proven" in note for note in table.notes)


def test_a_set_that_is_not_here_is_said_to_be_missing(tmp_path: Path) -> None:
    records = solve_exact01(10, str(tmp_path), names=["pmlb:haberman"])["records"]
    table = exact01_shown(records, 10)
    assert table.rows == ()
    assert any("pmlb:haberman is not here" in note for note in table.notes)


def test_the_published_figures_are_set_against_the_minimum() -> None:
    rows = [
        {"set": name, "n": n, "method": EXACT, "errors": errors, "bound": errors, "why": ""}
        for name, n, errors in zip(PUBLISHED, (306, 748), (66.0, 151.0), strict=True)
    ]
    table = exact01_shown(rows, 10)
    assert [row[4] for row in table.rows] == ["21.6", "19.0"]
    assert any("published figure is the same" in note for note in table.notes)
    assert any("19.0 % is 9 errors less than is possible" in note for note in table.notes)


def test_it_is_asked_for_by_name_and_not_part_of_the_paper() -> None:
    assert [target.name for target in get_targets(["exact01"])] == ["exact01"]
    assert "exact01" not in [target.name for target in get_targets(["all"])]


@pytest.mark.shared_data
def test_the_real_sets(shared_data: Path) -> None:
    records = solve_exact01(60, str(shared_data))["records"]
    exact = {record["set"]: (record["errors"], record["bound"]) for record in records if record["method"] == EXACT}
    assert list(exact.values()) == [(66, 66), (151, 151)]

"""Why errors differ from the published ones: each choice does what it says, and the tables follow from the lines."""

from __future__ import annotations

import doctest
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from benchmarks.beyond import cells, choices, common, counts, descent, deviations, deviations_prose, imbalance
from closecall.evaluate.grid import ROW
from closecall.objective import Problem
from closecall.paper.cell import divide
from closecall.paper.plan import Cell
from closecall.paper.published import LOSSES, METHODS, table3_error
from closecall.paper.record import Record
from closecall.paper.store import Store

ROOT = Path(__file__).parent.parent


def test_tied_examples_share_or_all_count() -> None:
    losses = np.array([[0.1, 0.7, 0.9, 0.9, 0.9]], dtype=np.float32)
    problems = [Problem("logistic", "close", 2)]
    assert descent._select(losses, problems, 0, 10)[0].tolist() == [[0, 1, 1, 1, 1]]
    assert descent._select(losses, problems, 0, 10, share=True)[0][0] == pytest.approx([0, 1, 1 / 3, 1 / 3, 1 / 3])


def test_a_watched_penalty_takes_the_descent_away_from_its_start() -> None:
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2))
    y = np.where(X[:, 0] > 0.3, 1.0, -1.0)
    problems = [Problem("logistic", "average", 60, 1e5)]
    sizes = [
        np.linalg.norm(descent.descend(X, y, problems, steps=400, traits=traits)[0])
        for traits in (descent.Traits(), descent.Traits(watch_penalty=True))
    ]
    assert sizes[0] > 0.1
    assert sizes[1] < 0.01


def test_published_errors_that_25_splits_cannot_give() -> None:
    """By enumeration of every number of errors: the same answer as the nearest one gives."""
    for error in (11.37, 11.36, 24.15, 24.45):
        printed = {f"{100 * count / (25 * 139):.2f}" for count in range(25 * 139 + 1)}
        assert counts.possible(error, 139) == (f"{error:.2f}" in printed)


def test_objectives_have_the_penalty_of_the_intercept() -> None:
    parts = common.division("embedded:parity5", 0, "paper")
    problems = [Problem("hinge", "average", None, 2.0)]
    width = parts.X[0].shape[1]
    found = cells.objectives(problems, np.zeros((1, width)), np.array([3.0]), parts)
    y = parts.y[0]
    assert found[0] == pytest.approx(np.maximum(1 - 3 * y, 0).sum() + 9.0)


def cell_lines(name: str, method: str, errors: dict[str, list[float]]) -> list[dict[str, Any]]:
    pick = {"method": method, "k": 10.0, "alpha": 1.0, "cosine": 0.5, "train": 0.1, "validation": 0.2}
    return [
        {"name": name, "split": split, "group": choice, "picked": {choice: [pick | {"test": error}]}}
        for choice, values in errors.items()
        for split, error in enumerate(values)
    ]


def test_what_is_left_of_a_cell_is_paired_by_split(tmp_path: Path) -> None:
    """A choice that ran on fewer splits is measured from our solver's error on all of them."""
    ours, theirs = [0.20, 0.24, 0.22, 0.26], [0.19, 0.21]
    wide, long = [0.16, 0.16, 0.18, 0.18], [0.17, 0.17, 0.19]
    errors = {cells.BASE: ours, "every step": theirs, cells.WIDE: wide, "its descent, 10,000 steps": long}
    lines = cell_lines("fan8:splice3175", "top", errors)
    (tmp_path / "cells.jsonl").write_text("\n".join(map(json.dumps, lines)))
    base, other, descended, longer = cells.table(common.Settings(tmp_path))
    published = table3_error("splice3175", "logistic", "top")
    assert published is not None
    assert base["left"] == pytest.approx(100 * np.mean(ours) - published)
    assert other["splits"] == 2
    assert other["change"] == pytest.approx(-2)
    assert other["change_se"] == pytest.approx(100 * stats.sem([-0.01, -0.03]))
    assert other["left"] == pytest.approx(base["left"] - 2)
    assert other["error_se"] == pytest.approx(np.hypot(100 * stats.sem(ours), other["change_se"]))
    assert descended["left"] == pytest.approx(100 * np.mean(wide) - published)
    assert descended["error_se"] == pytest.approx(100 * stats.sem(wide))
    assert longer["change"] == pytest.approx(1)  # from the descent that it is a variant of
    assert longer["left"] == pytest.approx(descended["left"] + 1)
    text = "\n".join(cells.section([base, other]))
    assert "| every step | our solver, no row stops before the last step | 2 |" in text


def test_a_tiny_run_of_the_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(cells.CELLS, "embedded:corral", ("logistic", ("top",)))
    found = cells.run_one({"name": "embedded:corral", "split": 0, "group": "main"})
    assert set(found["picked"]) == {
        cells.BASE, "wider grid", "released descent", "released descent, wider grid", "ties to larger k",
        "ties to smaller alpha",
    }  # fmt: skip
    parts = choices.released_division("embedded:corral", 0)
    rows = choices.solved(parts, cells.of_cells(choices.grid(parts.sizes[0]), "embedded:corral"))
    pick = found["picked"][cells.BASE][0]
    at = (rows["k"] == pick["k"]) & (rows["alpha"] == pick["alpha"])
    assert rows["validation"][at] == rows["validation"].max()
    assert 1 - rows["test"][at] / parts.sizes[2] == pytest.approx(pick["test"])
    assert {row["method"] for row in found["compared"]} == {"top"}


def test_the_descent_on_the_released_splits_is_paired_with_our_solver_there(tmp_path: Path) -> None:
    """Errors of the splits that both ran on give the change; the level is that of all of our splits."""
    rng = np.random.default_rng(3)
    ours = rng.uniform(0.1, 0.3, (25, 10))
    names = [f"{loss} {method}" for loss in LOSSES for method in METHODS]
    lines = [
        {"name": "pmlb:monk3", "split": split, "group": "x", "errors": {choice: dict(zip(names, row, strict=True))}}
        for choice, errors in (
            (deviations.RELEASED, ours),
            (deviations.DESCENDED, ours[:5] + 0.01 + np.array([[0.01], [-0.01], [0], [0], [0]])),
        )
        for split, row in enumerate(errors.tolist())
    ]
    (tmp_path / "deviations.jsonl").write_text("\n".join(map(json.dumps, lines)))
    logistic, hinge = deviations.descended_errors(deviations.choices_table(common.Settings(tmp_path)))
    assert (logistic["loss"], hinge["loss"], logistic["splits"]) == ("logistic", "hinge", 5)
    assert logistic["close"] == pytest.approx(100 * ours[:, 0].mean() + 1)
    change_se = stats.sem([2.0, 0.0, 1.0, 1.0, 1.0])
    assert logistic["close_se"] == pytest.approx(np.hypot(100 * stats.sem(ours[:, 0]), change_se))
    assert hinge["all"] == pytest.approx(100 * ours[:, 5:].mean() + 1)
    table = deviations._deviation_table([logistic], deviations.DESCENDED)
    assert "monk3, logistic (5 splits)" in table


def test_one_error_below_another() -> None:
    rows = [
        {"set": "phoneme", "method": method, "choice": choice, "error": error, "left": 0.0, "splits": 25}
        for method, choice, error in (("average", cells.BASE, 22.75), ("atk", cells.BEST, 22.5))
    ]
    at = deviations_prose._Cells(rows)
    assert at.below("phoneme", ("average", cells.BASE), ("atk", cells.BEST)) == "0.25"
    assert at.below("phoneme", ("average", cells.BASE), ("atk", cells.BASE)) == "nan"


def test_picked_by_the_test_part_nothing_is_better(monkeypatch: pytest.MonkeyPatch) -> None:
    """It bounds every rule of choice from below, also that of validation."""
    monkeypatch.setitem(cells.CELLS, "embedded:corral", ("logistic", ("close",)))
    key = {"name": "embedded:corral", "split": 1}
    best = cells.run_one(key | {"group": "best"})["picked"]
    chosen = cells.run_one(key | {"group": "base"})["picked"]
    parts = choices.released_division("embedded:corral", 1)
    rows = choices.solved(parts, cells.of_cells(choices.grid(parts.sizes[0]), "embedded:corral"))
    assert best[cells.BEST][0]["test"] == pytest.approx(1 - rows["test"].max() / parts.sizes[2])
    assert best[f"{cells.BEST}, finer k"][0]["test"] <= best[cells.BEST][0]["test"] <= chosen[cells.BASE][0]["test"]


def test_own_errors_come_from_the_store_with_the_splits_that_are_there(tmp_path: Path) -> None:
    with Store(tmp_path / "store.sqlite", write=True) as store:
        store.begin_run({}, {})
        for name, splits in (("pmlb:monk3", 4), ("pmlb:phoneme", 2)):
            for split in range(splits):
                cell = Cell("fan8", name, "x", split, "linear", "paper")
                rows = np.zeros(2 * len(METHODS), ROW)
                rows["loss"], rows["method"] = np.repeat(LOSSES, len(METHODS)), list(METHODS) * 2
                rows["test"] = 80 + split
                store.add(cell, Record(cell.key, "done", rows, (200, 100, 100), 3, 1.5))
    found = deviations.own_table(common.Settings(tmp_path, store=tmp_path, splits=25))
    at = {(row["set"], row["loss"]): row for row in found}
    assert {name: at[name, "hinge"]["splits"] for name in ("monk3", "phoneme")} == {"monk3": 4, "phoneme": 2}
    assert at["monk3", "logistic"]["atk"] == pytest.approx(18.5)
    assert at["monk3", "logistic"]["all_se"] == pytest.approx(stats.sem([20, 19, 18, 17]))


def test_the_draw_in_words() -> None:
    text = deviations_prose.both_reading(
        {"a": 1.0, "b": 1.0, "c": 1.0, "d": 1.0, "german": 3.0},
        {"a": 0.4, "b": 0.6, "c": 1.2, "german": 2.0, "german-num": 0.5},
    )
    assert "more than half of the distance on a, less on b, and nothing on c." in text
    assert "the paper's german is *german-num*" in text


def test_imbalance_page_from_lines(tmp_path: Path) -> None:
    lines = [
        {
            "split": split, "way": way, "seen": 0.5,
            "found": [
                {"loss": loss, "method": method, "k": 10.0, "alpha": 1.0, "train": 0.05, "validation": 0.06,
                 "test": 0.07 - 0.01 * split * (method == "close_decay")}
                for loss in LOSSES for method in imbalance.METHODS
            ],
        }
        for way in imbalance.WAYS for split in range(2)
    ]  # fmt: skip
    (tmp_path / "imbalance.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows = imbalance.table(common.Settings(tmp_path))
    assert [row["gain_test"] for row in rows] == pytest.approx([0.5] * 2 * len(imbalance.WAYS))
    page = imbalance.page(rows, tmp_path / "figure.svg")
    assert page.count("| +0.50 ± 0.50 | +0.00 ± 0.00 |") == 2 * len(imbalance.WAYS)
    assert page.count("move the gain by +0.00 at most") == 2


@pytest.mark.shared_data
@pytest.mark.parametrize(("way", "protocol"), [(imbalance.PAPER, "paper"), (imbalance.SOUND, "sound")])
def test_the_two_protocols_are_those_of_figure_5(way: imbalance.Way, protocol: str, shared_data: Path) -> None:
    data = common.dataset(imbalance.NAME)
    cell = Cell("pmlb94", imbalance.NAME, data.checksum, 1, "linear", protocol, contamination="imbalance", level=12800)
    expected, found = divide(data, cell), imbalance.drawn(way, 1)
    assert all(np.array_equal(a, b) for a, b in zip(expected.X + expected.y, found.X + found.y, strict=True))


@pytest.mark.shared_data
def test_copies_that_stay_in_their_part_are_seen_in_it_only(shared_data: Path) -> None:
    crossing, staying = (imbalance.drawn(imbalance.WAYS[name], 0) for name in ("paper", imbalance.STAY))
    assert crossing.sizes == pytest.approx(staying.sizes, abs=2)  # rows and copies are rounded apart from each other
    assert imbalance.seen_before(crossing) > 0.8
    assert imbalance.seen_before(staying) < 0.2


@pytest.mark.parametrize("module", [cells, choices, counts, deviations_prose, imbalance])
def test_examples_in_docstrings(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted > 0
    assert found.failed == 0

"""Dirty tables on the command line: formats of cells, extreme cells, rare names, rows to check."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from closecall import SquashingScaler, check_rows, compare
from closecall.table.check import deviations
from closecall.table.model import TableModel
from closecall.table.preprocess import Preprocessor
from closecall.table.read.columns import Column
from tests.table.helpers import Run, pd, written


def _day(number: float, form: str) -> str:
    return (pd.Timestamp("2020-01-01") + pd.Timedelta(days=round(number))).strftime(form)


#: Formats of a number from 0 to 1000, and the note on each.
WRITTEN: dict[str, tuple[Callable[[float, int], str], str]] = {
    "dollars": (lambda v, _: f"${v * 7:,.2f}", "is read as numbers"),
    "euros": (lambda v, _: f"{v * 7:,.2f} €".translate(str.maketrans(",.", ".,")), "is read as numbers"),
    "thousands": (lambda v, _: f"{round(v * 70):,}", "is read as numbers"),
    "per cent": (lambda v, _: f"{v / 10:.1f} %", "is read as numbers"),
    "losses in brackets": (lambda v, _: f"({500 - v:,.1f})" if v < 500 else f"{v - 500:,.1f}", "is read as numbers"),
    "two date formats": (lambda v, i: _day(v, "%Y-%m-%d" if i % 2 else "%d.%m.%Y"), "dates in two formats"),
    "months by name": (lambda v, i: _day(v, "%b %d, %Y" if i % 3 else "%m/%d/%Y"), "dates in two formats"),
    "pairs": (lambda v, i: f"{100 + round(v)}/{60 + i % 40}", "is read as pairs"),
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_cells_are_read_as_people_write_them(run: Run, kind: str) -> None:
    write, note = WRITTEN[kind]
    rng = np.random.default_rng()
    values = rng.uniform(0, 1000, 300)
    labels = np.where(values + rng.normal(0, 40, 300) > 500, "yes", "no")
    lines = [f'"{write(value, row)}";{label}' for row, (value, label) in enumerate(zip(values, labels, strict=True))]
    run.fit(written(lines[:200], "cell;y"), "--model", "logistic")
    assert note in run.err
    assert "--drop" not in run.err
    said = [row["prediction"] for row in run.predict(written(lines[200:], "cell;y", "new.csv"))]
    assert np.mean(np.array(said) == labels[200:]) > 0.85
    assert "treated as missing" not in run.err


def names_table(rows: int = 600) -> tuple[list[str], np.ndarray]:
    rng = np.random.default_rng()
    names = [f"p{code}" for code in rng.integers(0, 60, rows)] + ["once", "twice", "twice"]
    return names, rng.permutation([*["a", "b"] * (rows // 2), "a", "b", "a"])


def test_rare_names_share_a_level_and_new_names_are_counted(run: Run) -> None:
    names, labels = names_table()
    run.fit(written(map(",".join, zip(names, labels, strict=True)), "product,y"), "--model", "logistic")
    assert "of 'product' seen fewer than 3 times count as 'other'" in run.unfolded
    step = TableModel.load("m").recipe.steps[0]
    assert {"once", "twice"} <= set(step.rare)
    assert all(names.count(level) >= 3 for level in step.levels)
    assert len(step.levels) + len(step.rare) == len(set(names))
    run.predict("t.csv")
    assert "treated as missing" not in run.err
    run.predict(written(["never", "once"], "product", "new.csv"))
    assert "'product': 1 value" in run.err


@pytest.mark.parametrize("squashed", [True, False])
def test_a_rare_name_has_a_moderate_scale(squashed: bool) -> None:
    frame = pd.DataFrame({"a": ["x"] * 297 + ["y"] * 3})
    matrix = Preprocessor.fit(frame, [Column("a", "nominal")], squashed).matrix(frame)
    assert np.ptp(matrix) == pytest.approx(2), "its variance would be 1 at a distance of 10"


def wild_table(rows: int = 300) -> tuple[pd.DataFrame, np.ndarray]:
    rng = np.random.default_rng()
    X = rng.normal(size=(rows, 3))
    labels = np.where(X[:, 0] + 0.2 * rng.normal(size=rows) > 0, "yes", "no")
    wild = rng.choice(rows, rows // 20, replace=False)
    X[wild, 1] = rng.choice([-1, 1], len(wild)) * rng.uniform(10, 30, len(wild))
    return pd.DataFrame(X, columns=["age", "income", "size"]).assign(left=labels), wild


def test_the_matrix_is_that_of_the_scaler_and_notes_count_squashed_cells(run: Run) -> None:
    frame, _ = wild_table()
    run.fit(frame.to_csv(index=False), "--model", "logistic")
    features = frame[["age", "income", "size"]]
    scaler = SquashingScaler().fit(features)
    count = int(scaler.is_far(features)[:, 1].sum())
    assert f"{count} cells of 'income'" in run.unfolded
    recipe = TableModel.load("m").recipe
    np.testing.assert_allclose(recipe.matrix(frame), scaler.transform(features), rtol=1e-9)
    run.fit("t.csv", "--model", "logistic", "--no-squash")
    assert "were squashed" not in run.err
    plain = TableModel.load("m").recipe
    np.testing.assert_allclose(plain.matrix(frame).std(axis=0), 1, rtol=1e-9)


def test_check_finds_flipped_labels_extreme_cells_and_twins(run: Run) -> None:
    frame, wild = wild_table()
    flipped = np.flatnonzero(np.abs(frame["age"]) > 1)[:6]
    frame.loc[flipped, "left"] = np.where(frame.loc[flipped, "left"] == "yes", "no", "yes")
    frame = pd.concat([frame, frame.iloc[[200]].assign(left="no" if frame["left"][200] == "yes" else "yes")])
    frame.to_csv("t.csv", index=False)
    assert run("check", "t.csv", "--target", "left", "--out", "rows.csv") == 0, run.err
    assert "need not be wrong" in " ".join(run.out.split())
    rows = list(csv.DictReader(Path("rows.csv").read_text().splitlines()))
    cells = [int(row["row"]) - 1 for row in rows if row["kind"] == "cell"]
    labels = [int(row["row"]) - 1 for row in rows if row["kind"] == "label"]
    assert set(wild) <= set(cells)
    assert len(set(flipped) & set(labels[: 3 * len(flipped)])) >= 4  # with 2, some random tables fail
    assert {int(row["row"]) - 1 for row in rows if row["kind"] == "twin"} & {200, 300}
    assert run("check", "t.csv", "--target", "left", "--json") == 0
    assert len(run.records()) == len(rows)
    found = check_rows(frame[["age", "income", "size"]].to_numpy(), frame["left"].to_numpy())
    assert found[found.kind == "cell"].row.tolist() == cells


def test_a_long_tail_is_not_extreme() -> None:
    rng = np.random.default_rng()
    assert (deviations(rng.exponential(size=1000)) > 8).mean() < 0.01
    assert deviations(np.r_[rng.normal(size=99), -50])[-1] > 8


def test_compare_of_a_frame(run: Run) -> None:
    frame, wild = wild_table()
    found = compare(frame, target="left", splits=3, only=("random_forest", "plain_logistic_regression"), jobs=1)
    assert found.verdict.startswith("Use") or "does better" in found.verdict
    assert found.results["method"].iloc[-1] == "always the largest class"
    assert "accuracy (%)" in found.results
    assert set(wild) <= set(found.rows[found.rows.kind == "cell"].row)
    assert any("'income'" in note and "squashed" in note for note in found.notes)
    assert found.columns["column"].tolist() == list(frame.columns)
    text = found._repr_html_()
    assert found.verdict.replace("'", "&#x27;") in text
    assert "likely to help" not in text
    page, *_, rows = found.save("report.html")
    assert found.verdict[:-1] in page.read_text()
    assert "likely to help" not in page.read_text()
    assert len(rows.read_text().splitlines()) == len(found.rows) + 1

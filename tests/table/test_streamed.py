"""``fit`` and ``predict`` of Parquet files in passes: the model of the table in memory, and errors that say why."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pa = pytest.importorskip("pyarrow", reason="needs the extra bench")
pq = pytest.importorskip("pyarrow.parquet", reason="needs the extra bench")

from closecall.cli import streams  # noqa: E402
from closecall.cluster import ParquetSource  # noqa: E402
from closecall.table import streamed  # noqa: E402
from closecall.table.model import TableModel  # noqa: E402
from closecall.table.table import read  # noqa: E402
from closecall.table.tuning import How  # noqa: E402
from tests.table.helpers import Run  # noqa: E402


def columns(seed: int, rows: int) -> dict[str, Any]:
    """Numbers of several kinds and sizes, some missing or infinite, a constant, a counter, labels as text."""
    rng = np.random.default_rng(seed)
    a, b = rng.normal(size=rows), 1000 + 50 * rng.normal(size=rows)
    c = rng.integers(0, 5, rows)
    score = a - (b - 1000) / 50 + 0.5 * c - 1 + 0.5 * rng.logistic(size=rows)
    label = np.where(score > 0, "yes", "no").astype(object)
    label[rng.random(rows) < 0.01] = None
    a[rng.random(rows) < 0.05] = np.nan
    b[3] = np.inf
    return {
        "id": np.arange(rows), "a": a, "b": b.astype(np.float32), "c": c, "flag": rng.random(rows) < 0.3,
        "same": np.ones(rows), "label": label,
    }  # fmt: skip


def write(folder: Path, table: dict[str, Any], cuts: list[int], group: int = 70) -> None:
    """Files of uneven length, one of them empty."""
    folder.mkdir()
    whole = pa.table(table)
    for number, (begin, end) in enumerate(zip([0, *cuts], [*cuts, whole.num_rows], strict=True)):
        pq.write_table(whole.slice(begin, end - begin), folder / f"{number}.parquet", row_group_size=group)


def test_files_give_the_model_of_the_table_in_memory(run: Run, tmp_path: Path) -> None:
    table = columns(0, 400)
    write(tmp_path / "data", table, [90, 90, 260])
    pq.write_table(pa.table(table), tmp_path / "whole.parquet")
    run.fit("data", "--target", "label")
    assert "'id' is left out" in run.err
    assert "'same' is left out" in run.err
    assert "rows without a value in 'label' are left out" in run.err
    assert "pass 1 (columns): 392 of 400 rows" in run.err
    found = TableModel.load("m")
    sheet = read("whole.parquet", "label")
    same = TableModel.fit(sheet)
    assert found.recipe.names == ["a", "b", "c", "flag"]
    assert np.allclose(found.recipe.mean[:3], same.recipe.mean[:3], rtol=1e-9)
    assert np.allclose(found.recipe.scale, same.recipe.scale, rtol=1e-9)
    assert found.classifier.aggregate_ == same.classifier.aggregate_
    assert found.predict(sheet.frame)[0].tolist() == same.predict(sheet.frame)[0].tolist()
    assert np.allclose(found.predict(sheet.frame)[1], same.predict(sheet.frame)[1], rtol=1e-4, atol=1e-4)
    assert np.allclose(found.probabilities(sheet.frame), same.probabilities(sheet.frame), atol=1e-4)


def test_predictions_of_several_files_are_those_of_each(run: Run, tmp_path: Path) -> None:
    table = columns(1, 300)
    write(tmp_path / "data", table, [120])
    files = sorted((tmp_path / "data").iterdir())
    assert run("fit", *files, "--out", "m", "--model", "logistic", "--json") == 0, run.err
    *passes, record = run.records()
    assert [each["kind"] for each in passes] == ["pass"] * record["passes"]
    assert all(each["rows"] == record["rows"] for each in passes[1:])
    rows = run.predict("data")
    expected = TableModel.load("m").predict(read(str(tmp_path / "data" / "0.parquet"), "label").frame)[0].tolist()
    assert [row["row"] for row in rows] == [str(number) for number in range(1, 301)]
    known = [row["prediction"] for row, label in zip(rows[:120], table["label"][:120], strict=True) if label]
    assert known == expected


@pytest.mark.parametrize("classes", [2, 3])
def test_rows_that_do_not_fit_in_memory_are_read_in_passes(tmp_path: Path, classes: int) -> None:
    """With too many rows to gather, logistic regression in passes agrees with the fit in memory."""
    table = columns(2, 600)
    if classes == 3:
        table["label"] = np.where(table["c"] > 3, "other", table["label"].astype(str))
    write(tmp_path / "data", table, [250, 400])
    source = ParquetSource(str(tmp_path / "data"), "label", features=["a", "b", "c"])
    found = streamed.fit_streamed(source, "logistic", max_gathered=0)
    gathered = streamed.fit_streamed(source, "logistic", How(multiclass="ovr"))
    assert ("fitted one-vs-rest" in " ".join(found.notes)) == (classes == 3)
    assert found.model.classifier.coef_ == pytest.approx(gathered.model.classifier.coef_, rel=1e-3)
    assert list(found.classes) == sorted(found.classes)


def test_labels_that_are_numbers_are_classes_by_their_text() -> None:
    codes, counts, notes = streamed.classes_of({9: 5, 10: 7, None: 2}, "y")
    assert counts == {"10": 7, "9": 5}
    assert codes == {10: 0, 9: 1}
    assert notes == ("2 rows without a value in 'y' are left out",)
    assert streamed.classes_of({1.0: 1, 2.5: 1, float("nan"): 3}, "y")[1] == {"1": 1, "2.5": 1}


def test_errors_of_fits_in_passes(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("closecall.cluster.dask_source.FIRST_SIGN", 0.3)
    table = columns(3, 100)
    write(tmp_path / "data", table, [50])
    (tmp_path / "empty").mkdir()
    others = {
        "words": {**table, "town": ["x", "y"] * 50}, "one": {"a": [1.0, 2.0], "label": ["x", "x"]},
        "other": {name: values for name, values in table.items() if name != "b"},
    }  # fmt: skip
    for name, values in others.items():
        pq.write_table(pa.table(values), tmp_path / f"{name}.parquet")
    (tmp_path / "t.csv").write_text("a,label\n1,x\n")
    for code, message, *arguments in (
        (3, "the folder has none", "empty"),
        (3, "no file has this name", "nothing.parquet", "--stream"),
        (3, "has no column 'goal'", "data", "--target", "goal"),
        (3, "'town' are not numeric", "words.parquet", "--stream", "--target", "label"),
        (3, "has no column 'b'", "data/0.parquet", "other.parquet"),
        (3, "only one class ('x')", "one.parquet", "--stream"),
        (3, "is not a Parquet file", "t.csv", "--stream"),
        (3, "is not a Parquet file", "t.csv", "data"),
        (3, "--groups needs the table in memory", "data", "--groups", "c"),
        (3, "'random_forest'", "data", "--model", "random_forest"),
        (3, "there is no such folder", "data", "--out", "no/where"),
        (2, "no Dask scheduler answers at tcp://127.0.0.1:1", "data", "--cluster", "tcp://127.0.0.1:1"),
    ):  # fmt: skip
        if "--cluster" in arguments:
            pytest.importorskip("distributed", reason="needs the extra dask")
        assert run("fit", *arguments, *([] if "--out" in arguments else ["--out", "m"])) == code, (arguments, run.err)
        assert message in run.err.replace("\n", ""), (arguments, run.err)
        assert not Path("m").exists()


def test_a_table_beyond_the_budget_is_fitted_in_passes(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table(columns(4, 200)), tmp_path / "t.parquet")
    for limit, passes in ((32 * 200 * 7 - 1, True), (32 * 200 * 7, False)):
        monkeypatch.setattr(streams, "LIMIT", limit)
        run.fit("t.parquet", "--model", "logistic")
        assert ("pass 1 (columns)" in run.err) == passes

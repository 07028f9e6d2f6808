"""Files written by version 0.1.0 can be read: its store, its models and its table model."""

import csv
import gzip
import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("altair", reason='needs the extras bench and plots: pip install "closecall[bench,plots]"')

from closecall.cli.main import app
from closecall.linear import load_model
from closecall.table.model import TableModel
from closecall.table.read.dataset import DataError
from closecall.table.table import read
from reproduction.pages.formats import to_csv
from reproduction.pages.sections import build
from reproduction.run.campaign import stored_jobs
from reproduction.run.scores import Archive
from reproduction.run.store import Store
from tests import ROOT

OLD = ROOT / "tests" / "written_by_0_1_0"


@pytest.mark.parametrize("write", [False, True])
def test_a_store_gives_the_tables_it_gave(write: bool, tmp_path: Path) -> None:
    path = tmp_path / "store.sqlite"
    path.write_bytes(gzip.decompress((OLD / "store.sqlite.gz").read_bytes()))
    with Store(path, write=write) as store:
        (job,) = stored_jobs(store)
        assert store.done() == {cell.key for cell in job.cells()}
        tables = {table.name: to_csv(table) for table in build(job, Archive(store)).tables}
    for name in ("errors-sound-linear-logistic", "methods-paper-linear-hinge"):
        assert tables[name] == (OLD / f"{name}.csv").read_text()


@pytest.mark.parametrize("name", ["linear", "search"])
def test_a_model_gives_the_scores_it_gave(name: str) -> None:
    expected = json.loads((OLD / "expected.json").read_text())
    found = load_model(OLD / f"{name}.npz").decision_function(np.array(expected["X"]))
    np.testing.assert_allclose(found, expected[name], rtol=1e-9)


def test_a_model_of_a_table_predicts_what_it_predicted(tmp_path: Path) -> None:
    out = tmp_path / "predicted.csv"
    with pytest.raises(SystemExit) as end:
        app(["predict", str(OLD / "table.npz"), str(OLD / "table.csv"), "--out", str(out)])
    assert end.value.code == 0
    found, expected = (list(csv.DictReader(path.read_text().splitlines())) for path in (out, OLD / "predicted.csv"))
    assert [row["prediction"] for row in found] == [row["prediction"] for row in expected]
    np.testing.assert_allclose(*([float(row["score"]) for row in rows] for rows in (found, expected)), rtol=1e-9)
    model = TableModel.load(str(OLD / "table.npz"))  # without marks of the training rows, and without calibration
    assert model.seen.size == 0
    with pytest.raises(DataError, match="fitted by an earlier release; fit it again"):
        model.probabilities(read(str(OLD / "table.csv")).frame)

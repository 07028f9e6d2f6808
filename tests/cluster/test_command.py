"""``closecall fit --cluster``: the same model as on one machine, and errors if the cluster is not ready."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import norm

pytest.importorskip("distributed", reason="needs the extra dask")
pytest.importorskip("pyarrow", reason="needs the extra bench")

from closecall import SquashingScaler
from closecall.cluster import dask_source
from closecall.cluster.columns import SAMPLE
from closecall.table.model import TableModel
from tests.cluster import workers
from tests.table.helpers import Run
from tests.table.test_streamed import columns, write


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with workers(2) as found:
        yield found


@pytest.mark.parametrize("kept", [0.4, 0.0], ids=["rows stay on the workers", "files are read in every pass"])
def test_a_cluster_fits_the_model_of_one_machine(
    run: Run, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch, kept: float
) -> None:
    monkeypatch.setattr(dask_source, "MEMORY_SHARE", kept)
    write(tmp_path / "data", columns(0, 300), [100, 100])
    assert run("fit", "data", "--out", "here", "--stream") == 0, run.err
    assert run("fit", "data", "--cluster", cluster.scheduler_address, "--out", "there") == 0, run.err
    assert "pass 1 (columns)" in run.err
    here, there = TableModel.load("here"), TableModel.load("there")
    assert np.array_equal(here.classifier.coef_, there.classifier.coef_)
    assert np.array_equal(here.recipe.scale, there.recipe.scale)
    assert run("predict", "there", "data", "--out", "p.csv") == 0, run.err


@pytest.mark.parametrize("rows", [SAMPLE // 2, 3 * SAMPLE], ids=["all rows are sampled", "a third is"])
def test_a_cluster_squashes_as_the_scaler_does(run: Run, tmp_path: Path, cluster: Any, rows: int) -> None:
    """The ranks of quantiles are within 1.2 %, as the module states, and exact if the sample contains all rows."""
    rng = np.random.default_rng(rows)
    X = np.column_stack([rng.normal(3, 2, rows), rng.standard_cauchy(rows), rng.lognormal(size=rows)])
    X[:: rows // 50] *= 1e6
    y = np.where(X[:, 0] + rng.normal(size=rows) > 3, "yes", "no")
    write(tmp_path / "data", {**dict(zip("abc", X.T, strict=True)), "y": y}, [rows // 4, rows // 2], 5000)
    assert run("fit", "data", "--target", "y", "--model", "logistic", "--cluster", cluster.scheduler_address,
               "--out", "m") == 0, run.err  # fmt: skip
    recipe, scaler = TableModel.load("m").recipe, SquashingScaler().fit(X)
    error = 0.0 if rows <= SAMPLE else 0.012
    below = (recipe.mean >= X).mean(axis=0)
    assert np.abs(below - 0.5).max() <= error + 1 / rows
    # Half of all rows lie within the median deviation; an error in the centre may add the same error again.
    inside = (np.abs(X - recipe.mean) <= recipe.scale * norm.ppf(0.75) * (1 + 1e-9)).mean(axis=0)
    assert np.abs(inside - 0.5).max() <= 2 * error + 1 / rows
    # These errors move the centre of a normal column by 0.03 deviations and change its scale by 6 %, which makes a
    # difference of 0.2 at three deviations.
    matrix = recipe.matrix(pd.DataFrame(X, columns=list("abc")))
    assert np.abs(matrix - scaler.transform(X)).max() <= (1e-9 if rows <= SAMPLE else 0.2)


def test_a_cluster_without_workers_is_an_error(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_source, "FIRST_WORKER", 0.3)
    write(tmp_path / "data", columns(1, 50), [20])
    with workers(0) as empty:
        assert run("fit", "data", "--out", "m", "--cluster", empty.scheduler_address) == 2
    assert "has no workers; start some (dask worker tcp://" in run.err
    assert not Path("m").exists()


def test_files_that_workers_do_not_find_are_named(run: Run, tmp_path: Path, cluster: Any) -> None:
    write(tmp_path / "data", columns(2, 50), [20])

    def lose(*_: Any, **__: Any) -> Any:
        raise FileNotFoundError(2, "No such file or directory", "data/0.parquet")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("closecall.cluster.parquet_source.Piece.table", lose)
        assert run("fit", "data", "--out", "m", "--cluster", cluster.scheduler_address) == 3
    assert "data/0.parquet" in run.err

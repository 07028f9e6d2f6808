"""``closecall fit --cluster``: the model that one machine fits, and a cluster that is not as it should be."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

distributed = pytest.importorskip("distributed", reason="needs the extra dask")
pytest.importorskip("pyarrow", reason="needs the extra bench")

from closecall.cluster import connect, dask_source  # noqa: E402
from closecall.table.model import TableModel  # noqa: E402
from tests.table.helpers import Run  # noqa: E402
from tests.table.test_streamed import columns, write  # noqa: E402


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)
    return Run(monkeypatch, capsys)


def cluster_of(workers: int) -> Any:
    """Threads of this process, under an address of the loopback."""
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=False, protocol="tcp", host="127.0.0.1",
        dashboard_address="127.0.0.1:0", silence_logs=50,
    )  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with cluster_of(2) as found:
        yield found


@pytest.mark.parametrize("kept", [0.4, 0.0], ids=["rows stay on the workers", "files are read in every pass"])
def test_a_cluster_fits_the_model_of_one_machine(
    run: Run, tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch, kept: float
) -> None:
    monkeypatch.setattr(dask_source, "KEPT", kept)
    write(tmp_path / "data", columns(0, 300), [100, 100])
    assert run("fit", "data", "--out", "here", "--stream") == 0, run.err
    assert run("fit", "data", "--cluster", cluster.scheduler_address, "--out", "there") == 0, run.err
    assert "pass 1 (columns)" in run.err
    here, there = TableModel.load("here"), TableModel.load("there")
    assert np.array_equal(here.classifier.coef_, there.classifier.coef_)
    assert np.array_equal(here.recipe.scale, there.recipe.scale)
    assert run("predict", "there", "data", "--out", "p.csv") == 0, run.err


def test_a_cluster_without_workers_is_an_error(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "FIRST_WORKER", 0.3)
    write(tmp_path / "data", columns(1, 50), [20])
    with cluster_of(0) as empty:
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

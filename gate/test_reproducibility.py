"""A cell gives the same record on one worker or many and in any order; BLAS threads hardly change chosen errors."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from closecall.objective import Problem
from closecall.solvers.batched import solve
from closecall.solvers.sweep import SMALL_DESIGN
from reproduction.protocol.grid import choose
from reproduction.protocol.plan import RunOptions, Task
from reproduction.run.cell import run_cell
from reproduction.run.engines import Local
from reproduction.run.jobs import prepare
from reproduction.run.record import Record

#: The documentation promises that the number of BLAS threads changes a chosen test error by at most so many points.
POINTS = 1.0


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    (job,) = prepare(["overview"], RunOptions(splits=2, max_iter=12), only=["monk3"])
    return job.tasks()


@pytest.fixture(scope="module")
def alone(tasks: list[Task], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Record]:
    with threadpool_limits(1):
        return {task.cell.key: run_cell(task.cell, data_dir=str(tmp_path_factory.mktemp("data"))) for task in tasks}


def test_workers_and_order_do_not_change_a_bit(tasks: list[Task], alone: dict[str, Record], tmp_path: Path) -> None:
    shuffled = [tasks[i] for i in np.random.default_rng(0).permutation(len(tasks))]
    happenings = list(Local(2)(shuffled, partial(run_cell, data_dir=str(tmp_path))))
    found = {each.record.key: each.record for each in happenings if each.record is not None}
    assert found.keys() == alone.keys()
    for key, record in found.items():
        assert record.status == "done", record.error
        assert record.rows.tobytes() == alone[key].rows.tobytes()
        for name in ("sizes", "features", "notes"):
            assert getattr(record, name) == getattr(alone[key], name)


def test_blas_threads_hardly_move_the_chosen_errors(
    tasks: list[Task], alone: dict[str, Record], tmp_path: Path
) -> None:
    for task in tasks[::3]:
        with threadpool_limits(2):
            record = run_cell(task.cell, data_dir=str(tmp_path))
        one, two = (choose(rows, task.cell.protocol) for rows in (alone[task.cell.key].rows, record.rows))
        assert one[["loss", "method"]].tolist() == two[["loss", "method"]].tolist()
        moved = 100 * np.abs(one["test"].astype(float) - two["test"]) / record.sizes[2]
        assert moved.max() <= POINTS


def test_blas_threads_on_a_design_that_uses_them() -> None:
    """Above SMALL_DESIGN entries BLAS uses its threads and adds sums in another order; errors hardly change."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(SMALL_DESIGN // 63, 64))
    y = np.where(X[:, 0] - X[:, 1] + rng.normal(size=len(X)) > 0, 1, -1)
    problems = [Problem(alpha=1.0), Problem("logistic", "close_decay", k=0.1)]
    found = []
    for threads in (1, 2):
        with threadpool_limits(threads, "blas"):
            found.append(solve(X, y, problems, max_iter=12))
    np.testing.assert_allclose(found[0].errors, found[1].errors, atol=2e-4 * len(X))
    np.testing.assert_allclose(found[0].objective, found[1].objective, rtol=1e-6)

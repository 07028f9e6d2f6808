"""Results of single partitions: compared with plain sums, in pieces of any size, and after a process is killed."""

import os
import signal
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra dask")

from closecall import CloseKClassifier
from closecall.cluster import DaskAggregateLossClassifier, DaskCloseKClassifier, ParquetSource, PassEvent
from closecall.cluster.parquet_source import Recast
from closecall.cluster.passes import Block, Frame, InMemory, draw, make_block, survey
from closecall.cluster.solve import Request, answer
from closecall.losses import get_loss
from closecall.solvers import rows as dense_rows
from closecall.solvers.cuts import LossWindow
from tests.cluster import table

LOSS = get_loss("logistic")


def frame_of(X: np.ndarray) -> Frame:
    return Frame(X.mean(axis=0), X.std(axis=0), True, np.array([0, 1]))


C = np.array([0.8, 0.9, 0.3, -0.2])
WINDOW, RAMP = LossWindow(0.3, 1.1, 0.2, 0.5), (1.2, 0.4)


def requests() -> list[Request]:
    """Return requests of every kind that a problem can make."""
    asked = [("look", (C, WINDOW, 0.01)), ("tangents", (C, WINDOW, 0.01)), ("flow", (C, RAMP, None)),
             ("flow", (C, RAMP, C / 2)), ("gather", (C, -1.0, 1.0)), ("keys", (C, LOSS.threshold, 0.1, 0.4)),
             ("keys", (C, None, -0.5, -0.2))]  # fmt: skip
    return [Request(1, "logistic", None, *each) for each in asked]


def numbers(found: Any) -> list[Any]:
    """Return all values of a result, with gathered values sorted."""
    parts = []
    for value in vars(found).values():
        parts.append(np.sort(np.concatenate([np.ravel(each) for each in value])) if isinstance(value, list) else value)
    return parts


def assert_same(one: list[Any], other: list[Any]) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert np.allclose(mine, theirs, rtol=1e-9, atol=1e-9)


def test_partitions_of_a_table_are_summed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, mass = table(0)
    frame, looks = frame_of(X), requests()
    expected = [numbers(each) for each in answer(frame, looks, make_block(X, y, mass))]
    parts = [answer(frame, looks, make_block(X[some], y[some], mass[some])) for some in np.split(np.arange(400), 8)]
    monkeypatch.setattr(dense_rows, "BLOCK", 4 * 70)  # a few rows at a time
    for number, found in enumerate(answer(frame, looks, make_block(X, y, mass))):
        assert_same(numbers(found), expected[number])
        assert_same(numbers(reduce(add, [each[number] for each in parts])), expected[number])


def test_a_weight_is_that_many_copies_in_every_sum() -> None:
    X, y, mass = table(2)
    copies = np.repeat(np.arange(400), mass.astype(int))
    weighted, copied = make_block(X, y, mass), make_block(X[copies], y[copies])
    frame = replace(frame_of(X), factors=np.array([1.0, 2.5]))
    one, other = survey(weighted), survey(copied)
    assert (one.total, one.rows, other.rows) == (other.total, 400, len(copies))
    assert np.allclose([one.sums, one.squares], [other.sums, other.squares], rtol=1e-12)
    shares = {0: 0.3, 1: 0.8}
    drawn = [draw(shares, block) for block in (weighted, copied)]
    assert 40 < len(drawn[0]) < 360
    own = {tuple(x): weight for x, weight in zip(X, mass, strict=True)}
    stands = [own[tuple(x)] / shares[int(label)] for x, label in zip(drawn[0].X, drawn[0].y, strict=True)]
    assert drawn[0].mass.tolist() == stands
    assert drawn[0].mass.sum() == pytest.approx(drawn[1].mass.sum())
    for one_look, other_look in zip(*(answer(frame, requests()[:4], each) for each in (weighted, copied)), strict=True):
        assert_same(numbers(one_look), numbers(other_look))


class Mixed:
    """A source that returns partitions in another order, and some of them twice."""

    def __init__(self, inner: InMemory) -> None:
        self.inner, self.partitions = inner, inner.partitions

    def run(self, task: Callable[[Block], Any]) -> Iterator[tuple[int, Any]]:
        found = list(self.inner.run(task))
        yield from (found[place] for place in (3, 1, 4, 1, 0, 2, 3))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_partition_that_is_reported_again_counts_once() -> None:
    X, y, mass = table(5)
    parts = InMemory(
        [make_block(X[some], y[some], mass[some]) for some in np.split(np.arange(400), [90, 90, 200, 310])]
    )
    seen: list[PassEvent] = []
    how: dict[str, Any] = {"max_gathered": 0, "max_iter": 20}
    for kind in (DaskAggregateLossClassifier, DaskCloseKClassifier):
        model = kind(**how, callback=seen.append).fit_source(Mixed(parts))  # type: ignore[arg-type]
        same = kind(**how).fit_source(parts)
        assert np.array_equal(model.coef_, same.coef_)
        assert np.array_equal(model.intercept_, same.intercept_)
    assert max(event.rows_done for event in seen) == 400
    gathered = DaskCloseKClassifier().fit_source(Mixed(parts))  # type: ignore[arg-type]
    assert np.array_equal(gathered.coef_, CloseKClassifier().fit(X, y, mass).coef_)


def write(folder: Path, X: np.ndarray, names: Any, mass: np.ndarray, rows: int = 50) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra bench")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra bench")
    columns = {f"x{place}": X[:, place] for place in range(X.shape[1])} | {"label": names, "w": mass}
    parquet.write_table(pyarrow.table(columns), folder / "rows.parquet", row_group_size=rows)


def end_once(mark: str, size: int, block: Block) -> int:
    """Return the number of rows, and kill the first process that sees a partition of that size."""
    if len(block) == size and not os.path.exists(mark):
        Path(mark).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return len(block)


@pytest.mark.skipif(os.name != "posix", reason="processes are killed by signals")
def test_a_reading_process_that_is_killed_costs_a_repeat_of_what_it_had_not_said(tmp_path: Path) -> None:
    X, y, mass = table(6, 510)
    write(tmp_path, X, y, mass)
    source = ParquetSource(str(tmp_path), "label", weight="w", processes=2, rows=50)
    try:
        found = list(source.run(partial(end_once, str(tmp_path / "killed"), 10)))  # the last partition has 10 rows
    finally:
        source.close()
    assert (tmp_path / "killed").exists()
    assert sorted(found) == [*((number, 50) for number in range(10)), (10, 10)]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_kept_rows_are_those_that_were_read(tmp_path: Path, kind: type) -> None:
    X, y, mass = table(7, 120)
    X, names, mass = X.astype(kind), np.where(y > 0, "yes", "no"), mass / 3
    write(tmp_path, X, names, mass)
    (tmp_path / "kept").mkdir()
    source = ParquetSource(str(tmp_path), "label", weight="w", rows=50, scratch=str(tmp_path / "kept"))
    try:
        for _ in range(2):  # written, then mapped
            parts = [block for _, block in source.run(copy)]
            assert {part.X.dtype for part in parts} == {np.dtype(kind)}
            assert np.array_equal(np.concatenate([part.X for part in parts]), X)
            assert np.array_equal(np.concatenate([part.y for part in parts]).astype(str), names)
            assert np.array_equal(np.concatenate([part.mass for part in parts]), mass)
        scaled = source.recast(Recast(X.mean(axis=0), X.std(axis=0), {"no": 0, "yes": 1}), source.features)
        parts = [block for _, block in scaled.run(copy)]
        scaled.close()
        assert np.allclose(np.concatenate([part.X for part in parts]), (X - X.mean(axis=0)) / X.std(axis=0), atol=1e-5)
        assert np.concatenate([part.y for part in parts]).tolist() == y.tolist()
    finally:
        source.close()
    assert list((tmp_path / "kept").iterdir()) == []

"""What one partition brings home: against plain sums, in any pieces, whatever ties, and after a process was killed."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from functools import partial, reduce
from operator import add
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("distributed", reason="needs the extra dask")

from closecall import CloseKClassifier, Problem
from closecall.cluster import DaskAggregateLossClassifier, DaskCloseKClassifier, ParquetSource, PassEvent, blocks
from closecall.cluster.blocks import Block, Frame, make_block, survey, whole
from closecall.cluster.draw import draw
from closecall.cluster.fit import ask, make_frame
from closecall.cluster.looks import Look, keys_of, look_at
from closecall.cluster.parquet_source import Recast
from closecall.cluster.passes import InMemory, Passes
from closecall.cluster.settled import Near, Sight
from closecall.cluster.walk import Course, Place, rows_of
from closecall.cluster.window import Selection, Window
from closecall.losses import get_loss
from closecall.solvers.large import Manner
from closecall.solvers.stationary import Goal, Search
from closecall.solvers.tally import make_aim

LOSS = get_loss("logistic")


def table(seed: int, samples: int = 400) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(samples, 3)) * [1.0, 5.0, 0.2] + [0.0, 20.0, -1.0]
    y = (X @ [1.0, 0.2, 1.0] - 3.0 + rng.logistic(size=samples) > 0).astype(int)
    return X, y, rng.integers(1, 4, samples).astype(float)


def frame_of(X: np.ndarray) -> Frame:
    return Frame(X.mean(axis=0), X.std(axis=0), True, np.array([0, 1]))


def requests() -> list[Any]:
    """An average, a window, a part of a window, and sights with and without rows."""
    c = np.array([0.8, 0.9, 0.3, -0.2])
    window = Look(1, c, "logistic", LOSS.threshold, 0.1, 0.4)
    aims = [make_aim(LOSS, c, 0.8, 0.5, keep=keep, touch=touch) for keep, touch in ((True, None), (False, c / 2))]
    return [Look(1, c, "logistic", None, np.inf, np.inf), window, *(Sight(1, "logistic", aim) for aim in aims)]


def numbers(found: Any, frame: Frame) -> dict[str, Any]:
    """All that was found, by name; rows in an order of their own."""
    if isinstance(found, Near):
        seen = found.seen(frame, keep=True)
        return vars(found.sums) | by_row(seen.rows, seen.mass)
    rows = np.concatenate([np.empty((0, 4)), *found.gathered]), np.concatenate([np.empty(0), *found.gathered_mass])
    left = ("gathered", "gathered_mass", "rows", "found")  # how many there are is no sum of masses
    return {each.name: getattr(found, each.name) for each in fields(found) if each.name not in left} | by_row(*rows)


def by_row(rows: Any, mass: np.ndarray) -> dict[str, Any]:
    """Masses of rows; copies are one."""
    kept, place = np.unique(rows.round(9), axis=0, return_inverse=True)
    return {"rows that are kept": kept, "their masses": np.bincount(np.ravel(place), mass, minlength=len(kept))}


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert np.allclose(value, other[name], rtol=1e-9, atol=1e-9), name


def test_pieces_of_a_partition_and_partitions_of_a_table_are_summed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, mass = table(0)
    frame, looks = frame_of(X), requests()
    expected = [numbers(each, frame) for each in look_at(frame, looks, make_block(X, y, mass))]
    assert all(len(each["rows that are kept"]) > 20 for each in expected[1:3])
    parts = [look_at(frame, looks, make_block(X[some], y[some], mass[some])) for some in np.split(np.arange(400), 8)]
    monkeypatch.setattr(blocks, "PIECE", 3 * 70)
    assert len(list(make_block(X, y, mass).pieces())) == 6
    for number, found in enumerate(look_at(frame, looks, make_block(X, y, mass))):
        assert_same(numbers(found, frame), expected[number])
        assert_same(numbers(reduce(add, [each[number] for each in parts]), frame), expected[number])


def test_an_average_is_summed_as_a_loop_would() -> None:
    X, y, mass = table(1, 60)
    frame, look = frame_of(X), requests()[0]
    found = look_at(frame, [look], make_block(X, y, mass))[0]
    value, errors, gradient, bend = 0.0, 0.0, np.zeros(4), np.zeros((4, 4))
    for x, sign, weight in zip(X, 2 * y - 1, mass, strict=True):
        row = np.append((x - frame.mean) / frame.scale, 1.0)
        margin = sign * float(row @ look.c)
        p = 1 / (1 + np.exp(margin))
        value, errors = value + weight * np.log1p(np.exp(-margin)), errors + weight * (margin <= 0)
        gradient, bend = gradient - weight * sign * p * row, bend + weight * p * (1 - p) * np.outer(row, row)
    assert found.value == pytest.approx(value, rel=1e-12)
    assert found.errors == errors
    assert found.mass == mass.sum()
    assert np.allclose(found.gradient, gradient, rtol=1e-10)
    assert np.allclose(found.bend, bend, rtol=1e-6)


def test_a_weight_is_that_many_copies_in_every_sum() -> None:
    X, y, mass = table(2)
    copies = np.repeat(np.arange(400), mass.astype(int))
    weighted, copied = make_block(X, y, mass), make_block(X[copies], y[copies])
    frame = replace(frame_of(X), factors=np.array([1.0, 2.5]))
    one, other = survey(weighted), survey(copied)
    assert (one.total, one.rows, other.rows) == (other.total, 400, len(copies))
    assert np.allclose([one.sums, one.squares], [other.sums, other.squares], rtol=1e-12)
    assert {name: each[1] for name, each in one.labels.items()} == {
        name: each[1] for name, each in other.labels.items()
    }
    shares = {0: 0.3, 1: 0.8}
    first, second = (draw(frame, shares, 0.5, [1], block) for block in (weighted, copied))
    assert_same({"gram": first.gram, "pulls": first.pulls}, {"gram": second.gram, "pulls": second.pulls})
    for name in ("block", "first"):
        drawn = [getattr(each, name) for each in (first, second)]
        assert 40 < len(drawn[0]) < 360
        assert_same(by_row(drawn[0].X, drawn[0].mass), by_row(drawn[1].X, drawn[1].mass))
    chosen = first.block
    own = {tuple(x): weight for x, weight in zip(X, mass, strict=True)}
    stands = [own[tuple(x)] / shares[int(label)] for x, label in zip(chosen.X, chosen.y, strict=True)]
    assert chosen.mass.tolist() == stands
    for one_look, other_look in zip(*(look_at(frame, requests(), each) for each in (weighted, copied)), strict=True):
        assert_same(numbers(one_look, frame), numbers(other_look, frame))


def test_rows_that_tie_at_the_ends_of_a_window_are_in_it_once() -> None:
    X = np.repeat([[-2.0], [-1.0], [0.0], [1.0], [2.0]], 3, axis=0)
    y, mass = np.ones(15, dtype=int), np.arange(1.0, 16.0)
    frame = Frame(np.zeros(1), np.ones(1), True, np.array([0, 1]))
    threshold, c = LOSS.threshold, np.array([1.0, 0.0])
    keys = keys_of(threshold, LOSS.value(X[:, 0]))
    inner, outer = keys[9], keys[3]  # of margins 1 and -1; margin 2 lies between
    look = Look(1, c, "logistic", threshold, float(inner), float(outer))
    sums = look_at(frame, [look], make_block(X, y, mass))[0]
    assert sums.mass == mass[keys < inner].sum() == 24.0
    assert sums.found == 9
    assert sum(each.sum() for each in sums.gathered_mass) == mass[(keys >= inner) & (keys <= outer)].sum()
    for k, edge in ((25.0, inner), (57.0, inner), (58.0, keys[12]), (99.0, keys[12]), (100.0, outer), (114.0, outer)):
        window = Window(look, sums, Selection("logistic", threshold, k, float(mass.sum())), np.ones(2))
        assert window.missing == 0
        assert window.weights.sum() + sums.mass == pytest.approx(k, rel=1e-12)
        assert window.edge == edge


def test_gathered_rows_of_a_share_stand_for_all() -> None:
    X, y, mass = table(3, 5000)
    frame, look = frame_of(X), replace(requests()[1], share=0.4)
    every, some = look_at(frame, [replace(look, share=1.0), look], make_block(X, y, mass))
    assert every.found == some.found
    masses = [float(np.concatenate(each.gathered_mass).sum()) for each in (every, some)]
    assert masses[1] == pytest.approx(masses[0], rel=0.1)
    assert len(np.concatenate(some.gathered)) == pytest.approx(0.4 * every.found, rel=0.1)


def test_where_the_last_kth_key_was_is_where_the_next_is_looked_for() -> None:
    X, y, mass = table(4, 6000)
    passes, problem = Passes(InMemory([make_block(X, y, mass)])), Problem("logistic", "close", 0.3, 1.0)
    found = passes.survey()
    frame = make_frame(found, np.array([0, 1]), None, intercept=True, centred=True)
    (asked,) = ask(found, frame, problem, [1], Manner(30, 1e-4, True, False))
    drawn = passes.draw(frame, {0: 0.05, 1: 0.05}, 0.0, [1])
    course = Course(asked, problem, drawn, 30)
    place, c, k = Place(course, rows_of(frame, drawn.block, asked)), np.array([0.8, 0.9, 0.3, -0.2]), asked.selection.k
    guessed = place.predict(c, k)[0]
    looking = place.look(c, k)
    look = next(looking)
    try:
        while True:
            look = looking.send(passes.look(frame, [look])[0])
    except StopIteration as end:
        window = end.value
    scores = ((X - frame.mean) / frame.scale) @ c[:3] + c[3]
    keys = keys_of(LOSS.threshold, LOSS.value((2 * y - 1) * scores))
    order = np.argsort(keys)
    exact = keys[order][np.searchsorted(np.cumsum(mass[order]), k)]
    assert window.edge == pytest.approx(exact, rel=1e-9)
    assert place.predict(c, k)[0] == pytest.approx(exact, rel=1e-9)
    assert abs(guessed - exact) > 1e-6 * exact  # the sample alone did not know


def test_rows_that_were_kept_serve_near_where_they_were_seen_and_nowhere_else() -> None:
    X, y, mass = table(8, 3000)
    frame, block = frame_of(X), make_block(X, y, mass)
    rows = frame.rows(X, 2.0 * y - 1)
    goal = Goal(LOSS, 0.3 * mass.sum(), np.ones(4), (rows.T * mass) @ rows / mass.sum(), 1e-4)
    search, c = Search(goal), np.array([2.0, 2.5, 0.8, -0.2])

    def see(c: np.ndarray) -> tuple[int, dict[str, Any]]:
        """How many passes a look at c takes, and its sums."""
        looking, passes = search._see(c, 1.2, 0.2), 0
        try:
            aim = next(looking)
            while True:
                passes += 1
                aim = looking.send(look_at(frame, [Sight(1, "logistic", aim)], block)[0].seen(frame, keep=True))
        except StopIteration as end:
            sums = vars(end.value.sums)
            return passes, {name: value for name, value in sums.items() if name not in ("full", "errors")}

    assert see(c)[0] == 1
    some = len(search.rows if search.rows is not None else ())
    assert 300 < some < 2700
    for near in (c, 1.02 * c, c + 0.01):
        passes, sums = see(near)
        assert passes == 0
        fresh = look_at(frame, [Sight(1, "logistic", make_aim(LOSS, near, 1.2, 0.2))], block)[0].sums
        assert_same(sums, {name: getattr(fresh, name) for name in sums})
    for far in (2 * c, c[[1, 0, 2, 3]] * [1, -1, 1, 1]):
        assert see(far)[0] == 1


class Mixed:
    """A source whose partitions come in another order, and some of them a second time."""

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
    """How many rows there are; the first process that sees a partition of that size is killed."""
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
            parts = [block for _, block in source.run(whole)]
            assert {part.X.dtype for part in parts} == {np.dtype(kind)}
            assert np.array_equal(np.concatenate([part.X for part in parts]), X)
            assert np.array_equal(np.concatenate([part.y for part in parts]).astype(str), names)
            assert np.array_equal(np.concatenate([part.mass for part in parts]), mass)
        scaled = source.recast(Recast(X.mean(axis=0), X.std(axis=0), {"no": 0, "yes": 1}), source.features)
        parts = [block for _, block in scaled.run(whole)]
        scaled.close()
        assert np.allclose(np.concatenate([part.X for part in parts]), (X - X.mean(axis=0)) / X.std(axis=0), atol=1e-5)
        assert np.concatenate([part.y for part in parts]).tolist() == y.tolist()
    finally:
        source.close()
    assert list((tmp_path / "kept").iterdir()) == []

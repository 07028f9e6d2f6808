"""One cell -> one record: the data that each protocol may use, the grid, the scores, the baselines."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import TunedThresholdClassifierCV

from closecall.objective import Problem
from reproduction.protocol import load_dataset
from reproduction.protocol.dataset import Dataset, Division
from reproduction.protocol.grid import ALPHAS, BASELINES, choose, grid, rows_of, score_linear
from reproduction.protocol.plan import Cell, rng_for
from reproduction.protocol.published import LOSSES, METHODS
from reproduction.run.cell import divide, run_cell, sklearn_baselines


def cell_of(data: Dataset, protocol: str, split: int = 0, **changes: object) -> Cell:
    cell = Cell("test", f"{data.source}:{data.name}", data.checksum, split, "linear", protocol, max_iter=30)
    return replace(cell, **changes)  # type: ignore[arg-type]


def numbered(rows: int = 40, positives: int = 10) -> Dataset:
    """Return a set whose only informative column numbers its rows, so that each row of a part can be identified."""
    X = np.column_stack([np.arange(rows, dtype=float), np.ones(rows)])
    y = (np.arange(rows) < positives).astype(int)
    return Dataset("numbered", "test", "1", X, y, ("a", "b"), ("number", "constant"), (None, None))


def test_paper_scales_over_the_whole_set_and_divides_at_random() -> None:
    data = numbered()
    division = divide(data, cell_of(data, "paper"))
    assert division.sizes == (20, 10, 10)
    together = np.concatenate(division.X)
    np.testing.assert_allclose(together.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(together.std(axis=0), [1, 0], atol=1e-12)  # the constant column becomes zero
    column = data.X[:, 0]
    numbers = [np.rint(part[:, 0] * column.std() + column.mean()).astype(int) for part in division.X]
    assert sorted(np.concatenate(numbers)) == list(range(40))
    for rows, y in zip(numbers, division.y, strict=True):
        np.testing.assert_array_equal(y, np.where(rows < 10, 1, -1))
    other = divide(data, cell_of(data, "paper", split=1))
    assert not np.array_equal(np.sort(other.X[0][:, 0]), np.sort(division.X[0][:, 0]))
    # Without stratification, the number of positives in the training part varies.
    counts = {int((divide(data, cell_of(data, "paper", split=i)).y[0] > 0).sum()) for i in range(10)}
    assert len(counts) > 1


def test_sound_stratifies_and_scales_by_the_training_part() -> None:
    data = numbered()
    for split in range(5):
        division = divide(data, cell_of(data, "sound", split=split))
        np.testing.assert_allclose(division.X[0].mean(axis=0), 0, atol=1e-12)
        np.testing.assert_allclose(division.X[0].std(axis=0), [1, 0], atol=1e-12)
        assert [int((y > 0).sum()) for y in division.y] in ([5, 3, 2], [5, 2, 3])
        assert sum(division.sizes) == 40
    assert abs(division.X[2][:, 0].mean()) > 1e-6


def test_missing_and_nominal_columns() -> None:
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.random(60), rng.integers(0, 3, 60).astype(float), rng.random(60)])
    X[3, 2] = np.nan
    y = rng.integers(0, 2, 60)
    data = Dataset("mixed", "test", "1", X, y, ("a", "b"), ("n", "colour", "gaps"), (None, ("r", "g", "b"), None))
    paper = divide(data, cell_of(data, "paper"))
    assert paper.X[0].shape[1] == 2
    assert paper.notes == ("1 columns with missing values dropped",)
    sound = divide(data, cell_of(data, "sound"))
    assert sound.X[0].shape[1] == 1 + 3 + 1
    assert np.isfinite(np.concatenate(sound.X)).all()


@pytest.mark.parametrize("protocol", ["paper", "sound"])
def test_contamination_adds_what_it_says(protocol: str) -> None:
    data = load_dataset("embedded:wdbc")
    plain = divide(data, cell_of(data, protocol))
    more = divide(data, cell_of(data, protocol, contamination="imbalance", level=100))
    assert sum(more.sizes) == sum(plain.sizes) + 100
    negatives = [sum(int((y < 0).sum()) for y in division.y) for division in (plain, more)]
    assert negatives[1] == negatives[0] + 100
    if protocol == "sound":  # each part in proportion
        added = [after - before for after, before in zip(more.sizes, plain.sizes, strict=True)]
        assert added == [50, 25, 25]


def test_one_class_or_too_few_rows_is_a_clear_error() -> None:
    lonely = numbered(rows=40, positives=1)
    where = [int(np.argmax(rng_for(cell_of(lonely, "paper", s), "split").permutation(40) == 0)) for s in range(20)]
    outside = next(split for split, place in enumerate(where) if place >= 20)
    with pytest.raises(ValueError, match=f"training part of split {outside} has only one class"):
        divide(lonely, cell_of(lonely, "paper", split=outside))
    assert (divide(lonely, cell_of(lonely, "sound")).y[0] > 0).sum() == 1
    tiny = numbered(rows=2, positives=1)
    with pytest.raises(ValueError, match="too few"):
        divide(tiny, cell_of(tiny, "paper"))


def test_grid_is_the_papers() -> None:
    problems = grid(2300)
    assert len(problems) == len(set(problems)) == 2 * 11 * (1 + 4 * 4)
    assert {problem.alpha for problem in problems} == set(ALPHAS)
    assert {problem.k for problem in problems if problem.aggregate == "close"} == {10, 100, 1000, 2300}
    assert {problem.k for problem in problems if problem.aggregate == "average"} == {2300}


@pytest.mark.parametrize("protocol", ["paper", "sound"])
def test_a_cell_from_end_to_end(protocol: str) -> None:
    data = load_dataset("embedded:corral")
    cell = cell_of(data, protocol)
    record = run_cell(cell)
    assert (record.status, record.key, record.features) == ("done", cell.key, 6)
    problems = grid(record.sizes[0])
    assert len(record.rows) == len(problems) + 2 * 11 + 2 * 11 + 1
    found = {(row["loss"], row["method"]) for row in record.rows}
    expected = {(loss, method) for loss in LOSSES for method in (*METHODS, "average_exact_intercept")}
    assert found == expected | {("", name) for name in BASELINES if name != "average_exact_intercept"}
    for part, size in zip(("train", "validation", "test"), record.sizes, strict=True):
        assert (record.rows[part] <= size).all()
    again = run_cell(cell)
    for name in record.rows.dtype.names or ():  # for each field, because NaN equals NaN here
        np.testing.assert_array_equal(again.rows[name], record.rows[name])
    # With the same coefficients, no intercept has fewer training errors than the exact one.
    average = record.rows[record.rows["method"] == "average"]
    exact = record.rows[record.rows["method"] == "average_exact_intercept"]
    assert (exact["train"] >= average["train"]).all()
    assert (exact["train"] > average["train"]).any()


def test_a_changed_data_set_is_not_mixed_in() -> None:
    data = load_dataset("embedded:corral")
    with pytest.raises(ValueError, match="has changed since"):
        run_cell(cell_of(data, "sound", checksum="0" * 64))


def test_scores_count_positive_margins_only() -> None:
    X, y = np.array([[1.0], [0.0], [-1.0]]), np.array([1.0, 1.0, 1.0])
    division = Division((X, X, X), (y, y, -y))
    rows = rows_of([Problem(k=3)])
    score_linear(rows, np.array([[2.0]]), np.array([0.0]), division)
    assert (rows["train"][0], rows["validation"][0], rows["test"][0]) == (1, 1, 1)  # a margin of 0 is an error


def test_sklearn_baselines_are_scikit_learns() -> None:
    data = load_dataset("embedded:monk3")
    division = divide(data, cell_of(data, "sound"))
    X, y = division.X, division.y
    rows = sklearn_baselines(division)
    for row in rows[rows["method"] == "logistic_regression"][::5]:
        model = LogisticRegression(C=1 / row["alpha"], max_iter=1000).fit(X[0], y[0])
        assert row["test"] == accuracy_score(y[2], model.predict(X[2]), normalize=False)
    (tuned,) = rows[rows["method"] == "tuned_threshold"]
    assert tuned["alpha"] == choose(rows[rows["method"] == "logistic_regression"], "sound")["alpha"][0]
    peer = TunedThresholdClassifierCV(LogisticRegression(C=1 / tuned["alpha"], max_iter=1000), scoring="accuracy")
    assert tuned["test"] == (peer.fit(X[0], y[0]).predict(X[2]) == y[2]).sum()

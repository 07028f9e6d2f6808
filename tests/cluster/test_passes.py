"""Fits in passes without Dask, compared with scikit-learn, the optimum and the in-memory fit."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

pytest.importorskip("distributed", reason="needs the extra dask")

from closecall import AggregateLossClassifier, Problem
from closecall.cluster import DaskAggregateLossClassifier, ParquetSource
from closecall.cluster.fit import fit_passes, make_frame
from closecall.cluster.passes import Passes
from closecall.linear.fitting import Models, Options
from closecall.objective import aggregate_value
from closecall.solvers import many, solve
from tests.cluster import partitions, table


def fit(problem: Problem, X: Any, y: Any, mass: Any) -> tuple[Models, int]:
    passes = Passes(partitions(X, y, mass))
    survey = passes.survey()
    frame = make_frame(survey, np.unique(y), None, intercept=True, centred=True)
    labels = [1] if len(survey.labels) == 2 else sorted(survey.labels)
    found = fit_passes(passes, survey, frame, problem, labels, Options(300, 1e-4, True, False, "ovr"))
    return Models(*(values[0] for values in vars(found).values())), passes.number


def apart(found: Models, coef: np.ndarray, intercept: np.ndarray, X: np.ndarray) -> float:
    """Return the distance between the scores, relative to their size."""
    ours, theirs = X @ found.coef[0] + found.intercept[0], X @ np.ravel(coef) + float(np.ravel(intercept)[0])
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@pytest.mark.parametrize("seed", range(3))
def test_a_sample_leads_to_the_optimum_of_all_rows(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(many, "LEAST", 500)
    monkeypatch.setattr(many, "FROM_ROWS", 1000)
    X, y, mass = table(seed, 5000, 4)
    found, passes = fit(Problem(alpha=1.0), X, y, mass)
    peer = LogisticRegression(solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(X, y, mass)
    assert apart(found, peer.coef_, peer.intercept_, X) < 1e-5
    assert found.gap[0] <= 1e-4
    assert passes <= 8


@pytest.mark.parametrize("loss", ["squared_hinge", "modified_huber"])
def test_other_smooth_averages_end_at_their_optimum(loss: str) -> None:
    X, y, mass = table(3, 3000, 4)
    found, passes = fit(Problem(loss, alpha=1.0), X, y, mass)
    best = solve(X, 2 * y - 1, [Problem(loss, alpha=1.0)], sample_weight=mass, tol=1e-8, max_iter=5000)
    assert apart(found, best.coef, best.intercept, X) < 1e-4
    assert found.gap[0] <= 1e-4
    assert passes <= 30


@pytest.mark.parametrize(("aggregate", "k"), [("atk", 0.5), ("maximal", None)])
def test_the_largest_losses_end_at_their_optimum(monkeypatch: pytest.MonkeyPatch, aggregate: str, k: Any) -> None:
    monkeypatch.setattr(many, "FROM_ROWS", 3000)
    X, y, mass = table(4, 6000, 4)
    problem = Problem("logistic", aggregate, k, 10.0)
    found, passes = fit(problem, X, y, mass)
    monkeypatch.undo()
    same = AggregateLossClassifier(aggregate=aggregate, k=k, alpha=10.0, tol=1e-4).fit(X, y, mass)
    assert found.gap[0] <= 1e-4
    values = [
        aggregate_value(problem, (2 * y - 1) * (X @ coef[0] + intercept[0]), mass=mass) + 5.0 * float(coef[0] @ coef[0])
        for coef, intercept in ((found.coef, found.intercept), (same.coef_, same.intercept_))
    ]
    assert values[0] == pytest.approx(values[1], rel=2e-4)
    assert 10 < passes <= 700  # the maximal loss needs the most: only one example is on its ramp


def test_few_rows_are_solved_as_in_memory() -> None:
    X, y, mass = table(5, 3000, 4)
    for loss, aggregate, k in (("logistic", "close_decay", 0.1), ("hinge", "close", 0.3), ("focal", "close", 0.2)):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the gap shows which fits have not converged
            found, passes = fit(Problem(loss, aggregate, k, 1.0), X, y, mass)
            same = AggregateLossClassifier(loss=loss, aggregate=aggregate, k=k, max_iter=300).fit(X, y, mass)
        assert found.coef == pytest.approx(same.coef_, rel=1e-9)
        assert found.gap[0] == pytest.approx(same.gap_[0])
        assert passes == 2


def test_one_against_the_rest_shares_its_passes() -> None:
    X, y, mass = table(6, 2000, 4)
    y = y + (X[:, 0] > 1)
    found, passes = fit(Problem(alpha=1.0), X, y, mass)
    for number in range(3):
        own = np.where(y == number, 1, -1)
        best = solve(X, own, [Problem(alpha=1.0)], sample_weight=mass, tol=1e-6)
        assert np.allclose(found.coef[number], best.coef[0], rtol=1e-4, atol=1e-6)
    assert passes <= 9


def test_many_columns_go_by_gradients_alone() -> None:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(900, 300))
    y = (X[:, 0] + rng.normal(size=900) > 0).astype(int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found, passes = fit(Problem(alpha=100.0), X, y, np.ones(900))
    best = solve(X, 2 * y - 1, [Problem(alpha=100.0)], tol=1e-6)
    assert apart(found, best.coef, best.intercept, X) < 1e-3
    assert passes <= 60
    with pytest.raises(ValueError, match="has a kink, needs all rows in one place"):
        fit(Problem("hinge"), X[:, :3], y, np.ones(900))
    with pytest.raises(ValueError, match="reduce the number of columns"):
        fit(Problem("logistic", "close_decay", 0.1), X, y, np.ones(900))


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("kept", [False, True], ids=["read again", "kept"])
def test_parquet_files_are_streamed(tmp_path: Path, processes: int, kept: bool) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra bench")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra bench")
    X, y, mass = table(8, 900, 2)
    for number, part in enumerate(np.split(np.arange(900), [500])):
        columns = {"a": X[part, 0].astype(np.float32), "w": mass[part], "b": X[part, 1], "label": y[part]}
        parquet.write_table(pyarrow.table(columns), tmp_path / f"{number}.parquet", row_group_size=200)
    source = ParquetSource(str(tmp_path / "*.parquet"), "label", weight="w", processes=processes, rows=400,
                           scratch=str(tmp_path) if kept else "")  # fmt: skip
    model = DaskAggregateLossClassifier(max_gathered=0).fit_source(source)
    assert len([path for path in tmp_path.rglob("*") if path.suffix == ".npy"]) == (9 if kept else 0)
    source.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.parquet", "1.parquet"]
    plain = np.column_stack([X[:, 0].astype(np.float32), X[:, 1]])
    peer = LogisticRegression(solver="newton-cholesky", tol=1e-12).fit(plain, y, mass)
    assert source.partitions == 3
    assert np.allclose(model.coef_, peer.coef_, rtol=1e-4)
    assert np.allclose(model.intercept_, peer.intercept_, rtol=1e-4)


def test_parquet_files_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra bench")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra bench")
    parquet.write_table(pyarrow.table({"a": ["x", "y"], "label": [0, 1]}), tmp_path / "a.parquet")
    with pytest.raises(FileNotFoundError, match="no Parquet files"):
        ParquetSource(str(tmp_path / "none"), "label")
    with pytest.raises(ValueError, match="no column 'y'"):
        ParquetSource(str(tmp_path), "y")
    with pytest.raises(ValueError, match="'a' has the type string; encode it"):
        ParquetSource(str(tmp_path), "label")

"""Runs that begin on a sample end where scikit-learn's do, and close to where runs on all rows end."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from closecall.objective import Problem
from closecall.solvers import sample, solve
from closecall.solvers.prepared import prepare
from closecall.solvers.steps import Rows


def draw(seed: int, samples: int = 3000) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng([12, seed])
    X = rng.normal(size=(samples, 4)) * [1.0, 2.0, 0.5, 1.0] + rng.normal(size=4)
    y = np.where(X @ [1.0, -0.5, 1.0, 0.0] + 1.5 * rng.normal(size=samples) > 0.3, 1.0, -1.0)
    return X, y


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Samples of 500 from 1,000 examples on; the sizes of the samples that were taken."""
    monkeypatch.setattr(sample, "FROM_SAMPLES", 1000)
    monkeypatch.setattr(sample, "LEAST", 500)
    taken: list[int] = []
    scaled = sample.Sample.scaled

    def noted(self: sample.Sample, rows: Rows) -> Rows:
        taken.append(len(self.rows))
        return scaled(self, rows)

    monkeypatch.setattr(sample.Sample, "scaled", noted)
    return taken


@pytest.mark.parametrize("weighted", [False, True])
def test_averages_end_at_their_own_minimum(small: list[int], weighted: bool) -> None:
    X, y = draw(1)
    rng = np.random.default_rng(3)
    weight = rng.random(len(y)) + 0.5 if weighted else np.ones(len(y))
    folds = np.stack([np.ones(len(y)), np.arange(len(y)) % 5 != 0])
    problems = [Problem(alpha=alpha) for alpha in np.logspace(-3, 3, 9) for _ in range(2)]
    fold_of = np.arange(len(problems)) % 2
    found = solve(X, y, problems, sample_weight=weight, folds=folds, fold_of=fold_of, tol=1e-4)
    assert found.converged.all()
    for row, (item, fold) in enumerate(zip(problems, fold_of, strict=True)):
        peer = LogisticRegression(C=1 / item.alpha, solver="newton-cholesky", tol=1e-10)
        peer.fit(X, y, sample_weight=weight * folds[fold])
        assert found.coef[row] == pytest.approx(peer.coef_[0], abs=2e-3)
        assert found.intercept[row] == pytest.approx(peer.intercept_[0], abs=2e-3)


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_runs_end_close_to_those_on_all_rows(small: list[int], loss: str) -> None:
    X, y = draw(2)
    problem = Problem(loss, "close_decay", 0.3, 1.0)
    begun = solve(X, y, [problem], max_iter=300, tol=1e-4)
    assert small == [500]
    sample.FROM_SAMPLES = 1 << 40  # the fixture puts it back
    whole = solve(X, y, [problem], max_iter=300, tol=1e-4)
    assert small == [500]
    assert begun.objective[0] == pytest.approx(whole.objective[0], rel=0.02)
    agree = np.sign(X @ begun.coef[0] + begun.intercept[0]) == np.sign(X @ whole.coef[0] + whole.intercept[0])
    assert agree.mean() > 0.95


def test_the_largest_losses_settle_at_their_minimum_as_before(small: list[int]) -> None:
    X, y = draw(5)
    problem = Problem("logistic", "atk", 0.3, 1.0)
    begun = solve(X, y, [problem], max_iter=300, settle=600, tol=1e-4)
    sample.FROM_SAMPLES = 1 << 40
    whole = solve(X, y, [problem], max_iter=300, settle=600, tol=1e-4)
    assert small == [500]
    assert begun.converged[0]
    assert whole.converged[0]
    assert begun.objective[0] == pytest.approx(whole.objective[0], rel=2e-4)


def test_a_sample_is_a_problem_in_proportion(small: list[int]) -> None:
    X, y = draw(3, 1200)
    design = prepare(X, y, np.ones((1, len(y))), fit_intercept=True, penalize_intercept=False, dtype=np.float64).design
    some = sample.take_sample(design)
    assert some is not None
    rows = Rows(*(np.array([part]) for part in ("logistic", "close", 0, 120.0, 0.0, 2.0, 1)))
    scaled = some.scaled(rows)
    share = len(some.rows) / len(y)
    assert scaled.k[0] == pytest.approx(120 * share)
    assert scaled.alpha[0] == pytest.approx(2 * share)
    top = some.scaled(replace(rows, aggregate=np.array(["top"])))
    assert top.alpha[0] == 2  # one example carries all, of however many
    assert some.design.spectrum == pytest.approx(design.spectrum * share)
    assert some.masses[0].total == len(some.rows)


def test_few_sparse_or_thin_folds_are_not_sampled(small: list[int]) -> None:
    options = {"fit_intercept": True, "penalize_intercept": False, "dtype": np.float64}
    X, y = draw(4, 1500)
    assert prepare(X, y, np.ones((1, len(y))), **options).sample is not None
    assert prepare(X[:900], y[:900], np.ones((1, 900)), **options).sample is None
    assert prepare(sparse.csr_matrix(X), y, np.ones((1, len(y))), **options).sample is None
    thin = np.stack([np.ones(len(y)), np.arange(len(y)) < 300])
    assert prepare(X, y, thin, **options).sample is None

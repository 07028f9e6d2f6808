"""The paper's synthetic sets, the three contaminations, and the descent of the paper's authors."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from closecall.table.read.dataset import DataError
from closecall.table.splits import shares
from reproduction.pages.figure1 import MOMENTUM, RATE, _descend
from reproduction.protocol.synthetic import FIGURE1, SIMULATIONS, ambiguity, figure1, imbalance, outliers

SEEDS = st.integers(0, 2**32 - 1)


def expected_errors(name: str, boundary: float) -> float:
    """Return the expected errors of predicting positives left of the boundary."""
    total = 0.0
    for label, count, low, high in FIGURE1[name]:
        left = float(low < boundary) if low == high else np.clip((boundary - low) / (high - low), 0, 1)
        total += count * (1 - left if label > 0 else left)
    return total


@pytest.mark.parametrize("name", FIGURE1)
def test_figure1_best_boundary_is_zero(name: str) -> None:
    grid = np.linspace(-1.2, 1.2, 2401)
    errors = np.array([expected_errors(name, boundary) for boundary in grid])
    assert grid[errors.argmin()] == pytest.approx(0, abs=1e-9)
    assert np.sort(errors)[1] > errors.min()
    # Predicting positives on the right, or one class everywhere, is no better.
    n = sum(count for _, count, *_ in FIGURE1[name])
    assert (n - errors).min() > errors.min()


@pytest.mark.parametrize(
    ("name", "positives", "negatives"),
    [("easy", 250, 250), ("imbalance", 20, 480), ("outlier", 20, 481), ("ambiguous", 250, 250)],
)
@given(seed=SEEDS)
def test_figure1_draws_what_the_caption_says(name: str, positives: int, negatives: int, seed: int) -> None:
    X, y = figure1(name, seed)
    assert X.shape == (positives + negatives, 2)
    assert ((y == 1).sum(), (y == -1).sum()) == (positives, negatives)
    assert np.abs(X).max() <= 1
    at = 0
    for label, count, low, high in FIGURE1[name]:
        block = slice(at, at + count)
        assert (y[block] == label).all()
        assert (X[block, 0] >= low).all()
        assert (X[block, 0] <= high).all()
        at += count
    again, _ = figure1(name, np.random.default_rng(seed))
    np.testing.assert_array_equal(X, again)


def base(seed: int) -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(seed)
    y = np.concatenate([[-1.0, 1.0], rng.choice([-1.0, 1.0], 28, p=[0.6, 0.4])])
    return rng.standard_normal((30, 3)), y, rng


@pytest.mark.parametrize("name", SIMULATIONS)
@given(seed=SEEDS, count=st.integers(0, 1))
def test_contamination_appends_and_keeps(name: str, seed: int, count: int) -> None:
    X, y, rng = base(seed)
    harder, labels = SIMULATIONS[name].contaminate(X, y, count, rng)
    assert harder.shape == (30 + count, 3)
    np.testing.assert_array_equal(harder[:30], X)
    np.testing.assert_array_equal(labels[:30], y)


@given(seed=SEEDS)
def test_outliers_lie_ten_steps_beyond_the_other_class(seed: int) -> None:
    X, y, rng = base(seed)
    harder, labels = outliers(X, y, 20, rng)
    for point, label in zip(harder[30:], labels[30:], strict=True):
        x1 = X[y == label]
        x2 = (point + 9 * x1) / 10  # the other point, for every possible x1
        distances = np.abs(x2[:, None] - X[y == -label][None]).max(axis=2)
        assert distances.min() < 1e-9


@given(seed=SEEDS)
def test_imbalance_and_ambiguity_copy_negatives(seed: int) -> None:
    X, y, rng = base(seed)
    negatives = {tuple(row) for row in X[y == -1]}
    harder, labels = imbalance(X, y, 50, rng)
    assert (labels[30:] == -1).all()
    assert {tuple(row) for row in harder[30:]} <= negatives
    harder, labels = ambiguity(X, y, len(negatives), rng)
    assert (labels[30:] == 1).all()
    assert {tuple(row) for row in harder[30:]} == negatives  # each once


def test_no_negative_is_copied_twice() -> None:
    X, y, rng = base(0)
    with pytest.raises(DataError, match="only"):
        ambiguity(X, y, 31, rng)


@given(count=st.integers(0, 300), sizes=st.lists(st.integers(0, 500), min_size=1, max_size=4).filter(sum))
def test_shares_add_up_and_are_fair(count: int, sizes: list[int]) -> None:
    parts = shares(count, sizes)
    assert sum(parts) == count
    assert all(abs(part - count * size / sum(sizes)) < 1 for part, size in zip(parts, sizes, strict=True))


def test_the_released_descent_is_plain_descent_with_momentum() -> None:
    """Compare with a plain loop over sorted losses, on draws of the ambiguous set."""
    drawn = [figure1("ambiguous", seed) for seed in (0, 1)]
    y, steps = drawn[0][1], 60
    found = {(r["draw"], r["method"]): r for r in _descend(np.stack([X[:, 0] for X, _ in drawn]), y, steps)}
    for draw, (X, _) in enumerate(drawn):
        for method, take in (
            ("average", lambda losses: range(len(losses))),
            ("close", lambda losses: np.argsort(np.abs(losses - np.log(2)))[:10]),
            ("atk", lambda losses: np.argsort(-losses)[:10]),
        ):
            w = v = np.zeros(2)
            for _ in range(steps):
                margins = y * (w[0] * X[:, 0] + w[1])
                chosen = take(np.logaddexp(0, -margins)) if w.any() else range(len(y))  # at zero all are tied
                pull = sum(y[i] / (1 + np.exp(margins[i])) * np.array([X[i, 0], 1.0]) for i in chosen)
                v = MOMENTUM * v + pull
                w = w + RATE * v
            assert found[draw, method]["slope"] == pytest.approx(w[0], rel=1e-6), method
            assert found[draw, method]["boundary"] == pytest.approx(-w[1] / w[0], rel=1e-6), method

"""More than two classes: the top-two margin keeps the paper's Lemma k, the softmax does not; known answers."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_blobs

from closecall import AggregateLossClassifier, CloseKClassifier, Problem, get_loss
from closecall.linear.joint import JointProblems, prepare_joint, solve_joint
from closecall.linear.multiclass import JOINT, individual_losses, threshold_of, top_two_margins
from closecall.solvers.design import make_design

from .joint_twin import value_and_gradient


def family(seed: int, samples: int = 5, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """Return scores (models, samples, classes) of random models, each with its own scale, and the codes."""
    rng = np.random.default_rng(seed)
    scales = np.exp(rng.normal(0, 2, (40, 1, 1)))
    return scales * rng.normal(size=(40, samples, classes)), rng.integers(0, classes, samples)


def close_values(kind: str, loss: str, scores: np.ndarray, codes: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the close-k loss of every model, with one M for all of them, and the errors."""
    losses = [individual_losses(kind, get_loss(loss), model, codes) for model in scores]
    threshold = threshold_of(kind, get_loss(loss))
    wrong = [top_two_margins(model, codes) <= 0 for model in scores]
    M = max(values.max() for values in losses)
    totals = []
    for values, missed in zip(losses, wrong, strict=True):
        nearest = np.argsort(np.abs(values - threshold), kind="stable")
        totals.append(values[nearest[:k]].sum() + M * missed[nearest[k:]].sum())
    return np.array(totals), np.sum(wrong, axis=1)


@pytest.mark.parametrize("loss", ["logistic", "hinge", "squared_hinge"])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_lemma_k_carries_over_to_the_top_two_margin(loss: str, k: int) -> None:
    for seed in range(60):
        scores, codes = family(seed)
        values, errors = close_values("top_two", loss, scores, codes, k)
        assert errors[values.argmin()] <= errors.min() + k - 1


def test_softmax_breaks_lemma_k() -> None:
    """A hesitant model without errors competes with a bold one that makes an error: with k = 1 the first must win."""
    hesitant = 0.01 * np.eye(3)
    bold = np.array([[0.0, 0.01, -9.0], [0.0, 9.0, 0.0], [0.0, 0.0, 9.0]])
    scores, codes = np.stack([hesitant, bold]), np.arange(3)
    for kind, winner in (("top_two", 0), ("softmax", 1)):
        values, errors = close_values(kind, "logistic", scores, codes, 1)
        assert errors.tolist() == [0, 1]
        assert values.argmin() == winner


@pytest.mark.parametrize("kind", JOINT)
def test_the_average_is_that_of_the_slow_twin(kind: str) -> None:
    """test_every_path.py compares the gradients of the twin with differences."""
    rng = np.random.default_rng(0)
    X, codes, mass = rng.normal(size=(20, 3)), np.arange(20) % 3, rng.random(20) + 0.5
    design = make_design(X, -np.ones(20), mass[None], fit_intercept=True, penalize=False, dtype=np.float64)
    problem, C = Problem(alpha=0.7), rng.normal(size=(3, design.rank))
    value, gradient = JointProblems(design, codes, np.zeros(1, dtype=int), [problem], kind).value_and_gradient(0, C)
    expected = value_and_gradient(design, codes, mass, problem, kind, C, float(mass.sum()))
    assert value == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(gradient, expected[1], rtol=1e-9, atol=1e-9)


@pytest.mark.filterwarnings("ignore:.*has not settled")  # the forms are compared wherever they end
def test_two_classes_are_the_binary_problem_in_every_form() -> None:
    X, y = make_blobs(80, centers=2, cluster_std=4, random_state=0)
    models = [CloseKClassifier(multiclass=name).fit(X, y) for name in ("ovr", "top_two", "softmax")]
    for model in models[1:]:
        np.testing.assert_array_equal(model.coef_, models[0].coef_)
        np.testing.assert_array_equal(model.support_, models[0].support_)


@pytest.mark.parametrize("multiclass", ["ovr", "top_two", "softmax"])
def test_outliers_of_three_classes_do_not_turn_close_k(multiclass: str) -> None:
    X, y = make_blobs(300, centers=[[0, 4], [4, -2], [-4, -2]], cluster_std=1.5, random_state=0)
    far = np.tile([[-60.0, 0.0]], (6, 1))  # labelled as the class on the opposite side
    spoiled, labels = np.vstack([X, far]), np.append(y, np.ones(6, dtype=int))
    close = CloseKClassifier(multiclass=multiclass, k=0.3).fit(spoiled, labels)
    average = AggregateLossClassifier(multiclass=multiclass).fit(spoiled, labels)
    assert close.score(X, y) > average.score(X, y) + 0.02
    assert close.coef_.shape == (3, 2)


@pytest.mark.parametrize("kind", JOINT)
@pytest.mark.parametrize("aggregate", ["close", "atk", "top", "trimmed"])
def test_problems_together_are_problems_alone(kind: str, aggregate: str) -> None:
    """Compare the gradients of a batch with those of single problems, which the test above verifies."""
    rng = np.random.default_rng(1)
    X, codes = rng.normal(size=(30, 3)), np.arange(30) % 3
    masses = np.stack([rng.integers(0, 3, 30).astype(float), np.ones(30), rng.random(30) + 0.1])
    design = make_design(X, -np.ones(30), masses, fit_intercept=True, penalize=False, dtype=np.float64)
    problems = [Problem("logistic", aggregate, k=0.4, alpha=a, m=0.2) for a in (0.1, 1.0, 10.0, 1.0)]
    folds = [0, 0, 1, 2]
    steps = JointProblems(design, codes, np.array(folds), problems, kind)
    C = rng.normal(size=(4, 3, design.rank))
    k = np.array([0.4 * masses[fold].sum() for fold in folds]) if aggregate != "trimmed" else masses.sum(axis=1)[folds]
    together = steps.gradients(C, k, np.arange(4)) + steps.shrink * C
    for row, fold in enumerate(folds):
        alone = value_and_gradient(design, codes, masses[fold], problems[row], kind, C[row], k[row])[1]
        np.testing.assert_allclose(together[row], alone, rtol=1e-9, atol=1e-9)


def test_a_step_over_all_examples_lowers_the_objective() -> None:
    """If every example counts and rivals do not change, the majoriser is an upper bound and every step descends."""
    rng = np.random.default_rng(3)
    X, codes, mass = rng.normal(size=(40, 3)), np.arange(40) % 3, np.ones(40)
    design = make_design(X, -mass, mass[None], fit_intercept=True, penalize=False, dtype=np.float64)
    problem = Problem("logistic", "atk", k=40, alpha=1.0)
    steps = JointProblems(design, codes, np.zeros(1, dtype=int), [problem], "softmax")
    for size in (0.01, 1.0, 100.0):
        C = size * rng.normal(size=(1, 3, design.rank))
        after = steps.descend(C, 0, 1, 0.0)[0]
        values = [value_and_gradient(design, codes, mass, problem, "softmax", c, 40.0)[0] for c in (C[0], after[0])]
        assert values[1] < values[0]


@pytest.mark.parametrize("kind", JOINT)
def test_solved_together_is_solved_alone(kind: str) -> None:
    """Problems share the convex first third only within one fold, loss and alpha."""
    rng = np.random.default_rng(2)
    X, codes = rng.normal(size=(60, 3)), np.arange(60) % 3
    X[np.arange(60), codes] += 1
    design = prepare_joint(X, codes, np.stack([np.ones(60), rng.random(60)]), fit_intercept=True,
                           penalize_intercept=False, dtype=np.float64)  # fmt: skip
    problems = [Problem("logistic", "close_decay", k=k, alpha=alpha) for k in (0.3, 0.6) for alpha in (0.1, 10.0)]
    folds = np.array([0, 0, 1, 1])
    how: dict[str, Any] = {"kind": kind, "max_iter": 31, "tol": 1e-6, "init": "zeros", "certify": False}
    together = solve_joint(design, codes, problems, folds, **how)
    for row, problem in enumerate(problems):
        alone = solve_joint(design, codes, [problem], folds[row : row + 1], **how)
        np.testing.assert_allclose(together[0][row], alone[0][0], rtol=1e-6, atol=1e-9)
        average = solve_joint(design, codes, [replace(problem, k=1.0)], folds[row : row + 1], **how)
        assert np.abs(average[0] - alone[0]).max() > 0.01 * np.abs(average[0]).max()  # k matters without a certificate


@pytest.mark.parametrize("name", ["atk", "maximal"])
def test_a_few_outliers_do_not_throw_joint_steps_ever_further(name: str) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1000, 5))
    X[:10] *= 30
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=1000), [-0.5, 0.5])
    model = AggregateLossClassifier(aggregate=name, loss="squared_hinge", multiclass="top_two", k=5).fit(X, y)
    assert np.isfinite(model.coef_).all()
    assert np.abs(X @ model.coef_.T + model.intercept_).max() < 100

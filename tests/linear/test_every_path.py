"""Every aggregate x loss x form of classes x way of computing against the definition, at random parameters.

The definition is written down here once more, with derivatives by differences; no path's own helper is used.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from sklearn.datasets import make_blobs
from sklearn.linear_model import LogisticRegression

from closecall import AggregateLossClassifier, CloseKClassifierCV
from closecall.aggregates import AGGREGATES, Aggregate, spectrum, take_smallest
from closecall.linear.joint import JointProblems, prepare_joint
from closecall.losses import LOSSES
from closecall.objective import Problem, values_and_gradients
from closecall.solvers import compiled
from closecall.solvers.steps import Descent, Rows
from closecall.solvers.sweep import prepare

from ..family_twins import MEMBERS
from .joint_twin import value_and_gradient

N, D, CLASSES = 40, 3, 3
OWN, SPECTRUM = "my_middle", "my_spectrum"


@pytest.fixture(autouse=True)
def own_aggregate() -> Iterator[None]:
    """Register two new aggregates: from k / 2 to 3 / 4 of the mass by the smallest losses, and a spectrum."""

    def weigh(losses: np.ndarray, mass: np.ndarray, threshold: float, k: np.ndarray, m: np.ndarray) -> np.ndarray:
        return take_smallest(losses, mass, 0.75 * mass.sum()) - take_smallest(losses, mass, k / 2)

    AGGREGATES[OWN] = Aggregate(OWN, weigh, ("k",))
    AGGREGATES[SPECTRUM] = spectrum(SPECTRUM, lambda u: np.sin(u * np.pi / 2), convex=True)
    yield
    del AGGREGATES[OWN], AGGREGATES[SPECTRUM]


def problem(loss: str, name: str) -> Problem:
    takes = AGGREGATES[name].takes
    return Problem(loss, name, 14 if "k" in takes else None, 0.7, 4 if "m" in takes else None)


def masses(kind: str) -> np.ndarray:
    rng = np.random.default_rng(3)
    return {"ones": np.ones(N), "fold": (np.arange(N) % 5 > 0) * 1.0, "any": rng.random(N) + 0.5}[kind]


def by_definition(losses_of: Callable[[float], np.ndarray], item: Problem, mass: np.ndarray, threshold: float) -> float:
    """Return the derivative of ``weights . losses`` along a line, with fixed weights, given ``losses_of(t)``."""
    inside = mass > 0
    weights = AGGREGATES[item.aggregate].weights(
        losses_of(0.0)[inside], threshold=threshold, k=item.k, m=item.m, mass=mass[inside]
    )
    change = (losses_of(1e-6) - losses_of(-1e-6))[inside] / 2e-6
    return float(weights @ change)


def binary() -> tuple[np.ndarray, np.ndarray, np.random.Generator]:
    rng = np.random.default_rng(5)
    return rng.normal(size=(N, D)), np.where(rng.random(N) < 0.5, 1.0, -1.0), rng


@pytest.mark.parametrize("kind", ["ones", "fold", "any"])
@pytest.mark.parametrize("loss", sorted(LOSSES))
@pytest.mark.parametrize("name", [*sorted(AGGREGATES), *MEMBERS, OWN, SPECTRUM])
def test_two_classes(name: str, loss: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, rng = binary()
    item, mass = problem(loss, name), masses(kind)
    ready = prepare(X, y, mass[None], fit_intercept=True, penalize_intercept=False, dtype=np.float64)
    design = ready.design
    (w, v), (b, e) = rng.normal(size=(2, D)), rng.normal(size=2)
    c, along = (design.to_coordinates(p[None], np.array([q]))[0] for p, q in ((w, b), (v, e)))
    known = LOSSES[loss]
    expected = by_definition(
        lambda t: known.value(y * (X @ (w + t * v) + b + t * e)), item, mass, known.threshold
    )  # fmt: skip
    found = {"compiled or twin": stepping(ready, item, c)}
    monkeypatch.setattr(compiled, "serves", lambda design, codes, m, masses: np.zeros(len(m), dtype=bool))
    found["twin"] = stepping(ready, item, c)
    for way, gradient in found.items():
        assert gradient @ along == pytest.approx(expected, rel=2e-5, abs=1e-7), way
    if kind != "fold":
        slow = values_and_gradients([item], w[None], np.array([b]), X, y, mass=mass)
        assert (slow[1][0] - 0.7 * w) @ v + slow[2][0] * e == pytest.approx(expected, rel=2e-5, abs=1e-7)


def stepping(ready: Any, item: Problem, c: np.ndarray) -> np.ndarray:
    """Return the gradient of a step of the batched solver, without the penalty."""
    k, m = AGGREGATES[item.aggregate].counts(item.k, item.m, ready.masses[0].total)
    rows = Rows(*(np.array([part]) for part in (item.loss, item.aggregate, 0, k, m, item.alpha, 1)))
    walk = Descent(ready.design, rows, ready.masses, c[None], 3, 8, 8)
    walk.k = np.array([k])
    return walk.gradients()[0]


@pytest.mark.parametrize("kind", ["ones", "any"])
@pytest.mark.parametrize(("form", "loss"), [*(("top_two", loss) for loss in sorted(LOSSES)), ("softmax", "logistic")])
@pytest.mark.parametrize("name", [*sorted(AGGREGATES), *MEMBERS, OWN, SPECTRUM])
def test_many_classes(name: str, form: str, loss: str, kind: str) -> None:
    rng = np.random.default_rng(6)
    X, codes, mass = rng.normal(size=(N, D)), rng.integers(0, CLASSES, N), masses(kind)
    item, known = problem(loss, name), LOSSES[loss]
    design = prepare_joint(X, codes, mass[None], fit_intercept=True, penalize_intercept=False, dtype=np.float64)
    W, V = rng.normal(size=(2, CLASSES, D + 1))
    C, along = (design.to_coordinates(part[:, :D], part[:, D]) for part in (W, V))

    def losses(t: float) -> np.ndarray:
        scores = X @ (W + t * V)[:, :D].T + (W + t * V)[:, D]
        own = scores[np.arange(N), codes]
        if form == "softmax":
            return logsumexp(scores, axis=1) - own
        scores[np.arange(N), codes] = -np.inf
        return known.value(own - scores.max(axis=1))

    expected = by_definition(losses, item, mass, np.log(2) if form == "softmax" else known.threshold)
    k = AGGREGATES[name].counts(item.k, item.m, float(mass.sum()))[0]
    steps = JointProblems(design, codes, np.zeros(1, dtype=int), [item], form)
    shrink = 0.7 * design.penalized * C
    found = {
        "steps": steps.gradients(C[None], np.array([k]), np.array([0]))[0],
        "slow twin": value_and_gradient(design, codes, mass, item, form, C, k)[1] - shrink,
    }
    for way, gradient in found.items():
        assert (gradient * along).sum() == pytest.approx(expected, rel=2e-5, abs=1e-7), way


@pytest.mark.parametrize("weighted", [False, True])
def test_softmax_average_is_multinomial_logistic_regression(weighted: bool) -> None:
    X, y = make_blobs(120, centers=4, n_features=3, cluster_std=5.0, random_state=2)
    mass = np.random.default_rng(0).random(120) + 0.2 if weighted else np.ones(120)
    for alpha in (0.1, 10.0):
        mine = AggregateLossClassifier(multiclass="softmax", alpha=alpha).fit(X, y, sample_weight=mass)
        peer = LogisticRegression(C=1 / alpha, solver="newton-cg", tol=1e-10, max_iter=5000).fit(X, y, mass)
        values = []
        for model in (mine, peer):
            scores = X @ model.coef_.T + model.intercept_
            losses = logsumexp(scores, axis=1) - scores[np.arange(120), y]
            values.append(mass @ losses + alpha / 2 * (model.coef_**2).sum())
        assert values[0] <= values[1] * (1 + 1e-4)
        assert values[0] * (1 - mine.gap_[0]) <= values[1]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("form", ["ovr", "top_two"])
def test_noise_of_three_classes_is_rarely_taken_for_a_gain(form: str) -> None:
    taken = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        model = CloseKClassifierCV(multiclass=form, alphas=(0.1, 10.0), ks=(0.1, 0.4), max_iter=24, cv=3, refit=False)
        model.fit(rng.normal(size=(90, 8)), rng.permutation(np.arange(90) % 3))
        taken += any(outcome["taken"] for outcome in model.guard_report_["comparisons"])
    assert taken <= 2

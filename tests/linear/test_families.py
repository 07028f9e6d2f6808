"""Members of the families in the solvers, the classifiers and the searches, compared with minima by SciPy."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp
from sklearn.datasets import make_classification

from closecall import AggregateLossClassifier, AggregateLossClassifierCV
from closecall.aggregates import AGGREGATES, spectrum
from closecall.families import FAMILIES
from closecall.objective import Problem
from closecall.solvers import solve

X, LABELS = make_classification(120, n_features=4, flip_y=0.15, random_state=3)
Y = np.where(LABELS == 1, 1.0, -1.0)
ALPHA = 0.8


@pytest.mark.parametrize("seed", range(6))
def test_smooth_members_settle_at_far_outliers_and_small_penalties(seed: int) -> None:
    """Convex and smooth; updating fixed weights in turn converges slowly and once ended 5 % above the minimum."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(60, 6))
    y = np.where(Z @ rng.normal(size=6) + rng.normal(size=60) > 0, 1.0, -1.0)
    Z[:2] *= 10
    names = ["tilted(2)", "tilted(4)", "superquantile(0.8,0.1)"]
    found = solve(Z, y, [Problem("logistic", name, alpha=0.1) for name in names], max_iter=300, settle=300)
    assert found.converged.all()

    def objective(w: np.ndarray) -> float:
        return tilted(2.0)(np.logaddexp(0, -y * (Z @ w[:-1] + w[-1]))) + 0.05 * float(w[:-1] @ w[:-1])

    best = minimize(objective, np.zeros(7), method="BFGS", options={"gtol": 1e-6}).fun
    assert objective(np.append(found.coef[0], found.intercept[0])) == pytest.approx(best, rel=1e-3)


Value = Callable[[np.ndarray], float]
EXPONENTIAL = "exponential"


@pytest.fixture
def exponential() -> Iterator[None]:
    """A custom spectrum: the largest losses have the largest weights, which fall by exp(-2) over the ranks."""
    AGGREGATES[EXPONENTIAL] = spectrum(EXPONENTIAL, lambda u: np.expm1(-2 * u) / np.expm1(-2.0), convex=True)
    yield
    del AGGREGATES[EXPONENTIAL]


def tilted(t: float) -> Value:
    return lambda losses: float(len(losses) / t * (logsumexp(t * losses) - np.log(len(losses))))


def smoothed(losses: np.ndarray) -> float:
    """superquantile(0.6, 0.5) by its dual: the weights' level is a root that SciPy finds."""

    def weights(level: float) -> np.ndarray:
        return np.clip(1 + (losses - level) / 0.5, 0, 2.5)

    level = brentq(lambda at: weights(at).sum() - len(losses), losses.min() - 2, losses.max() + 1, xtol=1e-13)
    found = weights(level)
    return float(found @ losses - 0.25 * np.square(found - 1).sum())


def ranked(losses: np.ndarray) -> float:
    """The spectrum by sorted ranks, one weight for each."""
    ends = np.exp(-2 * np.arange(len(losses) + 1) / len(losses))
    return float(len(losses) * (ends[:-1] - ends[1:]) / (1 - np.exp(-2.0)) @ -np.sort(-losses))


def felt(losses: np.ndarray) -> float:
    """human(0.4, 0.3): Leqi et al.'s polynomial of the distribution function, by sorted ranks."""
    F = np.arange(len(losses) + 1) / len(losses)
    cumulative = 3 * 0.7 / (0.16 - 0.4 + 1) * (F**3 - 1.4 * F**2 + 0.4 * F) + F
    return float(len(losses) * np.diff(cumulative) @ np.sort(losses))


def objective_of(value: Value) -> Value:
    return lambda w: value(np.logaddexp(0, -Y * (X @ w[:-1] + w[-1]))) + ALPHA / 2 * float(w[:-1] @ w[:-1])


CASES: dict[str, Value] = {
    **{f"tilted({t:g})": tilted(t) for t in (-1.0, 0.5, 2.0)},
    "superquantile(0.6,0.5)": smoothed,
    EXPONENTIAL: ranked,
    "human(0.4,0.3)": felt,
}


@pytest.mark.usefixtures("exponential")
@pytest.mark.parametrize("name", CASES)
def test_members_reach_the_minimum_that_scipy_finds(name: str) -> None:
    """Test the solver and the classifier; for the human-aligned risk, SciPy continues from the solver's result."""
    value = objective_of(CASES[name])
    model = AggregateLossClassifier(aggregate=name, alpha=ALPHA, max_iter=400, tol=1e-4).fit(X, LABELS)
    solved = solve(X, Y, [Problem("logistic", name, alpha=ALPHA)], max_iter=400, settle=400, tol=1e-5)
    ends = np.append(solved.coef[0], solved.intercept), np.append(model.coef_[0], model.intercept_)
    start = ends[0] if name.startswith("human") else np.zeros(5)
    best = minimize(value, start, method="Nelder-Mead", options={"maxfev": 4000, "xatol": 1e-7, "fatol": 1e-9})
    for end, rel in zip(ends, (1e-5, 2e-4), strict=True):
        assert value(end) == pytest.approx(best.fun, rel=rel)
    assert solved.converged[0] or name.startswith("human")
    assert model.support_.size == 120 or not name.startswith("tilted")  # every loss counts
    assert solved.objective[0] == pytest.approx(value(ends[0]), rel=1e-9), "the reported objective is the definition's"


@pytest.mark.usefixtures("exponential")
def test_a_search_tries_every_member_of_a_family() -> None:
    aggregates = ["tilted", "human(0.4,0.3)", EXPONENTIAL]
    model = AggregateLossClassifierCV(aggregate=aggregates, alphas=[0.1, 10.0], cv=3, guard=0.0, max_iter=60)
    model.fit(X, LABELS)
    tried = set(model.cv_results_["param_aggregate"])
    assert {*FAMILIES["tilted"].grid, *aggregates[1:], "average"} == tried
    assert model.aggregate_ in tried
    assert model.score(X, LABELS) > 0.7

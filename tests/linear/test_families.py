"""Members of the families in the solvers, the classifiers and the searches; SciPy judges the minima."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp
from sklearn.datasets import make_classification

from closecall import AggregateLossClassifier, AggregateLossClassifierCV
from closecall.families import FAMILIES
from closecall.objective import Problem
from closecall.solvers import solve

X, LABELS = make_classification(120, n_features=4, flip_y=0.15, random_state=3)
Y = np.where(LABELS == 1, 1.0, -1.0)
ALPHA = 0.8


def tilted_by_scipy(t: float) -> float:
    """The least n / t * log(mean(exp(t * loss))) of the logistic loss, by differences alone."""

    def value(w: np.ndarray) -> float:
        losses = np.logaddexp(0, -Y * (X @ w[:-1] + w[-1]))
        return len(Y) / t * (logsumexp(t * losses) - np.log(len(Y))) + ALPHA / 2 * w[:-1] @ w[:-1]

    return float(minimize(value, np.zeros(5), method="BFGS", options={"gtol": 1e-6}).fun)


@pytest.mark.parametrize("t", [-1.0, 0.5, 2.0])
def test_tilted_reaches_the_minimum_that_scipy_finds(t: float) -> None:
    found = solve(X, Y, [Problem("logistic", f"tilted({t:g})", alpha=ALPHA)], max_iter=400, settle=400, tol=1e-5)
    assert found.objective[0] == pytest.approx(tilted_by_scipy(t), rel=1e-5)
    assert found.converged[0]


def test_a_smoothed_superquantile_tends_to_atk() -> None:
    """Narrow smoothing is average top-k of the same share, times n / k: the same solution for alpha times k / n."""
    narrow = solve(X, Y, [Problem("logistic", "superquantile(0.6,0.001)", alpha=ALPHA)], max_iter=500, settle=500)
    atk = solve(X, Y, [Problem("logistic", "atk", 0.4, ALPHA * 0.4)], max_iter=500, settle=500)
    assert narrow.objective[0] == pytest.approx(atk.objective[0] / 0.4, rel=2e-3)


def test_a_search_tries_every_member_of_a_family() -> None:
    model = AggregateLossClassifierCV(
        aggregate=["tilted", "human(0.4,0.3)"], alphas=[1.0], cv=3, guard=0.0, max_iter=40
    )
    model.fit(X, LABELS)
    tried = set(model.cv_results_["param_aggregate"])
    assert {*FAMILIES["tilted"].grid, "human(0.4,0.3)", "average"} <= tried
    assert model.aggregate_ in tried
    assert model.predict(X).shape == (120,)


@pytest.mark.parametrize("multiclass", ["ovr", "top_two"])
def test_three_classes(multiclass: str) -> None:
    rows, codes = make_classification(150, n_features=5, n_informative=3, n_classes=3, random_state=1)
    model = AggregateLossClassifier(aggregate="tilted(1)", multiclass=multiclass, tol=1e-3).fit(rows, codes)
    assert model.score(rows, codes) > 0.6
    assert model.support_.size == 150  # every loss counts


def test_a_family_alone_is_refused_by_a_single_fit() -> None:
    with pytest.raises(ValueError, match="'tilted' is a family of aggregates; name a member"):
        AggregateLossClassifier(aggregate="tilted").fit(X, LABELS)

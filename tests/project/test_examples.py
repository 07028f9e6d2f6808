"""The exact minimisers of each aggregate on the paper's Examples 1 and 2, with alpha = 0.

Convex aggregates (average, atk) are minimised exactly: the hinge loss by a linear programme, the logistic loss by a
convex solver whose optimum is certified by a subgradient. Close-k is minimised over a fine grid of (w, b).
"""

import numpy as np
import pytest
from scipy.optimize import linprog, minimize, minimize_scalar

from closecall.losses import get_loss
from closecall.objective import Problem, aggregate_value
from closecall.theory import best_intercept, minimum_errors

# --- Example 1: n at -1, n at +1, and two far outliers ---------------------------------------------------------------

FAR = 100.0


def example_1(n):
    """Return distinct points, labels and masses."""
    return np.array([-1.0, 1.0, FAR, -FAR]), np.array([-1, 1, -1, 1]), np.array([n, n, 1.0, 1.0])


def errors_of(w, b, x, y, mass):
    return float(mass[y * (w * x + b) <= 0].sum())


def atk_value(loss, k, w, b, x, y, mass):
    return aggregate_value(Problem(loss, "atk", alpha=0), y * (w * x + b), mass=mass, k=k)


def minimise_atk_hinge(x, y, mass, k):
    """Minimise ``k t + sum(mass * excess)`` over w, b, t, losses and excesses >= loss - t (Ogryczak & Tamir 2003)."""
    n = len(x)
    eye, none = np.eye(n), np.zeros((n, n))
    column = np.ones((n, 1))
    loss_rows = np.hstack([-(y * x)[:, None], -y[:, None], 0 * column, -eye, none])
    excess_rows = np.hstack([0 * column, 0 * column, -column, eye, -eye])
    result = linprog(
        np.concatenate([[0, 0, k], np.zeros(n), mass]),
        A_ub=np.vstack([loss_rows, excess_rows]),
        b_ub=np.append(-np.ones(n), np.zeros(n)),
        bounds=[(None, None)] * 3 + [(0, None)] * (2 * n),
    )
    assert result.status == 0
    return result.x[0], result.x[1], result.fun


def minimise_average_logistic(x, y, mass):
    loss = get_loss("logistic")

    def value_and_gradient(theta):
        margins = y * (theta[0] * x + theta[1])
        pull = mass * loss.slope(margins) * y
        return float(mass @ loss.value(margins)), np.array([pull @ x, pull.sum()])

    result = minimize(value_and_gradient, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-7})
    assert np.abs(result.jac).max() < 1e-4 * (mass @ np.abs(x))
    return result.x


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("n", [3, 8])
def test_close_makes_two_errors_for_every_k_up_to_n(loss, n):
    x, y, mass = example_1(n)
    # Powers of two make 1 + b and 1 - b exact, so hinge losses at the same distance from T are tied.
    weights, offsets = [0.0, *2.0 ** np.arange(-9, 4)], [0.0, *2.0 ** np.arange(-9, 10)]
    grid = [(s * w, t * b) for w in weights for b in offsets for s in (1, -1) for t in (1, -1)]
    margins = np.array([y * (w * x + b) for w, b in grid])
    constant = float(get_loss(loss).value(margins).max())
    for k in range(1, n + 1):
        problem = Problem(loss, "close", k=k, alpha=0)
        values = np.array([aggregate_value(problem, row, mass=mass, constant=constant) for row in margins])
        tied = np.flatnonzero(values <= values.min() + 1e-9)
        assert {errors_of(*grid[i], x, y, mass) for i in tied} == {2.0}
    assert minimum_errors(x[:, None], y, mass).errors == 2


@pytest.mark.parametrize("n", [3, 8])
def test_average_and_atk_past_2n_flip_the_boundary(n):
    """The outliers determine the boundary: all other 2n points are misclassified. With k = 2n + 2, atk is average."""
    x, y, mass = example_1(n)
    for k in (2 * n + 1, 2 * n + 1.5, 2 * n + 2):
        w, b, value = minimise_atk_hinge(x, y, mass, k)
        assert value == pytest.approx(atk_value("hinge", k, w, b, x, y, mass))
        assert errors_of(w, b, x, y, mass) == 2 * n
        # Mirroring x and y changes b to -b but not the value, so this convex function has a minimum at b = 0.
        w = minimize_scalar(lambda w, k=k: atk_value("logistic", k, w, 0.0, x, y, mass), bounds=(-1, 1)).x
        assert atk_value("logistic", k, w, 0.0, x, y, mass) < atk_value("logistic", k, 0.0, 0.0, x, y, mass)
        assert errors_of(w, 0.0, x, y, mass) == 2 * n


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("n", [3, 8])
def test_atk_up_to_2n_stays_at_zero(loss, n):
    """At w = b = 0 all losses tie: weights with a share of k / (FAR + 1) on the outliers give a subgradient of zero."""
    x, y, mass = example_1(n)
    slope = get_loss(loss).slope(np.zeros(4))
    rng = np.random.default_rng(n)
    for k in range(1, 2 * n + 1):
        outliers = k / (FAR + 1) / 2
        weights = np.array([k / 2 - outliers, k / 2 - outliers, outliers, outliers])
        assert (weights > 0).all()
        assert (weights < mass).all()  # strictly inside: zero is the only minimiser
        assert weights.sum() == pytest.approx(k)
        assert (weights * slope * y) @ np.column_stack([x, np.ones(4)]) == pytest.approx([0, 0], abs=1e-12)
        at_zero = atk_value(loss, k, 0.0, 0.0, x, y, mass)
        assert at_zero == pytest.approx(k * get_loss(loss).threshold)
        for w, b in rng.normal(size=(20, 2)) * [[0.1, 1.0]]:
            assert atk_value(loss, k, w, b, x, y, mass) > at_zero
        if loss == "hinge":
            assert minimise_atk_hinge(x, y, mass, k) == pytest.approx((0, 0, k), abs=1e-9)
    assert errors_of(0.0, 0.0, x, y, mass) == 2 * n + 2


# --- Example 2: negatives on [-1, 1], positives on [0, 1] -----------------------------------------------------------


def example_2(n):
    """Return evenly spaced points instead of random ones: n of each label, with n even."""
    middles = (np.arange(n) + 0.5) / n
    return np.concatenate([2 * middles - 1, middles]), np.repeat([-1, 1], n)


def test_the_best_accuracy_is_three_quarters():
    n = 1000
    x, y = example_2(n)
    best = minimum_errors(x[:, None], y)
    assert (best.errors, best.proven) == (n / 2, True)
    assert best_intercept(x, y)[1] == n / 2
    # The paper's text predicts positive for x < 0, which is right for only one point in four.
    assert np.mean(y * x > 0) == 0.75
    assert np.mean(y * -x > 0) == 0.25


def test_average_logistic_reaches_about_68_percent():
    x, y = example_2(1000)
    w, b = minimise_average_logistic(x, y, np.ones(2000))
    accuracy = np.mean(y * (w * x + b) > 0)
    assert accuracy == pytest.approx(0.68, abs=0.005)
    assert w > 0
    # Check the minimum without a solver: no point of a grid around it has a lower value.
    problem = Problem("logistic", alpha=0)
    least = aggregate_value(problem, y * (w * x + b))
    for dw in (-0.1, 0, 0.1):
        for db in (-0.1, 0, 0.1):
            assert aggregate_value(problem, y * ((w + dw) * x + b + db)) >= least


def test_close_reaches_the_optimum():
    """Over thresholds at several scales, close-1 reaches the optimum and close-k is within the k - 1 of Lemma k."""
    n = 40
    x, y = example_2(n)
    cuts = np.linspace(-1, 1, 81)
    family = np.array([y * scale * (x - cut) for cut in cuts for scale in (-5, -1, 1, 5)])
    errors = (family <= 0).sum(axis=1)
    constant = float(get_loss("logistic").value(family).max())
    for k in (1, 4, 10):
        problem = Problem("logistic", "close", k=k, alpha=0)
        values = [aggregate_value(problem, margins, constant=constant) for margins in family]
        excess = errors[np.argmin(values)] - n / 2
        assert excess == 0 if k == 1 else 0 <= excess <= k - 1

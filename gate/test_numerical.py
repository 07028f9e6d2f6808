"""Numbers that break numerical code: a few seeds of every attack, and every weakness found so far."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from closecall import AggregateLossClassifierCV, CloseKClassifier, diagnose
from closecall.losses import LOSSES
from closecall.network import ResidualMLPClassifier
from closecall.objective import Problem
from closecall.solvers import solve
from closecall.theory import best_intercept, minimum_errors
from gate.torture import ATTACKS, outcome
from gate.torture_numbers import FORMS, VALUES, draw

#: Few steps are enough: the tests are about failures, not about convergence.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

#: Seeds of each attack; gate/torture.py uses others.
SEEDS = {
    "solve": 8, "solve against reference": 12, "classifiers": 45, "prediction": 12, "diagnose": 6, "theory": 60,
    "torch losses": 150,
}  # fmt: skip
#: Forms with exactly the same numbers as the plain one.
EXACT = set(FORMS) - {"int64", "uint8", "bool", "float16", "float32"}


@pytest.mark.parametrize("name", ATTACKS)
def test_nothing_breaks(name: str) -> None:
    count = SEEDS.get(name, 25)
    found = [outcome(ATTACKS[name], seed) for seed in range(count)]
    assert set(found) <= {"ok", "refused"}
    assert found.count("ok") >= count // 3


def test_the_form_does_not_matter() -> None:
    """Objectives of convex problems differ by at most 0.1 %: sparse matrices are solved in other coordinates."""
    plain = draw(0, values="normal", form="C", weight="none")
    problems = [Problem(loss) for loss in LOSSES if LOSSES[loss].convex]
    expected = solve(plain.X, plain.y, problems, max_iter=2000, tol=1e-5).objective
    for form in sorted(EXACT):
        X = draw(0, values="normal", form=form, weight="none").X
        np.testing.assert_array_equal(X.toarray() if sparse.issparse(X) else np.asarray(X), plain.X)
        np.testing.assert_allclose(solve(X, plain.y, problems, max_iter=2000, tol=1e-5).objective, expected, rtol=1e-3)
    assert draw(1, form="big-endian").X.dtype.byteorder == ">"
    assert not draw(1, form="memory map").X.flags.writeable
    assert len({draw(seed).name.split("/")[1] for seed in range(200)}) == len(VALUES)


X = np.random.default_rng(0).normal(size=(12, 3))
Y = np.where(np.arange(12) % 2, 1.0, -1.0)
ONES = np.ones(12)
WEAKNESSES: dict[str, Callable[[], Any]] = {
    "the squares of denormals are zero": lambda: solve(X * 5e-324, Y, [Problem()]).coef,
    "beyond float32 in a float32 search": lambda: (
        AggregateLossClassifierCV(alphas=(1.0,), cv=2, max_iter=10).fit(X * 1e30, Y).coef_
    ),
    "float32 at its end": lambda: CloseKClassifier(max_iter=10).fit((X * 1e30).astype(np.float32), Y).coef_,
    "uneven weights": lambda: CloseKClassifier(max_iter=10).fit(X, Y, 10.0 ** np.linspace(-30, 30, 12)).coef_,
    "a constant column whose computed variance is negative": lambda: (
        diagnose(X * 0 + 0.1, Y, 1e30 / np.arange(1, 13)).gain
    ),
    "tiny coefficients have a norm": lambda: (
        CloseKClassifier(max_iter=10, alpha=1e30).fit(X * 1e-150, Y).boundary_distance(X * 1e-150)
    ),
}


@pytest.mark.parametrize("name", WEAKNESSES)
@pytest.mark.filterwarnings("ignore:.*did not converge")
def test_found_once_and_mended(name: str) -> None:
    assert not np.isnan(WEAKNESSES[name]()).any()


REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "huge features": (lambda: CloseKClassifier().fit(X * 1e200, Y), "scale the features"),
    "huge weights": (lambda: CloseKClassifier().fit(X, Y, ONES * 1e300), "rescale the weights"),
    "denormal weights": (lambda: CloseKClassifier().fit(X, Y, ONES * 5e-324), "rescale the weights"),
    "huge features, solver": (lambda: solve(X * 1e200, Y, [Problem()]), "scale the features"),
    "scores that overflow": (
        lambda: CloseKClassifier(max_iter=10, alpha=1e-9).fit(X * 1e-3, Y).predict(np.full((1, 3), 1.7e308)),
        "scale the features as in training",
    ),
    "a column of denormals": (lambda: minimum_errors([[0.0], [5e-324], [1e-323]], [-1, 1, -1]), "almost constant"),
    "scores at the end of the floats": (lambda: best_intercept([-1.7e308, 1.7e308], [-1, 1]), "rescale them"),
    "masses that overflow": (lambda: minimum_errors([[0.0], [1.0]], [-1, 1], [1.7e308] * 2), "rescale them"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_with_advice(name: str) -> None:
    attempt_it, advice = REFUSALS[name]
    with pytest.raises((ValueError, FloatingPointError), match=advice):
        attempt_it()


def test_input_is_never_changed() -> None:
    given_X, given_y, weight = X.copy(), Y.copy(), ONES.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        CloseKClassifier(max_iter=10).fit(given_X, given_y, weight).predict(given_X)
        solve(given_X, given_y, [Problem()], sample_weight=weight)
    np.testing.assert_array_equal(given_X, X)
    np.testing.assert_array_equal(given_y, Y)
    np.testing.assert_array_equal(weight, ONES)


#: Features in float32 and weights that are within the documented range, but whose products overflow float32.
_SOLVED = """
import sys
import numpy as np
from closecall import AggregateLossClassifierCV, CloseKClassifier
for size, weight in (1e14, 1e13), (1.0, 1e40), (1e30, 1e100):
    print(size, weight, file=sys.stderr)
    rng = np.random.default_rng(0)
    X = (size * rng.normal(size=(60, 3))).astype(np.float32)
    y = (X[:, 0] + size * rng.normal(size=60) > 0).astype(int)
    mass = weight * rng.uniform(0.5, 1, 60)
    for make in (AggregateLossClassifierCV, CloseKClassifier):
        for labels in (y, y + (X[:, 1] > 0)):
            folds = {"cv": 2} if make is AggregateLossClassifierCV else {}
            model = make(max_iter=30, multiclass="top_two", **folds).fit(X, labels, sample_weight=mass)
            assert np.isfinite(model.coef_).all()
            assert model.score(X, labels) > 0.6
"""


def test_products_beyond_float32_are_solved_in_float64() -> None:
    """Use another process: LAPACK did not return from the infinities that these products become in float32."""
    command = [sys.executable, "-c", _SOLVED]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, done.stderr  # the last pair printed is the one that failed


@pytest.mark.parametrize("size", [1.0, 1e9, 1e25])
def test_the_unit_of_top_is_not_rounded_away(size: float) -> None:
    import torch

    from closecall.nn.functional import weights

    for dtype in (torch.float32, torch.float64):
        losses = torch.tensor([1.0, 2.0, 3.0], dtype=dtype)
        found = weights("top", losses, k=0.5, mass=torch.full((3,), size, dtype=dtype))
        assert found.tolist() == pytest.approx([0, 1, 0])


def test_networks_refuse_weights_and_scores_that_overflow() -> None:
    X, y = np.random.default_rng(0).normal(size=(8, 2)), np.arange(8) % 2
    model = ResidualMLPClassifier(hidden=2, max_iter=3, random_state=0)
    for size in (5e-324, 1e300):
        with pytest.raises(ValueError, match="rescale the weights"):
            model.fit(X, y, np.full(8, size))
    model.fit(X, y).network_.parameters.values[:] *= 100
    with pytest.raises(ValueError, match="scale the features"):
        model.predict(np.full((1, 2), 1.7e308))

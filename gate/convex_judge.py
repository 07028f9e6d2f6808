"""Random convex problems, compared with optima found by code that shares nothing with the solver.

A case is drawn from its number: sizes, scales, collinear, discrete and Cauchy features, labels, weights, folds, starts,
intercepts, and one to thirty problems with any mix of convex losses and alphas. One problem in 25 is `atk` or `maximal`
instead of an average, and one case in four is sparse. Each problem must have an objective within 1e-4 (relative) of the
best that scikit-learn and SciPy find, or report that it has not converged; and the lower bound that its gap implies
must not exceed that best objective.

    python -m gate.convex_judge --problems 100000
"""

import argparse
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from closecall.losses import get_loss
from closecall.objective import Problem
from closecall.solvers import solve

LOSSES, OFTEN = ("logistic", "hinge", "squared_hinge", "modified_huber"), (0.52, 0.4, 0.04, 0.04)
#: The shares of problems with `atk` and `maximal`, which take longer to judge.
LARGEST = {"atk": 0.03, "maximal": 0.01}
WITHIN = 1e-4
#: The steps that a fit of `CloseKClassifier` may use to settle.
SETTLE = 300
Part = Callable[[np.ndarray], np.ndarray]
SPARSE = 4  # one case in four


def features(rng: np.random.Generator) -> np.ndarray:
    """Return a matrix, usually (6 to 60, 1 to 14), that is difficult in some way."""
    n, d = int(rng.integers(6, 61)), int(rng.integers(1, 15))
    X = rng.standard_normal((n, d))
    kind = rng.integers(7)
    if kind == 1:
        X = X * 10.0 ** rng.uniform(-3, 6, d) + rng.choice([0.0, 100.0]) * rng.standard_normal(d)
    if kind == 2:
        X = rng.standard_cauchy((n, d))
    if kind == 3 and d > 1:
        X[:, -1] = X[:, 0] + rng.choice([0.0, 1e-8, 1e-3]) * X[:, -1]
    if kind == 4:
        X = rng.integers(0, 3, (n, d)).astype(float)
    if kind == 5:  # wide
        X = rng.standard_normal((int(rng.integers(6, 20)), int(rng.integers(20, 40))))
    if kind == 6:
        X = X @ rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-4, 6)
    return X


def labels(rng: np.random.Generator, X: np.ndarray) -> np.ndarray:
    """Return labels from a plane without noise, with noise or with almost only noise; rows 0 to 3 have both classes."""
    score = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12) @ rng.standard_normal(X.shape[1])
    noise = rng.choice([0.0, 1.0, 1e3]) * np.abs(score).mean()
    y = np.where(score + noise * rng.standard_normal(len(X)) > 0, 1.0, -1.0)
    y[:4] = 1, -1, 1, -1
    return y


def draw_problem(rng: np.random.Generator) -> Problem:
    name = str(rng.choice(["average", *LARGEST], p=[1 - sum(LARGEST.values()), *LARGEST.values()]))
    k = float(rng.uniform(0.02, 1)) if name == "atk" else None
    return Problem(str(rng.choice(LOSSES, p=OFTEN)), name, k, float(10.0 ** rng.uniform(-5, 4)))


def draw(case: int) -> dict[str, Any]:
    """Return the arguments of ``solve`` for a case."""
    rng = np.random.default_rng([2024, case])
    X = features(rng)
    y, n = labels(rng, X), len(X)
    weight = [np.ones(n), rng.integers(1, 4, n).astype(float), rng.random(n) + 0.01, 10.0 ** rng.uniform(-3, 3, n)]
    folds = np.ones((int(rng.integers(1, 4)), n))
    if len(folds) > 1 or rng.random() < 0.2:
        folds[:, 4:] = rng.random((len(folds), n - 4)) < 0.7
    problems = [draw_problem(rng) for _ in range(int(rng.choice([1, 3, 10, 30])))]
    fit = bool(rng.random() < 0.92)
    start = rng.integers(4)
    init: Any = "least_squares" if start < 2 else "zeros"
    fold_of = rng.integers(0, len(folds), len(problems))
    options = {"fit_intercept": fit, "penalize_intercept": bool(rng.random() < 0.1), "folds": folds, "fold_of": fold_of}
    given = {"X": X, "y": y, "problems": problems, "sample_weight": weight[rng.choice(4, p=[0.55, 0.15, 0.2, 0.1])]}
    if start == 3:  # warm: solutions of other rows, or anything
        scale = 1 / np.maximum(np.abs(X).max(axis=0), 1e-12)
        init = (
            rng.standard_normal((len(problems), X.shape[1])) * scale * 10.0 ** rng.uniform(-1, 2),
            np.zeros(len(problems)),
        )
        if rng.random() < 0.7:
            other = np.ones(n)
            other[4:] = rng.random(n - 4) < 0.6
            found = solve(**{**given, "sample_weight": other}, **options, tol=1e-4)
            init = found.coef, found.intercept
    return {**given, **options, "init": init}


class Judge:
    """One problem by its definition: the objective, and independent ways to minimise it."""

    def __init__(self, case: dict[str, Any], row: int) -> None:
        problem = case["problems"][row]
        mass = case["sample_weight"] * case["folds"][case["fold_of"][row]]
        inside = mass > 0
        self.X, self.y, self.mass = case["X"][inside], case["y"][inside], mass[inside]
        self.loss, self.alpha, self.name = get_loss(problem.loss), problem.alpha, problem.loss
        self.fit, self.penalize = case["fit_intercept"], case["penalize_intercept"] and case["fit_intercept"]
        self.average, total = problem.aggregate == "average", float(self.mass.sum())
        self.k = problem.k * total if problem.k else min(1.0, total)

    def objective(self, w: np.ndarray, b: float) -> float:
        margins = self.y * (self.X @ w + b)
        extra = b * b if self.penalize else 0.0
        losses = np.maximum(1 - margins, 0) if self.name == "hinge" else PARTS[self.name][0](margins)
        summed = self.mass @ losses if self.average else self.largest(losses)
        return float(summed + self.alpha / 2 * (w @ w + extra))

    def largest(self, losses: np.ndarray) -> float:
        """Return the sum of the largest losses with total mass k."""
        order = np.argsort(-losses)
        before = np.cumsum(self.mass[order]) - self.mass[order]
        return float(np.clip(self.k - before, 0, self.mass[order]) @ losses[order])

    def basis(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return columns with the intercept, their penalties, and coordinates in which the curvature is about 1."""
        Z = np.column_stack([self.X, np.ones(len(self.X))]) if self.fit else self.X
        penalty = np.full(Z.shape[1], self.alpha)
        if self.fit and not self.penalize:
            penalty[-1] = 0
        values, vectors = np.linalg.eigh((Z.T * self.mass) @ Z / 4 + np.diag(penalty))
        return Z, penalty, vectors / np.sqrt(np.maximum(values, values[-1] * 1e-15))

    def smooth(self, parts: tuple[Part, Part, Part]) -> float:
        """Minimise a loss, given by value, slope and curvature, with SciPy's trust-region Newton method."""
        Z, penalty, basis = self.basis()
        value, slope, curvature = parts
        signed = self.y[:, None] * (Z @ basis)
        inner = (basis.T * penalty) @ basis

        def objective(v: np.ndarray) -> tuple[float, np.ndarray]:
            margins, shrink = signed @ v, inner @ v
            return float(self.mass @ value(margins) + v @ shrink / 2), (self.mass * slope(margins)) @ signed + shrink

        def hessian(v: np.ndarray) -> np.ndarray:
            return (signed.T * (self.mass * curvature(signed @ v))) @ signed + inner

        v = minimize(objective, np.zeros(Z.shape[1]), jac=True, hess=hessian, method="trust-exact",
                     options={"maxiter": 60, "gtol": 1e-10}).x  # fmt: skip
        w = basis @ v
        return self.objective(w[:-1], w[-1]) if self.fit else self.objective(w, 0.0)

    def settled(self, parts: tuple[Part, Part, Part]) -> float:
        """Minimise ``k t + sum of mass * max(loss - t, 0)`` over parameters and t (Ogryczak & Tamir 2003) with SciPy.

        The maximum is smoothed less and less; the result is the objective itself.
        """
        Z, penalty, basis = self.basis()
        value, slope, curvature = parts
        signed, size = self.y[:, None] * (Z @ basis), Z.shape[1]
        inner, v, lowest = (basis.T * penalty) @ basis, np.zeros(size + 1), np.inf
        v[-1] = self.loss.threshold
        for soft in (1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5):

            def objective(v: np.ndarray, soft: float = soft) -> tuple[float, np.ndarray]:
                margins, shrink = signed @ v[:-1], inner @ v[:-1]
                over = (value(margins) - v[-1]) / soft
                share = self.mass * expit(over)
                total = self.k * v[-1] + soft * self.mass @ np.logaddexp(0, over) + v[:-1] @ shrink / 2
                return float(total), np.append((share * slope(margins)) @ signed + shrink, self.k - share.sum())

            def hessian(v: np.ndarray, soft: float = soft) -> np.ndarray:
                margins = signed @ v[:-1]
                part = expit((value(margins) - v[-1]) / soft)
                rows = np.column_stack([slope(margins)[:, None] * signed, -np.ones(len(signed))])
                bent = (rows.T * (self.mass * part * (1 - part) / soft)) @ rows
                bent[:-1, :-1] += (signed.T * (self.mass * part * curvature(margins))) @ signed + inner
                return bent

            v = minimize(objective, v, jac=True, hess=hessian, method="trust-exact",
                         options={"maxiter": 25, "gtol": 1e-8}).x  # fmt: skip
            w = basis @ v[:-1]
            lowest = min(lowest, self.objective(w[:-1], w[-1]) if self.fit else self.objective(w, 0.0))
        return lowest

    def best(self, everyone: bool) -> float:
        """Return the lowest objective that SciPy or scikit-learn finds, or both of them (``everyone``)."""
        if not self.average:
            return self.settled(PARTS[self.name])
        found = []
        if self.name == "logistic" and not self.penalize:
            options = {"solver": "newton-cholesky", "tol": 1e-10, "max_iter": 200, "fit_intercept": self.fit}
            found.append(self.of(LogisticRegression(C=1 / self.alpha, **options)))
        if self.name == "hinge" and self.fit and not self.penalize:
            found.append(self.of(SVC(kernel="linear", C=1 / self.alpha, tol=1e-8, max_iter=20_000)))
        if everyone or not found:
            found.append(self.smooth(PARTS[self.name]))
        return min(found)

    def of(self, model: Any) -> float:
        model.fit(self.X, self.y, self.mass)
        return self.objective(model.coef_[0], float(np.ravel(model.intercept_)[0]))


def _rounded_hinge(width: float) -> tuple[Part, Part, Part]:
    def value(margins: np.ndarray) -> np.ndarray:
        part = np.clip(1 - margins, 0, width)
        return part * (1 - margins - part / 2) / width

    def curvature(margins: np.ndarray) -> np.ndarray:
        return ((margins < 1) & (margins > 1 - width)) / width

    return value, lambda margins: -np.clip(1 - margins, 0, width) / width, curvature


#: Value, slope and curvature of each loss, written independently of the package.
PARTS: dict[str, tuple[Part, Part, Part]] = {
    "logistic": (lambda m: np.logaddexp(0, -m), lambda m: -expit(-m), lambda m: expit(m) * expit(-m)),
    "hinge": _rounded_hinge(1e-3),
    "squared_hinge": (
        lambda m: np.maximum(1 - m, 0) ** 2,
        lambda m: -2 * np.maximum(1 - m, 0),
        lambda m: 2.0 * (m < 1),
    ),
    "modified_huber": (
        lambda m: np.where(m < -1, -4 * m, np.maximum(1 - m, 0) ** 2),
        lambda m: -2 * np.clip(1 - m, 0, 2),
        lambda m: 2.0 * ((m < 1) & (m > -1)),
    ),
}


def look_at(number: int) -> tuple[Counter[str], list[str]]:
    """Solve and judge one case; return counts of problems and descriptions of findings."""
    case = draw(number)
    problems, counts = case["problems"], Counter[str]()
    counts["problems"] = len(problems)
    given = case["X"] if number % SPARSE else sparse.csr_matrix(case["X"])
    try:
        found = solve(**{**case, "X": given}, tol=WITHIN, settle=SETTLE)
    except Exception as error:
        return counts, [f"case {number}: {type(error).__name__}: {error}"]
    counts["converged"], findings = int(found.converged.sum()), []
    for row, problem in enumerate(problems):
        judge = Judge(case, row)
        best, mine = judge.best((number + row) % 16 == 0), judge.objective(found.coef[row], found.intercept[row])
        scale = max(mine, 1e-9 * judge.loss.threshold * (judge.mass.sum() if judge.average else judge.k))
        what = f"case {number}, row {row}, {problem}"
        if found.converged[row] and mine - best > WITHIN * scale:
            findings.append(f"{what}: {mine} above {best}")
        if mine - best > (found.gap[row] + 1e-7) * scale:
            findings.append(f"{what}: gap {found.gap[row]} does not reach {best} from {mine}")
    return counts, findings


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=100_000, help="at least so many")
    parser.add_argument("--first", type=int, default=0, help="the number of the first case")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    counts, number, wrong = Counter[str](), given.first, 0
    while counts["problems"] < given.problems:
        more, findings = look_at(number)
        counts += more
        wrong += len(findings)
        print(*findings, sep="\n", end="\n" if findings else "", flush=True)
        number += 1
    print(f"cases {given.first}..{number - 1}: {counts['problems']} problems, {counts['converged']} converged, "
          f"{wrong} findings")  # fmt: skip
    raise SystemExit(wrong > 0)


if __name__ == "__main__":
    main()

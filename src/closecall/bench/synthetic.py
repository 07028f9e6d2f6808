"""Figure 1 and Examples 1 and 2: solved at once, no cells needed (a second or two)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.data.synthetic import FIGURE1, example1, example2, figure1
from closecall.objective import Problem
from closecall.theory import best_intercept

from .plan import ALPHAS, MAX_ITER, k_grid
from .published import METHODS
from .results import LABELS
from .tables import Row, Table

#: The draws of Figure 1 and of Example 2.
SEED = 0
EXAMPLE1_SIZE, EXAMPLE1_FAR = 50, 10_000.0
EXAMPLE2_SIZE = 2000


def figure1_results(max_iter: int = MAX_ITER) -> tuple[list[Row], list[Row], Table]:
    """Points, boundaries and a table of training errors for the four sets of Figure 1.

    Logistic loss, fitted on the first column alone. For each method the (k, alpha) with the fewest training errors is
    shown, equals going to the larger k, then the larger alpha: the question is what the objective can reach, and
    there is no validation part.
    """
    points: list[Row] = []
    records: list[Row] = []
    for name in FIGURE1:
        X, y = figure1(name, SEED)
        points += [
            {"set": name, "x": x, "side": side, "label": int(label)}
            for (x, side), label in zip(X.tolist(), y.tolist(), strict=True)
        ]
        # One column: the best of all boundaries is the better of the two directions' exact intercepts.
        best = min(best_intercept(sign * X[:, 0], y)[1] for sign in (1, -1))
        for method in METHODS:
            records.append({"set": name, **_fewest_errors(X[:, :1], y, method, max_iter), "best_possible": int(best)})
    rows = tuple(
        (
            name,
            *(f"{r['errors']} ({r['boundary']:+.2f})" for r in records if r["set"] == name),
            str(next(r["best_possible"] for r in records if r["set"] == name)),
        )
        for name in FIGURE1
    )
    table = Table(
        "figure1",
        "Figure 1: training errors (and boundary) on four synthetic sets",
        ("set", *(LABELS[method] for method in METHODS), "best"),
        rows,
        tuple(records),
        (f"Logistic loss, the (k, alpha) with the fewest training errors, {max_iter} steps. The best boundary is 0.",),
    )
    return points, records, table


def _fewest_errors(X: Array, y: Array, method: str, max_iter: int) -> Row:
    from closecall.solvers import solve

    ks: Sequence[int] = (len(y),) if method == "average" else k_grid(len(y))
    problems = [Problem("logistic", method, k, alpha) for k in ks for alpha in ALPHAS]
    solutions = solve(X, y, problems, max_iter=max_iter)
    order = [(solutions.errors[i], -ks.index(_int(p.k)), -p.alpha, i) for i, p in enumerate(problems)]
    *_, i = min(order)
    slope = float(solutions.coef[i, 0])
    boundary = -float(solutions.intercept[i]) / slope if slope else np.nan
    return {
        "method": method, "k": problems[i].k, "alpha": problems[i].alpha, "errors": round(float(solutions.errors[i])),
        "boundary": boundary,
    }  # fmt: skip


def _int(k: Any) -> int:
    return int(k)


def examples_results(max_iter: int = MAX_ITER) -> Table:
    """Training errors of the methods on Examples 1 and 2, beside what the theory says.

    Example 1: two far outliers flip the boundary of the average loss and of average top-k with k > 2n, which then make
    2n errors; for k <= 2n the minimiser of average top-k is the zero function, which decides nothing (every margin is
    0, which counts as an error). Close-k makes 2 errors for every k <= n.
    Example 2: the best accuracy is 0.75; the average logistic loss reaches about 0.68.
    """
    from closecall.solvers import solve

    records: list[Row] = []
    for name, (X, y), said in (
        ("Example 1", example1(EXAMPLE1_SIZE, EXAMPLE1_FAR), f"best 2, average {2 * EXAMPLE1_SIZE}"),
        ("Example 2", example2(EXAMPLE2_SIZE, SEED), "best 0.75, average about 0.68"),
    ):
        n = len(y)
        ks = {
            "average": (n,),
            "top": (1, n // 4),
            "atk": (1, n // 4, n),
            "close": (1, n // 10),
            "close_decay": (1, n // 10),
        }
        problems = [Problem("logistic", method, k, 1e-3) for method in METHODS for k in ks[method]]
        solutions = solve(X, y, problems, max_iter=max_iter)
        best = min(best_intercept(sign * X[:, 0], y)[1] for sign in (1, -1))
        for problem, errors in zip(problems, solutions.errors, strict=True):
            records.append(
                {
                    "example": name, "method": problem.aggregate, "k": problem.k, "errors": float(errors),
                    "accuracy": 1 - float(errors) / n, "best_possible": float(best), "theory": said,
                }
            )  # fmt: skip
    rows = tuple(
        (
            f"{r['example']}: {LABELS[r['method']]}, k = {r['k']}",
            f"{r['errors']:.0f}",
            f"{r['accuracy']:.3f}",
            f"{r['best_possible']:.0f}",
            r["theory"],
        )
        for r in records
    )
    return Table(
        "examples",
        "Examples 1 and 2: training errors",
        ("example and method", "errors", "accuracy", "best", "theory"),
        rows,
        tuple(records),
        (
            f"Logistic loss, alpha 0.001, {max_iter} steps. Example 1 with n = {EXAMPLE1_SIZE} and outliers at "
            f"{EXAMPLE1_FAR:g}; Example 2 with {EXAMPLE2_SIZE} points a class.",
        ),
    )

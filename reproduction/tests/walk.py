"""Algorithm 1 step by step on the sets of Figure 1: what the report's slider shows, kept in templates/walk.json.

``python -m reproduction.tests.walk`` writes that file again.

The solver keeps only where it ends. This is the same way, walked slowly enough to watch: the average loss is minimised
while k = n, then the steps of :mod:`closecall.solvers.reference` follow the falling k.
"""

import base64
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import minimize

from closecall._names import Array
from closecall.objective import Problem, values_and_gradients
from closecall.schedules import first_final_step, last_convex_step
from closecall.solvers.steps import WINDOW, share_of_gram, step_curvature
from closecall.theory import best_intercept
from reproduction.protocol.grid import k_grid
from reproduction.protocol.synthetic import FIGURE1, figure1

STEPS = 300
#: Every third step is shown: finer, the page grows and the eye sees nothing more.
STRIDE = 3
#: Weak enough for a steep score, without which k = 10 close calls could not be told apart; not the picture's 1e-5,
#: with which average is near the best on `easy` and `imbalance` and nothing would move.
ALPHA = 1e-2


@dataclass(frozen=True)
class Frame:
    """One step: k, slope and intercept of the score, which examples are close calls, training errors."""

    step: int
    k: float
    slope: float
    intercept: float
    close: Array
    errors: int


def walk(X: Array, y: Array, k_star: int, *, alpha: float = ALPHA, steps: int = STEPS) -> list[Frame]:
    """Every step of close decay with the logistic loss on one column.

    Parameters
    ----------
    X : array (samples, 1)
    y : array (samples,) in {-1, +1}
    k_star : int
        The final k.
    alpha : float
    steps : int

    Returns
    -------
    frames : list of Frame
        Steps 0 (the zero score) to ``steps``; ``close`` are booleans (samples,), true where the weight under that
        step's k is not zero. Examples that tie for the last places share them, so there may be more than k.

    Examples
    --------
    >>> X, y = figure1("ambiguous", 0)
    >>> frames = walk(X[:, :1], y, 100, steps=30)
    >>> [(frame.step, frame.k, int(frame.close.sum())) for frame in frames[10::10]]
    [(10, 500.0, 500), (20, 100.0, 100), (30, 100.0, 100)]
    """
    Z = np.column_stack([X[:, 0], np.ones(len(y))])
    problem = Problem("logistic", "close_decay", k_star, alpha)
    path = [np.zeros(2), *_convex_path(Z, y, problem, last_convex_step(steps))]
    path += _descent(Z, y, problem, path[-1], len(path), steps)
    k_at = problem.resolve(float(len(y)), steps)[2]
    return [_frame(Z, y, problem, step, k_at(max(step, 1)), w) for step, w in enumerate(path)]


def _objective(Z: Array, y: Array, problem: Problem, k: float, w: Array) -> tuple[float, Array]:
    values, slopes, intercepts = values_and_gradients([problem], w[None, :1], w[1:], Z[:, :1], y, k=[k])
    return float(values[0]), np.array([slopes[0, 0], intercepts[0]])


def _convex_path(Z: Array, y: Array, problem: Problem, steps: int) -> list[Array]:
    """While k = n: the iterates of L-BFGS on the average loss, the last one standing once it has converged."""
    path: list[Array] = []
    if steps:
        minimize(
            lambda w: _objective(Z, y, problem, float(len(y)), w),
            np.zeros(2),
            jac=True,
            method="L-BFGS-B",
            callback=lambda w: path.append(w.copy()),
            options={"maxiter": steps, "ftol": 1e-14},
        )
        path += [path[-1] if path else np.zeros(2)] * (steps - len(path))
    return path


def _descent(Z: Array, y: Array, problem: Problem, w: Array, first: int, steps: int) -> list[Array]:
    """Majorising steps under the falling k; halved, once k rests, whenever ten of them went to and fro."""
    total = float(len(y))
    loss, _, k_at, _ = problem.resolve(total, steps)
    gram, penalty = Z.T @ Z, np.diag([problem.alpha, 0.0])
    eta, path, length, mark = 1.0, [], 0.0, w
    for step in range(first, steps + 1):
        kappa = float(share_of_gram(np.asarray(k_at(step)), 2, total))
        gradient = _objective(Z, y, problem, k_at(step), w)[1]
        move = -eta * np.linalg.solve(step_curvature(loss.name) * kappa * gram + penalty, gradient)
        w = w + move
        path.append(w)
        resting = step - first_final_step(steps)
        if resting < 0:
            length, mark = 0.0, w
            continue
        length += float(np.sqrt(move @ gram @ move))
        if (resting + 1) % WINDOW == 0:
            net = float(np.sqrt((w - mark) @ gram @ (w - mark)))
            eta, length, mark = eta * (0.5 if net < 0.5 * length else 1.0), 0.0, w
    return path


def _frame(Z: Array, y: Array, problem: Problem, step: int, k: float, w: Array) -> Frame:
    margins = y * (Z @ w)
    loss, aggregate, _, _ = problem.resolve(float(len(y)), 1)
    weights = aggregate.weights(loss.value(margins), threshold=loss.threshold, k=int(k))
    return Frame(step, k, float(w[0]), float(w[1]), weights > 0, int((margins <= 0).sum()))


def best_walk(X: Array, y: Array) -> tuple[int, list[Frame]]:
    """The final k of the grid that ends with the fewest training errors (equals: the larger) and its walk."""
    walks = {k: walk(X, y, k) for k in k_grid(len(y))[:-1]}
    k_star = min(reversed(walks), key=lambda k: walks[k][-1].errors)
    return k_star, walks[k_star]


@cache
def figure1_walks() -> dict[str, Any]:
    """Points and frames of the four sets of Figure 1, small enough to stand in a page (some 40 kB as JSON).

    Examples
    --------
    >>> content = figure1_walks()
    >>> list(content["sets"]), content["steps"]
    (['easy', 'imbalance', 'outlier', 'ambiguous'], 300)
    >>> [frame[:2] for frame in content["sets"]["easy"]["frames"][::50]]
    [[0, 500], [150, 255], [300, 10]]
    """
    sets = {}
    for name in FIGURE1:
        X, y = figure1(name, 0)
        k_star, frames = best_walk(X[:, :1], y)
        best = min(int(best_intercept(sign * X[:, 0], y)[1]) for sign in (1, -1))
        sets[name] = {
            "points": [[*np.round(point, 3).tolist(), int(label)] for point, label in zip(X, y, strict=True)],
            "k": k_star,
            "best": best,
            "average": _cut(frames[last_convex_step(STEPS)]),
            "frames": [_compact(frame) for frame in frames[::STRIDE]],
        }
    return {"steps": STEPS, "alpha": ALPHA, "sets": sets}


def _compact(frame: Frame) -> list[Any]:
    """Step, k, boundary, errors, and the close calls as bits: a boundary rounded for the eye could not select them."""
    bits = base64.b64encode(np.packbits(frame.close).tobytes()).decode()
    return [frame.step, round(frame.k), _cut(frame), frame.errors, bits]


def _cut(frame: Frame) -> float | None:
    return round(-frame.intercept / frame.slope, 4) if frame.slope else None


if __name__ == "__main__":
    place = Path(__file__).parents[1] / "pages" / "templates" / "walk.json"
    place.write_text(json.dumps(figure1_walks(), separators=(",", ":")) + "\n", encoding="utf-8")

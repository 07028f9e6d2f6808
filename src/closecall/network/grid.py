"""The paper's network for a whole grid of problems: shared paths walked once, each network by a compiled kernel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..objective import Problem
from ..schedules import first_final_step
from . import compiled, twin
from .data import Data, prepare
from .layers import Parameters, Shape, scores_of, start
from .paths import Path, Settings, spans


@dataclass(frozen=True)
class Progress:
    """How far a run is, in steps of single networks."""

    done: int
    total: int


@dataclass(frozen=True)
class NetworkGrid:
    """Trained networks, one for each problem.

    Parameters
    ----------
    problems : tuple of Problem
    parameters : Parameters
    n_iter : array (problems,)
        How many steps each took.
    """

    problems: tuple[Problem, ...]
    parameters: Parameters
    n_iter: Array

    def scores(self, X: Any) -> Array:
        """Scores (problems, samples) of rows X (samples, features); (problems, classes, samples) with classes.

        In float64, so that a row's score does not depend on the rows around it.
        """
        values = np.asarray(X, dtype=np.float64)
        shape = self.parameters.shape
        if values.ndim != 2 or values.shape[1] != shape.features:
            raise ValueError(f"X has shape {values.shape}; expected (samples, {shape.features})")
        scores = scores_of(Parameters(shape, self.parameters.values.astype(np.float64)), values)
        return scores[:, 0] if shape.outputs == 1 else scores


class State(NamedTuple):
    """Networks under way, arrays (rows, size): weights, and Adam's running mean and mean square of the gradients."""

    weights: Array
    mean: Array
    square: Array


class Networking(Protocol):
    """A network under way."""

    def walk(self, span: range) -> None:
        """Take these steps."""


def train_grid(
    X: Any,
    y: Any,
    problems: Sequence[Problem],
    *,
    max_iter: int = 1000,
    seed: int = 0,
    sample_weight: Any = None,
    classes: int | None = None,
    hidden: int | None = None,
    learning_rate: float = 0.03,
    penalize_intercept: bool = False,
    validation: tuple[Any, Any] | None = None,
    patience: int = 50,
    dtype: Any = np.float32,
    callback: Callable[[Progress], None] | None = None,
) -> NetworkGrid:
    """Train one network for each problem, all from one random start, by full-batch gradient descent (Adam).

    Problems that walk the same path are trained once: the first third of a decay run is that of ``average``, and so
    are ``close`` and ``atk`` with k = n. One core.

    Parameters
    ----------
    X : array (samples, features)
    y : array (samples,)
        In {-1, +1}; with ``classes``, integers 0..classes-1 and the losses of the top-two margin.
    problems : sequence of Problem
    max_iter : int
        Steps; also the length of a decay run.
    seed : int
        Decides the start, and with it everything.
    sample_weight : array (samples,), optional
        Masses.
    classes : int, optional
        How many classes, if not two with labels -1 and +1.
    hidden : int, optional
        Units of each hidden layer; as many as features unless said.
    learning_rate : float
        Adam's step size; it falls to zero over the last third.
    penalize_intercept : bool
        Whether alpha penalises the intercepts like the weights.
    validation : (X, y), optional
        Data for early stopping: each network keeps its most accurate parameters (in a decay run, of the last third)
        and stops when it has not improved for ``patience`` steps.
    patience : int
    dtype : float32 or float64
        The compiled kernel computes in float32; float64 runs on NumPy, many times slower.
    callback : callable, optional
        Called with a :class:`Progress` about a hundred times a run.

    Returns
    -------
    grid : NetworkGrid

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> y = np.array([-1, 1, 1, -1])
    >>> grid = train_grid(X, y, [Problem(alpha=1e-3), Problem("hinge", "close_decay", k=3, alpha=1e-3)], hidden=8)
    >>> np.sign(grid.scores(X)).astype(int).tolist()
    [[-1, 1, 1, -1], [-1, 1, 1, -1]]
    """
    if max_iter < 1 or not problems:
        raise ValueError(f"nothing to train: max_iter={max_iter}, {len(problems)} problems")
    data = prepare(X, y, sample_weight, classes, dtype)
    held = None if validation is None else prepare(*validation, None, classes, dtype)
    features = data.rows.shape[1]
    shape = Shape(features, hidden or features, data.outputs)
    begin = start(shape, seed).values.astype(dtype)
    state, places = State(begin, np.zeros_like(begin), np.zeros_like(begin)), [0] * len(problems)
    parts = spans(problems, data.total, max_iter)
    total = sum(len(span) * len(set(paths)) for span, paths in parts)
    trainer = _Trainer(data, shape, Settings(max_iter, learning_rate, penalize_intercept), ticker(callback, total))
    steps: list[int] = []
    for span, paths in parts:
        origins = dict(zip(paths, places, strict=True))
        rows = sorted(origins)
        state = State(*(each[[origins[path] for path in rows]] for each in state))
        watched = held if span.stop > max_iter else None
        with np.errstate(all="ignore"):  # the compiled kernel is silent too; what comes out is looked at
            steps = [trainer.train(state, row, path, span, watched, patience) for row, path in enumerate(rows)]
        places = [rows.index(path) for path in paths]
    if not np.isfinite(state.weights).all():
        raise FloatingPointError("training reached numbers that are not finite; scale the features and the weights")
    return NetworkGrid(tuple(problems), Parameters(shape, state.weights[places]), np.array(steps)[places])


class _Trainer:
    """The walkers of a run, compiled and not, made when first needed."""

    def __init__(self, data: Data, shape: Shape, settings: Settings, tick: Callable[[int], int]) -> None:
        self.data, self.shape, self.settings, self.tick = data, shape, settings, tick
        self.walkers: dict[bool, compiled.Walker | twin.Walker] = {}

    def network(self, state: State, row: int, path: Path) -> Networking:
        fast = compiled.serves(path, self.data.rows.dtype)
        if fast not in self.walkers:
            self.walkers[fast] = (compiled if fast else twin).Walker(self.data, self.shape, self.settings)
        return self.walkers[fast].network(state.weights[row], state.mean[row], state.square[row], path)

    def train(self, state: State, row: int, path: Path, span: range, held: Data | None, patience: int) -> int:
        """Take one row through a span, in place; the last step taken."""
        network = self.network(state, row, path)
        if held is not None:
            return self._watch(network, state.weights[row], path, span, held, patience)
        begin = span.start
        while begin < span.stop:
            end = min(begin + self.tick(0), span.stop)
            network.walk(range(begin, end))
            self.tick(end - begin)
            begin = end
        return span.stop - 1

    def _watch(self, network: Networking, weights: Array, path: Path, span: range, held: Data, patience: int) -> int:
        best, kept, stale = -1.0, weights.copy(), 0
        first = first_final_step(self.settings.max_iter) if get_aggregate(path.aggregate).decays else 1
        for step in span:
            network.walk(range(step, step + 1))
            self.tick(1)
            if step < first:
                continue
            found = _correct(Parameters(self.shape, weights[None]), held)
            stale = 0 if found > best else stale + 1
            if found > best:
                best, kept[:] = found, weights
            if stale >= patience:
                break
        weights[:] = kept
        return step


def _correct(parameters: Parameters, data: Data) -> float:
    """The mass of the examples that one network gets right."""
    right = twin.margins_of(scores_of(parameters, data.rows)[0], data)[0] > 0
    return float(right.sum() if data.mass is None else data.mass[right].sum())


def ticker(callback: Callable[[Progress], None] | None, total: int) -> Callable[[int], int]:
    """Counts steps and calls back at every whole percent; returns how many steps to take before the next count."""
    done = seen = 0

    def tick(steps: int) -> int:
        nonlocal done, seen
        done += steps
        if callback is not None and steps and (100 * done // total > seen or done == total):
            seen = 100 * done // total
            callback(Progress(done, total))
        return total if callback is None else max(1, total // 100)

    return tick

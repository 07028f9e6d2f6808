"""Train the paper's network for a grid of problems with a compiled kernel, without repeating shared steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._names import Array
from ..aggregates import get_aggregate
from ..objective import Problem
from ..schedules import first_final_step
from . import compiled
from .layers import Parameters, Shape, TwinWalker, margins_of, scores_of, start
from .paths import Path, Settings, prepare, spans

#: Reports completed steps, and returns the number of steps until the next report.
Tick = Callable[[int], int]


@dataclass(frozen=True)
class NetworkProgress:
    """The progress of a run, counted in steps of individual networks."""

    done: int
    total: int


@dataclass(frozen=True)
class NetworkGrid:
    """Trained networks, one for each problem, and the number of steps (problems,) that each one took."""

    problems: tuple[Problem, ...]
    parameters: Parameters
    n_iter: Array

    def scores(self, X: Any) -> Array:
        """Return the scores (problems, samples) or (problems, classes, samples) of X (samples, features).

        The scores are computed in float64, so the score of a row does not depend on the other rows.
        """
        values = np.asarray(X, dtype=np.float64)
        shape = self.parameters.shape
        if values.ndim != 2 or values.shape[1] != shape.features:
            raise ValueError(f"X has shape {values.shape}; expected (samples, {shape.features})")
        scores = scores_of(Parameters(shape, self.parameters.values.astype(np.float64)), values)
        return scores[:, 0] if shape.outputs == 1 else scores


def train_grid(
    X: Any,
    y: Any,
    problems: Sequence[Problem],
    *,
    max_iter: int = 1000,
    seed: int | Sequence[int] = 0,
    sample_weight: Any = None,
    classes: int | None = None,
    hidden: int | None = None,
    learning_rate: float = 0.03,
    penalize_intercept: bool = False,
    validation: tuple[Any, Any] | None = None,
    patience: int = 50,
    dtype: Any = np.float32,
    callback: Callable[[NetworkProgress], None] | None = None,
    trainer: Callable[..., Any] | None = None,
) -> NetworkGrid:
    """Train one network for each problem with full-batch Adam on one core, from one or more random starts.

    Problems with the same path and start are trained only once: the first third of a decay run is the same as for
    ``average``, and ``close`` and ``atk`` with k = n are the same as ``average`` throughout.

    Parameters
    ----------
    X : array (samples, features)
    y : array (samples,)
        Labels in {-1, +1}; with ``classes``, integers 0..classes-1, in which case the losses are functions of the
        top-two margin.
    problems : sequence of Problem
    seed : int or sequence of int
        Seed for the random start; it determines the result. A sequence contains one seed for each problem.
    sample_weight : array (samples,), optional
        Masses.
    classes : int, optional
        Number of classes, unless the labels are -1 and +1.
    validation : (X, y), optional
        Data for early stopping. Each network keeps its most accurate parameters.
    dtype : float32 or float64
        The compiled kernel computes in float32; float64 uses NumPy and is many times slower.
    trainer : callable, optional
        A replacement for :class:`KernelTrainer`, such as the one that :func:`closecall.nn.train_grid` uses.
    max_iter, hidden, learning_rate, penalize_intercept, patience, callback
        The same as for :class:`closecall.network.ResidualMLPClassifier`.

    Examples
    --------
    >>> X = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    >>> y = np.array([-1, 1, 1, -1])
    >>> grid = train_grid(X, y, [Problem(alpha=1e-3), Problem("hinge", "close_decay", k=3, alpha=1e-3)], hidden=8)
    >>> np.sign(grid.scores(X)).astype(int).tolist()
    [[-1, 1, 1, -1], [-1, 1, 1, -1]]
    """
    if max_iter < 1 or not problems:
        raise ValueError(
            f"nothing to train: got max_iter={max_iter} and {len(problems)} problems; both numbers must be at least 1"
        )
    data = prepare(X, y, sample_weight, classes, dtype)
    held = None if validation is None else prepare(*validation, None, classes, dtype)
    features = data.rows.shape[1]
    shape = Shape(features, hidden or features, data.outputs)
    settings, parts = Settings(max_iter, learning_rate, penalize_intercept), spans(problems, data.total, max_iter)
    seeds = [seed] * len(problems) if isinstance(seed, int) else list(seed)
    ways = [(span, list(zip(paths, seeds, strict=True))) for span, paths in parts]
    tick = ticker(callback, sum(len(span) * len(set(each)) for span, each in ways))
    draws = {each: row for row, each in enumerate(dict.fromkeys(seeds))}
    begin = Parameters(shape, np.concatenate([start(shape, each).values for each in draws]))
    networks = (trainer or KernelTrainer)(data, held, begin, settings, patience, tick)
    places, steps = [draws[each] for each in seeds], list[int]()
    for span, each in ways:
        origins = dict(zip(each, places, strict=True))
        rows = {way: row for row, way in enumerate(sorted(origins))}
        networks.pick([origins[way] for way in rows])
        steps = networks.train([path for path, _ in rows], span, watched=held is not None and span.stop > max_iter)
        places = [rows[way] for way in each]
    weights = networks.weights()
    if not np.isfinite(weights).all():
        raise FloatingPointError("training produced values that are not finite; scale the features and the weights")
    return NetworkGrid(tuple(problems), Parameters(shape, weights[places]), np.array(steps)[places])


class KernelTrainer:
    """A trainer that handles one network of a grid at a time, with the compiled kernel if possible, otherwise in NumPy.

    The trainer starts with one network for each random start.
    """

    def __init__(self, data: Any, held: Any, begin: Parameters, settings: Settings, patience: int, tick: Tick) -> None:
        self.data, self.held, self.shape, self.settings = data, held, begin.shape, settings
        self.patience, self.tick = patience, tick
        values = begin.values.astype(data.rows.dtype)
        self.state: list[Any] = [values, np.zeros_like(values), np.zeros_like(values)]  # Adam's mean and mean square
        self.walkers: dict[bool, compiled.CompiledWalker | TwinWalker] = {}

    def pick(self, rows: Sequence[int]) -> None:
        """Continue with the networks in these rows; a row may occur several times."""
        self.state = [each[rows] for each in self.state]

    def train(self, paths: Sequence[Path], span: range, *, watched: bool) -> list[int]:
        """Train each network in place for a span of steps, and return the last step of each.

        If ``watched``, each network keeps its best parameters and may stop early.
        """
        with np.errstate(all="ignore"):  # the compiled kernel does not warn either; non-finite weights raise later
            train = self._watch if watched else self._walk
            return [train(row, path, span) for row, path in enumerate(paths)]

    def weights(self) -> Array:
        """Return the weights (rows, size) of the current networks."""
        return np.asarray(self.state[0])

    def _network(self, row: int, path: Path) -> Callable[[range], None]:
        fast = compiled.serves(path, self.data.rows.dtype)
        if fast not in self.walkers:
            make = compiled.CompiledWalker if fast else TwinWalker
            self.walkers[fast] = make(self.data, self.shape, self.settings)
        weights, mean, square = (each[row] for each in self.state)
        return self.walkers[fast].network(weights, mean, square, path)

    def _walk(self, row: int, path: Path, span: range) -> int:
        walk, size = self._network(row, path), self.tick(0)
        for begin in range(span.start, span.stop, size):
            part = range(begin, min(begin + size, span.stop))
            walk(part)
            self.tick(len(part))
        return span.stop - 1

    def _watch(self, row: int, path: Path, span: range) -> int:
        walk, weights = self._network(row, path), self.state[0][row]
        best, kept, stale = -1.0, weights.copy(), 0
        first = first_final_step(self.settings.max_iter) if get_aggregate(path.aggregate).decays else 1
        for step in span:
            walk(range(step, step + 1))
            self.tick(1)
            if step < first:
                continue
            right = margins_of(scores_of(Parameters(self.shape, weights[None]), self.held.rows)[0], self.held)[0] > 0
            correct = float(right.sum() if self.held.mass is None else self.held.mass[right].sum())
            stale = 0 if correct > best else stale + 1
            if correct > best:
                best, kept[:] = correct, weights
            if stale >= self.patience:
                break
        weights[:] = kept
        return step


def ticker(callback: Callable[[NetworkProgress], None] | None, total: int) -> Tick:
    """Return a :data:`Tick` that calls the callback whenever another percent of the steps is complete."""
    done = seen = 0

    def tick(steps: int) -> int:
        nonlocal done, seen
        done += steps
        if callback is not None and steps and (100 * done // total > seen or done == total):
            seen = 100 * done // total
            callback(NetworkProgress(done, total))
        return total if callback is None else max(1, total // 100)

    return tick

"""The paper's network for a whole grid of problems: many networks at a time, shared paths walked once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from closecall._names import Array
from closecall.aggregates import check_mass
from closecall.objective import Problem, check_data

from .descent import Data, Settings, State, Watch, walk
from .layers import Parameters, scores_of, start
from .paths import Path, blocks, spans
from .selection import count_dtype

CPU_BLOCK, LARGE_BLOCK = 2**18, 2**26  # activations of a block: what a core's cache holds, what fills an accelerator


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

        In float64 wherever the device has it, so that a row's score does not depend on the rows around it.
        """
        values = np.asarray(X, dtype=np.float64)
        shape, device = self.parameters.on_inputs.shape, self.parameters.on_inputs.device
        if values.ndim != 2 or values.shape[1] != shape[2] - 1:
            raise ValueError(f"X has shape {values.shape}; expected (samples, {shape[2] - 1})")
        dtype = count_dtype(device)
        inputs = torch.as_tensor(np.vstack([values.T, np.ones(len(values))]), dtype=dtype, device=device)
        found = [scores_of(self.parameters.rows([row]).to(dtype=dtype), inputs).cpu() for row in range(shape[0])]
        scores = torch.cat(found).numpy()
        return scores[:, 0] if scores.shape[1] == 1 else scores


def prepare(X: Any, y: Any, sample_weight: Any, classes: int | None, device: Any, dtype: torch.dtype) -> Data:
    """Check and convert; identical (x, y) rows become one of summed mass, in an order of their own.

    A batched product may give identical rows different last bits, which would break their tie. And so neither the
    order of rows nor the choice between copies and weights changes anything.
    """
    X = np.asarray(X, dtype=np.float64)
    y = np.asarray(y)
    if classes is None:
        X, y, mass = check_data(X, y, sample_weight)
    else:
        mass = np.ones(len(X)) if sample_weight is None else check_mass(sample_weight, len(X))
    with np.errstate(over="ignore"):
        rounded = X.astype(str(dtype).removeprefix("torch."))
    if not np.isfinite(rounded).all():
        raise ValueError(f"X contains NaN, infinite values or values beyond {dtype}; impute or scale them first")
    table, inverse = np.unique(np.column_stack([rounded, y])[mass > 0], axis=0, return_inverse=True)
    with np.errstate(over="ignore"):
        mass = np.bincount(inverse.ravel(), weights=mass[mass > 0])
    low, high = torch.finfo(dtype).tiny, torch.finfo(dtype).max / len(mass)
    if mass.min() < low or mass.max() > high:
        raise ValueError(f"sample_weight leaves {low:.0e} .. {high:.0e}, the range of {dtype}; rescale the weights")
    inputs = np.vstack([table[:, :-1].T, np.ones(len(table))])
    return Data(
        torch.as_tensor(inputs, dtype=dtype, device=device),
        torch.as_tensor(table[:, -1], dtype=dtype if classes is None else torch.int64, device=device),
        None if (mass == 1).all() else torch.as_tensor(mass, dtype=dtype, device=device),
        float(mass.sum()),
        1 if classes is None else classes,
    )


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
    device: Any = "cpu",
    dtype: torch.dtype = torch.float32,
    callback: Callable[[Progress], None] | None = None,
) -> NetworkGrid:
    """Train one network for each problem, all from one random start, by full-batch gradient descent (Adam).

    Problems that walk the same path are trained once: the first third of a decay run is that of ``average``, and so
    are ``close`` and ``atk`` with k = n.

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
        and a block of networks stops when none has improved for ``patience`` steps.
    patience : int
    device : str or torch.device
    dtype : torch.dtype
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
    data = prepare(X, y, sample_weight, classes, device, dtype)
    held = None if validation is None else prepare(*validation, None, classes, device, dtype)
    settings = Settings(max_iter, learning_rate, penalize_intercept)
    features = len(data.inputs) - 1
    begin = start(features, hidden or features, data.outputs, seed).to(device=device, dtype=dtype)
    zeros = Parameters(*(torch.zeros_like(each) for each in begin))
    state, places = State(begin, zeros, zeros), [0] * len(problems)
    parts = spans(problems, data.total, max_iter)
    tick = _ticker(callback, sum(len(span) * len(set(paths)) for span, paths in parts))
    steps: list[int] = []
    with torch.no_grad():
        for span, paths in parts:
            origins = dict(zip(paths, places, strict=True))
            rows = sorted(origins)
            state = state.rows([origins[path] for path in rows])
            watched = held if span.stop > max_iter else None
            steps = _train_rows(state, rows, span, data, settings, watched, patience, tick)
            places = [rows.index(path) for path in paths]
    return NetworkGrid(tuple(problems), state.parameters.rows(places), np.array(steps)[places])


def _train_rows(
    state: State,
    rows: Sequence[Path],
    span: range,
    data: Data,
    settings: Settings,
    held: Data | None,
    patience: int,
    tick: Callable[[int], None],
) -> list[int]:
    # Every block of rows through the span, in place; how many steps each row has taken.
    room = CPU_BLOCK if data.inputs.device.type == "cpu" else LARGE_BLOCK
    size = max(1, room // (state.parameters.on_inputs.shape[1] * data.inputs.shape[1]))
    steps: list[int] = []
    for where, paths in blocks(rows, size):
        watch = None if held is None else Watch(held, len(paths), patience)
        last = walk(state.rows(where), paths, span, data, settings, watch, tick)
        steps += [last] * len(paths)
        if watch is not None and watch.kept is not None:
            for mine, kept in zip(state.parameters, watch.kept, strict=True):
                mine[where] = kept
    return steps


def _ticker(callback: Callable[[Progress], None] | None, total: int) -> Callable[[int], None]:
    done = told = 0

    def tick(rows: int) -> None:
        nonlocal done, told
        done += rows
        if callback is not None and (100 * done // total > told or done == total):
            told = 100 * done // total
            callback(Progress(done, total))

    return tick

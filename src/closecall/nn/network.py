"""The paper's network for a whole grid of problems on any device of torch: blocks of networks at a time.

On a processor :mod:`closecall.network` is several times faster; this is the path for accelerators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from closecall._names import Array
from closecall.network.data import prepare as prepare_arrays
from closecall.network.grid import Progress, ticker
from closecall.network.paths import Path, Settings, blocks, spans
from closecall.objective import Problem

from .descent import Data, State, Watch, walk
from .layers import Parameters, scores_of, start
from .selection import count_dtype

CPU_BLOCK, LARGE_BLOCK = 2**18, 2**26  # activations of a block: what a core's cache holds, what fills an accelerator


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
    """Check, merge identical rows (see :func:`closecall.network.data.prepare`) and convert to tensors."""
    data = prepare_arrays(X, y, sample_weight, classes, str(dtype).removeprefix("torch."))
    inputs = np.vstack([data.rows.T, np.ones(len(data.rows))])
    return Data(
        torch.as_tensor(inputs, dtype=dtype, device=device),
        torch.as_tensor(data.targets, device=device),
        None if data.mass is None else torch.as_tensor(data.mass, dtype=dtype, device=device),
        data.total,
        data.outputs,
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
    tick = ticker(callback, sum(len(span) * len(set(paths)) for span, paths in parts))
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
    tick: Callable[[int], int],
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

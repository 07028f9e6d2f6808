"""Targets, which can be requested, and cells, the units into which their computation is divided.

A cell is one combination of data set, split, model and protocol, and needs one long batched solve. Its key is a hash of
everything that determines its result. When a run is resumed, the keys of finished cells are removed from those
requested; a cell with a different data file, step count or recipe has a different key. The suite tells the worker where
to find the data; it is not part of the key, so suites that share a data set share its cells.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, TypeVar, get_type_hints

import numpy as np

from closecall._names import lookup
from reproduction.protocol.grid import ALPHAS, k_grid
from reproduction.protocol.protocol import PROTOCOLS, get_protocol

from .published import METHODS, MODELS

#: Increase it when a change to the protocol changes the content of a cell, so that old and new records are not mixed.
RECIPE = 1
BOTH = tuple(PROTOCOLS)
#: The starts of linear solves; the second measures the sensitivity to the start (docs/results/beyond-starts.md).
STARTS = ("least_squares", "zeros")
SPLITS = 25
#: Splits of the embedded suite: with so few, a user's first report takes a minute on two cores.
TRIAL_SPLITS = 10
MAX_SPLITS = 10_000
#: The largest number of cells in one request.
MAX_CELLS = 200_000
MAX_ITER = 1000
#: Steps of a network, chosen on generated sets for all aggregates together (docs/results/beyond-steps.md).
NETWORK_STEPS = 200
#: Recipe of a network's cell -> its learning rate; the second was chosen together with the steps.
NETWORK_RATES = {1: 0.03, 2: 0.1, 3: 0.1}
#: The recipe in which all settings of a split share one random start, and the one in which each has its own.
ONE_START, NEW_STARTS = 2, 3
T = TypeVar("T")


def from_plain(kind: type[T], content: Any) -> T:
    """Build a dataclass from untrusted JSON; unexpected fields or types raise ``TypeError``.

    Examples
    --------
    >>> from_plain(Size, {"suite": "s", "name": "n", "checksum": "c", "rows": "5", "features": 2})
    Traceback (most recent call last):
    TypeError: rows of a Size is '5', not int
    """
    if not isinstance(content, dict):
        raise TypeError(f"{content!r} is not a {kind.__name__}")
    hints = get_type_hints(kind)
    for name, value in content.items():
        if hints.get(name) in (str, int) and type(value) is not hints[name]:
            raise TypeError(f"{name} of a {kind.__name__} is {value!r}, not {hints[name].__name__}")
    return kind(**content)


@dataclass(frozen=True)
class Cell:
    """One unit of work.

    Examples
    --------
    >>> cell = Cell("embedded", "monk3", "abc", 0, "linear", "paper")
    >>> len(cell.key), cell.key == Cell("fan8", "monk3", "abc", 0, "linear", "paper").key
    (64, True)
    """

    suite: str
    dataset: str
    checksum: str  # SHA-256 of the data set's content
    split: int  # number of the random division
    model: str  # "linear", "network", or the kind of a cell of another paper (reproduction.protocol.beyond)
    protocol: str
    max_iter: int = MAX_ITER  # steps of each solve
    start: str = STARTS[0]  # of the linear solves
    contamination: str = ""  # what Figure 5 adds to the data set
    level: int = 0  # how many examples it adds
    recipe: int = RECIPE

    @cached_property
    def key(self) -> str:
        """SHA-256 of everything that determines the result."""
        content = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "suite"}
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def rng_for(cell: Cell, stream: str) -> np.random.Generator:
    """Return the cell's random stream with the given name.

    It depends only on the data set, the split and the protocol: all models, starts, step counts and contamination
    levels use the same split, regardless of the order in which cells run.
    """
    name = json.dumps([cell.dataset, cell.split, cell.protocol, stream])
    return np.random.default_rng(list(hashlib.sha256(name.encode()).digest()))


@dataclass(frozen=True)
class Task:
    """A cell and its predicted cost in seconds."""

    cell: Cell
    cost: float


def predicted_cost(cell: Cell, rows: int, features: int) -> float:
    """Return a rough estimate of a cell's time on one core, in seconds, for ordering cells and predicting run times.

    The constants were fitted by eye to the cells of six data sets (80 to 2700 training rows, 5 to 168 features): each
    step of each problem costs 2.5 microseconds and, for each training row, 5.4 ns plus 0.1 ns for each feature.
    """
    train = max((rows + cell.level) // 2, 1)
    counts = len(k_grid(train))
    average = counts if cell.model == "network" and cell.recipe >= NEW_STARTS else 1
    problems = len(ALPHAS) * 2 * (average + (len(METHODS) - 1) * counts)
    # A network with d units in each layer has about 3 d^2 weights, but its kernel needs less time for each of them.
    width = features + features**2 if cell.model == "network" else features
    share = 0.6 if cell.protocol == "sound" and cell.model == "linear" else 1.0  # problems stop when they converge
    return 0.15 + share * problems * cell.max_iter * (2.5e-6 + train * (5.4e-9 + 1e-10 * width))


@dataclass(frozen=True)
class Target:
    """A target that can be requested by name."""

    name: str
    title: str
    suites: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()  # run by default; none for targets that need no cells
    simulations: bool = False  # whether its cells are Figure 5's contaminations of one data set
    max_iter: int = MAX_ITER
    #: For another paper: the kind of its cells, regardless of the requested models and protocols. Not part of ``all``.
    model: str = ""
    most_splits: int = MAX_SPLITS  # even if more are requested


#: Every target by name, in the order in which a report shows them.
TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        # Users run this target first, so it has fewer steps: test errors hardly change after about 150.
        Target("overview", "All comparisons on a suite", ("embedded",), BOTH, max_iter=300),
        Target("figure1", "Figure 1: boundaries on four synthetic sets"),
        Target("examples", "Examples 1 and 2"),
        Target("figure2", "Figure 2: sizes of the data sets", ("pmlb94", "openml100")),
        Target("table1", "Table 1: significant wins on PMLB", ("pmlb94",), BOTH),
        Target("table2", "Table 2: significant wins on OpenML", ("openml100",), BOTH),
        Target("table3", "Table 3: errors on the sets of Fan et al.", ("fan8",), BOTH),
        Target("figure3", "Figure 3: close decay against average", ("pmlb94", "openml100"), BOTH),
        Target("figure4", "Figure 4: the chosen k*", ("pmlb94", "openml100"), BOTH),
        Target("figure5", "Figure 5: simulations on spambase", ("pmlb94",), BOTH, simulations=True),
        Target("table4", "Table 4: wins by two points on PMLB", ("pmlb94",), BOTH),
        Target("table5", "Table 5: wins by two points on OpenML", ("openml100",), BOTH),
        Target("sorr", "Hu et al.: ranked ranges on four sets", ("hu4",), ("sound",), max_iter=300, model="ranges"),
        Target("exact01", "He and Little: exact 0-1 minima", ("he2",), ("sound",), model="exact", most_splits=1),
    )
}
#: The data set that Figure 5 contaminates.
FIGURE5_SET = "spambase"


def get_targets(names: Iterable[str]) -> tuple[Target, ...]:
    """Return the targets with the given names; ``all`` stands for all targets in the paper.

    Examples
    --------
    >>> [target.name for target in get_targets(["table3", "figure1"])], len(get_targets(["all"]))
    (['table3', 'figure1'], 11)
    """
    paper = tuple(target for target in TARGETS.values() if target.name != "overview" and not target.model)
    known = {**{name: (target,) for name, target in TARGETS.items()}, "all": paper}
    found = [target for name in names for target in lookup(known, name, "target")]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True)
class Size:
    """The properties of an available data set that a plan and its report need."""

    suite: str
    name: str
    checksum: str
    rows: int
    features: int
    positives: int = 0


@dataclass(frozen=True)
class RunOptions:
    """The options of a request; if it does not specify steps or protocols, those of the target are used.

    The recipe applies to networks; requests stored by early versions have no recipe and use the first one.
    """

    splits: int = SPLITS
    max_iter: int | None = None
    protocols: tuple[str, ...] | None = None
    models: tuple[str, ...] = ("linear",)
    start: str = STARTS[0]
    recipe: int = RECIPE

    def __post_init__(self) -> None:
        lookup(dict.fromkeys(map(str, NETWORK_RATES)), str(self.recipe), "recipe")
        if self.splits > MAX_SPLITS:
            raise ValueError(f"splits={self.splits} is too many; at most {MAX_SPLITS} are allowed")
        if self.splits < 1 or (self.max_iter is not None and self.max_iter < 1):
            raise ValueError(f"splits={self.splits} and max_iter={self.max_iter} must be at least 1")
        for name in self.protocols or ():
            get_protocol(name)
        for name in self.models:
            lookup(dict.fromkeys(MODELS), name, "model")
        lookup(dict.fromkeys(STARTS), self.start, "start")

"""Jobs from a request: the data sets are fetched and checksummed once, before any worker starts."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Any, Self

from closecall._names import lookup
from closecall.table.read.dataset import DataError
from reproduction.protocol import SUITES, load_dataset, plan
from reproduction.protocol.plan import Cell, RunOptions, Size, Target, Task
from reproduction.protocol.protocol import get_protocol
from reproduction.protocol.sources import resolve
from reproduction.protocol.synthetic import SIMULATIONS

from .scores import Hole, title


@dataclass(frozen=True)
class Job:
    """One target on the locally available data sets, and the reasons why others are not available."""

    target: Target
    suites: tuple[str, ...]
    options: RunOptions
    sizes: tuple[Size, ...]
    holes: tuple[Hole, ...]

    @property
    def name(self) -> str:
        """The name of the job's folder: the target's name, and the suites' names if they differ from the target's."""
        return self.target.name if self.suites == self.target.suites else f"{self.target.name}-{'-'.join(self.suites)}"

    def tasks(self) -> list[Task]:
        """Return the cells of the job with their costs, largest first."""
        added = [("", 0)]
        if self.target.simulations:
            # With nothing added, all three simulations are the data set itself, in one cell that the tables share.
            added += [(name, level) for name, each in SIMULATIONS.items() for level in each.levels if level]
        count = len(self.sizes) * len(self.protocols) * len(self.models) * len(added) * self.splits
        if count > plan.MAX_CELLS:
            most = f"at most {plan.MAX_CELLS} are allowed"
            raise ValueError(f"{count} cells are too many; {most}: use fewer data sets or splits")
        tasks = []
        for size, protocol, model, addition, split in product(
            self.sizes, self.protocols, self.models, added, range(self.splits)
        ):
            start = self.options.start if model == "linear" else plan.STARTS[0]
            cell = Cell(
                size.suite, size.name, size.checksum, split, model, protocol, self.steps(model), start, *addition,
                self.recipe(model, protocol),
            )  # fmt: skip
            tasks.append(Task(cell, plan.predicted_cost(cell, size.rows, size.features)))
        return sorted(tasks, key=lambda task: -task.cost)

    def cells(self) -> list[Cell]:
        """Return the cells of the job in the order of the suite."""
        place = {size.name: i for i, size in enumerate(self.sizes)}
        return sorted((task.cell for task in self.tasks()), key=lambda cell: (place[cell.dataset], cell.split))

    @property
    def protocols(self) -> tuple[str, ...]:
        """The requested protocols, or the target's own if none are requested or the target fixes them."""
        fixed = self.target.model or not self.target.protocols
        return self.target.protocols if fixed else self.options.protocols or self.target.protocols

    @property
    def models(self) -> tuple[str, ...]:
        """The target's own kind of cells if it has one, and otherwise the requested models."""
        return (self.target.model,) if self.target.model else self.options.models

    @property
    def splits(self) -> int:
        return min(self.options.splits, self.target.most_splits)

    def steps(self, model: str) -> int:
        """Return the requested number of steps, or the default of the networks or of the target."""
        return self.options.max_iter or (plan.NETWORK_STEPS if model == "network" else self.target.max_iter)

    def recipe(self, model: str, protocol: str) -> int:
        """Return the recipe of a cell; under a protocol without new starts, networks keep the recipe with one start."""
        if model != "network":
            return plan.RECIPE
        return min(self.options.recipe, plan.NEW_STARTS if get_protocol(protocol).new_starts else plan.ONE_START)

    def described(self) -> tuple[str, ...]:
        """Return the options of the job in words, in a fixed order."""
        steps = " and ".join(dict.fromkeys(str(self.steps(model)) for model in self.models)) + " steps"
        if "network" in self.models:
            steps += f" of rate {plan.NETWORK_RATES[self.options.recipe]:g}"
            new = any(self.recipe("network", protocol) >= plan.NEW_STARTS for protocol in self.protocols)
            steps += " from new starts" if new else ""
        words = (" ".join(sorted(self.protocols)), " ".join(sorted(self.models)), f"from {self.options.start}")
        return (f"{self.splits} splits", steps, *words)

    def contains(self, other: Self) -> bool:
        """Return whether this job contains every data set and cell of another job with the same name."""
        mine, theirs = ({cell.key for cell in job.cells()} for job in (self, other))
        return self.name == other.name and {*self.sizes}.issuperset(other.sizes) and mine >= theirs

    def united(self, other: Self) -> Self:
        """Return this job together with the data sets that only an earlier job has."""
        mine = {(size.suite, size.name) for size in self.sizes}
        sizes = (*self.sizes, *(size for size in other.sizes if (size.suite, size.name) not in mine))
        names = {size.name for size in sizes}
        holes = dict.fromkeys(hole for hole in (*self.holes, *other.holes) if hole.dataset not in names)
        return replace(self, sizes=in_order(sizes, self.suites), holes=tuple(holes))

    def unfinished(self, done: set[str]) -> set[str]:
        """Return the data sets that have unfinished cells."""
        return {cell.dataset for cell in self.cells() if cell.key not in done}

    def as_json(self) -> dict[str, Any]:
        """Return the content for :func:`from_json`, from which a report can be written without the data."""
        sizes, holes = ([asdict(each) for each in found] for found in (self.sizes, self.holes))
        named = {"target": self.target.name, "suites": self.suites, "options": asdict(self.options)}
        return {**named, "sizes": sizes, "holes": holes}


def in_order(sizes: Iterable[Size], suites: Sequence[str]) -> tuple[Size, ...]:
    """Return the data sets in the order of their suites; those that are not in any suite come last."""
    order = {name: place for suite in suites for place, name in enumerate(SUITES.get(suite, ()))}
    return tuple(sorted(sizes, key=lambda size: (suites.index(size.suite), order.get(size.name, len(order)))))


def from_json(content: dict[str, Any]) -> Job:
    """Read the output of :meth:`Job.as_json`; invalid input raises ``ValueError``, ``TypeError`` or ``KeyError``."""
    options: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in content["options"].items()
    }
    for suite in content["suites"]:  # they become part of a folder's name
        lookup(SUITES, suite, "suite")
    return Job(
        plan.get_targets([content["target"]])[0],
        tuple(content["suites"]),
        plan.from_plain(RunOptions, options),
        tuple(plan.from_plain(Size, size) for size in content["sizes"]),
        tuple(plan.from_plain(Hole, hole) for hole in content["holes"]),
    )


def prepare(
    targets: Iterable[str], options: RunOptions, *, suite: str | None = None, only: Sequence[str] = (),
    download: bool = True, tell: Callable[[str], None] = lambda name: None,
) -> list[Job]:  # fmt: skip
    """Find the data sets of the targets, download missing ones if ``download`` is true, and checksum them.

    ``suite`` replaces the suites of the targets. ``only`` restricts them to data sets with these names or titles. A
    path, or a name with a source, is added if it is not in any suite. ``tell`` is called with the name of each set
    before it is read.
    """
    found: dict[tuple[str, str], Size | Hole] = {}
    jobs = []
    for target in plan.get_targets(targets):
        suites = (suite,) if suite is not None and target.suites else target.suites
        members = _restrict([(name, each) for each in suites for name in lookup(SUITES, each, "suite")], target, only)
        for member in members:
            if member not in found:
                tell(member[0])
                found[member] = _measure(*member, download)
        mine = [found[member] for member in members]
        sizes = tuple(each for each in mine if isinstance(each, Size))
        jobs.append(Job(target, suites, options, sizes, tuple(each for each in mine if isinstance(each, Hole))))
    return jobs


def _restrict(members: list[tuple[str, str]], target: Target, only: Sequence[str]) -> list[tuple[str, str]]:
    names = [*only] or ([plan.FIGURE5_SET] if target.simulations else [])
    if not names or not members:
        return members
    chosen = [member for member in members if member[0] in names or title(member[0]) in names]
    known = {name for member in chosen for name in (member[0], title(member[0]))}
    added = [name for name in names if name not in known]
    for name in added:
        resolve(name)  # an unknown name is an error in the request, not a missing data set
    return chosen + [(name, members[0][1]) for name in added]


def _measure(name: str, suite: str, download: bool) -> Size | Hole:
    try:
        data = load_dataset(name, download=download)
        positives = int((data.signs() > 0).sum())
    except DataError as error:
        return Hole(name, str(error))
    except OSError as error:  # a failing disk or network affects this data set only
        return Hole(name, f"{type(error).__name__}: {error}")
    return Size(suite, name, data.checksum, data.X.shape[0], data.X.shape[1], positives)

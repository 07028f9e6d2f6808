"""Which cells make a table: the jobs of a store and of exported files, what is missing and what it cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from closecall.report.formats import Row
from reproduction.protocol import SUITES, plan
from reproduction.protocol.plan import Cell, RunOptions, Size, Target
from reproduction.protocol.published import MODELS

from .compact import Line
from .exchange import read_folder
from .jobs import Job, from_json, in_order
from .record import Record
from .scores import Hole, title
from .store import Store

#: The share of the complete data sets for which more splits of fewer sets are preferred.
NEARLY = 0.8


@dataclass(frozen=True)
class Campaign:
    """The cells and runs in a folder of exported files, used by the tables in place of a store."""

    lines: dict[str, Line]  # key -> cell and record
    runs: Sequence[dict[str, Any]]  # as returned by :func:`reproduction.run.exchange.read_folder`
    failed: dict[str, str] = field(default_factory=dict)  # key -> reason

    def done(self) -> set[str]:
        """Keys of the finished cells."""
        return set(self.lines)

    def failures(self) -> dict[str, str]:
        """Key -> reason, for failed cells."""
        return self.failed

    def records(self, keys: Iterable[str]) -> Iterator[Record]:
        """The records of the finished cells among ``keys``, in the order given."""
        return (self.lines[key].record for key in keys if key in self.lines)

    def cells(self) -> list[Cell]:
        """The finished cells."""
        return [line.cell for line in self.lines.values()]


def read_campaign(folder: Path) -> Campaign:
    """The campaign in a folder of exported files."""
    lines, runs, failed = read_folder(folder)
    return Campaign({line.cell.key: line for line in lines}, runs, failed)


def stored_jobs(store: Store) -> list[Job]:
    """All jobs ever requested of this store, in the order of the paper.

    A job is left out if another one with its name contains all its cells and has finished as many of them.
    """
    jobs: dict[tuple[str, Any], Job] = {}
    with store.understood():
        for job in (from_json(content) for run in store.runs() for content in run["request"].get("jobs", [])):
            key = job.name, job.described()
            jobs[key] = job.united(jobs[key]) if key in jobs else job
    order, done, found = list(plan.TARGETS), store.done(), list[Job]()

    def covers(job: Job, other: Job) -> bool:
        return job.contains(other) and job.unfinished(done).isdisjoint(
            {size.name for size in other.sizes} - other.unfinished(done)
        )

    for job in jobs.values():
        if not any(covers(other, job) for other in found):
            found = [*(other for other in found if not covers(job, other)), job]
    return sorted(found, key=lambda job: order.index(job.target.name))


@dataclass(frozen=True)
class _Variant:
    """How the cells of a (suite, model) were run."""

    splits: int
    max_iter: int
    recipe: int = plan.RECIPE


def jobs_of(campaign: Campaign) -> list[Job]:
    """A job for every target, model and way of running that the campaign has cells or data sets for.

    Targets share cells: Table 4 and the PMLB half of Figures 2, 3 and 4 need only a run of ``table1``. If a suite was
    run in several ways (for example with fewer steps as a trial), one way counts: see :func:`_best`.
    """
    asked = [from_json(content) for run in campaign.runs for content in run["jobs"]]
    variants = _variants(campaign, asked, _at_hand(asked)[0])
    return [
        job
        for target in plan.TARGETS.values()
        for model in ((target.model,) if target.model else MODELS if target.protocols else MODELS[:1])
        for job in _jobs(target, model, *_asked_of(asked, model), variants)
    ]


def _asked_of(asked: Sequence[Job], model: str) -> tuple[dict[str, dict[str, Size]], dict[str, dict[str, Hole]]]:
    """Like :func:`_at_hand`, but without the sets that every run of this model left out, for example as too costly."""
    sizes, holes = _at_hand(asked)
    mine = [job for job in asked if model in job.models]
    had = {(size.suite, size.name) for job in mine for size in job.sizes}
    for job in mine:
        for hole in job.holes:
            for suite in job.suites:
                if hole.dataset in sizes.get(suite, {}) and (suite, hole.dataset) not in had:
                    del sizes[suite][hole.dataset]
                    holes.setdefault(suite, {})[hole.dataset] = hole
    return sizes, holes


def _at_hand(asked: Sequence[Job]) -> tuple[dict[str, dict[str, Size]], dict[str, dict[str, Hole]]]:
    """Suite -> its data sets that some run had, and those that none had, in the order of the suite."""
    sizes: dict[str, dict[str, Size]] = {}
    holes: dict[str, dict[str, Hole]] = {}
    for job in asked:
        for size in job.sizes:
            sizes.setdefault(size.suite, {})[size.name] = size
    for job in asked:
        for suite in job.suites:
            members = [hole for hole in job.holes if hole.dataset in SUITES.get(suite, ())]
            missing = {hole.dataset: hole for hole in members if hole.dataset not in sizes.get(suite, {})}
            holes.setdefault(suite, {}).update(missing)
    for suite, found in sizes.items():
        sizes[suite] = {size.name: size for size in in_order(found.values(), (suite,))}
    return sizes, holes


#: (suite, model, simulated, protocol): what is run in one way.
_Place = tuple[str, str, bool, str]


def _variants(campaign: Campaign, asked: Sequence[Job], sizes: dict[str, dict[str, Size]]) -> dict[_Place, _Variant]:
    """How each (suite, model) was run."""
    finished = campaign.done()
    found: dict[_Place, dict[_Variant, int]] = {}
    for job in asked:
        if not job.target.protocols or job.options.start != plan.STARTS[0]:
            continue
        for suite in job.suites:
            members = _members(suite, sizes, job.target)
            for model in job.models:
                steps = plan.steps_for(job.target, job.options, model)
                for protocol in job.protocols:
                    variant = _Variant(job.splits, steps, plan.recipe_for(job.options, model, protocol))
                    counts = found.setdefault((suite, model, job.target.simulations, protocol), {})
                    if variant not in counts:
                        same = Job(job.target, (suite,), _options(variant, [protocol], model), members, ())
                        counts[variant] = len(members) - len(same.unfinished(finished))
    return {key: _best(counts) for key, counts in found.items()}


def _options(way: _Variant, protocols: Sequence[str], model: str) -> RunOptions:
    """The request for cells of a model; a target's own kind of cells needs no model."""
    models = (model,) if model in MODELS else MODELS[:1]
    return RunOptions(way.splits, way.max_iter, tuple(protocols), models, recipe=way.recipe)


def _best(complete: dict[_Variant, int]) -> _Variant:
    """Among the ways with nearly the most complete data sets, the one with the most splits, then the newest recipe.

    A few large sets not yet run do not hide 25 splits of all others, and are listed as missing.
    """
    enough = [way for way in complete if complete[way] >= NEARLY * max(complete.values())]
    return max(enough, key=lambda way: (way.splits, way.recipe, complete[way]))


def _members(suite: str, sizes: dict[str, dict[str, Size]], target: Target) -> tuple[Size, ...]:
    """The available data sets that the target uses; for a simulation, only the contaminated one."""
    return tuple(
        size for size in sizes.get(suite, {}).values() if not target.simulations or title(size.name) == plan.FIGURE5_SET
    )


def _jobs(
    target: Target,
    model: str,
    sizes: dict[str, dict[str, Size]],
    holes: dict[str, dict[str, Hole]],
    variants: dict[_Place, _Variant],
) -> Iterator[Job]:
    if not target.suites:
        yield Job(target, (), RunOptions(), (), ())
        return
    at_hand = [suite for suite in target.suites if suite in sizes]
    ways: dict[tuple[_Variant | None, tuple[str, ...]], list[str]] = {}
    if not target.protocols and at_hand:
        ways[None, tuple(at_hand)] = []
    for protocol in target.protocols:  # protocols that were run alike, on the same suites, share a job
        alike: dict[_Variant, list[str]] = {}
        for suite in at_hand:
            if way := variants.get((suite, model, target.simulations, protocol)):
                alike.setdefault(way, []).append(suite)
        for run_as, suites in alike.items():
            ways.setdefault((run_as, tuple(suites)), []).append(protocol)
    for (way, together), protocols in ways.items():
        options = _options(way, protocols, model) if way else RunOptions()
        chosen = tuple(size for suite in together for size in _members(suite, sizes, target))
        left = tuple(hole for suite in together if not target.simulations for hole in holes.get(suite, {}).values())
        yield Job(target, together, options, chosen, left)


def coverage(jobs: Sequence[Job], campaign: Campaign) -> list[Row]:
    """For every (suite, protocol, model, what): data sets and cells, planned and done, and which sets are missing."""
    done = campaign.done()
    rows: dict[tuple[str, ...], Row] = {}
    for job in jobs:
        cells = job.cells()
        for suite in job.suites if job.target.protocols else ():
            for protocol in job.protocols:
                mine = [cell for cell in cells if (cell.suite, cell.protocol) == (suite, protocol)]
                left = {cell.dataset for cell in mine if cell.key not in done}
                names = list(dict.fromkeys(cell.dataset for cell in mine))
                model, what = job.models[0], "simulations" if job.target.simulations else "tables"
                rows[suite, protocol, model, what] = {
                    "suite": suite, "what": what, "protocol": protocol, "model": model, "splits": job.splits,
                    "steps": plan.steps_for(job.target, job.options, model), "starts": _starts(job, model, protocol),
                    "sets": len(SUITES.get(suite, names)) if what == "tables" else len(names),
                    "sets_at_hand": len(names), "sets_complete": len(names) - len(left), "cells": len(mine),
                    "cells_done": sum(cell.key in done for cell in mine),
                    "missing": [name for name in names if name in left],
                }  # fmt: skip
    return list(rows.values())


def _starts(job: Job, model: str, protocol: str) -> str:
    """How networks start; empty for other models."""
    each = plan.recipe_for(job.options, model, protocol) >= plan.NEW_STARTS
    return "" if model != "network" else "a new one for each setting" if each else "one for all settings"


def costs(campaign: Campaign) -> list[Row]:
    """For every (protocol, model) and for all: cells, core-hours, and the median and longest seconds of a cell."""
    groups: dict[tuple[str, str], list[float]] = {}
    for line in campaign.lines.values():
        groups.setdefault((line.cell.protocol, line.cell.model), []).append(line.record.seconds)
    everything = [seconds for group in groups.values() for seconds in group]
    named = [*sorted(groups.items()), (("all", "all"), everything)]
    return [
        {
            "protocol": protocol, "model": model, "cells": len(seconds), "core_hours": sum(seconds) / 3600,
            "median_seconds": float(np.median(seconds)), "longest_seconds": max(seconds),
        }
        for (protocol, model), seconds in named if seconds
    ]  # fmt: skip

"""The jobs of a store or of a folder of exported files, with the missing cells and the cost."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from closecall.report.formats import Row
from reproduction.protocol import SUITES, plan
from reproduction.protocol.plan import RunOptions, Size, Target
from reproduction.protocol.published import MODELS

from .exchange import Campaign
from .jobs import Job, from_json, in_order
from .scores import Hole, title
from .store import Store

#: A way of running a suite needs this share of the largest number of complete data sets to be considered.
NEARLY = 0.8


def stored_jobs(store: Store) -> list[Job]:
    """Return all jobs that were ever requested for this store, in the order of the paper.

    A job is left out if another job with the same name contains all its cells and has finished at least as many.
    """
    jobs: dict[tuple[str, Any], Job] = {}
    with store.understood():
        for job in (from_json(content) for run in store.runs() for content in run["request"].get("jobs", [])):
            key = job.name, job.described()
            jobs[key] = job.united(jobs[key]) if key in jobs else job
    order, done, found = list(plan.TARGETS), store.done(), list[Job]()

    def covers(job: Job, other: Job) -> bool:
        finished = {size.name for size in other.sizes} - other.unfinished(done)
        return job.contains(other) and job.unfinished(done).isdisjoint(finished)

    for job in jobs.values():
        if not any(covers(other, job) for other in found):
            found = [*(other for other in found if not covers(job, other)), job]
    return sorted(found, key=lambda job: order.index(job.target.name))


#: (suite, model, simulated, protocol) -> the options with which these cells were run, apart from the protocol.
Ways = dict[tuple[str, str, bool, str], RunOptions]
#: (suite, name) -> an available data set, or the reason why it is missing.
Available = dict[tuple[str, str], Size]
Missing = dict[tuple[str, str], Hole]


def jobs_of(campaign: Campaign) -> list[Job]:
    """Return a job for every target and model for which the campaign has cells or data sets.

    Targets share cells. For example, Table 4 and the PMLB halves of Figures 2, 3 and 4 need just a run of ``table1``.
    If a suite was run with several sets of options, such as fewer steps in a trial, :func:`_best` chooses among them.
    """
    requested = [from_json(content) for run in campaign.runs for content in run["jobs"]]
    ways = _ways(requested, campaign.done())
    return [
        job
        for target in plan.TARGETS.values()
        for model in ((target.model,) if target.model else MODELS if target.protocols else MODELS[:1])
        for job in _jobs(target, model, requested, ways)
    ]


def _available(jobs: Sequence[Job], model: str = "") -> tuple[Available, Missing]:
    """Return the data sets that were in at least one job, and those that were in none.

    If a model is given, a set that all jobs left out (for example, because of its cost) also counts as missing.
    """
    sizes = {(size.suite, size.name): size for job in jobs for size in job.sizes}
    holes = {
        (suite, hole.dataset): hole
        for job in jobs
        for suite in job.suites
        for hole in job.holes
        if hole.dataset in SUITES.get(suite, ()) and (suite, hole.dataset) not in sizes
    }
    mine = [job for job in jobs if model in job.models]
    used = {(size.suite, size.name) for job in mine for size in job.sizes}
    # The first reason counts; a later run on fewer data sets may have others.
    unused = {(suite, hole.dataset): hole for job in reversed(mine) for hole in job.holes for suite in job.suites}
    left_out = {place: hole for place, hole in unused.items() if place in sizes and place not in used}
    return {place: size for place, size in sizes.items() if place not in left_out}, holes | left_out


def _members(suite: str, available: Available, target: Target) -> tuple[Size, ...]:
    """Return the available data sets that the target uses, in order; for a simulation, only the contaminated one."""
    sizes = [size for (place, _), size in available.items() if place == suite]
    return in_order((s for s in sizes if not target.simulations or title(s.name) == plan.FIGURE5_SET), (suite,))


def _ways(requested: Sequence[Job], done: set[str]) -> Ways:
    """Return the options with which each kind of cell was run."""
    available, _ = _available(requested)
    complete: dict[tuple[str, str, bool, str], dict[RunOptions, int]] = {}
    for job in requested:
        if job.options.start != plan.STARTS[0]:
            continue
        for suite, model, protocol in product(job.suites, job.models, job.protocols):
            members = _members(suite, available, job.target)
            models = (model,) if model in MODELS else MODELS[:1]  # a target's own kind of cells needs no model
            way = RunOptions(job.splits, job.steps(model), models=models, recipe=job.recipe(model, protocol))
            counts = complete.setdefault((suite, model, job.target.simulations, protocol), {})
            if way not in counts:
                same = Job(job.target, (suite,), replace(way, protocols=(protocol,)), members, ())
                counts[way] = len(members) - len(same.unfinished(done))
    return {place: _best(counts) for place, counts in complete.items()}


def _best(complete: dict[RunOptions, int]) -> RunOptions:
    """Among the options that completed nearly the most data sets, prefer the most splits, then the newest recipe.

    Thus, 25 splits are preferred to fewer, even if a few large sets have not been run yet; these are listed as missing.
    """
    enough = [way for way in complete if complete[way] >= NEARLY * max(complete.values())]
    return max(enough, key=lambda way: (way.splits, way.recipe, complete[way]))


def _jobs(target: Target, model: str, requested: Sequence[Job], ways: Ways) -> Iterator[Job]:
    if not target.suites:
        yield Job(target, (), RunOptions(), (), ())
        return
    available, missing = _available(requested, model)
    suites = tuple(suite for suite in target.suites if any(place == suite for place, _ in available))
    groups: dict[tuple[RunOptions, tuple[str, ...]], tuple[str, ...]] = {}
    if not target.protocols and suites:
        groups[RunOptions(), suites] = ()
    for protocol in target.protocols:  # protocols run with the same options on the same suites share a job
        alike: dict[RunOptions, tuple[str, ...]] = {}
        for suite in suites:
            if way := ways.get((suite, model, target.simulations, protocol)):
                alike[way] = (*alike.get(way, ()), suite)
        for group in alike.items():
            groups[group] = (*groups.get(group, ()), protocol)
    for (way, together), protocols in groups.items():
        sizes = tuple(size for suite in together for size in _members(suite, available, target))
        found = () if target.simulations else together
        holes = tuple(hole for suite in found for (place, _), hole in missing.items() if place == suite)
        yield Job(target, together, replace(way, protocols=protocols or None), sizes, holes)


def coverage(jobs: Sequence[Job], campaign: Campaign) -> list[Row]:
    """Count planned and finished data sets and cells for each (suite, protocol, model, what), and list missing sets."""
    rows: dict[tuple[str, ...], Row] = {}
    for job in jobs:
        cells, model = job.cells(), job.models[0]
        what = "simulations" if job.target.simulations else "tables"
        for suite, protocol in product(job.suites, job.protocols):
            mine = [cell for cell in cells if (cell.suite, cell.protocol) == (suite, protocol)]
            left = {cell.dataset for cell in mine if cell.key not in campaign.lines}
            names = list(dict.fromkeys(cell.dataset for cell in mine))
            each = job.recipe(model, protocol) >= plan.NEW_STARTS
            starts = "" if model != "network" else "a new one for each setting" if each else "one for all settings"
            rows[suite, protocol, model, what] = {
                "suite": suite, "what": what, "protocol": protocol, "model": model, "splits": job.splits,
                "steps": job.steps(model), "starts": starts,
                "sets": len(SUITES.get(suite, names)) if what == "tables" else len(names), "sets_at_hand": len(names),
                "sets_complete": len(names) - len(left), "cells": len(mine),
                "cells_done": sum(cell.key in campaign.lines for cell in mine),
                "missing": [name for name in names if name in left],
            }  # fmt: skip
    return list(rows.values())


def costs(campaign: Campaign) -> list[Row]:
    """Return cells, core-hours, and the median and longest time of a cell, for each (protocol, model) and in total."""
    groups: dict[tuple[str, str], list[float]] = {}
    for line in campaign.lines.values():
        groups.setdefault((line.cell.protocol, line.cell.model), []).append(line.record.seconds)
    named = [*sorted(groups.items()), (("all", "all"), [seconds for group in groups.values() for seconds in group])]
    return [
        {
            "protocol": protocol, "model": model, "cells": len(seconds), "core_hours": sum(seconds) / 3600,
            "median_seconds": float(np.median(seconds)), "longest_seconds": max(seconds),
        }
        for (protocol, model), seconds in named if seconds
    ]  # fmt: skip

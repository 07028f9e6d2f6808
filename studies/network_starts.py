"""Networks with a new start for every setting, and average with as many: what of close decay's gain is the draws?"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closecall.evaluate.grid import EQUAL_STARTS, choose, grid, k_grid, rows_of
from closecall.evaluate.pairs import compare
from closecall.evaluate.splits import PARTS
from closecall.evaluate.stats import fraction_interval, holm, mean_interval
from closecall.paper.campaign import Campaign, read_campaign
from closecall.paper.cell import divide, starts
from closecall.paper.plan import NEW_STARTS, ONE_START, SPLITS, Cell
from closecall.paper.published import LOSSES
from closecall.paper.scores import Archive, title

from .common import Array, Experiment, Row, Settings, at_hand, dataset, lines_of, made_by, markdown, resume
from .released import train_released

#: Steps of the released descent, the first of them on all sets of at most so many values, the second on the smallest.
STEPS, LONG, LONG_SETS = 2_000, 10_000, 10
MAX_VALUES = 6_000
METHODS = ("average", EQUAL_STARTS, "close_decay")
#: (base, better): what the released procedure compares, and what is left when average has as many starts.
PAIRS = (("average", "close_decay"), (EQUAL_STARTS, "close_decay"), ("average", EQUAL_STARTS))


def run_one(key: Row) -> Row:
    """Test accuracies of what validation chooses on one split of the tables, by the released descent."""
    data = dataset(key["name"])
    cell = Cell("beyond", key["name"], data.checksum, key["split"], "network", "paper", key["steps"], recipe=NEW_STARTS)
    parts = divide(data, cell)
    problems = grid(parts.sizes[0], ("average", "close_decay"), LOSSES)
    own, average = len(problems), [each for each in problems if each.aggregate == "average"]
    problems += average * (len(k_grid(parts.sizes[0])) - 1)
    seeds = starts(cell, problems)
    trained = train_released(parts.X[0], parts.y[0], problems, seeds if isinstance(seeds, list) else [seeds], key["steps"])
    rows = rows_of(problems)
    for part, X, y in zip(PARTS, parts.X, parts.y, strict=True):
        rows[part] = (trained.scores(X) * y > 0).sum(axis=1)
    control = rows[rows["method"] == "average"]
    control["method"] = EQUAL_STARTS
    chosen = choose(np.concatenate([rows[:own], control]), cell.protocol)
    return {f"{row['loss']} {row['method']}": float(row["test"]) / parts.sizes[2] for row in chosen}


def run(settings: Settings) -> None:
    names = at_hand(["pmlb94"], min(MAX_VALUES, settings.max_values), settings.sets)
    # Of all sizes, not the smallest alone: every fourth.
    ways = [(STEPS, names), (LONG, names[3::4][:LONG_SETS])]
    keys = [
        {"name": name, "split": split, "steps": steps}
        for steps, members in ways
        for name in members
        for split in range(settings.splits)
    ]
    resume(settings, "network-starts", keys, run_one)


EXPERIMENT = Experiment("network-starts", run, lambda settings: [], splits=SPLITS)

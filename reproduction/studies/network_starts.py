"""Networks with a new start for every setting, and average with as many: how much of the gain is due to the draws?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from closecall.stats import holm
from reproduction.pages.agreement import pair_agreement
from reproduction.protocol.dataset import PARTS
from reproduction.protocol.grid import EQUAL_STARTS, choose, grid, k_grid, rows_of
from reproduction.protocol.pairs import compare
from reproduction.protocol.plan import NETWORK_STEPS, NEW_STARTS, ONE_START, SPLITS, Cell
from reproduction.protocol.published import LOSSES, PAIR_TABLES
from reproduction.run.campaign import Campaign, read_campaign
from reproduction.run.cell import divide, new_starts
from reproduction.run.scores import Archive, Scores, title

from .common import Array, Experiment, Row, Settings, dataset, lines_of, pmlb_sets, read_csv, resume, write_csv
from .network_starts_page import AGREEMENT, LONG, LONG_SETS, MAX_VALUES, METHODS, NEW, ONE, PAIRS, RELEASED, STEPS, page
from .released import train_released


def run_one(key: Row) -> Row:
    """Test accuracies of the validated choice on one split of the tables, with the released descent."""
    data = dataset(key["name"])
    cell = Cell("beyond", key["name"], data.checksum, key["split"], "network", "paper", key["steps"], recipe=NEW_STARTS)
    parts = divide(data, cell)
    problems = grid(parts.sizes[0], ("average", "close_decay"), LOSSES)
    own, average = len(problems), [each for each in problems if each.aggregate == "average"]
    problems += average * (len(k_grid(parts.sizes[0])) - 1)
    trained = train_released(parts.X[0], parts.y[0], problems, new_starts(cell, problems), key["steps"])
    rows = rows_of(problems)
    for part, X, y in zip(PARTS, parts.X, parts.y, strict=True):
        rows[part] = (trained.scores(X) * y > 0).sum(axis=1)
    control = rows[rows["method"] == "average"]
    control["method"] = EQUAL_STARTS
    chosen = choose(np.concatenate([rows[:own], control]), cell.protocol)
    return {f"{row['loss']} {row['method']}": float(row["test"]) / parts.sizes[2] for row in chosen}


def run(settings: Settings) -> None:
    names = pmlb_sets(min(MAX_VALUES, settings.max_values), settings.sets)
    # Of all sizes, not the smallest alone: every fourth.
    ways = [(STEPS, names), (LONG, names[3::4][:LONG_SETS])]
    keys = [
        {"name": name, "split": split, "steps": steps}
        for steps, members in ways
        for name in members
        for split in range(settings.splits)
    ]
    resume(settings, "network-starts", keys, run_one)


# --- the tables' cells and the study's lines -> one table


def table(settings: Settings) -> list[Row]:
    """One row for each (way, suite, set, loss), over sets with all splits; also writes the agreement."""
    campaign = read_campaign(settings.out / "cells")
    rows, agreement = list[Row](), list[Row]()
    for suite in ("pmlb94", "openml100"):
        new = _scores(campaign, suite, NEW_STARTS, settings.splits)
        if new is None:
            continue
        one = _scores(campaign, suite, ONE_START, settings.splits, new.datasets)
        for way, scores in ((NEW, new), (ONE, one)):
            if scores is None:
                continue
            for loss in LOSSES:
                methods = tuple(each for each in METHODS if each in scores.methods)
                rows += _rows(way, suite, scores.datasets, loss, scores.test(loss, methods), methods)
            for published in PAIR_TABLES.values():
                if published.suite == suite:
                    agreement += [{"way": way, **row} for row in pair_agreement(scores, published)]
    write_csv(settings.out / "beyond" / AGREEMENT, agreement)
    return rows + _released(settings)


def _scores(
    campaign: Campaign, suite: str, recipe: int, splits: int, only: Sequence[str] | None = None
) -> Scores | None:
    """The networks of a suite under the paper's protocol, on the sets with all splits; None if there are none."""
    groups: dict[str, list[Cell]] = {}
    for cell in campaign.cells():
        place = cell.suite, cell.model, cell.protocol, cell.recipe, cell.max_iter
        if place == (suite, "network", "paper", recipe, NETWORK_STEPS) and cell.split < splits:
            groups.setdefault(cell.dataset, []).append(cell)
    whole = [name for name, cells in sorted(groups.items()) if len(cells) == splits and (only is None or name in only)]
    found = Archive(campaign).gather([cell for name in whole for cell in groups[name]])
    return found[0] if found else None


def _released(settings: Settings) -> list[Row]:
    """Rows of the released descent; for sets that the store lacks, those of the published table."""
    found: dict[int, dict[str, dict[int, Row]]] = {STEPS: {}, LONG: {}}
    for line in lines_of(settings, "network-starts"):
        found[line["steps"]].setdefault(line["name"], {})[line["split"]] = line
    published = settings.out / "beyond" / "network-starts.csv"
    before = read_csv(published) if published.exists() else []
    rows = []
    for steps, sets in found.items():
        way = RELEASED.format(steps)
        whole = [name for name, lines in sets.items() if len(lines) >= settings.splits]
        for loss in LOSSES:
            accuracies = np.array(
                [
                    [[sets[name][split][f"{loss} {method}"] for split in range(settings.splits)] for method in METHODS]
                    for name in whole
                ]
            )
            mine = _rows(way, "pmlb94", whole, loss, accuracies, METHODS) if whole else []
            known = {row["set"] for row in mine}
            mine += [row for row in before if (row["way"], row["loss"]) == (way, loss) and row["set"] not in known]
            for stem in PAIRS.values() if mine else ():
                for row, p in zip(mine, holm(np.array([row[f"{stem}_p"] for row in mine])), strict=True):
                    row[f"{stem}_p_holm"] = float(p)
            rows += mine
    return rows


def _rows(
    way: str, suite: str, names: Sequence[str], loss: str, accuracies: Array, methods: tuple[str, ...]
) -> list[Row]:
    """A row for each set, of accuracies (sets, methods, splits): means, differences and p-values of each pair."""
    pairs, means = compare(accuracies, methods, "paper"), 100 * accuracies.mean(axis=-1)
    rows: list[Row] = [
        {"way": way, "suite": suite, "set": title(name), "loss": loss, "splits": accuracies.shape[-1]} for name in names
    ]
    for place, row in enumerate(rows):
        row.update({each: float(means[place, methods.index(each)]) if each in methods else "" for each in METHODS})
    for (base, better), stem in PAIRS.items():
        pair = pairs.get((base, better))
        adjusted = holm(pair.p) if pair else ()
        for place, row in enumerate(rows):
            row[f"{stem}_gain"] = 100 * float(pair.gains[place]) if pair else ""
            row[f"{stem}_p"] = float(pair.p[place]) if pair else ""
            row[f"{stem}_p_holm"] = float(adjusted[place]) if pair else ""
    return rows


EXPERIMENT = Experiment("network-starts", run, table, page, splits=SPLITS)

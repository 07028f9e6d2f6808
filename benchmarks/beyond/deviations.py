"""Why our errors differ from the published ones: one choice changed at a time, on the sets of Table 3."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from closecall.data.suites import SUITES
from closecall.evaluate.grid import choose
from closecall.evaluate.stats import corrected_test, paper_test
from closecall.paper.published import LOSSES, METHODS, TABLE3_ROW, table3_error
from closecall.paper.scores import LABELS, Scores, title

from . import cells, counts, deviations_prose as prose
from .choices import STEPS, choose_small, descended, random_start, released_division, rescaled, solved, wide_grid
from .common import (
    Array,
    Experiment,
    Row,
    Settings,
    dataset,
    division,
    interval_chart,
    made_by,
    markdown,
    mean_error,
    read_lines,
    resume,
    save_chart,
    signed,
)
from .records import read_finished, scores

LONG = 10_000
#: The longer descent only where n x d is at most this: it takes a minute for each split of the smallest set.
LONG_VALUES = 4_000
#: With fewer splits nothing is said of a choice.
FEWEST = 5
BASE = "as the benchmark does"
RELEASED = "released splits"
OWN = "our own splits"
#: Choices that change the splits themselves.
DESCENDED = "released splits and descent"
OTHER_SPLITS = (RELEASED, "stratified splits", "other splits")

#: Choice -> what it changes. All others stay as the paper protocol has them.
CHOICES = {
    BASE: "paper protocol: Newton and majorising steps, tolerance 1e-5, 1,000 steps",
    "every step": "no row may stop before the last step",
    "early stop": "a row stops when its margins move by less than 1e-3 of their size",
    "150 steps": "150 steps instead of 1,000",
    "free intercept": "the intercept is not penalised",
    "ties to larger k": "equals on validation go to the larger k, then the larger alpha",
    "ties to smaller alpha": "equals on validation go to the smaller alpha, then the smaller k",
    "scaled on training part": "mean and variance of the training part instead of the whole set",
    "stratified splits": "parts with the classes' proportions, scaled on the training part",
    "other splits": "25 other random splits: how much chance alone moves",
    "released splits": "the released code's own splits, from its seeds, if the rows are in the same order as there",
    DESCENDED: f"its splits, its descent ({STEPS:,} steps), its grid",
    "start at zero": "w = b = 0 instead of least squares",
    "random start": "standard normal start",
    "wider grid": "alpha = 0 and k = 1 as well, as in the released code",
    "released descent": f"the released code's descent ({STEPS:,} steps) instead of our solver",
    "released descent, wider grid": f"its descent ({STEPS:,} steps) on its grid",
    "released descent, 10,000 steps": "its descent, grid and number of steps (small sets only)",
}


def _solver_group(name: str, split: int) -> dict[str, Array]:
    """What our solver's choices come to; rows -> what validation chooses."""
    parts = division(name, split, "paper")
    base = solved(parts)
    stratified = division(name, split, "sound")
    return {
        BASE: choose(base, "paper"),
        "ties to larger k": choose(base, "sound"),
        "ties to smaller alpha": choose_small(base),
        "every step": choose(solved(parts, tol=0.0), "paper"),
        "early stop": choose(solved(parts, tol=1e-3), "paper"),
        "150 steps": choose(solved(parts, max_iter=150), "paper"),
        "free intercept": choose(solved(parts, penalize_intercept=False), "paper"),
        "scaled on training part": choose(solved(rescaled(parts)), "paper"),
        "stratified splits": choose(solved(stratified), "paper"),
        "other splits": choose(solved(division(name, split + 1000, "paper")), "paper"),
        "start at zero": choose(solved(parts, init="zeros"), "paper"),
        "random start": choose(solved(parts, init=random_start(name, split, parts.X[0].shape[1])), "paper"),
        "wider grid": choose(solved(parts, wide_grid(parts.sizes[0])), "paper"),
    }


def _descent_group(name: str, split: int) -> dict[str, Array]:
    parts = division(name, split, "paper")
    wide = descended(parts, wide_grid(parts.sizes[0]), STEPS)
    average = wide["method"] == "average"
    narrow = wide[(wide["alpha"] > 0) & (average | (wide["k"] > 1))]
    return {"released descent": choose(narrow, "paper"), "released descent, wider grid": choose(wide, "paper")}


def _splits_group(name: str, split: int) -> dict[str, Array]:
    return {"released splits": choose(solved(released_division(name, split)), "paper")}


def _both_group(name: str, split: int) -> dict[str, Array]:
    parts = released_division(name, split)
    found = descended(parts, wide_grid(parts.sizes[0]), STEPS)
    return {DESCENDED: choose(found, "paper")}


def _long_group(name: str, split: int) -> dict[str, Array]:
    parts = division(name, split, "paper")
    return {"released descent, 10,000 steps": choose(descended(parts, wide_grid(parts.sizes[0]), LONG), "paper")}


#: In the order in which they run: what tells most comes first.
GROUPS: dict[str, Callable[[str, int], dict[str, Array]]] = {
    "splits": _splits_group,
    "solver": _solver_group,
    "both": _both_group,
    "descent": _descent_group,
    "long": _long_group,
}


def run_one(key: Row) -> Row:
    """Validation-chosen test errors (fractions) of every choice of a group on one split."""
    found = GROUPS[key["group"]](key["name"], key["split"])
    test = {"stratified splits": ("sound", 0), "other splits": ("paper", 1000)}
    result: Row = {"errors": {}}
    for choice, rows in found.items():
        protocol, shift = test.get(choice, ("paper", 0))
        if choice.startswith("released splits"):
            size = released_division(key["name"], key["split"]).sizes[2]
        else:
            size = division(key["name"], key["split"] + shift, protocol).sizes[2]
        result["errors"][choice] = {f"{row['loss']} {row['method']}": 1 - float(row["test"] / size) for row in rows}
    return result


def run(settings: Settings) -> None:
    wanted = settings.sets or list(TABLE3_ROW)
    names = sorted((n for n in SUITES["fan8"] if title(n) in wanted), key=lambda n: dataset(n).X.size)
    keys = [
        {"name": name, "split": split, "group": group}
        for group in GROUPS
        for name in names
        for split in range(settings.splits)
        if group != "long" or dataset(name).X.size <= LONG_VALUES
    ]
    cells.run(settings)
    resume(settings.raw / "deviations.jsonl", keys, run_one, settings.seconds)


def table(settings: Settings) -> list[Row]:
    """The page's tables under one header; ``part`` says which."""
    parts = {
        "choice": choices_table(settings), "own": own_table(settings), "cell": cells.table(settings),
        "count": counts.table(), "first": counts.first_table(settings),
    }  # fmt: skip
    released = [row for row in parts["choice"] if row["choice"] == RELEASED]
    parts["size"] = sizes(parts["own"], released, descended_errors(parts["choice"]))
    rows = [{"part": part} | row for part, found in parts.items() for row in found]
    header = dict.fromkeys(name for row in rows for name in row)
    return [{name: row.get(name, "") for name in header} for row in rows]


def choices_table(settings: Settings) -> list[Row]:
    """One row for each (set, choice, loss): every method's error and its change from the base."""
    found: dict[tuple[str, str], dict[int, Row]] = {}
    for line in read_lines(settings.raw / "deviations.jsonl"):
        for choice, errors in line["errors"].items():
            found.setdefault((title(line["name"]), choice), {})[line["split"]] = errors
    rows = []
    for (name, choice), by_split in sorted(found.items(), key=lambda item: list(CHOICES).index(item[0][1])):
        base = found.get((name, RELEASED if choice == DESCENDED else BASE), {})
        if len(by_split) < FEWEST:
            continue
        for loss in LOSSES:
            rows.append({"set": name, "choice": choice, "loss": loss} | _numbers(by_split, base, loss, choice))
    return sorted(rows, key=lambda row: row["set"])


def own_table(settings: Settings) -> list[Row]:
    """The benchmark's own errors on the sets of Table 3, each with as many splits as a result store has."""
    if settings.store is None:
        return []
    finished = read_finished(settings.store)
    found: dict[str, tuple[Scores, int]] = {}
    for splits in range(2, settings.splits + 1):
        mine = scores(finished, "fan8", "paper", splits)
        found |= {name: (mine, i) for i, name in enumerate(mine.datasets)} if mine else {}
    rows = []
    for name, (mine, i) in sorted(found.items()):
        for loss in LOSSES:
            errors = 100 - 100 * mine.test(loss)[i]
            row: Row = {"set": title(name), "choice": OWN, "loss": loss, "splits": errors.shape[1]}
            for method, values in zip((*METHODS, "all"), [*errors, errors.mean(axis=0)], strict=True):
                row[method], row[f"{method}_se"] = mean_error(values)
            rows.append(row)
    return rows


def _numbers(by_split: dict[int, Row], base: dict[int, Row], loss: str, choice: str) -> Row:
    # Other splits have nothing to be paired with; what runs on the base's splits is compared on those both have.
    paired = choice not in OTHER_SPLITS and len(set(by_split) & set(base)) > 1
    used = sorted(set(by_split) & set(base)) if paired else sorted(by_split)
    errors = {m: 100 * np.array([by_split[s][f"{loss} {m}"] for s in used]) for m in METHODS}
    row: Row = {"splits": len(used)}
    for method in METHODS:
        row[method], error = mean_error(errors[method])
        row[f"{method}_se"] = error if choice in (BASE, RELEASED) else ""
        own = 100 * np.array([base[s][f"{loss} {method}"] for s in (used if paired else sorted(base))])
        change, change_error = mean_error(errors[method] - own) if paired else (float("nan"), float("nan"))
        if not paired and len(own) > 1:
            change, change_error = row[method] - own.mean(), float(np.hypot(error, mean_error(own)[1]))
        row[f"{method}_change"], row[f"{method}_change_se"] = change, change_error
    # All methods see the same splits, so a lucky draw of splits moves them together.
    row["all"], row["all_se"] = mean_error(np.mean([errors[method] for method in METHODS], axis=0))
    if paired:
        changes = [errors[m] - 100 * np.array([base[s][f"{loss} {m}"] for s in used]) for m in METHODS]
        row["all_change"], row["all_change_se"] = mean_error(np.mean(changes, axis=0))
    pair = -errors["close_decay"], -errors["average"]
    tests = {"independent": paper_test, "corrected": corrected_test}
    for word, test in tests.items():
        row[f"p_{word}"] = float(test(*pair))
    row["p_paired"] = float(corrected_test(*pair, test_over_train=0.0))
    return row


def _moves(rows: list[Row]) -> list[Row]:
    """Choice -> the mean size of its changes over sets, losses and methods, and the mean deviation it leaves."""
    result = []
    for choice in CHOICES:
        mine = [row for row in rows if row["choice"] == choice != DESCENDED]
        if not mine:
            continue
        mine = [row for row in mine if np.isfinite(row["close_change"])]
        if not mine:
            continue
        pairs = [(row, m, table3_error(row["set"], row["loss"], m)) for row in mine for m in METHODS]
        left = np.array([abs(row[m] - published) for row, m, published in pairs if published is not None])
        signedly = np.array([row[m] - published for row, m, published in pairs if published is not None])
        changes = np.array([row[f"{m}_change"] for row, m, _ in pairs])
        noise = np.array([row[f"{m}_change_se"] for row, m, _ in pairs])
        result.append(
            {
                "choice": choice, "sets": len({row["set"] for row in mine}), "splits": min(r["splits"] for r in mine),
                "size": float(np.abs(changes).mean()), "change": float(changes.mean()), "left": float(left.mean()),
                # A mean that differs by chance alone has this size on average.
                "chance": float(np.nanmean(noise) * np.sqrt(2 / np.pi)),
                "clear": int((np.abs(changes) > 2 * noise + 1e-9).sum()), "cells": len(changes),
                "signed": float(signedly.mean()),
            }
        )  # fmt: skip
    return result


def _noise(row: Row, name: str) -> float:
    """Standard error of a difference: the published mean of 25 splits is taken to vary from split to split as ours."""
    theirs = row.get(f"{name}_drawn", np.sqrt(row["splits"] / 25) * row[f"{name}_se"])
    return float(np.hypot(row[f"{name}_se"], theirs))


def clear_cells(rows: list[Row]) -> list[tuple[str, str, str]]:
    """(set, loss, method) of the cells that are more than two standard errors from the published one."""
    return [
        (row["set"], row["loss"], method)
        for row in rows
        for method in METHODS
        if (value := table3_error(row["set"], row["loss"], method)) is not None
        and abs(row[method] - value) > 2 * _noise(row, method)
    ]


def _deviation_table(rows: list[Row], choice: str) -> str:
    """Our errors minus the published ones for each (set, loss), and the mean of the five."""
    lines, sizes = [], []
    for row in (row for row in rows if row["choice"] == choice):
        published = {m: value for m in METHODS if (value := table3_error(row["set"], row["loss"], m)) is not None}
        published["all"] = float(np.mean(list(published.values())))
        line = [f"{row['set']}, {row['loss']} ({row['splits']:.0f} splits)"]
        for name, value in published.items():
            mark = "**" if abs(row[name] - value) > 2 * _noise(row, name) else ""
            line.append(f"{mark}{signed(row[name] - value)}{mark}")
        lines.append(line)
        sizes.append([abs(row[m] - published[m]) for m in METHODS])
    if len(lines) > 1:
        lines.append(["mean size", *(f"{value:.2f}" for value in np.mean(sizes, axis=0)), f"{np.mean(sizes):.2f}"])
    return markdown(["data set, loss", *(LABELS[m] for m in METHODS), "mean of the five"], lines)


def _set_table(rows: list[Row], name: str, loss: str) -> str:
    mine = [row for row in rows if (row["set"], row["loss"]) == (name, loss) and row["choice"] != DESCENDED]
    lines = [["published", *(f"{table3_error(name, loss, m):.2f}" for m in METHODS), "-"]]
    for row in mine:
        own = row["choice"] == BASE
        errors = [
            f"{row[m]:.2f} ± {row[f'{m}_se']:.2f}" if own else signed(row[f"{m}_change"], row[f"{m}_change_se"])
            for m in METHODS
        ]
        p = " / ".join(
            "< 0.001" if row[f"p_{word}"] < 1e-3 else f"{row[f'p_{word}']:.3f}"
            for word in ("independent", "paired", "corrected")
        )
        lines.append([row["choice"], *errors, p])
    return markdown(["choice", *(LABELS[m] for m in METHODS), "p: independent / paired / corrected"], lines)


def _lefts(rows: list[Row]) -> dict[str, list[float]]:
    """Set -> our ten errors minus the published ones."""
    found: dict[str, list[float]] = {}
    for row in rows:
        left = [row[m] - (table3_error(row["set"], row["loss"], m) or np.nan) for m in METHODS]
        found.setdefault(row["set"], []).extend(left)
    return found


def descended_errors(rows: list[Row]) -> list[Row]:
    """Errors on the released splits with the released descent: our solver's there plus the change, paired by split."""
    ours = {(row["set"], row["loss"]): row for row in rows if row["choice"] == RELEASED}
    result = []
    for row in rows:
        place = row["set"], row["loss"]
        if row["choice"] != DESCENDED or place not in ours:
            continue
        found: Row = {"set": row["set"], "loss": row["loss"], "choice": DESCENDED, "splits": row["splits"]}
        for name in (*METHODS, "all"):
            found[name] = ours[place][name] + row[f"{name}_change"]
            found[f"{name}_se"] = float(np.hypot(ours[place][f"{name}_se"], row[f"{name}_change_se"]))
            found[f"{name}_drawn"] = np.sqrt(ours[place]["splits"] / 25) * ours[place][f"{name}_se"]
        result.append(found)
    return result


def sizes(own: list[Row], released: list[Row], descended: list[Row]) -> list[Row]:
    """What is left on average over the sets, and how many cells are clear, by what of the released code is used."""
    lefts = [_lefts(rows) for rows in (own, released, descended)]
    both = prose.compared_sets(lefts[0], {name: float(np.abs(left).mean()) for name, left in lefts[1].items()})
    result = []
    for way, left, rows in zip(("own", "released", "descended"), lefts, (own, released, descended), strict=True):
        if both and set(both) <= set(left):
            mine = [row for row in rows if row["set"] in both]
            mean = float(np.mean([np.abs(left[name]).mean() for name in both]))
            clear, cells_of = len(clear_cells(mine)), len(mine) * len(METHODS)
            result.append({"choice": way, "left": mean, "clear": clear, "cells": cells_of})
    return result


def _both_table(own: list[Row], released: list[Row], descended: list[Row]) -> str:
    """Set -> its mean distance from the published errors on our splits, on the released ones, and by its descent."""
    lefts = [_lefts(rows) for rows in (own, released, descended)]
    counts_of = [{row["set"]: f"{row['splits']:.0f}" for row in rows} for rows in (own, released, descended)]
    lines = []
    for name in dict.fromkeys(row["set"] for row in own):
        line = [name]
        for left, splits in zip(lefts, counts_of, strict=True):
            values = left.get(name, [np.nan])
            line += [splits.get(name, "-"), *_sizes(values)]
        lines.append(line)
    means = {row["choice"]: f"{row['left']:.2f}" for row in sizes(own, released, descended)}
    total = [part for way in ("own", "released", "descended") for part in ("", means.get(way, "-"), "")]
    lines.append(["mean, the nearer german", *total])
    header = ["data set", "own splits", "left", "left, signed", "released splits", "left", "left, signed",
              "its descent too", "left", "left, signed"]  # fmt: skip
    return markdown(header, lines)


def _sizes(left: list[float]) -> tuple[str, str]:
    size = float(np.abs(left).mean())
    return (f"{size:.2f}" if np.isfinite(size) else "-"), signed(float(np.mean(left)))


def page(everything: list[Row], figure: Path) -> str:
    parted = {
        part: [row for row in everything if row["part"] == part] for part in ("choice", "own", "cell", "count", "first")
    }
    rows, own = parted["choice"], parted["own"]
    released = [row for row in rows if row["choice"] == RELEASED]
    descended = descended_errors(rows)
    found = _moves(rows)
    shown = [{"label": r["choice"], "mean": r["size"], "low": 0.0, "high": r["size"]} for r in found[1:]]
    save_chart(interval_chart(shown, label="label", title="mean size of the change in test error (points)"), figure)
    names = list(dict.fromkeys(row["set"] for row in rows if row["choice"] == BASE))
    overview = [
        [r["choice"], CHOICES[r["choice"]], f"{r['sets']:.0f}", f"{r['splits']:.0f}", f"{r['size']:.2f}",
         f"{r['chance']:.2f}", f"{r['clear']} of {r['cells']}", signed(r["change"]), f"{r['left']:.2f}",
         signed(r["signed"])]
        for r in found
    ]  # fmt: skip
    parts = [
        "# Where we differ from Table 3, and why\n",
        prose.BEGIN,
        "## Our own splits and the released ones\n",
        prose.BOTH,
        _both_table(own, released, descended),
        prose.both_reading(*({n: float(np.abs(v).mean()) for n, v in _lefts(r).items()} for r in (own, released))),
        "\n### On our own splits\n",
        prose.OWN,
        _deviation_table(own or rows, OWN if own else BASE),
        "\n### On the released code's own splits\n",
        prose.RELEASED,
        _deviation_table(rows, RELEASED),
        *(
            [
                "\n### With its descent as well\n",
                prose.DESCENDED,
                _deviation_table(descended, DESCENDED),
                prose.descended_reading(clear_cells(descended), len(descended) * len(METHODS)),
            ]
            if descended
            else []
        ),
        "\n## The cells that are left\n",
        prose.cells_reading(parted["cell"]),
        prose.CELLS,
        *cells.section(parted["cell"]),
        "\n## Are the published errors means of 25 splits?\n",
        prose.COUNTS,
        counts.section(parted["count"]),
        prose.counts_reading(parted["count"]),
        prose.FIRST,
        counts.first_section(parted["first"]),
        "\n## One choice at a time, on our own splits\n",
        prose.CHOICES,
        markdown(
            ["choice", "what it is", "sets", "splits", "size", "by chance", "clear", "change", "left", "left, signed"],
            overview,
        ),
        f"\n![Mean size of the change by choice](beyond/{figure.name})\n",
        prose.EACH,
    ]
    for name in names:
        parts += [f"### {name}\n", *(f"{loss}\n\n{_set_table(rows, name, loss)}\n" for loss in LOSSES)]
    return "\n".join([*parts, made_by("deviations", " --store FOLDER")])


EXPERIMENT = Experiment("deviations", "Deviations from Table 3", run, table, page, splits=25, file="deviations.md")

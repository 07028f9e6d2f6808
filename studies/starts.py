"""How much the start of the descent matters: least squares, zeros, or standard normal draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from closecall.evaluate.grid import LABELS, choose, rows_of, score_linear
from closecall.evaluate.splits import Division
from closecall.paper.cell import grid
from closecall.paper.plan import STARTS, Cell, rng_for
from closecall.paper.published import LOSSES, METHODS
from closecall.paper.scores import title
from closecall.solvers import solve

from .common import (
    Array,
    Experiment,
    Row,
    Settings,
    at_hand,
    dataset,
    division,
    lines_of,
    made_by,
    markdown,
    mean_error,
    mean_interval,
    resume,
    save_chart,
    signed,
)

MAX_ITER = 300
#: A problem's objective counts as worse than another start's if it is higher by more than this share.
WORSE = 0.01


def _init(start: str, name: str, split: int, features: int) -> Any:
    if start != "random":
        return start
    cell = Cell("beyond", name, dataset(name).checksum, split, "linear", "sound")
    draw = rng_for(cell, "start").standard_normal(features + 1)
    return draw[1:], float(draw[0])


def solved(parts: Division, init: Any, dtype: Any = np.float32) -> Array:
    """The rows of the paper's grid, scored on all parts."""
    problems = grid(parts.sizes[0])
    found = solve(parts.X[0], parts.y[0], problems, max_iter=MAX_ITER, tol=1e-3, init=init, dtype=dtype)
    rows = rows_of(problems)
    score_linear(rows, found.coef, found.intercept, parts)
    rows["objective"] = found.objective
    return rows


def run_one(key: Row) -> Row:
    """For each (loss, method): chosen errors from each start; how all rows' objectives and training errors compare."""
    parts = division(key["name"], key["split"])
    by_start = {s: solved(parts, _init(s, key["name"], key["split"], parts.X[0].shape[1])) for s in STARTS}
    lowest = np.min([rows["objective"] for rows in by_start.values()], axis=0)
    fewest = np.min([parts.sizes[0] - rows["train"].astype(int) for rows in by_start.values()], axis=0)
    result: Row = {"found": []}
    for start, rows in by_start.items():
        picked = {(row["loss"], row["method"]): row for row in choose(rows, "sound")}
        for loss in LOSSES:
            for method in METHODS:
                mine = (rows["loss"] == loss) & (rows["method"] == method)
                row = picked[loss, method]
                errors = parts.sizes[0] - rows["train"][mine].astype(int)
                result["found"].append(
                    {
                        "start": start, "loss": loss, "method": method,
                        "test": 1 - float(row["test"] / parts.sizes[2]),
                        "train": 1 - float(row["train"] / parts.sizes[0]),
                        "worse": float((rows["objective"][mine] > (1 + WORSE) * lowest[mine] + 1e-9).mean()),
                        "excess": float((errors - fewest[mine]).mean() / parts.sizes[0]),
                    }
                )  # fmt: skip
    return result


def run(settings: Settings) -> None:
    names = at_hand(["embedded"], 50_000, settings.sets)
    titles = {title(name) for name in names}
    more = [n for n in at_hand(["pmlb94"], settings.max_values, settings.sets) if title(n) not in titles]
    names += [name for name in more if len(dataset(name).y) >= 100][::4]
    keys = [{"name": name, "split": split} for split in range(settings.splits) for name in names]
    resume(settings, "starts", keys, run_one)


def per_set(settings: Settings) -> list[Row]:
    """One row for each (set, loss, method, start): means over splits, and the difference from least squares."""
    lines: dict[tuple[str, ...], dict[int, Row]] = {}
    for line in lines_of(settings, "starts"):
        for found in line["found"]:
            key = title(line["name"]), found["loss"], found["method"], found["start"]
            lines.setdefault(key, {})[line["split"]] = found
    rows = []
    for (name, loss, method, start), by_split in sorted(lines.items()):
        base = lines[name, loss, method, "least_squares"]
        values = {what: 100 * np.array([by_split[s][what] for s in by_split]) for what in by_split[min(by_split)]
                  if what in ("test", "train", "worse", "excess")}  # fmt: skip
        change, error = mean_error(values["test"] - 100 * np.array([base[s]["test"] for s in by_split]))
        test, test_error = mean_error(values["test"])
        rows.append(
            {
                "set": name, "loss": loss, "method": method, "start": start, "splits": len(by_split), "test": test,
                "test_se": test_error, "change": change, "change_se": error, "train": float(values["train"].mean()),
                "worse": float(values["worse"].mean()), "excess": float(values["excess"].mean()),
            }
        )  # fmt: skip
    return rows


def table(settings: Settings) -> list[Row]:
    """One row for each (loss, method, start): over the data sets."""
    rows, result = per_set(settings), []
    for loss in LOSSES:
        for method in METHODS:
            for start in STARTS:
                mine = [r for r in rows if (r["loss"], r["method"], r["start"]) == (loss, method, start)]
                mean, low, high = mean_interval([row["change"] for row in mine])
                result.append(
                    {
                        "loss": loss, "method": method, "start": start, "sets": len(mine),
                        "splits": min(row["splits"] for row in mine),
                        "test": float(np.mean([row["test"] for row in mine])), "mean": mean, "low": low, "high": high,
                        "largest": max((row["change"] for row in mine), key=abs),
                        "train": float(np.mean([row["train"] for row in mine])),
                        "worse": float(np.mean([row["worse"] for row in mine])),
                        "excess": float(np.mean([row["excess"] for row in mine])),
                    }
                )  # fmt: skip
    return result


def _chart(found: list[Row]) -> Any:
    import altair as alt

    values = [
        {"method": LABELS[r["method"]], "start": r["start"].replace("_", " "), "loss": r["loss"], "excess": r["excess"]}
        for r in found
    ]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_point(filled=True, size=60)
        .encode(
            x=alt.X("excess:Q", title="training error above the best start's (points)"),
            y=alt.Y("method:N", title=None, sort=[LABELS[method] for method in METHODS]),
            color=alt.Color("start:N", title=None, scale=alt.Scale(range=["#0072B2", "#D55E00", "#009E73"])),
            shape=alt.Shape("start:N", title=None),
            column=alt.Column("loss:N", title=None, sort=list(LOSSES)),
        )
        .properties(width=170, height=alt.Step(20))
    )


def page(found: list[Row], figure: Path) -> str:
    save_chart(_chart(found), figure)
    lines = [
        [
            f"{row['loss']} {LABELS[row['method']]}, {row['start'].replace('_', ' ')}", f"{row['test']:.2f}",
            "-" if row["start"] == STARTS[0] else
            f"{signed(row['mean'])} ({signed(row['low'])} to {signed(row['high'])})",
            "-" if row["start"] == STARTS[0] else signed(row["largest"]), f"{row['train']:.2f}",
            f"{row['excess']:.2f}", f"{row['worse']:.1f}",
        ]
        for row in found
    ]  # fmt: skip
    header = ["aggregate, start", "test error", "change from least squares (95 % interval)", "largest change on a set",
              "training error", "excess training error", "objective over 1 % worse (% of problems)"]  # fmt: skip
    return "\n".join(
        [
            "# Sensitivity to the start\n",
            f"{found[0]['sets']:.0f} data sets, {found[0]['splits']:.0f} or more splits of the sound protocol, the "
            f"paper's whole grid, {MAX_ITER} steps. Random is a standard normal draw for each split. *Test error* and "
            "*training error* (%) are of the row chosen on the validation part. *Excess training error* (points) and "
            "the last column look at every problem of the grid, chosen or not, against the best of the three starts. "
            "`average` and `atk` are convex: their starts should not matter, and what is left is flat minima and "
            "early leaving. The "
            "objective of close-k leaves out the constant M, so a lower one need not be a better one.\n",
            markdown(header, lines),
            f"\n![Excess training error by start](beyond/{figure.name})\n",
            made_by("starts"),
        ]
    )


EXPERIMENT = Experiment("starts", "Sensitivity to the start", run, table, page, splits=5)

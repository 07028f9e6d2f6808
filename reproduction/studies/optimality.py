"""How far from the fewest training errors close-k and its relatives end, on twenty small PMLB sets.

The training half of one division; the fewest errors of any linear classifier by `theory.minimum_errors`, proven or with
the bound that was proven when time ran out. The contenders are those of ``closecall reproduce exact01``: the plain
surrogates with alpha = 1, every other aggregate with the fewest errors over its counts and two alphas.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from reproduction.protocol import beyond
from reproduction.protocol.beyond import BOUND, EXACT
from reproduction.protocol.grid import LABELS, choose
from reproduction.protocol.plan import MAX_ITER
from reproduction.protocol.splits import Division

from .common import (
    Experiment,
    Row,
    Settings,
    at_hand,
    division,
    lines_of,
    made_by,
    markdown,
    of_sets,
    resume,
    save_chart,
)

#: Sets, and the most columns, as encoded, that one of them has.
SETS, COLUMNS = 20, 7
#: Rows x columns of the largest that is looked at.
LARGEST = 5_000
PLAIN, CLOSE = "logistic.average", "logistic.close"
#: What is shown, in the order of the columns.
DECAY = "logistic.close_decay"
SHOWN = (PLAIN, "hinge.average", "logistic.atk", "logistic.trimmed", DECAY, CLOSE)


def run_one(key: Row) -> Row:
    """Training errors of each contender, the fewest found and the proven bound."""
    parts = division(key["name"], key["split"])
    whole = Division((parts.X[0],) * 3, (parts.y[0],) * 3)
    rows = choose(beyond.STUDIES["exact"].rows(whole, MAX_ITER), "sound")
    n = len(parts.y[0])
    errors = {f"{row['loss']}.{row['method']}".lstrip("."): n - int(row["train"]) for row in rows}
    return {"rows": n, "columns": parts.X[0].shape[1], "errors": errors}


def chosen_sets(settings: Settings) -> list[str]:
    """The smallest sets with few columns."""
    names = at_hand(("pmlb94",), min(settings.max_values, LARGEST), settings.sets)
    return [name for name in names if division(name, 0).X[0].shape[1] <= COLUMNS][:SETS]


def run(settings: Settings) -> None:
    keys = [{"name": name, "set": name.partition(":")[2], "split": split}
            for name in chosen_sets(settings) for split in range(settings.splits)]  # fmt: skip
    resume(settings, "optimality", keys, run_one)


def table(settings: Settings) -> list[Row]:
    """A row for each set, by how far logistic regression is from what is proven."""
    rows = []
    for line in lines_of(settings, "optimality"):
        errors = line["errors"]
        bound, least = errors[BOUND], errors[EXACT]
        facts = {"set": line["set"], "split": line["split"], "rows": line["rows"], "columns": line["columns"],
                 "bound": bound, "minimum": least, "proven": int(bound >= least)}  # fmt: skip
        rows.append(facts | {name: errors[name] for name in SHOWN})
    return sorted(rows, key=lambda row: (-(row[PLAIN] - row["bound"]) / row["rows"], row["set"]))


def _label(name: str) -> str:
    loss, _, method = name.partition(".")
    return f"average, {loss} loss" if name in (PLAIN, "hinge.average") else LABELS[method]


def _chart(rows: list[Row]) -> Any:
    import altair as alt

    values = [
        {"set": row["set"], "method": _label(name), "above": 100 * (row[name] - row["bound"]) / row["rows"]}
        for row in rows
        for name in (PLAIN, "logistic.trimmed", CLOSE)
    ]
    order = [row["set"] for row in rows]
    return (
        alt.Chart(alt.Data(values=values))
        .mark_point(filled=True, size=60, opacity=0.8)
        .encode(
            x=alt.X("above:Q", title="training errors above the proven bound (% of the rows)"),
            y=alt.Y("set:N", sort=order, title=None, axis=alt.Axis(labelLimit=260)),
            color=alt.Color("method:N", title=None, scale=alt.Scale(range=["#999999", "#0072B2", "#E69F00"])),
            shape=alt.Shape("method:N", title=None),
        )
        .properties(width=360, height=alt.Step(18))
    )


def page(rows: list[Row], figure: Path) -> str:
    save_chart(_chart(rows), figure)
    count = len(rows)
    proven = [row for row in rows if row["proven"]]
    gaps = {name: [100 * (row[name] - row["bound"]) / row["rows"] for row in rows] for name in SHOWN}
    there = {name: sum(row[name] <= row["minimum"] for row in proven) for name in SHOWN}
    overall = [
        (_label(name), f"{np.mean(gaps[name]):.2f}", f"{np.max(gaps[name]):.1f}", of_sets(there[name], len(proven)))
        for name in SHOWN
    ]
    shown = [
        (
            row["set"],
            f"{row['rows']:.0f} x {row['columns']:.0f}",
            _minimum(row),
            *(f"{row[name]:.0f}" for name in SHOWN),
        )
        for row in rows
    ]
    return "\n".join(
        [
            "# How far from the fewest training errors\n",
            f"**Close decay makes {np.mean(gaps[DECAY]):.1f} % of the rows more training errors than the best "
            f"linear classifier, the average logistic loss {np.mean(gaps[PLAIN]):.1f} %; it reaches the proven "
            f"minimum on {of_sets(there[DECAY], len(proven))} sets.**\n",
            markdown(("", "mean gap, % of the rows", "largest", "at the proven minimum"), overall),
            f"\n![Gaps](beyond/{figure.name})\n",
            markdown(("set", "rows x columns", "fewest errors", *map(_label, SHOWN)), shown),
            "\n## How it was measured\n",
            f"The training half of one division of the {count} smallest PMLB sets with at most {COLUMNS} columns. The "
            f"fewest errors that any linear classifier makes there are proven for {of_sets(len(proven), count)} sets; "
            "for the others the bound is what was proven when a minute was over, and all gaps are to the bound. A row "
            "on the boundary is an error. Average has alpha = 1; the others have the fewest training errors over their "
            "counts and two alphas, which is what they can reach, not what one would choose.\n",
            made_by("optimality"),
        ]
    )


def _minimum(row: Row) -> str:
    return f"{row['minimum']:.0f}" if row["proven"] else f"{row['bound']:.0f} to {row['minimum']:.0f}"


EXPERIMENT = Experiment("optimality", run, table, page, splits=1)

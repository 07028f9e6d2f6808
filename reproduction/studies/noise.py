"""How often the guard of the searches takes a challenger where there is nothing to learn: labels that are pure noise.

Every case draws normal features and balanced labels without any relation to them, with its run's number as seed. Its
table is quoted by the page on how to read the results; it has no page of its own.
"""

from __future__ import annotations

import numpy as np

from closecall import AggregateLossClassifierCV
from closecall.stats import fraction_interval

from .common import Experiment, Row, Settings, lines_of, resume

#: name -> (aggregate, form of the classes, rows, columns, classes)
CASES = {
    f"{aggregate}_{rows}_x_{columns}": (aggregate, "ovr", rows, columns, 2)
    for aggregate in ("close", "close_decay", "top", "atk")
    for rows, columns in ((200, 60), (100, 10), (400, 20))
} | {
    f"{aggregate}_{form},_3_classes_{rows}_x_{columns}": (aggregate, form, rows, columns, 3)
    for form in ("ovr", "top_two")
    for aggregate, rows, columns in (("close_decay", 150, 10), ("close", 150, 10))
}


def run_one(key: Row) -> Row:
    """Whether the search left its baseline."""
    aggregate, form, rows, columns, classes = CASES[key["case"]]
    rng = np.random.default_rng([key["seed"], rows, columns])
    X, y = rng.normal(size=(rows, columns)), rng.permutation(np.arange(rows) % classes)
    model = AggregateLossClassifierCV(aggregate=aggregate, multiclass=form, refit=False).fit(X, y)
    return {"taken": any(step["taken"] for step in model.guard_report_["comparisons"])}


def run(settings: Settings) -> None:
    cases = [case for case in CASES if not settings.sets or case in settings.sets]
    resume(settings, "noise", [{"case": c, "seed": seed} for seed in range(settings.splits) for c in cases], run_one)


def table(settings: Settings) -> list[Row]:
    """One row for each case that was run."""
    lines, rows = lines_of(settings, "noise"), list[Row]()
    for case, (aggregate, form, _, _, classes) in CASES.items():
        mine = [line["taken"] for line in lines if line["case"] == case]
        if mine:
            low, high = fraction_interval(sum(mine), len(mine))
            shape = {"case": case, "aggregate": aggregate, "multiclass": form, "classes": classes}
            rows.append(shape | {"runs": len(mine), "taken": float(np.mean(mine)), "low": low, "high": high})
    return rows


EXPERIMENT = Experiment("noise", run, table, splits=200)

"""What the benchmark cost: cells, problems and core-hours, and the same work one problem at a time."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from benchmarks import solver as timing
from closecall.objective import Problem
from closecall.paper.cell import grid
from closecall.solvers import solve

from .common import Experiment, Row, Settings, division, lines_of, made_by, markdown, resume, save_chart
from .records import read_finished

#: Where the ratio is measured; both sides run in turn in one process on one core.
MEASURED = ("pmlb:monk3", "pmlb:phoneme")
STEPS = 1000


def run_one(key: Row) -> Row:
    """Processor seconds for each problem: the whole grid at once, and a sample of a plain torch loop, in turn."""
    import torch

    torch.set_num_threads(1)
    parts = division(key["name"], key["split"], "paper")
    X, y = parts.X[0].astype(np.float32), parts.y[0]
    problems = grid(len(y))
    some = [Problem(loss, each, min(100, len(y)), 1.0) for loss in timing.LOSSES for each in timing.AGGREGATES]
    tensors = torch.from_numpy(X), torch.from_numpy(y.astype(np.float32))
    timing.torch_problem(*tensors, some[0], steps=20)  # warm
    began = time.process_time()
    solve(X, y, problems, max_iter=STEPS, tol=1e-5, penalize_intercept=True, dtype=np.float32)
    ours = (time.process_time() - began) / len(problems)
    began = time.process_time()
    for problem in some:
        timing.torch_problem(*tensors, problem, steps=STEPS)
    loop = (time.process_time() - began) / len(some)
    return {"rows": len(y), "features": X.shape[1], "problems": len(problems), "ours": ours, "loop": loop}


def run(settings: Settings) -> None:
    names = [name for name in MEASURED if not settings.sets or name.split(":")[1] in settings.sets]
    keys = [{"name": name, "split": split} for split in range(settings.splits) for name in names]
    resume(settings, "cost", keys, run_one)


def table(settings: Settings) -> list[Row]:
    """Cells by (protocol, model, contamination), then the measured ratios."""
    groups: dict[tuple[str, str, str], list[tuple[float, int]]] = {}
    if settings.store is not None:
        finished = read_finished(settings.store)
        for cell, record in finished.pairs.values():
            problems = len(grid(record.sizes[0]))
            kind = cell.protocol, cell.model, "simulations" if cell.contamination else "data sets"
            groups.setdefault(kind, []).append((record.seconds, problems))
    rows: list[Row] = []
    for (protocol, model, what), found in sorted(groups.items()):
        seconds, problems = np.array(found, dtype=float).T
        rows.append(
            {
                "kind": "cells", "what": f"{protocol}, {model}, {what}", "cells": len(found),
                "problems": int(problems.sum()), "core_hours": float(seconds.sum() / 3600),
                "ms": float(1e3 * seconds.sum() / problems.sum()), "loop_ms": float("nan"), "ratio": float("nan"),
                "ratio_low": float("nan"), "ratio_high": float("nan"),
            }
        )  # fmt: skip
    lines: dict[str, list[Row]] = {}
    for line in lines_of(settings, "cost"):
        lines.setdefault(line["name"], []).append(line)
    for name, measured in sorted(lines.items()):
        ratios = np.array([line["loop"] / line["ours"] for line in measured])
        rows.append(
            {
                "kind": "ratio", "what": f"{name} ({measured[0]['rows']} x {measured[0]['features']})",
                "cells": len(measured), "problems": measured[0]["problems"], "core_hours": float("nan"),
                "ms": float(1e3 * np.mean([line["ours"] for line in measured])),
                "loop_ms": float(1e3 * np.mean([line["loop"] for line in measured])),
                "ratio": float(np.median(ratios)), "ratio_low": float(ratios.min()), "ratio_high": float(ratios.max()),
            }
        )  # fmt: skip
    return rows


def page(rows: list[Row], figure: Path) -> str:
    import altair as alt

    cells = [row for row in rows if row["kind"] == "cells"]
    ratios = [row for row in rows if row["kind"] == "ratio"]
    values = [
        {"what": row["what"], "how": how, "ms": row[name]}
        for row in ratios
        for how, name in (("whole grid at once", "ms"), ("one at a time", "loop_ms"))
    ]
    chart = alt.Chart(alt.Data(values=values)).mark_point(filled=True, size=60).encode(
        x=alt.X("ms:Q", scale=alt.Scale(type="log"), title="processor milliseconds for each problem (1,000 steps)",
                axis=alt.Axis(grid=False, values=[0.1, 1, 10, 100, 1000])),
        y=alt.Y("what:N", title=None),
        color=alt.Color("how:N", title=None, scale=alt.Scale(range=["#D55E00", "#0072B2"])),
    )  # fmt: skip
    save_chart(chart.properties(width=330, height=alt.Step(24)), figure)
    total = {name: sum(row[name] for row in cells) for name in ("cells", "problems", "core_hours")}
    lines = [[r["what"], f"{r['cells']:,.0f}", f"{r['problems']:,.0f}", f"{r['core_hours']:.2f}", f"{r['ms']:.2f}"]
             for r in cells]  # fmt: skip
    parts = ["# What it cost\n"]
    if cells:
        each = 1e3 * 3600 * total["core_hours"] / total["problems"]
        lines.append(["all", f"{total['cells']:,.0f}", f"{total['problems']:,.0f}", f"{total['core_hours']:.2f}",
                      f"{each:.2f}"])  # fmt: skip
        parts += [
            "Finished cells of the benchmark. A cell is one split of one data set: every problem of the paper's grid, "
            "and the baselines. Core-hours are seconds in the worker, one core each, on a machine that may have been "
            "busy with other things: an upper bound.\n",
            markdown(["cells", "number", "problems", "core-hours", "ms for each problem"], lines),
            "",
        ]
    parts += [
        "## One problem at a time\n",
        f"The same problems by a plain torch loop (autograd, a sort at every step, {STEPS:,} steps, one thread) and by "
        "the batched solver, in turn, in processor time. The loop is timed on one problem of each (loss, aggregate).\n",
        markdown(
            ["data set (training part)", "turns", "ours, ms", "loop, ms", "ratio (least to most)"],
            [
                [r["what"], f"{r['cells']:.0f}", f"{r['ms']:.2f}", f"{r['loop_ms']:.0f}",
                 f"{r['ratio']:.0f} ({r['ratio_low']:.0f} to {r['ratio_high']:.0f})"]
                for r in ratios
            ],
        ),
        f"\n![Milliseconds for each problem](beyond/{figure.name})\n",
    ]  # fmt: skip
    if cells and ratios:
        linear = [row for row in cells if "linear" in row["what"]]
        problems, hours = (sum(row[name] for row in linear) for name in ("problems", "core_hours"))
        fast, slow = (f(row["loop_ms"] for row in ratios) for f in (min, max))
        parts.append(
            f"At {fast:.0f} to {slow:.0f} ms each, the {problems:,.0f} linear problems would take the loop "
            f"{problems * fast / 3.6e6:,.0f} to {problems * slow / 3.6e6:,.0f} core-hours instead of {hours:.1f} "
            "(baselines included): a rough figure, since larger sets take longer and smaller ones less.\n"
        )
    return "\n".join([*parts, made_by("cost", " --store FOLDER")])


EXPERIMENT = Experiment("cost", "What it cost", run, table, page, splits=3)

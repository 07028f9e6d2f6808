"""Close-k against its relatives: average of ranked range (AoRR), trimming, the ramp and the focal loss."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from closecall.evaluate.grid import ALPHAS, k_grid
from closecall.objective import Problem
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
    interval_chart,
    lines_of,
    made_by,
    resume,
    save_chart,
    with_enough,
)
from .compare import overall, overall_table, per_set_table, summarise

MAX_ITER = 300
#: What AoRR and trimming leave out: shares of the training mass. 0 would be atk and average, which run by themselves.
LEFT_OUT = (0.01, 0.05, 0.1, 0.2)
#: The far end of AoRR's range, as shares of the training mass: all but the easiest.
RANGES = (0.1, 0.4, 0.7, 1.0)
BASE = "logistic average"
LABELS = {
    f"{loss} {aggregate}": f"{loss} {word}"
    for loss in ("logistic", "hinge", "ramp", "focal")
    for aggregate, word in {
        "average": "average", "close": "close", "close_decay": "close decay", "atk": "atk",
        "ranked_range": "AoRR", "trimmed": "trimmed",
    }.items()
}  # fmt: skip


def problems(n: int) -> list[Problem]:
    """Every problem of a split: five aggregates of two losses, and the averages of ramp and focal.

    Examples
    --------
    >>> found = problems(277)
    >>> len(found), len({f"{p.loss} {p.aggregate}" for p in found})
    (638, 14)
    """
    counts = {
        "average": [(None, None)],
        "close": [(k, None) for k in k_grid(n)],
        "close_decay": [(k, None) for k in k_grid(n)],
        "atk": [(k, None) for k in k_grid(n)],
        "trimmed": [(None, m) for m in LEFT_OUT],
        "ranked_range": [(k, m) for k in RANGES for m in LEFT_OUT if m < k],
    }
    return [
        Problem(loss, aggregate, k, alpha, m)
        for loss in ("logistic", "hinge", "ramp", "focal")
        for aggregate, pairs in counts.items()
        if aggregate == "average" or loss in ("logistic", "hinge")
        for k, m in pairs
        for alpha in ALPHAS
    ]


def chosen(found: list[Problem], validation: Array, n: int) -> dict[str, int]:
    """Method -> its row with the most correct validation examples; equals go to the larger k, m, then alpha."""
    best: dict[str, tuple[tuple[float, ...], int]] = {}
    for place, problem in enumerate(found):
        k = n if problem.k is None else problem.k if isinstance(problem.k, int) else problem.k * n
        rank = (float(validation[place]), float(k), -float(problem.m or 0), problem.alpha)
        name = f"{problem.loss} {problem.aggregate}"
        if name not in best or rank > best[name][0]:
            best[name] = rank, place
    return {name: place for name, (_, place) in best.items()}


def run_one(key: Row) -> Row:
    """All methods on one split of the sound protocol: trained on half, chosen on a quarter, tested on a quarter."""
    parts = division(key["name"], key["split"])
    found = problems(parts.sizes[0])
    began = time.process_time()
    solutions = solve(parts.X[0], parts.y[0], found, max_iter=MAX_ITER, tol=1e-3, dtype=np.float32)
    seconds = time.process_time() - began
    right = [
        ((X @ solutions.coef.T + solutions.intercept) * y[:, None] > 0).sum(axis=0)
        for X, y in zip(parts.X, parts.y, strict=True)
    ]
    places = chosen(found, right[1], parts.sizes[0])
    result: Row = {"seconds": round(seconds, 3), "problems": len(found), "accuracy": {}, "k": {}, "m": {}}
    for method, place in places.items():
        result["accuracy"][method] = float(right[2][place] / parts.sizes[2])
        result["k"][method], result["m"][method] = found[place].k, found[place].m
    return result


def run(settings: Settings) -> None:
    small = at_hand(["embedded"], 50_000, settings.sets)
    titles = {title(name) for name in small}
    more = [n for n in at_hand(["pmlb94"], settings.max_values, settings.sets) if title(n) not in titles]
    # Every third of those with a hundred rows or more, by size: some twenty.
    small += [name for name in more if len(dataset(name).y) >= 100][::3]
    keys = [{"name": name, "split": split} for split in range(settings.splits) for name in small]
    resume(settings, "aggregates", keys, run_one)


def table(settings: Settings) -> list[Row]:
    lines = [
        {
            "set": title(line["name"]), "split": line["split"], "method": method, "accuracy": value,
            "seconds": line["seconds"] / line["problems"],
        }
        for line in lines_of(settings, "aggregates")
        for method, value in line["accuracy"].items()
    ]  # fmt: skip
    methods = list(dict.fromkeys(line["method"] for line in lines))
    return summarise(with_enough(lines, settings.splits), BASE, methods)


def page(rows: list[Row], figure: Path) -> str:
    found = sorted(overall(rows, BASE), key=lambda row: -row["mean"])
    shown = [row | {"label": LABELS[row["method"]]} for row in found if row["method"] != BASE]
    save_chart(interval_chart(shown, label="label", title="mean gain over average, logistic (points)"), figure)
    splits = int(min(row["splits"] for row in rows))
    short = [BASE, "logistic close_decay", "hinge close_decay", "logistic ranked_range", "logistic trimmed",
             "ramp average", "focal average"]  # fmt: skip
    best, close = found[0], next(row for row in found if row["method"] == "logistic close_decay")
    return "\n".join(
        [
            "# Close-k and its relatives\n",
            f"{found[0]['sets']:.0f} data sets (the embedded suite and small PMLB sets), {splits} or more splits of "
            f"the sound protocol, {MAX_ITER} steps, alpha, k and m chosen on the validation part. AoRR is Hu et al.'s "
            "average of ranked range (2020): the losses from the m-th to the k-th largest; *trimmed* leaves out the m "
            "largest; ramp and focal are averaged losses of their own.\n",
            f"Highest mean accuracy: {LABELS[best['method']]} ({best['mean']:+.2f} points over average, 95 % interval "
            f"{best['low']:+.2f} to {best['high']:+.2f}); close decay with the logistic loss has {close['mean']:+.2f} "
            f"({close['low']:+.2f} to {close['high']:+.2f}).\n",
            overall_table(found, LABELS, BASE, times=False),
            f"\n![Mean gain over average](beyond/{figure.name})\n",
            f"AoRR chooses from {sum(m < k for k in RANGES for m in LEFT_OUT)} pairs of shares of the training part: "
            f"k in {', '.join(map(str, RANGES))}, m in {', '.join(map(str, LEFT_OUT))}. A larger grid is a larger "
            "chance to fit the validation part, as well as to be right.\n",
            "## Each data set\n",
            "Accuracy (%) of average and gains over it in points, ± one standard error over splits.\n",
            per_set_table(rows, short, LABELS, BASE),
            made_by("aggregates"),
        ]
    )


EXPERIMENT = Experiment("aggregates", run, table, page)

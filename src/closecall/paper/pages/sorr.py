"""The sum of ranked ranges on its paper's four sets: test errors over splits, solved at once, no cells needed.

Published figures: Hu, Ying, Wang and Lyu, "Learning by Minimizing the Sum of Ranked Range" (NeurIPS 2020), Table 1:
mean test errors in percent of linear models, half of the rows for training and a quarter each for validation and test,
by class.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np

from closecall._names import Array
from closecall.data import load_dataset
from closecall.evaluate.grid import LABELS
from closecall.evaluate.protocol import get_protocol
from closecall.evaluate.splits import Division
from closecall.objective import Problem
from closecall.report.formats import Column, Row, Table, table_of
from closecall.solvers import solve

from ..plan import Cell, rng_for
from ..published import LOSSES

SETS = ("pmlb:monk3", "pmlb:australian", "fan8:splice3175", "pmlb:phoneme")
SPLITS = 10
#: (loss, aggregate) -> published mean test errors in percent, in the order of SETS.
PUBLISHED: dict[tuple[str, str], tuple[float, ...]] = {
    ("logistic", "average"): (20.46, 14.27, 17.25, 25.50),
    ("logistic", "atk"): (16.76, 11.70, 16.12, 24.17),
    ("logistic", "maximal"): (22.41, 19.88, 23.57, 28.67),
    ("hinge", "average"): (18.61, 14.74, 16.25, 22.88),
    ("hinge", "atk"): (17.04, 12.51, 16.23, 22.88),
    ("hinge", "maximal"): (22.04, 19.82, 23.40, 28.81),
}
ALPHAS = (1e-3, 1e-1, 1e1)
KS = (0.1, 0.3, 0.5, 0.7)
MS = (0.01, 0.05, 0.2)
COUNTS: dict[str, list[tuple[float | None, float | None]]] = {
    "average": [(None, None)],
    "maximal": [(None, None)],
    "atk": [(k, None) for k in KS],
    "ranked_range": [(k, m) for k in (0.5, 1.0) for m in MS],
    "close_decay": [(k, None) for k in KS],
}


def solve_sorr(
    max_iter: int, data_dir: str | None = None, names: Sequence[str] = SETS, splits: int = SPLITS
) -> dict[str, list[Row]]:
    """Mean test errors in percent with their standard errors; what is not available locally says why."""
    records: list[Row] = []
    for name in names:
        try:
            data = load_dataset(name, data_dir, download=False)
        except ValueError as error:
            records.append(_row(name, "", "", [], str(error)))
            continue
        found: dict[tuple[str, str], list[float]] = {}
        for split in range(splits):
            cell = Cell("", name, data.checksum, split, "linear", "sound")  # the divisions of `sound` elsewhere
            division = get_protocol("sound").divide(data, partial(rng_for, cell), "", 0)
            for key, percent in _tested(division, max_iter):
                found.setdefault(key, []).append(percent)
        records += [_row(name, loss, method, errors, "") for (loss, method), errors in found.items()]
    return {"records": records}


def _row(name: str, loss: str, method: str, errors: Sequence[float], why: str) -> Row:
    spread = float(np.std(errors, ddof=1) / np.sqrt(len(errors))) if len(errors) > 1 else 0.0
    mean = float(np.mean(errors)) if errors else 0.0
    return {
        "set": name, "loss": loss, "method": method, "splits": len(errors), "error": mean, "standard_error": spread,
        "why": why,
    }  # fmt: skip


def _tested(division: Division, max_iter: int) -> Iterator[tuple[tuple[str, str], float]]:
    """The test error in percent of each (loss, aggregate), with the counts and alpha that validation chooses."""
    problems = [
        Problem(loss, method, k, alpha, m)
        for loss in LOSSES
        for method, counts in COUNTS.items()
        for k, m in counts
        for alpha in ALPHAS
    ]
    found = solve(division.X[0], division.y[0], problems, max_iter=max_iter, dtype=np.float32)
    right = [_right(found.coef, found.intercept, X, y) for X, y in zip(division.X[1:], division.y[1:], strict=True)]
    for key in dict.fromkeys((problem.loss, problem.aggregate) for problem in problems):
        mine = [i for i, problem in enumerate(problems) if (problem.loss, problem.aggregate) == key]
        chosen = mine[int(right[0][mine].argmax())]
        yield key, 100 * (1 - float(right[1][chosen]))


def _right(coef: Array, intercept: Array, X: Array, y: Array) -> Array:
    return np.asarray(((X @ coef.T + intercept) * y[:, None] > 0).mean(axis=0))


def sorr_shown(records: Sequence[Row], max_iter: int) -> Table:
    """The errors as a table, the published figure beside each, and a note where the two differ."""
    known = [record for record in records if record["splits"]]
    columns: dict[str, Column] = {
        "set": lambda r: r["set"].rpartition(":")[2],
        "loss": "{loss}",
        "method": lambda r: LABELS[r["method"]],
        "error, %": "{error:.2f}",
        "standard error": "{standard_error:.2f}",
        "published": lambda r: "" if _published(r) is None else f"{_published(r):.2f}",
    }
    grid = f"alphas {', '.join(f'{a:g}' for a in ALPHAS)}, k {', '.join(f'{k:g}' for k in KS)} of the rows"
    notes = (
        f"Means over {max((r['splits'] for r in known), default=0)} splits by class, half for training, a quarter each "
        f"for validation, which chooses, and test; {max_iter} steps; {grid}, ranked ranges with m "
        f"{', '.join(f'{m:g}' for m in MS)} and k 0.5 or all. The paper's steps, grids and divisions are others; "
        "its ranked ranges are below its other figures on all four sets.",
        *(f"{record['set']} is not here: {record['why']}" for record in records if not record["splits"]),
        *(note for record in known for note in _differs(record)),
    )
    return table_of("sorr", "Ranked ranges and their relatives: test errors", columns, known, notes)


def _published(record: Row) -> float | None:
    figures = PUBLISHED.get((record["loss"], record["method"]))
    return None if figures is None or record["set"] not in SETS else figures[SETS.index(record["set"])]


def _differs(record: Row) -> Iterator[str]:
    """A sentence where the published figure is more than two standard errors away."""
    figure = _published(record)
    if figure is None or record["splits"] < 2:
        return
    away = record["error"] - figure
    if abs(away) > 2 * record["standard_error"]:
        yield (
            f"{record['set']}, {record['loss']}, {LABELS[record['method']]}: {abs(away):.2f} points "
            f"{'above' if away > 0 else 'below'} the published figure, more than two standard errors."
        )

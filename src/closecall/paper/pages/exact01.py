"""Exact 0-1 minima of small sets beside surrogates and close-k: training errors, solved at once, no cells needed.

Published figures: He and Little, "An efficient, provably exact algorithm for the 0-1 loss linear classification
problem" (2023): training errors in percent of the exact minimum, the support vector machine and logistic regression.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from closecall._names import Array
from closecall.data import load_dataset
from closecall.evaluate.grid import LABELS
from closecall.objective import Problem
from closecall.report.formats import Column, Row, Table, table_of
from closecall.solvers import solve
from closecall.theory import minimum_errors

#: Data set -> published training errors in percent: exact, support vector machine, logistic regression.
PUBLISHED = {
    "pmlb:haberman": (21.6, 24.8, 25.2),
    "openml100:blood-transfusion-service-center": (19.0, 22.6, 22.9),
}
#: Seconds for the exact minimum of a set; both take about one.
SECONDS = 60.0
KS = (0.05, 0.1, 0.2, 0.4, 0.7)
MS = (0.02, 0.05, 0.1, 0.2)
ALPHAS = (0.01, 1.0)
EXACT, MACHINE = "exact", "hinge"
#: What is fitted: name -> problems, of which the one with the fewest training errors counts.
CONTENDERS: dict[str, list[Problem]] = {
    "average": [Problem("logistic", alpha=1.0)],
    MACHINE: [Problem("hinge", alpha=1.0)],
    **{
        name: [Problem("logistic", name, k, alpha) for k in KS for alpha in ALPHAS]
        for name in ("atk", "close", "close_decay")
    },
    "trimmed": [Problem("logistic", "trimmed", alpha=alpha, m=m) for m in MS for alpha in ALPHAS],
}


def solve_exact01(
    max_iter: int, data_dir: str | None = None, names: Sequence[str] = tuple(PUBLISHED)
) -> dict[str, list[Row]]:
    """Training errors of every contender and the proven minimum, for the sets that are available locally."""
    records: list[Row] = []
    for name in names:
        try:
            data = load_dataset(name, data_dir, download=False)
        except ValueError as error:
            records.append({"set": name, "n": 0, "method": "", "errors": 0.0, "bound": 0.0, "why": str(error)})
            continue
        X, y = np.asarray(data.X, dtype=float), data.signs()
        records += list(_errors(name, X, y, max_iter))
    return {"records": records}


def _errors(name: str, X: Array, y: Array, max_iter: int) -> Iterator[Row]:
    spread = X.std(axis=0)
    X = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    best = (np.inf, np.zeros(X.shape[1]))
    for method, problems in CONTENDERS.items():
        found = solve(X, y, problems, max_iter=max_iter)
        place = int(found.errors.argmin())
        best = min(best, (float(found.errors[place]), found.coef[place]), key=lambda pair: pair[0])
        yield _row(name, len(y), method, float(found.errors[place]), 0.0)
    exact = minimum_errors(X, y, time_limit=SECONDS, start=best[1])
    yield _row(name, len(y), EXACT, exact.errors, exact.lower_bound)


def _row(name: str, n: int, method: str, errors: float, bound: float) -> Row:
    return {"set": name, "n": n, "method": method, "errors": errors, "bound": bound, "why": ""}


def exact01_shown(records: Sequence[Row], max_iter: int) -> Table:
    """The errors as a table: a row for each set and method, the published figure beside it."""
    known = [record for record in records if record["n"]]
    columns: dict[str, Column] = {
        "set": lambda r: r["set"].rpartition(":")[2].partition("-")[0],
        "method": lambda r: _label(r["method"]),
        "errors": "{errors:.0f}",
        "percent": lambda r: f"{100 * r['errors'] / r['n']:.1f}",
        "published": lambda r: "" if _published(r) is None else f"{_published(r):.1f}",
        "above the proven bound": lambda r: f"{r['errors'] - _bound(known, r['set']):.0f}",
    }
    notes = (
        f"Training errors on all rows of the standardised set, {max_iter} steps. Average and hinge have alpha 1, which "
        "is scikit-learn's C = 1; every other method has the fewest errors over its counts "
        f"(k of {', '.join(f'{k:g}' for k in KS)} of the rows, m of {', '.join(f'{m:g}' for m in MS)}) and alphas "
        f"{', '.join(f'{alpha:g}' for alpha in ALPHAS)}. A row on the boundary is an error.",
        *(f"{record['set']} is not here: {record['why']}" for record in records if not record["n"]),
        *(_verdict(record) for record in known if record["method"] == EXACT),
    )
    return table_of("exact01", "Exact 0-1 minima and what is above them", columns, known, notes)


def _label(method: str) -> str:
    return {EXACT: "exact minimum", MACHINE: "average, hinge loss"}.get(method) or LABELS[method]


def _published(record: Row) -> float | None:
    places = {EXACT: 0, MACHINE: 1, "average": 2}
    place = places.get(record["method"])
    return None if place is None or record["set"] not in PUBLISHED else PUBLISHED[record["set"]][place]


def _bound(records: Sequence[Row], name: str) -> float:
    return float(next(r["bound"] for r in records if r["set"] == name and r["method"] == EXACT))


def _verdict(record: Row) -> str:
    """Whether the minimum is proven, and how the published one stands to it."""
    proven = record["bound"] >= record["errors"]
    state = "proven" if proven else f"proven to be at least {record['bound']:.0f}"
    text = f"{record['set']}: the minimum, {record['errors']:.0f} of {record['n']}, is {state}."
    figure = _published(record)
    if figure is None or not proven:
        return text
    away = figure * record["n"] / 100 - record["errors"]
    if abs(away) <= 0.0005 * record["n"] + 1e-9:
        return f"{text} The published figure is the same."
    where = "more" if away > 0 else "less than is possible"
    return f"{text} The published {figure:.1f} % is {abs(away):.0f} errors {where}."

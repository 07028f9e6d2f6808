"""Exact 0-1 minima of small sets compared with surrogates and close-k: training errors on all rows.

Published figures: He and Little, "An efficient, provably optimal algorithm for the 0-1 loss linear classification
problem" (arXiv 2306.12344, 2023): training errors in percent of the exact minimum, the support vector machine and
logistic regression.
"""

from __future__ import annotations

from collections.abc import Iterator

from closecall.aggregates import get_aggregate
from closecall.report.formats import Row
from reproduction.pages.formats import Column, Table, table_of
from reproduction.protocol.beyond import BOUND, EXACT, EXACT_ALPHAS, EXACT_KS, EXACT_MS
from reproduction.protocol.grid import LABELS
from reproduction.run.scores import title

from .sorr import Found, listed
from .words import said

#: (loss, method) -> data set -> published training errors in percent.
PUBLISHED: dict[tuple[str, str], dict[str, float]] = {
    ("", EXACT): {"pmlb:haberman": 21.6, "openml100:10101": 19.0},
    ("hinge", "average"): {"pmlb:haberman": 24.8, "openml100:10101": 22.6},
    ("logistic", "average"): {"pmlb:haberman": 25.2, "openml100:10101": 22.9},
}


def exact01_records(found: Found) -> list[Row]:
    """Return a record for each (set, loss, method): training errors, the proven bound and the published figure."""
    records: list[Row] = []
    for name, (cell,) in found.items():
        n = cell.sizes[0]
        errors = {(str(row["loss"]), str(row["method"])): n - int(row["train"]) for row in cell.rows}
        bound = errors.pop(("", BOUND))
        for place, count in sorted(errors.items(), key=lambda item: (item[1], item[0])):
            published = PUBLISHED.get(place, {}).get(name)
            records.append(
                {
                    "set": title(name), "rows": n, "loss": place[0], "method": place[1], "errors": count,
                    "percent": 100 * count / n, "bound": bound, "above_bound": count - bound, "published": published,
                    "difference": None if published is None else 100 * count / n - published,
                }
            )  # fmt: skip
    return records


def exact01_shown(found: Found, max_iter: int) -> Table:
    """Return the errors as a table: a row for each set and method, with the published figure."""
    records = exact01_records(found)
    columns: dict[str, Column] = {
        "set": "{set}",
        "method": _label,
        "errors": "{errors} of {rows}",
        "percent": "{percent:.1f}",
        "published": lambda r: "" if r["published"] is None else f"{r['published']:.1f}",
        "above the proven bound": "{above_bound}",
    }
    grids = {"ks": listed(EXACT_KS), "ms": listed(EXACT_MS), "alphas": listed(EXACT_ALPHAS)}
    how = said("exact01.how", steps=max_iter, **grids)
    notes = (how, *(sentence for record in records for sentence in _sentence(record)))
    return table_of("exact01", "Exact 0-1 minima and training errors above them", columns, records, notes)


def _label(record: Row) -> str:
    if record["method"] == EXACT:
        return "exact minimum"
    name = LABELS[record["method"]]
    return f"{name}, {record['loss']} loss" if get_aggregate(record["method"]).plain else name


def _sentence(record: Row) -> Iterator[str]:
    """Yield whether a minimum is proven, and whether a published figure differs from ours in the last digit."""
    found = f"{record['errors']} of {record['rows']}"
    if record["method"] == EXACT:
        proven = record["bound"] >= record["errors"]
        state = "proven." if proven else f"not proven to be the least; it is at least {record['bound']}."
        yield f"{record['set']}: the minimum, {found}, is {state}"
    if record["published"] is None or abs(record["difference"]) <= 0.05 + 1e-9:
        return
    theirs = record["published"] * record["rows"] / 100
    below = record["method"] == EXACT and theirs < record["bound"]
    ending = ", which is impossible if a row on the boundary counts as an error." if below else "."
    gap, side = abs(theirs - record["errors"]), "fewer" if theirs < record["errors"] else "more"
    yield said("exact01.apart", r=record, label=_label(record), theirs=theirs, gap=gap, side=side, ending=ending)

"""Exact 0-1 minima of small sets compared with surrogates and close-k: training errors on all rows.

Published figures: He and Little, "An efficient, provably optimal algorithm for the 0-1 loss linear classification
problem" (arXiv 2306.12344, 2023): training errors in percent of the exact minimum, the support vector machine and
logistic regression.
"""

from __future__ import annotations

from collections.abc import Iterator

from closecall.aggregates import get_aggregate
from closecall.report.formats import Column, Row, Table, table_of
from reproduction.protocol.beyond import BOUND, EXACT, EXACT_ALPHAS, EXACT_KS, EXACT_MS
from reproduction.protocol.grid import LABELS
from reproduction.run.scores import title

from .sorr import Found

#: (loss, method) -> data set -> published training errors in percent.
PUBLISHED: dict[tuple[str, str], dict[str, float]] = {
    ("", EXACT): {"pmlb:haberman": 21.6, "openml100:10101": 19.0},
    ("hinge", "average"): {"pmlb:haberman": 24.8, "openml100:10101": 22.6},
    ("logistic", "average"): {"pmlb:haberman": 25.2, "openml100:10101": 22.9},
}


def exact01_records(found: Found) -> list[Row]:
    """A record for each (set, loss, method) with its training errors, the proven bound and the published figure."""
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
    """The errors as a table: a row for each set and method, with the published figure."""
    records = exact01_records(found)
    columns: dict[str, Column] = {
        "set": "{set}",
        "method": _label,
        "errors": "{errors} of {rows}",
        "percent": "{percent:.1f}",
        "published": lambda r: "" if r["published"] is None else f"{r['published']:.1f}",
        "above the proven bound": "{above_bound}",
    }
    notes = (
        f"Training errors on all rows of the standardised set, {max_iter} steps. Nothing is random, so the only "
        "uncertainty is between the proven bound and the errors found. Average has alpha 1, which is scikit-learn's "
        "C = 1; every other method has the fewest errors over its counts "
        f"(k of {', '.join(f'{k:g}' for k in EXACT_KS)} of the rows, m of {', '.join(f'{m:g}' for m in EXACT_MS)}) "
        f"and alphas {', '.join(f'{alpha:g}' for alpha in EXACT_ALPHAS)}. A row on the boundary counts as an error.",
        *(sentence for record in records for sentence in _sentence(record)),
    )
    return table_of("exact01", "Exact 0-1 minima and what is above them", columns, records, notes)


def _label(record: Row) -> str:
    if record["method"] == EXACT:
        return "exact minimum"
    name = LABELS[record["method"]]
    return f"{name}, {record['loss']} loss" if get_aggregate(record["method"]).plain else name


def _sentence(record: Row) -> Iterator[str]:
    """Whether a minimum is proven, and which published figures differ from ours in the last digit."""
    found = f"{record['errors']} of {record['rows']}"
    if record["method"] == EXACT:
        proven = record["bound"] >= record["errors"]
        yield f"{record['set']}: the minimum, {found}, is {_state(proven, record)}"
    if record["published"] is None or abs(record["difference"]) <= 0.05 + 1e-9:
        return
    theirs = record["published"] * record["rows"] / 100
    below = record["method"] == EXACT and theirs < record["bound"]
    yield (
        f"{record['set']}, {_label(record)}: the published {record['published']:.1f} % is {theirs:.0f} errors, "
        f"{abs(theirs - record['errors']):.0f} {'fewer' if theirs < record['errors'] else 'more'} than here"
        + (", which is impossible if a row on the boundary counts as an error." if below else ".")
    )


def _state(proven: bool, record: Row) -> str:
    return "proven." if proven else f"not proven to be the least; it is at least {record['bound']}."

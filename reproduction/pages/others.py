"""Our results for the linear models in two other papers, next to the published numbers.

Hu, Ying, Wang and Lyu, "Learning by Minimizing the Sum of Ranked Range" (NeurIPS 2020), Table 1: mean test errors in
percent. Half of the rows of each class are used for training, a quarter for validation and a quarter for testing. He
and Little, "An efficient, provably optimal algorithm for the 0-1 loss linear classification problem" (arXiv 2306.12344,
2023): the percentages of training errors for the exact minimum, the support vector machine and logistic regression.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy import stats

from closecall.aggregates import get_aggregate
from closecall.report.formats import Row
from closecall.stats import TEST_OVER_TRAIN
from reproduction.protocol import SUITES, beyond
from reproduction.protocol.beyond import BOUND, EXACT, STUDIES
from reproduction.protocol.grid import LABELS
from reproduction.run.record import Record
from reproduction.run.scores import title

from .formats import Column, Table, listed, said, table_of

#: Data set -> the records of its splits, with the rows that validation chose.
Found = Mapping[str, Sequence[Record]]
#: (loss, aggregate) -> mean test errors of ranked ranges in percent, in the order of the suite.
RANGES: dict[tuple[str, str], tuple[float, ...]] = {
    ("logistic", "average"): (20.46, 14.27, 17.25, 25.50),
    ("logistic", "atk"): (16.76, 11.70, 16.12, 24.17),
    ("logistic", "maximal"): (22.41, 19.88, 23.57, 28.67),
    ("hinge", "average"): (18.61, 14.74, 16.25, 22.88),
    ("hinge", "atk"): (17.04, 12.51, 16.23, 22.88),
    ("hinge", "maximal"): (22.04, 19.82, 23.40, 28.81),
}
#: (loss, method) -> training errors next to exact minima in percent, in the order of the suite.
MINIMA: dict[tuple[str, str], tuple[float, ...]] = {
    ("", EXACT): (21.6, 19.0), ("hinge", "average"): (24.8, 22.6), ("logistic", "average"): (25.2, 22.9),
}  # fmt: skip


def _beside(
    ours: float, name: str, place: tuple[str, str], suite: str, published: Mapping[tuple[str, str], tuple[float, ...]]
) -> Row:
    """Return the published number for a data set and our difference from it, or None for both if there is none."""
    theirs = dict(zip(SUITES[suite], published.get(place, ()), strict=False)).get(name)
    return {"published": theirs, "difference": None if theirs is None else ours - theirs}


def sorr_records(found: Found) -> list[Row]:
    """Return a record for each (set, loss, method): the mean test error, its interval, and any published error.

    The interval, but not the standard error, is corrected for overlapping splits.
    """
    rows: list[Row] = []
    for name, records in found.items():
        for place in STUDIES["ranges"].places:
            chosen = [row for each in records for row in each.rows if (row["loss"], row["method"]) == place]
            errors = [100 * (1 - float(row["test"]) / each.sizes[2]) for row, each in zip(chosen, records, strict=True)]
            mean, splits = float(np.mean(errors)), len(errors)
            spread = float(np.std(errors, ddof=1)) if splits > 1 else 0.0
            wide = float(stats.t.ppf(0.975, splits - 1)) if splits > 1 else 0.0
            half = float(wide * spread * np.sqrt(1 / splits + TEST_OVER_TRAIN))
            error, beside = spread / float(np.sqrt(splits)), _beside(mean, name, place, "hu4", RANGES)
            differs = beside["published"] is not None and splits > 1 and abs(beside["difference"]) > 2 * error
            rows.append(
                {
                    "set": title(name), "loss": place[0], "method": place[1], "splits": splits, "error": mean,
                    "standard_error": error, "low": mean - half, "high": mean + half, **beside, "differs": differs,
                }
            )  # fmt: skip
    return rows


def sorr_shown(found: Found, max_iter: int) -> Table:
    """Return the errors as a table with the published figures, and a sentence for each difference."""
    records = sorr_records(found)
    columns: dict[str, Column] = {
        "set": "{set}", "loss": "{loss}", "method": lambda r: LABELS[r["method"]], "error, %": "{error:.2f}",
        "standard error": "{standard_error:.2f}", "95 % interval": "{low:.1f} to {high:.1f}",
        "published": lambda r: "" if r["published"] is None else f"{r['published']:.2f}",
        "difference": lambda r: "" if r["published"] is None else f"{r['difference']:+.2f}{'*' * r['differs']}",
    }  # fmt: skip
    grids = {"alphas": _numbers(beyond.RANGE_ALPHAS), "ks": _numbers(beyond.RANGE_KS), "ms": _numbers(beyond.RANGE_MS)}
    how = said("sorr.how", splits=max(r["splits"] for r in records), steps=max_iter, **grids)
    title = "Ranked ranges and their relatives: test errors"
    return table_of("sorr", title, columns, records, (how, *_sentences(records)))


def _numbers(numbers: Sequence[float]) -> str:
    return listed(f"{number:g}" for number in numbers)


def _sentences(records: Sequence[Row]) -> Iterator[str]:
    """Yield how many cells differ by more than two standard errors, and a sentence on each of these cells."""
    compared = [record for record in records if record["published"] is not None]
    apart = [record for record in compared if record["differs"]]
    if compared:
        yield f"Of {len(compared)} published figures, {len(apart)} differ from ours by more than two standard errors."
    for record in apart:
        gap, error = abs(record["difference"]), record["standard_error"]
        side, label = "above" if record["difference"] > 0 else "below", LABELS[record["method"]]
        times = f"{gap / error:.1f} standard errors" if error else "with no variation across the splits"
        yield said("sorr.apart", r=record, label=label, gap=gap, side=side, times=times)


def exact01_records(found: Found) -> list[Row]:
    """Return a record for each (set, loss, method): the training errors, the proven bound and the published figure."""
    records: list[Row] = []
    for name, (cell,) in found.items():
        n = cell.sizes[0]
        errors = {(str(row["loss"]), str(row["method"])): n - int(row["train"]) for row in cell.rows}
        bound = errors.pop(("", BOUND))
        records += [
            {
                "set": title(name), "rows": n, "loss": place[0], "method": place[1], "errors": count,
                "percent": 100 * count / n, "bound": bound, "above_bound": count - bound,
                **_beside(100 * count / n, name, place, "he2", MINIMA),
            }
            for place, count in sorted(errors.items(), key=lambda item: (item[1], item[0]))
        ]  # fmt: skip
    return records


def exact01_shown(found: Found, max_iter: int) -> Table:
    """Return the errors as a table: a row for each set and method, with the published figure."""
    records = exact01_records(found)
    columns: dict[str, Column] = {
        "set": "{set}", "method": _label, "errors": "{errors} of {rows}", "percent": "{percent:.1f}",
        "published": lambda r: "" if r["published"] is None else f"{r['published']:.1f}",
        "above the proven bound": "{above_bound}",
    }  # fmt: skip
    grids = {"ks": _numbers(beyond.EXACT_KS), "ms": _numbers(beyond.EXACT_MS), "alphas": _numbers(beyond.EXACT_ALPHAS)}
    how = said("exact01.how", steps=max_iter, **grids)
    notes = (how, *(sentence for record in records for sentence in _sentence(record)))
    return table_of("exact01", "Exact 0-1 minima and training errors above them", columns, records, notes)


def _label(record: Row) -> str:
    if record["method"] == EXACT:
        return "exact minimum"
    name = LABELS[record["method"]]
    return f"{name}, {record['loss']} loss" if get_aggregate(record["method"]).plain else name


def _sentence(record: Row) -> Iterator[str]:
    """Yield a sentence that says whether a minimum is proven, and another if a published figure differs from ours."""
    found = f"{record['errors']} errors in {record['rows']} rows"
    if record["method"] == EXACT:
        proven = record["bound"] >= record["errors"]
        state = "proven." if proven else f"not proven; the lower bound is {record['bound']}."
        yield f"{record['set']}: the minimum of {found} is {state}"
    if record["published"] is None or abs(record["difference"]) <= 0.05 + 1e-9:
        return
    theirs = record["published"] * record["rows"] / 100
    below = record["method"] == EXACT and theirs < record["bound"]
    ending = ", which is impossible if a row on the boundary counts as an error." if below else "."
    gap, side = abs(theirs - record["errors"]), "fewer" if theirs < record["errors"] else "more"
    yield said("exact01.apart", r=record, label=_label(record), theirs=theirs, gap=gap, side=side, ending=ending)

"""The sum of ranked ranges on the four sets of its paper: test errors over splits compared with the published ones.

Published figures: Hu, Ying, Wang and Lyu, "Learning by Minimizing the Sum of Ranked Range" (NeurIPS 2020), Table 1:
mean test errors in percent of linear models, half of the rows for training and a quarter each for validation and test,
by class.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from scipy import stats

from closecall.report.formats import Row
from closecall.stats import TEST_OVER_TRAIN
from reproduction.pages.formats import Column, Table, table_of
from reproduction.protocol import SUITES
from reproduction.protocol.beyond import RANGE_ALPHAS, RANGE_KS, RANGE_MS, STUDIES
from reproduction.protocol.grid import LABELS
from reproduction.run.record import Record
from reproduction.run.scores import title

from .words import said

#: (loss, aggregate) -> published mean test errors in percent, in the order of the suite.
PUBLISHED: dict[tuple[str, str], tuple[float, ...]] = {
    ("logistic", "average"): (20.46, 14.27, 17.25, 25.50),
    ("logistic", "atk"): (16.76, 11.70, 16.12, 24.17),
    ("logistic", "maximal"): (22.41, 19.88, 23.57, 28.67),
    ("hinge", "average"): (18.61, 14.74, 16.25, 22.88),
    ("hinge", "atk"): (17.04, 12.51, 16.23, 22.88),
    ("hinge", "maximal"): (22.04, 19.82, 23.40, 28.81),
}
#: Data set -> the records of its splits, with the rows that validation chose.
Found = Mapping[str, Sequence[Record]]


def sorr_records(found: Found) -> list[Row]:
    """Return a record for each (set, loss, method): mean test error, its interval, and the published error if any."""
    return [
        _record(name, place, [_error(record, place) for record in records])
        for name, records in found.items()
        for place in STUDIES["ranges"].places
    ]


def _error(record: Record, place: tuple[str, str]) -> float:
    (row,) = [row for row in record.rows if (row["loss"], row["method"]) == place]
    return 100 * (1 - float(row["test"]) / record.sizes[2])


def _record(name: str, place: tuple[str, str], errors: Sequence[float]) -> Row:
    """Return one record; its interval, but not its standard error, is corrected for overlapping splits."""
    mean, splits = float(np.mean(errors)), len(errors)
    spread = float(np.std(errors, ddof=1)) if splits > 1 else 0.0
    half = float(stats.t.ppf(0.975, splits - 1) * spread * np.sqrt(1 / splits + TEST_OVER_TRAIN)) if splits > 1 else 0.0
    figures = dict(zip(SUITES["hu4"], PUBLISHED.get(place, ()), strict=False))
    error = spread / float(np.sqrt(splits))
    published = figures.get(name)
    return {
        "set": title(name), "loss": place[0], "method": place[1], "splits": splits, "error": mean,
        "standard_error": error, "low": mean - half, "high": mean + half, "published": published,
        "difference": None if published is None else mean - published,
        "differs": published is not None and splits > 1 and abs(mean - published) > 2 * error,
    }  # fmt: skip


def sorr_shown(found: Found, max_iter: int) -> Table:
    """Return the errors as a table with the published figures, and a sentence for each difference."""
    records = sorr_records(found)
    columns: dict[str, Column] = {
        "set": "{set}",
        "loss": "{loss}",
        "method": lambda r: LABELS[r["method"]],
        "error, %": "{error:.2f}",
        "standard error": "{standard_error:.2f}",
        "95 % interval": "{low:.1f} to {high:.1f}",
        "published": lambda r: "" if r["published"] is None else f"{r['published']:.2f}",
        "difference": lambda r: "" if r["published"] is None else f"{r['difference']:+.2f}{'*' * r['differs']}",
    }
    grids = {"alphas": listed(RANGE_ALPHAS), "ks": listed(RANGE_KS), "ms": listed(RANGE_MS)}
    how = said("sorr.how", splits=max(r["splits"] for r in records), steps=max_iter, **grids)
    title = "Ranked ranges and their relatives: test errors"
    return table_of("sorr", title, columns, records, (how, *_sentences(records)))


def listed(numbers: Sequence[float]) -> str:
    return ", ".join(f"{number:g}" for number in numbers)


def _sentences(records: Sequence[Row]) -> Iterator[str]:
    """Yield the number of cells that differ by more than two standard errors, and a sentence for each."""
    compared = [record for record in records if record["published"] is not None]
    apart = [record for record in compared if record["differs"]]
    if compared:
        yield f"{len(apart)} of {len(compared)} published figures differ from ours by more than two standard errors."
    for record in apart:
        gap, error = abs(record["difference"]), record["standard_error"]
        side, label = "above" if record["difference"] > 0 else "below", LABELS[record["method"]]
        times = f"{gap / error:.1f} standard errors" if error else "with no spread over the splits"
        yield said("sorr.apart", r=record, label=label, gap=gap, side=side, times=times)

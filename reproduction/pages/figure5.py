"""The records behind Figure 5: accuracies and standard errors as outliers or other examples are added."""

from collections.abc import Iterator, Sequence
from itertools import product

import numpy as np

from closecall._names import Array
from closecall.aggregates import AGGREGATES
from closecall.report.formats import Row
from reproduction.protocol.grid import LABELS
from reproduction.protocol.plan import Cell, Size
from reproduction.protocol.published import LOSSES, METHODS
from reproduction.protocol.synthetic import SIMULATIONS
from reproduction.run.scores import Archive, Hole

from .formats import Table, listed, said


def simulated(cells: list[Cell], size: Size, archive: Archive) -> tuple[list[Row], list[Hole]]:
    """Return a record for each complete (contamination, level, loss, method), and the levels that are incomplete."""
    records: list[Row] = []
    holes: list[Hole] = []
    for name, simulation in SIMULATIONS.items():
        for level in simulation.levels:
            group = [cell for cell in cells if (cell.contamination, cell.level) == (name if level else "", level)]
            for scores in archive.gather(group):
                holes += [Hole(f"{level} {name}", hole.why) for hole in scores.holes]
                for loss in LOSSES if scores.datasets else ():
                    test = 100 * scores.test(loss)[0]
                    gains = test - test[METHODS.index("average")]
                    shared = scores.where(loss) | {
                        "contamination": name, "level": level, "majority": 100 * majority(size, name, level),
                    }  # fmt: skip
                    records += [
                        {
                            **shared, "method": method, "accuracy": float(test[j].mean()),
                            "standard_error": standard_error(test[j]), "gain": float(gains[j].mean()),
                            "gain_error": standard_error(gains[j]),
                        }
                        for j, method in enumerate(METHODS)
                    ]  # fmt: skip
    return records, holes


def standard_error(values: Array) -> float:
    """Return the standard error of a mean over splits of one data set, or NaN if there is only one split."""
    return float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else float("nan")


def majority(size: Size, contamination: str, level: int) -> float:
    """Return the share of the larger class after contamination (outliers do not change it in expectation)."""
    negatives = size.rows - size.positives
    added = {"outliers": (0, 0), "imbalance": (level, 0), "ambiguity": (0, level)}[contamination]
    total = negatives + size.positives + sum(added)
    return max(negatives + added[0], size.positives + added[1]) / total


def simulation_table(stem: str, records: list[Row], loss: str, note: str) -> Table:
    """Return a table of the accuracy of each method at every level, and of always predicting the larger class."""
    mine = [record for record in records if record["loss"] == loss]
    rows = []
    for name, level in dict.fromkeys((record["contamination"], record["level"]) for record in mine):
        here = [record for record in mine if (record["contamination"], record["level"]) == (name, level)]
        rows.append((f"{level} {name}", *(f"{r['accuracy']:.2f}" for r in here), f"{here[0]['majority']:.2f}"))
    heading = f"Figure 5, test accuracy (%): {mine[0]['model']}, {loss}, {mine[0]['protocol']} protocol"
    header = ("added", *(LABELS[method] for method in METHODS), "majority")
    return Table(f"{stem}-{loss}", heading, header, tuple(rows), tuple(mine), (note,))


def simulation_gains(stem: str, records: Sequence[Row]) -> Table:
    """Return the gain of close-k over average at the highest level, and the number of levels at which it is ahead."""
    rows = []
    for loss, method, name in product(*(_distinct(records, key) for key in ("loss", "method", "contamination"))):
        place = (loss, method, name)
        mine = [r for r in records if (r["loss"], r["method"], r["contamination"]) == place and r["level"]]
        if mine and method in ("close", "close_decay"):
            last, ahead = max(mine, key=lambda row: row["level"]), sum(row["gain"] > 0 for row in mine)
            error = f" ±{last['gain_error']:.1f}" if np.isfinite(last["gain_error"]) else ""  # one split has none
            cells = str(last["level"]), f"{last['gain']:+.1f}{error}", f"{ahead} of {len(mine)}"
            rows.append((f"{LABELS[method]}, {loss}, {name}", *cells))
    notes = (said("note.simulations"), *_outlier_notes(records))
    heading = f"Figure 5, gain over average: {records[0]['model']}, {records[0]['protocol']} protocol"
    return Table(f"{stem}-gains", heading, ("method", "added", "gain", "ahead at"), tuple(rows), (), notes)


def _distinct(records: Sequence[Row], key: str) -> list[str]:
    return list(dict.fromkeys(row[key] for row in records))


#: According to the paper, all methods except close-k lose more than this many points with outliers.
CLAIMED_DROP = 20


def _outlier_notes(records: Sequence[Row]) -> Iterator[str]:
    """Yield notes on how much accuracy the other methods lose when outliers are added, in the paper and here."""
    mine = [row for row in records if row["contamination"] == "outliers" and not row["method"].startswith("close")]
    accuracy = {(row["loss"], row["method"], row["level"]): row["accuracy"] for row in mine}
    most = max((level for *_, level in accuracy), default=0)
    drops = {
        (loss, method): accuracy[loss, method, 0] - value
        for (loss, method, level), value in accuracy.items()
        if level == most and (loss, method, 0) in accuracy
    }
    if not most or not drops:
        return
    words = [f"{LABELS[method]} {drop:.1f} ({loss})" for (loss, method), drop in drops.items()]
    yield said("note.drops", claimed=CLAIMED_DROP, most=most, words=listed(words))
    if any(AGGREGATES[method].sums_to and drop <= CLAIMED_DROP for (_, method), drop in drops.items()):
        yield said("note.top")

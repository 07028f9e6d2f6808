"""The headline from the published predictions, by code that shares nothing with that of the tables."""

import csv
import gzip
import json

import numpy as np
import pytest
from scipy import stats

pytest.importorskip("pyarrow", reason="install closecall[bench]")

import pyarrow.parquet

from tests import ROOT

PUBLISHED = ROOT / "docs" / "results" / "predictions"


def accuracies(protocol: str, suite: str, *, as_in_the_cells: bool) -> dict[str, np.ndarray]:
    """Column -> accuracies (sets, splits), from the file; where the index lists the cell's count, that if asked for.

    Of sets that are too large for the file the accuracies are those of the cells.
    """
    name = f"{suite}-{protocol}-linear.parquet"
    table = pyarrow.parquet.read_table(PUBLISHED / name)
    codes = table.column("dataset").combine_chunks()
    sets = codes.dictionary.to_pylist()
    place = codes.indices.to_numpy().astype(int) * 25 + table.column("split").to_numpy()
    truth, count = table.column("truth").to_numpy(), np.bincount(place)
    assert len(count) == 25 * len(sets)
    names = [name for name in table.column_names if "." in name]
    right = {name: np.bincount(place, table.column(name).to_numpy() == truth) for name in names}
    about = json.loads((PUBLISHED / "index.json").read_text())["files"][name]
    for dataset, facts in about["datasets"].items() if as_in_the_cells else ():
        for split, column, ours, stored in facts["differs"]:
            at = sets.index(dataset) * 25 + split
            assert right[column][at] == ours, "the index counts what the file holds"
            right[column][at] = stored
    large = counted(suite, protocol, about.get("left_out", []))
    return {name: np.vstack([(right[name] / count).reshape(-1, 25), *large[name]]) for name in names}


def counted(suite: str, protocol: str, sets: list[str]) -> dict[str, list[np.ndarray]]:
    """Column -> accuracies (25 splits) of these sets, from the exported cells."""
    names = [f"{loss}.{method}" for loss in ("logistic", "hinge") for method in ("average", "close_decay")]
    found: dict[str, list[np.ndarray]] = {name: [] for name in names}
    path = PUBLISHED.parent / "cells" / f"{suite}-{protocol}-linear.csv.gz"
    with gzip.open(path, "rt", newline="") as file:
        cells = [row for row in csv.DictReader(file) if row["dataset"] in sets and not row["contamination"]]
    for dataset in sets:
        mine = sorted((row for row in cells if row["dataset"] == dataset), key=lambda row: int(row["split"]))
        assert [int(row["split"]) for row in mine] == list(range(25))
        for name in names:
            found[name].append(np.array([int(row[f"{name}.test"]) / int(row["test_size"]) for row in mine]))
    return found


def significant(close: np.ndarray, average: np.ndarray, protocol: str) -> np.ndarray:
    """By the paper's test for independent samples, or by Nadeau and Bengio's with Holm's correction over the sets."""
    gain, paper = close - average, protocol == "paper"
    variances = close.var(axis=1, ddof=1) + average.var(axis=1, ddof=1)
    spread = np.sqrt(variances / 25 if paper else gain.var(axis=1, ddof=1) * (1 / 25 + 1 / 3))
    t = np.divide(np.abs(gain.mean(axis=1)), spread, out=np.zeros(len(gain)), where=spread > 1e-12)
    p = 2 * stats.t.sf(t, 48 if paper else 24)
    rejected = np.zeros(len(p), dtype=bool)
    for rank, place in enumerate(np.argsort(p)):
        if p[place] >= (0.05 if paper else 0.05 / (len(p) - rank)):
            break
        rejected[place] = True
    return rejected


def told() -> dict[tuple[str, str, str], tuple[int, int, int]]:
    """(Suite, protocol, loss) -> sets, wins and losses of linear models, each protocol by its own test."""
    with (PUBLISHED.parent / "headline.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["model"], row["criterion"]) == ("linear", "significant")]
    rows = [row for row in rows if row["test"] == row["protocol"] and row["splits"] == "25"]
    counts = {(row["suite"], row["protocol"], row["loss"], row["outcome"]): int(row["count"]) for row in rows}
    places = {(row["suite"], row["protocol"], row["loss"]): int(row["sets"]) for row in rows}
    return {place: (sets, counts[*place, "wins"], counts[*place, "losses"]) for place, sets in places.items()}


@pytest.mark.parametrize("as_in_the_cells", [True, False])
def test_the_headline_follows_from_the_predictions(as_in_the_cells: bool) -> None:
    """Every linear row whose predictions are published; solved again, one set may fall on the other side."""
    published = {path.name.removesuffix("-linear.parquet") for path in PUBLISHED.glob("*-linear.parquet")}
    here = {place: row for place, row in told().items() if f"{place[0]}-{place[1]}" in published}
    assert len(here) == 12, "all linear rows"
    for (suite, protocol, loss), (sets, wins, losses) in here.items():
        found = accuracies(protocol, suite, as_in_the_cells=as_in_the_cells)
        close, average = found[f"{loss}.close_decay"], found[f"{loss}.average"]
        assert len(close) == sets
        sure, gain = significant(close, average, protocol), (close - average).mean(axis=1)
        counts = np.array([(sure & (gain > 0)).sum(), (sure & (gain < 0)).sum()])
        assert np.abs(counts - [wins, losses]).max() <= (0 if as_in_the_cells else 1), (suite, protocol, loss)

"""The published tables match the paper's source, if it is available, and checksums."""

import re
from pathlib import Path

import numpy as np
import pytest

from reproduction.protocol import published
from reproduction.protocol.published import LOSSES, METHODS, MODELS, PAIR_TABLES, TABLE3

LABELS = {"table1": "pmlb", "table2": "openml", "table4": "pmlb2", "table5": "openml2"}
WORDS = {"close": "close", "close decay": "close_decay", "atk": "atk", "average": "average", "top": "top"}

#: Sums of hundredths over each table's rows and columns, computed from the paper's source.
ROW_SUMS = {
    "table1": [16, 3, 116, 124, 162, 24, 16, 21, 41, 210],
    "table2": [13, 8, 151, 142, 307, 12, 2, 16, 29, 199],
    "table4": [21, 15, 119, 95, 190, 39, 24, 54, 61, 229],
    "table5": [8, 0, 92, 91, 100, 29, 4, 26, 22, 266],
}
COLUMN_SUMS = {
    "table1": [119, 140, 40, 43, 29, 108, 138, 43, 47, 26],
    "table2": [142, 152, 62, 62, 24, 142, 165, 52, 64, 14],
    "table4": [131, 146, 52, 68, 27, 121, 142, 60, 72, 28],
    "table5": [98, 108, 32, 36, 31, 101, 126, 41, 49, 16],
}


def both(name: str) -> np.ndarray:
    """Return the whole 10 x 10 table as printed."""
    table = PAIR_TABLES[name]
    return np.block([[table.fractions(model, loss) for loss in LOSSES] for model in MODELS])


def rows_of(source: str, label: str) -> list[list[str]]:
    """Return the cells of the lines of one tabular that contain numbers, with markup."""
    body = re.search(rf"\\label\{{table: {label}\}}.*?\\begin\{{tabular\}}(.*?)\\end\{{tabular\}}", source, re.DOTALL)
    assert body is not None, label
    lines = [line for line in body[1].splitlines() if re.search(r"\d\.\d\d", line)]
    return [[cell.strip() for cell in line.replace(r"\\", "").split("&")] for line in lines]


def number(cell: str) -> float:
    found = re.search(r"\d+\.\d\d", cell)
    return float(found[0]) if found else np.nan


@pytest.fixture(scope="module")
def paper(shared_data: Path) -> str:
    path = shared_data.parent / "paper" / "close-k.tex"
    if not path.is_file():
        pytest.skip(f"needs the paper's source at {path}")
    return path.read_text()


@pytest.mark.shared_data
@pytest.mark.parametrize("name", sorted(LABELS))
def test_pair_tables_are_the_papers(paper: str, name: str) -> None:
    rows = rows_of(paper, LABELS[name])
    assert [WORDS[row[1]] for row in rows] == [*METHODS, *METHODS]
    printed = np.array([[number(cell) for cell in row[2:]] for row in rows])
    np.testing.assert_array_equal(printed, both(name))


@pytest.mark.shared_data
def test_table3_is_the_papers(paper: str) -> None:
    rows = {row[0]: row[1:] for row in rows_of(paper, "acc")}
    assert {name: tuple(number(cell) for cell in cells) for name, cells in rows.items()} == TABLE3


@pytest.mark.parametrize("name", sorted(PAIR_TABLES))
def test_checksums(name: str) -> None:
    entries = both(name)
    assert entries.shape == (10, 10)
    assert np.isnan(entries[np.tile(np.eye(5, dtype=bool), (2, 2))]).all()
    hundredths = np.rint(np.nan_to_num(entries) * 100).astype(int)
    assert hundredths.sum(axis=1).tolist() == ROW_SUMS[name]
    assert hundredths.sum(axis=0).tolist() == COLUMN_SUMS[name]


def test_table3_checksums() -> None:
    entries = np.array(list(TABLE3.values()))
    assert entries.shape == (8, 10)
    expected = [155.61, 224.32, 449.7, 76.09, 221.68, 129.67, 161.56, 246.92]
    np.testing.assert_allclose(entries.sum(axis=1), expected, atol=1e-9)
    assert set(published.TABLE3_ROW.values()) == set(TABLE3)

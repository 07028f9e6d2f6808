"""The published tables match a checksum and, if it is available, the paper's source."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from reproduction.protocol import published
from reproduction.protocol.published import LOSSES, METHODS, MODELS, PAIR_TABLES, TABLE3

LABELS = {"table1": "pmlb", "table2": "openml", "table4": "pmlb2", "table5": "openml2"}
WORDS = {"close": "close", "close decay": "close_decay", "atk": "atk", "average": "average", "top": "top"}

#: SHA-256 of all printed numbers in hundredths, in the order of the tables.
DIGEST = "0aa387b953ba8e44dabe7c681f0a7e27b641b4c938eeaf4be358ce3ad7a9150a"


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


def test_every_printed_number_is_unchanged() -> None:
    squares = [both(name) for name in sorted(PAIR_TABLES)]
    for entries in squares:
        assert np.isnan(entries[np.tile(np.eye(5, dtype=bool), (2, 2))]).all()
    numbers = np.concatenate([*squares, np.array(list(TABLE3.values()))])
    hundredths = np.rint(np.nan_to_num(numbers, nan=-1) * 100).astype("<i8")
    assert hundredths.shape == (4 * 10 + 8, 10)
    assert hashlib.sha256(hundredths.tobytes()).hexdigest() == DIGEST
    assert set(published.TABLE3_ROW.values()) == set(TABLE3)

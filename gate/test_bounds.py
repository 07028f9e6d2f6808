"""The bounds in SECURITY.md are the constants in the code."""

import importlib
import re
from pathlib import Path

import pytest

from reproduction.protocol.plan import MAX_CELLS, TARGETS, RunOptions, Size
from reproduction.run.jobs import Job

PAGE = (Path(__file__).parents[1] / "SECURITY.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| ([\d,]+)( [GM]iB)? \| `([\w.]+)` \|$", PAGE, flags=re.MULTILINE)
UNITS = {"": 1, " MiB": 1 << 20, " GiB": 1 << 30}
#: Sizes on the page that are not limits of closecall, such as that of the Parquet format.
OTHERS = {"2 GiB"}


@pytest.mark.parametrize(("what", "most", "unit", "constant"), ROWS, ids=[row[3] for row in ROWS])
def test_a_bound_is_its_constant(what: str, most: str, unit: str, constant: str) -> None:
    module, _, name = constant.rpartition(".")
    assert getattr(importlib.import_module(module), name) == int(most.replace(",", "")) * UNITS[unit], what


def test_every_size_on_the_page_is_in_the_table() -> None:
    assert len(ROWS) == len(re.findall(r"\| `(?:closecall|reproduction)\.", PAGE))
    assert len(ROWS) >= 11
    stated = {most + unit for _, most, unit, _ in ROWS if unit}
    assert set(re.findall(r"\d+ [GM]iB", PAGE)) <= stated | OTHERS


def test_a_request_of_very_many_cells_is_refused() -> None:
    sizes = tuple(Size("embedded", f"s{i}", "c", 100, 3) for i in range(30))
    with pytest.raises(ValueError, match=f"cells are too many; at most {MAX_CELLS}"):
        Job(TARGETS["overview"], (), RunOptions(splits=10_000), sizes, ()).tasks()

"""What SECURITY.md says is bounded, and by how much, is the constant that the code uses."""

import importlib
import re
from pathlib import Path

import pytest

pytest.importorskip("pandas", reason="install closecall[bench]")

from reproduction.protocol.plan import MAX_CELLS, TARGETS, RunOptions, Size
from reproduction.run.jobs import Job

PAGE = (Path(__file__).parents[1] / "SECURITY.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| ([^|]+) \| ([\d,]+)( [GM]iB)? \| `([\w.]+)` \|$", PAGE, flags=re.MULTILINE)
UNITS = {"": 1, " MiB": 1 << 20, " GiB": 1 << 30}
#: Sizes on the page that are not closecall's: the limit of Parquet's own format.
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


def test_what_is_trusted_is_said() -> None:
    trusted = PAGE.partition("## What is trusted")[2].partition("## What is not trusted")[0]
    assert "Dask scheduler that the user connects to" in trusted
    assert "Python packages that the user names" in trusted


def test_a_request_of_very_many_cells_is_refused() -> None:
    sizes = tuple(Size("embedded", f"s{i}", "c", 100, 3) for i in range(30))
    with pytest.raises(ValueError, match=f"cells are too many; at most {MAX_CELLS}"):
        Job(TARGETS["overview"], (), RunOptions(splits=10_000), sizes, ()).tasks()

"""The gap to the fewest training errors: nobody is below it, and the page counts what the table has."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("altair", reason="install closecall[plots]")

from gate.fault_helpers import inline
from reproduction.protocol.beyond import BOUND, EXACT
from reproduction.studies import common, optimality


def test_nobody_is_below_the_bound() -> None:
    found = optimality.run_one({"name": "embedded:corral", "split": 0})
    errors = found["errors"]
    assert (found["rows"], found["columns"]) == (80, 6)
    assert errors[BOUND] <= errors[EXACT] <= min(errors[name] for name in optimality.SHOWN)
    X, y = (part[0] for part in (common.division("embedded:corral", 0).X, common.division("embedded:corral", 0).y))
    assert errors[optimality.PLAIN] <= min((y > 0).sum(), (y < 0).sum()), "not worse than always the larger class"
    assert X.shape == (80, 6)


def test_the_page_says_what_is_proven(tmp_path: Path) -> None:
    settings = common.Settings(tmp_path)
    lines = []
    for name, bound, least, close in (("a", 10, 10, 10), ("b", 4, 6, 8)):
        errors = {BOUND: bound, EXACT: least, **dict.fromkeys(optimality.SHOWN, 20), optimality.CLOSE: close}
        lines.append({"name": name, "set": name, "split": 0, "rows": 100, "columns": 3, "errors": errors})
    assert common.resume(settings, "optimality", lines, lambda key: {}, inline) == 2
    rows = optimality.table(settings)
    assert [(row["set"], row["proven"]) for row in rows] == [("b", 0), ("a", 1)]
    path = tmp_path / "optimality.csv"
    common.write_csv(path, rows)
    page = " ".join(optimality.page(common.read_csv(path), tmp_path / "optimality.svg").split())
    assert "proven for 1 of 2 sets" in page
    assert "| close | 2.00 | 4.0 | 1 of 1 |" in page, "gaps 0 and 4 of a hundred rows"
    assert "| average, logistic loss | 13.00 | 16.0 | 0 of 1 |" in page
    assert "| b | 100 x 3 | 4 to 6 |" in page
    assert (tmp_path / "optimality.svg").read_text().startswith("<svg")

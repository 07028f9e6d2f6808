"""The page of ``closecall compare`` in a real browser: it draws, sorts and filters, asks nobody, shows text as text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.report.browser import CHROMIUM, Page, column, launched, visit

pytest.importorskip("pandas", reason="install closecall[bench]")
pytest.importorskip("altair", reason="install closecall[plots]")

import pandas as pd

from closecall.aggregates import AGGREGATES
from closecall.data.columns import Column
from closecall.data.sheet import Sheet as Table
from closecall.evaluate.grid import BASELINES, ROW
from closecall.linear.diagnosis import Diagnosis, Finding
from closecall.tabular.compare import JOINT, TREE, Split
from closecall.tabular.conclude import conclude
from closecall.tabular.report import Findings, to_html

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH"),
    pytest.mark.xdist_group("tabular browser"),  # one browser
]

IMAGE = "<img src=x onerror=window.hacked=1>"
SCRIPT = "</script><script>window.hacked=1</script>"
STRANGE = "=cmd|'&\"\x1b[31m\u202e"
OWN_LOSS = ("logistic_regression", "linear_svc", "tuned_threshold", TREE)
METHODS = (*AGGREGATES, *(f"{name}_top_two" for name in JOINT), *BASELINES, TREE)


def made_splits(count: int = 4) -> list[Split]:
    """Every method with made-up numbers of correct predictions; close-k with decay is ahead on every split."""
    rng = np.random.default_rng(0)
    pairs = [(m, loss) for m in METHODS for loss in (("",) if m in OWN_LOSS else ("logistic", "hinge"))]
    splits = []
    for _ in range(count):
        rows = np.zeros(len(pairs), ROW)
        rows["method"], rows["loss"] = [m for m, _ in pairs], [loss for _, loss in pairs]
        rows["k"], rows["alpha"] = rng.choice([10, 100, 500], len(rows)), 10.0 ** rng.integers(-3, 3, len(rows))
        rows["test"] = 150 + rng.integers(0, 12, len(rows))
        rows["test"][rows["method"] == "close_decay"] += 50
        rows["alpha"][rows["method"] == TREE] = np.nan
        splits.append(Split(rows, 500, 250))
    return splits


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    path: Path = tmp_path_factory.mktemp("compare") / "report.html"
    labels = np.array([STRANGE, SCRIPT] * 20, dtype=object)
    frame = pd.DataFrame({
        IMAGE: ["1,5", "2"] * 20, STRANGE: [SCRIPT, None] * 20, "when": ["2024-01-01", "2024-02-01"] * 20,
        "id": [f"u{i}" for i in range(40)], "kauft": labels,
    })  # fmt: skip
    columns = (Column(IMAGE, "number", ","), Column(STRANGE, "nominal"), Column("when", "date", "ISO8601"))
    notes = ("'id' is left out: all its values differ, like an identifier's (--keep)", f"a note on {IMAGE}")
    table = Table(f"{IMAGE}.csv", frame, "kauft", labels, columns, notes)
    cases = [Finding(name, 0.3, f"reads {name}") for name in ("imbalance", "easy", "outliers", "ambiguity")]
    diagnosis = Diagnosis(*cases, 0.02, 0.01, True)
    found = Findings(table, conclude(table, made_splits()), diagnosis, ["compare", f"{IMAGE} b.csv"])
    path.write_text(to_html(found, ["report-results.csv", "report-results.json"]), encoding="utf-8")
    return path.as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from launched()


@pytest.fixture(scope="module")
def wide(browser: Any, address: str) -> Page:
    return visit(browser, address)


def test_the_summary_comes_first_and_says_how_sure(wide: Page) -> None:
    assert wide.locator("main > section").first.get_attribute("id") == "summary"
    text = wide.locator("#summary").inner_text()
    assert "Use close-k." in text
    for words in ("Close-k with decay against average", "95% interval", "Better on 4 of 4 splits", "yardstick", "p"):
        assert words in text
    assert re.search(r"\+2\d\.\d\d", text), "fifty of 250 rows and some noise"


def test_every_chart_is_drawn(wide: Page) -> None:
    found = wide.locator("figure[data-chart]")
    assert [figure.get_attribute("data-drawn") for figure in found.all()] == ["wide"] * 4
    for figure in found.all():
        assert figure.locator("svg.marks path").count() > 10
        assert figure.locator(".chart").get_attribute("aria-label")
    named = found.first.inner_text()
    assert "close decay (logistic)" in named
    assert "average, top-two (hinge)" in named
    assert "HistGradientBoosting" in named


def test_hovering_shows_a_split(wide: Page) -> None:
    chart = wide.locator("figure[data-chart=chart-ranking]")
    chart.locator("svg .mark-symbol.role-mark path").first.hover()
    tip = wide.locator("#vg-tooltip-element.visible")
    tip.wait_for()
    assert re.search(r"split:?\s+\d", tip.inner_text())
    assert re.search(r"accuracy:?\s+\d\d\.\d\d", tip.inner_text())


def test_the_table_sorts_and_filters(wide: Page) -> None:
    total = len(made_splits()[0].rows)
    status = wide.locator("#filter-count")
    assert status.inner_text() == f"{total} of {total} rows"
    wide.locator("#results-table th[data-name=accuracy] button").focus()
    wide.keyboard.press("Enter")
    values = [float(value) for value in column(wide, "accuracy")]
    assert values == sorted(values, reverse=True)
    wide.keyboard.press("Enter")
    assert [float(value) for value in column(wide, "accuracy")] == sorted(values)
    wide.get_by_label("Method contains").fill("CLOSE decay")
    assert set(column(wide, "method")) == {"close decay", "close decay, top-two"}
    wide.get_by_role("combobox", name="Loss").select_option("hinge")
    assert status.inner_text() == f"2 of {total} rows"
    wide.get_by_label("Method contains").fill("")
    wide.get_by_role("combobox", name="Loss").select_option("")
    wide.get_by_label("only p < 0.05").check()
    shown = column(wide, "method")
    assert "close decay" in shown
    assert 0 < len(shown) < total
    wide.get_by_label("only p < 0.05").uncheck()


def test_columns_and_the_command_are_told(wide: Page) -> None:
    text = wide.locator("#columns").inner_text()
    for words in ("decimal comma", "date, as days", "left out", "like an identifier's (--keep)", "target"):
        assert words in text
    assert f"closecall compare '{IMAGE} b.csv'" in wide.locator("#repeat").inner_text()
    assert "report-results.csv" in wide.locator("#repeat").inner_text()
    cases = wide.locator("#diagnosis").inner_text()
    assert "Close-k is likely to help" in cases
    assert "reads ambiguity" in cases


def test_names_and_values_are_text(wide: Page) -> None:
    text = wide.locator("body").inner_text()
    assert f"closecall on {IMAGE}.csv" in text
    assert SCRIPT[:24] in text
    assert "=cmd|'&\"\\x1b[31m\\u202e" in text
    assert "\x1b" not in wide.content()
    assert "\u202e" not in wide.content()
    assert wide.locator("img").count() == 0
    assert wide.evaluate("window.hacked") is None


def test_nothing_was_asked_for_and_nothing_went_wrong(wide: Page) -> None:
    assert wide.heard == []
    assert wide.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)") == []


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (380, "dark")])
def test_axe_width_colours_and_paper(browser: Any, address: str, width: int, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    page = visit(browser, address, width=width, scheme=scheme)
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wanted = {1200: "wide", 380: "narrow"}[width]
    assert page.locator(f"figure[data-drawn={wanted}]").count() == 4
    if width == 380:
        widths = page.locator("figure svg.marks").evaluate_all("(all) => all.map((svg) => svg.viewBox.baseVal.width)")
        assert max(widths) < 480, "panels become narrow rather than small"
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.heard == []
    page.context.close()


def test_without_scripts_pictures_and_numbers_are_there(browser: Any, address: str) -> None:
    page = visit(browser, address, script=False)
    assert page.locator("figure .chart svg").count() == 4
    assert page.locator("#results-table tbody tr").count() == len(made_splits()[0].rows)
    page.context.close()

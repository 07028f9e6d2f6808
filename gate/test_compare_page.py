"""The page of ``closecall compare`` in a browser: it draws, sorts and filters, loads nothing and shows text as text."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from closecall.aggregates import AGGREGATES
from closecall.linear.diagnosis import Diagnosis, Finding
from closecall.table.check import FIELDS
from closecall.table.compare import ComparePlan, Split
from closecall.table.comparison import TableComparison
from closecall.table.conclude import conclude
from closecall.table.contenders import Entry, built_in
from closecall.table.divide import Order
from closecall.table.read.columns import Column
from closecall.table.read.sheet import Sheet as Table
from closecall.table.report import to_html
from gate.browser import CHROMIUM, Page, check_page, check_sorting, column, visit

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH")

IMAGE = "<img src=x onerror=window.hacked=1>"
SCRIPT = "</script><script>window.hacked=1</script>"
STRANGE = "=cmd|'&\"\x1b[31m\u202e"
OWN = ("logistic_regression", "linear_svc", "exact_threshold", "random_forest", "gradient_boosting", "majority")
PLAN = ComparePlan()
PAIRS = [("close_k", "logistic"), *((name, "") for name in OWN), *((name, "hinge") for name in AGGREGATES)]


def made_splits(count: int = 4) -> list[Split]:
    """Return every method with invented predictions; those of close-k are right far more often than all others."""
    rng = np.random.default_rng(0)
    splits = []
    for _ in range(count):
        rows = rng.permutation(40)[:10]
        truth, entries = rows % 2, {}
        for method, loss in PAIRS:
            value = 0.6 + 0.02 * rng.random() + 0.2 * (method == "close_k")
            said = np.where(rng.random(10) < value, truth, 1 - truth)
            close = {"scores": rng.normal(size=(10, 2)), "coef": np.array([[1.5, -0.2, 0.1]])} if loss else {}
            k, alpha = (rng.choice([1.0, 10.0]), 10.0 ** rng.integers(-3, 3)) if loss else (np.nan, np.nan)
            entries[method] = Entry(method, loss, float(value), said, float(k), float(alpha), "made up", **close)
        splits.append(Split(entries, rows, truth, 20, 30, (IMAGE, STRANGE, "when")))
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
    left_out = "'id' is left out: all its values differ, as in an identifier (use --keep to include it)"
    notes = (left_out, f"a note on {IMAGE}")
    table = Table(f"{IMAGE}.csv", frame, "kauft", labels, columns, notes)
    cases = [Finding(name, 0.3, f"reads {name}") for name in ("imbalance", "easy", "outliers", "ambiguity")]
    diagnosis = Diagnosis(*cases, 0.02, 0.01, True)
    splits, known = made_splits(), built_in(PLAN)
    contenders = tuple(known[method] for method, _ in PAIRS if method != "majority")
    comparison = conclude(table, splits, PLAN, contenders)
    hints = (f"{IMAGE!r} alone predicts all",)
    suspects = pd.DataFrame([("label", 0, "a", "b", 0.9, "close-k", f"{IMAGE} says b")], columns=list(FIELDS))
    found = TableComparison(
        table, comparison, diagnosis, splits, hints, ["compare", f"{IMAGE} b.csv"], Order(), suspects
    )  # fmt: skip
    path.write_text(to_html(found, ["report-results.csv", "report-results.json"]), encoding="utf-8")
    return path.as_uri()


def test_a_sentence_and_a_picture_come_first(wide: Page) -> None:
    assert wide.locator("main > section").first.get_attribute("id") == "summary"
    kinds = wide.locator("#summary > *").evaluate_all("(all) => all.map((each) => each.className || each.tagName)")
    assert kinds[:5] == ["H2", "verdict ahead", "P", "UL", "FIGURE"], "the verdict, notes on columns, the picture"
    text = wide.locator("#summary").inner_text()
    assert re.search(r"Use close-k: \+2\d\.\d points \(\+\d+\.\d to \+\d+\.\d\) over logistic regression\.", text)
    assert "alone predicts all" in text


def test_charts_name_every_method_and_fill_the_page(wide: Page) -> None:
    found = wide.locator("figure[data-chart]")
    room = wide.locator("main").bounding_box()["width"]
    assert [figure.locator("svg.marks").bounding_box()["width"] > 0.9 * room for figure in found.all()] == [True] * 2
    named = found.first.inner_text()
    for words in ("close-k", "RandomForest", "HistGradientBoosting", "always the largest class"):
        assert words in named
    assert "when" in wide.locator("figure[data-chart=chart-coefficients]").inner_text()


def test_gains_that_are_not_significant_are_grey(wide: Page) -> None:
    """In the first picture the tick of close-k has the colour of significance, and those of its peers are grey."""
    marks = wide.locator("figure[data-chart=chart-gains] .mark-rect.role-mark path")
    colours = marks.evaluate_all("(all) => all.map((each) => each.getAttribute('fill'))")
    assert len(colours) == len(PAIRS) - 1, "everyone but the plain model"
    assert colours.count("#D55E00") >= 1
    assert colours.count("#777777") >= 3
    rows = wide.locator("#results-table tbody tr").evaluate_all(
        "(all) => all.map((row) => [...row.cells].map((cell) => [cell.className, cell.textContent]))"
    )
    heads = [name.strip() for name in wide.locator("#results-table th").all_inner_texts()]
    gain, p = heads.index("gain"), heads.index("p")
    shown = {(row[gain][0], row[p][1] != "" and float(row[p][1]) < 0.05) for row in rows if row[gain][1]}
    assert shown <= {("up", True), ("down", True), ("unsure", False)}, shown
    assert {sure for _, sure in shown} == {True, False}


def test_the_numbers_of_an_axis_do_not_touch(wide: Page) -> None:
    for axis in wide.locator("figure svg.marks .role-axis-label").all():
        boxes = axis.locator("text").evaluate_all(
            "(all) => all.filter((each) => each.style.opacity != 0 && each.getAttribute('opacity') != 0)"
            ".map((each) => each.getBoundingClientRect()).map((box) => [box.left, box.right, box.top, box.bottom])"
        )
        for first, second in pairwise(boxes):
            apart = max(second[0] - first[1], first[0] - second[1]), max(second[2] - first[3], first[2] - second[3])
            assert max(apart) >= 0, (first, second)


def test_the_close_calls_can_be_read(wide: Page) -> None:
    calls = wide.locator("#calls")
    heads = calls.locator("th").all_inner_texts()
    assert heads[:4] == ["row", "kauft", "prediction", "lead"]
    assert IMAGE in heads, "columns of the largest weight"
    lines = calls.locator("tbody tr")
    assert lines.count() == 12
    leads = [float(line.locator("td").nth(3).inner_text()) for line in lines.all()]
    assert leads == sorted(leads)
    assert all(1 <= int(line.locator("td").first.inner_text()) <= 40 for line in lines.all())
    mistakes = wide.locator("#mistakes").inner_text()
    assert "recall" in mistakes
    assert "LogisticRegression" in mistakes


def test_the_table_sorts_and_filters(wide: Page) -> None:
    total = len(PAIRS)
    status = wide.locator("#filter-count")
    assert status.inner_text() == f"{total} of {total} rows"
    check_sorting(wide, "accuracy (%)")
    wide.get_by_label("Method contains").fill("CLOSE decay")
    assert set(column(wide, "method")) == {"close decay"}
    wide.get_by_role("combobox", name="Loss").select_option("hinge")
    assert status.inner_text() == f"1 of {total} rows"
    wide.get_by_label("Method contains").fill("")
    wide.get_by_role("combobox", name="Loss").select_option("")
    wide.get_by_label("only p < 0.05").check()
    shown = column(wide, "method")
    assert "close-k" in shown
    assert 0 < len(shown) < total
    wide.get_by_label("only p < 0.05").uncheck()


def test_columns_and_the_command_are_described(wide: Page) -> None:
    text = wide.locator("#columns").inner_text()
    for words in ("decimal comma", "date, as days", "left out", "(use --keep to include it)", "target"):
        assert words in text
    assert f"closecall compare '{IMAGE} b.csv'" in wide.locator("#repeat").inner_text()
    assert "report-results.csv" in wide.locator("#repeat").inner_text()
    cases = wide.locator("#diagnosis").inner_text()
    assert "likely to help" not in cases, "one verdict"
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


def test_only_the_scripts_of_the_page_run(browser: Any, address: str) -> None:
    """The policy lists their hashes: an inserted script, an event handler and code in a text are refused."""
    page = visit(browser, address)
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    (scripts,) = [part for part in policy.split("; ") if part.startswith("script-src")]
    assert re.fullmatch(r"script-src( 'sha256-[A-Za-z0-9+/]{43}='){2}", scripts)
    assert page.heard == []
    # After a timeout, because code that the driver evaluates directly is exempt from the policy.
    page.evaluate("""() => new Promise((done) => setTimeout(() => {
        const found = document.createElement("script");
        found.textContent = "window.hacked = 'a script'";
        document.body.append(found);
        document.body.insertAdjacentHTML("beforeend", "<svg onload='window.hacked=1'></svg>");
        try { window.hacked = new Function("return 'text'")(); } catch (error) { window.refused = error.name; }
        setTimeout(done, 100);
    }, 0))""")
    assert page.evaluate("[window.hacked, window.refused]") == [None, "EvalError"]
    assert len(page.heard) == 2, "the script and the handler are reported, too"
    page.context.close()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_screens_and_paper(browser: Any, address: str, width: int, scheme: str) -> None:
    check_page(browser, address, width, scheme)


def test_without_scripts_pictures_and_numbers_are_there(browser: Any, address: str) -> None:
    page = visit(browser, address, script=False)
    assert page.locator("figure .chart svg").count() == 2
    assert page.locator("#results-table tbody tr").count() == len(PAIRS)
    page.context.close()

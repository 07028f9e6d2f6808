"""The report in a browser: it draws, moves and sorts, loads nothing, and suits phones, dark mode and paper."""

import re
from typing import Any

import numpy as np
import pytest

from closecall.report import charts
from gate.browser import CHROMIUM, Page, check_page, check_sorting, column, playwright
from reproduction.pages.report import to_html
from reproduction.pages.sections import build
from reproduction.protocol.grid import ROW
from reproduction.protocol.plan import TARGETS, RunOptions, Size
from reproduction.protocol.published import LOSSES, METHODS
from reproduction.run.jobs import Job, prepare
from reproduction.run.record import Record
from reproduction.run.scores import Archive, Hole
from reproduction.run.store import Store

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH")

HOSTILE = (
    "file:<img src=x onerror=window.hacked=1>.csv",
    "file:</script><script>window.hacked=1</script>.csv",
    "file:=cmd|'&\"\x1b[31m\u202e\u2028.csv",
)
NAMES = ("pmlb:monk3", *HOSTILE, *(f"pmlb:set{i}" for i in range(4)))


def made_rows(lead: int, rng: np.random.Generator) -> np.ndarray:
    rows = np.zeros(2 * len(METHODS), ROW)
    rows["loss"], rows["method"] = np.repeat(LOSSES, len(METHODS)), np.tile(METHODS, 2)
    rows["k"], rows["alpha"] = rng.choice([10, 500], len(rows)), 1.0
    for part, size in (("train", 500), ("validation", 250), ("test", 250)):
        rows[part] = rng.integers(size * 6 // 10, size * 7 // 10, len(rows))
    rows["test"][rows["method"] == "close_decay"] += lead
    return rows


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a report on invented records: hostile names, a hole, a failure, and Figure 5's curves."""
    folder = tmp_path_factory.mktemp("report")
    sizes = tuple(Size("embedded", name, str(i), 1000, 4, 400) for i, name in enumerate(NAMES))
    options = RunOptions(splits=3, protocols=("sound",))
    overview = Job(TARGETS["overview"], ("embedded",), options, sizes, (Hole("embedded:gone", "no <b>file</b>"),))
    (curves,) = prepare(["figure5"], options, suite="embedded", only=["wdbc"])
    rng = np.random.default_rng(0)
    with Store(folder / "s.sqlite", write=True) as store:
        environment = {"python": HOSTILE[0], "revision": None, "packages": {}, "blas": [], "platform": "x", "cores": 2}
        store.begin_run({"arguments": ["reproduce", "--datasets", "a b"]}, environment)
        for cell in [*overview.cells(), *(cell for cell in curves.cells() if cell.level in (0, 256, 800))]:
            lead = 5 * NAMES.index(cell.dataset) if cell.dataset in NAMES else 0
            if cell.dataset == NAMES[-1] and cell.split == 2:
                store.add(cell, Record(cell.key, "failed", error="ValueError: <i>constant</i>"))
            else:
                store.add(cell, Record(cell.key, "done", made_rows(lead, rng), (500, 250, 250), 4, 0.1))
        sections = [build(job, Archive(store)) for job in (overview, curves)]
        for section in sections:
            (folder / section.name).mkdir()
            for name, (chart, _) in section.charts.items():
                (folder / section.name / f"{name}.svg").write_text(charts.draw(chart), encoding="utf-8")
        page = folder / "report.html"
        page.write_text(to_html(sections, store, folder), encoding="utf-8")
    return page.as_uri()


def test_every_chart_has_a_caption_for_humans(wide: Page) -> None:
    found = wide.locator("figure[data-chart]")
    captions = found.locator("figcaption").all_inner_texts()
    words = ("Gain of close", "Average rank", "that of average", "k*/n", "with added outliers")
    assert len(captions) == found.count() == len(words)
    assert all(word in " ".join(captions) for word in words)
    assert not any("-sound-linear" in caption for caption in captions)


def test_hovering_names_the_data_set_as_text(wide: Page) -> None:
    chart = wide.locator("figure[data-chart]", has_text="Gain of close decay over the average loss")
    names = set()
    for bar in chart.locator("svg .mark-rect.role-mark path").all():
        bar.hover()
        tip = wide.locator("#vg-tooltip-element.visible")
        tip.wait_for()
        names.add(tip.inner_text())
    text = " ".join(names)
    assert "onerror=window.hacked=1" in text
    assert re.search(r"gain:?\s+\+\d", text)
    assert wide.evaluate("window.hacked") is None


def test_the_slider_moves_boundary_and_close_calls(wide: Page) -> None:
    slider, readout = wide.locator("#walk-step"), wide.locator("#walk output")
    close, cut = wide.locator("#walk .point.close"), wide.locator("#walk .cut")
    slider.focus()
    wide.keyboard.press("Home")
    assert "Step 0 of 300, all examples count: k = 500 close calls of 500, no boundary yet" in readout.inner_text()
    assert close.count() == 500
    seen = []
    for _ in range(5):
        for _ in range(20):
            wide.keyboard.press("ArrowRight")
        k = int(re.search(r"k = (\d+)", readout.inner_text()).group(1))  # type: ignore[union-attr]
        seen.append((k, close.count(), float(cut.get_attribute("x1"))))
    assert [k for k, *_ in seen] == [500, 420, 180, 100, 100]
    assert [count for _, count, _ in seen] == [500, 420, 180, 100, 100]
    assert seen[0][2] < seen[1][2] < seen[2][2]  # from the boundary of the average towards the middle
    assert "k rests" in readout.inner_text()
    assert "errors" in (slider.get_attribute("aria-valuetext") or "")
    wide.get_by_label("outlier", exact=True).check()
    assert wide.locator("#walk .point").count() == 501
    wide.keyboard.press("ArrowRight")  # selects the next data set
    assert wide.locator("#walk .point").count() == 500


def test_playing_continues_and_stops(wide: Page) -> None:
    slider = wide.locator("#walk-step")
    slider.fill("95")
    wide.get_by_role("button", name="Play").click()
    playwright.expect(slider).to_have_value("100", timeout=180_000)
    wide.get_by_role("button", name="Play").wait_for()


def test_the_table_sorts_by_mouse_and_keyboard(wide: Page) -> None:
    check_sorting(wide, "gain")
    wide.locator("#results-table th[data-name='data set'] button").click()
    assert wide.locator("#results-table th[aria-sort]").count() == 1
    published = wide.locator("#results-table th[data-name='paper: average'] button")
    for _ in range(2):  # sets that are not in the paper come last in either direction
        published.click()
        beside = column(wide, "paper: average")
        assert [bool(value) for value in beside] == [True] * 2 + [False] * (len(beside) - 2)
        assert column(wide, "data set")[:2] == ["monk3", "monk3"]


def test_names_are_text_and_holes_are_listed(wide: Page) -> None:
    text = wide.locator("body").inner_text()
    for word in ("<img src=x onerror=window.hacked=1>", "</script><script>window.hacked=1</script>", "no <b>file</b>"):
        assert word in text
    assert "=cmd|'&\"\\x1b[31m\\u202e\\u2028" in text
    wide.locator("#holes summary").focus()
    wide.keyboard.press("Enter")
    assert "<i>constant</i>" in wide.locator("#holes").inner_text()
    assert "closecall reproduce --datasets 'a b'" in wide.locator("#repeat").inner_text()
    assert "mean gain" in wide.locator("#summary").inner_text()
    assert wide.locator("img").count() == 0
    assert wide.evaluate("window.hacked") is None


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (380, "dark")])
def test_screens_and_paper(browser: Any, address: str, width: int, scheme: str) -> None:
    check_page(browser, address, width, scheme)

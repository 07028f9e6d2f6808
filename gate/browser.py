"""Chromium for the tests of the pages, and what every page must satisfy."""

import re
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason='needs playwright: pip install "closecall[test]"')
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking"]
Page = Any


def launched() -> Iterator[Any]:
    """Yield a browser and close it at the end: the body of a fixture."""
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def visit(browser: Any, address: str, *, width: int = 1200, scheme: str = "light", script: bool = True) -> Page:
    """Open the page in its own context; ``page.heard`` collects errors, dialogs and requests."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script, offline=True
    )
    context.set_default_timeout(180_000)  # a busy machine is not a fault of the page
    page = context.new_page()
    page.heard = []
    page.on("console", lambda message: message.type in ("error", "warning") and page.heard.append(message.text))
    page.on("pageerror", lambda error: page.heard.append(str(error)))
    page.on("dialog", lambda dialog: (page.heard.append("dialog"), dialog.dismiss()))
    page.on("request", lambda request: request.url != address and page.heard.append(request.url))
    page.goto(address)
    if script:
        page.locator("figure[data-chart]:not([data-drawn])").first.wait_for(state="detached")
    return page


def check_charts(page: Page, drawn: str) -> None:
    """Check that every chart is drawn, has a name for screen readers and fits the page."""
    room = page.locator("main").bounding_box()["width"]
    for figure in page.locator("figure[data-chart]").all():
        assert figure.get_attribute("data-drawn") == drawn
        assert figure.locator("svg.marks path").count() > 10
        assert figure.locator(".chart").get_attribute("aria-label")
        assert figure.locator("svg.marks").bounding_box()["width"] <= room
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def check_page(browser: Any, address: str, width: int, scheme: str) -> None:
    """Check accessibility, colours, the width, the printed page, and that nothing is loaded or reported."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    page = visit(browser, address, width=width, scheme=scheme)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    found = axe.Axe().run(page)
    assert found.violations_count == 0, found.generate_report()
    check_charts(page, "narrow" if width < 400 else "wide")
    style = "getComputedStyle(document.querySelector('.chart svg')).filter"
    red = int(re.findall(r"\d+", page.evaluate("getComputedStyle(document.body).backgroundColor"))[0])
    assert (red < 60, "invert" in page.evaluate(style)) == (scheme == "dark",) * 2
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate(style) == "none"
    assert page.heard == []
    assert page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    page.context.close()


def check_sorting(page: Page, name: str) -> None:
    """Check that a click and the Enter key sort the table of results by a column, first downwards, then upwards."""
    head = page.locator(f"#results-table th[data-name='{name}']")
    head.get_by_role("button").click()
    values = [float(value) for value in column(page, name)]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) > 5
    assert head.get_attribute("aria-sort") == "descending"
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    assert [float(value) for value in column(page, name)] == sorted(values)
    assert head.get_attribute("aria-sort") == "ascending"


def column(page: Page, name: str) -> list[str]:
    place = page.locator("#results-table th").evaluate_all(
        "(all, name) => all.findIndex((th) => th.dataset.name === name)", name
    )
    return page.locator("#results-table tbody tr:not([hidden])").evaluate_all(
        "(rows, place) => rows.map((row) => row.cells[place].dataset.value ?? '')", place
    )

"""A real Chromium for the tests of the pages."""

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason='needs playwright: pip install "closecall[test]"')
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--headless", "--disable-gpu", "--disable-background-networking"]
Page = Any


def launched() -> Iterator[Any]:
    """The body of a fixture: a browser, closed at the end."""
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


def visit(browser: Any, address: str, *, width: int = 1200, scheme: str = "light", script: bool = True) -> Page:
    """The page in a context of its own; ``page.heard`` collects errors, dialogs and requests."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script, offline=True
    )
    context.set_default_timeout(180_000)  # a busy machine is no fault of the page
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


def column(page: Page, name: str) -> list[str]:
    place = page.locator("#results-table th").evaluate_all(
        "(all, name) => all.findIndex((th) => th.dataset.name === name)", name
    )
    return page.locator("#results-table tbody tr:not([hidden])").evaluate_all(
        "(rows, place) => rows.map((row) => row.cells[place].dataset.value ?? '')", place
    )

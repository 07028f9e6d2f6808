"""The built site in a browser: nothing is cut off, on a wide screen and on a phone."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gate.browser import CHROMIUM
from tests import ROOT

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium on the PATH")
#: Tables, code and pictures that are wider than the page, or cut off by a frame that cannot scroll.
CUT = """() => [...document.querySelectorAll("article table, article pre, article img, article .formula")]
  .filter((box) => box.offsetParent).flatMap((box) => {
    const right = box.getBoundingClientRect().right;
    for (let frame = box; frame; frame = frame.parentElement) {
      const overflow = getComputedStyle(frame).overflowX, edge = frame.getBoundingClientRect().right;
      if (overflow === "auto" || overflow === "scroll") return edge > innerWidth + 1 ? ["beyond the page"] : [];
      if (overflow !== "visible" && right > edge + 1) return ["cut by " + frame.className];
    }
    return right > innerWidth + 1 ? ["beyond the page"] : [];
  })"""
SCROLLS = """() => [...document.querySelectorAll("article table")].filter((box) => box.offsetParent).every((table) => {
    const frame = table.closest(".md-typeset__scrollwrap"), room = frame ? frame.scrollWidth - frame.clientWidth : 0;
    if (!frame || room < 2) return !!frame;
    frame.scrollLeft = room;
    const seen = table.getBoundingClientRect().right <= frame.getBoundingClientRect().right + 1;
    return seen && getComputedStyle(frame).backgroundImage.includes("gradient");
  })"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True)
    return folder


@pytest.mark.parametrize("width", [1200, 390])
def test_nothing_is_cut_off(width: int, built: Path, browser: Any) -> None:
    page = browser.new_context(viewport={"width": width, "height": 900}, offline=True).new_page()
    found = {}
    for path in sorted(built.rglob("*.html")):
        page.goto(path.as_uri())
        scrolls = page.evaluate(SCROLLS)
        cut = [*page.evaluate(CUT), *([] if scrolls else ["a table that does not scroll, or hides that it does"])]
        if page.evaluate("document.documentElement.scrollWidth") > width:
            cut.append("the page itself scrolls sideways")
        if cut:
            found[path.relative_to(built).as_posix()] = cut
    assert found == {}

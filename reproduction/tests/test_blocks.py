"""A page in blocks says the same as Markdown and as HTML, whatever the texts are."""

from html.parser import HTMLParser

import pytest
from hypothesis import given, settings, strategies as st

pytest.importorskip("altair", reason="install closecall[plots]")
pytest.importorskip("jinja2", reason="install closecall[bench]")
pytest.importorskip("markdown", reason="install closecall[docs]")
pytest.importorskip("pymdownx", reason="install closecall[docs]")

import markdown

from closecall.report.html import templates
from closecall.report.text import p_value, p_words
from reproduction.pages.blocks import Block, Code, Fold, Heading, Items, Link, Paragraph, Tabled, to_page
from reproduction.pages.formats import Table


class _Words(HTMLParser):
    """The words that a reader sees, and the elements around them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.tags: set[str] = set()
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.words += data.split()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)


#: Words that are names, numbers or somebody's attempt at markup.
WORDS = st.sampled_from(
    ["monk3", "p < 0.05", "<b>bold</b>", "a|b", "*star*", "`code`", "[x](y)", "&amp;", "_under_", "#1"]
)
TEXTS = st.lists(WORDS, min_size=1, max_size=4).map(" ".join)
TABLES = st.lists(st.tuples(TEXTS, TEXTS), min_size=1, max_size=3).map(
    lambda rows: Table("t", "Title", ("a", "b"), tuple(rows), (), ("A note.",))
)
FLAT = st.one_of(
    TEXTS.map(Heading), TEXTS.map(Paragraph), TABLES.map(Tabled),
    st.lists(TEXTS, min_size=1, max_size=3).map(lambda all: Items(tuple(all))),
    TEXTS.map(lambda text: Link(text, "page.md", "see ", ".")),
    TEXTS.map(lambda text: Items((Link(text, "page.md"), text))), TEXTS.map(lambda text: Code((text, text))),
)  # fmt: skip
BLOCKS = FLAT | st.builds(
    lambda title, inside: Fold(title, tuple(inside)), TEXTS, st.lists(FLAT, min_size=1, max_size=2)
)


@settings(max_examples=60)
@given(st.lists(BLOCKS, min_size=1, max_size=4))
def test_both_writers_say_the_same_words(blocks: list[Block]) -> None:
    extensions = ["tables", "sane_lists", "pymdownx.superfences", "pymdownx.details"]
    one = _Words(markdown.markdown(to_page(blocks), extensions=extensions))
    two = _Words(str(templates("reproduction.pages").get_template("blocks.html.jinja").module.written(blocks)))
    assert one.words == two.words
    assert "b" not in one.tags | two.tags


@given(st.floats(0, 1))
def test_a_p_value_is_never_zero(p: float) -> None:
    """Digits that would all be zeros are a bound instead; what is shown is within half of its last digit."""
    shown = p_value(p)
    assert (shown == "< 0.0001") == (p < 1e-4)
    assert p < 1e-4 or abs(float(shown) - p) <= 0.5000001e-4
    assert p_words(p) in (f"p = {shown}", f"p {shown}")

"""Pages are rendered as intended: no accidental lists, headings, emphasis or breaks, and no broken tables."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import ROOT

markdown = pytest.importorskip("markdown", reason='pages need: pip install "closecall[test]"')
mkdocs_config = pytest.importorskip("mkdocs.config", reason='pages need: pip install "closecall[test]"')

DOCS = sorted((ROOT / "docs").rglob("*.md"))
FENCE = re.compile(r"^(?P<indent> *)```.*?^(?P=indent)``` *$", re.S | re.M)
CODE = re.compile(r"<(pre|code)\b.*?</\1>", re.S)
ITEM = re.compile(r" *(?:[-*+]|\d+[.)]) +\S")
#: A comment on a line of its own, which marks a generated block or a generated page.
COMMENT = re.compile(r"^<!--[^>]*-->$\n?", re.M)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def prose_of(text: str) -> str:
    """Return the source without fenced code and without comments on lines of their own."""
    return COMMENT.sub("", FENCE.sub("", text))


@pytest.fixture(scope="module")
def converter() -> Any:
    """Python-Markdown with the extensions listed in mkdocs.yml."""
    config = mkdocs_config.load_config(str(ROOT / "mkdocs.yml"))
    return markdown.Markdown(extensions=config["markdown_extensions"], extension_configs=config["mdx_configs"])


def rendered(text: str, converter: Any) -> str:
    """Return the page as HTML without code and without the ``:::`` blocks of the reference."""
    return CODE.sub("<code></code>", converter.reset().convert(re.sub(r"^:::.*(?:\n +.*)*", "", text, flags=re.M)))


def strayed(text: str) -> Iterator[str]:
    """Yield lines inside a paragraph that begin like a list, a heading, a quotation or a comment."""
    before = ""
    for line in prose_of(text).splitlines():
        begins = ITEM.match(line) or re.match(r" *(?:#+ |>|<!--)", line)
        if begins and before.strip() and not re.match(r" *(?:#|\||[!?]{3})", before):
            inside = ITEM.match(before) or before.startswith("  ")  # the list continues
            if not (inside and ITEM.match(line)):
                yield line
        if re.match(r" *0[.)] ", line):
            yield line
        before = line


def wrong(html: str, text: str) -> Iterator[str]:
    """Yield differences between the rendered page and its source."""
    source = prose_of(text).splitlines()
    for tag, wanted in (("li", ITEM), ("h[1-6]", re.compile(r"#+ "))):
        shown, meant = len(re.findall(rf"<{tag}\b", html)), sum(bool(wanted.match(line)) for line in source)
        if shown != meant:
            yield f"{shown} <{tag}>, {meant} in the source"
    for match in re.finditer(r"\w<(em|strong)>.*?</\1>|<(em|strong)>.*?</\2>\w", html, re.S):
        yield f"emphasis inside a word: {match[0][:60]}"
    for first, second in re.findall(r"<p>((?:(?!</p>).)*)</p>\s*(?:<!--[^>]*-->)?(?=<p>(.{9}))", html, re.S):
        if re.match(r"[,;.)]", second) or re.search(r"[\w,(]$", first):
            yield f"a paragraph is split: {first[-40:]} | {second[:40]}"
    if re.search(r"&lt;!--|(?<!^)<!--[^>]*-->(?!$)", html, re.M):
        yield "a comment is visible"


@pytest.mark.parametrize("page", DOCS, ids=name_of)
def test_pages_show_what_their_source_means(page: Path, converter: Any) -> None:
    text = page.read_text(encoding="utf-8")
    assert list(strayed(text)) == []
    assert list(wrong(rendered(text, converter), text)) == []


def test_the_readme_is_the_same_page_to_every_renderer(converter: Any) -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    common = pytest.importorskip("markdown_it").MarkdownIt("commonmark").enable("table").render(text)
    assert list(strayed(text)) == []
    for html in (rendered(text, converter), CODE.sub("<code></code>", common)):
        assert list(wrong(html, text)) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("worse on 0 and\n0. By the test", "strayed"),
        ("better on\n<!-- result: a.csv b .0f -->23<!-- end --> sets", "strayed"),
        ("one\n\n<!-- result: a.csv b .0f -->0<!-- end -->. two", "wrong"),
        ("L(θ*)/M < E(θ*) + k", "plain"),
        ("*Proof.* **Whole.** then\n\n- one\n- two\n\n1. first", "plain"),
    ],
)
def test_wrong_pages_are_found(text: str, found: str, converter: Any) -> None:
    assert bool(list(strayed(text))) == (found == "strayed")
    if found != "strayed":
        assert bool(list(wrong(rendered(text, converter), text))) == (found == "wrong")


RESULTS = [page for page in DOCS if page.parent.name == "results"]


@pytest.mark.parametrize("page", RESULTS, ids=name_of)
def test_a_page_of_results_begins_with_its_answer(page: Path) -> None:
    """The answer is in bold, right below the title."""
    _, first, *_ = re.split(r"\n\s*\n", COMMENT.sub("", page.read_text(encoding="utf-8")).strip())
    answer = re.match(r"\*\*(.+?)\*\*", first, re.S)
    assert answer, first[:100]
    assert len(answer[1].split()) <= 70


def test_the_index_of_the_results_has_few_entries() -> None:
    groups = re.findall(r"^## (.+)\n\n- \[", (ROOT / "docs" / "results" / "index.md").read_text(), re.M)
    assert 1 < len(groups) <= 10
    assert "More" not in groups, "a page is missing from the groups in reproduction/pages/front.py"

"""The content of a page as blocks.

They are rendered as Markdown here, and as HTML by ``templates/blocks.html.jinja``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from .formats import Table, begun, escape_markdown, paragraph, to_markdown


@dataclass(frozen=True)
class Heading:
    """A heading; level 1 is the title of the page."""

    kind: ClassVar = "heading"
    text: str
    level: int = 2

    def markdown(self) -> str:
        return f"{'#' * self.level} {escape_markdown(self.text)}"


@dataclass(frozen=True)
class Paragraph:
    """A paragraph; ``code`` means that backticks mark code in Markdown, and ``strong`` means that it is bold."""

    kind: ClassVar = "text"
    text: str
    code: bool = False
    strong: bool = False

    def markdown(self) -> str:
        text = paragraph(self.text).replace("\\`", "`") if self.code else paragraph(self.text)
        return f"**{text}**" if self.strong else text


@dataclass(frozen=True)
class Link:
    """A link to another page, with the text around it."""

    kind: ClassVar = "link"
    text: str
    address: str
    before: str = ""
    after: str = ""

    def markdown(self) -> str:
        return f"{self.before}[{escape_markdown(self.text)}]({self.address}){self.after}"


@dataclass(frozen=True)
class Items:
    """A list of texts and links."""

    kind: ClassVar = "items"
    items: tuple[str | Link, ...]

    def markdown(self) -> str:
        return "\n".join(f"- {begun(escape_markdown(i)) if isinstance(i, str) else i.markdown()}" for i in self.items)


@dataclass(frozen=True)
class Code:
    """Preformatted lines."""

    kind: ClassVar = "code"
    lines: tuple[str, ...]

    def markdown(self) -> str:
        return "```text\n" + "\n".join(line.replace("```", "") for line in self.lines) + "\n```"


@dataclass(frozen=True)
class Tabled:
    """A table and its notes, without truncated names. The title can be left out."""

    kind: ClassVar = "tabled"
    table: Table
    titled: bool = True

    def markdown(self) -> str:
        text = to_markdown(self.table, 1000).rstrip()
        return text if self.titled else text.partition("\n\n")[2]


@dataclass(frozen=True)
class Picture:
    """A chart: the address of its picture for Markdown, and a :class:`closecall.report.html.Chart` for HTML."""

    kind: ClassVar = "picture"
    caption: str
    address: str = ""
    chart: Any = None

    def markdown(self) -> str:
        return f"![{escape_markdown(self.caption)}]({self.address})\n\n{paragraph(self.caption)}"


@dataclass(frozen=True)
class Fold:
    """Blocks that are folded under a title or highlighted as a warning."""

    kind: ClassVar = "fold"
    title: str
    blocks: tuple[Block, ...]
    opened: bool = False
    warning: bool = False

    def markdown(self) -> str:
        mark, title = "!!! warning" if self.warning else "??? note", begun(escape_markdown(self.title))
        title = title.replace('"', "'")
        lines = to_page(self.blocks).rstrip().splitlines()
        return f'{mark} "{title}"\n\n' + "\n".join(f"    {line}".rstrip() for line in lines)


Block = Heading | Paragraph | Link | Items | Code | Tabled | Picture | Fold


def to_page(blocks: Iterable[Block]) -> str:
    r"""Return the blocks as Markdown.

    Examples
    --------
    >>> print(to_page([Heading("Sets"), Fold("Two <b>", (Items(("a", Link("b", "b.md"))),))]))
    ## Sets
    <BLANKLINE>
    ??? note "Two &lt;b>"
    <BLANKLINE>
        - a
        - [b](b.md)
    """
    return "\n\n".join(block.markdown() for block in blocks)

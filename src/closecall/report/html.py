"""Parts shared by all pages (templates, style, scripts, charts); everything works offline, and all text is escaped."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib import resources
from typing import Any

import jinja2
import vl_convert

from .charts import draw, specification
from .text import visible


@dataclass(frozen=True)
class Chart:
    """A chart on a page: its identifier, caption, picture (SVG, for readers without JavaScript) and specification."""

    identity: str
    caption: str
    picture: str
    specification: str


def place(identity: str, caption: str, chart: Any, picture: str | None = None) -> Chart:
    """Return a chart for a page; its picture is drawn unless one is given."""
    plain, caption = specification(chart), caption.replace(" %", "\u00a0%")  # no line break between number and sign
    picture = draw(plain) if picture is None else picture
    return Chart(identity, caption, picture, to_json({**plain, "description": caption}))


def render(
    template: str, *, charts: Sequence[Chart], scripts: Sequence[str] = (), package: str = __package__, **content: Any
) -> str:
    """Render a template from ``templates/`` as a page without external references.

    The drawing code is left out if there are no charts; ``scripts`` are the file names of additional scripts. The
    templates of ``package`` take precedence. Text in ``content`` is escaped, including control characters.
    """
    script, bundle = "".join(read(name, package) for name in scripts), _bundle() if charts else ""
    page = templates(package).get_template(template)
    return page.render(
        written=format, style=read("style.css"), script=script, bundle=bundle,
        sources=" ".join(map(_source, (script, bundle))), **content,
    )  # fmt: skip


def _source(script: str) -> str:
    """Return the hash of a script for the page's content security policy, which allows no other scripts."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


@cache
def _bundle() -> str:
    """Return the script that draws charts, including its libraries; it is slow to assemble.

    The script contains no data, so only the sequence that would end the element has to be escaped.
    """
    return str(vl_convert.javascript_bundle(read("charts.js"))).replace("</script", "<\\/script")


def templates(package: str = __package__) -> jinja2.Environment:
    """Return the Jinja environment for ``templates/``; all values are escaped, including control characters."""
    return jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        finalize=visible,
        loader=jinja2.FunctionLoader(partial(read, package=package)),
    )


def read(name: str, package: str = __package__) -> str:
    """Return a file from ``templates/`` in the given package or, failing that, in this one."""
    places = [resources.files(each).joinpath("templates", name) for each in (package, __package__)]
    return next(filter(lambda place: place.is_file(), places), places[-1]).read_text(encoding="utf-8")


def to_json(content: Any) -> str:
    r"""Return JSON that is safe inside a script element: it can neither end the element nor start a comment.

    Examples
    --------
    >>> print(to_json({"name": "</script>&"}))
    {"name":"\u003c/script\u003e\u0026"}
    """
    text = json.dumps(content, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")

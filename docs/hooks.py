"""MkDocs hooks that generate the gallery, the changelog page and the navigation of the results.

A gallery example is a file ``examples/gallery_*.py`` with a docstring (title, blank line, text) and a function
``draw()`` that returns a matplotlib figure.
"""

from __future__ import annotations

import ast
import io
import re
import runpy
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

from reproduction.pages.front import grouped

ROOT = Path(__file__).parent.parent
#: Sphinx roles in docstrings, after conversion from Markdown to HTML.
ROLE = re.compile(r":(?:func|class|mod|data|meth|attr|obj):<code>~?([^<]+)</code>")


#: A table of parameters, from the header "Default" to its end, and the last cell of a row.
DEFAULTS = re.compile(r"<th>Default</th>(.*?</table>)", re.S)
LAST_CELL = re.compile(r"<td>(?:(?!<td>).)*</td>\s*</tr>", re.S)
#: A comment on a line of its own, which begins or ends a generated block.
COMMENT = re.compile(r"^<!--[^>]*-->$\n?", re.M)
#: Elements that make a browser load something from another server; ordinary links are not included.
FOREIGN = re.compile(r'<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')


def on_config(config: Any) -> Any:
    """Add every page of docs/results to the navigation, including the hand-written ones."""
    entry = results_nav(Path(config["docs_dir"]) / "results")
    for section in config["nav"] or ():
        for pages in section.values() if isinstance(section, dict) else ():
            if "results/index.md" in pages:
                pages[pages.index("results/index.md")] = entry
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated files to the site."""
    pages = {"gallery.md": gallery_page(), "changelog.md": (ROOT / "CHANGELOG.md").read_text()}
    results = Path(config["docs_dir"]) / "results"
    if not (results / "index.md").exists():
        pages["results/index.md"] = results_page()
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    for path in example_paths():
        files.append(File.generated(config, f"gallery/{path.stem}.svg", content=picture(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Remove the comments that mark generated blocks."""
    return COMMENT.sub("", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Show cross-references in docstrings as plain code, and remove the column of defaults.

    The parser assumes that the first of a docstring's ``{choices}`` is the default, which may be wrong; the signatures
    show the defaults.
    """
    html = DEFAULTS.sub(lambda table: LAST_CELL.sub("</tr>", table[1]), html)
    return ROLE.sub(r"<code>\1</code>", html)


def on_post_build(config: Any, **_: Any) -> None:
    """Raise an error if a page loads anything from another server."""
    for path in sorted(Path(config["site_dir"]).rglob("*.html")):
        found = FOREIGN.findall(path.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{path.name} loads something from another server: {found[0]}")


def example_paths() -> list[Path]:
    """Return the paths of the gallery's examples, sorted by name."""
    return sorted((ROOT / "examples").glob("gallery_*.py"))


def describe(path: Path) -> tuple[str, str]:
    """Return the title and text of an example without running it."""
    doc = ast.get_docstring(ast.parse(path.read_text())) or path.stem
    title, _, text = doc.partition("\n\n")
    return title.rstrip("."), text


def picture(path: Path) -> bytes:
    """Run an example and return its figure as reproducible SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": path.stem, "svg.fonttype": "none", "font.size": 9}):
        figure = runpy.run_path(str(path))["draw"]()
        figure.savefig(buffer, format="svg", bbox_inches="tight", metadata={"Date": None})
        pyplot.close(figure)
    return buffer.getvalue()


def gallery_page() -> str:
    """Return the gallery as Markdown: each example with its picture and its source."""
    parts = ["# Gallery", "Each picture is drawn by the code below it when this page is built.\n"]
    for path in example_paths():
        title, text = describe(path)
        parts.append(f"## {title}\n\n{text}\n\n![{title}](gallery/{path.stem}.svg)\n")
        parts.append(source_of(path))
    parts.append("## In PyTorch\n\nThese are complete programs without pictures; the tests run them.\n")
    for path in sorted((ROOT / "examples").glob("torch_*.py")):
        title, text = describe(path)
        parts.append(f"### {title}\n\n{text}\n\n{source_of(path)}")
    return "\n".join(parts)


def source_of(path: Path) -> str:
    """Return the source of an example as a collapsible block."""
    source = "\n".join("    " + line for line in path.read_text().rstrip().splitlines())
    return f'??? example "examples/{path.name}"\n\n    ```py\n{source}\n    ```\n'


def results_page() -> str:
    """Return the page that replaces the results until `closecall publish` has written them."""
    return (
        "# Results\n\nNo results have been published for this version yet. [Reproducing the paper](../reproduce.md) "
        "explains how to compute them; the first command there needs no download.\n"
    )


def results_nav(folder: Path) -> Any:
    """Return the navigation entry for the results: the front page, then the other pages by group."""
    groups = grouped([path.name for path in sorted(folder.glob("*.md")) if path.name != "index.md"])
    entries = [{group: [f"results/{name}" for name in names]} for group, names in groups.items()]
    return {"Results": ["results/index.md", *entries]} if entries else "results/index.md"

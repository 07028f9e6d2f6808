"""What the site makes while it is built: the gallery's pictures and page, the changelog, the results if there are any.

An example of the gallery is a file ``examples/gallery_*.py`` with a docstring (title, blank line, text) and a function
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
#: Sphinx roles in docstrings, as they come out of Markdown.
ROLE = re.compile(r":(?:func|class|mod|data|meth|attr|obj):<code>~?([^<]+)</code>")


#: A table of parameters from its column of defaults on, and the last cell of a row.
DEFAULTS = re.compile(r"<th>Default</th>(.*?</table>)", re.S)
LAST_CELL = re.compile(r"<td>(?:(?!<td>).)*</td>\s*</tr>", re.S)
#: A comment that stands alone in its line: it begins or ends a generated block.
COMMENT = re.compile(r"^<!--[^>]*-->$\n?", re.M)
#: What a browser would fetch from elsewhere; links that a reader may follow are not among it.
FOREIGN = re.compile(r'<(?:script|img|iframe|source|link)\b[^>]*\b(?:src|href)="(?:https?:)?//[^"]*"')


def on_config(config: Any) -> Any:
    """Put every page of docs/results into the navigation, also those that were written by hand."""
    entry = results_nav(Path(config["docs_dir"]) / "results")
    for section in config["nav"] or ():
        for pages in section.values() if isinstance(section, dict) else ():
            if "results/index.md" in pages:
                pages[pages.index("results/index.md")] = entry
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated files to the site's."""
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
    """Leave out what is said to the programs that write pages."""
    return COMMENT.sub("", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Show the docstrings' cross-references as plain code, and leave defaults to the signatures.

    The parser takes the first of a docstring's ``{choices}`` for the default, which need not be true.
    """
    html = DEFAULTS.sub(lambda table: LAST_CELL.sub("</tr>", table[1]), html)
    return ROLE.sub(r"<code>\1</code>", html)


def on_post_build(config: Any, **_: Any) -> None:
    """No page of the site may ask another machine for anything."""
    for path in sorted(Path(config["site_dir"]).rglob("*.html")):
        found = FOREIGN.findall(path.read_text(encoding="utf-8"))
        if found:
            raise PluginError(f"{path.name} would fetch from elsewhere: {found[0]}")


def example_paths() -> list[Path]:
    """The gallery's examples, by name."""
    return sorted((ROOT / "examples").glob("gallery_*.py"))


def describe(path: Path) -> tuple[str, str]:
    """Title and text of an example, without running it."""
    doc = ast.get_docstring(ast.parse(path.read_text())) or path.stem
    title, _, text = doc.partition("\n\n")
    return title.rstrip("."), text


def picture(path: Path) -> bytes:
    """Run an example and return its figure as SVG, the same bytes for the same figure."""
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
    """The gallery's Markdown: each example with its picture and its source."""
    parts = ["# Gallery", "Every picture was drawn while this page was built, by the code under it.\n"]
    for path in example_paths():
        title, text = describe(path)
        parts.append(f"## {title}\n\n{text}\n\n![{title}](gallery/{path.stem}.svg)\n")
        parts.append(source_of(path))
    parts.append("## In PyTorch\n\nWhole programs, which the tests run; they draw nothing.\n")
    for path in sorted((ROOT / "examples").glob("torch_*.py")):
        title, text = describe(path)
        parts.append(f"### {title}\n\n{text}\n\n{source_of(path)}")
    return "\n".join(parts)


def source_of(path: Path) -> str:
    """An example's source, folded."""
    source = "\n".join("    " + line for line in path.read_text().rstrip().splitlines())
    return f'??? example "examples/{path.name}"\n\n    ```py\n{source}\n    ```\n'


def results_page() -> str:
    """What stands in for the results until `closecall publish` has written them."""
    return (
        "# Results\n\nNo results are published with this version yet. [Reproducing the paper](../reproduce.md) says "
        "how to make them; the first command there needs no download.\n"
    )


def results_nav(folder: Path) -> Any:
    """The navigation's entry for the results: the front page, then the others by group."""
    groups = grouped([path.name for path in sorted(folder.glob("*.md")) if path.name != "index.md"])
    entries = [{group: [f"results/{name}" for name in names]} for group, names in groups.items()]
    return {"Results": ["results/index.md", *entries]} if entries else "results/index.md"

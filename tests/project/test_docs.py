"""Checks of the documentation: its code runs, its commands parse, and its links work.

The blocks of a page run in order in one namespace. A ``text`` block right after a ``python`` block is its output.
"""

import contextlib
import doctest
import io
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from closecall.aggregates import AGGREGATES
from closecall.losses import LOSSES
from closecall.solvers.kernels import PULLS
from reproduction.protocol import SUITES
from reproduction.protocol.embedded import EMBEDDED
from tests import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```", re.S | re.M)
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
#: Words that must not appear in the documentation: local paths, internal files, unfinished work.
FORBIDDEN = re.compile(
    r"/work\b|/opt/|/home/|/root/|SPEC\.md|DESIGN\.md|\bissues?\b|\bTODO\b|PLACEHOLDER|index-url", re.I
)


class Block(NamedTuple):
    language: str
    body: str
    line: int
    output: str | None


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def blocks_of(text: str) -> Iterator[Block]:
    found = list(FENCE.finditer(text))
    for place, match in enumerate(found):
        body = re.sub(rf"^{match['indent']}", "", match["body"], flags=re.M)
        after = found[place + 1] if place + 1 < len(found) else None
        printed = after and after["language"] == "text" and not text[match.end() : after.start()].strip()
        yield Block(match["language"], body, text.count("\n", 0, match.start()) + 1, after["body"] if printed else None)


def prose_of(text: str) -> str:
    return re.sub(r"`[^`\n]+`", "", FENCE.sub("", text))


def run_python(block: Block, page: Path, names: dict[str, object]) -> None:
    """Run one block and compare its output with the page; line numbers in tracebacks are those of the page."""
    printed = io.StringIO()
    code = compile("\n" * block.line + block.body, str(page), "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, names)
    if block.output is not None:
        same = doctest.OutputChecker().check_output(
            block.output, printed.getvalue(), doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        )
        assert same, f"{page.name}:{block.line} prints\n{printed.getvalue()}\nbut the page shows\n{block.output}"


@pytest.fixture(autouse=True)
def tables_as_they_were() -> Iterator[None]:
    """Undo changes that a page makes to the tables of losses, aggregates and data sets."""
    before = [(table, dict(table)) for table in (AGGREGATES, LOSSES, PULLS, EMBEDDED, SUITES)]
    yield
    for table, content in before:
        table.clear()
        table.update(content)


@pytest.mark.parametrize(("body", "output"), [("print(1 + 1)", "3\n"), ("print(undefined)", None), ("1 / 0", None)])
def test_a_wrong_block_is_caught(body: str, output: str | None) -> None:
    with pytest.raises((AssertionError, NameError, ZeroDivisionError)):
        run_python(Block("python", body, 1, output), ROOT / "README.md", {})


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    names: dict[str, object] = {"__name__": "page"}
    blocks = [block for block in blocks_of(page.read_text()) if block.language == "python"]
    if any(re.search(r"^\s*(?:import|from) (?:torch|closecall\.nn)\b", block.body, re.M) for block in blocks):
        pytest.importorskip("torch", reason='some blocks need torch: pip install "closecall[torch]"')
    for block in blocks:
        run_python(block, page, names)


def commands_of(body: str) -> Iterator[list[str]]:
    """Yield the simple commands of a shell block, without redirections and comments."""
    for line in body.replace("\\\n", " ").splitlines():
        for part in re.split(r"\||&&|;", line.split(" > ")[0].rstrip("& ")):
            words = shlex.split(part, comments=True)
            while words and re.fullmatch(r"\w+=\S*", words[0]):
                words = words[1:]
            if words:
                yield words[2:] if words[:2] == ["srun", "--ntasks=1"] else words


SHELL = [
    pytest.param(block, id=f"{name_of(page)}:{block.line}")
    for page in PAGES
    for block in blocks_of(page.read_text())
    if block.language in ("bash", "sh")
]


def check_closecall(arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Check that the command line accepts the arguments; commands that only list or plan are run."""
    pytest.importorskip("typer", reason='the command needs: pip install "closecall[bench,plots]"')
    from typer.main import get_command
    from typer.testing import CliRunner

    from closecall import cli
    from reproduction import app
    from reproduction.protocol.plan import get_targets

    monkeypatch.setenv("CLOSECALL_DATA", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    if arguments[0].startswith("--"):
        assert CliRunner().invoke(cli.app, arguments).exit_code == 0
        return
    name, *rest = arguments
    commands = get_command(cli.app).commands | app.built().commands
    assert name in commands, f"unknown command {name!r}"
    with commands[name].make_context(name, list(rest)) as context:
        if "targets" in context.params:
            get_targets(context.params["targets"] or ["overview"])
    if "--dry-run" in rest:
        result = CliRunner().invoke(app.app, [name, *rest])
        assert result.exit_code in (cli.COMPLETE, cli.INCOMPLETE), result.output


@pytest.mark.parametrize("block", SHELL)
def test_shell_blocks(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["bash", "-n"], input=block.body, text=True, check=True)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    for command in commands_of(block.body):
        if command[0] == "closecall":
            check_closecall(command[1:], tmp_path, monkeypatch)
        elif command[0] == "make":
            assert set(command[1:]) <= targets
        elif command[0] == "python" and command[1].endswith(".py"):
            assert (ROOT / command[1]).exists()
        for asked in re.findall(r"closecall\[([a-z,]+)\]", " ".join(command)):
            assert set(asked.split(",")) <= set(extras)


@pytest.mark.parametrize("arguments", ["repoduce", "reproduce table9", "reproduce --split 3", "plan --splits many"])
def test_a_wrong_command_is_caught(arguments: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage_error = pytest.importorskip("typer").BadParameter.__mro__[1]
    with pytest.raises((AssertionError, ValueError, usage_error)):
        check_closecall(arguments.split(), tmp_path, monkeypatch)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_yaml_blocks_are_yaml(page: Path) -> None:
    yaml = pytest.importorskip("yaml")
    for block in blocks_of(page.read_text()):
        if block.language == "yaml":
            assert list(yaml.safe_load_all(block.body))


def test_links_of_the_readme_lead_somewhere() -> None:
    """``mkdocs build --strict`` checks the links of all other pages, the navigation and the names in the reference."""
    links = [link for link in LINK.findall(prose_of(PAGES[0].read_text())) if not re.match(r"https?://|mailto:", link)]
    assert links
    assert [link for link in links if not (ROOT / link.partition("#")[0]).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_speak_of_the_project_alone(page: Path) -> None:
    assert FORBIDDEN.findall(page.read_text()) == []


def test_every_page_is_in_the_navigation() -> None:
    listed = set(re.findall(r"- ([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text().partition("\nnav:")[2], re.M))
    written = {path.relative_to(ROOT / "docs").as_posix() for path in PAGES[1:]}
    assert {page for page in written if not page.startswith("results/")} <= listed


RESULTS = ROOT / "docs" / "results"


def test_numbers_in_pages_are_those_of_the_files() -> None:
    """Covers the README's table and every number listed in docs/claims.toml."""
    from reproduction.pages.claims import claimed_pages, fill

    pages = claimed_pages(RESULTS)
    assert ROOT / "README.md" in [page.resolve() for page in pages]
    stale = []
    for page in pages:
        text = page.read_text()
        pairs = zip(text.split(), fill(page, RESULTS).split(), strict=True)
        stale += [f"{page.name}: {here} should be {right}" for here, right in pairs if here != right]
    assert stale == [], "run closecall publish --to docs/results to update them"


def test_published_results_are_small_and_can_be_imported() -> None:
    from reproduction.run.exchange import read_folder

    assert sum(path.stat().st_size for path in RESULTS.rglob("*.csv*")) < 3_000_000
    assert sum(path.stat().st_size for path in RESULTS.rglob("*.svg")) < 2_000_000
    lines = read_folder(RESULTS / "cells").lines  # raises the same errors as an import
    assert f"{len(lines)} cells on" in " ".join((RESULTS / "index.md").read_text().split())


def test_the_published_examples_are_what_the_solver_finds() -> None:
    """The page is computed when it is published, so it must match the current solver."""
    from reproduction.pages.figure1 import solve_examples

    lines = (RESULTS / "examples.csv").read_text().splitlines()
    published = [dict(zip(lines[0].split(","), line.split(","), strict=True)) for line in lines[1:]]
    for found, row in zip(solve_examples(), published, strict=True):
        assert (found["example"], found["method"], found["k"]) == (row["example"], row["method"], int(row["k"]))
        if found["method"] == "average":  # convex: the result depends neither on the start nor on rounding
            for name in ("errors", "errors_from_right_side", "best_possible"):
                assert found[name] == pytest.approx(float(row[name]), abs=2), (row, name)


def test_the_solver_page_names_the_solvers_numbers() -> None:
    from closecall.solvers import design, kernels, many, newton, steps

    text = " ".join((ROOT / "docs" / "theory" / "solver.md").read_text().split())
    words = {10: "ten", 40: "fortieth"}
    assert f"window of {words[steps.WINDOW]} steps" in text
    assert f"at most a {words[kernels.GATHER]} of n" in text
    assert f"more than {design.EIGEN_LIMIT:,} rows" in text
    assert f"up to {newton.LARGEST_RANK} coordinates and {round(newton.LARGEST_DESIGN / 1e6)} million entries" in text
    assert f"With {many.FROM_ROWS:,} dense examples or more" in text
    assert f"at least {many.LEAST:,}" in text


def test_the_readme_picture_is_small_and_self_contained() -> None:
    picture = ROOT / "docs" / "assets" / "close-calls.svg"
    text = picture.read_text()
    assert picture.stat().st_size < 200_000
    assert not re.search(r"""(?:href|src)=["'](?!#)|url\((?!#)|@import""", text)

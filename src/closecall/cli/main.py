"""All commands in one application: everyday ones first, maintenance apart."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer

from closecall import __version__
from closecall._signals import stoppable

from . import exits, maintenance, models, paper, streams, tables
from .console import err, plain

app = typer.Typer(
    help="Classifiers trained on the close calls: on your own table, and on every table and figure of the paper.",
    add_completion=False,
)
#: Panel of the help -> its commands, by name.
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Everyday": {
        "compare": tables.compare, "check": tables.check, "fit": models.fit, "predict": models.predict,
        "explain": models.explain, "reproduce": paper.reproduce, "report": paper.report,
    },
    "Inspection": {"plan": paper.plan, "status": paper.status, "datasets": paper.datasets},
    "Maintenance": {
        "salvage": maintenance.salvage, "export": maintenance.export, "import": maintenance.import_,
        "publish": maintenance.publish,
    },
}  # fmt: skip
for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)


def _version(asked: bool) -> None:
    if asked:
        print(f"closecall {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None: ...


@cache
def built() -> Any:
    """The application as it is called: read once from the annotations of all commands, which takes a while."""
    return typer.main.get_command(app)


def main() -> None:
    """The entry point: runs the command and turns what went wrong into a message and an exit code."""
    with stoppable():
        try:
            code = exits.finish(built()(streams.with_values(sys.argv[1:]) or ["--help"], standalone_mode=False))
            sys.stdout.flush()  # here a reader that went away can still be answered
        except BaseException as error:
            message, code = exits.explain(error)
            if message:
                err.print(plain(message), style="red", soft_wrap=True)
    raise SystemExit(code)

"""The application: the table commands, and access to the commands that reproduce the paper."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import typer

from closecall import __version__
from closecall._signals import stoppable

from . import exits, models, tables
from .console import err, plain

#: Commands that reproduce the paper, which are available only in a clone of the project.
REPRODUCTION = ("reproduce", "report", "status", "export", "import", "publish")
#: typer turns Ctrl-C into this exit code.
INTERRUPTED = 130
app = typer.Typer(
    help="Train classifiers on the close calls in your own table.",
    epilog=f"A clone of the project also has the commands that reproduce the paper: {', '.join(REPRODUCTION)}.",
    add_completion=False,
)
for _command in (tables.compare, tables.check, models.fit, models.predict, models.explain):
    app.command(_command.__name__)(_command)


def _version(requested: bool) -> None:
    if requested:
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
    """Build the application from the annotations of all commands, which takes a while."""
    return typer.main.get_command(app)


def command_of(arguments: list[str]) -> Any:
    """Return the application that has the requested command."""
    if arguments[:1] and arguments[0] in REPRODUCTION:
        try:
            return import_module("reproduction.app").built()
        except ModuleNotFoundError as error:
            if error.name != "reproduction":
                raise
            raise ValueError(
                f"{arguments[0]} belongs to the reproduction of the paper, which is not installed: "
                "run git clone https://github.com/closecall/closecall, then run make demo there"
            ) from None
    return built()


def main() -> None:
    """Run the command and turn errors into a message and an exit code."""
    with stoppable():
        try:
            arguments = sys.argv[1:] or ["--help"]
            code = command_of(arguments)(arguments, standalone_mode=False) or 0
            if code == INTERRUPTED:
                raise KeyboardInterrupt
            sys.stdout.flush()  # a closed pipe raises an error here, where it is handled
        except BaseException as error:
            message, code = exits.explain(error)
            if message:
                err.print(plain(message), style="red", soft_wrap=True)
    raise SystemExit(code)

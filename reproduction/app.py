"""The commands of the reproduction as one application, with the everyday ones first."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import typer

from . import command

app = typer.Typer(help="Compute every table and figure of the paper.", add_completion=False)
#: Panel of the help -> its commands by name.
COMMANDS: dict[str, dict[str, Callable[..., None]]] = {
    "Everyday": {"reproduce": command.reproduce, "report": command.report},
    "Maintenance": {
        "status": command.status, "export": command.export, "import": command.import_,
        "publish": command.publish,
    },
}  # fmt: skip
for _panel, _commands in COMMANDS.items():
    for _name, _command in _commands.items():
        app.command(_name, rich_help_panel=_panel)(_command)


@cache
def built() -> Any:
    """Return the application, built only once because reading the annotations of all commands takes a while."""
    return typer.main.get_command(app)

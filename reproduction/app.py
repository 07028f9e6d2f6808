"""The commands of the reproduction as one application, with the most frequently used commands first."""

from collections.abc import Callable
from functools import cache
from typing import Any

import typer

from . import command

app = typer.Typer(help="Compute every table and figure of the paper.", add_completion=False)
_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Everyday": (command.reproduce, command.report),
    "Maintenance": (command.status, command.export, command.import_, command.publish),
}
for _panel, _commands in _COMMANDS.items():
    for _command in _commands:
        app.command(_command.__name__.rstrip("_"), rich_help_panel=_panel)(_command)


@cache
def built() -> Any:
    """Return the application, which is built only once because reading all commands' annotations takes a while."""
    return typer.main.get_command(app)

"""The commands of the reproduction as one application, with the everyday ones first."""

from __future__ import annotations

from functools import cache
from typing import Any

import typer

from . import command

app = typer.Typer(help="Compute every table and figure of the paper.", add_completion=False)
for _command in (command.reproduce, command.report):
    app.command(rich_help_panel="Everyday")(_command)
for _command in (command.status, command.export, command.import_, command.publish):
    app.command(_command.__name__.rstrip("_"), rich_help_panel="Maintenance")(_command)


@cache
def built() -> Any:
    """Return the application, built only once because reading the annotations of all commands takes a while."""
    return typer.main.get_command(app)

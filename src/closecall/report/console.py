"""What is said on a terminal: Rich's console, with a reader that may go away and names that stay text."""

from __future__ import annotations

from rich.console import Console as RichConsole


class Console(RichConsole):
    """Rich's console without pictures for ``:names:``; a reader that goes away is a ``BrokenPipeError``."""

    def __init__(self, *, stderr: bool = False, highlight: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=highlight, emoji=False)

    def on_broken_pipe(self) -> None:
        """Let the command say what it means; Rich would end it with the exit code 1."""
        raise BrokenPipeError

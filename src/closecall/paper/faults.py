"""What ends a command early -> a message that says how to go on, and an exit code; the command ``salvage``."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from .engines import EngineError
from .store import StoreError, StoreFault

INCOMPLETE, BAD_REQUEST = 2, 3
RESUME = "what is finished is kept, the same command resumes"
#: typer turns Ctrl-C into this exit code.
_INTERRUPTED = 130
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS)


def register(app: typer.Typer) -> None:
    """Add the command to an application."""
    app.command()(salvage)


def salvage(
    output: Annotated[Path, typer.Option("--out", help="Folder of the result store.")] = Path("closecall-results"),
    as_json: Annotated[bool, typer.Option("--json", help="What was done as a line of JSON.")] = False,
) -> None:
    """Save every whole record of a damaged result store; the damaged file is kept beside the new one."""
    from .salvage import salvage as save

    found = save(output / "store.sqlite")
    if as_json:
        line = {"kind": "salvaged", "kept": found.kept, "lost": found.lost, "aside": str(found.aside)}
        print(json.dumps(line))
    else:
        print(f"{found.kept} records kept, {found.lost} damaged; the damaged store is {found.aside}")
        print("`closecall reproduce` with the same arguments runs what is missing")


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C: end the workers, keep what is finished, say so."""

    def stop(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    kept = {}
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) is signal.SIG_DFL:  # nohup has set SIG_IGN: leave it
            kept[number] = signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def explain(error: BaseException) -> tuple[str, int]:
    """A message and an exit code for what a command raised; what nobody expected is raised again.

    Examples
    --------
    >>> explain(KeyboardInterrupt())
    ('interrupted; what is finished is kept, the same command resumes', 2)
    >>> explain(ValueError("no such target"))
    ('closecall: no such target', 3)
    """
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return f"interrupted; {RESUME}", INCOMPLETE
    if isinstance(error, BrokenPipeError):  # as in `closecall ... | head`; nothing more can be said there
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return f"closecall: the reader of the output went away; {RESUME}", INCOMPLETE
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return f"closecall: {error}: make room, or choose another --out; {RESUME}", INCOMPLETE
    if isinstance(error, MemoryError):
        return f"closecall: not enough memory ({error}); {RESUME}", INCOMPLETE
    if isinstance(error, StoreFault | EngineError):
        return f"closecall: {error}", INCOMPLETE
    if isinstance(error, ValueError | StoreError | ImportError | OSError):
        return f"closecall: {error}", BAD_REQUEST
    if hasattr(error, "format_message"):  # the argument parser's own errors
        return f"closecall: {error.format_message()}", BAD_REQUEST
    raise error


def finish(code: object) -> int:
    """The exit code of an application that returned; typer returns 130 for Ctrl-C."""
    if code == _INTERRUPTED:
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0

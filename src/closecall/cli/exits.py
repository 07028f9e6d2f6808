"""Turn errors that end a command into an exit code and a message that states how to continue.

The exit codes are 0 (complete), 1 (some cells failed), 2 (incomplete: the command was interrupted, or data sets are
not available) and 3 (bad request).
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import traceback

import typer

from closecall import _signals
from closecall._signals import KEPT, RunError, going_on

COMPLETE, FAILED, INCOMPLETE, BAD_REQUEST = 0, 1, _signals.INCOMPLETE, _signals.BAD_REQUEST
UNEXPECTED = "unexpected error; please report it (CLOSECALL_TRACEBACK=1 shows where it occurred)"
#: Errors that mean that the disk or a quota is full, or that the process has reached a limit.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def explain(error: BaseException) -> tuple[str, int]:
    """Return a message and an exit code for an exception, so that no command ends with a traceback.

    If the environment variable ``CLOSECALL_TRACEBACK`` is set, the traceback of an unexpected error is shown.

    Examples
    --------
    >>> explain(KeyboardInterrupt())
    ('interrupted; the same command starts again from the beginning', 2)
    >>> explain(ValueError("no such target"))
    ('closecall: no such target', 3)
    """
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return f"interrupted; {going_on()}", INCOMPLETE
    if isinstance(error, SystemExit):  # Rich exits when the pipe of a help page is closed
        return "", error.code if isinstance(error.code, int) else BAD_REQUEST
    if isinstance(error, BrokenPipeError):  # as in `closecall ... | head`
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        resumes = going_on() == KEPT
        return (f"closecall: the output pipe was closed; {KEPT}", INCOMPLETE) if resumes else ("", 0)
    if _is_full(error) or (isinstance(error, OSError) and error.errno in (errno.EIO, errno.EROFS)):
        return f"closecall: {error}: free up space, or choose another --out; {going_on()}", INCOMPLETE
    if isinstance(error, MemoryError):
        return f"closecall: not enough memory ({error}); {going_on()}", INCOMPLETE
    if isinstance(error, RunError):
        return f"closecall: {error}", INCOMPLETE
    if isinstance(error, ValueError | ImportError | OSError | FloatingPointError):
        return f"closecall: {error}", BAD_REQUEST
    if hasattr(error, "format_message"):  # an error of the argument parser
        return f"closecall: {error.format_message()}", BAD_REQUEST
    if os.environ.get("CLOSECALL_TRACEBACK"):
        traceback.print_exception(error)
    return f"closecall: {UNEXPECTED}: {type(error).__name__}: {error}", BAD_REQUEST


def _is_full(error: BaseException | None) -> bool:
    """Return whether an error was caused by a full disk."""
    return error is not None and (getattr(error, "errno", None) in _FULL or _is_full(error.__cause__))

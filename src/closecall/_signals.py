"""Uniform handling of Ctrl-C, SIGTERM and SIGHUP from the program's first line; standard library only."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

INCOMPLETE, BAD_REQUEST = 2, 3


class RunError(RuntimeError):
    """Raised to end a run that the same command can continue; the message says why and what to do."""


#: Commands that keep each finished part; of all others nothing is kept.
RESUMABLE = ("reproduce",)
KEPT = "finished work is kept; the same command resumes"
AGAIN = "the same command starts over"


def going_on() -> str:
    """How to continue after the command has ended early.

    Examples
    --------
    >>> going_on() in (KEPT, AGAIN)
    True
    """
    return KEPT if any(word in RESUMABLE for word in sys.argv[1:2]) else AGAIN


def _say_and_end(number: int, frame: object) -> None:
    # Nothing is running yet, and libraries that are being loaded may swallow an exception.
    os.write(2, f"interrupted; {going_on()}\n".encode())
    os._exit(INCOMPLETE)


def _interrupt(number: int, frame: object) -> None:
    raise KeyboardInterrupt


def _numbers() -> list[signal.Signals]:
    # Windows has no SIGHUP; nohup has set SIG_IGN, which is left as it is.
    found = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    return [number for number in found if number is not None and signal.getsignal(number) is not signal.SIG_IGN]


def answer() -> None:
    """End with a message and exit code 2 on any of the signals, until :func:`stoppable` takes over."""
    for number in _numbers():
        signal.signal(number, _say_and_end)


def ignore() -> None:
    """Ignore the signals: the command has finished, and a signal during shutdown would change the exit code."""
    for number in _numbers():
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Turn the signals into ``KeyboardInterrupt``: a command stops its workers, keeps finished work and says so."""
    kept = {number: signal.signal(number, _interrupt) for number in _numbers()}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)

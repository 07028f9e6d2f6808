"""Handle Ctrl-C, SIGTERM and SIGHUP uniformly from the start of the program, using only the standard library."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator

INCOMPLETE, BAD_REQUEST = 2, 3


class RunError(RuntimeError):
    """Raised to end a run that the same command can resume; the message states the reason and what to do."""


#: Commands that keep finished work; other commands keep nothing.
RESUMABLE = ("reproduce",)
KEPT = "finished work is kept; the same command resumes the run"
AGAIN = "the same command starts again from the beginning"


def going_on() -> str:
    """Return a message that explains how to continue after the command has ended early."""
    return KEPT if any(word in RESUMABLE for word in sys.argv[1:2]) else AGAIN


def _report_and_exit(number: int, frame: object) -> None:
    # Nothing is running yet, and a library that is being loaded may swallow an exception.
    os.write(2, f"interrupted; {going_on()}\n".encode())
    os._exit(INCOMPLETE)


def _numbers() -> list[signal.Signals]:
    # Windows has no SIGHUP. A signal that is already ignored, as under nohup, stays ignored.
    found = [getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")]
    return [number for number in found if number is not None and signal.getsignal(number) is not signal.SIG_IGN]


def answer() -> None:
    """On SIGINT, SIGTERM or SIGHUP, exit with a message and code 2, until :func:`stoppable` takes over."""
    for number in _numbers():
        signal.signal(number, _report_and_exit)


def ignore() -> None:
    """Ignore signals once the command has finished, because a signal during shutdown would change the exit code."""
    for number in _numbers():
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Convert signals to ``KeyboardInterrupt``, so that a command can stop its workers and keep finished work."""
    kept = {number: signal.signal(number, signal.default_int_handler) for number in _numbers()}
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)

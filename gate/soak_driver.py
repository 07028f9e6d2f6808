"""`closecall reproduce` without the pages at its end, for the soak: with a clock that jumps if SOAK_CLOCK is set."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

if os.environ.get("SOAK_CLOCK"):  # here, not in main: the workers import this file too
    _real, _jumps = time.time, random.Random(os.getpid())
    time.time = lambda: _real() + _jumps.uniform(-1e8, 1e8)  # three years to either side, at every look


def main() -> None:
    from closecall import _signals

    _signals.answer()  # as the command does before it loads anything
    import reproduction.command
    from closecall.__main__ import main as command

    reproduction.command._write_report = lambda store, folder, as_json: Path("left out")
    command()


if __name__ == "__main__":
    main()

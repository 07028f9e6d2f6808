"""Start the ``closecall`` command: set up signal handling and check the memory limit before loading large modules."""

from __future__ import annotations

import os
import sys

from . import _signals
from ._budget import address_space

#: Address space, in bytes, below which the libraries crash or fail to load.
ADDRESS_SPACE = 3 << 29


def main() -> None:
    """Set up signal handling, check standard output and the memory limit, and run the command."""
    _signals.answer()
    if sys.stderr is None:  # closed, for example by `2>&-`
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - for the whole process
    if sys.stdout is None:  # the output may be the only result of a command
        print("closecall: standard output is closed; redirect it to a file or to /dev/null", file=sys.stderr)
        raise SystemExit(_signals.BAD_REQUEST)
    limit = address_space()
    if limit is not None and limit < ADDRESS_SPACE:
        print(
            f"closecall: the address space is limited to {limit >> 20} MiB (ulimit -v), but {ADDRESS_SPACE >> 20} MiB "
            f"is required; raise the limit ({_signals.going_on()})",
            file=sys.stderr,
        )
        raise SystemExit(_signals.INCOMPLETE)
    from .cli import main as run

    try:
        run()
    finally:
        _signals.ignore()


if __name__ == "__main__":
    main()

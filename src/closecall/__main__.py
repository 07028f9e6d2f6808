"""The command ``closecall``: what must be in place before anything large is loaded, then :mod:`closecall.cli`."""

from __future__ import annotations

import os
import sys

from . import _signals
from ._budget import address_space

#: Bytes of address space without which the libraries end in the middle of something, or do not load.
ADDRESS_SPACE = 3 << 29


def main() -> None:
    """Answer signals from now on, look at the limits, run the command."""
    _signals.answer()
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by `>&-`: what is said goes nowhere
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - for the whole process
    limit = address_space()
    if limit is not None and limit < ADDRESS_SPACE:
        print(
            f"closecall: the address space is limited to {limit >> 20} MiB (ulimit -v) and {ADDRESS_SPACE >> 20} are "
            f"needed: raise the limit; {_signals.going_on()}",
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

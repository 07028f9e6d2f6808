"""A memory budget for untrusted files, which is checked while they are unpacked.

A small file can exhaust memory when it is unpacked, and a few bytes of text can become large objects. Each call of a
reader therefore has a budget, which covers the unpacked bytes and the objects built from them.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

#: Memory limit of one call, in bytes: unpacked text and arrays, and the objects built from them.
LIMIT = 1 << 30
#: The most memory that a process may use to read a hostile file, including temporary copies and the libraries.
PEAK = 4 * LIMIT
#: The most memory that parts of JSON need, in bytes: a dictionary, a list, an item of either, and a character.
JSON_PARTS = {"{": 240, "[": 72, ",": 104, ":": 104}
JSON_CHARACTER = 4
#: Memory for a string in an array of objects: its header and the pointer to it.
TEXT_OBJECT = 64
#: Number of bytes to read at a time.
PIECE = 1 << 20


class BudgetError(ValueError):
    """Raised for a file that needs more memory than a call may use."""


class Readable(Protocol):
    """A binary file, a compressed file or a network response."""

    def read(self, size: int = -1, /) -> bytes: ...


class Budget:
    """The remaining memory budget of one call, which starts at ``limit`` bytes.

    Examples
    --------
    >>> budget = Budget(100)
    >>> budget.spend(60)
    >>> budget.spend(60)
    Traceback (most recent call last):
    closecall._budget.BudgetError: it needs more than the 100 bytes allowed when unpacked
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = self.left = limit

    def spend(self, count: int) -> None:
        """Deduct ``count`` bytes before they are allocated, and raise ``BudgetError`` if too few are left."""
        self.left -= count
        if self.left < 0:
            raise BudgetError(f"it needs more than the {self.limit} bytes allowed when unpacked")

    def read(self, file: Readable) -> bytes:
        """Read a whole file, counting its bytes piece by piece."""
        whole = bytearray()  # joining a list of pieces would double the memory
        while piece := file.read(PIECE):
            self.spend(len(piece))
            whole += piece
        return bytes(whole)

    def parse(self, text: str | bytes, *, finite: bool = False) -> Any:
        """Parse JSON, counting its objects before they are built; ``finite`` rejects NaN and infinite numbers."""
        text = str(text, "utf-8") if isinstance(text, bytes) else text
        self.spend(JSON_CHARACTER * len(text) + sum(cost * text.count(mark) for mark, cost in JSON_PARTS.items()))
        try:
            return json.loads(text, parse_constant=_refuse if finite else None)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def address_space() -> int | None:
    """Return the address space limit of this process (``ulimit -v``), or None if there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft

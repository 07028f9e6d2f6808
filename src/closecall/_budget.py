"""A memory budget for untrusted files, counted during unpacking, before anything is kept.

A small file can fill all available memory when unpacked, and a few bytes of text can become large objects. Every reader
therefore has one budget per call, for the unpacked bytes and for the objects built from them.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

#: Bytes that one call may make of a file: unpacked text and arrays, and the objects built from them.
LIMIT = 1 << 30
#: What a process that reads a hostile file takes at most: copies on the way from bytes to arrays, and the libraries.
PEAK = 4 * LIMIT
#: What parts of JSON become at most: a dictionary, a list, and a place in either with a number or the head of a string.
#: A character takes four bytes at most.
JSON_PARTS = {"{": 240, "[": 72, ",": 104, ":": 104}
JSON_CHARACTER = 4
#: A string among others in an array of objects: its head and the pointer to it.
TEXT_OBJECT = 64
#: Bytes to read at a time.
PIECE = 1 << 20


class BudgetError(ValueError):
    """A file that needs more memory than a call may use."""


class Readable(Protocol):
    """A binary file, a compressed one or a network response."""

    def read(self, size: int = -1, /) -> bytes: ...


class Budget:
    """The memory budget that remains for one call.

    Parameters
    ----------
    limit : int
        Total number of bytes.

    Examples
    --------
    >>> budget = Budget(100)
    >>> budget.spend(60)
    >>> budget.spend(60)
    Traceback (most recent call last):
    closecall._budget.BudgetError: it takes more than 100 bytes unpacked; refused
    """

    def __init__(self, limit: int = LIMIT) -> None:
        self.limit = self.left = limit

    def spend(self, count: int) -> None:
        """Spend ``count`` bytes, or raise before they are allocated."""
        self.left -= count
        if self.left < 0:
            raise BudgetError(f"it takes more than {self.limit} bytes unpacked; refused")

    def read(self, file: Readable) -> bytes:
        """The whole content of a file, counted piece by piece.

        Examples
        --------
        >>> import io
        >>> Budget(10).read(io.BytesIO(b"abc"))
        b'abc'
        """
        whole = bytearray()  # one growing block: a list of pieces would be there twice when it is joined
        while piece := file.read(PIECE):
            self.spend(len(piece))
            whole += piece
        return bytes(whole)

    def parse(self, text: str | bytes, *, finite: bool = False) -> Any:
        """JSON as objects, counted before they are built; ``finite`` rejects NaN and infinite numbers.

        Examples
        --------
        >>> Budget(1000).parse('{"a": [1]}')
        {'a': [1]}
        """
        text = str(text, "utf-8") if isinstance(text, bytes) else text
        self.spend(JSON_CHARACTER * len(text) + sum(cost * text.count(mark) for mark, cost in JSON_PARTS.items()))
        try:
            return json.loads(text, parse_constant=_refuse if finite else None)
        except RecursionError as error:
            raise ValueError("it is nested too deeply") from error


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


def address_space() -> int | None:
    """The address space limit of this process (``ulimit -v``); None if there is none."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if soft == resource.RLIM_INFINITY else soft

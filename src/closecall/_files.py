"""Write files completely or not at all; their permissions follow the umask."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | PathLike[str]) -> Iterator[BinaryIO]:
    """Open a temporary file for writing and rename it once it is complete; after an error, no file is left behind.

    Pipes and devices are written to directly.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with whole_file(Path(folder) / "a") as file:
    ...         size = file.write(b"all")
    ...     [each.name for each in Path(folder).iterdir()]
    ['a']
    """
    final = Path(path)
    if final.exists() and not final.is_file():
        with final.open("wb") as file:
            yield file
        return
    part = final.with_name(f".{final.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as file:
            yield file
        os.replace(part, final)
    except BaseException:
        part.unlink(missing_ok=True)
        raise

"""Reading an npz archive of a stranger: nothing is unpickled and nothing unpacks to more than a limit."""

from __future__ import annotations

import math
import zipfile
from typing import IO, Any

import numpy as np

from ._names import Array

#: What an archive may unpack to, and how many arrays it may hold: a small file can unpack to all the memory there is.
MAX_BYTES, MAX_ARRAYS = 1 << 30, 10_000
#: Numbers, booleans and text; objects would have to be unpickled.
KINDS = "biufUS"


class ArchiveError(ValueError):
    """An archive that is damaged, too large or not made of plain arrays."""


def read_arrays(file: IO[bytes], limit: int = MAX_BYTES) -> dict[str, Array]:
    """The arrays of an npz archive by name; whatever is wrong with it raises ``ArchiveError``.

    Parameters
    ----------
    file : binary file
    limit : int
        Bytes to which the whole archive may unpack.

    Examples
    --------
    >>> import io
    >>> buffer = io.BytesIO()
    >>> np.savez_compressed(buffer, a=np.arange(3))
    >>> read_arrays(buffer)["a"].tolist()
    [0, 1, 2]
    """
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            names = [member.filename.removesuffix(".npy") for member in members]
            if len(members) > MAX_ARRAYS or len(set(names)) < len(names):
                raise ArchiveError("it holds too many arrays, or two of one name")
            # zipfile hands out no more than a member's stated size, so that stated sizes are a bound.
            if sum(member.file_size for member in members) > limit:
                raise ArchiveError(f"it unpacks to more than {limit} bytes")
            return {name: _read(archive, member) for name, member in zip(names, members, strict=True)}
    except ArchiveError:
        raise
    except Exception as error:  # zip, zlib, NumPy and struct each complain in their own way; all mean one thing
        raise ArchiveError(f"it is truncated, damaged or no archive of arrays ({error})") from error


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    headers: dict[Any, Any] = {
        (1, 0): np.lib.format.read_array_header_1_0,
        (2, 0): np.lib.format.read_array_header_2_0,
    }
    with archive.open(member) as raw:
        shape, fortran, dtype = headers[np.lib.format.read_magic(raw)](raw)
        if dtype.kind not in KINDS:
            raise ArchiveError(f"{member.filename!r} holds {dtype}, not numbers or text")
        size = math.prod(shape) * dtype.itemsize
        # NumPy would allocate what the header promises before it looks for the bytes.
        if min(shape, default=0) < 0 or size > member.file_size:
            raise ArchiveError(f"{member.filename!r} promises more numbers than it holds")
        data = raw.read(size)
        if len(data) < size or raw.read(1):  # reading to the end also checks the archive's own checksum
            raise ArchiveError(f"{member.filename!r} does not hold what its header says")
    flat = np.frombuffer(bytearray(data), dtype=dtype) if size else np.empty(math.prod(shape), dtype)
    return flat.reshape(shape, order="F" if fortran else "C")

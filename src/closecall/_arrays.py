"""Read an untrusted npz archive: nothing is unpickled, and the unpacked size is limited by a budget."""

from __future__ import annotations

import math
import sys
import zipfile
from typing import IO, Any

import numpy as np

from ._budget import LIMIT, PIECE, Budget
from ._names import Array

#: The largest number of arrays in an archive.
MAX_ARRAYS = 10_000
#: Numbers, booleans and text; objects would have to be unpickled.
KINDS = "biufUS"
#: Allowed compression methods. Python unpacks the others (bz2, lzma) a whole block at a time, however large it is.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class ArchiveError(ValueError):
    """Raised for an archive that is damaged, is too large or does not consist of plain arrays."""


def read_arrays(file: IO[bytes], budget: Budget | int = LIMIT) -> dict[str, Array]:
    """Return the arrays in an npz archive as a dictionary, keyed by name; any defect raises ``ArchiveError``.

    ``budget`` is the maximum unpacked size of the whole archive, in bytes.

    Examples
    --------
    >>> import io
    >>> buffer = io.BytesIO()
    >>> np.savez_compressed(buffer, a=np.arange(3))
    >>> read_arrays(buffer)["a"].tolist()
    [0, 1, 2]
    """
    budget = Budget(budget) if isinstance(budget, int) else budget
    try:
        check_members(file)
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            names = [member.filename.removesuffix(".npy") for member in members]
            if len(set(names)) < len(names):
                raise ArchiveError("it has two arrays with the same name")
            return {name: read_member(archive, member, budget) for name, member in zip(names, members, strict=True)}
    except (ArchiveError, MemoryError):
        raise
    except Exception as error:  # zip, zlib, NumPy and struct raise various errors for a damaged file
        raise ArchiveError(f"it is truncated, damaged or not an archive of arrays ({error})") from error


def check_members(file: IO[bytes], most: int = MAX_ARRAYS) -> None:
    """Reject an archive with too many members before ``zipfile`` creates an object for each of them."""
    mark, count, last = b"PK\x01\x02", 0, b""  # begins a member's entry in the directory
    file.seek(0)
    while piece := file.read(PIECE):
        count += (last + piece).count(mark)
        last = piece[-3:]
        if count > most:
            raise ArchiveError(f"it has too many arrays; at most {most} are allowed")
    file.seek(0)


class _Counted:
    """An archive member that is read in pieces; NumPy itself would allocate as much memory as the header requests."""

    def __init__(self, raw: IO[bytes], budget: Budget) -> None:
        self.raw, self.budget = raw, budget

    def read(self, size: int = -1) -> bytes:
        piece = self.raw.read(PIECE if size < 0 else min(size, PIECE))
        self.budget.spend(len(piece))
        return piece


def read_member(
    archive: zipfile.ZipFile, member: zipfile.ZipInfo, budget: Budget, expected: np.dtype[Any] | None = None
) -> Array:
    """Return one array from an archive; it must have the ``expected`` type (by default, numbers or text)."""
    headers: Any = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if member.compress_type not in METHODS:
        raise ArchiveError(f"{member.filename!r} uses an unsupported compression method")
    with archive.open(member) as opened:
        raw = _Counted(opened, budget)
        shape, fortran, dtype = headers[np.lib.format.read_magic(raw)](raw)
        if dtype != expected if expected else dtype.kind not in KINDS:
            raise ArchiveError(f"{member.filename!r} holds {dtype}, not {expected or 'numbers or text'}")
        size = math.prod(shape) * dtype.itemsize
        # NumPy would allocate what the header claims before reading any bytes.
        if min(shape, default=0) < 0 or math.prod(shape) > member.file_size or size > member.file_size:
            raise ArchiveError(f"{member.filename!r} declares more numbers than it contains")
        data = bytearray()
        while len(data) < size and (piece := raw.read(size - len(data))):
            data += piece
        if len(data) < size or raw.read(1):  # reading to the end also checks the archive's own checksum
            raise ArchiveError(f"{member.filename!r} does not match its header")
    flat = np.frombuffer(data, dtype=dtype) if size else np.empty(math.prod(shape), dtype)
    if dtype.kind == "U" and flat.size:
        codes = flat.view(np.dtype(np.uint32).newbyteorder(dtype.byteorder))
        if codes.max() > sys.maxunicode:  # the last Unicode code point
            raise ArchiveError(f"{member.filename!r} is not text")
    return flat.reshape(shape, order="F" if fortran else "C")

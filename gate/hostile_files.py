"""Files that are damaged, forged or far larger when unpacked; small stores; and commands that are given such files."""

import contextlib
import io
import json
import os
import struct
import sys
import traceback
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from closecall import cli
from closecall.cli.exits import UNEXPECTED
from closecall.linear import persistence
from reproduction.protocol.plan import Cell
from reproduction.run.record import Record
from reproduction.run.store import Store
from reproduction.tests.helpers import toy_rows

MIB = 1 << 20


def npy(shape: str, descr: str = "<f8", data: bytes = b"") -> bytes:
    """Return an npy file with any header."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


def npz(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def bz2_bomb(size: int, stated: int = 4096) -> bytes:
    """Return an npz compressed by bz2 that unpacks to ``size`` bytes and states ``stated``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_BZIP2) as archive, archive.open("k.npy", "w") as member:
        member.write(npy(f"({(stated - 128) // 8},)").ljust(128, b"\0"))
        for _ in range(size // (16 * MIB)):
            member.write(bytes(16 * MIB))
    data = bytearray(buffer.getvalue())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", stated)  # the size in the directory of the archive
    return bytes(data)


def forge(header: dict[str, Any] | bytes, arrays: dict[str, Any]) -> bytes:
    """Return a model file whose checksum is correct, whatever its content."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    stored = {**arrays, "header": np.frombuffer(text, dtype=np.uint8)}
    stored["checksum"] = np.frombuffer(persistence._checksum(stored), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **stored)
    return buffer.getvalue()


def parts_of(model: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the header and the arrays of a model file."""
    with np.load(model) as archive:
        arrays = {name: archive[name] for name in archive.files if name not in ("header", "checksum")}
        return json.loads(archive["header"].tobytes()), arrays


def make_store(folder: Path, text: str = "plain", suite: str = "embedded") -> Path:
    """Write a small store of one data set, two splits and a failure; all texts in it are ``text``."""
    dataset = "embedded:monk3"
    options = {"splits": 2, "max_iter": 10, "protocols": ["sound"], "models": ["linear"], "start": "least_squares"}
    size = {"suite": "embedded", "name": dataset, "checksum": "c" * 64, "rows": 100, "features": 3, "positives": 40}
    job = {
        "target": "overview", "suites": [suite], "options": options, "sizes": [size],
        "holes": [{"dataset": text, "why": text}],
    }  # fmt: skip
    folder.mkdir(exist_ok=True)
    with Store(folder / "store.sqlite", write=True) as store:
        store.begin_run({"arguments": ["reproduce", text], "jobs": [job]}, {"python": text, text: text})
        for split in range(2):
            cell = Cell("embedded", dataset, "c" * 64, split, "linear", "sound", 10)
            store.add(cell, Record(cell.key, "done", toy_rows(cell), (50, 25, 25), 3, 0.1, notes=(text,)))
        failed = Cell("embedded", text, "d", 0, "linear", "sound", 10)
        store.add(failed, Record(failed.key, "failed", error=text))
        store.finish_run()
    return folder / "store.sqlite"


def run_command(arguments: list[str], folder: Path) -> tuple[Any, str]:
    """Return the exit code and the output of ``closecall`` in a folder; cells are never computed."""
    told = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict", write_through=True)
    code: Any = "none"
    try:
        with (
            contextlib.chdir(folder),
            mock.patch.object(sys, "argv", ["closecall", *arguments]),
            mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a,b\n1,x\n2,y\n"))),
            mock.patch.dict(os.environ, {"CLOSECALL_DATA": str(folder), "COLUMNS": "80"}),
            mock.patch("reproduction.command.drive", _no_work),
            contextlib.redirect_stdout(told),
            contextlib.redirect_stderr(told),
        ):
            cli.main()
    except SystemExit as end:
        code = end.code
    except Exception as error:
        return "a traceback", "".join(traceback.format_exception(error))
    words = told.buffer.getvalue().decode(errors="replace")  # type: ignore[attr-defined]
    return ("a traceback" if UNEXPECTED in words else code), words


def _no_work(*given: Any) -> Iterator[Any]:
    raise ValueError("this run would compute; only the arguments are tested")
    yield

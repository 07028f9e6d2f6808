"""Small files that would fill the memory: each is refused with a message, and the peak is measured."""

import gzip
import io
import struct
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas", reason="install closecall[bench]")
pytest.importorskip("pyarrow", reason="install closecall[bench]")

from closecall import load_model
from closecall._arrays import ArchiveError, read_arrays
from closecall._budget import Budget, BudgetError
from closecall.table.read import sheet as tables
from closecall.table.read.dataset import DataError
from closecall.table.table import read, stream
from gate.hostile_files import forge, npy
from gate.hostile_stores import make_store
from gate.memory import at_most
from reproduction.protocol.grid import ROW
from reproduction.run import exchange
from reproduction.run.compact import CompactError
from reproduction.run.exchange import export_store, read_folder
from reproduction.run.record import MAX_RECORD, unpack
from reproduction.run.store import Store

MIB = 1 << 20


def bz2_archive(size: int, stated: int, **others: bytes) -> bytes:
    """An npz whose member k is packed by bz2, unpacks to ``size`` bytes and says that it is ``stated``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in others.items():
            archive.writestr(f"{name}.npy", data)
        info = zipfile.ZipInfo("k.npy")
        info.compress_type = zipfile.ZIP_BZIP2
        content = npy(f"({(stated - 128) // 8},)").ljust(128, b"\0")
        with archive.open(info, "w", force_zip64=False) as member:
            member.write(content)
            for _ in range(size // (16 * MIB)):
                member.write(bytes(16 * MIB))
    data = bytearray(buffer.getvalue())
    at = data.rindex(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", stated)  # the size that the directory states
    return bytes(data)


def test_a_bz2_bomb_in_a_model_and_in_a_record(tmp_path: Path) -> None:
    bomb = bz2_archive(128 * MIB, 4096)
    assert len(bomb) < 8192
    (tmp_path / "model.npz").write_bytes(bomb)
    with at_most(32 * MIB):
        with pytest.raises(ValueError, match=r"uses a compression method that save does not use.*save it again"):
            load_model(tmp_path / "model.npz")
        with pytest.raises(ArchiveError, match="uses a compression"):
            unpack(bomb)


def deflated(name: str, *pieces: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive, archive.open(f"{name}.npy", "w") as member:
        for piece in pieces:
            member.write(piece)
    return buffer.getvalue()


def test_what_is_built_counts_too() -> None:
    """Rows of one byte a column become 213 bytes each; text becomes objects; short JSON becomes dictionaries."""
    count = 500_000
    narrow = {name: np.zeros(count, {"f": "f2", "u": "u1", "b": "?", "U": "U1"}[ROW[name].kind]) for name in ROW.names}
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **narrow)
    with at_most(2 * MAX_RECORD), pytest.raises(ValueError, match=f"more than the {MAX_RECORD} bytes"):
        unpack(buffer.getvalue())
    header = deflated("k", b"\x93NUMPY\x02\x00" + (1 << 27).to_bytes(4, "little"), *[bytes(MIB)] * 128)
    with at_most(MAX_RECORD), pytest.raises(ArchiveError, match=f"more than the {MAX_RECORD >> 2} bytes"):
        read_arrays(io.BytesIO(header), MAX_RECORD >> 2)
    with at_most(16 * MIB), pytest.raises(BudgetError):
        Budget(64 * MIB).parse('[{"":0}' + ',{"":0}' * 400_000 + "]")


def test_text_of_a_model_becomes_objects_within_the_budget(tmp_path: Path) -> None:
    names = {f"a{i}_": {"kind": "array", "name": "text", "object": True} for i in range(100)}
    header = {"format": "closecall-linear", "version": 1, "class": "CloseKClassifier", "params": {}, "fitted": names}
    (tmp_path / "model.npz").write_bytes(forge(header, {"text": np.full(3_000_000, "ab")}))
    with at_most(1500 * MIB), pytest.raises(ValueError, match=r"more than the 1073741824 bytes.*save it again"):
        load_model(tmp_path / "model.npz")


@pytest.mark.parametrize("count", [50_001, 10_001])
def test_an_archive_of_very_many_members(count: int) -> None:
    entry = b"PK\x01\x02" + bytes(24) + (1).to_bytes(2, "little") + bytes(16) + b"a"
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 0xFFFF, 0xFFFF, count * len(entry), 0, 0)
    with at_most(16 * MIB), pytest.raises(ArchiveError, match="too many arrays; at most 10000"):
        read_arrays(io.BytesIO(entry * count + end))


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> int:
    """A sixteenth of the limits: what is then above them is made and read in a moment."""
    monkeypatch.setattr(tables, "LIMIT", tables.LIMIT >> 4)
    monkeypatch.setattr(tables, "PIECE_LIMIT", tables.PIECE_LIMIT >> 4)
    return tables.LIMIT


def packed_table(path: Path, head: bytes, piece: bytes, count: int) -> Path:
    path.write_bytes(gzip.compress(head) + count * gzip.compress(piece))  # parts of gzip after each other are one
    return path


def test_tables_that_become_more_than_their_text(tmp_path: Path, small_limits: int) -> None:
    """A quote that nobody closes, a gigabyte of ``1,1``, and rows of nothing but separators."""
    quote = packed_table(tmp_path / "quote.csv.gz", b'a,target\n1,"', b"x" * MIB, 600)
    ones = packed_table(tmp_path / "ones.csv.gz", b"a,target\n", b"1,1\n" * 250_000, 60)
    wide = packed_table(tmp_path / "wide.csv.gz", b"a,target\n", b"," * MIB, 60)
    for path in (quote, ones, wide):
        with at_most(4 * small_limits), pytest.raises(DataError, match=r"more than the \d+ bytes allowed"):
            read(str(path))
    for path in (quote, wide):
        with at_most(4 * small_limits), pytest.raises(DataError, match=r"more than the \d+ bytes allowed"):
            sum(map(len, stream(str(path))))
    with at_most(4 * small_limits):  # as long as one likes, piece by piece
        assert sum(map(len, stream(str(ones)))) == 60 * 250_000


def test_columns_are_counted_whatever_their_names(tmp_path: Path) -> None:
    """15,000 long names are a table, 100,001 short or odd ones are none, in both readers."""
    path = tmp_path / "wide.csv"
    names = [f"a_rather_long_name_of_a_column_{i}" for i in range(15_000)]
    rows = "\n".join(",".join(["1" if i % 2 else "2"] * 15_000) for i in range(4))
    path.write_text(",".join(names) + "\n" + rows + "\n")
    assert next(stream(str(path))).shape == (4, 15_000)
    for name in ("ä{}", '"{}\n"'):
        path.write_text(",".join(name.format(i) for i in range(100_001)) + "\n")
        with at_most(256 * MIB), pytest.raises(DataError, match=r"columns; at most 100000|first line"):
            next(stream(str(path)))


def test_zero_bytes_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "zero.csv"
    path.write_bytes(b"a,target\n" + b"1,x\n2,y\n" * 100_000 + b"3,\0\n")
    with pytest.raises(DataError, match="contains zero bytes"):
        read(str(path))


def test_packed_text_in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "Budget", partial(Budget, 64 * MIB))
    with Store(make_store(tmp_path)) as store:
        paths = export_store(store, tmp_path / "folder")
    paths[0].write_bytes(paths[0].read_bytes() + 600 * gzip.compress(b"x" * MIB))
    with at_most(256 * MIB), pytest.raises(CompactError, match=f"more than the {64 * MIB} bytes"):
        read_folder(tmp_path / "folder")

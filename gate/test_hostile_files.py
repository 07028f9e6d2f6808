"""Files of an attacker: nothing in them runs, no name leaves the data directory, and small files do not fill memory."""

import gzip
import io
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from closecall import CloseKClassifier, load_model
from closecall._arrays import ArchiveError, read_arrays
from closecall._budget import Budget, BudgetError
from closecall.table.read import files, sheet
from closecall.table.read.dataset import DataError
from closecall.table.table import read, stream
from gate.hostile_files import MIB, bz2_bomb, forge, make_store, npy, npz, parts_of
from reproduction.protocol import load_dataset, sources
from reproduction.protocol.grid import ROW
from reproduction.run import exchange
from reproduction.run.compact import CompactError
from reproduction.run.exchange import export_store, read_folder
from reproduction.run.record import MAX_RECORD, unpack
from reproduction.run.store import Store

RESERVED = 3 << 30  # bytes of address space that libraries may reserve without using them


def status(name: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
    return 1024 * int(line.split()[1])


@contextmanager
def at_most(size: int) -> Iterator[None]:
    """Fail if the block takes more than ``size`` bytes beyond what the process has; far more is refused."""
    clear = Path("/proc/self/clear_refs")
    if not clear.exists():
        pytest.skip("peak memory is measured on Linux")
    clear.write_text("5")  # resets the peak
    before, limits = status("VmRSS"), resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (status("VmSize") + size + RESERVED, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    taken = status("VmHWM") - before
    assert taken <= size, f"{taken / MIB:.0f} MiB, but at most {size / MIB:.0f} are allowed"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (npz(k=npy("(1000000000000000,)")), "declares more numbers"),
        (npz(k=npy("(-1,)", data=b"\0" * 8)), "declares more numbers"),
        (npz(k=npy("(1,)", "|O", b"\x80\x04N.")), "not numbers or text"),
        (npz(k=npy("(2,)", "V8", b"\0" * 16)), "not numbers or text"),
        (npz(k=npy("(1,)", data=b"\0" * 16)), "does not match its header"),
    ],
)
def test_absurd_headers(data: bytes, message: str) -> None:
    with pytest.raises(ArchiveError, match=message):
        read_arrays(io.BytesIO(data))


def test_an_archive_of_very_many_members() -> None:
    entry = b"PK\x01\x02" + bytes(24) + (1).to_bytes(2, "little") + bytes(16) + b"a"
    end = b"PK\x05\x06" + struct.pack("<4H2IH", 0, 0, 0xFFFF, 0xFFFF, 10_001 * len(entry), 0, 0)
    with at_most(16 * MIB), pytest.raises(ArchiveError, match="too many arrays; at most 10000"):
        read_arrays(io.BytesIO(entry * 10_001 + end))


def test_a_bz2_bomb_in_a_model_and_in_a_record(tmp_path: Path) -> None:
    bomb = bz2_bomb(128 * MIB)
    assert len(bomb) < 8192
    (tmp_path / "model.npz").write_bytes(bomb)
    with at_most(32 * MIB):
        with pytest.raises(ValueError, match=r"uses an unsupported compression method.*save it again"):
            load_model(tmp_path / "model.npz")
        with pytest.raises(ArchiveError, match="uses an unsupported compression"):
            unpack(bomb)


def test_objects_built_from_a_file_count_too(tmp_path: Path) -> None:
    """Rows of one byte a column become 213 bytes each; short JSON becomes dictionaries; text becomes objects."""
    narrow = {
        name: np.zeros(500_000, {"f": "f2", "u": "u1", "b": "?", "U": "U1"}[ROW[name].kind]) for name in ROW.names
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **narrow)
    for record in (buffer.getvalue(), npz(k=npy(f"({MAX_RECORD // 8 + 1},)", data=bytes(MAX_RECORD + 8)))):
        with at_most(2 * MAX_RECORD), pytest.raises(ValueError, match=f"more than the {MAX_RECORD} bytes"):
            unpack(record)
    header = npz(k=b"\x93NUMPY\x02\x00" + (1 << 27).to_bytes(4, "little") + bytes(1 << 27))
    with at_most(MAX_RECORD), pytest.raises(ArchiveError, match=f"more than the {MAX_RECORD >> 2} bytes"):
        read_arrays(io.BytesIO(header), MAX_RECORD >> 2)
    with at_most(16 * MIB), pytest.raises(BudgetError):
        Budget(64 * MIB).parse('[{"":0}' + ',{"":0}' * 400_000 + "]")
    names = {f"a{i}_": {"kind": "array", "name": "text", "object": True} for i in range(100)}
    model = {"format": "closecall-linear", "version": 1, "class": "CloseKClassifier", "params": {}, "fitted": names}
    (tmp_path / "model.npz").write_bytes(forge(model, {"text": np.full(3_000_000, "ab")}))
    with at_most(1500 * MIB), pytest.raises(ValueError, match=r"more than the 1073741824 bytes.*save it again"):
        load_model(tmp_path / "model.npz")


def packed_table(path: Path, head: bytes, piece: bytes, count: int) -> Path:
    path.write_bytes(gzip.compress(head) + count * gzip.compress(piece))  # consecutive gzip members are one file
    return path


def test_tables_that_become_more_than_their_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test an unclosed quote, many rows of ``1,1``, and rows of separators, with a sixteenth of the limits."""
    limit = sheet.LIMIT >> 4
    monkeypatch.setattr(sheet, "LIMIT", limit)
    monkeypatch.setattr(sheet, "PIECE_LIMIT", sheet.PIECE_LIMIT >> 4)
    quote = packed_table(tmp_path / "quote.csv.gz", b'a,target\n1,"', b"x" * MIB, 600)
    ones = packed_table(tmp_path / "ones.csv.gz", b"a,target\n", b"1,1\n" * 250_000, 60)
    wide = packed_table(tmp_path / "wide.csv.gz", b"a,target\n", b"," * MIB, 60)
    for path in (quote, ones, wide):
        with at_most(4 * limit), pytest.raises(DataError, match=r"more than the \d+ bytes allowed"):
            read(str(path))
    for path in (quote, wide):
        with at_most(4 * limit), pytest.raises(DataError, match=r"more than the \d+ bytes allowed"):
            sum(map(len, stream(str(path))))
    with at_most(4 * limit):  # a stream may be of any length
        assert sum(map(len, stream(str(ones)))) == 60 * 250_000


def test_columns_are_counted_whatever_their_names(tmp_path: Path) -> None:
    """A table of 15,000 columns with long names is read; 100,001 short or unusual names are refused."""
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
    with pytest.raises(DataError, match="contains null bytes"):
        read(str(path))


def test_parquet_that_unpacks_to_a_gigabyte_has_lists_or_repeats_a_name(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = tmp_path / "t.parquet"
    text = pa.DictionaryArray.from_arrays(pa.array([0, 0] * 500, pa.int32()), pa.array(["x" * MIB]))
    pq.write_table(pa.table({"s": text, "target": ["a", "b"] * 500}), path, compression="zstd", store_schema=False)
    assert path.stat().st_size < 1 << 17
    for batch, whole in ((1 << 16, True), (500, False)):
        with at_most(100 * MIB), pytest.raises(DataError, match="bytes allowed when unpacked"):
            list(files.stream_parquet(path, batch, 64 * MIB, whole=whole))
    labels = pa.array(["x", "y"])
    for columns, names, message in (
        ([pa.array([[1], [2]]), labels], ["a", "target"], "lists or structures"),
        ([labels, labels], ["target", "target"], "appear more than once"),
    ):
        pq.write_table(pa.Table.from_arrays(columns, names=names), path)
        with pytest.raises(DataError, match=message):
            load_dataset(path)


def test_packed_text_in_an_exported_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "Budget", partial(Budget, 64 * MIB))
    with Store(make_store(tmp_path)) as store:
        paths = export_store(store, tmp_path / "folder")
    paths[0].write_bytes(paths[0].read_bytes() + 600 * gzip.compress(b"x" * MIB))
    with at_most(256 * MIB), pytest.raises(CompactError, match=f"more than the {64 * MIB} bytes"):
        read_folder(tmp_path / "folder")


ESCAPES = ("..", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", "\0", "a\0b", ".hidden", "", "~root",
           "a" * 101, "x\n", "%2e%2e", "\u2024\u2024/x")  # fmt: skip


@pytest.mark.parametrize("source", ["pmlb", "openml", "openml100", "fan8"])
def test_no_name_leaves_the_data_directory(source: str, tmp_path: Path) -> None:
    for name in ESCAPES:
        with pytest.raises(DataError):
            load_dataset(f"{source}:{name}", tmp_path / "data", download=False)
    assert list(tmp_path.iterdir()) == []


def test_no_link_leaves_the_data_directory(tmp_path: Path) -> None:
    secret = tmp_path / "secret.tsv.gz"
    secret.write_bytes(gzip.compress(b"a\ttarget\n1\tx\n2\ty\n"))
    place = tmp_path / "data" / "pmlb" / "mine"
    place.mkdir(parents=True)
    (place / "mine.tsv.gz").symlink_to(secret)
    for look in (partial(load_dataset, download=False), sources.at_hand):
        with pytest.raises(DataError, match="symbolic link that points outside"):
            look("pmlb:mine", tmp_path / "data")
    (tmp_path / "other").symlink_to(tmp_path / "data")  # the data directory itself may be a link
    (place / "mine.tsv.gz").unlink()
    (place / "mine.tsv.gz").write_bytes(secret.read_bytes())
    assert load_dataset("pmlb:mine", tmp_path / "other", download=False).X.shape == (2, 1)


def test_a_forged_model_cannot_replace_methods(tmp_path: Path) -> None:
    path = tmp_path / "m.npz"
    CloseKClassifier(max_iter=10, tol=1.0).fit(np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]).save(path)
    header, arrays = parts_of(path)
    for key in ("__class__", "__dict__", "predict", "_x_", "__init_", "coef_ "):
        path.write_bytes(forge({**header, "fitted": {**header["fitted"], key: 1}}, arrays))
        with pytest.raises(ValueError, match="not a fitted attribute"):
            load_model(path)


def test_nothing_in_a_file_runs(tmp_path: Path) -> None:
    """Give every reader files that are pickles of a command."""
    marker = tmp_path / "ran"
    evil = f"cposix\nsystem\n(S'touch {marker}'\ntR.".encode()
    for name in ("m.npz", "t.csv", "t.csv.gz", "t.parquet"):
        (tmp_path / name).write_bytes(evil)
    (tmp_path / "o.npz").write_bytes(npz(header=npy("(1,)", "|O", evil), checksum=npy("(1,)", "|O", evil)))
    code = """
import sys, closecall, reproduction.protocol as data, reproduction.run.record as record
for name in sys.argv[1:]:
    reader = closecall.load_model if name.endswith(".npz") else data.load_dataset
    for read in (reader, lambda name: record.unpack(open(name, "rb").read())):
        try:
            read(name)
        except ValueError as error:
            print("refused", error)
"""
    names = [str(path) for path in sorted(tmp_path.iterdir())]
    done = subprocess.run([sys.executable, "-c", code, *names], capture_output=True, text=True, check=True)
    assert done.stdout.count("refused") == 2 * len(names)
    assert not marker.exists()


def test_the_rows_of_a_record_are_those_of_a_record() -> None:
    whole: dict[str, Any] = {name: np.zeros(2, ROW[name]) for name in ROW.names or ()}
    for changed in ({"k": np.zeros(3)}, {"k": np.zeros((2, 2))}):
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **{**whole, **changed})
        with pytest.raises(ArchiveError, match="columns of a record"):
            unpack(buffer.getvalue())


@pytest.mark.skipif(os.name == "nt", reason="names of files on Windows are text")
def test_a_file_whose_name_is_not_text(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")
    Path(path).write_text("a,target\n1,x\n2,y\n3,x\n4,y\n")
    assert load_dataset(path).X.shape == (4, 1)

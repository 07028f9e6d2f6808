"""Files of an attacker: fuzzed, forged, and made to explode; and nothing read from disk is ever executed."""

import gzip
import io
import json
import os
import resource
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from gate.torture_numbers import Refused

pytest.importorskip("pandas", reason="install closecall[bench]")
pytest.importorskip("pyarrow", reason="install closecall[bench]")

from closecall import CloseKClassifier, load_model
from closecall._arrays import ArchiveError, read_arrays
from closecall.table.read.dataset import DataError
from closecall.table.read.files import stream_parquet
from gate.hostile_files import ATTACKS, forge, npy
from reproduction.protocol import load_dataset, sources
from reproduction.protocol.files import read_bytes
from reproduction.protocol.grid import ROW
from reproduction.protocol.sources import at_hand, data_directory, resolve
from reproduction.run.record import MAX_RECORD, unpack

SEEDS = {"models": 40, "parquet": 40}


@pytest.mark.parametrize("name", ATTACKS)
def test_read_or_refused(name: str) -> None:
    refused = 0
    for seed in range(SEEDS.get(name, 60)):
        try:
            ATTACKS[name](seed)
        except Refused:
            refused += 1
    assert 0 < refused < SEEDS.get(name, 60)


def archive(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, data in members.items():
            packed.writestr(f"{name}.npy", data)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (archive(k=npy("(1000000000000000,)")), "claims more numbers"),
        (archive(k=npy("(-1,)", data=b"\0" * 8)), "claims more numbers"),
        (archive(k=npy("(1,)", "|O", b"\x80\x04N.")), "not numbers or text"),
        (archive(k=npy("(2,)", "V8", b"\0" * 16)), "not numbers or text"),
        (archive(k=npy("(1,)", data=b"\0" * 16)), "does not match its header"),
        (archive(**{f"a{i}": b"" for i in range(10_001)}), "too many arrays"),
    ],
)  # fmt: skip
def test_absurd_headers(data: bytes, message: str) -> None:
    with pytest.raises(ArchiveError, match=message):
        read_arrays(io.BytesIO(data))


def test_bombs_are_refused_before_they_unpack(tmp_path: Path) -> None:
    """Each file is small and unpacks to more than the limit; memory grows by less than a tenth of what they hold."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = MAX_RECORD + 8
    bomb = archive(k=npy(f"({size // 8},)", data=b"\0" * size))
    text = pa.DictionaryArray.from_arrays(pa.array([0, 0] * 500, pa.int32()), pa.array(["x" * (1 << 20)]))
    table = pa.table({"s": text, "target": ["a", "b"] * 500})
    pq.write_table(table, tmp_path / "bomb.parquet", compression="zstd", store_schema=False)
    (tmp_path / "bomb.csv.gz").write_bytes(gzip.compress(b"a,target\n" + b"0" * (1 << 25)))
    sizes = [len(bomb), *(each.stat().st_size for each in tmp_path.iterdir())]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ArchiveError, match=f"more than the {MAX_RECORD} bytes"):
        unpack(bomb)
    with pytest.raises(DataError, match="bytes allowed when unpacked"):
        list(stream_parquet(tmp_path / "bomb.parquet", 1 << 16, 1 << 26, whole=True))
    with pytest.raises(DataError, match="bytes allowed when unpacked"):
        list(stream_parquet(tmp_path / "bomb.parquet", 500, 1 << 26))
    with pytest.raises(DataError, match="bytes allowed when unpacked"):
        read_bytes(tmp_path / "bomb.csv.gz", 1 << 20)
    assert max(sizes) < 1 << 17
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes, of a gigabyte


def test_parquet_of_lists_and_of_two_columns_of_one_name(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    for names, message in ((["a", "target"], "lists or structures"), (["target", "target"], "appear more than once")):
        columns = [pa.array([[1], [2]]), pa.array(["x", "y"])] if "a" in names else [pa.array(["x", "y"])] * 2
        pq.write_table(pa.Table.from_arrays(columns, names=names), tmp_path / "t.parquet")
        with pytest.raises(DataError, match=message):
            load_dataset(tmp_path / "t.parquet")


ESCAPES = ("..", "../x", "/etc/passwd", "a/b", "a\\b", "C:x", "\0", "a\0b", ".hidden", "", "~root",
           "a" * 101, "x\n", "%2e%2e", "\u2024\u2024/x")  # fmt: skip


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("source", ["pmlb", "openml", "openml100", "fan8"])
def test_no_name_leaves_the_data_directory(source: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        load_dataset(f"{source}:{name}", tmp_path / "data", download=False)
    assert list(tmp_path.iterdir()) == []


@settings(max_examples=80)
@given(st.sampled_from(["pmlb", "openml", "openml100", "fan8"]), st.text(max_size=20))
def test_any_name_stays_inside(source: str, name: str) -> None:
    directory = data_directory("/nowhere/data")
    try:
        found, rest = resolve(f"{source}:{name}")
        place = sources._place(found, rest, directory)
    except DataError:
        return
    assert place.resolve().is_relative_to(directory)
    assert ".." not in place.parts


def test_no_link_leaves_the_data_directory(tmp_path: Path) -> None:
    secret = tmp_path / "secret.tsv.gz"
    secret.write_bytes(gzip.compress(b"a\ttarget\n1\tx\n2\ty\n"))
    place = tmp_path / "data" / "pmlb" / "mine"
    place.mkdir(parents=True)
    (place / "mine.tsv.gz").symlink_to(secret)
    for look in (lambda: load_dataset("pmlb:mine", tmp_path / "data", download=False),
                 lambda: at_hand("pmlb:mine", tmp_path / "data")):  # fmt: skip
        with pytest.raises(DataError, match="symbolic link that leaves"):
            look()
    (tmp_path / "other").symlink_to(tmp_path / "data")  # the data directory itself may be a link
    (place / "mine.tsv.gz").unlink()
    (place / "mine.tsv.gz").write_bytes(secret.read_bytes())
    assert load_dataset("pmlb:mine", tmp_path / "other", download=False).X.shape == (2, 1)


def test_a_forged_model_cannot_replace_methods(tmp_path: Path) -> None:
    X, y = np.array([[-2.0], [-1.0], [1.0], [2.0]]), [0, 0, 1, 1]
    path = tmp_path / "m.npz"
    CloseKClassifier(max_iter=10, tol=1.0).fit(X, y).save(path)
    with np.load(path) as stored:
        arrays = {name: stored[name] for name in stored.files if name not in ("header", "checksum")}
        header = json.loads(stored["header"].tobytes())
    for key in ("__class__", "__dict__", "predict", "_x_", "__init_", "coef_ "):
        changed = {**header, "fitted": {**header["fitted"], key: 1}}
        path.write_bytes(forge(changed, arrays))
        with pytest.raises(ValueError, match="not a fitted attribute"):
            load_model(path)


def test_nothing_in_a_file_runs(tmp_path: Path) -> None:
    """A process that would be noticed if any reader unpickled: every file is a pickle of a command."""
    marker = tmp_path / "ran"
    evil = f"cposix\nsystem\n(S'touch {marker}'\ntR.".encode()
    for name in ("m.npz", "t.csv", "t.csv.gz", "t.parquet"):
        (tmp_path / name).write_bytes(evil)
    (tmp_path / "o.npz").write_bytes(archive(header=npy("(1,)", "|O", evil), checksum=npy("(1,)", "|O", evil)))
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
def test_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    path = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.csv")
    Path(path).write_text("a,target\n1,x\n2,y\n3,x\n4,y\n")
    assert load_dataset(path).X.shape == (4, 1)

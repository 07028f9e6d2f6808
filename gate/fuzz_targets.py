"""The readers that :mod:`gate.fuzz` feeds with bytes, and the files of the corpus from which it starts.

python -m gate.fuzz_targets        # makes the corpus again
"""

import atexit
import contextlib
import gzip
import io
import json
import os
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from closecall import CloseKClassifier, load_model
from closecall.table.model import TableModel
from closecall.table.read.dataset import DataError
from closecall.table.read.files import stream_parquet
from closecall.table.table import read, stream
from gate import fuzz_skops
from gate.fuzz import CORPUS, Change, mutate
from gate.hostile_files import forge
from gate.hostile_stores import rows_of, run_command
from reproduction.protocol.files import from_frame, read_bytes, read_table
from reproduction.protocol.grid import ROW
from reproduction.run.record import pack, unpack

#: Where inputs are written; the children of a run use it one after the other.
_ROOM = Path(tempfile.gettempdir()) / f"closecall-fuzz-{os.getpid()}"
atexit.register(shutil.rmtree, _ROOM, ignore_errors=True)


@dataclass(frozen=True)
class Target:
    """A reader of bytes, the errors that it promises, and of a thousand inputs how many it gets."""

    read: Callable[[bytes], None]
    allowed: tuple[type[Exception], ...]
    weight: int
    corpus: Callable[[], dict[str, bytes]]
    change: Change = mutate


def _written(name: str, data: bytes) -> Path:
    _ROOM.mkdir(exist_ok=True)
    path = _ROOM / name
    path.write_bytes(data)
    return path


_TABLES = {
    "plain.csv": b"a,b,target\n" + b"".join(f"{i},{i * i % 7},{'yn'[i % 2]}\n".encode() for i in range(12)),
    "quoted.csv": 'name;when;ä;class\n"x; ""y""";02.01.2024;1,5;one\n"z\nw";03.01.2024;2,5;two\n;;;one\n'.encode() * 2,
    "tabs.tsv": b"\xef\xbb\xbfid\tc\tlabel\nu1\tNA\t0\nu2\t1e5\t1\nu3\t?\t0\nu4\t-0\t1\n",
}  # fmt: skip


def read_csv(data: bytes) -> None:
    """Both readers of text tables, the second also with what its columns are."""
    path = _written("t.csv", data)
    with contextlib.suppress(DataError):
        for frame in stream(str(path)):
            if frame.shape[1] > 100_000:
                raise AssertionError(f"{frame.shape} from {len(data)} bytes")
    with contextlib.suppress(DataError):
        from_frame(read_table(path, "target"), "target", name="t", source="file", version="")
    read(str(path))


def read_gzip(data: bytes) -> None:
    path = _written("t.csv.gz", data)
    for _ in stream(str(path)):
        pass
    read_bytes(path)


def _parquet() -> dict[str, bytes]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    found = {}
    columns: dict[str, Any] = {"f": [1.5, None, 3.0, 4.0], "s": ["a", "b", "a", None], "target": ["x", "y", "x", "y"]}
    for name, options in {"plain": {}, "zstd": {"compression": "zstd"}, "wide": {"use_dictionary": False}}.items():
        buffer = io.BytesIO()
        more = {f"i{j}": list(range(j, j + 4)) for j in range(3)} if name == "wide" else {}
        pq.write_table(pa.table({**columns, **more}), buffer, **options)
        found[f"{name}.parquet"] = buffer.getvalue()
    return found


def read_columns(data: bytes) -> None:
    path = _written("t.parquet", data)
    (frame,) = stream_parquet(path, 1 << 16, 1 << 28, whole=True)
    if "target" in frame.columns:
        from_frame(frame, "target", name="t", source="file", version="")


_X = np.random.default_rng(0).normal(size=(30, 2))


def _models() -> dict[str, bytes]:
    plain = CloseKClassifier(max_iter=10, tol=1.0, calibration="sigmoid", random_state=0)
    plain.fit(_X, np.where(_X[:, 0] > 0, "b", "a")).save(_written("m.npz", b""))
    found = {"plain.npz": (_ROOM / "m.npz").read_bytes()}
    table = read(str(_written("t.csv", b"when,size,kind,target\n" + b"".join(
        b"%02d.01.2024,%d,%s,%s\n" % (i % 9 + 1, i % 7, b"xyz"[i % 3 : i % 3 + 1], b"ab"[i % 2 : i % 2 + 1])
        for i in range(40)))))  # fmt: skip
    TableModel.fit(table, "logistic").save(str(_ROOM / "m.npz"))
    return {**found, "table.npz": (_ROOM / "m.npz").read_bytes()}


def read_model(data: bytes) -> None:
    """The model itself, or with the preprocessing of its table; then it predicts."""
    path = _written("m.npz", data)
    try:
        found = load_model(path)
    except ValueError as error:
        if "closecall fit" not in str(error):
            raise
        import pandas as pd

        table = TableModel.load(str(path))
        frame = pd.DataFrame({step.column.name: ["1", None] for step in table.recipe.steps})
        table.predict(frame)
        return
    X = np.ones((2, found.n_features_in_))
    found.predict(X)
    if found.calibration is not None or hasattr(found, "predict_proba"):
        found.predict_proba(X)


def read_skops(data: bytes) -> None:
    fuzz_skops.read_model(data, _written("m.skops", b""))


def _headers() -> dict[str, bytes]:
    found = {}
    for name, data in _models().items():
        with np.load(io.BytesIO(data)) as archive:
            found[f"{Path(name).stem}.json"] = archive["header"].tobytes()
    return found


_ARRAYS: dict[str, Any] = {}


def read_header(data: bytes) -> None:
    """A header of any bytes with the arrays of a model and a checksum that fits them all."""
    if not _ARRAYS:
        for model in (CORPUS / "model" / "plain.npz", CORPUS / "model" / "table.npz"):
            with np.load(model) as archive:
                _ARRAYS.update({name: archive[name] for name in archive.files if name not in ("header", "checksum")})
    read_model(forge(data, dict(_ARRAYS)))


def _records() -> dict[str, bytes]:
    return {"rows.npz": pack(rows_of(1)), "empty.npz": pack(np.empty(0, ROW))}


def read_record(data: bytes) -> None:
    if len(unpack(data)) > 400_000:
        raise AssertionError("more rows than the limit allows")


def _arguments() -> dict[str, bytes]:
    lines = ["status --json", "reproduce --dry-run --datasets monk3 --splits 2", "predict m.npz t.csv --copy a",
             "fit t.csv --out made --model logistic", "compare t.csv --splits 2 --no-report",
             "export --to there", "import there"]  # fmt: skip
    return {f"{line.split()[0]}.txt": line.replace(" ", "\n").encode() for line in lines}


def read_arguments(data: bytes) -> None:
    """A line is an argument; no argument leads out of the folder, and no cell is computed."""
    words = data.decode("utf-8", "surrogateescape").replace("\0", "").replace("/", "_").replace("..", "_").split("\n")
    folder = _ROOM / "arguments"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "t.csv").write_bytes(_TABLES["plain.csv"])
    (folder / "m.npz").write_bytes((CORPUS / "model" / "table.npz").read_bytes())
    code, told = run_command(words, folder)
    shutil.rmtree(folder)
    if code not in (0, 1, 2, 3) or "Traceback" in told or "\x1b" in told:
        raise AssertionError(f"{words}: exit {code}: {told[-300:]}")


TARGETS: dict[str, Target] = {
    "csv": Target(read_csv, (DataError,), 30, lambda: _TABLES),
    "gzip": Target(read_gzip, (DataError,), 100, lambda: {f"{k}.gz": gzip.compress(v) for k, v in _TABLES.items()}),
    "parquet": Target(read_columns, (DataError,), 100, _parquet),
    "model": Target(read_model, (ValueError,), 138, _models),
    "skops": Target(read_skops, (ValueError,), 100, fuzz_skops.models, fuzz_skops.change),
    "header": Target(read_header, (ValueError,), 80, _headers),
    "record": Target(read_record, (ValueError,), 220, _records),
    "arguments": Target(read_arguments, (), 2, _arguments),
}


def main() -> None:
    """Write the files of the corpus."""
    for kind, target in TARGETS.items():
        (CORPUS / kind).mkdir(parents=True, exist_ok=True)
        for name, data in target.corpus().items():
            (CORPUS / kind / name).write_bytes(data)
            print(json.dumps({"kind": kind, "file": name, "bytes": len(data)}))


if __name__ == "__main__":
    main()

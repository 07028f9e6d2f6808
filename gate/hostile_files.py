"""Files of an attacker: tables, caches, models, records and stores that are damaged, forged or made to explode.

As in :mod:`torture_numbers` an attack takes a seed and returns ``ok`` or raises ``Refused``; whatever else happens is
a ``Finding``. Nothing here is larger than some kilobytes on disk.
"""

import gzip
import hashlib
import io
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from closecall import CloseKClassifier, load_model
from closecall.linear import persistence
from closecall.table.model import TableModel
from closecall.table.read.dataset import DataError
from gate.torture_numbers import Finding, Refused
from reproduction.protocol import load_dataset

#: Pieces of text that have broken parsers, terminals, spreadsheets, browsers and file systems.
NASTY = (
    "", " ", "\0", "\r", "\n", '"', ",", "\t", ";", "\ufeff", "\u2028", "\u2029", "\u202e", "\x1b[31m",
    "\ud83d\ude00", "\ud800", "nan", "inf", "-inf", "1e999", "1e-400", "0x10", "1_000", "9" * 400, "-0", "5e-324",
    "NA", "?",
    "True", "2020-01-01", "=cmd|' /C calc'!A0", "</script><script>alert(1)</script>", "<img src=x onerror=alert(1)>",
    "{{7*7}}", "${7*7}",
    "'; DROP TABLE records; --", "../../etc/passwd", "C:\\nul", "%s%n", "__class__", "target", "a",
)  # fmt: skip


@contextmanager
def refusing(what: str, *allowed: type[Exception]) -> Iterator[None]:
    """Only the errors that a module promises pass, and only with a message."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            yield
    except (Finding, Refused):
        raise
    except allowed as error:
        if len(str(error)) < 15:
            raise Finding(f"{what}: {type(error).__name__} says nothing: {error}") from error
        raise Refused(str(error)) from error
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Finding(f"{what}: {type(error).__name__}: {error}") from error


def nasty(rng: np.random.Generator) -> str:
    """One of the pieces of text, most often a short one of random letters."""
    return str(rng.choice(NASTY)) if rng.random() < 0.7 else "".join(map(chr, rng.integers(1, 0x2FF, 3)))


def flip(rng: np.random.Generator, data: bytes) -> bytes:
    """The bytes with a few of them changed, removed, added or cut off."""
    raw = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(0, len(raw) + 1))
        kind = rng.integers(5)
        if kind <= 1 and at < len(raw):
            raw[at] ^= int(rng.integers(1, 256))
        elif kind == 2:
            del raw[at : at + int(rng.integers(1, 30))]
        elif kind == 3:
            raw[at:at] = bytes(rng.integers(0, 256, int(rng.integers(1, 9)), dtype=np.uint8))
        elif rng.random() < 0.3:
            del raw[at:]
    return bytes(raw)


def table_text(rng: np.random.Generator, separator: str = ",") -> str:
    """A small table with nasty names and values, sometimes not even of equal rows."""
    rows, columns = int(rng.integers(2, 9)), int(rng.integers(1, 4))
    cells = [[f"c{j}" for j in range(columns)] + ["target"]]
    for i in range(rows):
        kinds = [str(rng.normal()) if j % 2 else str(rng.choice(["x", "y", "z"])) for j in range(columns)]
        cells.append([*kinds, "yes" if i % 2 else "no"])
    for _ in range(int(rng.integers(0, 3))):
        cells[rng.integers(len(cells))][rng.integers(columns + 1)] = nasty(rng)
    if rng.random() < 0.1:
        cells[-1].append("over")
    quote = (lambda cell: '"' + cell.replace('"', '""') + '"') if rng.random() < 0.5 else (lambda cell: cell)
    return "\n".join(separator.join(map(quote, row)) for row in cells) + "\n"


def attack_tables(seed: int) -> str:
    """CSV and TSV files, plain or packed: nasty cells, then damaged bytes."""
    rng = np.random.default_rng([seed, 11])
    ending = str(rng.choice([".csv", ".tsv", ".csv.gz", ".tsv.gz"]))
    data = table_text(rng, "\t" if ".tsv" in ending else ",").encode("utf-8", errors="surrogatepass")
    data = flip(rng, data) if rng.random() < 0.4 else data
    if ending.endswith(".gz"):
        data = gzip.compress(data)
        data = flip(rng, data) if rng.random() < 0.3 else data
    with tempfile.TemporaryDirectory() as folder, refusing(f"table {seed}", DataError):
        path = Path(folder) / f"t{ending}"
        path.write_bytes(data)
        _use(load_dataset(path))
    return "ok"


def _use(data: Any) -> None:
    if len(data.checksum) != 64 or len(data.frame()) != len(data.y):
        raise Finding(f"{data.name}: a data set that is not whole")
    (encoded,) = data.encode(np.arange(len(data.y)))
    if not np.isfinite(encoded).all():
        raise Finding(f"{data.name}: silent NaN in the encoded matrix")


def attack_parquet(seed: int) -> str:
    """Parquet files with odd types and damaged bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng([seed, 12])
    n = 8
    columns: dict[str, Any] = {
        "f": rng.normal(size=n), "s": [nasty(rng).encode(errors="ignore").decode() for _ in range(n)],
        "l": [[1], [2]] * 4, "b": [b"\xff", b"a"] * 4, "d": pa.array([1, 2] * 4, pa.date32()), "t": [True, False] * 4,
        "n": pa.nulls(n), "i": np.arange(n), "h": rng.normal(size=n).astype(np.float16),
        "m": pa.array([[("k", 1)]] * n, pa.map_(pa.string(), pa.int64())),
        "x": pa.array(["a", "b"] * 4).dictionary_encode(),
    }  # fmt: skip
    chosen = [str(name) for name in rng.choice(list(columns), int(rng.integers(1, 4)), replace=False)]
    names = [nasty(rng).encode(errors="ignore").decode() if rng.random() < 0.2 else name for name in chosen]
    target: Any = ["yes", "no"] * 4 if rng.random() < 0.8 else columns[str(rng.choice(list(columns)))]
    arrays = [pa.array(columns[name]) for name in chosen]
    table = pa.Table.from_arrays([*arrays, pa.array(target)], names=[*names, "target"])
    if rng.random() < 0.3:
        table = table.replace_schema_metadata({b"pandas": nasty(rng).encode(errors="ignore")})
    buffer = io.BytesIO()
    pq.write_table(table, buffer, store_schema=bool(rng.random() < 0.5))
    data = flip(rng, buffer.getvalue()) if rng.random() < 0.5 else buffer.getvalue()
    with tempfile.TemporaryDirectory() as folder, refusing(f"parquet {seed} {chosen}", DataError):
        path = Path(folder) / "t.parquet"
        path.write_bytes(data)
        _use(load_dataset(path))
    return "ok"


def json_like(rng: np.random.Generator, depth: int = 0) -> Any:
    """Any JSON value, small."""
    kind = rng.integers(8 if depth < 3 else 5)
    if kind == 5:
        return [json_like(rng, depth + 1) for _ in range(int(rng.integers(0, 4)))]
    if kind >= 6:
        return {nasty(rng): json_like(rng, depth + 1) for _ in range(int(rng.integers(0, 4)))}
    return [None, True, int(rng.integers(-(2**40), 2**40)), float(rng.normal()), nasty(rng)][kind]


def spoil(rng: np.random.Generator, content: Any) -> Any:
    """JSON content with one of its parts replaced by something else."""
    if isinstance(content, dict) and content and rng.random() < 0.85:
        key = str(rng.choice(list(content)))
        if rng.random() < 0.15:
            return {other: value for other, value in content.items() if other != key}
        return {**content, key: spoil(rng, content[key])}
    if isinstance(content, list) and content and rng.random() < 0.8:
        at = int(rng.integers(len(content)))
        return [*content[:at], spoil(rng, content[at]), *content[at + 1 :]]
    return json_like(rng)


def attack_caches(seed: int) -> str:
    """The PMLB and OpenML layouts of a data directory, with forged side files."""
    rng = np.random.default_rng([seed, 13])
    text = table_text(rng)
    with tempfile.TemporaryDirectory() as folder, refusing(f"cache {seed}", DataError):
        directory = Path(folder)
        if rng.random() < 0.5:
            place = directory / "pmlb" / "mine"
            place.mkdir(parents=True)
            (place / "mine.tsv.gz").write_bytes(gzip.compress(text.replace(",", "\t").encode(errors="surrogatepass")))
            _use(load_dataset("pmlb:mine", directory, download=False))
            return "ok"
        place = directory / "openml" / "31999"
        place.mkdir(parents=True)
        packed = gzip.compress(text.encode(errors="surrogatepass"))
        (place / "data.csv.gz").write_bytes(packed)
        meta: Any = {"name": "n", "version": "1", "target": "target", "nominal": ["c0"]}
        meta["sha256"] = hashlib.sha256(packed).hexdigest()
        meta = spoil(rng, meta) if rng.random() < 0.7 else meta
        raw = json.dumps(meta).encode() if rng.random() < 0.9 else b"[" * 100_000
        (place / "meta.json").write_bytes(raw)
        _use(load_dataset("openml:31999", directory, download=False))
    return "ok"


_X = np.random.default_rng(0).normal(size=(30, 2))
_MODEL = CloseKClassifier(max_iter=10, tol=1.0, calibration="sigmoid", random_state=0)
_MODEL.fit(_X, np.where(_X[:, 0] > 0, "b", "a"))
_TABLE = {
    "format": 1, "target": "target", "mean": np.zeros(2), "scale": np.ones(2),
    "steps": [["c0", "number", "", 0.0, []], ["c1", "nominal", "", "x", ["x", "y"]]],
}  # fmt: skip


def forge(header: dict[str, Any] | bytes, arrays: dict[str, Any]) -> bytes:
    """A model file whose checksum is right, whatever its content."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    stored = {"header": np.frombuffer(text, dtype=np.uint8), **arrays}
    stored["checksum"] = np.frombuffer(persistence._checksum(stored), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **stored)
    return buffer.getvalue()


def attack_models(seed: int) -> str:
    """Model files with damaged bytes, or forged: any header, any arrays, and the checksum to go with them."""
    rng = np.random.default_rng([seed, 14])
    tabular = bool(rng.random() < 0.5)
    with tempfile.TemporaryDirectory() as folder, refusing(f"model {seed}", ValueError):
        path = Path(folder) / "model.npz"
        _MODEL.table_ = _TABLE
        try:
            _MODEL.save(path)
        finally:
            del _MODEL.table_
        if rng.random() < 0.3:
            path.write_bytes(flip(rng, path.read_bytes()))
        else:
            path.write_bytes(_forged(rng, path))
        found = TableModel.load(str(path)) if tabular else load_model(path)
        if tabular:
            import pandas as pd

            labels, scores = found.predict(pd.DataFrame({"c0": ["1", "x"], "c1": ["x", None]}))
        else:
            labels, scores = found.predict(_X[:2]), found.decision_function(_X[:2])
            if found.calibration is not None:  # a forged None takes the method away, as it does from any model
                found.predict_proba(_X[:2])
        if len(labels) != 2 or not np.isfinite(scores).all():
            raise Finding(f"model {seed}: {labels} {scores}")
    return "ok"


def _forged(rng: np.random.Generator, path: Path) -> bytes:
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files if name not in ("header", "checksum")}
        header = json.loads(archive["header"].tobytes())
    if rng.random() < 0.6:
        part = str(rng.choice(["params", "fitted"]))
        header = {**header, part: spoil(rng, header[part])} if rng.random() < 0.8 else spoil(rng, header)
    else:
        name = str(rng.choice(list(arrays)))
        arrays[name] = [
            np.array(["x"]), np.array([np.nan]), np.zeros((0, 3)), np.zeros((3, 3, 3)), arrays[name][:-1],
            arrays[name].T,
            arrays[name].astype(str), np.array(5), np.array([np.inf] * 2), np.zeros(2, complex),
        ][rng.integers(10)]  # fmt: skip
    return forge(header if isinstance(header, dict) else {"format": header}, arrays)


def npy(shape: str, descr: str = "<f8", data: bytes = b"") -> bytes:
    """An npy file with any header."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}, }}".encode()
    text += b" " * (-(len(text) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


ATTACKS: dict[str, Callable[[int], str]] = {
    "tables": attack_tables,
    "parquet": attack_parquet,
    "caches": attack_caches,
    "models": attack_models,
}

"""The readers that :mod:`gate.fuzz` tests."""

import atexit
import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from closecall import load_model
from closecall.table.explain import explain
from closecall.table.model import TableModel
from closecall.table.read.dataset import DataError
from closecall.table.read.files import stream_parquet
from closecall.table.table import read, stream
from gate.fuzz import CORPUS, Target
from gate.fuzz_changes import change_arguments, change_model, change_skops
from gate.hostile_files import run_command
from reproduction.protocol.files import from_frame, read_bytes, read_table
from reproduction.run.record import unpack

#: Where inputs are written; only one child runs at a time.
_ROOM = Path(tempfile.mkdtemp(prefix="closecall-fuzz-"))
atexit.register(shutil.rmtree, _ROOM, ignore_errors=True)


def _written(name: str, data: bytes) -> Path:
    path = _ROOM / name
    path.write_bytes(data)
    return path


def _encode(frame: Any) -> None:
    """Check that a table becomes a data set whose encoded matrix is finite."""
    data = from_frame(frame, "target", name="t", source="file", version="")
    (encoded,) = data.encode(np.arange(len(data.y)))
    if not (len(data.checksum) == 64 and len(data.frame()) == len(data.y) and np.isfinite(encoded).all()):
        raise AssertionError("the data set is not complete, or its matrix is not finite")


def read_csv(data: bytes) -> None:
    """Use both readers of text tables, the second also with the types of the columns."""
    path = _written("t.csv", data)
    with contextlib.suppress(DataError):
        for frame in stream(str(path)):
            if frame.shape[1] > 100_000:
                raise AssertionError(f"{frame.shape} from {len(data)} bytes")
    with contextlib.suppress(DataError):
        _encode(read_table(path, "target"))
    read(str(path))


def read_gzip(data: bytes) -> None:
    path = _written("t.csv.gz", data)
    for _ in stream(str(path)):
        pass
    read_bytes(path)


def read_parquet(data: bytes) -> None:
    (frame,) = stream_parquet(_written("t.parquet", data), 1 << 16, 1 << 28, whole=True)
    if "target" in frame.columns:
        _encode(frame)


def _predict(model: TableModel) -> None:
    """Check that predictions are known labels, and that scores and probabilities are finite."""
    frame = pd.DataFrame({step.column.name: ["1", None, "x", "-3e5"] for step in model.recipe.steps})
    labels, scores = model.predict(frame)
    chances = model.probabilities(frame)
    explain(model, frame)
    known = set(model.classifier.classes_.tolist())
    if not (set(labels.tolist()) <= known and np.isfinite(scores).all() and chances.shape == (len(frame), len(known))):
        raise AssertionError(f"{labels}, {scores}, {chances.shape}")
    if not (np.isfinite(chances).all() and np.allclose(chances.sum(axis=1), 1)):
        raise AssertionError(f"{chances}")


def read_model(data: bytes) -> None:
    """Load a model, or a model with the preprocessing of its table, and predict."""
    path = _written("m.npz", data)
    try:
        model = load_model(path)
    except ValueError as error:
        if "closecall fit" not in str(error):
            raise
        _predict(TableModel.load(str(path)))
        return
    X = np.ones((2, model.n_features_in_))
    if not (len(model.predict(X)) == 2 and np.isfinite(model.decision_function(X)).all()):
        raise AssertionError("predictions are missing, or scores are not finite")
    if model.calibration is not None or hasattr(model, "predict_proba"):
        model.predict_proba(X)


def read_skops(data: bytes) -> None:
    _predict(TableModel.load(str(_written("m.skops", data))))


def read_record(data: bytes) -> None:
    if len(unpack(data)) > 400_000:
        raise AssertionError("more rows than the limit allows")


def read_arguments(data: bytes) -> None:
    """Run a command with one argument per line; no argument leads out of the folder, and no cell is computed."""
    words = data.decode("utf-8", "surrogateescape").replace("\0", "").replace("/", "_").replace("..", "_").split("\n")
    with tempfile.TemporaryDirectory(dir=_ROOM) as folder:
        shutil.copy(CORPUS / "csv" / "plain.csv", f"{folder}/t.csv")
        shutil.copy(CORPUS / "model" / "table.npz", f"{folder}/m.npz")
        code, told = run_command(words, Path(folder))
    if code not in (0, 1, 2, 3) or "Traceback" in told or "\x1b" in told:
        raise AssertionError(f"{words}: exit {code}: {told[-300:]}")


TARGETS: dict[str, Target] = {
    "csv": Target(read_csv, (DataError,), 30),
    "gzip": Target(read_gzip, (DataError,), 100),
    "parquet": Target(read_parquet, (DataError,), 100),
    "model": Target(read_model, (ValueError,), 200, change_model),
    "skops": Target(read_skops, (ValueError,), 100, change_skops),
    "record": Target(read_record, (ValueError,), 220),
    "arguments": Target(read_arguments, (), 4, change_arguments),
}

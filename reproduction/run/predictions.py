"""What the chosen settings predict for every test example: made from the cells and the data, kept as Parquet, read.

A cell keeps how many predictions are right, not which. The settings that validation chose for `average` and close decay
are therefore solved again, by themselves; a solution that came out of a batch may differ from it by rounding, so the
right predictions are counted again, and the index lists every count that is not the cell's.

A folder holds a file for each (suite, protocol) and ``index.json``: for each file its SHA-256, its rows, and for each
data set a digest of the cells that it was made from, and which sets were too large. What is there for the same cells
is not made again.
"""

from __future__ import annotations

import hashlib
import io
import itertools
import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from closecall._names import Array
from closecall.aggregates import get_aggregate
from closecall.objective import Problem
from closecall.report.text import write_whole
from closecall.table.read.dataset import Dataset
from reproduction.protocol import load_dataset
from reproduction.protocol.plan import Cell
from reproduction.protocol.protocol import get_protocol
from reproduction.protocol.published import LOSSES

from .campaign import Campaign, jobs_of
from .cell import divide
from .record import Record

FORMAT = 1
INDEX = "index.json"
#: Data sets of more rows x encoded columns are left out, and named in the index.
MOST_VALUES = 2_000_000
#: Seconds of work that a run which is ended may lose.
KEEP_EVERY = 60.0
#: What is predicted by: a column for each, ``logistic.average`` and so on.
PLACES = tuple((loss, method) for loss in LOSSES for method in ("average", "close_decay"))
_NAMES = tuple(".".join(place) for place in PLACES)


class PredictionsError(ValueError):
    """The files are not what was written; the message says which and why."""


def _pyarrow() -> Any:
    try:
        import pyarrow  # type: ignore[import-untyped]
        import pyarrow.parquet  # type: ignore[import-untyped]
    except ImportError as error:
        raise PredictionsError(f'predictions need pyarrow ({error}): pip install "closecall[bench]"') from None
    return pyarrow


def _schema() -> Any:
    pa = _pyarrow()
    return pa.schema([
        ("dataset", pa.dictionary(pa.int32(), pa.string())), ("split", pa.uint16()), ("row", pa.uint32()),
        ("truth", pa.bool_()), *((name, pa.bool_()) for name in _NAMES),
    ])  # fmt: skip


def predict_cell(cell: Cell, record: Record, data: Dataset) -> dict[str, Array]:
    """Test rows of a linear cell in order, their truth and what each chosen setting says: True is the class +1.

    Parameters
    ----------
    cell : Cell
    record : Record
        With the rows that validation chose.
    data : Dataset

    Returns
    -------
    columns : dict of arrays (test rows,)
        ``row`` (of the data set), ``truth`` and a column for each of :data:`PLACES`.
    """
    division, protocol = divide(data, cell), get_protocol(cell.protocol)
    solved = _solve(record, division.X[0], division.y[0], cell, protocol.tolerance, protocol.penalize_intercept)
    order = np.argsort(division.rows[2])
    said = division.X[2] @ solved.coef.T + solved.intercept > 0
    return {
        "row": division.rows[2][order], "truth": division.y[2][order] > 0,
        **{name: said[order, place] for place, name in enumerate(_NAMES)},
    }  # fmt: skip


def _solve(record: Record, X: Array, y: Array, cell: Cell, tol: float, penalize: bool) -> Any:
    """The chosen settings of :data:`PLACES`, solved by themselves as the cell solved them in its grid."""
    from closecall.solvers import solve

    chosen = {(str(row["loss"]), str(row["method"])): row for row in record.rows}
    problems = [
        Problem(loss, name, int(chosen[loss, name]["k"]) if get_aggregate(name).takes else None,
                float(chosen[loss, name]["alpha"]))
        for loss, name in PLACES
    ]  # fmt: skip
    return solve(X, y, problems, max_iter=cell.max_iter, tol=tol, init=cell.start, penalize_intercept=penalize,
                 dtype=np.float32)  # fmt: skip


def make_predictions(
    folder: Path,
    campaign: Campaign,
    suite: str,
    data_dir: str | None = None,
    tell: Callable[[str], None] = lambda line: None,
) -> list[Path]:
    """Make what is missing of a suite's files, data set by data set; a run that is ended goes on where it was.

    Parameters
    ----------
    folder : path
    campaign : Campaign
        The exported cells.
    suite : str
    data_dir : str, optional
    tell : callable
        Receives a line for each data set.

    Returns
    -------
    paths : list of path
        The files of the suite.
    """
    done, paths = campaign.done(), []
    for protocol, cells in _cells_of(campaign, suite).items():
        name = f"{suite}-{protocol}-linear.parquet"
        known, left_out = read_index(folder)["files"].get(name, {"datasets": {}})["datasets"], list[str]()
        kept, changed, written = _tables(folder, name) if known else {}, False, time.monotonic()
        facts = {"suite": suite, "protocol": protocol, "datasets": known, "left_out": left_out}
        for dataset in dict.fromkeys(cell.dataset for cell in cells):
            mine = [cell for cell in cells if cell.dataset == dataset]
            if any(cell.key not in done for cell in mine):
                continue
            records = list(campaign.records(cell.key for cell in mine))
            mark = _digest(mine, records)
            if dataset in kept and known.get(dataset, {}).get("digest") == mark:
                continue
            if sum(records[0].sizes) * records[0].features > MOST_VALUES:
                left_out.append(dataset)
                continue
            tell(f"predicting {suite}, {protocol}, {dataset}")
            kept[dataset], differs = _table(mine, records, data_dir)
            known[dataset], changed = {"digest": mark, "differs": differs}, True
            if time.monotonic() - written > KEEP_EVERY:
                _write(folder, name, facts, kept)
                changed, written = False, time.monotonic()
        if changed:
            _write(folder, name, facts, kept)
        paths += [folder / name] if (folder / name).exists() else []
    return paths


def _cells_of(campaign: Campaign, suite: str) -> dict[str, list[Cell]]:
    """Protocol -> the cells of the linear models behind the suite's tables."""
    found: dict[str, list[Cell]] = {}
    for job in jobs_of(campaign):
        if job.suites == (suite,) and job.models == ("linear",) and not job.target.simulations:
            for cell in job.cells():
                found.setdefault(cell.protocol, []).append(cell)
    return {protocol: list(dict.fromkeys(cells)) for protocol, cells in found.items()}


def _digest(cells: Sequence[Cell], records: Sequence[Record]) -> str:
    """Of what decides the predictions: the cells and the settings chosen."""
    chosen = [
        [cell.key, *([float(row["k"]), float(row["alpha"]), int(row["test"])] for row in _rows(record))]
        for cell, record in zip(cells, records, strict=True)
    ]
    return hashlib.sha256(json.dumps(chosen).encode()).hexdigest()[:32]


def _rows(record: Record) -> Iterator[Any]:
    for place in PLACES:
        yield from (row for row in record.rows if (row["loss"], row["method"]) == place)


def _table(cells: Sequence[Cell], records: Sequence[Record], data_dir: str | None) -> tuple[Any, list[list[Any]]]:
    """The predictions of a data set's splits, and where their counts are not the cells': split, name, ours, theirs."""
    pa, parts, differs = _pyarrow(), [], list[list[Any]]()
    data = load_dataset(cells[0].dataset, data_dir, download=False)
    if data.checksum != cells[0].checksum:
        raise ValueError(f"data set {cells[0].dataset!r} is not the one that the cells were run on")
    for cell, record in zip(cells, records, strict=True):
        columns = predict_cell(cell, record, data)
        count = len(columns["row"])
        for name, row in zip(_NAMES, _rows(record), strict=True):
            right = int((columns[name] == columns["truth"]).sum())
            if right != row["test"]:
                differs.append([cell.split, name, right, int(row["test"])])
        names = pa.array([cell.dataset] * count).dictionary_encode()
        parts.append(pa.table({"dataset": names, "split": np.full(count, cell.split), **columns}).cast(_schema()))
    return pa.concat_tables(parts).unify_dictionaries().combine_chunks(), differs


def _write(folder: Path, name: str, facts: dict[str, Any], tables: dict[str, Any]) -> None:
    pa, buffer = _pyarrow(), io.BytesIO()
    table = pa.concat_tables(tables[dataset] for dataset in sorted(tables)).unify_dictionaries().combine_chunks()
    pa.parquet.write_table(
        table, buffer, compression="zstd", compression_level=19, use_dictionary=["dataset"],
        column_encoding={"row": "DELTA_BINARY_PACKED", "split": "DELTA_BINARY_PACKED"}, store_schema=True,
    )  # fmt: skip
    write_whole(folder / name, buffer.getvalue())
    index = read_index(folder)
    index["files"][name] = {**facts, "rows": table.num_rows, "sha256": hashlib.sha256(buffer.getvalue()).hexdigest()}
    write_whole(folder / INDEX, json.dumps(index, sort_keys=True, indent=1) + "\n")


def read_index(folder: Path) -> dict[str, Any]:
    """What a folder holds; an empty index if there is none."""
    path = folder / INDEX
    index: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"files": {}}
    if index.setdefault("format", FORMAT) != FORMAT:
        raise PredictionsError(f"{path} has format {index['format']!r}, but this closecall reads {FORMAT}")
    return index


def _read(folder: Path, name: str) -> Any:
    """The table of a file, if its bytes, its columns and its rows are those that the index names."""
    pa, path, facts = _pyarrow(), folder / name, read_index(folder)["files"].get(name)
    if facts is None or not path.exists():
        raise PredictionsError(f"{path} is not there; `closecall publish --predictions SUITE` makes it")
    content = path.read_bytes()
    if hashlib.sha256(content).hexdigest() != facts["sha256"]:
        raise PredictionsError(f"{path} was changed: its SHA-256 is not that of {INDEX}")
    table = pa.parquet.read_table(io.BytesIO(content))
    if not table.schema.equals(_schema()) or table.num_rows != facts["rows"]:
        raise PredictionsError(f"{path} does not have the columns and rows that {INDEX} names")
    return table


def _tables(folder: Path, name: str) -> dict[str, Any]:
    pa = _pyarrow()
    try:
        table = _read(folder, name)
    except PredictionsError:  # a run that was ended between the two files: made again
        return {}
    names = table.column("dataset").cast(pa.string()).to_numpy()
    edges = [0, *(np.flatnonzero(names[1:] != names[:-1]) + 1).tolist(), len(names)]
    return {str(names[start]): table.slice(start, end - start) for start, end in itertools.pairwise(edges)}


def read_predictions(folder: str | Path, suite: str, protocol: str) -> Any:
    """The predictions of a suite under a protocol as a pandas frame; a file that was changed is refused.

    Parameters
    ----------
    folder : path
        Such as ``docs/results/predictions``.
    suite, protocol : str

    Returns
    -------
    frame : pandas.DataFrame
        A row for each test example of each split: ``dataset``, ``split``, ``row`` (of the data set as it is loaded),
        ``truth``, and ``logistic.average``, ``logistic.close_decay``, ``hinge.average``, ``hinge.close_decay``: True
        is the class +1.
    """
    return _read(Path(folder), f"{suite}-{protocol}-linear.parquet").to_pandas()

"""Names of data sets: how a name or path becomes a `Dataset`, and which sets are available locally."""

import difflib
import hashlib
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from closecall._names import lookup
from closecall.table.read.dataset import DataError
from closecall.table.read.files import SEPARATORS, expanded, suffix_of
from closecall.table.read.sheet import read_file

from .catalogue import FAN8_FILES, OPENML100, PMLB94, PMLB_GONE, PMLB_OF_2017, SUITES, pmlb_today
from .dataset import Dataset
from .embedded import EMBEDDED, embedded
from .files import csv_rows, from_frame, from_sheet, read_bytes, read_table
from .remote import fetch_openml, fetch_pmlb, not_at_hand, read_pmlb

#: Without separators or a leading dot, a name cannot lead outside the data directory.
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}")

_TASKS_BY_NAME = {name: task for task, (_, name) in OPENML100.items()}
_TASKS_BY_DATA_ID = {data_id: task for task, (data_id, _) in OPENML100.items()}

#: Where a name without a source is looked up; the sources are tried in this order.
KNOWN: dict[str, Mapping[str, object]] = {
    "embedded": EMBEDDED,
    "pmlb": {**PMLB94, **PMLB_OF_2017},
    "fan8": FAN8_FILES,
    "openml100": _TASKS_BY_NAME,
}


def data_directory(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the data directory: the one given, otherwise the value of CLOSECALL_DATA, otherwise the user's cache.

    Examples
    --------
    >>> data_directory("/tmp/sets").name
    'sets'
    """
    chosen = given or os.environ.get("CLOSECALL_DATA")
    if chosen:
        return expanded(chosen)
    caches = {"win32": os.environ.get("LOCALAPPDATA"), "darwin": "~/Library/Caches"}
    base = caches.get(sys.platform) or os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return expanded(base) / "closecall"


def resolve(name: str) -> tuple[str, str]:
    """Split a name into its source and the name within that source.

    Examples
    --------
    >>> resolve("monk3"), resolve("pmlb:monk3"), resolve("spambase"), resolve("mine/data.csv.gz")
    (('embedded', 'monk3'), ('pmlb', 'monk3'), ('pmlb', 'spambase'), ('file', 'mine/data.csv.gz'))
    """
    source, colon, rest = name.partition(":")
    if colon and source in (*LOADERS, "file"):
        if source != "file" and not NAME.fullmatch(rest):
            raise DataError(f"{name!r} does not name a data set; after the source, use letters, digits and _ . + -")
        return source, PMLB_OF_2017.get(rest, rest) if source == "pmlb" else rest
    if suffix_of(name):
        return "file", name
    for source, names in KNOWN.items():
        if name in names:
            return resolve(f"{source}:{name}")
    near = difflib.get_close_matches(name[:100], dict.fromkeys(each for names in KNOWN.values() for each in names), n=3)
    hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "."
    raise DataError(
        f"unknown data set {name[:100]!r}{hint} Use an embedded set ({', '.join(EMBEDDED)}), one of PMLB's 94, "
        f"'<source>:<name>' (where <source> is one of {', '.join((*LOADERS, 'file'))}), or the path of a .csv, .tsv or "
        ".parquet file"
    )


def load_dataset(
    name: str | os.PathLike[str],
    data_dir: str | os.PathLike[str] | None = None,
    *,
    target: str = "",
    download: bool = True,
) -> Dataset:
    """Load a data set by name or path; with ``download``, a missing PMLB or OpenML set is downloaded.

    A name can be ``monk3`` (looked up among the embedded sets, then in PMLB, the sets of Fan et al. and OpenML100),
    ``pmlb:monk3``, ``openml:31`` (the id of an OpenML data set), ``openml100:31`` (a task of the suite, by id or name),
    ``fan8:splice3175``, or the path to a CSV, TSV or Parquet file (``.gz`` may follow). ``target`` names the target
    column of a file; the default is the column named target, class, label or y, or else the last one. ``DataError``, a
    ``ValueError``, states why a set cannot be used; its subclass ``NotAtHandError`` states that the set is not on this
    machine and cannot be fetched.

    Examples
    --------
    >>> load_dataset("tic-tac-toe").X.shape
    (958, 9)
    """
    source, rest = resolve(name) if isinstance(name, str) else ("file", os.fspath(name))
    if source == "file":
        if not suffix_of(rest):
            raise DataError(f"{rest}: unknown kind of file; use {', '.join(SEPARATORS)} (.gz may follow)")
        title = Path(rest).name.removesuffix(".gz").rpartition(".")[0] or Path(rest).name
        return replace(from_sheet(read_file(rest, target)), name=title)
    return LOADERS[source](rest, data_directory(data_dir), download)


def at_hand(name: str, data_dir: str | os.PathLike[str] | None = None) -> bool:
    """Return whether a set can be loaded without a download (whether its file exists; the file is not read)."""
    source, rest = resolve(name)
    if source in ("embedded", "file"):
        return source == "embedded" or Path(rest).is_file()
    return _place(source, rest, data_directory(data_dir)).exists()


def available(suite: str, data_dir: str | os.PathLike[str] | None = None) -> list[str]:
    """Return the members of a suite that can be loaded without a download.

    Examples
    --------
    >>> available("embedded")[0]
    'embedded:corral'
    """
    return [name for name in lookup(SUITES, suite, "suite") if at_hand(name, data_dir)]


def _place(source: str, name: str, directory: Path) -> Path:
    """Return the path where a set is stored, or where it would be stored after a download."""
    if source == "pmlb":  # the current package uses the current spelling in its cache
        spellings = [pmlb_today(name), name] if name in PMLB94 else [name]
        places = [directory / "pmlb" / each / f"{each}.tsv.gz" for each in spellings]
    elif source == "fan8":
        places = [directory / "fan8" / f"{name}.csv.gz"]
    else:
        task, data_id = _openml_ids(source, name)
        local = [] if task is None else [directory / "openml100" / f"{task}_{OPENML100[task][1]}.csv.gz"]
        places = [*local, directory / "openml" / str(data_id) / "meta.json"]
    found = next((place for place in places if place.exists()), places[-1])
    if not found.resolve().is_relative_to(directory.resolve()):
        raise DataError(
            f"{str(found)!r} is a symbolic link that points outside the data directory; copy the file there or load it "
            "by path"
        )
    return found


def _openml_ids(source: str, name: str) -> tuple[int | None, int]:
    """Return the ids of the task in the suite (None if there is no such task) and of the data set on OpenML."""
    if source == "openml":
        if not name.isascii() or not name.isdigit():
            raise DataError(f"'openml:' takes a data set id, as in 'openml:31'; got {name!r} (or use 'openml100:')")
        return _TASKS_BY_DATA_ID.get(int(name)), int(name)
    task = int(name) if name.isascii() and name.isdigit() else _TASKS_BY_NAME.get(name, -1)
    if task not in OPENML100:
        raise DataError(f"{name!r} is not one of the 54 binary tasks of OpenML100; pass an id or name from that suite")
    return task, OPENML100[task][0]


def _offline(what: str, name: str, place: Path) -> DataError:
    recipe = f"it (for example, by loading {name!r} with downloads enabled)"
    return not_at_hand(what, "downloading is off", recipe, place)


def _load_pmlb(name: str, directory: Path, download: bool) -> Dataset:
    path = _place("pmlb", name, directory)
    if not path.exists():
        if not download and name not in PMLB_GONE:  # for these, fetch_pmlb explains why there is no download
            raise _offline(f"PMLB's {name!r}", f"pmlb:{name}", path)
        fetch_pmlb(name, path)
    return read_pmlb(name, path)


def _load_openml(name: str, directory: Path, download: bool, source: str = "openml") -> Dataset:
    task, data_id = _openml_ids(source, name)
    place = _place(source, name, directory)
    if task is not None and place.suffix == ".gz":
        return _read_task(task, data_id, place)
    folder = place.parent
    if not place.exists():
        if not download:
            raise _offline(f"OpenML data set {data_id}", f"openml:{data_id}", folder)
        fetch_openml(data_id, folder)
    meta = _read_meta(folder)
    frame = read_table(folder / "data.csv.gz", meta["target"], meta["nominal"])
    version = f"{data_id}, version {meta['version']}"
    return from_frame(
        frame, meta["target"], name=meta["name"], source="openml", version=version, nominal=meta["nominal"]
    )


def _read_task(task: int, data_id: int, path: Path) -> Dataset:
    """Read a file in the local OpenML100 layout, with its column types from feature_types.csv if that file exists."""
    types = path.with_name("feature_types.csv")
    rows = csv_rows(types) if types.exists() else []
    nominal = {row["feature"] for row in rows if (row["task_id"], row["type"]) == (str(task), "nominal")}
    frame = read_table(path, "target", nominal)
    return from_frame(frame, "target", name=OPENML100[task][1], source="openml", version=f"{data_id}", nominal=nominal)


def _read_meta(place: Path) -> dict[str, Any]:
    try:
        meta: dict[str, Any] = json.loads(read_bytes(place / "meta.json", limit=1 << 24))
        same = meta["sha256"] == hashlib.sha256((place / "data.csv.gz").read_bytes()).hexdigest()
        if not same or {type(meta[key]) for key in ("name", "version", "target")} != {str}:
            raise ValueError("it differs from the download")
        return {**meta, "nominal": list(map(str, meta["nominal"]))}
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(f"{place} is damaged ({error}); delete it and load the data set again") from error


def _load_fan8(name: str, directory: Path, download: bool) -> Dataset:
    rows, features, origin = lookup(FAN8_FILES, name, "set of Fan et al.")
    path = _place("fan8", name, directory)
    if not path.exists():
        recipe = f"{origin}, as a table with a header and the column 'target',"
        raise not_at_hand(f"Fan et al.'s {name!r}", "neither PMLB nor OpenML has it in this form", recipe, path)
    data = from_frame(read_table(path, "target"), "target", name=name, source="fan8", version="1")
    if data.X.shape != (rows, features):
        raise DataError(f"{path} should have {rows} rows x {features} features, not {data.X.shape}; fetch {origin}")
    return data


#: Every source of named sets, keyed by the word before the colon.
LOADERS: dict[str, Callable[[str, Path, bool], Dataset]] = {
    "embedded": lambda name, directory, download: embedded(name),
    "pmlb": _load_pmlb,
    "openml": _load_openml,
    "openml100": partial(_load_openml, source="openml100"),
    "fan8": _load_fan8,
}

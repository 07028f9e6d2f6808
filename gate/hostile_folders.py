"""Folders of compact results of an attacker: ``closecall import`` takes all of one, or nothing and says why."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from gate.hostile_files import flip, json_like, nasty, refusing, spoil
from gate.hostile_stores import HOSTILE, make_store, run_command, scripts_in
from gate.torture_numbers import Finding
from reproduction.run.compact import CompactError
from reproduction.run.exchange import RUNS, export_store, import_folder
from reproduction.run.store import Store, StoreError


def exported(outside: Path, text: str = "plain") -> Path:
    """A folder as ``closecall export`` writes it: two cells, everything that can be text being ``text``."""
    source, folder = outside / "source", outside / "folder"
    source.mkdir()
    with Store(make_store(source, text=text)) as store:
        export_store(store, folder)
    return folder


def _spoil_json(rng: np.random.Generator, folder: Path) -> None:
    content = json.loads((folder / RUNS).read_text())
    new = spoil(rng, content) if rng.random() < 0.9 else json_like(rng)
    text = json.dumps(new) if rng.random() < 0.95 else "[" * 100_000
    (folder / RUNS).write_text(text)


def _spoil_bytes(rng: np.random.Generator, folder: Path) -> None:
    path = sorted(folder.iterdir())[int(rng.integers(2))]
    path.write_bytes(flip(rng, path.read_bytes()))


def _spoil_values(rng: np.random.Generator, folder: Path) -> None:
    """Some values of the cells changed, and the file packed again as if nothing had been."""
    (path,) = folder.glob("*.csv.gz")
    table = list(csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode(), newline="")))
    for _ in range(int(rng.integers(1, 3))):
        row = table[int(rng.integers(1, 3)) if rng.random() < 0.9 else 0]
        other = str(rng.choice([*map(str, range(52)), *table[1]]))
        row[int(rng.integers(len(row)))] = nasty(rng) if rng.random() < 0.3 else other
    if rng.random() < 0.1:
        table.append(table[-1])
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(table)
    path.write_bytes(gzip.compress(buffer.getvalue().encode("utf-8", "surrogatepass")))


def _swap_names(rng: np.random.Generator, folder: Path) -> None:
    """The list of files names another one, inside the folder or out of it."""
    content = json.loads((folder / RUNS).read_text())
    (count,) = content["files"].values()
    name = str(rng.choice(["../secret.csv.gz", "/etc/passwd", "x.csv.gz", "..", "a/b.csv.gz", "runs.json", nasty(rng)]))
    content["files"] = {name: count}
    (folder / RUNS).write_text(json.dumps(content))


_WAYS: tuple[Callable[[np.random.Generator, Path], None], ...] = (_spoil_json, _spoil_bytes, _spoil_values, _swap_names)


def attack_folders(seed: int) -> str:
    """A folder spoilt in one way, taken whole or refused; what was taken is then shown, and nothing in it runs."""
    rng = np.random.default_rng([seed, 24])
    with tempfile.TemporaryDirectory() as place, refusing(f"folder {seed}", CompactError, StoreError):
        outside = Path(place)
        folder = exported(outside, HOSTILE if rng.random() < 0.3 else "plain")
        _WAYS[int(rng.choice(len(_WAYS), p=(0.3, 0.1, 0.5, 0.1)))](rng, folder)
        (outside / "in").mkdir()
        path = outside / "in" / "store.sqlite"
        with Store(path, write=True) as store:
            try:
                added = import_folder(folder, store).added
            except CompactError:
                if store.done() or store.runs():
                    raise Finding(f"folder {seed}: refused, but something of it is in the store") from None
                raise
        with Store(path) as store:
            if len(list(store.records(sorted(store.done())))) != added:
                raise Finding(f"folder {seed}: {added} cells were taken, {len(store.done())} are there")
        _show(seed, outside, rng.random() < 0.1)
    return "ok"


def _show(seed: int, outside: Path, whole: bool) -> None:
    folder = outside / "in"
    code, told = run_command(["report" if whole else "status", "--out", str(folder)], folder)
    if code not in (0, 1, 3) or "Traceback" in told:
        raise Finding(f"folder {seed}: exit {code}: {told[-600:]}")
    page = folder / "report.html"
    found = scripts_in(page.read_text()) if page.exists() else []
    if found or sorted(each.name for each in outside.iterdir()) != ["folder", "in", "source"]:
        raise Finding(f"folder {seed}: {found[:3] or 'something was written outside its folder'}")


ATTACKS: dict[str, Callable[[int], str]] = {"folders": attack_folders}

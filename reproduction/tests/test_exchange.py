"""Export and import: tables stay the same, invalid files are rejected, and finished cells are not run again."""

import csv
import gzip
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from closecall import cli
from gate.fault_helpers import inline
from reproduction.app import app
from reproduction.pages.formats import to_csv, to_markdown
from reproduction.pages.tables import suite_tables
from reproduction.protocol.grid import ROW, choose, k_grid
from reproduction.protocol.plan import Cell, RunOptions
from reproduction.run.cell import run_cell
from reproduction.run.compact import PLACES, CompactError, spell, unspell
from reproduction.run.exchange import RUNS, export_store, import_folder, read_folder
from reproduction.run.jobs import Job, prepare
from reproduction.run.record import Record
from reproduction.run.run import drive
from reproduction.run.scores import Archive, Hole
from reproduction.run.store import Store
from reproduction.tests.helpers import job_of

SIZES = (277, 139, 138)
JOB = job_of(
    ("embedded:monk3", "embedded:corral"), holes=[Hole("openml100:219", "save it as /somebody/data/openml/151")]
)


def record_of(cell: Cell, seed: int = 0) -> Record:
    """Return a grid of invented counts with many ties on the validation part."""
    rng = np.random.default_rng([seed, cell.split, len(cell.dataset), len(cell.protocol)])
    blocks = []
    for loss, method in PLACES:
        for k in k_grid(SIZES[0]) if method in ("close", "close_decay", "atk", "top") else SIZES[:1]:
            rows = np.zeros(3, ROW)
            rows["loss"], rows["method"], rows["k"], rows["alpha"] = loss, method, k, (1e-5, 1.0, 1e5)
            rows["train"], rows["test"] = rng.integers(150, SIZES[0], 3), rng.integers(80, SIZES[2], 3)
            rows["validation"], rows["n_iter"] = rng.choice([100, 120, 120, 120], 3), rng.integers(1, 1000, 3)
            rows["converged"] = rng.random(3) < 0.5
            blocks.append(rows)
    return Record(cell.key, "done", np.concatenate(blocks), SIZES, 6, 1.25, notes=("2 columns, dropped",))


def fill(path: Path, job: Job, cells: list[Cell] | None = None) -> Path:
    with Store(path / "store.sqlite", write=True) as store:
        request = {"arguments": ["reproduce", "--out", str(path), "--splits", "3"], "jobs": [job.as_json()]}
        store.begin_run(request, {"python": "3.11", "cores": 2})
        for cell in job.cells() if cells is None else cells:
            store.add(cell, record_of(cell))
        store.finish_run()
    return path


def tables_of(path: Path) -> dict[str, str]:
    with Store(path / "store.sqlite") as store:
        found = Archive(store).gather(JOB.cells(), JOB.holes)
    return {table.name: to_csv(table) + to_markdown(table) for scores in found for table in suite_tables(scores, [])}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a store and its export once; every test gets a copy."""
    folder = fill(tmp_path_factory.mktemp("made") / "first", JOB).parent
    with Store(folder / "first" / "store.sqlite") as store:
        export_store(store, folder / "files")
    return folder


@pytest.fixture
def exported(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path / "files"


def into(folder: Path, files: Path) -> tuple[int, int]:
    with Store(folder / "store.sqlite", write=True) as store:
        return import_folder(files, store)


def test_tables_are_the_same_after_the_way_through_the_files(exported: Path, tmp_path: Path) -> None:
    assert into(tmp_path / "second", exported) == (12, 0)
    assert tables_of(tmp_path / "second") == tables_of(tmp_path / "first")
    with Store(tmp_path / "first" / "store.sqlite") as first, Store(tmp_path / "second" / "store.sqlite") as second:
        assert first.done() == second.done() == {cell.key for cell in JOB.cells()}
        assert sorted(map(repr, first.cells())) == sorted(map(repr, second.cells()))
        for cell in JOB.cells():
            (whole,), (compact,) = first.records([cell.key]), second.records([cell.key])
            chosen = choose(whole.rows, cell.protocol)
            names = [name for name in ROW.names or () if name != "objective"]
            assert (chosen[names] == choose(compact.rows, cell.protocol)[names]).all()
            assert (whole.notes, whole.features, whole.seconds) == (compact.notes, compact.features, compact.seconds)


def test_files_are_the_same_for_the_same_results_and_say_nothing_of_the_machine(exported: Path, tmp_path: Path) -> None:
    into(tmp_path / "second", exported)
    with Store(tmp_path / "second" / "store.sqlite") as store:
        export_store(store, tmp_path / "again")
    for path in sorted(exported.iterdir()):
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes(), path.name
    runs = (exported / RUNS).read_text()
    assert str(tmp_path) not in runs
    assert "/somebody" not in runs
    assert "openml/151" in runs
    assert json.loads(runs)["runs"][0]["arguments"] == ["reproduce", "--splits", "3"]


def test_import_is_idempotent_and_leaves_whole_records_alone(exported: Path, tmp_path: Path) -> None:
    into(tmp_path / "second", exported)
    before = (tmp_path / "second" / "store.sqlite").stat().st_size
    assert into(tmp_path / "second", exported) == (0, 12)
    with Store(tmp_path / "second" / "store.sqlite") as store:
        assert len(store.runs()) == 1
        assert (tmp_path / "second" / "store.sqlite").stat().st_size == before
    assert into(tmp_path / "first", exported) == (0, 12)
    with Store(tmp_path / "first" / "store.sqlite") as store:
        assert not any(run["request"].get("compact") for run in store.runs())


def test_import_adds_to_what_is_there_and_replaces_failures(exported: Path, tmp_path: Path) -> None:
    cells = JOB.cells()
    mixed = fill(tmp_path / "mixed", JOB, cells[:4])
    with Store(mixed / "store.sqlite", write=True) as store:
        store.begin_run({}, {})
        store.add(cells[5], Record(cells[5].key, "failed", error="its worker died"))
    assert into(mixed, exported) == (8, 4)
    with Store(mixed / "store.sqlite") as store:
        imported = {run["id"] for run in store.runs() if run["request"].get("compact")}
        compact = {key for key, run in store.written_by().items() if run in imported}
        assert compact == {cell.key for cell in cells[4:]}
        assert store.failures() == {}


def test_export_does_not_lose_cells_that_only_the_folder_has(exported: Path, tmp_path: Path) -> None:
    fill(tmp_path / "other", JOB, JOB.cells()[:2])
    with Store(tmp_path / "other" / "store.sqlite") as store, pytest.raises(ValueError, match=r"10 cells.*import"):
        export_store(store, exported)
    assert len(read_folder(exported).lines) == 12


def test_hostile_names_travel_unchanged_and_are_no_formulas(tmp_path: Path) -> None:
    names = ("=cmd|' /C calc'!A0", 'a\r\nb,"c"\x1b[31m', "-1+1", "'quoted", "name\\n with ünï")
    job = job_of(names, 1)
    fill(tmp_path / "first", job)
    with Store(tmp_path / "first" / "store.sqlite") as store:
        export_store(store, tmp_path / "files")
    assert {line.cell.dataset for line in read_folder(tmp_path / "files").lines.values()} == set(names)
    for path in (tmp_path / "files").glob("*.gz"):
        for row in csv.reader(io.StringIO(gzip.decompress(path.read_bytes()).decode())):
            assert not any(value.startswith(("=", "+", "-", "@")) or "\x1b" in value or "\n" in value for value in row)


@pytest.mark.parametrize("text", ["", "plain", "=1", "'", "a\tb", "\u202e", "\\x1b", "ü", "\ud800"])
def test_spelling_can_be_read_back(text: str) -> None:
    assert unspell(spell(text)) == text


def changed(old: str, new: str) -> Callable[[bytes], bytes]:
    return lambda packed: gzip.compress(gzip.decompress(packed).decode().replace(old, new, 1).encode())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda packed: gzip.compress(b"\n".join(gzip.decompress(packed).splitlines()[:-1]) + b"\n"), "has 5 cells"),
        (changed(f",{SIZES[0]},", ",many,"), "invalid literal"),
        (changed(",sound,", ",lenient,"), "unknown protocol"),
        (lambda packed: packed[:-20], "embedded-sound-linear"),
        (lambda packed: packed[:40] + b"\0" + packed[41:], "embedded-sound-linear"),
    ],
    ids=["one line fewer", "wrong type", "protocol", "cut", "damaged"],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    change: Callable[[bytes], bytes], message: str, exported: Path, tmp_path: Path
) -> None:
    path = exported / "embedded-sound-linear.csv.gz"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(CompactError, match=message):
        into(tmp_path / "second", exported)
    with Store(tmp_path / "second" / "store.sqlite") as store:
        assert store.done() == set()
        assert store.runs() == []


def test_a_false_list_of_runs_is_refused(exported: Path, tmp_path: Path) -> None:
    """Reject a path that leaves the folder, a wrong type, and brackets that would fill the memory."""
    content = json.loads((exported / RUNS).read_text())
    outside = json.dumps({**content, "files": {"../x.csv.gz": 1}})
    for text in (outside, "[]", "[" * 100_000):
        (exported / RUNS).write_text(text)
        with pytest.raises(CompactError, match=r"runs\.json"):
            into(tmp_path / "second", exported)
    (exported / RUNS).unlink()
    with pytest.raises(CompactError, match="closecall export"):
        into(tmp_path / "second", exported)


def test_an_import_that_breaks_off_writes_nothing(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, left = Store.add, [5]

    def breaking(self: Store, cell: Cell, record: Record) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        add(self, cell, record)

    monkeypatch.setattr(Store, "add", breaking)
    with pytest.raises(KeyboardInterrupt):
        into(tmp_path / "second", exported)
    with Store(tmp_path / "second" / "store.sqlite") as store:
        assert store.done() == set()
        assert store.runs() == []


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == cli.COMPLETE, result.output
    return result.output


def test_commands_and_no_finished_cell_runs_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = RunOptions(splits=2, max_iter=5, protocols=("sound",))
    (job,) = prepare(["overview"], options, only=["parity5"])
    with Store("first/store.sqlite", write=True) as store:
        first = list(drive(job.tasks(), store, inline, run_cell, {"jobs": [job.as_json()]}))
    assert [event.kind for event in first].count("done") == 2
    assert call("export", "--out", "first", "--to", "files").startswith("2 cells in 2 files")
    assert call("import", "files", "--out", "second").startswith("2 cells added to second; 0 were already there")
    asked = ("--datasets", "parity5", "--splits", "2", "--max-iter", "5", "--protocol", "sound")
    assert json.loads(call("reproduce", "--dry-run", *asked, "--out", "second", "--json"))["left"] == 0
    with Store("second/store.sqlite", write=True) as store:
        again = list(drive(job.tasks(), store, inline, run_cell, {"jobs": [job.as_json()]}))
    assert [event.kind for event in again] == ["planned", "finished"]
    assert "2 of the cells were imported" in " ".join(call("status", "--out", "second").split())

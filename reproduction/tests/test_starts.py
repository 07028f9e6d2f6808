"""Networks with a start for every setting: their cells, those with one start, and the control."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np

from closecall.network import train_grid
from reproduction.protocol import load_dataset
from reproduction.protocol.grid import EQUAL_STARTS, choose, grid, k_grid
from reproduction.protocol.plan import NETWORK_STEPS, TARGETS, Cell, RunOptions, Size
from reproduction.protocol.published import LOSSES, METHODS
from reproduction.run.campaign import jobs_of
from reproduction.run.cell import divide, new_starts, run_cell
from reproduction.run.exchange import export_store, import_folder, read_folder
from reproduction.run.jobs import Job, from_json
from reproduction.run.scores import Archive
from reproduction.run.store import Store

NAME = "embedded:corral"
SIZE = Size("fan8", NAME, load_dataset(NAME).checksum, 160, 6)


def cell(split: int = 0, recipe: int = 3, steps: int = 6) -> Cell:
    return Cell("fan8", NAME, SIZE.checksum, split, "network", "paper", steps, recipe=recipe)


def test_keys_of_before_are_the_same() -> None:
    """The literal was computed before networks had new starts."""
    old = Cell("pmlb94", "pmlb:monk3", "0" * 64, 3, "network", "paper", 200, recipe=2)
    assert old.key == "f8a664b209ccd0d3ff1b400b3364504c00bfbbaa190312905cf040196b0e121c"
    assert replace(old, recipe=3).key != old.key


def test_the_paper_has_new_starts_and_sound_keeps_its_one() -> None:
    options = RunOptions(1, None, ("paper", "sound"), ("linear", "network"), recipe=3)
    new, old = (Job(TARGETS["table3"], ("fan8",), replace(options, recipe=recipe), (SIZE,), ()) for recipe in (3, 2))
    found = {(task.cell.model, task.cell.protocol): task for task in new.tasks()}
    recipes = {place: task.cell.recipe for place, task in found.items()}
    assert recipes == {
        ("linear", "paper"): 1, ("linear", "sound"): 1, ("network", "paper"): 3, ("network", "sound"): 2,
    }  # fmt: skip
    assert {cell.max_iter for cell in new.cells() if cell.model == "network"} == {NETWORK_STEPS}
    assert found["network", "paper"].cost > found["network", "sound"].cost
    assert not new.contains(old)
    first = replace(old, options=replace(options, max_iter=NETWORK_STEPS, models=("network",), recipe=1))
    assert {cell.recipe for cell in first.cells()} == {1}  # as in an older store
    assert not old.contains(first)
    assert from_json(json.loads(json.dumps(new.as_json()))) == new
    assert "new starts" in new.described()[1]
    assert "new starts" not in old.described()[1]
    alone = Job(TARGETS["figure1"], (), options, (), ())  # `reproduce all --models network` also asks for this target
    assert "new starts" not in alone.described()[1]


def test_every_setting_is_trained_from_its_own_stream() -> None:
    record, parts = run_cell(cell()), divide(load_dataset(NAME), cell())
    problems = grid(parts.sizes[0])
    seeds = new_starts(cell(), problems)
    assert len(set(seeds)) == len(seeds)
    assert set(seeds).isdisjoint(new_starts(cell(1), problems))
    rng = np.random.default_rng(0)
    for place in rng.choice(len(problems), 6, replace=False):
        problem, row = problems[place], record.rows[place]
        alone = train_grid(
            parts.X[0], parts.y[0], [problem], max_iter=6, seed=seeds[place], learning_rate=0.1, penalize_intercept=True
        )
        assert (row["method"], row["alpha"]) == (problem.aggregate, problem.alpha)
        assert row["test"] == (alone.scores(parts.X[2])[0] * parts.y[2] > 0).sum()
    # With one start, close decay with k = n equals average; with new starts it is another draw of it.
    by = {(row["loss"], row["method"], row["k"], row["alpha"]): tuple(row[["train", "test"]]) for row in record.rows}
    same = run_cell(cell(recipe=2)).rows
    shared = {(row["loss"], row["method"], row["k"], row["alpha"]): tuple(row[["train", "test"]]) for row in same}
    n = float(parts.sizes[0])
    pairs = [[(loss, name, n, alpha) for name in ("average", "close_decay")]
             for loss in LOSSES for alpha in np.unique(record.rows["alpha"])]  # fmt: skip
    assert all(shared[one] == shared[other] for one, other in pairs)
    assert not all(by[one] == by[other] for one, other in pairs)


def test_the_control_has_as_many_networks_as_close_decay() -> None:
    record = run_cell(cell())
    for loss in LOSSES:
        rows = {name: record.rows[(record.rows["loss"] == loss) & (record.rows["method"] == name)]
                for name in (*METHODS, EQUAL_STARTS)}  # fmt: skip
        assert len(rows[EQUAL_STARTS]) == len(rows["close_decay"]) == 11 * len(k_grid(record.sizes[0]))
        fields = ["alpha", "train", "validation", "test"]
        assert {tuple(row[fields]) for row in rows["average"]} <= {tuple(row[fields]) for row in rows[EQUAL_STARTS]}
        assert len({tuple(row[fields]) for row in rows[EQUAL_STARTS]}) > len(rows["average"])
        best = {str(row["method"]): row["validation"] for row in choose(record.rows, "paper") if row["loss"] == loss}
        assert best[EQUAL_STARTS] == rows[EQUAL_STARTS]["validation"].max() >= best["average"]


def test_cells_travel_beside_those_of_before(tmp_path: Path) -> None:
    """Cells of both recipes in one store are exported to separate files, imported, and gathered by recipe."""
    cells = [cell(split, recipe) for recipe in (2, 3) for split in (0, 1)]
    jobs = [
        Job(TARGETS["table3"], ("fan8",), RunOptions(2, 6, ("paper",), ("network",), recipe=recipe), (SIZE,), ())
        for recipe in (2, 3)
    ]
    with Store(tmp_path / "store.sqlite", write=True) as store:
        store.begin_run({"jobs": [job.as_json() for job in jobs]}, {})
        for each in cells:
            store.add(each, run_cell(each))
        store.finish_run()
        export_store(store, tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").glob("*.gz")} == {
        "fan8-paper-network.csv.gz", "fan8-paper-network-starts.csv.gz",
    }  # fmt: skip
    campaign = read_folder(tmp_path / "out")
    assert campaign.done() == {each.key for each in cells}
    with Store(tmp_path / "other.sqlite", write=True) as other:
        assert import_folder(tmp_path / "out", other)[0] == 4
    (job,) = [job for job in jobs_of(campaign) if job.target.name == "table3" and job.models == ("network",)]
    assert {each.recipe for each in job.cells()} == {3}  # as complete, and newer
    (scores,) = Archive(campaign).gather(job.cells())
    assert scores.methods == (*METHODS, EQUAL_STARTS)
    (before,) = Archive(campaign).gather(cells[:2])
    assert before.methods == METHODS

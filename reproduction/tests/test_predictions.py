"""Predictions of every test example: made, resumed and read back, and asked a new question."""

from __future__ import annotations

import json
import runpy
import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

pytest.importorskip("pyarrow", reason="install closecall[bench]")
pytest.importorskip("typer", reason="install closecall[bench]")
pytest.importorskip("altair", reason="install closecall[plots]")

from closecall import cli
from closecall.report.blocks import Items
from closecall.solvers import compiled
from gate.fault_helpers import inline
from reproduction.pages import publish
from reproduction.pages.examples import predictions_page
from reproduction.protocol import load_dataset
from reproduction.protocol.plan import RunOptions
from reproduction.run import predictions
from reproduction.run.campaign import read_campaign
from reproduction.run.cell import divide, run_cell
from reproduction.run.exchange import export_store
from reproduction.run.jobs import prepare
from reproduction.run.predictions import INDEX, PredictionsError, make_predictions, read_index, read_predictions
from reproduction.run.run import drive
from reproduction.run.store import Store
from tests import ROOT

SETS = ("embedded:corral", "embedded:monk3")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A published folder of two sets, two splits and both protocols, with the predictions; made by the command."""
    folder = tmp_path_factory.mktemp("predictions")
    (job,) = prepare(["overview"], RunOptions(2, 40), only=SETS)
    with Store(folder / "store.sqlite", write=True) as store:
        list(drive(job.tasks(), store, inline, run_cell, {"arguments": [], "jobs": [job.as_json()]}))
        export_store(store, folder / "site" / "cells")
    arguments = ["closecall", "publish", "--to", str(folder / "site"), "--predictions", "embedded"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", arguments)
        patch.setattr(publish.write_pages, "__defaults__", (("table3",), print))  # the other pages take their time
        with pytest.raises(SystemExit) as leaving:
            cli.main()
    assert not leaving.value.code
    return folder / "site"


@pytest.mark.parametrize("protocol", ["paper", "sound"])
def test_they_are_those_of_the_chosen_settings(site: Path, protocol: str) -> None:
    frame = read_predictions(site / "predictions", "embedded", protocol)
    facts = read_index(site / "predictions")["files"][f"embedded-{protocol}-linear.parquet"]
    campaign = read_campaign(site / "cells")
    lines = [line for line in campaign.lines.values() if line.cell.protocol == protocol]
    assert len(lines) == 4
    for line in lines:
        mine = frame[(frame["dataset"] == line.cell.dataset) & (frame["split"] == line.cell.split)]
        data = load_dataset(line.cell.dataset)
        assert (mine["truth"].to_numpy() == (data.signs()[mine["row"]] > 0)).all(), "the rows are those of the data set"
        assert len(mine) == line.record.sizes[2] == mine["row"].nunique()
        for row in line.record.rows:
            if row["method"] in ("average", "close_decay"):
                right = (mine[f"{row['loss']}.{row['method']}"] == mine["truth"]).sum()
                name, test = f"{row['loss']}.{row['method']}", int(row["test"])
                listed = facts["datasets"][line.cell.dataset]["differs"]
                assert ([line.cell.split, name, right, test] in listed) == (right != test), (
                    "every other count is listed"
                )
                # 40 steps settle nothing: without the kernel the rounding of a batch turns some of them.
                assert right == test or compiled.LIBRARY is None, "the counts of the cells"
        if protocol == "sound":  # the intercept is free, as scikit-learn's: the same model, but for rounding
            division = divide(data, line.cell)
            (row,) = [r for r in line.record.rows if (r["loss"], r["method"]) == ("logistic", "average")]
            peer = LogisticRegression(C=1 / row["alpha"], max_iter=1000).fit(division.X[0], division.y[0])
            said = peer.predict(division.X[2])[np.argsort(division.rows[2])] > 0
            assert (said == mine["logistic.average"]).mean() > 0.97


def test_what_is_there_is_not_made_again(site: Path) -> None:
    told: list[str] = []
    folder, campaign = site / "predictions", read_campaign(site / "cells")
    before = {path.name: path.read_bytes() for path in folder.glob("*.parquet")}
    make_predictions(folder, campaign, "embedded", tell=told.append)
    assert told == []
    index = json.loads((folder / INDEX).read_text())
    index["files"]["embedded-sound-linear.parquet"]["datasets"][SETS[0]]["digest"] = "of other cells"
    (folder / INDEX).write_text(json.dumps(index))
    make_predictions(folder, campaign, "embedded", tell=told.append)
    assert told == [f"predicting embedded, sound, {SETS[0]}"]
    assert {path.name: path.read_bytes() for path in folder.glob("*.parquet")} == before


def test_what_is_too_large_is_left_out_and_named(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(predictions, "MOST_VALUES", 2000)
    make_predictions(tmp_path, read_campaign(site / "cells"), "embedded")
    frame = read_predictions(tmp_path, "embedded", "sound")
    assert set(frame["dataset"]) == {"embedded:corral"}, "monk3 has 3,324 values"
    assert json.loads((tmp_path / INDEX).read_text())["files"]["embedded-sound-linear.parquet"]["left_out"] == [SETS[1]]
    named = [str(item) for block in predictions_page(tmp_path) if isinstance(block, Items) for item in block.items]
    assert any("leaves out" in line and "monk3" in line for line in named)


def test_a_changed_file_is_refused_and_made_again(site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    for path in (site / "predictions").iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    path = folder / "embedded-paper-linear.parquet"
    content = path.read_bytes()
    path.write_bytes(content[:40] + bytes([content[40] ^ 1]) + content[41:])
    with pytest.raises(PredictionsError, match="was changed"):
        read_predictions(folder, "embedded", "paper")
    with pytest.raises(PredictionsError, match="is not there"):
        read_predictions(folder, "pmlb94", "paper")
    make_predictions(folder, read_campaign(site / "cells"), "embedded")
    assert path.read_bytes() == content


def test_the_page_names_the_files(site: Path) -> None:
    page = (site / "predictions.md").read_text()
    assert "embedded-paper-linear.parquet" in page
    assert "predictions.md" in (site / "index.md").read_text()
    assert 'read_predictions("docs/results/predictions", "embedded", "paper")' in page


def test_the_example_of_a_new_test_counts_disagreements(site: Path) -> None:
    """Its table against a count example by example."""
    mcnemar = runpy.run_path(str(ROOT / "examples" / "new_test.py"))["mcnemar"]
    frame = read_predictions(site / "predictions", "embedded", "sound")
    found = mcnemar(frame, "hinge", 1)
    for name, row in found.iterrows():
        alone = [0, 0]
        for one in frame[(frame["dataset"] == name) & (frame["split"] == 1)].to_dict("records"):
            close, average = (one[f"hinge.{method}"] == one["truth"] for method in ("close_decay", "average"))
            alone[0] += close and not average
            alone[1] += average and not close
        assert [row["close_decay"], row["average"]] == alone
        assert 0 <= row["p"] <= 1

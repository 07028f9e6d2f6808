"""The study of noise, outliers and ambiguity: spoiled as said, rivals' losses as published, intervals as computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from closecall.losses import LOSSES
from gate.fault_helpers import inline
from reproduction.studies import common, contamination as study


def test_the_rivals_are_those_of_torch_and_leave_nothing_behind() -> None:
    torch = pytest.importorskip("torch", reason='the judge needs: pip install "closecall[torch]"')
    margins, before = np.linspace(-8, 8, 81), dict(LOSSES)
    logits = torch.tensor(np.column_stack([np.zeros(81), margins]))
    labels = torch.ones(81, dtype=torch.int64)
    for share in study.SMOOTHING:
        judge = torch.nn.functional.cross_entropy(logits, labels, reduction="none", label_smoothing=share)
        np.testing.assert_allclose(study.smoothed(share).value(margins), judge, atol=1e-12)
    for q in study.EXPONENTS:
        probability = torch.softmax(logits, dim=1)[:, 1].numpy()
        np.testing.assert_allclose(study.generalised(q).value(margins), (1 - probability**q) / q, atol=1e-12)
    with study.rivals():
        added = [loss for name, loss in LOSSES.items() if name not in before]
        assert len(added) == len(study.SMOOTHING) + len(study.EXPONENTS)
        for loss in added:
            slopes = (loss.value(margins + 1e-5) - loss.value(margins - 1e-5)) / 2e-5
            np.testing.assert_allclose(loss.slope(margins), slopes, atol=1e-8)
            bends = (loss.slope(margins + 1e-5) - loss.slope(margins - 1e-5)) / 2e-5
            assert np.abs(bends).max() <= loss.curvature + 1e-6
            assert loss.value(np.zeros(1))[0] == pytest.approx(loss.threshold)
    assert before == LOSSES


def test_only_what_is_learnt_from_is_spoiled() -> None:
    plain = study.divided("twonorm", "nothing", 3)
    for spoiled, more in (
        ("10 % labels flipped", 0),
        ("20 % labels flipped", 0),
        ("5 % outliers", 50),
        ("10 % ambiguous", 100),
    ):
        parts = study.divided("twonorm", spoiled, 3)
        assert (parts.y[2] == plain.y[2]).all()
        assert [len(y) - len(was) for y, was in zip(parts.y, plain.y, strict=True)] == [more, more // 2, 0]
        flipped = (parts.y[0][:1000] != plain.y[0]).mean()
        assert flipped == pytest.approx(float(spoiled[:2]) / 100 if "flipped" in spoiled else 0, abs=0.03)
        assert np.abs(parts.X[0].mean(axis=0)).max() < 1e-9  # scaled by the part as it is
    assert not np.array_equal(study.divided("twonorm", "nothing", 4).X[0], plain.X[0])


def test_outliers_defeat_the_average_of_a_linear_model() -> None:
    found = study.run_one({"set": "twonorm", "spoiled": "5 % outliers", "model": "linear", "split": 0})["accuracy"]
    assert set(found) == set(study.METHODS) - {study.MEMORY, study.STOPPED}
    assert found[study.CLOSE] > found[study.BASE] + 0.1


def test_mini_batches_have_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason='mini-batches need: pip install "closecall[torch]"')
    from reproduction.studies import contamination_torch

    monkeypatch.setattr(contamination_torch, "STEPS", 20)
    parts = study.divided("monk3", "nothing", 0)
    found = study.mini_batches(parts, 0)
    assert sorted(each.method for each in found) == sorted(study.METHODS)
    assert all(0 < each.validation <= parts.sizes[1] and 0 < each.test <= parts.sizes[2] for each in found)
    assert found == study.mini_batches(parts, 0)  # the seed decides everything


def test_gains_are_paired_and_their_intervals_students(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    scores = {
        ("network", spoiled, name, split): {method: float(rng.random()) for method in study.METHODS}
        for spoiled in study.SPOILED for name in study.SETS for split in range(study.FEWEST + 1)
    }  # fmt: skip
    names = ("model", "spoiled", "set", "split")
    keys = [dict(zip(names, key, strict=True)) for key in scores]
    settings = common.Settings(tmp_path)
    common.resume(
        settings, "contamination", keys[:-1], lambda key: {"accuracy": scores[*(key[n] for n in names)]}, inline
    )
    rows = study.table(settings)
    assert {row["seeds"] for row in rows} == {study.FEWEST}  # the last seed is not whole: what all cases have counts
    means = []
    for name in study.SETS:
        values = [scores["network", "nothing", name, split] for split in range(study.FEWEST)]
        gains = 100 * np.array([each[study.CLOSE] - each[study.BASE] for each in values])
        half = stats.t.ppf(0.975, 4) * gains.std(ddof=1) * np.sqrt(1 / 5 + 1 / 3)
        row = _row(rows, name)
        assert (row["mean"], row["low"], row["high"]) == pytest.approx(
            (gains.mean(), gains.mean() - half, gains.mean() + half)
        )
        means.append(gains.mean())
    low, high = stats.t.interval(0.95, 5, np.mean(means), stats.sem(means))
    assert (_row(rows, "all")["mean"], _row(rows, "all")["low"], _row(rows, "all")["high"]) == pytest.approx(
        (np.mean(means), low, high)
    )
    text = study.page(rows, tmp_path / "figure.svg")
    assert (tmp_path / "figure.svg").read_text().startswith("<svg")
    assert "- **network**" in text
    assert "5 seeds for network (not run far enough: linear, mini-batches)" in text


def _row(rows: list[common.Row], name: str) -> common.Row:
    wanted = ("network", "nothing", name, study.CLOSE)
    return next(row for row in rows if (row["model"], row["spoiled"], row["set"], row["method"]) == wanted)

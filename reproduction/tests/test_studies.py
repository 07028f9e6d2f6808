"""The studies: their numbers are right, nothing is run twice, and pages follow from their tables."""

import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from closecall.model_selection import GuardedClassifierCV
from closecall.paired import Gain
from gate.fault_helpers import inline
from reproduction.studies import common, level, referee
from reproduction.studies.__main__ import NAMES, experiment, main


def tight(page: str) -> str:
    """Return a page without the spaces that align its tables."""
    return re.sub(" +", " ", page)


def stored(tmp_path: Path, name: str, lines: Sequence[dict[str, Any]]) -> common.Settings:
    """Return settings with a store that holds these lines of a study."""
    settings = common.Settings(tmp_path)
    assert common.resume(settings, name, lines, lambda key: {}, inline) == len(lines)
    return settings


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    settings, calls = common.Settings(tmp_path), []

    def work(key: dict[str, Any]) -> dict[str, Any]:
        calls.append(key["i"])
        if calls == [0, 1, 2]:
            raise KeyboardInterrupt
        return {"square": np.int64(key["i"] ** 2)}

    keys = [{"i": i} for i in range(4)]
    assert common.resume(settings, "squares", keys[:2], work, inline) == 2
    with pytest.raises(KeyboardInterrupt):
        common.resume(settings, "squares", keys, work, inline)
    assert common.resume(settings, "squares", keys, work, inline) == 2
    assert calls == [0, 1, 2, 2, 3]
    assert common.lines_of(settings, "squares") == [{"i": i, "square": i**2} for i in range(4)]
    assert common.lines_of(settings, "cubes") == []


def test_no_time_means_no_work(tmp_path: Path) -> None:
    settings = common.Settings(tmp_path, seconds=-1)
    assert common.resume(settings, "none", [{"i": 1}], lambda key: {}, inline) == 0


def lines_of(values: dict[str, list[float]], name: str = "a") -> list[dict[str, Any]]:
    return [
        {"set": name, "split": split, "method": method, "accuracy": value, "seconds": 1.0}
        for method, scores in values.items()
        for split, value in enumerate(scores)
    ]


def test_gains_are_paired_by_split() -> None:
    """A method is compared on the splits on which it ran, with Nadeau and Bengio's p."""
    first, second = [0.8, 0.6, 0.7, 0.9], [0.85, 0.62, 0.71]
    rows = common.summarise(lines_of({"x": first, "y": second}), "x", ["x", "y"], test_over_train=0.5)
    row = rows[1]
    gains = 100 * (np.array(second) - first[:3])
    assert row["splits"] == 3
    assert row["gain"] == pytest.approx(gains.mean())
    assert row["gain_se"] == pytest.approx(stats.sem(gains))
    t = gains.mean() / np.sqrt((1 / 3 + 0.5) * gains.var(ddof=1))
    assert row["p"] == pytest.approx(2 * stats.t.sf(abs(t), 2))


def test_overall_counts_points_and_ranks() -> None:
    lines = [
        *lines_of({"x": [0.5, 0.5], "y": [0.52, 0.52]}, "a"),
        *lines_of({"x": [0.5, 0.5], "y": [0.48, 0.48]}, "b"),
        *lines_of({"x": [0.5, 0.5], "y": [0.505, 0.505]}, "c"),
    ]
    found = common.overall(common.summarise(lines, "x", ["x", "y"]), "x")[1]
    assert (found["up"], found["down"], found["sets"]) == (1, 1, 3)
    assert found["mean"] == pytest.approx(0.5 / 3)
    assert found["low"] <= found["mean"] <= found["high"]
    assert found["rank"] == pytest.approx(4 / 3)


def test_from_the_command_line_to_the_table(tmp_path: Path) -> None:
    options = ["--raw", str(tmp_path), "--out", str(tmp_path / "results")]
    main(["level", *options, "--sets", "time, 1 rules", "--splits", "1"])
    (row,) = common.read_csv(tmp_path / "results" / "beyond" / "level.csv")
    assert (row["case"], row["runs"]) == ("time, 1 rules", level.BATCH)


def test_pages_of_the_referees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page counts the sets that are a point better and worse, the distance to the best contender, and noise."""
    gains = {"a": 0.05, "b": 0.002, "c": -0.03, "d": 0.02}
    default, line = referee.GUARDS[referee.CHOICE], {"accuracy": 0.8, "seconds": 0.1, "judging": 0.1}
    of = dict.fromkeys(referee.MEMBERS, line) | {"forest": line | {"accuracy": 0.82}}
    rows = [
        {"name": f"pmlb:{name}", "split": split, "of": of, "challenger": "forest",
         "step": [gain, 0.011 if name == "d" else 0.02, 1e6, 500, "rows", (), 0.3, 0.1, 0.0]}
        for name, gain in gains.items() for split in range(3)
    ]  # fmt: skip
    noise = [
        {"step": [0.1 * (i < 5), 0.1 / default / (1.01 if i < 3 else 0.9), 1e6, 500, "rows", (), 0.3, 0.1, 0.0]}
        for i in range(19)
    ]
    noise.append({"step": [9.0, 0.1, 1e6, 500, "rows", (), 0.1, 0.2, 0.0]})  # is no better than guessing
    judged = {"referee": rows, "referee-noise": noise}
    monkeypatch.setattr(referee, "tables_of", lambda settings, store: judged[store])
    page = tight(
        common.page_of("referee", referee.page(referee.table(common.Settings(tmp_path)), tmp_path / "figure.svg"))
    )
    # The forest, 2 points better, is chosen where its gain exceeds the guard: on a and d, with 2 on a only.
    assert "than the baseline on 2 of 4 sets and at least a point worse on 0 of 4" in page
    assert "is 1.00 points below that of tuned RandomForest" in page
    assert "replaces the baseline in 3 of 20 runs (3.2% to 37.9%)" in page
    assert "With `guard=2` and the same fits, the choice is at least a point better on 1 of 4 sets" in page
    assert "on noise it replaces the baseline in 0 of 20 runs" in page
    assert "chooses among 11 penalties" in page


def test_stored_outcomes_are_judged_as_the_referee_judges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = partial(DecisionTreeClassifier, random_state=0)
    members = {"baseline": LogisticRegression, "bayes": GaussianNB, "tree": tree}
    monkeypatch.setattr(referee, "MEMBERS", members)
    keys = referee.of_members([{"noise": 1}, {"name": "embedded:monk3", "split": 0}])
    settings = common.Settings(tmp_path)
    common.resume(settings, "x", [*keys, {"noise": 2, "method": "bayes"}], referee.run_one, inline)
    for row in referee.tables_of(settings, "x"):
        X, y, unseen, truth = referee.table_of(row)
        named = {name: make() for name, make in members.items() if name != "baseline"}
        model = GuardedClassifierCV(LogisticRegression(), named, guard=1.0).fit(X, y)
        found = model.guard_report_["comparison"]
        *numbers, over, needed, _ = row["step"]
        assert (row["challenger"], numbers[0]) == (found["challenger"], pytest.approx(found["gain"]))
        assert Gain(*numbers).needed(1.0) == pytest.approx(found["needed"])
        assert level.left(row["step"], 1.0) == found["taken"]
        if found["gain"] > found["needed"]:
            assert (over, needed) == pytest.approx((found["over_guessing"], found["over_guessing_needed"]))
        if len(truth):
            assert row["of"]["tree"]["accuracy"] == members["tree"]().fit(X, y).score(unseen, truth)
    assert len(referee.tables_of(settings, "x")) == 2


@pytest.mark.parametrize(
    ("gain", "balanced", "passes"), [(0.005, 1.1, True), (0.005, 0.9, False), (-0.005, 5.0, False)]
)
def test_a_stored_comparison_is_judged_as_by_the_guard(gain: float, balanced: float, passes: bool) -> None:
    assert level.left([gain, 0.01, 1e6, 400, "rows", (), 0.3, 0.1, balanced], 1.0) == passes


def test_the_level_on_noise(tmp_path: Path) -> None:
    """Each case has the share of runs that left the baseline and the mean reported gain."""
    found = level.run_one({"case": "groups, 1 rules", "batch": 1})
    assert [len(steps) for steps in found["steps"]] == [1] * level.BATCH
    assert 0 < np.std([gain for ((gain, *_),) in found["steps"]]) < 0.5
    over = [1.0, 1e6, 400, "rows", (), np.nan, np.nan, np.nan]
    lines = [
        {"case": "plain, 20 rules", "batch": 0, "steps": [[[-0.02, *over]], [[-0.01, *over]], [[0.0, *over]]]},
        {"case": "plain, 20 rules", "batch": 1, "steps": [[[0.01, *over]], [[0.02, 0.005, *over[1:]]]]},
    ]
    rows = level.table(stored(tmp_path, "level", lines))
    assert [(row["runs"], row["taken"], row["gain"]) for row in rows] == [(5, 0.2, 0.0)]
    settings = common.Settings(tmp_path, out=tmp_path / "out", sets=["plain, 20 rules"])
    old = [{"case": case, "runs": 7} for case in ("plain, 1 rules", "plain, 20 rules", "a case of the past")]
    common.write_csv(tmp_path / "out" / "beyond" / "level.csv", old)
    kept = level.table(settings)
    assert [(row["case"], row["runs"]) for row in kept] == [("plain, 1 rules", 7), ("plain, 20 rules", 5)]
    text = tight(common.page_of("level", level.page(rows, tmp_path / "figure.svg")))
    assert "in at most 20.0% of the runs in each of 1 cases**" in text
    assert "(this share is largest for the case *20 rules, independent*)" in text
    assert "for rules is within two standard errors of 0 in 1 of 1 cases" in text


def test_every_experiment_has_a_name() -> None:
    assert [experiment(name).name for name in NAMES] == list(NAMES)

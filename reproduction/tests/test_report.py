"""What the report says: verdicts that follow from the numbers, a walk that ends where the solver ends, safe JSON."""

import base64
import json
import re

import numpy as np
import pytest

from closecall.objective import Problem
from closecall.report.formats import to_markdown
from closecall.report.html import Chart, read, to_json
from closecall.report.text import visible
from closecall.solvers.reference import solve_one
from reproduction.pages.figure5 import simulation_gains
from reproduction.pages.figures import simulations
from reproduction.pages.findings import findings, judge, result_rows
from reproduction.pages.report import FIRST, first_of
from reproduction.protocol.grid import LABELS
from reproduction.protocol.published import LOSSES, METHODS, PAIR_TABLES, table3_error
from reproduction.protocol.simulate import SIMULATIONS
from reproduction.protocol.synthetic import FIGURE1, figure1
from reproduction.run.scores import ALL_METHODS, Scores
from reproduction.tests.walk import ALPHA, STEPS, figure1_walks, walk


def made(shift: float, count: int, splits: int = 25) -> Scores:
    """Close decay ahead of average by ``shift`` plus noise far smaller, on every data set."""
    rng = np.random.default_rng(1)
    shape = (len(LOSSES), count, len(ALL_METHODS), splits)
    values = {name: 0.7 + 0.002 * rng.standard_normal(shape) for name in ("train", "validation", "test", "k", "alpha")}
    values["test"][:, :, METHODS.index("close_decay")] += shift
    names = ("pmlb:monk3", *(f"pmlb:set{i}" for i in range(1, count)))
    return Scores("sound", "linear", names, np.tile([554, 6], (count, 1)), tuple(ALL_METHODS), values, (), 300)


@pytest.mark.parametrize(
    ("shift", "count", "outcome"), [(0.03, 8, "ahead"), (-0.03, 8, "behind"), (0.0, 8, "level"), (0.03, 5, "few")]
)
def test_the_verdict_follows_the_results(shift: float, count: int, outcome: str) -> None:
    verdict = judge(made(shift, count), "hinge")
    assert verdict.outcome == outcome
    assert verdict.gain == pytest.approx(100 * shift, abs=0.1)
    assert verdict.wins + verdict.ties + verdict.losses == count
    assert (verdict.wins, verdict.losses) == (count * (shift > 0), count * (shift < 0))
    text = " ".join(verdict.sentences)
    assert f"better on {verdict.wins} of {count} data sets" in text
    assert f"worse on {verdict.losses} (" in text
    assert ("There are no gains." in text) == (shift < 0)
    assert ("has rank 1 " in text) == (shift > 0)


def test_a_headline_does_not_contradict_its_own_interval() -> None:
    """Eleven small gains and one large loss: Wilcoxon is sure, mean and median are above zero, the interval is not."""
    scores = made(0.006, 12)
    scores.values["test"][:, 3, METHODS.index("close_decay")] -= 0.065
    verdict = judge(scores, "hinge")
    low, high = (float(word.strip("(,")) for word in np.array(verdict.sentences[1].split())[[6, 8]])
    assert verdict.gain > 0
    assert float(verdict.sentences[1].rpartition("p = ")[2].rstrip(".")) < 0.05
    assert low < 0 < high
    assert verdict.outcome == "level"


@pytest.mark.parametrize(("sign", "outcome"), [(1, "lifted"), (-1, "pulled")])
def test_a_gain_that_few_sets_carry_is_not_called_no_difference(sign: int, outcome: str) -> None:
    """Four large gains, eight small losses: the interval of the mean is away from zero, Wilcoxon is not sure."""
    scores = made(-0.002 * sign, 12)
    scores.values["test"][:, :4, METHODS.index("close_decay")] += 0.12 * sign
    verdict = judge(scores, "hinge")
    low, high = (float(word.strip("(,")) for word in np.array(verdict.sentences[1].split())[[6, 8]])
    assert low * high > 0
    assert float(verdict.sentences[1].rpartition("p = ")[2].rstrip(".")) >= 0.05
    assert verdict.outcome == outcome
    assert "comes from a few data sets" in verdict.headline
    styled = set(re.findall(r"\.([a-z]+)", read("style.css")))
    assert outcome not in styled, "a card is of its outcome's class: no rule for something else may reach it"


def test_the_first_picture_is_of_the_first_numbers() -> None:
    captions = [f"{FIRST}, in points of test accuracy (linear model, {name} protocol, 5 splits)" for name in
                ("paper", "sound")]  # fmt: skip
    charts = [Chart(name, name, "", "") for name in ("Ranks", *captions)]
    chosen = first_of(charts)
    assert chosen is not None
    assert "sound" in chosen.caption
    assert first_of(charts[:2]) is charts[1]
    assert first_of(charts[:1]) is None


def test_targets_on_the_same_results_are_summed_up_once_and_the_paper_is_quoted() -> None:
    scores, table = made(0.03, 8), PAIR_TABLES["table1"]
    parts = [("pmlb94", scores, [table]), ("pmlb94", scores, [table])]
    (finding,) = findings(parts)
    assert "8 data sets" in finding.heading
    assert "The paper's Table 1: significantly better on 27%, worse on 0%" in " ".join(finding.verdicts[0].sentences)
    rows = result_rows(parts)
    assert len(rows) == len(LOSSES) * 8
    monk = rows[0]
    assert monk["paper: close decay"] == 100 - table3_error("monk3", "logistic", "close_decay")  # type: ignore[operator]
    assert rows[1]["paper: average"] is None
    assert monk["gain"] == pytest.approx(monk["close decay"] - monk["average"])


@pytest.mark.parametrize("name", FIGURE1)
def test_the_walk_is_the_solvers(name: str) -> None:
    """The slow walk ends within two errors of the reference solver, and its close calls number k."""
    X, y = figure1(name, 0)
    frames = walk(X[:, :1], y, 100)
    solution = solve_one(X[:, :1], y, Problem("logistic", "close_decay", 100, ALPHA), max_iter=STEPS)
    assert abs(frames[-1].errors - solution.errors) <= 2
    assert -frames[-1].intercept / frames[-1].slope == pytest.approx(-solution.intercept / solution.coef[0], abs=0.02)
    assert [frame.step for frame in frames] == list(range(STEPS + 1))
    # Examples so far away that their losses are equal in floats share the last places: never fewer than k.
    assert all(frame.close.sum() >= frame.k for frame in frames)
    assert frames[-1].close.sum() == 100
    average = solve_one(X[:, :1], y, Problem("logistic", "average", None, ALPHA))
    assert frames[STEPS // 3].slope == pytest.approx(average.coef[0], rel=1e-3)


def test_the_pages_walk_is_small_and_its_bits_are_the_close_calls() -> None:
    content = figure1_walks()
    kept = json.loads(read("walk.json", "reproduction.pages"))
    for name, found in content["sets"].items():  # the page's file is this walk, save for the last bits of a boundary
        mine = kept["sets"].pop(name)
        assert mine["points"] == found["points"]
        assert (mine["k"], mine["best"]) == (found["k"], found["best"])
        assert [frame[:2] for frame in mine["frames"]] == [frame[:2] for frame in found["frames"]]
        np.testing.assert_allclose([f[3] for f in mine["frames"]], [f[3] for f in found["frames"]], atol=2)
    assert not kept.pop("sets")
    assert kept == {"steps": STEPS, "alpha": ALPHA}
    assert len(json.dumps(content)) < 150_000
    for each in content["sets"].values():
        for _, k, _, errors, bits in each["frames"]:
            close = np.unpackbits(np.frombuffer(base64.b64decode(bits), np.uint8)).sum()
            assert k <= close <= len(each["points"])
            assert errors >= each["best"]
        assert close == k == each["k"]


def test_what_reaches_a_script_element_cannot_leave_it() -> None:
    hostile = "</script><!--&\u2028\x00\"'"
    text = to_json({"name": hostile})
    assert json.loads(text) == {"name": hostile}
    assert not set("<>&\u2028\x00") & set(text)
    assert visible("\x07\u202e\u200bé=cmd") == "\\x07\\u202e\\u200bé=cmd"


def test_a_single_split_has_no_standard_error_and_still_a_figure() -> None:
    records = [
        {
            "contamination": "outliers", "level": level, "loss": "logistic", "method": method, "accuracy": 90.0,
            "standard_error": float("nan"), "gain": 1.0, "gain_error": float("nan"), "majority": 60.0,
            "protocol": "paper", "model": "linear",
        }
        for level in (0, 256)
        for method in ("close", "close_decay", "average")
    ]  # fmt: skip
    assert "NaN" not in json.dumps(simulations(records).to_dict(), allow_nan=False)
    assert simulation_gains("figure5", records).rows[0][1:] == ("256", "+1.0", "1 of 1")


def test_figure_5_names_every_level_and_every_line() -> None:
    records = [
        {
            "contamination": name, "level": level, "loss": loss, "method": method, "accuracy": 90.0 - level / 100,
            "gain": 1.0, "gain_error": 0.1, "majority": 60.0, "protocol": "paper", "model": "linear",
        }
        for name in SIMULATIONS
        for level in SIMULATIONS[name].levels
        for loss in LOSSES
        for method in METHODS
    ]  # fmt: skip
    for row in simulations(records).to_dict()["vconcat"]:
        for panel in row["hconcat"]:
            line = panel["layer"][0]["encoding"]
            assert line["x"]["type"] == "ordinal"  # a name under every level, none left out for another
            assert line["color"]["scale"]["domain"] == [*(LABELS[method] for method in METHODS), "larger class"]
            assert line["color"]["scale"] != line["strokeDash"]["scale"]
            looks = zip(*(line[channel]["scale"]["range"] for channel in ("color", "strokeDash")), strict=True)
            assert len({str(look) for look in looks}) == len(METHODS) + 1
    text = to_markdown(simulation_gains("figure5", records))
    assert "close decay, logistic, outliers" in text  # whole: the table fits its page
    assert "Losses here, from none to 256: atk 2.6 (logistic), average 2.6" in " ".join(text.split())
    assert "Top uses only the k-th largest loss" in " ".join(text.split())

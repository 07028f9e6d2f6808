"""The report: verdicts follow from the numbers, the animation ends where the solver does, and JSON is safe."""

import base64
import json
import re

import numpy as np
import pytest
from hypothesis import given, strategies as st

from closecall.objective import Problem
from closecall.report.html import read, to_json
from closecall.report.text import p_value, p_words, visible
from closecall.solvers.reference import solve_one
from closecall.theory import best_intercept
from reproduction.pages.figure5 import simulation_gains
from reproduction.pages.figures import simulations
from reproduction.pages.findings import findings, judge, result_rows
from reproduction.pages.formats import to_markdown
from reproduction.protocol.grid import LABELS
from reproduction.protocol.published import LOSSES, METHODS, PAIR_TABLES, table3_error
from reproduction.protocol.synthetic import SIMULATIONS, figure1
from reproduction.run.scores import Scores
from reproduction.tests.helpers import level_records, made_scores


def made(shift: float, count: int) -> Scores:
    """Return scores with close decay ahead of average by ``shift`` on every data set, with much smaller noise."""
    names = ("pmlb:monk3", *(f"pmlb:set{i}" for i in range(1, count)))
    return made_scores(names, shift, noise=0.002, base=0.7, seed=1)


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
    assert f"better on {verdict.wins or 'none'} of {count} data sets" in text
    assert f"worse on {verdict.losses or 'none'} (" in text
    assert ("There are no gains." in text) == (shift < 0)
    assert ("has rank 1," in text) == (shift > 0)


@pytest.mark.parametrize(
    ("shift", "few", "extra", "outcome"),
    [(0.006, slice(3, 4), -0.065, "level"), (-0.002, slice(4), 0.12, "lifted"), (0.002, slice(4), -0.12, "pulled")],
)
def test_a_headline_agrees_with_its_own_numbers(shift: float, few: slice, extra: float, outcome: str) -> None:
    """One large loss leaves no clear difference although p is small; four large gains count although p is large."""
    scores = made(shift, 12)
    scores.values["test"][:, few, METHODS.index("close_decay")] += extra
    verdict = judge(scores, "hinge")
    low, high = (float(word.strip("(,")) for word in np.array(verdict.sentences[1].split())[[8, 10]])
    p = float(verdict.sentences[1].rpartition("p = ")[2].rstrip(".)"))
    assert (low * high > 0, p < 0.05) == ((False, True) if outcome == "level" else (True, False))
    assert verdict.gain * extra > 0 or outcome == "level"
    assert verdict.outcome == outcome
    assert ("comes from a few data sets" in verdict.headline) == (outcome != "level")
    styled = set(re.findall(r"\.([a-z]+)", read("style.css")))
    assert not {"lifted", "pulled"} & styled, "outcomes are class names of cards, so no other style may use them"


def test_targets_on_the_same_results_are_summed_up_once_and_the_paper_is_quoted() -> None:
    scores, table = made(0.03, 8), PAIR_TABLES["table1"]
    parts = [("pmlb94", scores, [table]), ("pmlb94", scores, [table])]
    (finding,) = findings(parts)
    assert "8 data sets" in finding.heading
    text = " ".join(finding.verdicts[0].sentences)
    assert "In the paper's Table 1, close decay is significantly better on 27% of the data sets and worse on 0%" in text
    rows = result_rows(parts)
    assert len(rows) == len(LOSSES) * 8
    monk = rows[0]
    assert monk["paper: close decay"] == 100 - table3_error("monk3", "logistic", "close_decay")  # type: ignore[operator]
    assert rows[1]["paper: average"] is None
    assert monk["gain"] == pytest.approx(monk["close decay"] - monk["average"])


def test_the_pages_walk_ends_where_the_solver_does_and_its_bits_are_the_close_calls() -> None:
    """Compare the slider's file, every third of 300 steps on the sets of Figure 1, with the reference solver."""
    content = json.loads(read("walk.json", "reproduction.pages"))
    steps, alpha = content["steps"], content["alpha"]
    for name, each in content["sets"].items():
        X, y = figure1(name, 0)
        np.testing.assert_allclose(each["points"], np.column_stack([X, y]), atol=5.1e-4)
        assert each["best"] == min(int(best_intercept(sign * X[:, 0], y)[1]) for sign in (1, -1))
        assert [frame[0] for frame in each["frames"]] == list(range(0, steps + 1, 3))
        for _, k, _, errors, bits in each["frames"]:
            close = np.unpackbits(np.frombuffer(base64.b64decode(bits), np.uint8)).sum()
            assert k <= close <= len(y), "tied examples share the last places, so there are at least k"
            assert errors >= each["best"]
        assert close == k == each["k"]
        average = solve_one(X[:, :1], y, Problem("logistic", "average", None, alpha))
        last = solve_one(X[:, :1], y, Problem("logistic", "close_decay", k, alpha), max_iter=steps)
        assert abs(errors - last.errors) <= 2
        assert each["frames"][-1][2] == pytest.approx(-last.intercept / last.coef[0], abs=0.02)
        assert each["average"] == pytest.approx(-average.intercept / average.coef[0], abs=1e-3)


def test_what_reaches_a_script_element_cannot_leave_it() -> None:
    hostile = "</script><!--&\u2028\x00\"'"
    text = to_json({"name": hostile})
    assert json.loads(text) == {"name": hostile}
    assert not set("<>&\u2028\x00") & set(text)
    assert visible("\x07\u202e\u200bé=cmd") == "\\x07\\u202e\\u200bé=cmd"


def test_a_single_split_has_no_standard_error_and_still_a_figure() -> None:
    records = level_records((0, 256), ("close", "close_decay", "average"), gain_error=float("nan"))
    assert "NaN" not in json.dumps(simulations(records).to_dict(), allow_nan=False)
    assert simulation_gains("figure5", records).rows[0][1:] == ("256", "+1.0", "1 of 1")


def test_figure_5_names_every_level_and_every_line() -> None:
    records = [
        {**record, "contamination": name}
        for name, simulation in SIMULATIONS.items()
        for record in level_records(simulation.levels, gain_error=0.1)
    ]
    for row in simulations(records).to_dict()["vconcat"]:
        for panel in row["hconcat"]:
            line = panel["layer"][0]["encoding"]
            assert line["x"]["type"] == "ordinal"  # every level has its label
            assert line["color"]["scale"]["domain"] == [*(LABELS[method] for method in METHODS), "larger class"]
            assert line["color"]["scale"] != line["strokeDash"]["scale"]
            looks = zip(*(line[channel]["scale"]["range"] for channel in ("color", "strokeDash")), strict=True)
            assert len({str(look) for look in looks}) == len(METHODS) + 1
    text = to_markdown(simulation_gains("figure5", records))
    assert "close decay, logistic, outliers" in text  # not cut off
    assert "by the following amounts, in points: atk 2.6 (logistic), average 2.6" in " ".join(text.split())
    assert "Top uses only the k-th largest loss" in " ".join(text.split())


@given(st.floats(0, 1))
def test_a_p_value_is_never_zero(p: float) -> None:
    """A p-value that would round to zero is shown as a bound; any other is rounded correctly."""
    shown = p_value(p)
    assert (shown == "< 0.0001") == (p < 1e-4)
    assert p < 1e-4 or abs(float(shown) - p) <= 0.5000001e-4
    assert p_words(p) in (f"p = {shown}", f"p {shown}")

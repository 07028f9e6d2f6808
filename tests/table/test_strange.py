"""Hostile names and values stay text, and the files of newcomers are read as intended."""

import csv
import io
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.table.helpers import Run

#: A colour, a title change, reversed writing, a line break, a formula, console markup, a picture's name.
HOSTILE = "\x1b[31m\x1b]0;x\x07\u202e\n=cmd|' /C calc'!A0[red]:warning:"
SAFE = "\\x1b[31m\\x1b]0;x\\x07\\u202e\\n=cmd|' /C calc'!A0[red]:warning:"
BAD = ("\x1b", "\x07", "\u202e", "\r")


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """Hostile column names, values, labels, and a file name; the label follows the number."""
    path = tmp_path / f"t{HOSTILE.replace('/', '')}.csv"
    rng = np.random.default_rng(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow([HOSTILE, f"+{HOSTILE}", "\x1bempty", "class"])
        for row in range(60):
            label = HOSTILE if rng.random() < 0.5 else "@plain"
            writer.writerow([f"{(label == HOSTILE) + rng.standard_normal():.3f}", f"{HOSTILE}{row % 3}", "", label])
    return path


def clean(*texts: str) -> bool:
    return not any(mark in text for text in texts for mark in BAD)


def test_fit_and_predict_show_hostile_text_as_text(run: Run, hostile: Path) -> None:
    model = Path("model\x1b[2J")
    assert run("fit", hostile, "--splits", 0, "--out", model, "--model", "logistic") == 0
    assert clean(run.out, run.err)
    unfolded = run.err.replace("\n", "")  # long lines are folded at 80 columns
    assert SAFE.replace(" ", "") in unfolded.replace(" ", "")
    assert run.out == "model\\x1b[2J\n"
    assert run("predict", model, hostile, "--copy", f"+{HOSTILE}") == 0
    assert clean(run.out, run.err)
    header, *rows = csv.reader(io.StringIO(run.out))
    assert header == ["row", f"'+{SAFE}", "prediction", "score"]
    assert {row[2] for row in rows} == {SAFE, "'@plain"}, "only what begins like a formula needs the quote"
    assert run("predict", model, hostile, "--json") == 0
    assert clean(run.out)
    assert {record.get("prediction") for record in run.records()[:-1]} == {HOSTILE, "@plain"}, "JSON keeps it whole"


def test_compare_shows_hostile_text_as_text(run: Run, hostile: Path) -> None:
    assert run("compare", hostile, "--splits", 2, "--only", "linear_svc", "--report", "r\x1b.html") == 0
    assert clean(run.out, run.err)
    assert "'\\x1bempty' is left out" in run.out
    assert "report: r\\x1b.html" in run.out
    for name in ("r\x1b.html", "r\x1b-results.csv", "r\x1b-results.json"):
        assert clean(Path(name).read_text(encoding="utf-8")), name
    written = Path("r\x1b-results.csv").read_text(encoding="utf-8")
    (name,) = {row["table"] for row in csv.DictReader(io.StringIO(written))}
    assert name == f"t{SAFE.replace('/', '')}.csv"


@pytest.mark.parametrize(
    "arguments",
    [
        ("compare", f"no{HOSTILE}.csv"),
        ("compare", f"no{HOSTILE}"),
        ("compare", "monk3", "--target", HOSTILE),
        ("compare", "monk3", "--loss", HOSTILE),
        ("compare", "monk3", "--drop", HOSTILE),
        ("compare", "monk3", f"--{HOSTILE}"),
        ("compare", "monk3", "--splits", "2", HOSTILE),
        ("fit", "monk3", "--out", "m", "--model", HOSTILE),
        ("fit", "monk3", "--out", f"nowhere{HOSTILE}/m".replace("/ C", "C")),
        ("predict", f"no{HOSTILE}", "monk3"),
        (HOSTILE,),
    ],
)
def test_errors_repeat_hostile_arguments_as_text(run: Run, arguments: tuple[str, ...]) -> None:
    assert run(*arguments) != 0
    assert clean(run.out, run.err)
    assert "\\x1b" in run.err + run.out


def test_a_report_is_not_needed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the plotting packages the comparison runs and states what to install; requesting a page is an error."""
    for name in ("closecall.report.html", "closecall.report.charts"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, "altair", None)
    quick = ("--splits", 2, "--only", "linear_svc", "--loss", "hinge", "--rows", 100)
    assert run("compare", "monk3", *quick) == 0
    assert 'pip install "closecall[bench,plots]"' in run.err
    assert "Verdict: " in run.out
    assert "a linear SVM" in " ".join(run.out.split())
    assert not Path("closecall-compare").exists()
    run.refused('pip install "closecall[bench,plots]"', "compare", "monk3", "--report", "r.html")

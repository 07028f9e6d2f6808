"""``compare``, ``fit`` and ``predict`` as a new user types them: messy tables, pipes, errors and help."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.table.helpers import LINEAR, Run, clouds, customers, plants, written


@pytest.mark.parametrize("kind", ["customers", "tabs"])
def test_fit_and_predict_on_messy_tables(run: Run, kind: str) -> None:
    text = customers() if kind == "customers" else customers().replace(";", "\t").replace(",", ".")
    Path("t.tsv").write_text(text, encoding="utf-8-sig")
    run.fit("t.tsv", "--target", "kauft")
    assert run.out == "m\n"
    assert "'Kundennummer' is left out" in run.err
    assert "'leer' is left out" in run.err
    assert "2 number, 1 date, 1 nominal" in run.err
    rows = run.predict("t.tsv", "--copy", "Kundennummer")
    assert len(rows) == 120
    assert rows[0]["Kundennummer"] == "90001"
    assert {row["prediction"] for row in rows} == {"ja", "nein"}
    truth = [line.rpartition(";")[2] for line in customers().splitlines()[1:]]
    right = np.mean([row["prediction"] == label for row, label in zip(rows, truth, strict=True)])
    assert right > 0.8
    assert f"accuracy {right:.1%}" in run.err


def test_formulas_are_text_in_csv_and_exact_in_json(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The predictions are the same if the table is read in pieces."""
    run.fit(plants(), "--model", "logistic")
    assert "the target is the column 'Class', chosen by its name" in run.err
    rows = run.predict("t.csv")
    assert {row["prediction"] for row in rows} == {"red, big", "green", "'=blue"}
    assert "'height': 1 value treated as missing (unknown or of a different type)" in run.err
    monkeypatch.setattr("closecall.cli.models.CHUNK", 7)
    assert run.predict("t.csv") == rows
    assert run("predict", "m", "t.csv", "--json") == 0
    assert {record["prediction"] for record in run.records("prediction")} == {"red, big", "green", "=blue"}
    (summary,) = run.records("summary")
    assert summary["rows"] == 90
    assert summary["accuracy"] > 0.7


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_pipe_of_processes(run: Run, tmp_path: Path) -> None:
    """Read from standard input and write to standard output; a closed pipe is not an error."""
    assert run("fit", "-", "--splits", 0, "--out", "m", "--model", "close-k", stdin=customers()) == 0
    Path("more.csv").write_text(customers(4000))  # more predictions than fit into the buffer of a pipe
    line = f"set -o pipefail; {sys.executable} -m closecall predict m - <more.csv | head -3"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUTF8": "1"}
    done = subprocess.run(
        ["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.splitlines()[0] == "row,prediction,score"
    assert len(done.stdout.splitlines()) == 3
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


def test_new_columns_and_names_are_noted(run: Run) -> None:
    run.fit(customers(), "--model", "logistic")
    more = "\n".join(line + (";neu" if place == 0 else ";1") for place, line in enumerate(customers(30).splitlines()))
    run.predict("-", stdin=more.replace("Bonn", "Rom"))
    assert "'neu'" in run.err
    assert "'Stadt'" in run.err, "the note names the column of a city that training never saw"


def test_a_renamed_column_is_found_whatever_its_case_and_accents(run: Run) -> None:
    rows = [f"{row % 2}.{row % 7},{row % 3},{'ab'[row % 2]}" for row in range(40)]
    run.fit(written(rows, "Größe,b,class"), "--model", "logistic")
    for other in ("grosse", "GRÖSSE", "Groesse", "größe "):
        run.refused(f"rename {other!r} to 'Größe'", "predict", "m", written(["1.5,2"], f"{other},b", "n.csv"))


def numbered(label: Any, header: str = "a,b") -> str:
    return f"{header}\n" + "".join(f"{i % 5},{label(i)}\n" for i in range(60))


#: A table, the options of ``fit`` and ``compare``, and words of the message.
WRONG: list[tuple[str | bytes, list[str], str]] = [
    ("a,b\n1,x\n2,y\n", ["--target", "bb"], "did you mean 'b'?"),
    ("a,b\n1,x\n2,x\n", [], "only one class ('x')"),
    ("", [], "is empty"),
    ("a,b\n", [], "no rows"),
    ("1,2\n3,4\n", [], "header line"),
    ("a,a,b\n1,2,x\n", [], "appear more than once"),
    ("a,b\n1,x,9\n2,y,9\n3,x,8\n", [], "not a table with rows of equal length"),
    (numbered(lambda i: "often" if i else "rare"), [], "'rare'"),
    (numbered(lambda i: i / 7), [], "predicts classes"),
    ("a,b\n" + "1,0\n1,1\n" * 15, [], "no usable column"),
    ("a,b\n1,x\n2,y\n", ["--drop", "z"], "no column 'z'"),
    ("n;Güte\n1;ä\n2;b\n".encode("latin-1"), [], "use --encoding latin-1"),
    ("a,b\n1,x\n".encode("utf-16"), [], "is encoded as UTF-16"),
    (b'[{"a": 1, "class": "x"}]', [], "is JSON, not a table; save it as CSV"),
    (b'{"a": 1, "class": "x"}\n', [], "is JSON, not a table"),
    (b"PK\x03\x04 something", [], "is a zip archive (perhaps an Excel workbook)"),
    (b"\xd0\xcf\x11\xe0rest", [], "is an old Excel workbook; save it as CSV"),
    (b"PK\x00\x00", [], "not a text file"),
    # A break in quotes that is cut off: the separator is right all the same, and the error names the row.
    ("n;t;class\n" + "".join(f'{i};"a{i % 2}\nb";{"xy"[i % 2]}\n' for i in range(20))[:-8], [], "EOF inside string"),
]


@pytest.mark.parametrize(("content", "options", "words"), WRONG)
@pytest.mark.parametrize("command", [("fit", "--out", "m"), ("compare",)])
def test_unusable_tables_are_explained(
    run: Run, command: tuple[str, ...], content: str | bytes, options: list[str], words: str
) -> None:
    Path("t.csv").write_bytes(content.encode() if isinstance(content, str) else content)
    run.refused(words, *command, "t.csv", *options)
    assert run.out == ""
    assert not Path("m").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--metric", "gini"), "choose one of: accuracy, auc, balanced_accuracy, f1, log_loss"),
        (("--with", "nowhere_to_be_found:Model"), "install the package"),
        (("--with", "json:dumps"), "has no classifier 'dumps'"),
        (("--with", "sklearn.cluster:KMeans"), "is not a scikit-learn classifier"),
        (("--with", "os;rm:x"), "write package:Class"),
        (("--with", "forest"), "unknown contender 'forest'; choose one of: close_k"),
        (("--with", "tilted(x)"), "not a valid aggregate"),
        (("--with", "nobody(2)"), "not a family of aggregates"),
        (("--rows", "-3"), "--rows"),
        (("--splits", "1"), "--splits must be 2 or more"),
        (("--report", "taken"), "cannot create the folder 'taken'"),
    ],
)
def test_wrong_options_of_compare_are_named(run: Run, arguments: tuple[str, ...], words: str) -> None:
    Path("taken").write_text("")
    run.refused(words, "compare", written(clouds(40)), *arguments, *LINEAR[4 if "--report" in arguments else 2 :])
    assert run.out == ""


def test_wrong_options_are_named_before_a_table_is_read(run: Run) -> None:
    run.refused("is a URL; download the file first", "compare", "https://example.org/t.csv")
    run.refused("not a valid aggregate", "compare", "absent.csv", "--with", "tilted(x)")
    for words, *arguments in (
        ("t=nan must be a finite number", "--out", "m", "--model", "tilted(nan)"),
        ("Missing option '--out'",),
        ("--onnx writes linear models", "--out", "m", "--model", "random-forest", "--onnx", "m.onnx"),
        ("install the package", "--out", "m", "--model", "nowhere:Model"),
        ("close_k", "--out", "m", "--model", "logistik"),
        ("choose one of: ovr, softmax, top_two", "--out", "m", "--multiclass", "one"),
    ):
        run.refused(words, "fit", "absent.csv", *arguments)


def test_a_failed_prediction_leaves_the_old_file(run: Run, tmp_path: Path) -> None:
    run.fit(customers(), "--model", "logistic")
    Path("p.csv").write_text("old")
    run.refused(
        "rows of equal length", "predict", "m", "-", "--out", "p.csv", stdin=customers(30) + "1;2;3;4;5;6;7;8;9\n"
    )
    assert Path("p.csv").read_text() == "old"
    assert not list(tmp_path.glob("*.part"))
    assert not list(tmp_path.glob(".*.part"))


def test_copied_columns_are_not_reported_as_unused(run: Run) -> None:
    run.fit(
        written([f"u{i},{i % 5},{'x' if i % 5 > 2 else 'y'}" for i in range(40)], "id,a,class"), "--model", "logistic"
    )
    run.predict("t.csv", "--copy", "id")
    assert "does not use" not in run.err
    run.predict("t.csv")
    assert "does not use: 'id'" in run.err
    words = "--copy 'idd': the data has no such column; its columns are 'id', 'a', 'class'"
    run.refused(words, "predict", "m", "t.csv", "--copy", "idd")


def test_a_model_passed_as_data_is_recognised(run: Run) -> None:
    for model in ("logistic", *(["random_forest"] if find_spec("skops") else [])):
        run.fit(customers(60), "--model", model)
        for given in (("compare", "m", "--no-report"), ("fit", "m", "--out", "n"), ("predict", "m", "m")):
            run.refused("'m' is a closecall model, not data; apply it with closecall predict m DATA", *given)
        for command in ("predict", "explain"):
            words = "'m' is a closecall model and 't.csv' is not: swap them; the model comes first"
            run.refused(words, command, "t.csv", "m")


def test_help_pages(run: Run) -> None:
    for command in ("compare", "fit", "predict"):
        assert run(command, "--help") == 0
        assert max(map(len, run.out.splitlines())) <= 80
    assert run("--help") == 0
    help_page = run.out
    assert run() == 0
    assert run.out == help_page
    assert "Usage:" in run.out
    assert "compare" in run.out
    assert run.err == ""

"""``compare``, ``fit`` and ``predict`` as a new user types them, on tables as messy as theirs."""

import csv
import gzip
import io
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("typer", reason="install closecall[bench]")
pytest.importorskip("pandas", reason="install closecall[bench]")
pytest.importorskip("altair", reason="install closecall[plots]")

from closecall import cli
from tests.table.helpers import Run


def customers(rows: int = 120, seed: int = 0) -> str:
    """Semicolons, decimal commas, a date, an identifier, missing values, string labels in the last column."""
    rng = np.random.default_rng(seed)
    lines = ["Kundennummer;Alter;Umsatz;Seit;Stadt;leer;kauft"]
    for row in range(rows):
        age, city = rng.integers(18, 80), rng.choice(["Köln", "Bonn", "Ulm"])
        buys = "ja" if age + 8 * rng.standard_normal() + 10 * (city == "Ulm") > 50 else "nein"
        amount = "" if row % 9 == 0 else f"{rng.random() * 1000:.2f}".replace(".", ",")
        lines.append(f"{90001 + 7 * row};{age};{amount};{1 + row % 28:02d}.03.2021;{city};;{buys}")
    return "\n".join(lines) + "\n"


def plants(rows: int = 90, seed: int = 1) -> str:
    """Three classes in a column named Class that is not the last; quotes, `?`, text among numbers."""
    rng = np.random.default_rng(seed)
    lines = ["Class,width,height,note"]
    for row in range(rows):
        kind = row % 3
        width = "?" if row % 10 == 0 else f"{kind + 0.4 * rng.standard_normal():.3f}"
        height = "unknown" if row == 5 else f"{-kind + 0.6 * rng.standard_normal():.3f}"
        lines.append(f'"{("red, big", "green", "=blue")[kind]}",{width},{height},"say ""{row % 4}"""')
    return "\n".join(lines) + "\n"


@pytest.fixture
def messy(tmp_path: Path) -> dict[str, Path]:
    files = {"customers": tmp_path / "customers.csv", "plants": tmp_path / "plants.csv.gz", "tabs": tmp_path / "t.tsv"}
    files["customers"].write_bytes(b"\xef\xbb\xbf" + customers().encode())
    files["plants"].write_bytes(gzip.compress(plants().encode()))
    files["tabs"].write_text(customers().replace(";", "\t").replace(",", "."))
    return files


@pytest.mark.parametrize("name", ["customers", "tabs"])
def test_fit_and_predict_on_messy_tables(run: Run, messy: dict[str, Path], tmp_path: Path, name: str) -> None:
    model, predictions = tmp_path / "model", tmp_path / "predictions.csv"
    assert run("fit", messy[name], "--splits", 0, "--target", "kauft", "--out", model) == 0
    assert run.out.strip() == str(model)
    assert "'Kundennummer' is left out" in run.err
    assert "'leer' is left out" in run.err
    assert "2 number, 1 date, 1 nominal" in run.err
    assert run("predict", model, messy[name], "--out", predictions, "--copy", "Kundennummer") == 0
    with predictions.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 120
    assert rows[0]["Kundennummer"] == "90001"
    assert {row["prediction"] for row in rows} == {"ja", "nein"}
    truth = [line.rpartition(";")[2] for line in customers().splitlines()[1:]]
    right = np.mean([row["prediction"] == label for row, label in zip(rows, truth, strict=True)])
    assert right > 0.8
    assert f"accuracy {right:.1%}" in run.err


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_chunks_give_the_same_predictions(run: Run, messy: dict[str, Path], tmp_path: Path) -> None:
    assert run("fit", messy["plants"], "--splits", 0, "--out", tmp_path / "m", "--model", "close-k") == 0
    assert "the target is the column 'Class', chosen by its name" in run.err
    assert run("predict", tmp_path / "m", messy["plants"]) == 0
    whole = run.out
    assert run("predict", tmp_path / "m", messy["plants"]) == 0
    assert run.out == whole
    assert "'height': 1 value treated as missing (unknown or of another type)" in run.err


def test_formulas_are_text_in_csv_and_exact_in_json(run: Run, messy: dict[str, Path], tmp_path: Path) -> None:
    run("fit", messy["plants"], "--splits", 0, "--out", tmp_path / "m", "--model", "logistic")
    assert run("predict", tmp_path / "m", messy["plants"]) == 0
    labels = {row["prediction"] for row in csv.DictReader(io.StringIO(run.out))}
    assert labels == {"red, big", "green", "'=blue"}
    assert run("predict", tmp_path / "m", messy["plants"], "--json") == 0
    *predictions, summary = run.records()
    assert {record["prediction"] for record in predictions} == {"red, big", "green", "=blue"}
    assert summary["rows"] == 90
    assert summary["accuracy"] > 0.7


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_pipe_of_processes(run: Run, tmp_path: Path) -> None:
    """Read from standard input and write to standard output; a closed pipe is not an error."""
    fitted = run("fit", "-", "--splits", 0, "--out", tmp_path / "m", "--model", "close-k", stdin=customers().encode())
    assert fitted == 0
    (tmp_path / "more.csv").write_text(customers(4000))  # more predictions than fit into the buffer of a pipe
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


def test_columns_missing_and_new_are_explained(run: Run, messy: dict[str, Path], tmp_path: Path) -> None:
    run("fit", messy["customers"], "--splits", 0, "--out", tmp_path / "m", "--model", "logistic")
    changed = customers().replace("Umsatz", "umsatz", 1).encode()
    assert run("predict", tmp_path / "m", "-", stdin=changed) == cli.BAD_REQUEST
    assert "rename 'umsatz' to 'Umsatz'" in run.err
    more = "\n".join(line + (";neu" if place == 0 else ";1") for place, line in enumerate(customers(30).splitlines()))
    assert run("predict", tmp_path / "m", "-", stdin=more.replace("Bonn", "Rom").encode()) == 0
    assert "'neu'" in run.err
    assert "'Stadt'" in run.err, "a city that training never saw is told"


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        ("a,b\n1,x\n2,y\n", ["--target", "bb"], "did you mean 'b'?"),
        ("a,b\n1,x\n2,x\n", [], "only one class ('x')"),
        ("", [], "is empty"),
        ("a,b\n", [], "no rows"),
        ("1,2\n3,4\n", [], "header line"),
        ("a,a,b\n1,2,x\n", [], "appear more than once"),
        ("a,b\n1,x,9\n2,y,9\n3,x,8\n", [], "not a table with rows of equal length"),
        ("a,b\n" + "".join(f"{i % 5},{'rare' if i == 0 else 'often'}\n" for i in range(30)), [], "'rare'"),
        ("a,b\n" + "".join(f"{i % 5},{i / 7}\n" for i in range(60)), [], "predicts classes"),
        ("a,b\n" + "".join(f"1,{i % 2}\n" for i in range(30)), [], "no usable column"),
        ("a,b\n1,x\n2,y\n", ["--drop", "z"], "no column 'z'"),
    ],
)
@pytest.mark.parametrize("command", ["fit", "compare"])
def test_errors_say_what_to_do(
    run: Run, tmp_path: Path, command: str, content: str, options: list[str], words: str
) -> None:
    path = tmp_path / "t.csv"
    path.write_text(content)
    out = ["--out", tmp_path / "m"] if command == "fit" else []
    assert run(command, path, *options, *out) == cli.BAD_REQUEST
    assert words in run.err
    assert run.out == ""
    assert not (tmp_path / "m").exists()


def test_a_failed_prediction_leaves_the_old_file(run: Run, messy: dict[str, Path], tmp_path: Path) -> None:
    run("fit", messy["customers"], "--splits", 0, "--out", tmp_path / "m", "--model", "logistic")
    (tmp_path / "p.csv").write_text("old")
    broken = customers(30) + "1;2;3;4;5;6;7;8;9\n"
    arguments = ("predict", tmp_path / "m", "-", "--out", tmp_path / "p.csv")
    assert run(*arguments, stdin=broken.encode()) == cli.BAD_REQUEST
    assert (tmp_path / "p.csv").read_text() == "old"
    assert not list(tmp_path.glob("*.part"))
    assert not list(tmp_path.glob(".*.part"))


def test_help_fits_eighty_columns(run: Run) -> None:
    for command in ("compare", "fit", "predict"):
        assert run(command, "--help") == 0
        assert max(map(len, run.out.splitlines())) <= 80


def test_a_model_given_as_data_is_called_one(run: Run) -> None:
    Path("c.csv").write_text(customers(60))
    assert run("fit", "c.csv", "--out", "linear", "--model", "logistic", "--splits", 0) == 0
    models = ["linear"]
    if find_spec("skops"):
        assert run("fit", "c.csv", "--out", "forest", "--model", "random_forest", "--splits", 0) == 0
        models.append("forest")
    for model in models:
        for given in (("compare", model, "--no-report"), ("fit", model, "--out", "m"), ("predict", model, model)):
            assert run(*given) == cli.BAD_REQUEST
            assert f"'{model}' is a closecall model, not data; apply it with closecall predict {model} DATA" in run.err
        for command in ("predict", "explain"):
            assert run(command, "c.csv", model) == cli.BAD_REQUEST
            assert f"'{model}' is a closecall model and 'c.csv' is not: swap them; the model comes first" in run.err
    Path("other.zip").write_bytes(b"PK\x03\x04 something else")
    assert run("compare", "other.zip", "--no-report") == cli.BAD_REQUEST
    assert "zip archive" in run.err


def test_the_bare_command_prints_its_help(run: Run) -> None:
    assert run() == 0
    assert "Usage:" in run.out
    assert "compare" in run.out
    assert run.err == ""
    help_page = run.out
    assert run("--help") == 0
    assert run.out == help_page

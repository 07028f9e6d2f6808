"""``closecall compare`` as a user types it: contenders, metrics, groups, time, columns, hints and the verdict."""

import csv
import html
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from closecall.report.text import p_words
from closecall.table.compare import ComparePlan
from tests.table.helpers import LINEAR, QUICK, STUMP, Run, clouds, customers, package, plants, written

alt = pytest.importorskip("altair", reason="install closecall[plots]")


def test_contenders_and_page(run: Run) -> None:
    Path("customers.csv").write_text(customers(80))
    assert run("compare", "customers.csv", "--splits", 2, "--with", "k-nn", "--with", "linear-svc") == 0
    assert max(map(len, run.out.splitlines())) <= 80
    assert "\x1b" not in run.out
    for words in (
        "close-k", "LogisticRegression", "LinearSVC", "RandomForest", "HistGradientBoosting", "exact threshold",
        "k nearest neighbours", "always the largest class: ja", "predicted nein", "recall", "imbalance", "Verdict: ",
    ):  # fmt: skip
        assert words in run.out, words
    assert "the target is the last column, 'kauft'" in run.out
    page = Path("closecall-compare/customers/report.html")
    assert run.out.splitlines()[-1] == f"report: {page}"
    content = page.read_text(encoding="utf-8")
    assert "closecall compare" in content
    charts = re.findall(r'<script type="application/json" id="chart-\w+">(.*?)</script>', content, re.S)
    assert len(charts) == 2
    for chart in charts:
        alt.Chart.from_dict(json.loads(chart))  # an error if it does not match Vega-Lite's schema
    with page.with_name("report-results.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["loss"] for row in rows if row["method"] == "close_k"} == {"logistic"}
    assert {row["split"] for row in rows} == {"1", "2"}
    assert all(0 <= float(row["accuracy"]) <= 1 for row in rows)
    document = json.loads(page.with_name("report-results.json").read_text())
    assert document["records"][-1]["kind"] == "verdict"
    check_p_values(document["records"], content)
    assert len(ComparePlan(everyone=True).contenders()) > 8


def check_p_values(records: list[dict[str, Any]], page: str) -> None:
    """Every p-value in the verdict is that of the corrected t-test and Holm, and the page shows the verdict."""
    found = {record["method"]: record for record in records if record["kind"] == "result"}
    usual = {"close_k", "plain_logistic_regression", "exact_threshold", "random_forest", "gradient_boosting"}
    asked = sorted({*usual, "linear_svc", "k_nn", "majority"})
    assert set(found) == {*asked, "logistic_regression"}
    verdict = records[-1]
    splits = verdict["splits"]
    base = found["logistic_regression"]
    test = np.sum(base["confusion"]) / splits
    factor = np.sqrt(1 / splits + test / (records[0]["rows"] - test))
    p = {}
    for name in asked:
        move = np.subtract(found[name]["values"], base["values"])
        error = move.std(ddof=1) * factor
        p[name] = 2 * stats.t.sf(abs(move.mean()) / error, splits - 1) if error else float(not move.mean())
    running, adjusted = 0.0, {}
    for place, name in enumerate(sorted(asked, key=p.__getitem__)):
        running = max(running, min(1.0, (len(asked) - place) * p[name]))
        adjusted[name] = running
    assert html.escape(verdict["reason"][1:], quote=False) in page
    reasons = dict(re.findall(r"([A-Za-z][\w ,-]*?) [+-][\d.]+ points \([^)]*\), (p [=<] [\d.e-]+)", verdict["reason"]))
    by_label = {found[name]["label"]: name for name in asked}
    assert reasons, "the largest gains, except those without any difference"
    for label, words in reasons.items():
        assert words == p_words(adjusted[by_label[label]], ".2g"), label


def test_three_classes_as_records(run: Run) -> None:
    Path("plants.csv").write_text(plants())
    results = run.compare("plants.csv", *QUICK, "--only", "atk,close-decay", "--rows", 60, "--loss", "hinge")
    (table,), (verdict,) = run.records("table"), run.records("verdict")
    assert table["classes"] == {"=blue": 20, "green": 20, "red, big": 20}
    assert any("60 of 90 rows" in note for note in table["notes"])
    assert set(results) == {"close_k", "linear_svc", "majority", "atk", "close_decay"}, "--only"
    assert {record["loss"] for name, record in results.items() if name in ("close_k", "atk")} == {"hinge"}
    best = results["linear_svc"]
    assert best["accuracy"] > 0.6, "three shifted clouds; a third would be chance"
    assert best["low"] <= best["accuracy"] <= best["high"]
    confusion = np.array(best["confusion"])
    assert confusion.sum() == 2 * 15, "the test rows of both splits"
    recalls = np.diagonal(confusion) / confusion.sum(axis=1)
    assert list(best["recalls"].values()) == pytest.approx(list(recalls))
    assert np.trace(confusion) / confusion.sum() == pytest.approx(best["accuracy"])
    assert verdict["verdict"] in ("close-k", "svm", "other")
    assert [record["rank"] for record in results.values()] == list(range(1, len(results) + 1))
    assert not Path("closecall-compare").exists()


@pytest.mark.parametrize("metric", ["balanced-accuracy", "f1", "log_loss", "auc"])
def test_metrics(run: Run, metric: str) -> None:
    results, verdict = run.compare(written(clouds(60)), *LINEAR, "--metric", metric), run.records("verdict")[0]
    key = metric.replace("-", "_")
    assert verdict["metric"] == key
    value, chance = results["logistic_regression"][key], results["majority"][key]
    bounds = {"balanced_accuracy": (0.7, 0.5), "f1": (0.7, 1 / 3), "log_loss": (0.5, np.log(2)), "auc": (0.8, 0.5)}
    wanted, of_chance = bounds[key]
    assert chance == pytest.approx(of_chance, abs=0.02)
    assert (value < wanted) if key == "log_loss" else (value > wanted)
    if key != "log_loss":
        assert max(result[key] for result in results.values()) == next(iter(results.values()))[key], "best first"


def test_noise_gives_the_verdict_nothing(run: Run) -> None:
    rng = np.random.default_rng(1)
    rows = [f"{x:.3f},{y:.3f},{'yes' if row % 3 else 'no'}" for row, (x, y) in enumerate(rng.normal(size=(150, 2)))]
    run.compare(written(rows), *LINEAR, "--splits", 5)
    (verdict,) = run.records("verdict")
    assert verdict["verdict"] == "nothing"
    assert verdict["text"] == "no model learns anything here: always predicting 'yes' is just as good"
    assert verdict["use"] == "majority"


def test_gains_are_ranked_by_size(run: Run) -> None:
    """Rings cannot be separated by a line, but by trees."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(240, 2))
    rows = [f"{x:.3f},{y:.3f},{'in' if x * x + y * y < 1.2 else 'out'}" for x, y in X]
    run.compare(written(rows), *QUICK, "--splits", 3, "--only", "random_forest,linear_svc")
    (verdict,) = run.records("verdict")
    assert verdict["verdict"] == "tree"
    gains = [each["gain"] for each in verdict["helps"]]
    assert gains == sorted(gains, reverse=True)
    assert verdict["use"] == verdict["helps"][0]["method"]
    assert verdict["reason"].endswith(f"if the model has to be linear, {verdict['linear']}")


def test_with_imports_only_what_is_named(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A user's package takes part; another, which would fail on import, is not imported."""
    package(tmp_path, "my_models", STUMP)
    package(tmp_path, "never_named", "raise RuntimeError('imported')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = run.compare(written(clouds(80)), *LINEAR, "--with", "my_models:Stump")
    assert found["my_models:Stump"]["accuracy"] > 0.6
    assert "never_named" not in sys.modules


def test_libraries_take_part_where_they_are_installed(
    run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A stand-in with LightGBM's name and parameters is found, tuned and ranked."""
    package(
        tmp_path, "lightgbm",
        "from sklearn.ensemble import ExtraTreesClassifier\n\n\nclass LGBMClassifier(ExtraTreesClassifier):\n"
        "    def __init__(self, num_leaves=31, n_estimators=10, random_state=None, verbose=0, n_jobs=None):\n"
        "        super().__init__(n_estimators=min(n_estimators, 5), random_state=random_state)\n"
        "        self.num_leaves, self.verbose, self.n_jobs = num_leaves, 0, n_jobs\n",
    )  # fmt: skip
    package(tmp_path, "catboost", "import a_package_that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)
    from closecall.table.contenders import libraries

    assert libraries()["lightgbm"] == ""
    assert "catboost is installed but cannot be used" in libraries()["catboost"]
    run.refused("install the package", "compare", "t.csv", *LINEAR, "--only", "catboost")
    found = run.compare(written(clouds(80)), *QUICK, "--only", "lightgbm")["lightgbm"]
    assert found["label"] == "LightGBM"
    assert found["setting"].startswith("num_leaves=")
    monkeypatch.delitem(sys.modules, "lightgbm", raising=False)


def test_groups_stay_together(run: Run) -> None:
    """The second column is the group, which determines the label: a model that has seen the group knows it."""
    rng = np.random.default_rng(5)
    labels = rng.permutation(np.arange(40) % 2)
    rows = [
        f"{g + 0.01 * rng.standard_normal():.3f},{g},{'yes' if labels[g] else 'no'}"
        for g in range(40)
        for _ in range(6)
    ]
    only = (*QUICK, "--only", "k_nn")
    name = written(rows, "x,group,class")
    leaky = run.compare(name, *only, "--drop", "group")["k_nn"]["accuracy"]
    honest = run.compare(name, *only, "--groups", "group")["k_nn"]["accuracy"]
    assert leaky > 0.95, "rows of a test group were seen in training"
    assert honest < 0.75, "a new group cannot be known"
    assert any("'group' is used to divide the rows" in note for note in run.records("table")[0]["notes"])
    words = "no such column; did you mean 'group'? Its columns are 'x', 'group'"
    run.refused(words, "compare", name, *only, "--groups", "GROUPS")


def test_the_number_of_splits_is_that_of_the_different_ones(run: Run) -> None:
    """Six groups cannot be divided in thirty different ways."""
    rows = [f"{row % 2 + row / 90:.3f},{row % 6},{'ab'[row // 6 % 2]}" for row in range(72)]
    arguments = (written(rows, "x,group,class"), "--groups", "group", "--only", "logistic_regression", "--splits", 30)
    run.compare(*arguments, "--no-report", "--json")
    count = run.records("verdict")[0]["splits"]
    assert 2 <= count < 30
    assert run("compare", *arguments, "--no-report") == 0
    assert f"Test accuracy (%) over {count} splits" in " ".join(run.out.split())


def test_later_rows_are_predicted_from_earlier_ones(run: Run) -> None:
    """The rule reverses over time, so it can be learnt from random splits but not from splits by time."""
    rng = np.random.default_rng(6)
    rows = []
    for day in range(240):
        x = rng.standard_normal()
        answer = (x > 0) if day < 120 else (x < 0)
        rows.append(f"{x:.3f},{2000 + day // 12}-{1 + day % 12:02d}-01,{'yes' if answer else 'no'}")
    name = written([rows[place] for place in rng.permutation(240)], "x,when,class")
    by_time = run.compare(name, *LINEAR, "--time", "when")["logistic_regression"]["accuracy"]
    assert by_time < 0.4, "the first block of later rows follows another rule than the earlier ones"
    run.refused("use one of them", "compare", name, *LINEAR, "--time", "x", "--groups", "when")


def test_columns_are_read_as_requested(run: Run) -> None:
    rng = np.random.default_rng(7)
    rows = [f"{row % 3};{rng.integers(0, 9)} kg;{row % 2};{'no' if row % 3 == 1 else 'yes'}" for row in range(90)]
    Path("t.txt").write_bytes(("größe;gewicht;rest;class\n" + "\n".join(rows) + "\n").encode("latin-1"))
    latin = (*LINEAR, "--encoding", "latin-1", "--sep", ";")
    plain = run.compare("t.txt", *latin)["logistic_regression"]["accuracy"]
    assert any("'größe' has 3 different whole numbers" in record["text"] for record in run.records("hint"))
    found = run.compare("t.txt", *latin, "--nominal", "größe", "--drop", "rest")
    assert run.records("table")[0]["columns"] == {"nominal": 2}
    assert found["logistic_regression"]["accuracy"] == 1 > plain, "the middle number needs a column of its own"
    run.refused("'gewicht' contains no numbers", "compare", "t.txt", *latin, "--numeric", "gewicht")
    run.refused("did you mean 'gewicht'?", "compare", "t.txt", *latin, "--numeric", "gewihct")


@pytest.mark.parametrize(
    ("header", "make", "words"),
    [
        ("a,b,class", lambda r, y, x: f"{x:.3f},{'A' if y else 'B'},{y}", ("is a copy of the target", "--drop 'b'")),
        ("a,b,class", lambda r, y, x: f"{x:.3f},{y + (0.3 * x) % 0.5:.3f},{y}",
         ("alone predicts 100.0 % of the rows", "--drop 'b'")),
        ("a,b,class", lambda r, y, x: f"{x:.3f},k{r // 4 if r < 8 else r},{y}", ("almost an identifier", "--drop 'b'")),
        ("a,b,class", lambda r, y, x: f"{x:.3f},{r % 5},{y}",
         ("has 5 different whole numbers (0 to 4)", "--nominal 'b'")),
        # Missing values are not a kind of number.
        ("a,b,class", lambda r, y, x: f"{x:.3f},{('', 3, 4, 5)[r % 4]},{y}",
         ("has 3 different whole numbers (3 to 5)", "--nominal 'b'")),
        ("0.5,red,yes", lambda r, y, x: f"{r % 7}.5,red,{'yes' if y else 'no'}", ("looks like a row",)),
        ("a;b,class", lambda r, y, x: f"{r % 7};1,{y}", ("if it separates columns, use --sep ';'",)),
    ],
)  # fmt: skip
def test_hints(run: Run, header: str, make: Any, words: tuple[str, ...]) -> None:
    rng = np.random.default_rng(8)
    rows = [make(row, row % 2, 0.3 * (row % 2) + rng.standard_normal()) for row in range(80)]
    run.compare(written(rows, header), *LINEAR, "--sep", ",")
    hints = [record["text"] for record in run.records("hint")]
    assert [hint for hint in hints if all(word in hint for word in words)], hints


def test_the_number_of_processes_does_not_change_the_result(run: Run) -> None:
    name = written(clouds(60))
    run.compare(name, *LINEAR, "--jobs", 1)
    alone = run.out
    run.compare(name, *LINEAR, "--jobs", 2)
    assert run.out == alone

"""``closecall fit``, ``predict`` and ``explain``: what was chosen and why, estimates, probabilities, reasons, ONNX."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import cross_val_score

from closecall import AggregateLossClassifier, CloseKClassifier
from closecall.table.model import TableModel
from closecall.table.table import read
from tests.table.helpers import Run, customers, plants, written


def test_fit_prints_an_estimate_and_the_reason_for_its_choice(run: Run) -> None:
    run.fit(customers(), "--splits", 2)
    lines = run.err.splitlines()
    (estimate,) = [
        line for line in lines if line.startswith("cross-validated accuracy (%), 2 splits, 95 % intervals: ")
    ]
    for words in (" close-k; ", " LogisticRegression; ", "56.7 always 'ja'"):
        assert words in estimate
    assert any(line.startswith("chosen: ") and ", because " in line for line in lines)
    (largest,) = [line for line in lines if line.startswith("largest coefficients, per standard deviation: ")]
    assert largest.partition(": ")[2].startswith("Alter -"), "the age decides, and older means ja, the first class"
    run.fit("t.csv", "--splits", 2, "--metric", "balanced-accuracy", "--json")
    (record,) = run.records()
    found = record["estimate"]
    assert found["metric"] == "balanced_accuracy"
    assert found["model"]["mean"] > found["majority"]["mean"] == 0.5
    assert found["model"]["low"] < found["model"]["mean"] < found["model"]["high"]
    assert record["coefficients"][0]["name"] == "Alter"


def test_fit_accepts_the_models_of_compare(run: Run) -> None:
    """The model equals scikit-learn's logistic regression with the chosen alpha."""
    run.fit(customers(), "--model", "logistic_regression", "--json")
    alpha = run.records()[0]["alpha"]
    model, table = TableModel.load("m"), read("t.csv")
    X, y = model.recipe.matrix(table.frame), table.labels.astype(str)
    judge = LogisticRegression(C=1 / alpha, tol=1e-8, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(model.classifier.coef_, judge.coef_, atol=2e-3)
    for name, aggregate in (("linear_svc", "average"), ("atk", "atk"), ("close_decay", "close_decay")):
        run.fit("t.csv", "--model", name, "--json")
        assert run.records()[0]["aggregate"] in (aggregate, "average")


def test_groups_and_time_divide_the_folds_of_a_fit(run: Run) -> None:
    rng = np.random.default_rng(0)
    rows = [
        f"{g % 2 + rng.standard_normal():.3f},{g},2024-01-{g % 28 + 1:02d},{'ab'[g % 2]}"
        for g in range(24)
        for _ in range(4)
    ]
    for option, column in (("--groups", "g"), ("--time", "when")):
        run.fit(written(rows, "x,g,when,class"), "--splits", 2, option, column, "--json")
        (record,) = run.records()
        assert record["estimate"]["model"]["mean"] > 0.5
        assert not any(column == each["name"] for each in record["coefficients"])


@pytest.mark.parametrize("make", [customers, plants])
def test_probabilities(run: Run, make: Any) -> None:
    """Probabilities sum to one, and on new rows they have a lower log loss than the shares of the classes."""
    run.fit(make(200, seed=1))
    Path("new.csv").write_text(make(120, seed=2))
    rows = run.predict("new.csv", "--probabilities")
    classes = TableModel.load("m").classifier.classes_.tolist()
    chances = np.array([[float(row[f"p({name})"]) for name in classes] for row in rows])
    np.testing.assert_allclose(chances.sum(axis=1), 1)
    truth = read("new.csv").labels.astype(str)
    shares = np.array([(truth == name).mean() for name in classes])
    assert log_loss(truth, chances, labels=classes) < 0.8 * -(shares * np.log(shares)).sum()
    assert run("predict", "m", "new.csv", "--probabilities", "--json") == 0
    assert run.records()[0][f"p({classes[0]})"] == pytest.approx(chances[0, 0])


def test_predictions_of_training_rows_are_flagged(run: Run) -> None:
    run.fit(customers(150, seed=1))
    run.predict("t.csv")
    assert "trained on 100% of the rows with a label" in run.unfolded
    assert "says little about new rows" in run.unfolded
    run.predict("-", stdin=customers(150, seed=2))
    assert "says little about new rows" not in run.unfolded
    assert run("predict", "m", "t.csv", "--json") == 0
    assert run.records("summary")[0]["learnt_from"] == 1


@pytest.mark.parametrize(("make", "row"), [(customers, 3), (customers, 8), (plants, 5)])
def test_pulls_add_up_and_flips_at_changes_the_prediction(run: Run, make: Any, row: int) -> None:
    """The pulls add up to the score of predict, and a value just beyond ``flips_at`` changes the prediction."""
    run.fit(make())
    rows = run.predict("t.csv")
    assert run("explain", "m", "t.csv", "--row", row, "--json") == 0
    head, *pulls = run.records()
    assert head["prediction"] == rows[row - 1]["prediction"].removeprefix("'")
    assert head["start"] + sum(each["pull"] for each in pulls) == pytest.approx(head["score"])
    assert abs(head["score"]) == pytest.approx(abs(float(rows[row - 1]["score"])))
    assert [abs(each["pull"]) for each in pulls] == sorted((abs(each["pull"]) for each in pulls), reverse=True)
    number = next(each for each in pulls if each["column"] in ("Alter", "width"))
    model, frame = TableModel.load("m"), read("t.csv").frame.iloc[[row - 1]].copy()
    for side, flipped in ((1.001, True), (0.999, False)):
        now, there = float(number["value"]), float(number["flips_at"])
        frame[number["column"]] = [str(now + side * (there - now))]
        assert (model.predict(frame)[0][0] != head["prediction"]) == flipped
    assert run("explain", "m", "t.csv", "--row", row) == 0
    assert f"row {row}: {head['prediction']}" in run.out
    assert max(map(len, run.out.splitlines())) <= 80
    run.refused("rows are counted from 1", "explain", "m", "t.csv", "--row", 999)


def test_a_numeric_column_without_numbers_is_an_error(run: Run) -> None:
    run.fit(customers(60))
    header, *lines = customers(60).splitlines()
    wrong = [";".join([*line.split(";")[:1], "alt", *line.split(";")[2:]]) for line in lines]
    words = "'Alter' contained numbers in training but has none here (it has 'alt')"
    run.refused(words, "predict", "m", "-", "--out", "p.csv", stdin="\n".join([header, *wrong]))
    assert not Path("p.csv").exists()


def test_the_pipeline_works_in_scikit_learn(run: Run) -> None:
    run.fit(customers(), "--model", "logistic")
    model, table = TableModel.load("m"), read("t.csv")
    pipeline, y = model.to_sklearn(), table.labels.astype(str)
    np.testing.assert_array_equal(pipeline.predict(table.frame), model.predict(table.frame)[0])
    names = pipeline[:-1].get_feature_names_out().tolist()
    assert names == ["Alter", "Umsatz", "Seit", "Stadt=Bonn", "Stadt=Köln", "Stadt=Ulm"]
    assert {each["name"] for each in model.coefficients} == set(names)
    again = clone(pipeline).fit(table.frame, y)
    np.testing.assert_array_equal(again.predict(table.frame), pipeline.predict(table.frame))
    assert cross_val_score(pipeline, table.frame, y, cv=3).mean() > 0.7


def odd(rows: int = 120, seed: int = 4) -> str:
    """Four classes that are numbers; numbers that float32 cannot represent; dates, names and numbers with gaps."""
    rng = np.random.default_rng(seed)
    lines = ["when;flag;word;small;huge;often;7"]
    for row in range(rows):
        label = row % 4
        small, huge = 1e-7 * (label + rng.standard_normal()), 1e9 + 3 * label + rng.standard_normal()
        cells = [
            f"20{20 + label}-0{1 + row % 9}-11", rng.choice(["yes", "no"]), rng.choice(["a b", "=c", "ü", "d"]),
            f"{small:.12g}".replace(".", ","), f"{huge:.3f}".replace(".", ","),
            "often" if rng.random() < 0.9 else "rare",
        ]  # fmt: skip
        lines.append(";".join([*("?" if rng.random() < 0.15 else cell for cell in cells), str(label)]))
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("make", [customers, plants, odd])
def test_onnx_predicts_the_same(run: Run, make: Any) -> None:
    """The ONNX file, run by onnxruntime on rows with new names and missing values, agrees with predict."""
    pytest.importorskip("skl2onnx", reason='needs skl2onnx: pip install "closecall[onnx]"')
    ort = pytest.importorskip("onnxruntime", reason='needs onnxruntime: pip install "closecall[onnx]"')
    from closecall.table.deploy import input_name
    from closecall.table.read.columns import numbers, texts

    run.fit(make(), "--onnx", "m.onnx")
    Path("new.csv").write_text(make(60, seed=11).replace("Bonn", "Rom"))
    rows = run.predict("new.csv", "--probabilities")
    model = TableModel.load("m")
    session = ort.InferenceSession("m.onnx", providers=["CPUExecutionProvider"])
    assert [each.name for each in session.get_inputs()] == [input_name(i) for i in range(len(model.recipe.steps))]
    columns = session.get_modelmeta().custom_metadata_map
    assert [columns[input_name(i)].rpartition(" (")[0] for i in range(len(columns))] == [
        step.column.name for step in model.recipe.steps
    ]
    frame, given = read("new.csv").frame, {}
    for place, step in enumerate(model.recipe.steps):
        values = frame[step.column.name]
        column = texts(values).fillna("").to_numpy(dtype=object) if step.levels else numbers(values, step.column)
        given[input_name(place)] = column[:, None]
    labels, chances = session.run(None, given)
    assert labels.tolist() == [row["prediction"].removeprefix("'") for row in rows]
    ours = [[float(row[f"p({name})"]) for name in model.classifier.classes_] for row in rows]
    np.testing.assert_allclose(chances, ours, rtol=1e-9, atol=1e-12)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("kind", [CloseKClassifier, AggregateLossClassifier])
@pytest.mark.parametrize(
    ("calibration", "form", "classes"),
    [(None, "top_two", 2), (None, "top_two", 3), (None, "ovr", 3), (None, "softmax", 3), ("sigmoid", "top_two", 3),
     ("isotonic", "top_two", 2), ("isotonic", "top_two", 3)],
)  # fmt: skip
def test_classifiers_convert_to_onnx(kind: Any, calibration: str | None, form: str, classes: int) -> None:
    """Every classifier converts as part of a pipeline, in float32 and float64."""
    skl2onnx = pytest.importorskip("skl2onnx", reason='needs skl2onnx: pip install "closecall[onnx]"')
    ort = pytest.importorskip("onnxruntime", reason='needs onnxruntime: pip install "closecall[onnx]"')
    from closecall.linear.onnx import register

    register()
    rng = np.random.default_rng(classes)
    y = np.arange(90) % classes
    X = rng.normal(size=(90, 3)) + y[:, None]
    model = kind(calibration=calibration, multiclass=form, random_state=0).fit(X, y)
    for dtype, exact in ((np.float64, 1e-9), (np.float32, 1e-4)):
        content = skl2onnx.to_onnx(model, X[:1].astype(dtype), options={"zipmap": False}).SerializeToString()
        session = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
        labels, second = session.run(None, {"X": X.astype(dtype)})
        np.testing.assert_array_equal(labels, model.predict(X))
        scores = model.decision_function(X)
        regression = kind is AggregateLossClassifier and (form != "top_two" or classes == 2)
        assert hasattr(model, "predict_proba") == (regression or calibration is not None)
        scores = scores[:, None] if scores.ndim == 1 else scores
        expected = model.predict_proba(X) if hasattr(model, "predict_proba") else scores
        np.testing.assert_allclose(second, expected, rtol=exact, atol=exact)

"""Forged skops models: only models that ``closecall fit`` writes are read, and only if their parts are consistent."""

import json
import resource
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.svm import SVC

from closecall import cli
from closecall._arrays import check_members
from closecall._budget import PEAK, Budget
from closecall.table import keep
from closecall.table.model import TableModel
from closecall.table.read.dataset import DataError
from closecall.table.table import read

ROWS = 40
TABLE = "a,b,target\n" + "".join(f"{i % 7},{i * i % 11},{'yn'[(i * i) % 3 == 1]}\n" for i in range(ROWS))


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[TableModel, Any, Any]:
    """Return a model of a table, and the matrix and labels for other classifiers in it."""
    monkeypatch.chdir(tmp_path)
    Path("t.csv").write_text(TABLE)
    table = read("t.csv")
    model = TableModel.fit(table, "k_nn")
    return model, model.recipe.matrix(table.frame), np.asarray(table.labels, dtype=str)


def short_machine(X: Any, y: Any) -> Any:
    """Return a model whose compiled code would read coefficients beyond the end of the array."""
    model = SVC().fit(X, y)
    model._dual_coef_ = model.dual_coef_ = model._dual_coef_[:, :1].copy()
    return model


def machine_of_many(X: Any, y: Any) -> Any:
    model = SVC().fit(X, y)
    model.classes_ = np.array([f"{i:05}" for i in range(5000)])
    return model


def all_products(X: Any, y: Any) -> Any:
    """Return a model of 5 KB that would compute five billion numbers from a row."""
    model = make_pipeline(PolynomialFeatures(1), LogisticRegression()).fit(X, y)
    first, last = model[0], model[-1]
    first.degree = first._max_degree = 100_000
    first._n_out_full = first.n_output_features_ = 10**9
    last.n_features_in_ = 10**9
    return model


def no_numbers(X: Any, y: Any) -> Any:
    model = LogisticRegression().fit(X, y)
    model.coef_[:] = np.nan
    return model


@pytest.mark.parametrize("make", [short_machine, machine_of_many, all_products, no_numbers])
def test_other_classes_are_refused_before_anything_is_made(plain: Any, make: Callable[..., Any]) -> None:
    model, X, y = plain
    replace(model, classifier=make(X, y)).save("m")
    done = subprocess.run(
        [sys.executable, "-m", "closecall", "predict", "m", "t.csv"], capture_output=True, text=True, check=False,
        timeout=120, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (PEAK, PEAK)),
    )  # fmt: skip
    assert done.returncode == cli.BAD_REQUEST, done.stderr[-300:]
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "if you trust the author of the file, pass --trust sklearn." in done.stderr


def test_what_is_trusted_must_still_have_finite_scores(plain: Any) -> None:
    model, X, y = plain
    replace(model, classifier=no_numbers(X, y)).save("m")
    frame = read("t.csv").frame
    with pytest.raises(DataError, match="LogisticRegression"):
        TableModel.load("m")
    trusted = TableModel.load("m", ["sklearn.linear_model._logistic.LogisticRegression"])
    for ask in (trusted.predict, trusted.probabilities):
        with pytest.raises(DataError, match="are not finite"):
            ask(frame)


def test_onnx_of_what_is_not_finite_is_refused(plain: Any) -> None:
    from closecall.table.deploy import to_onnx

    model = TableModel.fit(read("t.csv"), "logistic")
    assert to_onnx(model).graph.initializer
    model.classifier.intercept_ = np.array([np.inf])
    with pytest.raises(DataError, match="not finite"):
        to_onnx(model)


def _tree(model: Any, **changed: Any) -> None:
    """Change the arrays of the first tree: a field of its nodes, or the shares of its classes, at a place."""
    tree = model.estimators_[0].tree_
    state = {
        name: value.copy() if name in ("nodes", "values") else value for name, value in tree.__getstate__().items()
    }
    for name, (place, value) in changed.items():
        (state["values"] if name == "values" else state["nodes"][name])[place] = value
    tree.__setstate__(state)


def _leaf(model: Any) -> int:
    return int(np.flatnonzero(model.estimators_[0].tree_.children_left == -1)[0])


def _fewer(model: Any, name: str, count: int = 1) -> None:
    setattr(model, name, getattr(model, name)[:-count])


def _nodes(model: Any, name: str, value: Any, place: int = 0) -> None:
    nodes = model._predictors[0][0].nodes = model._predictors[0][0].nodes.copy()
    nodes[name][place] = value


def _set(model: Any, name: str, value: Any) -> None:
    setattr(model, name, value)


def _at(model: Any, name: str, place: Any, value: Any) -> None:
    array = getattr(model, name).copy()
    array[place] = value
    setattr(model, name, array)


FOREST: dict[str, Callable[[Any], None]] = {
    "child beyond the nodes": lambda model: _tree(model, left_child=(0, 10**6)),
    "child before its parent": lambda model: _tree(model, right_child=(0, 0)),
    # Without a loop, but with exponentially many ways through such nodes.
    "two ways to one node": lambda model: _tree(model, right_child=(0, model.estimators_[0].tree_.children_left[0])),
    "nodes that cannot be reached": lambda model: _tree(model, left_child=(0, -1)),
    "a feature beyond the columns": lambda model: _tree(model, feature=(0, 99)),
    "a negative feature": lambda model: _tree(model, feature=(0, -2)),
    "a threshold that is not a number": lambda model: _tree(model, threshold=(0, np.nan)),
    "an infinite threshold": lambda model: _tree(model, threshold=(0, np.inf)),
    "shares that are not numbers": lambda model: _tree(model, values=(_leaf(model), np.nan)),
    "negative shares": lambda model: _tree(model, values=(_leaf(model), [[-1.0, 2.0]])),
    "shares above 1": lambda model: _tree(model, values=(_leaf(model), 1.0)),
    "fewer trees than it says": lambda model: _fewer(model, "estimators_"),
    "no trees": lambda model: (_fewer(model, "estimators_", 3), _set(model, "n_estimators", 0)),
    "trees of another type": lambda model: _set(model, "estimators_", [1, 2, 3]),
    "more classes than shares": lambda model: _set(model, "classes_", np.array(["a", "b", "c"])),
    "one class": lambda model: _fewer(model, "classes_"),
    "classes out of order": lambda model: _set(model, "classes_", np.array(["y", "n"])),
    "classes that are equal": lambda model: _set(model, "classes_", np.array(["n", "n"])),
    "classes that are numbers": lambda model: _set(model, "classes_", np.arange(2)),
    "classes that are objects": lambda model: _set(model, "classes_", np.array(["n", "y"], dtype=object)),
    "number of features differs": lambda model: _set(model, "n_features_in_", 3),
}  # fmt: skip
BOOSTING: dict[str, Callable[[Any], None]] = {
    "child beyond the nodes": lambda model: _nodes(model, "left", 2**32 - 1),
    "child before its parent": lambda model: _nodes(model, "right", 0),
    "a feature beyond the columns": lambda model: _nodes(model, "feature_idx", 2),
    "a negative feature": lambda model: _nodes(model, "feature_idx", -1),
    "a threshold that is not a number": lambda model: _nodes(model, "num_threshold", np.nan),
    "a value that is infinite": lambda model: _nodes(model, "value", np.inf, -1),
    "a split by categories": lambda model: _nodes(model, "is_categorical", 1),
    "a leaf with children": lambda model: _nodes(model, "is_leaf", 0, -1),
    "no nodes": lambda model: _set(model._predictors[0][0], "nodes", model._predictors[0][0].nodes[:0]),
    "other nodes": lambda model: _set(model._predictors[0][0], "nodes", np.zeros(3)),
    "too many trees in a round": lambda model: model._predictors[0].append(model._predictors[0][0]),
    "a round without trees": lambda model: model._predictors[0].clear(),
    "a start of another shape": lambda model: _set(model, "_baseline_prediction", np.zeros((1, 2))),
    "a start that is not a number": lambda model: _set(model, "_baseline_prediction", np.full((1, 1), np.nan)),
}
NEIGHBOURS: dict[str, Callable[[Any], None]] = {
    "a row that is not a number": lambda model: _at(model, "_fit_X", (0, 0), np.nan),
    "a code beyond the classes": lambda model: _at(model, "_y", 0, 2),
    "a negative code": lambda model: _at(model, "_y", 0, -1),
    "a class without rows": lambda model: _at(model, "_y", slice(None), 0),
    "fewer codes than rows": lambda model: _fewer(model, "_y"),
    "fewer columns": lambda model: _set(model, "_fit_X", model._fit_X[:, :1].copy()),
    "rows of another type": lambda model: _set(model, "_fit_X", model._fit_X.astype(np.float32)),
    "more neighbours than fit asks for": lambda model: _set(model, "n_neighbors", 30),
    "no neighbours": lambda model: _set(model, "n_neighbors", 0),
    "more neighbours than rows": lambda model: _set(model, "n_neighbors", 95),
}
FORGED = [
    *((RandomForestClassifier(3, random_state=0), name, change) for name, change in FOREST.items()),
    *((HistGradientBoostingClassifier(max_iter=2, min_samples_leaf=2), *pair) for pair in BOOSTING.items()),
    *((KNeighborsClassifier(3, algorithm="brute"), name, change) for name, change in NEIGHBOURS.items()),
]  # fmt: skip


@pytest.mark.parametrize(
    ("classifier", "name", "change"), FORGED, ids=[f"{type(m).__name__[:6]}: {n}" for m, n, _ in FORGED]
)
def test_what_does_not_fit_together_is_refused(plain: Any, classifier: Any, name: str, change: Any) -> None:
    model, X, y = plain
    forged = replace(model, classifier=classifier.fit(X, y))
    forged.save("m")
    TableModel.load("m")
    change(forged.classifier)
    forged.save("m")
    with pytest.raises(DataError, match="fit it again"):
        TableModel.load("m")


def test_other_settings_are_another_class(plain: Any) -> None:
    """``fit --model k_nn`` writes neither search trees nor weighted neighbours."""
    model, X, y = plain
    for setting in ({"algorithm": "kd_tree"}, {"algorithm": "brute", "weights": "distance"}):
        replace(model, classifier=KNeighborsClassifier(3, **setting).fit(X, y)).save("m")
        with pytest.raises(DataError, match=r"--trust sklearn.*KNeighborsClassifier"):
            TableModel.load("m")


def _rewritten(change: Callable[[Any], None]) -> None:
    """Change the schema of the file ``m``."""
    with zipfile.ZipFile("m") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    schema = json.loads(members["schema.json"])
    change(schema)
    members["schema.json"] = json.dumps(schema).encode()
    with zipfile.ZipFile("m", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def test_an_array_counts_as_often_as_it_is_named(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of few kilobytes refers to the same tree many times: each tree is built and counted."""
    model, X, y = plain
    replace(model, classifier=RandomForestClassifier(1, random_state=0).fit(X, y)).save("m")
    monkeypatch.setattr(keep, "Budget", lambda: Budget(8 << 20))
    TableModel.load("m")

    def repeat(schema: Any) -> None:
        inside = schema["content"]["classifier"]["content"]["content"]
        for _ in range(9):
            inside["estimators_"]["content"] = inside["estimators_"]["content"] * 2
        inside["n_estimators"]["content"] = str(2**9)

    _rewritten(repeat)
    with pytest.raises(DataError, match="bytes allowed when unpacked"):
        TableModel.load("m")


def test_plain_data_are_not_a_classifier_and_skops_is_not_called(plain: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import skops.io

    model, _, _ = plain
    model.save("m")
    monkeypatch.setattr(skops.io, "load", pytest.fail)
    _rewritten(lambda schema: schema["content"].update(classifier=schema["content"]["mean"]))
    with pytest.raises(DataError, match="it holds no classifier"):
        TableModel.load("m", ["sklearn.svm._classes.SVC"])


def test_too_many_members_are_not_even_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "m", "w") as archive:
        for number in range(20):
            archive.writestr(str(number), b"")
        archive.writestr("schema.json", "{}")
    monkeypatch.setattr(keep, "MAX_MEMBERS", 10)
    assert not keep.is_skops(tmp_path / "m")
    with (tmp_path / "m").open("rb") as file, pytest.raises(ValueError, match="too many"):
        check_members(file, 10)


@settings(max_examples=25, deadline=None)
@given(classes=st.integers(2, 5), features=st.integers(1, 6), seed=st.integers(0, 2**31))
def test_rebuilt_models_are_those_that_were_saved(classes: int, features: int, seed: int) -> None:
    """Labels, probabilities and paths through the trees are those of scikit-learn's own objects, bit for bit."""
    rng = np.random.default_rng(seed)
    rows = int(rng.integers(20, 120))
    X, fresh = rng.normal(size=(rows, features)), 3 * rng.normal(size=(50, features))
    y = np.array([f"class {i}" for i in range(classes)])[np.r_[:classes, rng.integers(classes, size=rows - classes)]]
    kinds = [
        RandomForestClassifier(int(rng.integers(1, 9)), min_samples_leaf=int(rng.integers(1, 5)), random_state=0),
        HistGradientBoostingClassifier(max_iter=int(rng.integers(1, 9)), min_samples_leaf=2, random_state=0),
        KNeighborsClassifier(int(rng.choice([1, 3, 5])), algorithm="brute"),
    ]
    for kind in kinds:
        model = kind.fit(X, y)
        state = {"format": 1, "target": "t", "steps": [], "mean": np.zeros(features), "scale": np.ones(features)}
        with tempfile.TemporaryDirectory() as folder:
            keep.dump({**state, "classifier": model}, f"{folder}/m")
            found = keep.load(f"{folder}/m")["classifier"]
        assert type(found) is type(model)
        assert found.classes_.tolist() == model.classes_.tolist()
        np.testing.assert_array_equal(found.predict_proba(fresh), model.predict_proba(fresh))
        assert found.predict(fresh).tolist() == model.predict(fresh).tolist()
        if isinstance(model, RandomForestClassifier):
            assert [tree.get_depth() for tree in found.estimators_] == [tree.get_depth() for tree in model.estimators_]
            assert (found.decision_path(fresh)[0] != model.decision_path(fresh)[0]).nnz == 0
            np.testing.assert_array_equal(found.feature_importances_, model.feature_importances_)

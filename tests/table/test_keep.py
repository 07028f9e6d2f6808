"""Nonlinear models on the command line: fit, save with skops, predict and explain."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedGroupKFold, cross_val_predict
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from closecall import AggregateLossClassifier
from closecall._budget import Budget
from closecall.table import keep
from closecall.table.divide import Order
from closecall.table.model import TableModel
from closecall.table.read.dataset import DataError
from closecall.table.table import read
from tests.table.helpers import STUMP, Run, customers, package, plants, platt, written

skops_io = pytest.importorskip("skops.io", reason="install closecall[bench]")


def judge_of(name: str, setting: str) -> Any:
    """scikit-learn's own classifier with the setting that fit printed."""
    if name == "random_forest":
        feats, leaf = re.match(r"max_features=(\S+), leaves of (\d+)", setting).groups()  # type: ignore[union-attr]
        features = feats if feats == "sqrt" else int(feats) if feats == "1" else float(feats)
        return RandomForestClassifier(100, max_features=features, min_samples_leaf=int(leaf), random_state=0)
    first, *rest = map(int, re.findall(r"\d+", setting.partition(", the best")[0]))
    if name == "gradient_boosting":
        return HistGradientBoostingClassifier(max_leaf_nodes=first, max_iter=rest[0], early_stopping=False)
    return KNeighborsClassifier(first)


TRUST = ("--trust", "sklearn.naive_bayes.GaussianNB")


@pytest.mark.parametrize(
    ("name", "make"),
    [("random_forest", customers), ("gradient-boosting", plants), ("k_nn", plants),
     ("sklearn.naive_bayes:GaussianNB", customers)],
)  # fmt: skip
def test_fit_predict_and_explain(run: Run, name: str, make: Any) -> None:
    """Labels and probabilities equal those of scikit-learn with the setting that fit printed; pulls match predict."""
    Path("new.csv").write_text(make(40, seed=3))
    run.fit(make(), "--model", name, "--json")
    (record,) = run.records()
    assert zipfile.is_zipfile("m")
    assert record["coefficients"] == []
    trust = TRUST if ":" in name else ()
    model, table, fresh = TableModel.load("m", trust[1:]), read("t.csv"), read("new.csv")
    X, y = model.recipe.matrix(table.frame), table.labels.astype(str)
    judge = GaussianNB() if ":" in name else judge_of(str(record["classifier"]), str(record["setting"]))
    judge.fit(X, y)
    rows = run.predict("new.csv", "--probabilities", *trust)
    new = model.recipe.matrix(fresh.frame)
    assert [row["prediction"].removeprefix("'") for row in rows] == judge.predict(new).tolist()
    found = [[float(row[f"p({label})"]) for label in judge.classes_] for row in rows]
    np.testing.assert_allclose(found, judge.predict_proba(new), rtol=1e-9, atol=1e-12)
    run.predict("t.csv", *trust)
    assert "says little about new rows" in run.unfolded

    assert run("explain", "m", "new.csv", "--row", 2, "--json", *trust) == 0
    head, *pulls = run.records()
    assert head["prediction"] == rows[1]["prediction"].removeprefix("'")
    pull = next(each for each in pulls if each["column"] in ("Alter", "width"))
    lines = make(40, seed=3).splitlines()
    mark = ";" if ";" in lines[0] else ","
    cells = lines[2].split(mark)
    cells[lines[0].split(mark).index(pull["column"])] = ""
    if len(judge.classes_) == 2:
        (usual,) = run.predict("-", *trust, stdin=f"{lines[0]}\n{mark.join(cells)}\n")
        sign = 1 if head["prediction"] == judge.classes_[1] else -1
        assert pull["pull"] == pytest.approx(sign * (float(rows[1]["score"]) - float(usual["score"])))
    assert run("explain", "m", "new.csv", "--row", 2, *trust) == 0
    assert "need not add up" in " ".join(run.out.split())
    assert max(map(len, run.out.splitlines())) <= 80


def test_a_moved_threshold_is_a_linear_model(run: Run) -> None:
    """A few outliers shift the boundary; moving it back is a gain, and the probabilities stay unchanged."""
    rng = np.random.default_rng(0)
    x = np.r_[rng.uniform(-2, 0, 150), rng.uniform(0, 2, 150), rng.uniform(8, 12, 16)]
    labels = np.repeat(["a", "b", "a"], [150, 150, 16])
    table = written([f"{v:.4f},{c}" for v, c in zip(x, labels, strict=True)], "x,y")
    accuracies, chances = [], []
    for name in ("logistic_regression", "exact_threshold"):
        run.fit(table, "--model", name, "--no-squash")
        rows = run.predict(table, "--probabilities")
        accuracies.append(np.mean([row["prediction"] == label for row, label in zip(rows, labels, strict=True)]))
        chances.append([float(row["p(b)"]) for row in rows])
    assert accuracies[1] > accuracies[0] + 0.1
    np.testing.assert_allclose(chances[0], chances[1], rtol=1e-6)
    assert not zipfile.ZipFile("m").namelist().count("schema.json"), "plain numbers, as every linear model"


def test_types_from_other_packages_need_trust(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package(tmp_path, "own_models", STUMP)
    monkeypatch.syspath_prepend(str(tmp_path))
    run.fit(customers(60), "--model", "own_models:Stump")
    asked = "--trust own_models.Stump --trust sklearn.tree._tree.Tree"
    assert f"predict and explain need {asked}" in run.unfolded
    run.refused(f"pass {asked}", "predict", "m", "t.csv")
    run.refused("contains types that are not checked", "predict", "m", "t.csv", "--trust", "own_models.Stump")
    for command in ("predict", "explain"):
        assert run(command, "m", "t.csv", *asked.split()) == 0, run.err


def test_damaged_and_forged_files_are_refused(run: Run) -> None:
    run.fit(customers(60), "--model", "random_forest")
    content = Path("m").read_bytes()
    words = "cannot write the model 'no/m': No such file"
    run.refused(words, "fit", "t.csv", "--out", "no/m", "--model", "k_nn", "--splits", 0)
    state = skops_io.loads(content, trusted=["sklearn.tree._tree.Tree"])
    members = zipfile.ZipFile("m").infolist()
    for member in (members[0], members[len(members) // 2], members[-1]):
        # In the middle of the data, because an archive stores its headers twice and only one copy is read.
        place = member.header_offset + 30 + len(member.filename) + member.compress_size // 2
        Path("m").write_bytes(
            content[:place] + bytes(255 - byte for byte in content[place : place + 8]) + content[place + 8 :]
        )
        run.refused(" it again", "predict", "m", "t.csv")
    for forged in ({**state, "classifier": "none"}, [1, 2]):
        skops_io.dump(forged, "m")
        run.refused("fit it again", "predict", "m", "t.csv")


@pytest.mark.parametrize(("method", "mebibytes", "reason"), [
    (zipfile.ZIP_BZIP2, 1, "neither stored nor deflated"),
    (zipfile.ZIP_DEFLATED, 3, "bytes allowed when unpacked"),
])  # fmt: skip
def test_a_bomb_is_refused_before_skops_opens_it(
    method: int, mebibytes: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with zipfile.ZipFile(tmp_path / "m", "w", method) as archive:
        named = {"__module__": "own", "__class__": "Model", "__loader__": "ObjectNode"}
        inside = {"__loader__": "DictNode", "content": {"classifier": named}}
        archive.writestr("schema.json", json.dumps(inside))
        with archive.open("k.npy", "w") as member:
            for _ in range(mebibytes):
                member.write(bytes(1 << 20))
    monkeypatch.setattr(skops_io, "load", pytest.fail)
    monkeypatch.setattr(keep, "Budget", lambda: Budget(2 << 20))
    with pytest.raises(ValueError, match=reason):
        keep.load(tmp_path / "m", ["own.Model"])


@pytest.mark.parametrize("name", ["logistic_regression", "close_k"])
def test_calibration_keeps_groups_apart(run: Run, name: str) -> None:
    """The rows of a group are copies, so folds that divide groups make the scores of a wide model look too certain."""
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(24), 4)
    X = np.repeat(rng.normal(size=(24, 12)), 4, axis=0)
    X[:, 0] += groups % 2
    lines = [",".join(f"{v:.5f}" for v in row) + f",g{g},{'ab'[g % 2]}" for row, g in zip(X, groups, strict=True)]
    order, table = Order.of(read(written(lines, ",".join(f"x{i}" for i in range(12)) + ",g,class")), groups="g")
    model = TableModel.fit(table, name, order=order)
    Z, y, plain = model.recipe.matrix(table.frame), table.labels.astype(str), judged(model.classifier)
    cv = StratifiedGroupKFold(5, shuffle=True, random_state=0)
    scores = cross_val_predict(plain, Z, y, cv=cv, groups=order.values, method="decision_function")
    np.testing.assert_allclose(model.classifier.calibrators_[0], platt(scores, y == "b"), rtol=0.02, atol=0.02)


def judged(model: Any) -> Any:
    """Return a classifier with the chosen setting, from scikit-learn where possible."""
    chosen = getattr(model, "best_params_", {"alpha": getattr(model, "alpha", 0), "loss": "logistic"})
    if chosen.get("aggregate", "average") == "average" and not chosen.get("exact_intercept"):
        return LogisticRegression(C=1 / chosen["alpha"], tol=1e-8, max_iter=10_000)
    return AggregateLossClassifier(**{key: value for key, value in chosen.items() if key != "multiclass"})


def test_skops_keeps_the_pipeline(run: Run) -> None:
    """Dumping, inspecting the types and loading, as in the guide, gives the same predictions."""
    run.fit(customers(60), "--model", "logistic")
    pipeline, frame = TableModel.load("m").to_sklearn(), read("t.csv").frame
    content = skops_io.dumps(pipeline)
    unknown = skops_io.get_untrusted_types(data=content)
    assert all(name.startswith(("closecall.", "numpy.")) for name in unknown), unknown
    again = skops_io.loads(content, trusted=unknown)
    np.testing.assert_array_equal(again.predict(frame), pipeline.predict(frame))


def test_files_that_are_not_archives_are_explained(tmp_path: Path) -> None:
    """The check for skops hides why a file cannot be opened; the reader of linear models reports it."""
    with zipfile.ZipFile(tmp_path / "later", "w") as archive:
        archive.writestr("schema.json", "{}")
    content = bytearray((tmp_path / "later").read_bytes())
    content[content.index(b"PK\x01\x02") + 6] = 99  # a version of zip that no reader supports
    (tmp_path / "later").write_bytes(content)
    (tmp_path / "empty").touch()
    for name, why in {"later": r"zip file version 9\.9", "empty": "not a zip file"}.items():
        with pytest.raises(ValueError, match=why):
            TableModel.load(tmp_path / name)
    for path, why in {tmp_path / "missing": "No such file", tmp_path: "Is a directory"}.items():
        with pytest.raises(DataError, match=why):
            TableModel.load(path)
